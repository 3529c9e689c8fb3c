// PyTorch's nn.Modules, a tree by qualified name that folds: what they hold at a moment.
import { filterHint, usedSites } from "../model/filter";
import { bytes, count, duration, markdownRows, markdownTable, percent, plural } from "../model/format";
import {
  beginnings,
  lastComponent,
  namesOutside,
  type NnModule,
  type NnModules,
  nnModulesOf,
  type NnModuleShare,
  outsideNnModules,
} from "../model/nn_modules";
import type { Scene } from "../model/scene";
import { button, figure, h, replace, textField } from "../ui/dom";
import { spark } from "../ui/spark";
import { bar, type Column, figures, Table } from "../ui/table";
import { depthChoice } from "./nn_module_depth";
import type { Surroundings, View } from "./view";

interface Row {
  share: NnModuleShare;
  label: string;
  names?: string; // of what is in it
  module: NnModule | null; // null: a sum of what has no name
  open: boolean | null; // null: nothing within
}

const categoriesShown = 7; // columns; the others are in the details

export class NnModulesView implements View {
  readonly id = "nn-modules";
  readonly title = "nn.Modules";
  readonly element: HTMLElement;
  private readonly heading = h("p.heading");
  private readonly note = h("p.note");
  private readonly gridBox = h("div");
  private readonly details = h("section.details", {
    attributes: { "aria-label": "The chosen nn.Module", "aria-live": "polite" },
  });
  private grid: Table<Row> | null = null;
  private columnsOf = "";
  private readonly folded = new Map<string, boolean>(); // by name, where the reader said so; else the depth tells
  private depth = -1;
  private chosen: string | null = null;
  private scene: Scene | null = null;
  private found: NnModules | null = null;
  private held = 0;
  private readonly controls: (scene: Scene) => void;

  constructor(private readonly around: Surroundings) {
    const { store } = around;
    const depth = depthChoice(store);
    const filter = textField("Filter", filterHint, (text) => store.set({ filter: text }));
    this.controls = ({ state, model }) => {
      depth.update(model.sites, state.depth);
      filter.set(state.filter);
    };
    this.details.hidden = true;
    this.element = h(
      "div.view.nn-modules",
      h("div.controls", depth.element, filter.element),
      this.heading,
      this.note,
      this.gridBox,
      this.details,
    );
  }

  update(scene: Scene): void {
    this.scene = scene;
    const { state, model } = scene;
    this.controls(scene);
    if (this.depth !== state.depth) this.folded.clear();
    this.depth = state.depth;
    const of = scene.figures(scene.shown);
    this.found = nnModulesOf(model.sites, of, usedSites(model.sites, scene.device, state.filter));
    const { outermost, unnamed, outside } = this.found;
    this.held = scene.totals[scene.shown]!;
    const when = scene.usual ? "At the peak" : "At the chosen moment";
    replace(
      this.heading,
      `${when}, ${duration(model.timeOf(scene.shown))}: ${bytes(outermost.bytes + unnamed.bytes)} by nn.Modules, of ${bytes(this.held)}` +
        (state.filter === "" ? "" : `; ${bytes(outermost.bytes + unnamed.bytes + outside.bytes)} match the filter`),
    );
    const { note } = model.source.nn_modules;
    this.note.hidden = note === "";
    this.note.textContent = note;
    this.makeGrid(scene);
    this.draw();
  }

  // Columns are of the categories that the run had, so that they stay where they are from moment to moment.
  private makeGrid(scene: Scene): void {
    const categories = scene.model.source.categories
      .filter((one) => one.device === scene.device && one.most > 0)
      .sort((a, b) => b.most - a.most)
      .slice(0, categoriesShown)
      .map((one) => one.name);
    const key = categories.join("\n");
    if (this.grid && key === this.columnsOf) return;
    this.columnsOf = key;
    const tree: Column<Row>[] = [
      {
        id: "nn-module",
        head: "nn.Module",
        width: "minmax(0, 1fr)",
        cell: (row) => this.nameCell(row),
        text: (row) => "  ".repeat(row.module?.depth ?? 0) + row.label + (row.names ? `: ${row.names}` : ""),
      },
      figures<Row>(
        "bytes",
        "bytes",
        112,
        (row) => row.share.bytes,
        (value) => bar(bytes(value), this.held > 0 ? value / this.held : 0),
        { low: false, hint: "Allocated by its calls, parameters, buffers, optimizer state; with nn.Modules within" },
      ),
      figures<Row>(
        "share",
        "share",
        52,
        (row) => row.share.bytes,
        (value) => percent(value, this.held),
      ),
      ...categories.map((name) =>
        figures<Row>(
          name,
          name,
          Math.max(86, 8 * name.length),
          (row) => row.share.categories.get(name) ?? 0,
          (value) => (value > 0 ? bytes(value) : ""),
        ),
      ),
    ];
    const columns = tree.map(({ sort: _, ...unsorted }) => unsorted); // it has an order of its own
    this.grid = new Table<Row>(
      "nn.Modules",
      columns,
      "",
      (row) => this.press(row),
      (row) => row.module !== null && row.module.name === this.chosen,
      "No nn.Module holds memory here.",
      (row) => row.module !== null,
    );
    replace(this.gridBox, this.grid.element);
  }

  private nameCell(row: Row): HTMLElement {
    const { module } = row;
    const cell = h(
      "span.nn-module",
      { title: module?.name ?? (row.names ? `${row.label}: ${row.names}` : row.label) },
      h("span.fold", row.open === null ? "" : row.open ? "▾" : "▸"),
      module ? h("span.function", module.depth === 0 ? "" : lastComponent(module.name)) : h("span.muted", row.label),
      module?.className ? h("span.class", module.className) : null,
      row.names ? h("span.class", row.names) : null,
      module && module.depth === 0 && !module.className ? h("span.class", "outermost") : null,
    );
    cell.style.setProperty("--depth", String(module?.depth ?? 0));
    return cell;
  }

  private isOpen(module: NnModule): boolean {
    return this.folded.get(module.name) ?? module.depth < this.depth;
  }

  // Unfolds it or folds it, and tells of it beside the table.
  private press(row: Row): void {
    const module = row.module!;
    if (module.children.length > 0) this.folded.set(module.name, !this.isOpen(module));
    this.chosen = module.name;
    this.draw();
  }

  private draw(): void {
    const { outermost, unnamed, unnamedCount, outside } = this.found!;
    const rows: Row[] = [];
    const add = (module: NnModule) => {
      const open = module.children.length > 0 ? this.isOpen(module) : null;
      const name = module.depth === 0 ? module.className || "outermost" : lastComponent(module.name);
      const label = module.depth > 0 && module.className ? `${name} (${module.className})` : name;
      rows.push({ share: module, label, module, open });
      if (open) module.children.forEach(add);
    };
    if (outermost.blocks > 0) add(outermost);
    const sum = (share: NnModuleShare, label: string, names = "") => {
      if (share.blocks > 0) rows.push({ share, label, names, module: null, open: null });
    };
    sum(unnamed, `[${plural(unnamedCount, "nn.Module")} without a name]`);
    sum(outside, outsideNnModules, namesOutside(this.scene!.model, this.found!).join(", "));
    this.grid!.keep(rows);
    this.tell();
  }

  private find(name: string): NnModule | null {
    let at: NnModule | null = this.found!.outermost;
    for (const part of beginnings(name)) at = at?.children.find((child) => child.name === part) ?? null;
    return at;
  }

  private tell(): void {
    const scene = this.scene!;
    const module = this.chosen === null ? null : this.find(this.chosen);
    this.details.hidden = module === null;
    if (!module) return replace(this.details);
    const { store } = this.around;
    const { model, device } = scene;
    const filter = module.name === "" ? "" : `nn_module=${module.name}`;
    const go = (label: string, view: string, more = {}) => button(label, () => store.set({ view, filter, ...more }));
    replace(
      this.details,
      button("×", () => this.close(), { class: "close", title: "Close", attributes: { "aria-label": "Close" } }),
      h("h2", module.name || module.className || "outermost", h("span.where", module.name ? module.className : "")),
      h(
        "dl.figures",
        figure("held", `${bytes(module.bytes)} in ${plural(module.blocks, "block")}`),
        module.children.length > 0
          ? figure("without those within", `${bytes(module.own.bytes)} in ${plural(module.own.blocks, "block")}`)
          : null,
        ...[...module.categories]
          .filter(([name, held]) => name !== "" && held > 0)
          .sort((a, b) => b[1] - a[1])
          .map(([name, held]) => figure(name, bytes(held))),
      ),
      model.knownOverTime
        ? spark("this nn.Module", model, usedSites(model.sites, device, filter), scene.selection)
        : null,
      h(
        "p.go",
        go("Who holds it", "holders"),
        go("Flame graph", "holders", { shape: "icicle", byNnModule: true }),
        go("Over time", "over-time", { group: "nn-module", depth: module.depth + 1 }),
      ),
    );
  }

  private close(): void {
    this.chosen = null;
    this.tell();
    this.grid!.refresh();
  }

  markdown(): string {
    const { head, right, rows, left } = this.grid!.cells(markdownRows);
    return `${this.heading.textContent}\n\n${markdownTable(head, rows, right)}${left > 0 ? `\n\n${count(left)} more rows are not in this table.` : ""}`;
  }
}
