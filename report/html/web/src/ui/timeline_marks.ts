// What is drawn over the curves of a timeline: the selection, and the marks with as many of their names as have room.
import type uPlot from "uplot";
import type { Mark } from "../data";
import { fit } from "./dom";
import { colours } from "./theme";

const mostNames = 200;
const mostLines = 40; // more marks are ticks at the foot, so that the curves stay to be seen

// The selection is from and to, in ns.
export function drawOver(plot: uPlot, [from, to]: [number, number], marks: Mark[]): void {
  const context = plot.ctx;
  const ratio = window.devicePixelRatio || 1;
  const { left, top, width, height } = plot.bbox;
  context.save();
  context.beginPath();
  context.rect(left - 8 * ratio, 0, width + 16 * ratio, top + height);
  context.clip();
  const begin = plot.valToPos(Math.min(from, to), "x", true);
  const end = plot.valToPos(Math.max(from, to), "x", true);
  const { accent } = colours();
  if (end - begin > 1) {
    context.fillStyle = `${accent}30`;
    context.fillRect(begin, top, end - begin, height);
  }
  context.fillStyle = accent;
  for (const edge of end - begin > 1 ? [begin, end] : [begin])
    context.fillRect(edge - ratio, top - 4 * ratio, 2 * ratio, height + 4 * ratio);

  const { min, max } = plot.scales["x"]!;
  const visible = marks.filter((mark) => mark.at >= min! && mark.at <= max! && mark.kind !== "end");
  const ticks = visible.length > mostLines;
  drawLines(plot, visible, ticks, ratio);
  drawNames(plot, ticks ? visible.filter((mark) => mark.kind !== "mark") : visible, ratio);
  context.restore();
}

function drawLines(plot: uPlot, marks: Mark[], ticks: boolean, ratio: number): void {
  const context = plot.ctx;
  const { top, height } = plot.bbox;
  const c = colours();
  let free = -Infinity;
  for (const mark of marks) {
    const x = plot.valToPos(mark.at, "x", true);
    // Of thousands of marks one for each pixel is drawn.
    if (mark.kind === "mark" && x - free < 3 * ratio) continue;
    free = x;
    const failure = mark.kind === "oom";
    context.strokeStyle = failure ? c.oom : c.muted;
    context.lineWidth = (failure ? 2 : 1) * ratio;
    context.setLineDash(failure ? [] : [3 * ratio, 3 * ratio]);
    context.beginPath();
    context.moveTo(x, ticks && mark.kind === "mark" ? top + height - 8 * ratio : top);
    context.lineTo(x, top + height);
    context.stroke();
  }
  context.setLineDash([]);
}

// Names do not overlap: those of failures first, then of peaks.
function drawNames(plot: uPlot, marks: Mark[], ratio: number): void {
  const context = plot.ctx;
  const { left, width } = plot.bbox;
  const c = colours();
  context.font = `${11 * ratio}px system-ui, sans-serif`;
  context.textBaseline = "top";
  context.textAlign = "left";
  const important = (mark: Mark) => (mark.kind === "oom" ? 0 : mark.kind === "peak" ? 1 : 2);
  const taken: [number, number][] = [];
  for (const mark of [...marks].sort((a, b) => important(a) - important(b)).slice(0, mostNames)) {
    const x = plot.valToPos(mark.at, "x", true);
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
}
