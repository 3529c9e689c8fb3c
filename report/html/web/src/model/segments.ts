// The segments of a memory map: what of each is in use, and the sums of all.
import type { MemoryMap } from "../data";

type Segment = MemoryMap["segments"][number];

export interface SegmentRow {
  segment: Segment;
  used: number;
  largestFree: number;
}

export interface SegmentSums {
  reserved: number;
  used: number;
  cached: number;
  largest: number; // the largest free block
  empty: number; // segments
  emptyBytes: number;
}

export const free = -1; // else negative: blocks of several sites

// What of a segment is in use, and its largest free block. Parts of the segment that are in no block are free too.
export function segmentRow(segment: Segment): SegmentRow {
  let used = 0;
  let largestFree = 0;
  let freeSince = 0;
  segment.offset.forEach((offset, i) => {
    if (segment.site[i] === free) return;
    used += segment.length[i]!;
    largestFree = Math.max(largestFree, offset - freeSince);
    freeSince = offset + segment.length[i]!;
  });
  return { segment, used, largestFree: Math.max(largestFree, segment.size - freeSince) };
}

export function segmentSums(rows: SegmentRow[]): SegmentSums {
  const sums = { reserved: 0, used: 0, cached: 0, largest: 0, empty: 0, emptyBytes: 0 };
  for (const row of rows) {
    sums.reserved += row.segment.size;
    sums.used += row.used;
    sums.largest = Math.max(sums.largest, row.largestFree);
    if (row.used === 0) {
      ++sums.empty;
      sums.emptyBytes += row.segment.size;
    }
  }
  sums.cached = sums.reserved - sums.used;
  return sums;
}
