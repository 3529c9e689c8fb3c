// What is looked at, all of it: it lives in the URL's hash, so that a link or a reload shows the same.

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
  curves: string[] | null; // the curves shown; null: the usual ones
  shape: "table" | "icicle" | "flame";
  bottomUp: boolean;
  at: "peak" | "begin" | "end"; // which moment of a range "who holds it" shows
  filter: string;
  skip: string;
  search: string;
  skipped: boolean; // frames of allocators and containers are shown
  group: "category" | "kind" | "place";
  file: string;
  map: number | null; // a memory map other than the nearest
}

export const initial: State = {
  view: "",
  recording: null,
  device: null,
  from: null,
  to: null,
  beforeFrom: null,
  beforeTo: null,
  zoomFrom: null,
  zoomTo: null,
  curves: null,
  shape: "table",
  bottomUp: false,
  at: "peak",
  filter: "",
  skip: "",
  search: "",
  skipped: false,
  group: "category",
  file: "",
  map: null,
};

const names: Record<keyof State, string> = {
  view: "view",
  recording: "recording",
  device: "gpu",
  from: "from",
  to: "to",
  beforeFrom: "before-from",
  beforeTo: "before-to",
  zoomFrom: "zoom-from",
  zoomTo: "zoom-to",
  curves: "curves",
  shape: "shape",
  bottomUp: "bottom-up",
  at: "at",
  filter: "filter",
  skip: "skip",
  search: "search",
  skipped: "skipped",
  group: "group",
  file: "file",
  map: "map",
};

const allowed: Partial<Record<keyof State, readonly string[]>> = {
  shape: ["table", "icicle", "flame"],
  at: ["peak", "begin", "end"],
  group: ["category", "kind", "place"],
};

export function toHash(state: State): string {
  const parts = new URLSearchParams();
  for (const key of Object.keys(names) as (keyof State)[]) {
    const value = state[key];
    if (value === initial[key] || value === null) continue;
    parts.set(
      names[key],
      Array.isArray(value) ? JSON.stringify(value) : typeof value === "boolean" ? (value ? "1" : "0") : String(value),
    );
  }
  return parts.toString();
}

// What a hash says; whatever in it makes no sense is as if it were not there.
export function fromHash(hash: string): State {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  const state: Record<string, unknown> = { ...initial };
  for (const key of Object.keys(names) as (keyof State)[]) {
    const text = parts.get(names[key]);
    if (text === null) continue;
    if (key === "curves") {
      try {
        const list: unknown = JSON.parse(text);
        if (Array.isArray(list) && list.every((one) => typeof one === "string")) state[key] = list;
      } catch {
        // not a list: the usual curves
      }
    } else if (typeof initial[key] === "boolean") state[key] = text === "1";
    else if (typeof initial[key] === "string") {
      if (!allowed[key] || allowed[key].includes(text)) state[key] = text;
    } else if (Number.isFinite(Number(text)) && text !== "") state[key] = Number(text);
  }
  return state as unknown as State;
}

export class Store {
  state: State;
  private readonly listeners: ((state: State, changed: Set<keyof State>) => void)[] = [];
  private written = "";
  private timer = 0;

  constructor() {
    this.state = fromHash(location.hash);
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
    const changed = new Set((Object.keys(next) as (keyof State)[]).filter((key) => next[key] !== this.state[key]));
    if (changed.size === 0) return;
    this.state = next;
    for (const listener of this.listeners) listener(next, changed);
    // Browsers limit how often the URL may change.
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      this.written = toHash(this.state);
      history.replaceState(null, "", `#${this.written}`);
    }, 120);
  }
}
