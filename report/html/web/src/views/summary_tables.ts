// The tables of the summary: who held the peak and what is left, by place and category; steps and scopes. As the document
// of `memlab-report --json` has them.
import { bytes, count, percent, signedBytes } from "../model/format";
import type { PlaceDocument } from "../model/place_names";
import { h } from "../ui/dom";
import { smallTable } from "../ui/table";
import { placeElement } from "./document";

interface Held {
  count: number;
  bytes: number;
  time_ns?: number;
  places: { bytes: number; count: number; kind: string; place: PlaceDocument | null }[];
}
export interface HeldDevice {
  at_peak?: Held | null;
  still_allocated?: Held | null;
  categories?: Record<string, { count: number; bytes: number }> | null;
}
export interface Step {
  kind: string;
  name: string;
  steps: number;
  verdict: string;
  bytes_per_step: number;
  min_bytes: number;
  max_bytes: number;
}
export interface ScopeRow {
  path: string;
  kind: string;
  entries: number;
  peak_growth_bytes: number;
  allocated_bytes: number;
  escaped: { bytes: number; count: number };
}

const shown = 10; // rows of each

const placeCell = (place: PlaceDocument | null): HTMLElement =>
  h("td.where-cell", place ? placeElement(place, true) : "[no stack]");

function heldTable(title: string, held: Held | null | undefined): HTMLElement | null {
  if (!held || held.count === 0) return null;
  return h(
    "div",
    h("h4", `${title}: ${bytes(held.bytes)} in ${count(held.count)} allocations`),
    smallTable(
      ["bytes", "share", "count", "where"],
      held.places
        .slice(0, shown)
        .map((row) => [bytes(row.bytes), percent(row.bytes, held.bytes), count(row.count), placeCell(row.place)]),
    ),
    held.places.length > shown ? h("p.muted", "“Who holds it” has all places.") : null,
  );
}

export function heldTables(device: HeldDevice, lastMoment: string): (HTMLElement | null)[] {
  const categories = Object.entries(device.categories ?? {}).sort((a, b) => b[1].bytes - a[1].bytes);
  const all = categories.reduce((sum, [, one]) => sum + one.bytes, 0);
  return [
    heldTable("Who holds it at the allocated peak", device.at_peak),
    categories.length === 0
      ? null
      : h(
          "div",
          h("h4", "By category, at the allocated peak"),
          smallTable(
            ["category", "bytes", "share", "count", ""],
            categories.map(([name, one]) => [
              name,
              bytes(one.bytes),
              percent(one.bytes, all),
              count(one.count),
              h("td"),
            ]),
          ),
        ),
    heldTable(`Still allocated ${lastMoment}`, device.still_allocated),
  ];
}

export function stepsTable(steps: Step[]): HTMLElement | null {
  if (steps.length === 0) return null;
  return h(
    "section",
    h("h3", "Steps"),
    smallTable(
      ["step", "steps", "allocated at their ends", "a step", ""],
      steps.map((one) => [
        one.name,
        count(one.steps),
        `${bytes(one.min_bytes)} to ${bytes(one.max_bytes)}`,
        signedBytes(Math.round(one.bytes_per_step)),
        h("td", one.verdict),
      ]),
    ),
  );
}

export function scopesTable(scopes: ScopeRow[]): HTMLElement | null {
  const rows = scopes.filter((one) => one.path !== undefined);
  if (rows.length === 0) return null;
  return h(
    "section",
    h("h3", "Scopes"),
    smallTable(
      ["scope", "entries", "peak growth", "allocated in all", "left at their ends", ""],
      [...rows]
        .sort((a, b) => b.peak_growth_bytes - a.peak_growth_bytes)
        .slice(0, shown)
        .map((one) => [
          one.path,
          count(one.entries),
          bytes(one.peak_growth_bytes),
          bytes(one.allocated_bytes),
          bytes(one.escaped.bytes),
          h("td"),
        ]),
    ),
  );
}
