// What memory was used for over the run: sites summed by category, kind, place or nn.Module, the largest groups first.
import { matchSites } from "./filter";
import { count } from "./format";
import { nnModuleName } from "./nn_modules";
import type { Figures, RecordingModel } from "./recording";
import type { SiteTable } from "./site_table";

export interface Group {
  name: string;
  series: Float64Array; // bytes at every moment
}

export interface Grouping {
  device: number;
  by: "category" | "kind" | "place" | "nn-module";
  depth?: number; // components of an nn.Module's name; all without it
  filter: string;
}

// Categories where a framework tells any; else places: one area "no category" says nothing.
export function usualGrouping(table: SiteTable, device: number): Grouping["by"] {
  for (let site = 0; site < table.count; ++site)
    if (table.device[site] === device && table.text(table.category[site]!) !== "") return "category";
  return "place";
}

export const most = 7; // groups of their own; the rest is summed

// `looked`: moments that are looked at, whose largest places are among the groups however many places there are.
export function groupsOf(
  model: RecordingModel,
  grouping: Grouping,
  looked: number[],
  figures: (moment: number) => Figures,
): Group[] {
  const table = model.sites;
  const matched = matchSites(table, grouping.filter);
  const names: string[] = [];
  const known = new Map<string, number>();
  const groupOf = new Int32Array(table.count).fill(-1);
  for (let site = 0; site < table.count; ++site) {
    if (table.device[site] !== grouping.device || (matched && !matched[site])) continue;
    const { frame, through } = table.placeWith(site, null);
    const name =
      grouping.by === "category"
        ? table.text(table.category[site]!) || "no category"
        : grouping.by === "kind"
          ? table.text(table.kind[site]!) || "no kind"
          : grouping.by === "nn-module"
            ? nnModuleName(table, site, grouping.depth ?? Infinity)
            : [table.functionName(frame), table.location(frame), through && `via ${through}`].filter(Boolean).join(" ");
    let id = known.get(name);
    if (id === undefined) known.set(name, (id = names.push(name) - 1));
    groupOf[site] = id;
  }
  // The places that ever held most; by their peaks, without a series for each of thousands.
  const all = names.length <= 200 ? model.groupsOverTime(names.length, (site) => groupOf[site]!) : null;
  const weight = all
    ? all.map((series) => series.reduce((high, value) => Math.max(high, value), 0))
    : weights(model, groupOf, names.length, looked, figures);
  // Those that hold nothing at the moments at which they were weighed are among the others.
  const order = names
    .map((_, i) => i)
    .sort((a, b) => weight[b]! - weight[a]!)
    .filter((i) => !all || weight[i]! > 0);
  const rank = new Int32Array(names.length).fill(most);
  order.slice(0, order.length <= most + 1 ? order.length : most).forEach((id, i) => {
    rank[id] = i;
  });
  const shown = Math.min(order.length, most + 1);
  const series = model.groupsOverTime(shown, (site) =>
    groupOf[site]! < 0 || (all && weight[groupOf[site]!] === 0) ? -1 : rank[groupOf[site]!]!,
  );
  return series.map((one, i) => ({
    name: i === most && order.length > most + 1 ? `${count(order.length - most)} others` : names[order[i]!]!,
    series: one,
  }));
}

// The most that each group held at a sample of the moments.
function weights(
  model: RecordingModel,
  groupOf: Int32Array,
  groups: number,
  looked: number[],
  figures: (moment: number) => Figures,
): Float64Array {
  const result = new Float64Array(groups);
  const sample = Math.max(1, Math.floor(model.moments.length / 24));
  const at = new Set(looked);
  for (let m = 0; m < model.moments.length; m += sample) at.add(m);
  for (const moment of at) {
    const held = new Float64Array(groups);
    figures(moment).bytes.forEach((value, site) => {
      if (groupOf[site]! >= 0) held[groupOf[site]!]! += value;
    });
    held.forEach((value, group) => {
      result[group] = Math.max(result[group]!, value);
    });
  }
  return result;
}
