// The keys of the page: what each does, and what the help says of it.
import type { Scene } from "../model/scene";
import type { Store } from "../state";
import type { TimePanel } from "./time_panel";

// What keys act on.
export interface Keyboard {
  store: Store;
  time: TimePanel;
  toFilter: () => void;
  copy: () => void;
  help: () => void;
}

type Press = (on: Keyboard, scene: Scene) => void;

interface Key {
  shown: string;
  text: string;
  press?: Record<string, Press>; // none: app.ts and ui/timeline.ts see to it
}

export const keys: Key[] = [
  { shown: "1 … 9", text: "the views" },
  { shown: "/", text: "filter", press: { "/": (on) => on.toFilter() } },
  { shown: "P", text: "the peak", press: { p: (on, scene) => on.time.selectPeak(scene) } },
  {
    shown: "O",
    text: "the next failure for lack of memory",
    press: { o: (on, scene) => on.time.selectNextFailure(scene) },
  },
  { shown: "E", text: "the end", press: { e: (on, scene) => on.time.selectEnd(scene) } },
  { shown: "← →", text: "on the timeline: the moment before and after, with Shift a range" },
  {
    shown: "[ ]",
    text: "the scope before and after",
    press: { "[": (on) => on.time.last?.selectScope(-1), "]": (on) => on.time.last?.selectScope(1) },
  },
  {
    shown: "+ − 0 Z",
    text: "zoom in, out, the whole run, the range",
    press: {
      "+": (on) => on.time.last?.scale(0.5),
      "=": (on) => on.time.last?.scale(0.5),
      "-": (on) => on.time.last?.scale(2),
      "0": (on) => on.store.set({ zoomFrom: null, zoomTo: null }),
      z: (on) => on.time.last?.zoomToSelection(),
    },
  },
  {
    shown: "T, I, F",
    text: "table, icicle graph, flame graph",
    press: {
      t: ({ store }) => store.set({ shape: "table" }),
      i: ({ store }) => store.set({ shape: "icicle" }),
      f: ({ store }) => store.set({ shape: "flame" }),
    },
  },
  {
    shown: "B",
    text: "bottom-up or top-down",
    press: { b: ({ store }) => store.set({ bottomUp: !store.state.bottomUp }) },
  },
  { shown: "M", text: "copy the view as Markdown", press: { m: (on) => on.copy() } },
  { shown: "Esc", text: "nothing selected", press: { Escape: (on, scene) => on.time.selectPeak(scene) } },
  { shown: "?", text: "this help", press: { "?": (on) => on.help() } },
];

const presses = new Map(keys.flatMap(({ press }) => Object.entries(press ?? {})));

export const pressOf = (key: string): Press | undefined => presses.get(key);
