// What memory was used for over the run: areas stacked by category, kind or place.
import { bytes, duration, markdownTable, percent } from "../model/format";
import { type Group, groupsOf, most } from "../model/groups";
import { choice, h, replace, replaceControls, textField } from "../ui/dom";
import { StackedAreas } from "../ui/stacked";
import { seriesColour } from "../ui/theme";
import type { Scene } from "../model/scene";
import type { Surroundings, View } from "./view";

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
  private groups: Group[] = [];
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
    this.groups = groupsOf(
      model,
      { device: scene.device, by: state.group, filter: state.filter },
      [scene.shown, scene.end],
      scene.figures,
    );
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
      `At ${duration(model.timeOf(scene.shown))}: ${bytes(total)}. Click an area to isolate it.`,
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
    return `At ${duration(scene.model.timeOf(scene.shown))}: ${bytes(total)}\n\n${markdownTable([scene.state.group, "bytes", "share", "most"], rows, [false, true, true, true])}`;
  }
}
