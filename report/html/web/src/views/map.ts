// The memory map: segments that were taken from the driver, the blocks in them, and what is cached between these.
import { matchSites } from "../model/filter";
import { curveDevice } from "../model/recording";
import { bytes, count, duration, markdownRows, markdownTable, percent, plural } from "../model/format";
import { type Metric, type MetricName, metricOf, metrics } from "../model/metrics";
import { placeOfSite } from "../model/places";
import type { PlaceOfSite, SiteTable } from "../model/site_table";
import { type SegmentRow, segmentRow, segmentSums } from "../model/segments";
import { button, checkbox, figure, h, replace, select, textField } from "../ui/dom";
import { MapCanvas } from "../ui/memory_map";
import { frameColour, seriesColour } from "../ui/theme";
import { Details } from "./details";
import type { Scene } from "../model/scene";
import type { Surroundings, View } from "./view";

function nameOf(table: SiteTable, { frame, through }: PlaceOfSite): string {
  return [table.functionName(frame), table.location(frame), through && `via ${through}`].filter(Boolean).join("  ");
}

export class MapView implements View {
  readonly id = "map";
  readonly title = "Memory map";
  readonly element: HTMLElement;
  private readonly canvas: MapCanvas;
  private readonly details: Details;
  private readonly heading = h("p.heading");
  private readonly facts = h("dl.figures");
  private readonly legend = h("ul.legend.still");
  private readonly moment = select("Map of", [], (value) =>
    this.around.store.set({ map: value === "" ? null : Number(value) }),
  );
  private readonly order = select(
    "Order",
    [
      ["free", "most cached first"],
      ["size", "largest first"],
      ["address", "by address"],
    ],
    (value) => {
      this.by = value;
      this.redraw();
    },
  );
  private readonly filter = textField("Filter", "dims the rest", (text) => this.around.store.set({ filter: text }));
  private readonly metric = select(
    "Colour by",
    metrics.map((one) => [one.name, one.label]),
    (value) => this.around.store.set({ metric: value as MetricName }),
  );
  private readonly scale = checkbox("Widths to scale", (on) => {
    this.toScale = on;
    this.redraw();
  });
  private by = "free";
  private toScale = false;
  private chosen = -1;
  private scene: Scene | null = null;
  private keys: string[] = []; // of places, by site of the recording that is shown
  private places = new Map<string, { frame: number; through: string }>();

  constructor(private readonly around: Surroundings) {
    this.details = new Details(around, () => {
      this.chosen = -1;
      this.redraw();
    });
    this.canvas = new MapCanvas((site) => {
      this.chosen = this.chosen === site || site < 0 ? -1 : site;
      this.redraw();
    });
    this.scale.set(false);
    this.element = h(
      "div.view",
      h(
        "div.controls",
        this.moment.element,
        button("‹", () => this.step(-1), { title: "The map before", attributes: { "aria-label": "The map before" } }),
        button("›", () => this.step(1), { title: "The next map", attributes: { "aria-label": "The next map" } }),
        this.order.element,
        this.metric.element,
        this.filter.element,
        this.scale.element,
      ),
      this.heading,
      this.facts,
      this.legend,
      h("div.beside", h("div", this.canvas.element), this.details.element),
    );
  }

  private mapIndex(scene: Scene): number {
    const chosen = scene.state.map;
    return chosen !== null && chosen >= 0 && chosen < scene.model.maps.length
      ? Math.floor(chosen)
      : scene.model.nearestMap(scene.shown);
  }

  private step(by: number): void {
    const scene = this.scene!;
    const next = this.mapIndex(scene) + by;
    if (next >= 0 && next < scene.model.maps.length) this.around.store.set({ map: next });
  }

  private rows(scene: Scene): SegmentRow[] {
    const map = scene.model.maps[this.mapIndex(scene)];
    return (map?.segments ?? []).filter((segment) => segment.device === curveDevice(scene.device)).map(segmentRow);
  }

  update(scene: Scene): void {
    if (this.scene?.model !== scene.model) {
      this.keys = [];
      this.places.clear();
    }
    this.scene = scene;
    const { model } = scene;
    this.moment.options([
      ["", "the moment nearest to the selection"],
      ...model.maps.map((map, i): [string, string] => [
        String(i),
        `${duration(model.timeOf(map.moment))}${this.markText(scene, map.moment)}`,
      ]),
    ]);
    this.moment.set(scene.state.map === null ? "" : String(this.mapIndex(scene)));
    this.filter.set(scene.state.filter);
    this.metric.set(scene.state.metric);
    this.redraw();
  }

  private markText(scene: Scene, moment: number): string {
    const mark = scene.model.marks.find((one) => one.moment === moment && one.kind !== "mark");
    return mark ? ` (${mark.text || mark.kind})` : "";
  }

  // The places that have blocks in the map: bytes and blocks are those in it, what is of the run is of the whole place.
  private placesOf(scene: Scene, rows: SegmentRow[], metric: Metric): Map<string, number> {
    const table = scene.model.sites;
    const held = new Map<string, number>();
    const add = (site: number, value: number) => {
      const key = this.placeKey(site);
      held.set(key, (held.get(key) ?? 0) + value);
    };
    const seen = new Set<number>();
    const figures = scene.figures(scene.shown);
    for (const row of rows)
      row.segment.site.forEach((site, i) => {
        if (site < 0) return;
        if (!metric.ofRun) add(site, metric.name === "count" ? 1 : row.segment.length[i]!);
        else if (!seen.has(site)) add(site, metric.site(table, site, figures));
        seen.add(site);
      });
    return held;
  }

  // Places are those of the tables: what a line's backward holds is another's.
  private placeKey(site: number): string {
    let key = this.keys[site];
    if (key === undefined) {
      const { frame, through } = this.scene!.model.sites.placeWith(site, null);
      key = this.keys[site] = `${frame} ${through}`;
      if (!this.places.has(key)) this.places.set(key, { frame, through });
    }
    return key;
  }

  redraw(): void {
    const scene = this.scene;
    if (!scene) return;
    const { model } = scene;
    const map = model.maps[this.mapIndex(scene)];
    const rows = this.rows(scene);
    if (!map || rows.length === 0) {
      replace(
        this.heading,
        model.maps.length === 0
          ? "This recording has no memory map: memlab's pool was not used, or there is no event log."
          : "There are no segments on this GPU at this moment.",
      );
      replace(this.facts);
      replace(this.legend);
      this.canvas.element.hidden = true;
      this.details.set(null);
      return;
    }
    this.canvas.element.hidden = false;
    if (this.by === "free") rows.sort((a, b) => b.segment.size - b.used - (a.segment.size - a.used));
    else if (this.by === "size") rows.sort((a, b) => b.segment.size - a.segment.size);
    else
      rows.sort(
        (a, b) =>
          a.segment.address.length - b.segment.address.length || (a.segment.address < b.segment.address ? -1 : 1),
      );
    const sums = segmentSums(rows);
    replace(
      this.heading,
      `At ${duration(model.timeOf(map.moment))}: ${bytes(sums.reserved)} reserved in ${plural(rows.length, "segment")}, ${bytes(sums.used)} of it in use`,
    );
    replace(
      this.facts,
      figure("cached", `${bytes(sums.cached)}, ${percent(sums.cached, sums.reserved)}`),
      figure("largest free block", bytes(sums.largest)),
      figure("external fragmentation", sums.cached > 0 ? percent(sums.cached - sums.largest, sums.cached) : "-"),
      figure("empty segments", `${count(sums.empty)}, ${bytes(sums.emptyBytes)}`),
    );

    const table = model.sites;
    const metric = metricOf(scene.state.metric);
    const held = this.placesOf(scene, rows, metric);
    const top = [...held].sort((a, b) => b[1] - a[1]).slice(0, 7);
    const colourOf = new Map(top.map(([place], i) => [place, seriesColour(i)]));
    const colour = (site: number) =>
      site < 0
        ? "#b8bec6"
        : (colourOf.get(this.placeKey(site)) ?? frameColour(false, table.functionName(table.place(site))));
    replace(
      this.legend,
      ...top.map(([key, size]) => {
        const { frame, through } = this.places.get(key)!;
        const item = h(
          "li",
          h("span.swatch"),
          h("span.name", table.functionName(frame)),
          h("span.where", [table.location(frame), through && `via ${through}`].filter(Boolean).join(" ")),
          h("span.value", metric.text(size)),
        );
        item.style.setProperty("--colour", colourOf.get(key)!);
        return item;
      }),
      h("li", h("span.swatch.free"), h("span.name", "cached"), h("span.value", bytes(sums.cached))),
    );
    const matched = matchSites(table, scene.state.filter);
    const chosenPlace = this.chosen >= 0 && this.chosen < table.count ? table.place(this.chosen) : -1;
    this.canvas.set({
      rows,
      toScale: this.toScale,
      colour,
      name: (site) => (site < 0 ? "several places" : nameOf(table, table.placeWith(site, null))),
      label: (text) => table.text(text),
      lit: (site) => !matched || (site >= 0 && matched[site] === 1),
      chosen: this.chosen,
    });
    if (chosenPlace < 0) return this.details.set(null);
    const figures = scene.figures(map.moment);
    const place = placeOfSite(table, this.chosen, null, figures, null);
    this.details.set({ table, place, figures, callers: null, signed: false, model, selection: scene.selection });
  }

  markdown(scene: Scene): string {
    const rows = this.rows(scene).sort((a, b) => b.segment.size - b.used - (a.segment.size - a.used));
    const table = markdownTable(
      ["segment", "size", "in use", "largest free block", "pool"],
      rows
        .slice(0, markdownRows)
        .map((row) => [
          row.segment.address,
          bytes(row.segment.size),
          bytes(row.used),
          bytes(row.largestFree),
          row.segment.pool,
        ]),
      [false, true, true, true, false],
    );
    return `${this.heading.textContent}\n\n${table}`;
  }
}
