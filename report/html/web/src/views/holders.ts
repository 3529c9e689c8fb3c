// Who holds it at a moment, and what changed between two: tables, flame and icicle graphs.
import { matchFrames, usedSites } from "../model/filter";
import {
  bytes,
  count,
  duration,
  markdownRows,
  markdownTable,
  percent,
  plural,
  signedBytes,
  signedCount,
} from "../model/format";
import { type Place, places, sumOf } from "../model/places";
import { onUnion, type Union, unite } from "../model/compare";
import type { Figures, RecordingModel, SiteTable } from "../model/recording";
import { buildTree } from "../model/tree";
import { checkbox, choice, figure, h, replace, textField } from "../ui/dom";
import { FlameGraph } from "../ui/flame";
import { bar, type Column, figures, Table } from "../ui/table";
import { Details } from "./details";
import type { Scene } from "../model/scene";
import type { Surroundings, View } from "./view";

interface Diff {
  devices: { index: number; totals: Record<string, { before: number; after: number; change: number } | undefined> }[];
}

// A cell of a place: the function, and where it is.
export function placeCell(table: SiteTable, frame: number): HTMLElement {
  return h(
    "span",
    { class: "place", title: `${table.functionName(frame)}\n${table.location(frame, true)}` },
    h("span", { class: "function" }, table.functionName(frame)),
    h("span", { class: "where" }, table.location(frame)),
  );
}

// What both views have: filters, the choice of shape, a table, a graph, details of the chosen place.
abstract class SitesView implements View {
  abstract readonly id: string;
  abstract readonly title: string;
  readonly element: HTMLElement;
  protected readonly heading = h("p", { class: "heading" });
  private readonly totals = h("dl", { class: "figures" });
  protected table: SiteTable | null = null;
  protected rows: Place[] = [];
  protected total = 0;
  private readonly grid: Table<Place>;
  private readonly flame = new FlameGraph();
  private readonly details: Details;
  private readonly controls: { update: (scene: Scene) => void };
  private chosen: { frame: number; kind: string } | null = null;
  private scene: Scene | null = null;
  private after: Figures | null = null;
  private readonly filtered = h("p", { class: "note" });

  constructor(
    protected readonly around: Surroundings,
    private readonly signed: boolean,
  ) {
    const { store } = around;
    this.details = new Details(around);
    const shape = choice(
      "Show as",
      [
        ["table", "Table"],
        ["icicle", "Icicle"],
        ["flame", "Flame"],
      ],
      (value) => store.set({ shape: value }),
    );
    const direction = choice(
      "Order of calls",
      [
        ["down", "Top-down"],
        ["up", "Bottom-up"],
      ],
      (value) => store.set({ bottomUp: value === "up" }),
    );
    const filter = textField(
      "Filter",
      "func= file= module= kind=",
      (text) => store.set({ filter: text }),
      signed ? undefined : "filter",
    );
    const skip = textField("Skip frames", "a wrapper of your own", (text) => store.set({ skip: text }));
    const search = textField("Search", "marks frames", (text) => store.set({ search: text }));
    const skipped = checkbox("Frames of allocators and containers", (on) => store.set({ skipped: on }));
    this.controls = {
      update: ({ state }) => {
        shape.set(state.shape);
        direction.set(state.bottomUp ? "up" : "down");
        filter.set(state.filter);
        skip.set(state.skip);
        search.set(state.search);
        skipped.set(state.skipped);
        direction.element.hidden = state.shape === "table";
        search.element.hidden = state.shape === "table";
      },
    };
    this.grid = new Table<Place>(
      signed ? "What changed" : "Who holds it",
      this.columns(),
      signed ? "change" : "bytes",
      (place) => {
        const again = this.chosen?.frame === place.frame && this.chosen.kind === place.kind;
        this.chosen = again ? null : { frame: place.frame, kind: place.kind };
        this.showDetails();
      },
      (place) => this.chosen?.frame === place.frame && this.chosen.kind === place.kind,
      signed ? "Nothing changed here." : "Nothing is held here.",
    );
    this.element = h(
      "div",
      { class: "view" },
      h(
        "div",
        { class: "controls" },
        shape.element,
        direction.element,
        filter.element,
        search.element,
        skip.element,
        skipped.element,
      ),
      this.totals,
      this.heading,
      this.filtered,
      this.grid.element,
      this.flame.element,
      this.details.element,
    );
  }

  protected abstract figuresOf(scene: Scene): {
    table: SiteTable;
    after: Figures;
    before: Figures | null;
    device: number;
  };
  protected abstract head(scene: Scene): string;

  protected facts(_scene: Scene): (HTMLElement | null)[] {
    return [];
  }

  update(scene: Scene): void {
    this.scene = scene;
    const { state } = scene;
    this.controls.update(scene);
    const { table, after, before, device } = this.figuresOf(scene);
    this.table = table;
    this.after = after;
    const skip = matchFrames(table, state.skip);
    const use = usedSites(table, device, state.filter);
    this.rows = places(table, after, before, { use, showSkipped: state.skipped, skip });
    const sum = sumOf(this.rows);
    this.all = sum;
    if (this.signed) this.rows = this.rows.filter((place) => place.change !== 0 || place.changeBlocks !== 0);
    let all = 0;
    for (let site = 0; site < table.count; ++site) if (table.device[site] === device) all += after.bytes[site]!;
    this.total = all;
    replace(this.heading, this.head(scene));
    replace(this.totals, ...this.facts(scene));
    this.filtered.hidden = state.filter === "";
    this.filtered.textContent = this.signed
      ? `Filtered: ${signedBytes(sum.change)} of the change`
      : `Filtered: ${percent(sum.bytes, all)} of ${bytes(all)}`;
    const tabular = state.shape === "table";
    this.grid.element.hidden = !tabular;
    this.flame.element.hidden = tabular;
    this.largest = this.rows.reduce(
      (most, place) => Math.max(most, Math.abs(this.signed ? place.change : place.bytes)),
      1,
    );
    if (tabular) this.grid.set(this.rows, this.rows.length > 1 ? sum : null);
    else {
      const values = new Float64Array(table.count);
      const blocks = new Float64Array(table.count);
      for (let site = 0; site < table.count; ++site) {
        values[site] = after.bytes[site]! - (before?.bytes[site] ?? 0);
        blocks[site] = after.blocks[site]! - (before?.blocks[site] ?? 0);
      }
      const tree = buildTree(table, values, blocks, {
        bottomUp: state.bottomUp,
        showSkipped: state.skipped,
        skip,
        use,
      });
      this.flame.set({
        table,
        tree,
        signed: this.signed,
        growsUp: state.shape === "flame",
        search: matchFrames(table, state.search),
        title: this.signed ? `all changes: ${signedBytes(sum.change)}` : `all: ${bytes(sum.bytes)}`,
      });
    }
    this.showDetails();
  }

  private largest = 1;

  private showDetails(): void {
    const scene = this.scene;
    const place =
      scene?.state.shape === "table"
        ? this.rows.find((one) => one.frame === this.chosen?.frame && one.kind === this.chosen.kind)
        : undefined;
    this.details.set(
      place && scene
        ? {
            table: this.table!,
            place,
            figures: this.after!,
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
      cell: (place) => (place.frame === -2 ? "[all]" : placeCell(this.table!, place.frame)),
      text: (place) =>
        place.frame === -2 ? "[all]" : `${this.table!.functionName(place.frame)} ${this.table!.location(place.frame)}`,
      sort: (place) => this.table!.functionName(place.frame),
    };
    const kind: Column<Place> = {
      id: "kind",
      head: "category",
      width: "120px",
      low: true,
      hint: "What the framework says it is for; the kind of memory where it says nothing",
      cell: (place) => place.category || place.kind,
      sort: (place) => place.category || place.kind,
    };
    const total = (place: Place) => place.frame === -2;
    if (this.signed)
      return [
        figures<Place>("change", "change", 132, (place) => place.change, this.changeCell.bind(this), {
          low: false,
          sort: (place) => Math.abs(place.change),
          hint: "By how much it grew or shrank; sorted by size, growth and decrease together",
        }),
        figures<Place>("before", "before", 100, (place) => place.before, bytes),
        figures<Place>("after", "after", 100, (place) => place.bytes, bytes),
        figures<Place>("blocks", "blocks", 84, (place) => place.changeBlocks, signedCount, {
          sort: (place) => Math.abs(place.changeBlocks),
        }),
        where,
        kind,
      ];
    const held = (value: number, place: Place) =>
      total(place) ? bytes(value) : bar(bytes(value), value / this.largest);
    const inTheRun = { hint: "Allocated here in the whole run" };
    return [
      figures<Place>("bytes", "bytes", 124, (place) => place.bytes, held, { low: false }),
      figures<Place>(
        "share",
        "share",
        72,
        (place) => place.bytes,
        (value) => percent(value, this.total),
        {
          hint: "Of all that is held on this GPU at this moment",
        },
      ),
      figures<Place>("blocks", "blocks", 84, (place) => place.blocks, count),
      where,
      kind,
      figures<Place>("allocated", "in the run", 110, (place) => place.allocatedBytes, bytes, inTheRun),
      figures<Place>("allocations", "allocations", 104, (place) => place.allocations, count, inTheRun),
    ];
  }

  private changeCell(value: number, place: Place): Node | string {
    if (place.frame === -2) return signedBytes(value);
    return bar(signedBytes(value), Math.abs(value) / this.largest, value > 0 ? "more" : "less");
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

export class HoldersView extends SitesView {
  readonly id = "holders";
  readonly title = "Who holds it";
  private readonly at = choice(
    "Moment of the range",
    [
      ["peak", "At its peak"],
      ["begin", "At its beginning"],
      ["end", "At its end"],
    ],
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
    return `${when}, ${duration(scene.model.timeOf(scene.shown))}: ${bytes(this.all.bytes)} in ${plural(this.all.blocks, "block")} at ${plural(this.rows.length, "place")}`;
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
    const totals = diff?.devices.find((device) => device.index === scene.device)?.totals;
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

  protected figuresOf(scene: Scene): { table: SiteTable; after: Figures; before: Figures; device: number } {
    if (scene.compared) {
      const { before, after } = scene.compared;
      this.union ??= unite(before.model, after.model);
      return {
        table: this.union.table,
        device: scene.device,
        before: onUnion(this.union, 0, before.model.figures(before.moment)),
        after: onUnion(this.union, 1, after.model.figures(after.moment)),
      };
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
