// Where the ticks of an axis are, and what they say.
import { fixed } from "./format";

// A step of 2^n bytes that divides `most` into at most `parts` or so.
export function binaryStep(most: number, parts: number): number {
  return 2 ** Math.max(0, Math.ceil(Math.log2(most / (parts + 1))));
}

export function splits(most: number, step: number): number[] {
  const result = [];
  for (let value = 0; value <= most; value += step) result.push(value);
  return result;
}

export function axisBytes(value: number, step: number): string {
  if (value === 0) return "0";
  const power = Math.min(4, Math.floor(Math.log2(Math.max(step, 1) * 4) / 10));
  const scaled = value / 1024 ** power;
  return `${Number.isInteger(scaled) ? scaled : fixed(scaled, Number.isInteger(scaled * 10) ? 1 : 2)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

// 1, 2 or 5 times a power of ten.
export function niceStep(step: number): number {
  const power = 10 ** Math.floor(Math.log10(step));
  const part = step / power;
  return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

// A tick of the time axis, in the unit that its greatest value has, with as many digits as the step needs.
export function tick(ns: number, step: number, most: number): string {
  if (ns === 0) return "0";
  if (step >= 6e10) {
    const minutes = Math.round(ns / 6e10);
    return minutes < 60
      ? `${minutes} min`
      : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  }
  const [scale, unit] = most < 1e3 ? [1, "ns"] : most < 1e6 ? [1e3, "us"] : most < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  let digits = 0;
  for (let part = step / scale; digits < 9 && (part < 0.5 || Math.abs(part - Math.round(part)) > 1e-6); part *= 10)
    ++digits;
  return `${(ns / scale).toFixed(digits)} ${unit}`;
}
