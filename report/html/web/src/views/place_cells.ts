// How a place stands in tables: its function, where it is, through what it allocated, what it is for.
import { bytes } from "../model/format";
import { categoriesOf, type Place } from "../model/places";
import type { SiteTable } from "../model/site_table";
import { h } from "../ui/dom";
import { whereElement } from "../ui/where";

// A cell of a place: the function, where it is, and what it allocated through.
export function placeCell(table: SiteTable, { frame, through }: Pick<Place, "frame" | "through">): HTMLElement {
  const via = through && `via ${through}`;
  return h(
    "span.place",
    { title: [table.functionName(frame), table.location(frame, true), via].filter(Boolean).join("\n") },
    h("span.function", table.functionName(frame)),
    whereElement(table.location(frame)),
    via ? h("span.where.via", via) : null,
  );
}

// The same as text, for Markdown.
export function placeName(table: SiteTable, { frame, through }: Place): string {
  return [table.functionName(frame), table.location(frame), through && `via ${through}`].filter(Boolean).join(" ");
}

// "activations", or the largest of several and how many more there are.
export function categoryCell(place: Place): HTMLElement | string {
  const categories = categoriesOf(place);
  const [first] = categories;
  if (!first) return place.kind;
  if (categories.length === 1) return first[0];
  const title = categories.map(([name, held]) => `${name}: ${bytes(held)}`).join("\n");
  return h("span", { title }, `${first[0]} + ${categories.length - 1}`);
}
