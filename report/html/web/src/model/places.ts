// Sites summed by the place that stands for them, as `memlab-report sites` does.
import type { Figures } from "./recording";
import type { SiteTable } from "./site_table";

export interface Place {
  frame: number; // -1: no stack; -2: the sum of rows
  through: string; // what it allocated through; empty: nothing
  kind: string;
  categories: Map<string, number>; // bytes now by category, "" included; after, where two moments are compared
  bytes: number; // now, or after
  blocks: number;
  before: number; // bytes before; 0 where nothing is compared
  beforeBlocks: number;
  change: number;
  changeBlocks: number;
  allocations: number; // of the whole run
  allocatedBytes: number;
  temporaries: number;
  leaked: number; // bytes at the end that no suppression explains
  sites: number[];
}

export interface PlaceOptions {
  use: (site: number) => boolean;
  skip: Uint8Array | null;
  // Of two recordings: a library that memory was allocated through may have another name in the other.
  anyLibrary?: boolean;
}

function emptyPlace(frame: number, through: string, kind: string): Place {
  const figures = { bytes: 0, blocks: 0, before: 0, beforeBlocks: 0, change: 0, changeBlocks: 0 };
  const ofRun = { allocations: 0, allocatedBytes: 0, temporaries: 0, leaked: 0 };
  return { frame, through, kind, categories: new Map(), ...figures, ...ofRun, sites: [] };
}

function addPlace(to: Place, from: Place): void {
  to.bytes += from.bytes;
  to.blocks += from.blocks;
  to.before += from.before;
  to.beforeBlocks += from.beforeBlocks;
  to.change += from.change;
  to.changeBlocks += from.changeBlocks;
  to.allocations += from.allocations;
  to.allocatedBytes += from.allocatedBytes;
  to.temporaries += from.temporaries;
  to.leaked += from.leaked;
  for (const [name, bytes] of from.categories) to.categories.set(name, (to.categories.get(name) ?? 0) + bytes);
  for (const site of from.sites) to.sites.push(site);
}

// The row below the table.
export function sumOf(rows: Place[]): Place {
  const sum = emptyPlace(-2, "", "");
  for (const place of rows) addPlace(sum, place);
  return sum;
}

// The categories of a place that hold anything, most bytes first; all of them where it holds nothing now.
export function categoriesOf(place: Place): [name: string, bytes: number][] {
  const named = [...place.categories].filter(([name]) => name !== "").sort((a, b) => b[1] - a[1]);
  const holding = named.filter(([, bytes]) => bytes > 0);
  return holding.length > 0 ? holding : named;
}

// One site as a place.
export function placeOfSite(
  table: SiteTable,
  site: number,
  skip: Uint8Array | null,
  after: Figures,
  before: Figures | null,
): Place {
  const { frame, through } = table.placeWith(site, skip);
  const place = emptyPlace(frame, through, table.text(table.kind[site]!));
  place.bytes = after.bytes[site]!;
  place.blocks = after.blocks[site]!;
  place.before = before?.bytes[site] ?? 0;
  place.beforeBlocks = before?.blocks[site] ?? 0;
  place.change = place.bytes - place.before;
  place.changeBlocks = place.blocks - place.beforeBlocks;
  place.allocations = table.allocations[site]!;
  place.allocatedBytes = table.allocatedBytes[site]!;
  place.temporaries = table.temporaries[site]!;
  place.leaked = table.leakedBytes[site]!;
  place.categories.set(table.text(table.category[site]!), place.bytes);
  place.sites.push(site);
  return place;
}

// All places, those that hold nothing now included: their totals of the run count as well.
export function places(table: SiteTable, after: Figures, before: Figures | null, options: PlaceOptions): Place[] {
  const found = new Map<string, Place>();
  for (let site = 0; site < table.count; ++site) {
    if (!options.use(site)) continue;
    const one = placeOfSite(table, site, options.skip, after, before);
    const through = options.anyLibrary && !table.isOfBackward(site) ? "" : one.through;
    const key = `${one.frame < 0 ? one.frame : table.reads[one.frame]} ${table.kind[site]} ${through}`;
    const place = found.get(key);
    if (place) addPlace(place, one);
    else found.set(key, one);
  }
  return [...found.values()];
}

export function holdsAnything(place: Place): boolean {
  return place.bytes !== 0 || place.before !== 0 || place.blocks !== 0 || place.beforeBlocks !== 0;
}
