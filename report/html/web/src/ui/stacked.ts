// Bytes over time, stacked by group: of each stretch of the run what was held when it was most.
import { axisBytes, binaryStep, niceStep, splits, tick } from "../model/axis";
import { bytes, duration } from "../model/format";
import { fit, h, onWidth, prepare } from "./dom";
import { colours } from "./theme";
import { hideTooltip, showTooltip } from "./tooltip";

export interface StackedInput {
  moments: Float64Array;
  width: number; // of a stretch, ns; the first begins at 0
  highest: Int32Array; // of each stretch the moment that is drawn; -1: nothing is known of it
  end: number; // of the run, ns
  names: string[];
  colours: string[];
  series: Float64Array[];
  from: number;
  to: number;
  selection: [number, number];
  lit: number; // the group to show alone in full colour, or -1
}

const margin = { left: 74, right: 22, top: 8, bottom: 24 };
// The legend below is to be seen, too.
const areaHeight = (): number => (window.innerHeight < 850 ? 220 : 300);

export class StackedAreas {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { attributes: { "aria-hidden": "true" } });
  private input: StackedInput | null = null;
  private height = areaHeight();

  constructor(
    private readonly choose: (from: number, to: number) => void,
    private readonly press: (group: number) => void,
  ) {
    this.element = h("div.stacked", this.canvas);
    this.canvas.addEventListener("pointermove", (event) => {
      const found = this.at(event);
      if (!found) return hideTooltip();
      const { input, moment, group } = found;
      const all = input.series.reduce((sum, series) => sum + series[moment]!, 0);
      showTooltip(event.clientX, event.clientY, group >= 0 ? input.names[group]! : "all", [
        group >= 0 ? bytes(input.series[group]![moment]!) : "",
        `${bytes(all)} in all at ${duration(input.moments[moment]!)}`,
      ]);
    });
    this.canvas.addEventListener("pointerleave", hideTooltip);
    this.canvas.addEventListener("click", (event) => {
      const found = this.at(event);
      if (!found) return;
      const time = found.input.moments[found.moment]!;
      this.choose(time, time);
      if (found.group >= 0) this.press(found.group);
    });
    onWidth(this.element, () => this.redraw());
  }

  set(input: StackedInput): void {
    this.input = input;
    this.redraw();
  }

  // The stretches that are in view: the first, and the one behind the last.
  private stretches(): [number, number] {
    const { highest, width, from, to } = this.input!;
    const first = Math.min(highest.length - 1, Math.max(0, Math.floor(from / width)));
    return [Math.max(0, first), Math.max(first + 1, Math.min(highest.length, Math.ceil(to / width)))];
  }

  private total(stretch: number): number {
    const { highest, series } = this.input!;
    const moment = highest[stretch]!;
    return moment < 0 ? 0 : series.reduce((sum, one) => sum + one[moment]!, 0);
  }

  private most(): number {
    let most = 1;
    const [first, last] = this.stretches();
    for (let i = first; i < last; ++i) most = Math.max(most, this.total(i));
    return most * 1.05;
  }

  redraw(): void {
    const input = this.input;
    const width = this.element.clientWidth;
    if (!input || width < 50 || input.highest.length === 0) return;
    const { series, from, to } = input;
    const c = colours();
    const height = (this.height = areaHeight());
    const context = prepare(this.canvas, width, height);
    const most = this.most();
    const inner = width - margin.left - margin.right;
    const deep = height - margin.top - margin.bottom;
    const x = (time: number) => margin.left + ((time - from) / (to - from)) * inner;
    const y = (value: number) => margin.top + deep * (1 - value / most);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "right";
    const step = binaryStep(most, 4);
    for (const value of splits(most, step)) {
      context.fillStyle = c.line;
      context.fillRect(margin.left, y(value), inner, 1);
      context.fillStyle = c.muted;
      context.fillText(axisBytes(value, step), margin.left - 8, y(value));
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    const parts = Math.max(2, Math.floor(inner / 120));
    const wide = niceStep((to - from) / parts);
    for (let time = Math.ceil(from / wide) * wide; time <= to; time += wide)
      context.fillText(tick(time, wide, to), x(time), height - 18);

    const [first, last] = this.stretches();
    context.save();
    context.beginPath();
    context.rect(margin.left, margin.top, inner, deep);
    context.clip();
    // Of the stretches within a pixel the one with most is drawn. A value holds over its stretch: steps.
    const begins = (stretch: number) => Math.min(stretch * input.width, input.end);
    const drawn: { stretch: number; from: number }[] = [];
    for (let i = first; i < last; ++i) {
      const before = drawn.at(-1);
      if (!before || x(begins(i)) - before.from >= 1) drawn.push({ stretch: i, from: x(begins(i)) });
      else if (this.total(i) > this.total(before.stretch)) before.stretch = i;
    }
    const ends = (i: number) => drawn[i + 1]?.from ?? x(begins(last));
    const base = new Float64Array(drawn.length);
    const valueOf = (one: Float64Array, i: number) => {
      const moment = input.highest[drawn[i]!.stretch]!;
      return moment < 0 ? 0 : one[moment]!;
    };
    series.forEach((one, group) => {
      context.beginPath();
      drawn.forEach((step, i) => {
        const top = y(base[i]! + valueOf(one, i));
        if (i === 0) context.moveTo(step.from, y(base[i]!));
        context.lineTo(step.from, top);
        context.lineTo(ends(i), top);
      });
      for (let i = drawn.length - 1; i >= 0; --i) {
        context.lineTo(ends(i), y(base[i]!));
        context.lineTo(drawn[i]!.from, y(base[i]!));
      }
      context.closePath();
      context.globalAlpha = input.lit >= 0 && input.lit !== group ? 0.25 : 0.85;
      context.fillStyle = input.colours[group]!;
      context.fill();
      context.globalAlpha = 1;
      if (drawn.length < inner / 3) {
        context.strokeStyle = c.panel;
        context.lineWidth = 0.5;
        context.stroke();
      }
      for (let i = 0; i < drawn.length; ++i) base[i]! += valueOf(one, i);
    });
    const [begin, end] = input.selection;
    context.fillStyle = `${c.accent}30`;
    if (end > begin) context.fillRect(x(begin), margin.top, x(end) - x(begin), deep);
    context.fillStyle = c.accent;
    for (const edge of end > begin ? [begin, end] : [begin]) context.fillRect(x(edge) - 1, margin.top, 2, deep);
    context.restore();
    // Names on areas that are high enough.
    context.textAlign = "left";
    context.textBaseline = "middle";
    let below = 0;
    let best = 0;
    for (let i = 0; i < drawn.length; ++i) if (base[i]! > base[best]!) best = i;
    series.forEach((one, group) => {
      const value = valueOf(one, best);
      if ((value / most) * deep > 16 && (input.lit < 0 || input.lit === group)) {
        const text = fit(context, input.names[group]!, 200);
        const length = context.measureText(text).width;
        const left = Math.min(Math.max(margin.left + 6, drawn[best]!.from + 6), width - margin.right - length - 6);
        const top = y(below + value / 2);
        context.fillStyle = c.panel;
        context.globalAlpha = 0.85;
        context.fillRect(left - 3, top - 9, length + 6, 18);
        context.globalAlpha = 1;
        context.fillStyle = c.text;
        context.fillText(text, left, top);
      }
      below += value;
    });
  }

  private at(event: MouseEvent): { input: StackedInput; moment: number; group: number } | null {
    const input = this.input;
    if (!input) return null;
    const box = this.canvas.getBoundingClientRect();
    const inner = box.width - margin.left - margin.right;
    const part = (event.clientX - box.left - margin.left) / inner;
    if (part < 0 || part > 1) return null;
    const time = input.from + part * (input.to - input.from);
    const moment = input.highest[Math.min(input.highest.length - 1, Math.max(0, Math.floor(time / input.width)))] ?? -1;
    if (moment < 0) return null;
    let value = (1 - (event.clientY - box.top - margin.top) / (this.height - margin.top - margin.bottom)) * this.most();
    let group = -1;
    for (let i = 0; i < input.series.length && value >= 0; ++i) {
      if (value < input.series[i]![moment]!) {
        group = i;
        break;
      }
      value -= input.series[i]![moment]!;
    }
    return { input, moment, group };
  }
}
