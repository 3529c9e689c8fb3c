// What is looked at, all of it: it lives in the URL's hash, so that a link or a reload shows the same. A control that
// chooses something else has a line in `State` and one in `fields`.

import { type MetricName, metrics } from "./model/metrics";

export interface State {
  view: string;
  recording: number | null; // null: the only one, the later one of a comparison, the first rank
  device: number | null; // null: the device that held most
  from: number | null; // the selection in ns: from == to is a moment; null: the device's peak
  to: number | null;
  beforeFrom: number | null; // in a comparison, the selection in the first recording
  beforeTo: number | null;
  zoomFrom: number | null; // the part of the run that the timeline shows
  zoomTo: number | null;
  curves: string[] | null; // the curves shown; null: the default ones
  shape: "table" | "icicle" | "flame";
  metric: MetricName;
  bottomUp: boolean;
  at: "peak" | "begin" | "end"; // which moment of a range "who holds it" shows
  filter: string;
  skip: string;
  search: string;
  skipped: boolean; // frames of allocators and containers are shown
  byNnModule: boolean; // graphs have the nn.Modules above the calls
  group: "category" | "kind" | "place" | "nn-module" | null; // null: categories where there are any, else places
  depth: number; // of nn.Modules' names
  file: string;
  map: number | null; // a memory map other than the nearest
}

interface Field<Value> {
  name: string; // in the URL
  initial: Value;
  allowed?: readonly Value[]; // texts
  view?: true; // of the views alone: the timeline is the same
}

const fields: { [Key in keyof State]: Field<State[Key]> } = {
  view: { name: "view", initial: "", view: true },
  recording: { name: "recording", initial: null },
  device: { name: "gpu", initial: null },
  from: { name: "from", initial: null },
  to: { name: "to", initial: null },
  beforeFrom: { name: "before-from", initial: null },
  beforeTo: { name: "before-to", initial: null },
  zoomFrom: { name: "zoom-from", initial: null },
  zoomTo: { name: "zoom-to", initial: null },
  curves: { name: "curves", initial: null },
  shape: { name: "shape", initial: "table", allowed: ["table", "icicle", "flame"], view: true },
  metric: { name: "metric", initial: "bytes", allowed: metrics.map(({ name }) => name), view: true },
  bottomUp: { name: "bottom-up", initial: false, view: true },
  at: { name: "at", initial: "peak", allowed: ["peak", "begin", "end"] },
  filter: { name: "filter", initial: "", view: true },
  skip: { name: "skip", initial: "", view: true },
  search: { name: "search", initial: "", view: true },
  skipped: { name: "skipped", initial: false, view: true },
  byNnModule: { name: "by-nn-module", initial: false, view: true },
  group: { name: "group", initial: null, allowed: ["category", "kind", "place", "nn-module"], view: true },
  depth: { name: "depth", initial: 2, view: true },
  file: { name: "file", initial: "", view: true },
  map: { name: "map", initial: null, view: true },
};
const keys = Object.keys(fields) as (keyof State)[];

export const initial = Object.fromEntries(keys.map((key) => [key, fields[key].initial])) as unknown as State;

// Whether a change of these moves the timeline.
export const movesTime = (changed: Set<keyof State>): boolean => [...changed].some((key) => !fields[key].view);

export function toHash(state: State): string {
  const parts = new URLSearchParams();
  for (const key of keys) {
    const value = state[key];
    if (value === initial[key] || value === null) continue;
    parts.set(
      fields[key].name,
      Array.isArray(value) ? JSON.stringify(value) : typeof value === "boolean" ? (value ? "1" : "0") : String(value),
    );
  }
  return parts.toString();
}

// What a hash says; whatever in it makes no sense is as if it were not there.
export function fromHash(hash: string): State {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  const state: Record<string, unknown> = { ...initial };
  for (const key of keys) {
    const text = parts.get(fields[key].name);
    if (text === null) continue;
    const allowed = fields[key].allowed as readonly string[] | undefined;
    if (key === "curves") {
      try {
        const list: unknown = JSON.parse(text);
        if (Array.isArray(list) && list.every((one) => typeof one === "string")) state[key] = list;
      } catch {
        // not a list: the usual curves
      }
    } else if (typeof initial[key] === "boolean") state[key] = text === "1";
    else if (allowed || typeof initial[key] === "string") {
      if (!allowed || allowed.includes(text)) state[key] = text;
    } else if (Number.isFinite(Number(text)) && text !== "") state[key] = Number(text);
  }
  return state as unknown as State;
}

export class Store {
  state: State;
  private readonly listeners: ((state: State, changed: Set<keyof State>) => void)[] = [];
  private written = "";
  private timer = 0;

  // `show`: what is looked at where the address says nothing.
  constructor(show = "") {
    this.state = fromHash(location.hash.replace(/^#/, "") || show);
    this.written = toHash(this.state);
    window.addEventListener("hashchange", () => {
      if (location.hash.replace(/^#/, "") !== this.written) this.become(fromHash(location.hash));
    });
  }

  set(patch: Partial<State>): void {
    this.become({ ...this.state, ...patch });
  }

  subscribe(listener: (state: State, changed: Set<keyof State>) => void): void {
    this.listeners.push(listener);
  }

  private become(next: State): void {
    const changed = new Set(keys.filter((key) => next[key] !== this.state[key]));
    if (changed.size === 0) return;
    this.state = next;
    for (const listener of this.listeners) listener(next, changed);
    // Browsers limit how often the URL may change.
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      if (location.protocol === "about:") return; // within another page's text: there is no address to change
      this.written = toHash(this.state);
      history.replaceState(null, "", `#${this.written}`);
    }, 120);
  }
}
