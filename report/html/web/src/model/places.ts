// Sites summed by the place that stands for them, as `memlab-report sites` does.
import type { Figures, SiteTable } from "./recording";

export interface Place {
  frame: number;
  kind: string;
  category: string;
  bytes: number; // now, or after
  blocks: number;
  before: number; // bytes before; 0 where nothing is compared
  beforeBlocks: number;
  change: number;
  changeBlocks: number;
  allocations: number; // of the whole run
  allocatedBytes: number;
  sites: number[];
}

export interface PlaceOptions {
  use: (site: number) => boolean;
  showSkipped: boolean;
  skip: Uint8Array | null;
}

// The frame that stands for a site when more frames are passed over, or none is.
export function placeOf(table: SiteTable, site: number, options: PlaceOptions): number {
  const stack = table.stacks[site]!;
  for (let i = stack.length - 1; i >= 0; --i) {
    const frame = stack[i]!;
    if ((options.showSkipped || !table.frames.skipped[frame]) && !options.skip?.[frame]) return frame;
  }
  return table.place(site);
}

function emptyPlace(frame: number, kind: string, category: string): Place {
  const figures = { bytes: 0, blocks: 0, before: 0, beforeBlocks: 0, change: 0, changeBlocks: 0 };
  return { frame, kind, category, ...figures, allocations: 0, allocatedBytes: 0, sites: [] };
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
  for (const site of from.sites) to.sites.push(site);
}

// The row below the table.
export function sumOf(rows: Place[]): Place {
  const sum = emptyPlace(-2, "", "");
  for (const place of rows) addPlace(sum, place);
  return sum;
}

// One site as a place.
export function placeOfSite(
  table: SiteTable,
  site: number,
  frame: number,
  after: Figures,
  before: Figures | null,
): Place {
  const place = emptyPlace(frame, table.text(table.kind[site]!), table.text(table.category[site]!));
  place.bytes = after.bytes[site]!;
  place.blocks = after.blocks[site]!;
  place.before = before?.bytes[site] ?? 0;
  place.beforeBlocks = before?.blocks[site] ?? 0;
  place.change = place.bytes - place.before;
  place.changeBlocks = place.blocks - place.beforeBlocks;
  place.allocations = table.allocations[site]!;
  place.allocatedBytes = table.allocatedBytes[site]!;
  place.sites.push(site);
  return place;
}

export function places(table: SiteTable, after: Figures, before: Figures | null, options: PlaceOptions): Place[] {
  const found = new Map<string, Place>();
  for (let site = 0; site < table.count; ++site) {
    if (!options.use(site)) continue;
    const one = placeOfSite(table, site, placeOf(table, site, options), after, before);
    if (one.bytes === 0 && one.before === 0 && one.blocks === 0 && one.beforeBlocks === 0) continue;
    const key = `${one.frame} ${table.kind[site]}`;
    const place = found.get(key);
    if (place) addPlace(place, one);
    else found.set(key, one);
  }
  return [...found.values()];
}
