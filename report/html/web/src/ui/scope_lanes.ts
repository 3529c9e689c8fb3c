// The scopes of a recording below its curves, in a lane for each thread and depth. Clicking selects one.
import { duration } from "../model/format";
import type { RecordingModel } from "../model/recording";
import { type Lane, lanesOf } from "../model/scopes";
import { fit, h, prepare } from "./dom";
import { colours, seriesColour } from "./theme";
import { hideTooltip, showTooltip } from "./tooltip";

const laneHeight = 16;

// Where the chart above has its times, in CSS pixels.
export interface ChartArea {
  left: number;
  width: number;
  whole: number; // with what is beside the curves
  from: number; // ns
  to: number;
}

export class ScopeLanes {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { attributes: { "aria-hidden": "true" } });
  private readonly lanes: Lane[];
  private area: ChartArea | null = null;

  constructor(
    private readonly model: RecordingModel,
    select: (from: number, to: number) => void,
    private readonly timeAt: (clientX: number) => number,
  ) {
    this.lanes = lanesOf(model.scopes);
    this.element = h("div.scopes", this.canvas);
    this.element.hidden = this.lanes.length === 0;
    this.canvas.addEventListener("pointermove", (event) => this.tell(event));
    this.canvas.addEventListener("pointerleave", hideTooltip);
    this.canvas.addEventListener("click", (event) => {
      const scope = this.scopeAt(event as PointerEvent);
      if (scope >= 0) select(model.scopes.begin[scope]!, model.scopes.end[scope]!);
    });
  }

  draw(area: ChartArea): void {
    this.area = area;
    if (this.lanes.length === 0) return;
    const { left, width, from, to } = area;
    const c = colours();
    const context = prepare(this.canvas, area.whole, this.lanes.length * laneHeight + 2);
    const scale = width / (to - from);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const scopes = this.model.scopes;
    context.save();
    context.beginPath();
    context.rect(left, 0, width, this.lanes.length * laneHeight + 2);
    context.clip();
    this.lanes.forEach((lane, i) => {
      const y = i * laneHeight + 1;
      let drawn = -1;
      for (let at = lane.firstAfter(from); at < lane.scopes.length; ++at) {
        const scope = lane.scopes[at]!;
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
          context.fillText(fit(context, this.name(scope), end - x - 8), x + 4, y + laneHeight / 2 - 0.5);
        }
      }
    });
    context.restore();
    context.fillStyle = c.muted;
    if (left > 60)
      this.lanes.forEach((lane, i) => {
        if (lane.first)
          context.fillText(
            fit(context, this.model.source.threads[lane.thread] || "scopes", left - 10),
            4,
            i * laneHeight + laneHeight / 2,
          );
      });
  }

  private name(scope: number): string {
    const { scopes } = this.model;
    return scopes.names[scopes.name[scope]!] ?? "";
  }

  private scopeAt(event: PointerEvent): number {
    const box = this.canvas.getBoundingClientRect();
    const lane = this.lanes[Math.floor((event.clientY - box.top) / laneHeight)];
    if (!lane || !this.area) return -1;
    const time = this.timeAt(event.clientX);
    const slack = (this.area.to - this.area.from) / this.area.whole;
    const scopes = this.model.scopes;
    for (let at = lane.firstAfter(time - slack); at < lane.scopes.length; ++at) {
      const scope = lane.scopes[at]!;
      if (scopes.begin[scope]! > time + slack) return -1;
      if (scopes.end[scope]! >= time - slack) return scope;
    }
    return -1;
  }

  private tell(event: PointerEvent): void {
    const scope = this.scopeAt(event);
    this.canvas.style.cursor = scope >= 0 ? "pointer" : "";
    if (scope < 0) return hideTooltip();
    const scopes = this.model.scopes;
    const [begin, end] = [scopes.begin[scope]!, scopes.end[scope]!];
    showTooltip(event.clientX, event.clientY, this.name(scope), [
      `${duration(begin)} to ${duration(end)}, ${duration(end - begin)}`,
      this.model.source.threads[scopes.thread[scope]!] ?? "",
      "Click to select it",
    ]);
  }
}
