// Callers and callees of a function: who called it and what it called, with what the sites below them have.
import type { SiteTable } from "./site_table";

export interface Call {
  frame: number; // a frame of the function; -1: none: it is the outermost, or allocates by itself
  value: number;
}

export interface Calls {
  total: number; // of all sites that the function is on the stack of, each once
  own: number; // of those of which it is the innermost frame shown
  callers: Call[]; // largest first; the sum may exceed `total` where the function calls itself
  callees: Call[];
}

// Frames of one function, whatever their lines.
export function functionKey(table: SiteTable, frame: number): string {
  return `${table.functionName(frame)}\n${table.file(frame) || table.moduleName(frame)}`;
}

export interface CallOptions {
  use: (site: number) => boolean;
  showSkipped: boolean;
  skip: Uint8Array | null;
}

// `of`: a frame of the function; `values`: of the sites, signed where they are changes.
export function callsOf(table: SiteTable, values: Float64Array, of: number, options: CallOptions): Calls {
  const keys = new Map<number, string>();
  const keyOf = (frame: number) => {
    let key = keys.get(frame);
    if (key === undefined) keys.set(frame, (key = functionKey(table, frame)));
    return key;
  };
  const wanted = keyOf(of);
  const callers = new Map<string, Call>();
  const callees = new Map<string, Call>();
  const add = (to: Map<string, Call>, seen: Set<string>, frame: number, value: number) => {
    const key = frame < 0 ? "" : keyOf(frame);
    if (seen.has(key)) return; // a site counts once for each function
    seen.add(key);
    const call = to.get(key);
    if (call) call.value += value;
    else to.set(key, { frame, value });
  };
  let total = 0;
  let own = 0;
  for (let site = 0; site < table.count; ++site) {
    const value = values[site]!;
    if (value === 0 || !options.use(site)) continue;
    const stack = table.shown(site, options.showSkipped, options.skip);
    const seenCallers = new Set<string>();
    const seenCallees = new Set<string>();
    let found = false;
    stack.forEach((frame, i) => {
      if (keyOf(frame) !== wanted) return;
      found = true;
      add(callers, seenCallers, i > 0 ? stack[i - 1]! : -1, value);
      if (i + 1 < stack.length) add(callees, seenCallees, stack[i + 1]!, value);
      else own += value;
    });
    if (found) total += value;
  }
  const sorted = (calls: Map<string, Call>) =>
    [...calls.values()].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  return { total, own, callers: sorted(callers), callees: sorted(callees) };
}
