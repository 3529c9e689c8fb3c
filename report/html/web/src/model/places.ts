// Sites summed by the place that stands for them, as `memlab-report sites` does.
import type { Figures, SiteTable } from "./recording";

export interface Place {
  frame: number;
  kind: string;
  category: string;
  bytes: number; // now, or after
  blocks: number;
  before: number; // bytes before; 0 where nothing is compared
  beforeBlocks: number;
  change: number;
  changeBlocks: number;
  allocations: number; // of the whole run
  allocatedBytes: number;
  sites: number[];
}

export interface PlaceOptions {
  use: (site: number) => boolean;
  showSkipped: boolean;
  skip: Uint8Array | null;
}

// The frame that stands for a site when more frames are passed over, or none is.
export function placeOf(table: SiteTable, site: number, options: PlaceOptions): number {
  const stack = table.stacks[site]!;
  for (let i = stack.length - 1; i >= 0; --i) {
    const frame = stack[i]!;
    if ((options.showSkipped || !table.frames.skipped[frame]) && !options.skip?.[frame]) return frame;
  }
  return table.place(site);
}

export function places(table: SiteTable, after: Figures, before: Figures | null, options: PlaceOptions): Place[] {
  const found = new Map<string, Place>();
  for (let site = 0; site < table.count; ++site) {
    const now = after.bytes[site]!;
    const then = before?.bytes[site] ?? 0;
    const nowBlocks = after.blocks[site]!;
    const thenBlocks = before?.blocks[site] ?? 0;
    if ((now === 0 && then === 0 && nowBlocks === 0 && thenBlocks === 0) || !options.use(site)) continue;
    const frame = placeOf(table, site, options);
    const kind = table.kind[site]!;
    const key = `${frame} ${kind}`;
    let place = found.get(key);
    if (!place) {
      place = {
        frame,
        kind: table.text(kind),
        category: table.text(table.category[site]!),
        bytes: 0,
        blocks: 0,
        before: 0,
        beforeBlocks: 0,
        change: 0,
        changeBlocks: 0,
        allocations: 0,
        allocatedBytes: 0,
        sites: [],
      };
      found.set(key, place);
    }
    place.bytes += now;
    place.blocks += nowBlocks;
    place.before += then;
    place.beforeBlocks += thenBlocks;
    place.change += now - then;
    place.changeBlocks += nowBlocks - thenBlocks;
    place.allocations += table.allocations[site]!;
    place.allocatedBytes += table.allocatedBytes[site]!;
    place.sites.push(site);
  }
  return [...found.values()];
}
