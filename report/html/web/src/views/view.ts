// What a view is, and what all of them are given.
import type { PageData, SourceFile } from "../data";
import type { Figures, RecordingModel } from "../model/recording";
import type { State, Store } from "../state";

// What is looked at, worked out from the state.
export interface Scene {
  state: State;
  data: PageData;
  model: RecordingModel;
  device: number;
  selection: [number, number]; // ns; equal: a moment
  range: boolean;
  begin: number; // moments, as indices
  end: number;
  shown: number; // the moment that "who holds it" is of
  usual: boolean; // nothing was selected: the device's peak
  figures: (moment: number) => Figures;
  totals: Float64Array; // of the device at each moment
  compared: Compared | null;
}

// The other recording of a comparison, its selection, and both on one table of sites.
export interface Compared {
  before: RecordingModel;
  after: RecordingModel;
  beforeSelection: [number, number];
  afterSelection: [number, number];
  beforeMoment: number;
  afterMoment: number;
}

export interface View {
  readonly id: string;
  readonly title: string;
  readonly element: HTMLElement;
  update: (scene: Scene) => void;
  redraw?: () => void; // colours or sizes have changed
  markdown: (scene: Scene) => string;
  count?: (scene: Scene) => number | null; // a number beside the title
}

export interface Surroundings {
  store: Store;
  files: Map<string, SourceFile[]>;
}
