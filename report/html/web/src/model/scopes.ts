// Scopes as the timeline has them: in lanes, and one after the other.
import { lowerBound, type Scopes } from "./recording";

const mostLanes = 12;
const mostDepth = 5;

// The scopes of a thread at a depth: they do not overlap and are in order of time.
export interface Lane {
  thread: number;
  first: boolean; // of its thread
  scopes: number[];
  firstAfter: (time: number) => number; // the first, as an index into `scopes`, that ends at the time or later
}

export function lanesOf(scopes: Scopes): Lane[] {
  const lanes = new Map<number, number[]>();
  for (let i = 0; i < scopes.begin.length; ++i) {
    const depth = scopes.depth[i]!;
    if (depth >= mostDepth) continue;
    const key = scopes.thread[i]! * 8 + depth;
    const lane = lanes.get(key);
    if (lane) lane.push(i);
    else lanes.set(key, [i]);
  }
  const keys = [...lanes.keys()].sort((a, b) => a - b).slice(0, mostLanes);
  return keys.map((key, i) => {
    const lane = lanes.get(key)!.sort((a, b) => scopes.begin[a]! - scopes.begin[b]!);
    // Ends ascend where scopes do not overlap; where they do, the greatest so far is looked at.
    let most = 0;
    const ends = Float64Array.from(lane, (scope) => (most = Math.max(most, scopes.end[scope]!)));
    const thread = key >> 3;
    return {
      thread,
      first: i === 0 || keys[i - 1]! >> 3 !== thread,
      scopes: lane,
      firstAfter: (time) => lowerBound(ends, time),
    };
  });
}

// The scope before or after the selected one: of the same name where a scope is selected, else the nearest outermost.
// -1: none.
export function nextScope(scopes: Scopes, [from, to]: [number, number], by: 1 | -1): number {
  let selected = -1;
  for (let i = 0; i < scopes.begin.length; ++i)
    if (Math.abs(scopes.begin[i]! - from) < 1 && Math.abs(scopes.end[i]! - to) < 1) selected = i;
  let best = -1;
  for (let i = 0; i < scopes.begin.length; ++i) {
    if (
      selected >= 0
        ? scopes.name[i] !== scopes.name[selected] || scopes.thread[i] !== scopes.thread[selected]
        : scopes.depth[i] !== 0
    )
      continue;
    const away = (scopes.begin[i]! - from) * by;
    if (away > 0 && (best < 0 || away < (scopes.begin[best]! - from) * by)) best = i;
  }
  return best;
}
