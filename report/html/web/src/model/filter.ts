// Which frames and call sites a text means: the patterns of `memlab-report --filter` and `--skip`, and category=, which
// they have not.
import { named } from "./frame_choice";
import { textMatcher } from "./glob";
import { nnModuleMatcher } from "./nn_modules";
import type { SiteTable } from "./site_table";

export const filterHint = "func= file= module= kind= nn_module=";

function split(pattern: string): { of: string; text: string } {
  const found = /^(func|file|module|kind|category|nn_module)=(.*)$/s.exec(pattern);
  return found ? { of: found[1]!, text: found[2]! } : { of: "", text: pattern };
}

// Whether it chooses among nn.Modules, of which a recording has no totals of the run.
export const byNnModule = (pattern: string): boolean => split(pattern).of === "nn_module";

// For each string whether it matches, each once: many frames share a file or a module.
function matcherOf(table: SiteTable, matches: (text: string) => boolean): (index: number) => boolean {
  const known = new Int8Array(table.strings.length).fill(-1);
  return (index) => {
    if (index < 0) return false;
    if (known[index]! < 0) known[index] = matches(table.strings[index]!) ? 1 : 0;
    return known[index] === 1;
  };
}

// The name that --skip looks at: of a C++ function without parameters and template arguments.
function bareName(name: string): string {
  let depth = 0;
  let bare = "";
  for (const c of name) {
    if (c === "<") ++depth;
    else if (c === ">") depth = Math.max(0, depth - 1);
    else if (c === "(" && depth === 0 && bare !== "" && !bare.endsWith("::")) break;
    else if (depth === 0) bare += c;
  }
  return bare;
}

// For each frame whether it matches; null: everything does. `skipping`: as --skip, not as --filter.
export function matchFrames(table: SiteTable, pattern: string, skipping = false): Uint8Array | null {
  if (pattern === "") return null;
  const { of, text } = split(pattern);
  const plain = textMatcher(text);
  const own = skipping && !/[<(]/.test(text);
  const inName = matcherOf(table, own ? (name) => plain(bareName(name)) : plain);
  const inPath = matcherOf(table, plain);
  const frames = table.frames;
  const result = new Uint8Array(frames.function.length);
  for (let frame = 0; frame < result.length; ++frame) {
    // A frame without a name is shown as its place in a library: that is no name to look for.
    const hit =
      ((of === "" || of === "func") && (frames.choice[frame]! & named) !== 0 && inName(frames.function[frame]!)) ||
      ((of === "" || of === "file") && inPath(frames.file[frame]!)) ||
      ((of === "" || of === "module") && inPath(frames.module[frame]!));
    if (hit) result[frame] = 1;
  }
  return result;
}

// For each site whether it matches; null: all do.
export function matchSites(table: SiteTable, pattern: string): Uint8Array | null {
  if (pattern === "") return null;
  const { of, text } = split(pattern);
  const result = new Uint8Array(table.count);
  if (of === "nn_module") {
    const matches = nnModuleMatcher(text);
    const named = table.nnModules.map(({ name }) => name !== null && matches(name));
    for (let site = 0; site < table.count; ++site) if (named[table.nnModule[site]!]) result[site] = 1;
    return result;
  }
  if (of === "kind" || of === "category") {
    const matches = textMatcher(text);
    const column = of === "kind" ? table.kind : table.category;
    for (let site = 0; site < table.count; ++site) if (matches(table.text(column[site]!))) result[site] = 1;
    return result;
  }
  const frames = matchFrames(table, pattern)!;
  for (let site = 0; site < table.count; ++site)
    if (table.stacks[site]!.some((frame) => frames[frame] === 1)) result[site] = 1;
  return result;
}

// The sites of a device that match.
export function usedSites(table: SiteTable, device: number, pattern: string): (site: number) => boolean {
  const matched = matchSites(table, pattern);
  return (site) => table.device[site] === device && (!matched || matched[site] === 1);
}
