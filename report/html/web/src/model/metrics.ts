// What tables, graphs and maps measure: bytes or blocks that are held, or what a site did over the whole run.
import { bytes, count, plural } from "./format";
import type { Place } from "./places";
import type { Figures } from "./recording";
import type { SiteTable } from "./site_table";

export type MetricName = "bytes" | "count" | "churn" | "temporary" | "leaked";

export interface Metric {
  name: MetricName;
  label: string; // of the choice
  head: string; // of the column
  hint: string;
  ofRun: boolean; // the same at every moment
  text: (value: number) => string;
  place: (place: Place) => number;
  site: (table: SiteTable, site: number, figures: Figures) => number;
}

export const metrics: Metric[] = [
  {
    name: "bytes",
    label: "Bytes",
    head: "bytes",
    hint: "Held at the moment",
    ofRun: false,
    text: bytes,
    place: (place) => place.bytes,
    site: (_, site, figures) => figures.bytes[site]!,
  },
  {
    name: "count",
    label: "Count",
    head: "blocks",
    hint: "Blocks held at the moment",
    ofRun: false,
    text: count,
    place: (place) => place.blocks,
    site: (_, site, figures) => figures.blocks[site]!,
  },
  {
    name: "churn",
    label: "Allocated in the run",
    head: "in the run",
    hint: "Bytes of all allocations of the run, freed or not: churn",
    ofRun: true,
    text: bytes,
    place: (place) => place.allocatedBytes,
    site: (table, site) => table.allocatedBytes[site]!,
  },
  {
    name: "temporary",
    label: "Temporary",
    head: "temporary",
    hint: "Allocations that were freed before their thread allocated again",
    ofRun: true,
    text: count,
    place: (place) => place.temporaries,
    site: (table, site) => table.temporaries[site]!,
  },
  {
    name: "leaked",
    label: "Leaked",
    head: "never freed",
    hint: "Bytes still allocated at the end that no suppression explains, as memlab-report leaks has them",
    ofRun: true,
    text: bytes,
    place: (place) => place.leaked,
    site: (table, site) => table.leakedBytes[site]!,
  },
];

export const metricOf = (name: MetricName): Metric => metrics.find((one) => one.name === name) ?? metrics[0]!;

// Of all rows together, as a heading says it.
export function metricHeading(metric: Metric, sum: Place, places: number): string {
  const at = ` at ${plural(places, "place")}`;
  if (metric.name === "churn")
    return `Allocated in the run: ${bytes(sum.allocatedBytes)} in ${plural(sum.allocations, "allocation")}${at}`;
  if (metric.name === "temporary")
    return `Temporary allocations: ${count(sum.temporaries)} of ${count(sum.allocations)}${at}`;
  if (metric.name === "leaked") return `Never freed: ${bytes(sum.leaked)}${at}`;
  return `${bytes(sum.bytes)} in ${plural(sum.blocks, "block")}${at}`;
}
