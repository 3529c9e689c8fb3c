// Which frames a text means: the patterns of `memlab-report --filter` and `--skip`, and category=, which they have not.
import type { SiteTable } from "./site_table";
import { basename } from "./format";
import { named } from "./frame_choice";

// As fnmatch(3): * and ? match any characters, / too; [...] one of those in it, [!...] none of them.
function globExpression(pattern: string): RegExp {
  let text = "";
  for (let i = 0; i < pattern.length; ++i) {
    const c = pattern[i]!;
    const set = c === "[" ? /^\[([!^]?)(\]?[^\]]*)\]/.exec(pattern.slice(i)) : null;
    if (set) {
      text += `[${set[1] ? "^" : ""}${set[2]!.replace(/[\\\]^[]/g, "\\$&")}]`;
      i += set[0].length - 1;
    } else if (c === "*") text += ".*";
    else if (c === "?") text += ".";
    else if (c === "\\" && i + 1 < pattern.length) text += pattern[++i]!.replace(/[^\w]/g, "\\$&");
    else text += c.replace(/[.+^${}()|[\]\\*?/]/g, "\\$&");
  }
  try {
    return new RegExp(`^${text}$`, "su");
  } catch {
    return /$^/; // a set that is none, as [z-a], matches nothing
  }
}

// A text without pattern characters is looked for anywhere; with *, ? or [ it must match the whole name or its last part.
// An empty name matches nothing.
export function textMatcher(pattern: string): (text: string) => boolean {
  if (!/[*?[]/.test(pattern)) return (text) => text !== "" && text.includes(pattern);
  const whole = globExpression(pattern);
  return (text) => text !== "" && (whole.test(text) || whole.test(basename(text)));
}

function split(pattern: string): { of: string; text: string } {
  const found = /^(func|file|module|kind|category)=(.*)$/s.exec(pattern);
  return found ? { of: found[1]!, text: found[2]! } : { of: "", text: pattern };
}

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
