// What memory was used for over the run: areas stacked by category, kind, place or nn.Module, each stretch of the run as it
// was when the device held most in it.
import { bytes, duration, markdownTable, percent } from "../model/format";
import { type Group, type Grouping, groupsOf, most, usualGrouping } from "../model/groups";
import { filterHint } from "../model/filter";
import { choice, h, replace, replaceControls, textField } from "../ui/dom";
import { StackedAreas } from "../ui/stacked";
import { seriesColour } from "../ui/theme";
import type { Scene } from "../model/scene";
import { depthChoice } from "./nn_module_depth";
import type { Surroundings, View } from "./view";

export class OverTimeView implements View {
  readonly id = "over-time";
  readonly title = "Over time";
  readonly element: HTMLElement;
  private readonly areas: StackedAreas;
  private readonly heading = h("p.heading");
  private readonly legend = h("ul.legend", { attributes: { "aria-label": "Groups, by bytes at the moment" } });
  private lit = -1;
  private scene: Scene | null = null;
  private groups: Group[] = [];
  private grouping: Grouping["by"] = "category";
  private highest = new Int32Array(0);
  private readonly update_controls: (scene: Scene) => void;

  constructor(around: Surroundings) {
    const { store } = around;
    this.areas = new StackedAreas(
      (from, to) => store.set({ from, to }),
      (group) => this.light(group),
    );
    const groups = { category: "Category", kind: "Kind", place: "Place", "nn-module": "nn.Module" };
    const group = choice("Stack by", groups, (value) => {
      this.lit = -1;
      store.set({ group: value });
    });
    const depth = depthChoice(store);
    const filter = textField("Filter", filterHint, (text) => store.set({ filter: text }));
    this.update_controls = ({ state, model }: Scene) => {
      const any = model.sites.nnModules.length > 0;
      group.set(this.grouping);
      group.hide("nn-module", !any);
      depth.update(model.sites, state.depth);
      depth.element.hidden = this.grouping !== "nn-module";
      filter.set(state.filter);
    };
    this.element = h(
      "div.view",
      h("div.controls", group.element, depth.element, filter.element),
      this.heading,
      this.areas.element,
      this.legend,
    );
  }

  update(scene: Scene): void {
    this.scene = scene;
    const { state, model } = scene;
    this.grouping = state.group ?? usualGrouping(model.sites, scene.device);
    if (this.grouping === "nn-module" && model.sites.nnModules.length === 0) this.grouping = "place";
    this.update_controls(scene);
    // As high as what is drawn: with a filter the moments are those at which what matches held most.
    this.groups = groupsOf(
      model,
      { device: scene.device, by: this.grouping, filter: state.filter, depth: state.depth },
      [scene.shown, scene.end],
      scene.figures,
    );
    const totals =
      state.filter === ""
        ? scene.totals
        : scene.totals.map((_, moment) => this.groups.reduce((sum, one) => sum + one.series[moment]!, 0));
    this.highest = model.highestMoments(totals);
    this.areas.element.hidden = this.highest.length === 0;
    this.draw();
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
      width: model.source.moment_ns,
      highest: this.highest,
      end: model.duration,
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
      `At ${duration(model.timeOf(scene.shown))}: ${bytes(total)}. `,
      model.knownOverTime
        ? "Click an area to isolate it."
        : "What held memory over time is in the event log (*.memlog): of a report alone the peak and the end are known.",
    );
    replaceControls(
      this.legend,
      ...this.groups.map((one, i) => {
        const key = h(
          "button",
          { attributes: { "aria-pressed": String(this.lit === i) }, on: { click: () => this.light(i) } },
          h("span.swatch"),
          h("span.name", one.name),
          h("span.value", `${bytes(one.series[scene.shown]!)}  ${percent(one.series[scene.shown]!, total)}`),
        );
        key.type = "button";
        key.style.setProperty("--colour", this.colour(i));
        return h("li", key);
      }),
    );
  }

  // A category's is known exactly; of others it is the most at the moments that are known.
  private mostOf(group: Group): number {
    const { model, device, state } = this.scene!;
    const exact = this.grouping === "category" && state.filter === "" ? model.mostOfCategory(device, group.name) : null;
    return exact ?? group.series.reduce((high, value) => Math.max(high, value), 0);
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
      bytes(this.mostOf(one)),
    ]);
    return `At ${duration(scene.model.timeOf(scene.shown))}: ${bytes(total)}\n\n${markdownTable([this.grouping, "bytes", "share", "most"], rows, [false, true, true, true])}`;
  }
}
