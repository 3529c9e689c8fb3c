// All views, in the order of their tabs: a new one is a line here.
import type { PageData, Recording } from "../data";
import { FailuresView } from "./failures";
import { ChangesView, HoldersView } from "./holders";
import { InefficienciesView } from "./inefficiencies";
import { LeaksView } from "./leaks";
import { LedgerView } from "./ledger";
import { MapView } from "./map";
import { NnModulesView } from "./nn_modules";
import { OverTimeView } from "./over_time";
import { RanksView } from "./ranks";
import { RecordingView } from "./recording";
import { SourceView } from "./source";
import type { Surroundings, View } from "./view";

type Kind = new (around: Surroundings) => View;

const sites: Kind[] = [HoldersView, ChangesView];

const others: Kind[] = [
  NnModulesView,
  OverTimeView,
  MapView,
  LeaksView,
  InefficienciesView,
  FailuresView,
  LedgerView,
  SourceView,
  RecordingView,
];

// Categories are of PyTorch's memory alone.
const usesPyTorch = (recording: Recording): boolean =>
  recording.nn_modules.name.length > 0 || recording.categories.length > 0;

export function allViews(data: PageData, around: Surroundings): View[] {
  const run = data.run ? [new RanksView(around, data.run)] : [];
  if (data.recordings.length === 0) return run;
  // Of two recordings what changed comes first.
  const first = data.mode === "compare" ? [...sites].reverse() : sites;
  const shown = [...first, ...others].filter((Kind) => Kind !== NnModulesView || data.recordings.some(usesPyTorch));
  return [...run, ...shown.map((Kind) => new Kind(around))];
}
