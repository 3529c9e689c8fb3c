// Curves over the run with scopes and marks below and on them. Click to select a moment, drag to select a range.
import uPlot from "uplot";
import type { Curve, Mark } from "../data";
import { greatest, sample } from "../model/curves";
import { axisBytes, binaryStep, splits, tick } from "../model/axis";
import { bytes, count, duration } from "../model/format";
import type { RecordingModel } from "../model/recording";
import { nextScope } from "../model/scopes";
import { button, h, onWidth, replace } from "./dom";
import { ScopeLanes } from "./scope_lanes";
import { colours } from "./theme";
import { drawOver } from "./timeline_marks";

export interface Shown {
  curve: Curve;
  label: string;
  colour: string;
  ghost: boolean; // the other recording's, to compare by
}

export interface TimelineInput {
  shown: Shown[];
  from: number; // the part of the run that is shown
  to: number;
  selection: [number, number];
  most: number | null; // the top of the axis, where several timelines share it
}

export interface TimelineEvents {
  select: (from: number, to: number) => void;
  zoom: (from: number | null, to: number | null) => void;
}

export class Timeline {
  readonly element: HTMLElement;
  private readonly chartBox: HTMLElement;
  private readonly scopes: ScopeLanes;
  private readonly status: HTMLElement;
  private plot: uPlot | null = null;
  private input: TimelineInput | null = null;
  private signature = "";
  private drag: [number, number] | null = null;

  constructor(
    label: string,
    private readonly model: RecordingModel,
    private readonly events: TimelineEvents,
    private readonly span: number,
    heading: HTMLElement[],
    private readonly compact = false, // one of two
  ) {
    this.chartBox = h("div.chart", {
      attributes: {
        tabindex: "0",
        role: "application",
        "aria-roledescription": "timeline",
        "aria-label": `${label}: left and right choose a moment, with Shift a range, plus and minus zoom, P goes to the peak, O to the next failure, Escape to the usual moment`,
      },
    });
    this.scopes = new ScopeLanes(model, events.select, (clientX) => this.timeAt(clientX));
    this.status = h("div.readout", { attributes: { "aria-hidden": "true" } });
    const tools = h(
      "div.chart-tools",
      button("−", () => this.scale(2), { title: "Zoom out (-)", attributes: { "aria-label": "Zoom out" } }),
      button("+", () => this.scale(0.5), { title: "Zoom in (+)", attributes: { "aria-label": "Zoom in" } }),
      button("Range", () => this.zoomToSelection(), {
        title: "Zoom to the selected range (Z)",
        attributes: { "aria-label": "Range: zoom to it" },
      }),
      button("All", () => events.zoom(null, null), {
        title: "The whole run (0)",
        attributes: { "aria-label": "All of the run" },
      }),
    );
    this.element = h(
      "div.timeline",
      h("div.timeline-head", ...heading, this.status, tools),
      this.chartBox,
      this.scopes.element,
    );
    this.chartBox.addEventListener("keydown", (event) => this.key(event));
    onWidth(this.chartBox, () => this.redraw());
  }

  update(input: TimelineInput): void {
    this.input = input;
    this.draw(false);
  }

  redraw(): void {
    if (this.input) this.draw(true);
  }

  private draw(force: boolean): void {
    const input = this.input!;
    const width = this.chartBox.clientWidth;
    if (width < 50) return;
    const signature = [
      width,
      input.from,
      input.to,
      input.most,
      ...input.shown.map((one) => `${one.curve.device} ${one.curve.name} ${one.colour}`),
    ].join("|");
    if (!force && this.plot && signature === this.signature) {
      this.plot.redraw(false);
      this.drawScopes();
      return;
    }
    this.signature = signature;
    const columns = Math.max(50, Math.min(2400, Math.floor(width)));
    const step = (input.to - input.from) / columns;
    const x = Array.from({ length: columns }, (_, i) => input.from + (i + 0.5) * step);
    const data: (number | null)[][] = [x];
    const series: uPlot.Series[] = [{}];
    const bands: uPlot.Band[] = [];
    let counts = false;
    input.shown.forEach((one) => {
      const { min, max } = sample(one.curve, input.from, input.to, columns, one.ghost ? Infinity : this.model.duration);
      const scale = one.curve.unit === "count" ? "count" : "bytes";
      counts ||= scale === "count";
      const plain = (values: Float64Array) => Array.from(values, (value) => (Number.isNaN(value) ? null : value));
      data.push(plain(max), plain(min));
      const dash = one.ghost ? [5, 4] : one.curve.exact ? [] : [2, 3];
      series.push({ scale, stroke: one.colour, width: one.ghost ? 1 : 1.5, dash, points: { show: false } });
      series.push({
        scale,
        stroke: one.colour,
        width: 0.5,
        dash,
        points: { show: false },
        ...(one.curve.kind === "allocated" && !one.ghost ? { fill: `${one.colour}1c` } : {}),
      });
      if (!one.ghost) bands.push({ series: [series.length - 2, series.length - 1], fill: `${one.colour}38` });
    });
    const most =
      input.most ??
      Math.max(
        1,
        ...input.shown
          .filter((one) => one.curve.unit === "bytes")
          .map((one) => greatest(one.curve, input.from, input.to)),
      );
    const mostCount = Math.max(
      1,
      ...input.shown
        .filter((one) => one.curve.unit === "count")
        .map((one) => greatest(one.curve, input.from, input.to)),
    );
    const c = colours();
    const axis: uPlot.Axis = {
      stroke: c.muted,
      grid: { stroke: c.line, width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
    };
    const unit = binaryStep(most, 4);
    this.plot?.destroy();
    this.plot = new uPlot(
      {
        width,
        height: chartHeight(this.compact),
        padding: [14, counts ? 0 : 22, 0, 0],
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, y: false, points: { show: false } },
        scales: {
          x: { time: false, range: () => [this.input!.from, this.input!.to] },
          bytes: { range: () => [0, most * 1.06] },
          count: { range: () => [0, mostCount * 1.06] },
        },
        axes: [
          {
            ...axis,
            size: 26,
            space: 90,
            values: (_, ticks) =>
              ticks.map((value) => tick(value, ticks.length > 1 ? ticks[1]! - ticks[0]! : value || 1, input.to)),
          },
          {
            ...axis,
            scale: "bytes",
            size: 74,
            splits: () => splits(most * 1.06, unit),
            values: (_, ticks) => ticks.map((value) => axisBytes(value, unit)),
          },
          ...(counts
            ? [
                {
                  ...axis,
                  scale: "count",
                  side: 1 as const,
                  size: 56,
                  grid: { show: false },
                  values: (_: uPlot, ticks: number[]) =>
                    ticks.map((value) => (Number.isInteger(value) ? count(value) : "")),
                },
              ]
            : []),
        ],
        series,
        bands,
        hooks: {
          draw: [(plot) => drawOver(plot, this.drag ?? this.input!.selection, this.model.marks)],
          setCursor: [(plot) => this.readOut(plot)],
        },
      },
      data as uPlot.AlignedData,
      this.chartBox,
    );
    this.pointerOnChart(this.plot.over);
    this.drawScopes();
  }

  private drawScopes(): void {
    const ratio = window.devicePixelRatio || 1;
    const { left, width } = this.plot!.bbox;
    const { from, to } = this.input!;
    this.scopes.draw({ left: left / ratio, width: width / ratio, whole: this.chartBox.clientWidth, from, to });
  }

  private timeAt(clientX: number): number {
    const box = this.plot!.over.getBoundingClientRect();
    const { from, to } = this.input!;
    return Math.max(0, Math.min(this.span, from + ((clientX - box.left) / box.width) * (to - from)));
  }

  private pointerOnChart(over: HTMLElement): void {
    over.style.touchAction = "pan-y";
    let down: number | null = null;
    over.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      down = event.clientX;
      over.setPointerCapture(event.pointerId);
      this.chartBox.focus({ preventScroll: true });
    });
    over.addEventListener("pointermove", (event) => {
      if (down === null || Math.abs(event.clientX - down) < 5) return;
      this.drag = [this.timeAt(down), this.timeAt(event.clientX)];
      this.plot!.redraw(false);
    });
    over.addEventListener("pointerup", (event) => {
      if (down === null) return;
      const range = this.drag;
      const at = this.timeAt(event.clientX);
      down = null;
      this.drag = null;
      if (range) this.events.select(Math.min(...range), Math.max(...range));
      else this.selectNear(at);
    });
    over.addEventListener("pointercancel", () => {
      down = null;
      this.drag = null;
      this.plot!.redraw(false);
    });
    over.addEventListener(
      "wheel",
      (event) => {
        const { from, to } = this.input!;
        if (event.ctrlKey || event.metaKey) {
          const at = this.timeAt(event.clientX);
          this.zoomAround(at, Math.exp(event.deltaY * 0.004));
        } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          const shift = (event.deltaX / over.clientWidth) * (to - from);
          this.window(from + shift, to + shift);
        } else return;
        event.preventDefault();
      },
      { passive: false },
    );
  }

  // A click close to a mark means the mark.
  private selectNear(time: number): void {
    const slack = ((this.input!.to - this.input!.from) / this.chartBox.clientWidth) * 6;
    let best: Mark | null = null;
    for (const mark of this.model.marks)
      if (Math.abs(mark.at - time) <= slack && (!best || Math.abs(mark.at - time) < Math.abs(best.at - time)))
        best = mark;
    const at = best ? best.at : (this.model.moments[this.model.nearestMoment(time)] ?? time);
    this.events.select(at, at);
  }

  private readOut(plot: uPlot): void {
    const left = plot.cursor.left ?? -1;
    const input = this.input!;
    if (left < 0) return replace(this.status);
    const time = plot.posToVal(left, "x");
    const column = plot.posToIdx(left);
    replace(
      this.status,
      h("span.time", duration(Math.max(0, time))),
      ...input.shown.slice(0, 6).map((one, i) => {
        const max = plot.data[1 + 2 * i]?.[column];
        const value = h(
          "span",
          `${one.label} ${max === null || max === undefined ? "–" : one.curve.unit === "bytes" ? bytes(max) : count(max)}`,
        );
        value.style.setProperty("--colour", one.colour);
        return value;
      }),
    );
  }

  // Shows `factor` times as much of the run, around the selection where it is seen.
  scale(factor: number): void {
    const [from, to] = this.input!.selection;
    const middle = (from + to) / 2;
    const inside = middle >= this.input!.from && middle <= this.input!.to;
    this.zoomAround(inside ? middle : (this.input!.from + this.input!.to) / 2, factor);
  }

  private zoomAround(at: number, factor: number): void {
    const { from, to } = this.input!;
    this.window(at - (at - from) * factor, at + (to - at) * factor);
  }

  private window(from: number, to: number): void {
    const least = Math.min(this.span, 100);
    const length = Math.max(least, Math.min(this.span, to - from));
    const begin = Math.max(0, Math.min(this.span - length, from));
    if (length >= this.span) this.events.zoom(null, null);
    else this.events.zoom(Math.round(begin), Math.round(begin + length));
  }

  zoomToSelection(): void {
    const [from, to] = this.input!.selection;
    const room = Math.max((to - from) * 0.04, to === from ? (this.input!.to - this.input!.from) / 20 : 0);
    this.window(from - room, to + room);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moments = this.model.moments;
    const [from, to] = this.input!.selection;
    const move = (by: number) => {
      // To the next moment that is a pixel or more away.
      const pixel = (this.input!.to - this.input!.from) / this.chartBox.clientWidth;
      let next = this.model.nearestMoment(to) + by;
      while (next > 0 && next < moments.length - 1 && Math.abs(moments[next]! - to) < pixel) next += by;
      const time = moments[Math.max(0, Math.min(moments.length - 1, next))]!;
      if (event.shiftKey) this.events.select(Math.min(from, time), Math.max(from, time));
      else this.events.select(time, time);
    };
    if (event.key === "ArrowRight") move(1);
    else if (event.key === "ArrowLeft") move(-1);
    else if (event.key === "Home") this.events.select(0, 0);
    else if (event.key === "End") this.events.select(this.model.duration, this.model.duration);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // The scope after (1) or before (-1).
  selectScope(by: 1 | -1): void {
    const { scopes } = this.model;
    const next = nextScope(scopes, this.input!.selection, by);
    if (next >= 0) this.events.select(scopes.begin[next]!, scopes.end[next]!);
  }
}

// What is below has to be seen too: two timelines share the height of a third more than one.
function chartHeight(compact: boolean): number {
  const narrow = window.innerWidth < 600;
  const whole = narrow || window.innerHeight < 700 ? 130 : window.innerHeight < 850 ? 160 : 210;
  return compact ? Math.round(whole * 0.67) : whole;
}
