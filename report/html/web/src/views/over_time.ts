// What memory was used for over the run: areas stacked by category, kind or place.
import { matchSites } from "../model/filter";
import { bytes, count, duration, markdownTable, percent } from "../model/format";
import { choice, h, replace, replaceControls, textField } from "../ui/dom";
import { StackedAreas } from "../ui/stacked";
import { seriesColour } from "../ui/theme";
import type { Scene, Surroundings, View } from "./view";

const most = 7; // groups with a colour of their own; the rest is summed

export class OverTimeView implements View {
  readonly id = "over-time";
  readonly title = "Over time";
  readonly element: HTMLElement;
  private readonly areas: StackedAreas;
  private readonly heading = h("p", { class: "heading" });
  private readonly legend = h("ul", {
    class: "legend",
    attributes: { "aria-label": "Groups, by bytes at the moment" },
  });
  private lit = -1;
  private scene: Scene | null = null;
  private groups: { name: string; series: Float64Array }[] = [];
  private readonly update_controls: (scene: Scene) => void;

  constructor(around: Surroundings) {
    const { store } = around;
    this.areas = new StackedAreas(
      (from, to) => store.set({ from, to }),
      (group) => this.light(group),
    );
    const group = choice(
      "Stack by",
      [
        ["category", "Category"],
        ["kind", "Kind"],
        ["place", "Place"],
      ],
      (value) => {
        this.lit = -1;
        store.set({ group: value });
      },
    );
    const filter = textField("Filter", "func= file= module= kind=", (text) => store.set({ filter: text }));
    this.update_controls = ({ state }) => {
      group.set(state.group);
      filter.set(state.filter);
    };
    this.element = h(
      "div",
      { class: "view" },
      h("div", { class: "controls" }, group.element, filter.element),
      this.heading,
      this.areas.element,
      this.legend,
    );
  }

  update(scene: Scene): void {
    this.scene = scene;
    this.update_controls(scene);
    const { state, model } = scene;
    const table = model.sites;
    const matched = matchSites(table, state.filter);
    const names: string[] = [];
    const known = new Map<string, number>();
    const groupOf = new Int32Array(table.count).fill(-1);
    for (let site = 0; site < table.count; ++site) {
      if (table.device[site] !== scene.device || (matched && !matched[site])) continue;
      const frame = table.place(site);
      const name =
        state.group === "category"
          ? table.text(table.category[site]!) || "no category"
          : state.group === "kind"
            ? table.text(table.kind[site]!) || "no kind"
            : `${table.functionName(frame)}${table.location(frame) ? ` ${table.location(frame)}` : ""}`;
      let id = known.get(name);
      if (id === undefined) known.set(name, (id = names.push(name) - 1));
      groupOf[site] = id;
    }
    // The places that ever held most; by their peaks, without a series for each of thousands.
    const all = names.length <= 200 ? model.groupsOverTime(names.length, (site) => groupOf[site]!) : null;
    const weight = all
      ? all.map((series) => series.reduce((high, value) => Math.max(high, value), 0))
      : this.weights(scene, groupOf, names.length);
    const order = names
      .map((_, i) => i)
      .sort((a, b) => weight[b]! - weight[a]!)
      .filter((i) => weight[i]! > 0);
    const rank = new Int32Array(names.length).fill(most);
    order.slice(0, order.length <= most + 1 ? order.length : most).forEach((id, i) => {
      rank[id] = i;
    });
    const shown = Math.min(order.length, most + 1);
    const series = model.groupsOverTime(shown, (site) =>
      groupOf[site]! < 0 || weight[groupOf[site]!] === 0 ? -1 : rank[groupOf[site]!]!,
    );
    this.groups = series.map((one, i) => ({
      name: i === most && order.length > most + 1 ? `${count(order.length - most)} others` : names[order[i]!]!,
      series: one,
    }));
    this.draw();
  }

  private weights(scene: Scene, groupOf: Int32Array, groups: number): Float64Array {
    const result = new Float64Array(groups);
    const sample = Math.max(1, Math.floor(scene.model.moments.length / 24));
    const at = new Set([scene.shown, scene.end]);
    for (let m = 0; m < scene.model.moments.length; m += sample) at.add(m);
    for (const moment of at) {
      const held = new Float64Array(groups);
      scene.figures(moment).bytes.forEach((value, site) => {
        if (groupOf[site]! >= 0) held[groupOf[site]!]! += value;
      });
      held.forEach((value, group) => {
        result[group] = Math.max(result[group]!, value);
      });
    }
    return result;
  }

  private colour(index: number): string {
    return index === most ? seriesColour(most) : seriesColour(index);
  }

  private light(group: number): void {
    this.lit = this.lit === group ? -1 : group;
    this.draw();
  }

  private draw(): void {
    const scene = this.scene!;
    const { state, model } = scene;
    this.areas.set({
      moments: model.moments,
      names: this.groups.map((one) => one.name),
      colours: this.groups.map((_, i) => this.colour(i)),
      series: this.groups.map((one) => one.series),
      from: state.zoomFrom ?? 0,
      to: state.zoomTo ?? model.duration,
      selection: scene.selection,
      lit: this.lit,
    });
    const total = this.total();
    replace(
      this.heading,
      `At ${duration(model.moments[scene.shown] ?? 0)}: ${bytes(total)}. Press an area for its group alone.`,
    );
    replaceControls(
      this.legend,
      ...this.groups.map((one, i) => {
        const key = h(
          "button",
          { attributes: { "aria-pressed": String(this.lit === i) }, on: { click: () => this.light(i) } },
          h("span", { class: "swatch" }),
          h("span", { class: "name" }, one.name),
          h(
            "span",
            { class: "value" },
            `${bytes(one.series[scene.shown]!)}  ${percent(one.series[scene.shown]!, total)}`,
          ),
        );
        key.type = "button";
        key.style.setProperty("--colour", this.colour(i));
        return h("li", {}, key);
      }),
    );
  }

  private total(): number {
    return this.groups.reduce((sum, one) => sum + one.series[this.scene!.shown]!, 0);
  }

  redraw(): void {
    this.areas.redraw();
  }

  markdown(scene: Scene): string {
    const total = this.total();
    const rows = this.groups.map((one) => [
      one.name,
      bytes(one.series[scene.shown]!),
      percent(one.series[scene.shown]!, total),
      bytes(one.series.reduce((high, value) => Math.max(high, value), 0)),
    ]);
    return `At ${duration(scene.model.moments[scene.shown] ?? 0)}: ${bytes(total)}\n\n${markdownTable([scene.state.group, "bytes", "share", "most"], rows, [false, true, true, true])}`;
  }
}
