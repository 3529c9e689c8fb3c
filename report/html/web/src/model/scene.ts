// What is looked at, worked out from the state: the recording, the device, the selection and its moments.
import type { PageData } from "../data";
import type { State } from "../state";
import { DevicePairs } from "./compare";
import { greatest } from "./curves";
import { type Figures, greatestMoment, RecordingModel } from "./recording";

export type Range = [from: number, to: number]; // ns; equal: a moment

export interface Scene {
  state: State;
  data: PageData;
  recording: number; // its index
  model: RecordingModel;
  device: number;
  selection: Range;
  range: boolean;
  begin: number; // moments, as indices
  end: number;
  shown: number; // the moment that "who holds it" is of
  usual: boolean; // nothing was selected: the device's peak
  figures: (moment: number) => Figures;
  totals: Float64Array; // of the device at each moment
  compared: Compared | null;
}

// Both recordings of a comparison. The one that is selected is `before` or `after`.
export interface Compared {
  before: Side;
  after: Side;
  pairs: DevicePairs;
}

export interface Side {
  model: RecordingModel;
  device: number; // of this one
  selection: Range;
  moment: number; // what is compared; of a range its highest
  totals: Float64Array;
}

// The most that a device held within a time, by its curve: exact as far as its buckets are whole; null: it has none.
export function mostIn(model: RecordingModel, device: number, [from, to]: Range): number | null {
  const curve = model.curves.find((one) => one.device === device && one.kind === "allocated");
  return curve ? greatest(curve, from, to) : null;
}

const figuresKept = 12;

// The recordings of a page, each made into a model once it is looked at.
export class Recordings {
  private readonly models = new Map<number, RecordingModel>();
  private readonly figuresCache = new Map<string, Figures>();
  private readonly totalsCache = new Map<string, Float64Array>();

  private readonly pairs: DevicePairs;

  constructor(private readonly data: PageData) {
    this.pairs = new DevicePairs(data.documents?.diff);
  }

  model(index: number): RecordingModel {
    return kept(this.models, index, () => new RecordingModel(this.data.recordings[index]!));
  }

  // The scene of a state, in a page that has recordings.
  scene(state: State): Scene {
    const recording = this.index(state);
    const model = this.model(recording);
    const device = model.device(state.device ?? NaN)?.index ?? model.usualDevice();
    const compared =
      this.data.mode === "compare" && this.data.recordings.length > 1
        ? {
            before: this.side(
              0,
              recording === 0 ? device : this.pairs.before(device),
              state.beforeFrom,
              state.beforeTo,
            ),
            after: this.side(1, recording === 0 ? this.pairs.after(device) : device, state.from, state.to),
            pairs: this.pairs,
          }
        : null;
    const first = this.data.mode === "compare" && recording === 0;
    const [from, to] = first ? [state.beforeFrom, state.beforeTo] : [state.from, state.to];
    const totals = this.totals(recording, device);
    const selection = selected(model, totals, from, to);
    const range = selection[1] > selection[0];
    const begin = model.nearestMoment(selection[0]);
    const end = model.nearestMoment(selection[1]);
    const at = { begin, end, peak: greatestMoment(totals, begin, end) };
    return {
      state,
      data: this.data,
      recording,
      model,
      device,
      selection,
      range,
      begin,
      end,
      shown: range ? at[state.at] : end,
      usual: from === null || to === null,
      figures: (moment) => this.figures(recording, moment),
      totals,
      compared,
    };
  }

  // Of a comparison usually the later one.
  private index({ recording }: State): number {
    const usual = this.data.mode === "compare" ? 1 : 0;
    const chosen = recording ?? usual;
    const count = this.data.recordings.length;
    return chosen >= 0 && chosen < count ? Math.floor(chosen) : Math.min(usual, count - 1);
  }

  private side(index: number, device: number, from: number | null, to: number | null): Side {
    const model = this.model(index);
    const totals = this.totals(index, device);
    const selection = selected(model, totals, from, to);
    const [begin, end] = selection.map((time) => model.nearestMoment(time)) as Range;
    const moment = selection[1] > selection[0] ? greatestMoment(totals, begin, end) : end;
    return { model, device, totals, selection, moment };
  }

  private figures(recording: number, moment: number): Figures {
    return kept(this.figuresCache, `${recording} ${moment}`, () => {
      if (this.figuresCache.size > figuresKept) this.figuresCache.delete(this.figuresCache.keys().next().value!);
      return this.model(recording).figures(moment);
    });
  }

  private totals(recording: number, device: number): Float64Array {
    return kept(this.totalsCache, `${recording} ${device}`, () => this.model(recording).totals(device));
  }
}

function kept<Key, Value>(cache: Map<Key, Value>, key: Key, make: () => Value): Value {
  let found = cache.get(key);
  if (found === undefined) cache.set(key, (found = make()));
  return found;
}

// The range within the recording; the peak where none is chosen.
function selected(model: RecordingModel, totals: Float64Array, from: number | null, to: number | null): Range {
  if (from === null || to === null) {
    const peak = model.timeOf(greatestMoment(totals, 0, model.moments.length - 1));
    return [peak, peak];
  }
  const clamp = (time: number) => Math.max(0, Math.min(model.duration, time));
  return [clamp(Math.min(from, to)), clamp(Math.max(from, to))];
}
