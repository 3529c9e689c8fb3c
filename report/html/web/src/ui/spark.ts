// The bytes of a part of the memory over the run, small, beside its figures.
import { bytes } from "../model/format";
import type { RecordingModel } from "../model/recording";
import { h, prepare } from "./dom";
import { colours } from "./theme";

// `what`: as "this place". `use`: the sites that it is of.
export function spark(
  what: string,
  model: RecordingModel,
  use: (site: number) => boolean,
  [from, to]: [number, number],
): HTMLElement {
  const series = model.groupsOverTime(1, (site) => (use(site) ? 0 : -1))[0]!;
  let most = 0;
  for (const value of series) if (value > most) most = value;
  const canvas = h("canvas", {
    attributes: { role: "img", "aria-label": `Bytes of ${what} over the run, ${bytes(most)} at most` },
  });
  const figure = h("figure.spark", canvas, h("figcaption", `${what} over the run: ${bytes(most)} at most`));
  const draw = () => {
    const width = figure.clientWidth;
    if (width < 20) return;
    const height = 54;
    const context = prepare(canvas, width, height);
    const c = colours();
    context.fillStyle = `${c.accent}28`;
    const x = (time: number) => (time / model.duration) * width;
    context.fillRect(x(from), 0, Math.max(1, x(to) - x(from)), height);
    context.beginPath();
    context.moveTo(0, height);
    const y = (value: number) => height - 2 - (most > 0 ? (value / most) * (height - 6) : 0);
    series.forEach((value, m) => {
      if (m > 0) context.lineTo(x(model.moments[m]!), y(series[m - 1]!));
      context.lineTo(x(model.moments[m]!), y(value));
    });
    context.lineTo(width, height);
    context.globalAlpha = 0.75;
    context.fillStyle = c.accent;
    context.fill();
  };
  new ResizeObserver(draw).observe(figure);
  return figure;
}
