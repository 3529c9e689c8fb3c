// Curves over the run with scopes and marks below and on them. A press selects a moment, a drag a range.
import uPlot from "uplot";
import type { Curve, Mark } from "../data";
import { greatest, sample } from "../model/curves";
import { bytes, count, duration, fixed, tick } from "../model/format";
import type { RecordingModel, Scopes } from "../model/recording";
import { lowerBound } from "../model/recording";
import { button, fit, h, onWidth, prepare, replace } from "./dom";
import { colours, seriesColour } from "./theme";
import { hideTooltip, showTooltip } from "./tooltip";

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

const laneHeight = 16;

export class Timeline {
  readonly element: HTMLElement;
  private readonly chartBox: HTMLElement;
  private readonly scopesCanvas: HTMLCanvasElement;
  private readonly scopesBox: HTMLElement;
  private readonly status: HTMLElement;
  private plot: uPlot | null = null;
  private input: TimelineInput | null = null;
  private signature = "";
  private drag: [number, number] | null = null;
  private readonly lanes: Lanes;

  constructor(
    label: string,
    private readonly model: RecordingModel,
    private readonly events: TimelineEvents,
    private readonly span: number,
    heading: HTMLElement[],
  ) {
    this.lanes = new Lanes(model.scopes);
    this.chartBox = h("div", {
      class: "chart",
      attributes: {
        tabindex: "0",
        role: "application",
        "aria-roledescription": "timeline",
        "aria-label": `${label}: left and right choose a moment, with Shift a range, plus and minus zoom, P goes to the peak, O to the next failure, Escape to the usual moment`,
      },
    });
    this.scopesCanvas = h("canvas", { attributes: { "aria-hidden": "true" } });
    this.scopesBox = h("div", { class: "scopes" }, this.scopesCanvas);
    this.status = h("div", { class: "readout", attributes: { "aria-hidden": "true" } });
    const tools = h(
      "div",
      { class: "chart-tools" },
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
      "div",
      { class: "timeline" },
      h("div", { class: "timeline-head" }, ...heading, this.status, tools),
      this.chartBox,
      this.scopesBox,
    );
    this.chartBox.addEventListener("keydown", (event) => this.key(event));
    this.scopesBox.hidden = this.lanes.count === 0;
    this.pointerOnScopes();
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
        height: chartHeight(),
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
          draw: [(plot) => this.drawOver(plot)],
          setCursor: [(plot) => this.readOut(plot)],
        },
      },
      data as uPlot.AlignedData,
      this.chartBox,
    );
    this.pointerOnChart(this.plot.over);
    this.drawScopes();
  }

  // The selection and the marks.
  private drawOver(plot: uPlot): void {
    const context = plot.ctx;
    const ratio = window.devicePixelRatio || 1;
    const { left, top, width, height } = plot.bbox;
    const c = colours();
    const [from, to] = this.drag ?? this.input!.selection;
    const at = (time: number) => plot.valToPos(time, "x", true);
    context.save();
    context.beginPath();
    context.rect(left - 8 * ratio, 0, width + 16 * ratio, top + height);
    context.clip();
    const begin = at(Math.min(from, to));
    const end = at(Math.max(from, to));
    if (end - begin > 1) {
      context.fillStyle = `${c.accent}30`;
      context.fillRect(begin, top, end - begin, height);
    }
    context.fillStyle = c.accent;
    for (const edge of end - begin > 1 ? [begin, end] : [begin])
      context.fillRect(edge - ratio, top - 4 * ratio, 2 * ratio, height + 4 * ratio);

    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.textBaseline = "top";
    context.textAlign = "left";
    let free = -Infinity;
    const important = (mark: Mark) => (mark.kind === "oom" ? 0 : mark.kind === "peak" ? 1 : 2);
    const visible = this.model.marks.filter(
      (mark) => mark.at >= this.input!.from && mark.at <= this.input!.to && mark.kind !== "end",
    );
    const taken: [number, number][] = [];
    // Many marks are ticks at the foot, so that the curves stay to be seen.
    const many = visible.length > 40;
    for (const mark of visible) {
      const x = at(mark.at);
      // Of thousands of marks one for each pixel is drawn.
      if (mark.kind === "mark" && x - free < 3 * ratio) continue;
      free = x;
      context.strokeStyle = mark.kind === "oom" ? c.oom : c.muted;
      context.lineWidth = (mark.kind === "oom" ? 2 : 1) * ratio;
      context.setLineDash(mark.kind === "oom" ? [] : [3 * ratio, 3 * ratio]);
      context.beginPath();
      context.moveTo(x, many && mark.kind === "mark" ? top + height - 8 * ratio : top);
      context.lineTo(x, top + height);
      context.stroke();
    }
    context.setLineDash([]);
    for (const mark of [...visible].sort((a, b) => important(a) - important(b)).slice(0, 200)) {
      if (many && mark.kind === "mark") continue;
      const x = at(mark.at);
      const room = Math.max(left + width - x, x - left) - 8 * ratio;
      const text = fit(
        context,
        mark.kind === "oom" ? "▲ out of memory" : mark.kind === "peak" ? `◆ ${mark.text || "peak"}` : mark.text,
        Math.min(260 * ratio, room),
      );
      const length = context.measureText(text).width;
      const start = x + length + 6 * ratio > left + width ? x - length - 5 * ratio : x + 4 * ratio;
      if (taken.some(([a, b]) => start < b + 6 * ratio && start + length > a - 6 * ratio)) continue;
      taken.push([start, start + length]);
      context.fillStyle = mark.kind === "oom" ? c.oom : c.text;
      context.fillText(text, start, 1 * ratio);
    }
    context.restore();
  }

  private drawScopes(): void {
    if (this.lanes.count === 0 || !this.plot) return;
    const plot = this.plot;
    const ratio = window.devicePixelRatio || 1;
    const left = plot.bbox.left / ratio;
    const width = plot.bbox.width / ratio;
    const c = colours();
    const context = prepare(this.scopesCanvas, this.chartBox.clientWidth, this.lanes.count * laneHeight + 2);
    const { from, to } = this.input!;
    const scale = width / (to - from);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const scopes = this.model.scopes;
    context.save();
    context.beginPath();
    context.rect(left, 0, width, this.lanes.count * laneHeight + 2);
    context.clip();
    this.lanes.rows.forEach((row, lane) => {
      const y = lane * laneHeight + 1;
      let drawn = -1;
      for (let i = row.firstAfter(from); i < row.scopes.length; ++i) {
        const scope = row.scopes[i]!;
        const begin = scopes.begin[scope]!;
        if (begin > to) break;
        const x = Math.max(left, left + (begin - from) * scale);
        const end = Math.min(left + width, left + (scopes.end[scope]! - from) * scale);
        if (end <= drawn + 0.4) continue; // within the pixel of the one before
        drawn = Math.max(end, x + 0.8);
        context.fillStyle = seriesColour(scopes.name[scope]!);
        context.globalAlpha = 0.55;
        context.fillRect(x, y, Math.max(0.8, end - x - 0.6), laneHeight - 2);
        context.globalAlpha = 1;
        if (end - x > 26) {
          context.fillStyle = c.text;
          context.fillText(
            fit(context, scopes.names[scopes.name[scope]!] ?? "", end - x - 8),
            x + 4,
            y + laneHeight / 2 - 0.5,
          );
        }
      }
    });
    context.restore();
    context.fillStyle = c.muted;
    if (left > 60)
      this.lanes.rows.forEach((row, lane) => {
        if (row.first)
          context.fillText(
            fit(context, this.model.source.threads[row.thread] || "scopes", left - 10),
            4,
            lane * laneHeight + laneHeight / 2,
          );
      });
  }

  private scopeAt(event: PointerEvent): number {
    const box = this.scopesCanvas.getBoundingClientRect();
    const row = this.lanes.rows[Math.floor((event.clientY - box.top) / laneHeight)];
    if (!row || !this.plot) return -1;
    const time = this.timeAt(event.clientX);
    const slack = (this.input!.to - this.input!.from) / this.chartBox.clientWidth;
    const scopes = this.model.scopes;
    for (let i = row.firstAfter(time - slack); i < row.scopes.length; ++i) {
      const scope = row.scopes[i]!;
      if (scopes.begin[scope]! > time + slack) return -1;
      if (scopes.end[scope]! >= time - slack) return scope;
    }
    return -1;
  }

  private pointerOnScopes(): void {
    this.scopesCanvas.addEventListener("pointermove", (event) => {
      const scope = this.scopeAt(event);
      this.scopesCanvas.style.cursor = scope >= 0 ? "pointer" : "";
      if (scope < 0) return hideTooltip();
      const scopes = this.model.scopes;
      showTooltip(event.clientX, event.clientY, scopes.names[scopes.name[scope]!] ?? "", [
        `${duration(scopes.begin[scope]!)} to ${duration(scopes.end[scope]!)}, ${duration(scopes.end[scope]! - scopes.begin[scope]!)}`,
        this.model.source.threads[scopes.thread[scope]!] ?? "",
        "Press to select it",
      ]);
    });
    this.scopesCanvas.addEventListener("pointerleave", hideTooltip);
    this.scopesCanvas.addEventListener("click", (event) => {
      const scope = this.scopeAt(event as PointerEvent);
      if (scope >= 0) this.events.select(this.model.scopes.begin[scope]!, this.model.scopes.end[scope]!);
    });
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

  // A press close to a mark means the mark.
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
      h("span", { class: "time" }, duration(Math.max(0, time))),
      ...input.shown.slice(0, 6).map((one, i) => {
        const max = plot.data[1 + 2 * i]?.[column];
        const value = h(
          "span",
          {},
          `${one.label} ${max === null || max === undefined ? "–" : one.curve.unit === "bytes" ? bytes(max) : count(max)}`,
        );
        value.style.setProperty("--colour", one.colour);
        return value;
      }),
    );
  }

  private scale(factor: number): void {
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

  // The scope before or after the selected one: of the same name where a scope is selected, else the nearest outermost.
  private nextScope(by: 1 | -1): void {
    const scopes = this.model.scopes;
    const [from, to] = this.input!.selection;
    let selected = -1;
    for (let i = 0; i < scopes.begin.length; ++i)
      if (Math.abs(scopes.begin[i]! - from) < 1 && Math.abs(scopes.end[i]! - to) < 1) selected = i;
    let best = -1;
    for (let i = 0; i < scopes.begin.length; ++i) {
      if (
        selected >= 0
          ? scopes.name[i] !== scopes.name[selected] || scopes.thread[i] !== scopes.thread[selected]
          : scopes.depth[i] !== 0
      )
        continue;
      const away = (scopes.begin[i]! - from) * by;
      if (away > 0 && (best < 0 || away < (scopes.begin[best]! - from) * by)) best = i;
    }
    if (best >= 0) this.events.select(scopes.begin[best]!, scopes.end[best]!);
  }

  press(key: string): boolean {
    if (key === "+" || key === "=") this.scale(0.5);
    else if (key === "-") this.scale(2);
    else if (key === "0") this.events.zoom(null, null);
    else if (key === "z") this.zoomToSelection();
    else if (key === "]") this.nextScope(1);
    else if (key === "[") this.nextScope(-1);
    else return false;
    return true;
  }
}

// Scopes by thread and depth; within a row they do not overlap and are in order of time.
class Lanes {
  readonly rows: { thread: number; first: boolean; scopes: number[]; firstAfter: (time: number) => number }[] = [];

  constructor(scopes: Scopes) {
    const rows = new Map<number, number[]>();
    for (let i = 0; i < scopes.begin.length; ++i) {
      const depth = scopes.depth[i]!;
      if (depth >= 5) continue;
      const key = scopes.thread[i]! * 8 + depth;
      const row = rows.get(key);
      if (row) row.push(i);
      else rows.set(key, [i]);
    }
    const keys = [...rows.keys()].sort((a, b) => a - b).slice(0, 12);
    let thread = -1;
    for (const key of keys) {
      const row = rows.get(key)!.sort((a, b) => scopes.begin[a]! - scopes.begin[b]!);
      // Ends ascend where scopes do not overlap; where they do, the greatest so far is looked at.
      let most = 0;
      const ends = Float64Array.from(row, (scope) => (most = Math.max(most, scopes.end[scope]!)));
      this.rows.push({
        thread: key >> 3,
        first: key >> 3 !== thread,
        scopes: row,
        firstAfter: (time) => lowerBound(ends, time),
      });
      thread = key >> 3;
    }
  }

  get count(): number {
    return this.rows.length;
  }
}

function chartHeight(): number {
  return window.innerWidth < 600 ? 190 : window.innerHeight < 700 ? 200 : 230;
}

// A step of 2^n bytes that divides `most` into at most `parts` or so.
export function binaryStep(most: number, parts: number): number {
  return 2 ** Math.max(0, Math.ceil(Math.log2(most / (parts + 1))));
}

export function splits(most: number, step: number): number[] {
  const result = [];
  for (let value = 0; value <= most; value += step) result.push(value);
  return result;
}

export function axisBytes(value: number, step: number): string {
  if (value === 0) return "0";
  const power = Math.min(4, Math.floor(Math.log2(Math.max(step, 1) * 4) / 10));
  const scaled = value / 1024 ** power;
  return `${Number.isInteger(scaled) ? scaled : fixed(scaled, Number.isInteger(scaled * 10) ? 1 : 2)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}
