// Names of places and frames in the documents of `memlab-report --json`, as its texts have them.
import { basename } from "./format";

export interface PlaceDocument {
  function: string | null;
  file: string | null;
  line: number | null;
  module: string | null;
  address: number | null;
  through: string | null;
  problem: string | null;
}

export function placeName(place: PlaceDocument): string {
  if (place.function) return place.function;
  const module = place.module ? basename(place.module) : "[unknown]";
  return place.address === null ? module : `${module}+0x${place.address.toString(16)}`;
}

export function placeWhere(place: PlaceDocument): string {
  if (place.file) return place.line ? `${place.file}:${place.line}` : place.file;
  return place.function && place.module ? basename(place.module) : "";
}

export function placeText(place: PlaceDocument): string {
  return [placeWhere(place), placeName(place)].filter(Boolean).join("  ");
}
