// Curves at the resolution of the screen: for each column of pixels the least and the greatest value in it.
import type { Curve } from "../data";

export interface Columns {
  min: Float64Array;
  max: Float64Array;
}

// The coarsest level whose buckets are no wider than a column, else the finest there is.
export function levelFor(curve: Curve, columnWidth: number): Curve["levels"][number] | undefined {
  let chosen = curve.levels[0];
  for (const level of curve.levels) if (level.bucket_ns <= columnWidth) chosen = level;
  return chosen;
}

// `columns` columns from time `from` to `to`. Beyond the curve's end its last value holds no longer: NaN.
export function sample(curve: Curve, from: number, to: number, columns: number, end: number): Columns {
  const min = new Float64Array(columns).fill(NaN);
  const max = new Float64Array(columns).fill(NaN);
  const width = (to - from) / columns;
  const level = levelFor(curve, width);
  if (!level || level.max.length === 0) return { min, max };
  for (let column = 0; column < columns; ++column) {
    const begin = from + column * width;
    if (begin > end || begin + width < 0) continue;
    const first = Math.max(0, Math.floor(begin / level.bucket_ns));
    const last = Math.min(level.max.length - 1, Math.max(first, Math.ceil((begin + width) / level.bucket_ns) - 1));
    let low = Infinity;
    let high = -Infinity;
    for (let bucket = first; bucket <= last; ++bucket) {
      // null: nothing was sampled yet
      low = Math.min(low, level.min[bucket] ?? Infinity);
      high = Math.max(high, level.max[bucket] ?? -Infinity);
    }
    if (high >= low) {
      min[column] = low;
      max[column] = high;
    }
  }
  return { min, max };
}

// The greatest value of a curve in a stretch of time, from its finest level.
export function greatest(curve: Curve, from: number, to: number): number {
  const level = curve.levels[0];
  if (!level) return 0;
  let most = 0;
  const last = Math.min(level.max.length - 1, Math.floor(to / level.bucket_ns));
  for (let bucket = Math.max(0, Math.floor(from / level.bucket_ns)); bucket <= last; ++bucket)
    most = Math.max(most, level.max[bucket] ?? 0);
  return most;
}
