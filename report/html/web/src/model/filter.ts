// Which frames a text means: the patterns of `memlab-report --filter` and `--skip`, upper and lower case alike.
import type { SiteTable } from "./recording";

// A text without pattern characters is looked for anywhere; with `*`, `?` it must match the whole name or its last part.
export function textMatcher(pattern: string): (text: string) => boolean {
  const wanted = pattern.toLowerCase();
  if (!/[*?]/.test(wanted)) return (text) => text.toLowerCase().includes(wanted);
  const escaped = wanted
    .replace(/[.+^${}()|[\]\\]/g, "\\$&")
    .replace(/\*/g, ".*")
    .replace(/\?/g, ".");
  const whole = new RegExp(`^${escaped}$`, "s");
  return (text) => {
    const lower = text.toLowerCase();
    return whole.test(lower) || whole.test(lower.slice(lower.lastIndexOf("/") + 1));
  };
}

function split(pattern: string): { of: string; text: string } {
  const found = /^(func|file|module|kind|category)=(.*)$/s.exec(pattern);
  return found ? { of: found[1]!, text: found[2]! } : { of: "", text: pattern };
}

// For each frame whether it matches; null: everything does.
export function matchFrames(table: SiteTable, pattern: string): Uint8Array | null {
  if (pattern === "") return null;
  const { of, text } = split(pattern);
  const matches = textMatcher(text);
  // Each string once: many frames share a file or a module.
  const known = new Int8Array(table.strings.length).fill(-1);
  const test = (index: number): boolean => {
    if (index < 0) return false;
    if (known[index]! < 0) known[index] = matches(table.strings[index]!) ? 1 : 0;
    return known[index] === 1;
  };
  const frames = table.frames;
  const result = new Uint8Array(frames.function.length);
  for (let frame = 0; frame < result.length; ++frame) {
    const hit =
      ((of === "" || of === "func") && test(frames.function[frame]!)) ||
      ((of === "" || of === "file") && test(frames.file[frame]!)) ||
      ((of === "" || of === "module") && test(frames.module[frame]!));
    if (hit) result[frame] = 1;
  }
  return result;
}

// For each site whether any of its frames, its kind or its category matches; null: all do.
export function matchSites(table: SiteTable, pattern: string): Uint8Array | null {
  const frames = matchFrames(table, pattern);
  if (!frames) return null;
  const { of, text } = split(pattern);
  const matches = textMatcher(text);
  const result = new Uint8Array(table.count);
  for (let site = 0; site < table.count; ++site) {
    const ofSite =
      ((of === "" || of === "kind") && matches(table.text(table.kind[site]!))) ||
      ((of === "" || of === "category") && matches(table.text(table.category[site]!)));
    if (ofSite || table.stacks[site]!.some((frame) => frames[frame] === 1)) result[site] = 1;
  }
  return result;
}

// The sites of a device that match.
export function usedSites(table: SiteTable, device: number, pattern: string): (site: number) => boolean {
  const matched = matchSites(table, pattern);
  return (site) => table.device[site] === device && (!matched || matched[site] === 1);
}
