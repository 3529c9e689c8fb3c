// Who holds it at a moment, and what changed between two: tables, flame and icicle graphs.
import { byNnModule, filterHint, matchFrames, usedSites } from "../model/filter";
import {
  bytes,
  count,
  duration,
  markdownRows,
  markdownTable,
  percent,
  signedBytes,
  signedCount,
} from "../model/format";
import { type Metric, metricHeading, type MetricName, metricOf, metrics } from "../model/metrics";
import { categoriesOf, holdsAnything, type Place, places, sumOf } from "../model/places";
import { textMatcher } from "../model/glob";
import { nnModuleLevels } from "../model/nn_modules";
import { onUnion, type Union, unite } from "../model/compare";
import type { Figures, RecordingModel } from "../model/recording";
import type { SiteTable } from "../model/site_table";
import { buildTree } from "../model/tree";
import { checkbox, choice, figure, h, replace, select, textField } from "../ui/dom";
import { FlameGraph } from "../ui/flame";
import { bar, type Column, figures, Table } from "../ui/table";
import { Callers, type CallersInput } from "./callers";
import { Details } from "./details";
import { categoryCell, placeCell, placeName } from "./place_cells";
import { mostIn, type Scene, type Side } from "../model/scene";
import type { Surroundings, View } from "./view";

interface Diff {
  devices: { index: number; totals: Record<string, { before: number; after: number; change: number } | undefined> }[];
}

// What both views have: filters, the choice of shape, a table, a graph, details of the chosen place.
abstract class SitesView implements View {
  abstract readonly id: string;
  abstract readonly title: string;
  readonly element: HTMLElement;
  protected readonly heading = h("p.heading");
  private readonly totals = h("dl.figures.in-line");
  protected table: SiteTable | null = null;
  protected rows: Place[] = [];
  protected total = 0;
  protected metric: Metric = metrics[0]!;
  private grid: Table<Place>;
  private readonly gridBox = h("div");
  private readonly calls = new Callers();
  private readonly flame = new FlameGraph((frame) => this.calls.set(this.callers, frame));
  private readonly details: Details;
  private readonly controls: { update: (scene: Scene) => void };
  private chosen: { frame: number; kind: string; through: string } | null = null;
  private scene: Scene | null = null;
  private after: Figures | null = null;
  private readonly filtered = h("p.note");

  constructor(
    protected readonly around: Surroundings,
    private readonly signed: boolean,
  ) {
    const { store } = around;
    this.details = new Details(around, () => {
      this.chosen = null;
      this.showDetails();
    });
    const shape = choice("Show as", { table: "Table", icicle: "Icicle", flame: "Flame" }, (value) =>
      store.set({ shape: value }),
    );
    const metric = select(
      "Metric",
      // By how much something changed is known of what is held.
      metrics.filter((one) => !signed || !one.ofRun).map((one) => [one.name, one.label]),
      (value) => store.set({ metric: value as MetricName }),
    );
    const direction = choice("Order of calls", { down: "Top-down", up: "Bottom-up" }, (value) =>
      store.set({ bottomUp: value === "up" }),
    );
    const filter = textField(
      "Filter",
      filterHint,
      (text) => store.set({ filter: text }),
      signed ? undefined : "filter",
    );
    const skip = textField("Skip frames", "a wrapper of your own", (text) => store.set({ skip: text }));
    const byNnModule = checkbox("By nn.Module", (on) => store.set({ byNnModule: on }));
    const search = textField("Search", "highlights frames", (text) => store.set({ search: text }));
    const skipped = checkbox("Frames of allocators and containers", (on) => store.set({ skipped: on }));
    this.controls = {
      update: ({ state, model }) => {
        shape.set(state.shape);
        metric.set(this.metric.name);
        direction.set(state.bottomUp ? "up" : "down");
        filter.set(state.filter);
        skip.set(state.skip);
        search.set(state.search);
        skipped.set(state.skipped);
        byNnModule.set(state.byNnModule);
        byNnModule.element.hidden = state.shape === "table" || model.sites.nnModules.length === 0;
        direction.element.hidden = state.shape === "table";
        search.element.hidden = state.shape === "table";
      },
    };
    this.grid = this.makeGrid();
    this.element = h(
      "div.view",
      h(
        "div.controls",
        shape.element,
        metric.element,
        direction.element,
        filter.element,
        search.element,
        skip.element,
        skipped.element,
        byNnModule.element,
      ),
      h(
        "div.beside",
        h("div.main", this.totals, this.heading, this.filtered, this.gridBox, this.flame.element),
        this.details.element,
        this.calls.element,
      ),
    );
  }

  private makeGrid(): Table<Place> {
    const isChosen = (place: Place) =>
      this.chosen?.frame === place.frame && this.chosen.kind === place.kind && this.chosen.through === place.through;
    const grid = new Table<Place>(
      this.signed ? "What changed" : "Who holds it",
      this.columns(),
      this.signed ? "change" : this.metric.name,
      (place) => {
        const { frame, kind, through } = place;
        this.chosen = isChosen(place) ? null : { frame, kind, through };
        this.showDetails();
      },
      isChosen,
      this.signed ? "Nothing changed here." : "Nothing is held here.",
    );
    replace(this.gridBox, grid.element);
    return grid;
  }

  protected abstract figuresOf(scene: Scene): {
    table: SiteTable;
    after: Figures;
    before: Figures | null;
    device: number;
    use?: (site: number) => boolean; // else what matches the filter
  };
  protected abstract head(scene: Scene): string;

  protected facts(_scene: Scene): (HTMLElement | null)[] {
    return [];
  }

  update(scene: Scene): void {
    this.scene = scene;
    const { state } = scene;
    const metric = metricOf(state.metric);
    const wanted = this.signed && metric.ofRun ? metrics[0]! : metric;
    if (wanted !== this.metric) {
      this.metric = wanted;
      this.grid = this.makeGrid();
    }
    this.controls.update(scene);
    const { table, after, before, device, use: used } = this.figuresOf(scene);
    this.table = table;
    this.after = after;
    const skip = matchFrames(table, state.skip, true);
    const use = used ?? usedSites(table, device, state.filter);
    const found = places(table, after, before, { use, skip, anyLibrary: table !== scene.model.sites });
    this.all = sumOf(found);
    const sum = this.all;
    this.rows = this.signed
      ? found.filter((place) => place.change !== 0 || place.changeBlocks !== 0)
      : found.filter((place) => (this.metric.ofRun ? this.metric.place(place) !== 0 : holdsAnything(place)));
    const values = new Float64Array(table.count);
    const blocks = new Float64Array(table.count);
    let all = 0;
    for (let site = 0; site < table.count; ++site) {
      const value = (of: Figures) => this.metric.site(table, site, of);
      values[site] = value(after) - (before ? value(before) : 0);
      blocks[site] = after.blocks[site]! - (before?.blocks[site] ?? 0);
      if (table.device[site] === device) all += value(after);
    }
    this.total = all;
    replace(this.heading, this.head(scene));
    replace(this.totals, ...this.facts(scene));
    this.filtered.hidden = state.filter === "";
    this.filtered.textContent = this.signed
      ? `Filtered: ${signedBytes(sum.change)} of the change`
      : byNnModule(state.filter) && this.metric.ofRun && this.metric.name !== "leaked"
        ? "By nn.Module is recorded what is held, not what was allocated over the run"
        : `Filtered: ${percent(this.metric.place(sum), all)} of ${this.metric.text(all)}`;
    const tabular = state.shape === "table";
    this.gridBox.hidden = !tabular;
    this.flame.element.hidden = tabular;
    this.largest = this.rows.reduce((most, place) => Math.max(most, Math.abs(this.value(place))), 1);
    this.callers = { table, values, text: this.text, use, showSkipped: state.skipped, skip };
    if (tabular) this.calls.set(null, -1);
    if (tabular) this.grid.set(this.rows, this.rows.length > 1 ? sum : null);
    else {
      const tree = buildTree(table, values, blocks, {
        bottomUp: state.bottomUp,
        showSkipped: state.skipped,
        skip,
        use,
        ...(state.byNnModule && table.nnModules.length > 0 ? { levels: nnModuleLevels(table) } : {}),
      });
      this.flame.set({
        table,
        tree,
        signed: this.signed,
        growsUp: state.shape === "flame",
        search: matchFrames(table, state.search),
        searchLabel: textMatcher(state.search),
        text: this.text,
        unit: this.metric.name === "bytes" && !this.signed,
        title: `${this.signed ? "all changes" : "all"}: ${this.text(this.value(sum))}`,
      });
    }
    this.showDetails();
  }

  private largest = 1;
  private callers: CallersInput | null = null;

  // What the table is sorted by.
  private value(place: Place): number {
    if (!this.signed) return this.metric.place(place);
    return this.metric.name === "count" ? place.changeBlocks : place.change;
  }

  private readonly text = (value: number): string => {
    const text = this.metric.text(value);
    return this.signed && value > 0 ? `+${text}` : text;
  };

  private showDetails(): void {
    const scene = this.scene;
    const place =
      scene?.state.shape === "table"
        ? this.rows.find(
            (one) =>
              one.frame === this.chosen?.frame && one.kind === this.chosen.kind && one.through === this.chosen.through,
          )
        : undefined;
    this.details.set(
      place && scene
        ? {
            table: this.table!,
            place,
            figures: this.after!,
            callers: this.callers,
            signed: this.signed,
            model: this.table === scene.model.sites ? scene.model : null,
            selection: scene.selection,
          }
        : null,
    );
    this.grid.refresh();
  }

  protected all: Place = sumOf([]);

  private columns(): Column<Place>[] {
    const where: Column<Place> = {
      id: "where",
      head: "where",
      width: "minmax(0, 1fr)",
      cell: (place) => (place.frame === -2 ? "[all]" : placeCell(this.table!, place)),
      text: (place) => (place.frame === -2 ? "[all]" : placeName(this.table!, place)),
      sort: (place) => this.table!.functionName(place.frame),
    };
    const kind: Column<Place> = {
      id: "kind",
      head: "category",
      width: "120px",
      low: true,
      hint: "What the framework says it is for; the kind of memory where it says nothing. Of several the largest",
      cell: (place) => (place.frame === -2 ? "" : categoryCell(place)),
      text: (place) =>
        categoriesOf(place)
          .map(([name]) => name)
          .join(", ") || place.kind,
      sort: (place) => categoriesOf(place)[0]?.[0] ?? place.kind,
    };
    const total = (place: Place) => place.frame === -2;
    if (this.signed)
      return [
        figures<Place>("change", "change", 132, (place) => this.value(place), this.changeCell.bind(this), {
          low: false,
          sort: (place) => Math.abs(this.value(place)),
          hint: "By how much it grew or shrank; sorted by size, growth and decrease together",
        }),
        figures<Place>("before", "before", 100, (place) => place.before, bytes),
        figures<Place>("after", "after", 100, (place) => place.bytes, bytes),
        this.metric.name === "count"
          ? figures<Place>("bytes", "bytes", 104, (place) => place.change, signedBytes, {
              sort: (place) => Math.abs(place.change),
            })
          : figures<Place>("blocks", "blocks", 84, (place) => place.changeBlocks, signedCount, {
              sort: (place) => Math.abs(place.changeBlocks),
            }),
        where,
        kind,
      ];
    // The chosen metric first, with its share; the others behind the place.
    const { metric } = this;
    const beside = (name: MetricName, width: number): Column<Place>[] => {
      if (name === metric.name) return [];
      const one = metricOf(name);
      const text = (value: number) => (one.ofRun && value === 0 ? "" : one.text(value));
      return [figures<Place>(one.name, one.head, width, one.place, text, { hint: one.hint })];
    };
    return [
      figures<Place>(
        metric.name,
        metric.head,
        124,
        metric.place,
        (value, place) => (total(place) ? metric.text(value) : bar(metric.text(value), value / this.largest)),
        { low: false, hint: metric.hint },
      ),
      figures<Place>("share", "share", 64, metric.place, (value) => percent(value, this.total), {
        hint: metric.ofRun ? "Of all of the run on this GPU" : "Of all that is held on this GPU at this moment",
      }),
      ...(metric.ofRun ? [] : beside("count", 76)),
      ...(metric.name === "count" ? beside("bytes", 100) : []),
      where,
      kind,
      ...beside("churn", 100),
      // What holds something has been allocated: 0 says that it is not known, as of nn.Modules.
      figures<Place>(
        "allocations",
        "allocations",
        92,
        (place) => place.allocations,
        (value) => (value === 0 ? "" : count(value)),
        { hint: "Allocated here in the whole run" },
      ),
    ];
  }

  private changeCell(value: number, place: Place): Node | string {
    if (place.frame === -2) return this.text(value);
    return bar(this.text(value), Math.abs(value) / this.largest, value > 0 ? "more" : "less");
  }

  redraw(): void {
    this.flame.redraw();
  }

  markdown(): string {
    this.grid.set(this.rows, this.rows.length > 1 ? this.all : null);
    const { head, right, rows, left } = this.grid.cells(markdownRows);
    return `${this.heading.textContent}\n\n${markdownTable(head, rows, right)}${left > 0 ? `\n\n${count(left)} more places are not in this table.` : ""}`;
  }
}

// Of a range that begins or ends within a stretch the highest moment may be none of those that are known in full.
function missedHigh(scene: Scene): string {
  if (!scene.range || scene.state.at !== "peak") return "";
  const most = mostIn(scene.model, scene.device, scene.selection) ?? 0;
  return most > scene.totals[scene.shown]!
    ? `, the highest that is known in full; the curve reaches ${bytes(most)}`
    : "";
}

export class HoldersView extends SitesView {
  readonly id = "holders";
  readonly title = "Who holds it";
  private readonly at = choice(
    "Moment of the range",
    { peak: "At its peak", begin: "At its beginning", end: "At its end" },
    (value) => this.around.store.set({ at: value }),
  );

  constructor(around: Surroundings) {
    super(around, false);
    this.element.querySelector(".controls")!.prepend(this.at.element);
  }

  protected figuresOf(scene: Scene): { table: SiteTable; after: Figures; before: null; device: number } {
    this.at.element.hidden = !scene.range;
    this.at.set(scene.state.at);
    return { table: scene.model.sites, after: scene.figures(scene.shown), before: null, device: scene.device };
  }

  protected head(scene: Scene): string {
    const when = scene.usual
      ? "At the peak"
      : scene.range
        ? `At the ${{ peak: "peak", begin: "beginning", end: "end" }[scene.state.at]} of the range`
        : "At the chosen moment";
    const what = metricHeading(this.metric, this.all, this.rows.length);
    if (this.metric.ofRun) return what;
    return `${when}, ${duration(scene.model.timeOf(scene.shown))}: ${what}${missedHigh(scene)}`;
  }
}

export class ChangesView extends SitesView {
  readonly id = "changes";
  readonly title = "What changed";
  private union: Union | null = null;

  constructor(around: Surroundings) {
    super(around, true);
  }

  // The totals of `memlab-report diff`, above a comparison.
  protected override facts(scene: Scene): (HTMLElement | null)[] {
    const diff = scene.compared ? (scene.data.documents?.diff as Diff | undefined) : undefined;
    const totals = diff?.devices.find((device) => device.index === scene.compared?.after.device)?.totals;
    if (!totals) return [];
    const names: [string, string, boolean][] = [
      ["allocated_peak_bytes", "allocated peak", true],
      ["reserved_peak_bytes", "reserved peak", true],
      ["requested_peak_bytes", "requested peak", true],
      ["allocated_at_end_bytes", "allocated at the end", true],
      ["allocations", "allocations", false],
    ];
    return names.flatMap(([key, name, size]) => {
      const one = totals[key];
      if (!one) return [];
      const text = (value: number) => (size ? bytes(value) : count(value));
      return [
        figure(
          name,
          `${text(one.before)} → ${text(one.after)}, ${size ? signedBytes(one.change) : signedCount(one.change)}`,
        ),
      ];
    });
  }

  protected figuresOf(scene: Scene): {
    table: SiteTable;
    after: Figures;
    before: Figures;
    device: number;
    use?: (site: number) => boolean;
  } {
    if (scene.compared) {
      const { before, after, pairs } = scene.compared;
      const union = (this.union ??= unite(before.model, after.model, pairs));
      const { table } = union;
      const { device } = after;
      // A filter looks at each recording's own names.
      const figures = (which: 0 | 1, side: Side) =>
        onUnion(
          union,
          which,
          side.model.figures(side.moment),
          usedSites(side.model.sites, side.device, scene.state.filter),
        );
      const use = (site: number) => table.device[site] === device;
      return { table, device, before: figures(0, before), after: figures(1, after), use };
    }
    // Without a range: since the start.
    const begin = scene.range ? scene.begin : 0;
    return {
      table: scene.model.sites,
      before: scene.figures(begin),
      after: scene.figures(scene.end),
      device: scene.device,
    };
  }

  protected head(scene: Scene): string {
    const sum = this.rows.reduce((all, place) => all + place.change, 0);
    const more = this.rows.reduce((all, place) => all + Math.max(0, place.change), 0);
    const parts = `${signedBytes(sum)}: ${signedBytes(more)} and ${signedBytes(sum - more)}`;
    const { compared, model } = scene;
    const at = (one: RecordingModel, moment: number) => duration(one.timeOf(moment));
    if (compared) {
      const { before, after } = compared;
      return `From before (${at(before.model, before.moment)}) to after (${at(after.model, after.moment)}): ${parts}`;
    }
    return (
      `${scene.range ? "Within the range" : "From the start to the moment"}, ${at(model, scene.range ? scene.begin : 0)} to ${at(model, scene.end)}: ${parts}` +
      (scene.range ? "" : ". Drag over the timeline to choose a range.")
    );
  }
}
