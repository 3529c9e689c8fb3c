// One place in full: its figures, its bytes over time, the whole stacks that lead to it, the source around it.
import { bytes, count, duration, plural, signedBytes } from "../model/format";
import type { Figures, RecordingModel } from "../model/recording";
import type { SiteTable } from "../model/site_table";
import { categoriesOf, type Place } from "../model/places";
import { button, figure, h, prepare, replace } from "../ui/dom";
import { colours } from "../ui/theme";
import { Callers, type CallersInput } from "./callers";
import type { Surroundings } from "./view";

const stacksShown = 5;

export interface DetailsInput {
  table: SiteTable;
  place: Place;
  figures: Figures;
  callers: CallersInput | null;
  signed: boolean;
  model: RecordingModel | null; // null in a comparison: its sites are those of two recordings
  selection: [number, number];
}

export class Details {
  readonly element = h("section.details", { attributes: { "aria-label": "The chosen place", "aria-live": "polite" } });

  private readonly callers = new Callers();

  // `close`: nothing is chosen any more.
  constructor(
    private readonly around: Surroundings,
    private readonly close: () => void,
  ) {
    this.element.hidden = true;
  }

  set(input: DetailsInput | null): void {
    this.element.hidden = input === null;
    if (!input) return replace(this.element);
    const { table, place, figures, signed, model } = input;
    const frame = place.frame;
    const categories = categoriesOf(place);
    const sites = [...place.sites].sort((a, b) => figures.bytes[b]! - figures.bytes[a]!);
    replace(
      this.element,
      button("×", this.close, { class: "close", title: "Close", attributes: { "aria-label": "Close" } }),
      h("h2", table.functionName(frame), h("span.where", table.location(frame, true))),
      h(
        "dl.figures",
        signed ? figure("before", `${bytes(place.before)} in ${plural(place.beforeBlocks, "block")}`) : null,
        figure(signed ? "after" : "held", `${bytes(place.bytes)} in ${plural(place.blocks, "block")}`),
        signed ? figure("change", signedBytes(place.change)) : null,
        figure("in the whole run", `${bytes(place.allocatedBytes)} in ${plural(place.allocations, "allocation")}`),
        place.kind ? figure("kind", place.kind) : null,
        place.through ? figure("via", place.through) : null,
        categories.length === 0
          ? null
          : figure(
              categories.length === 1 ? "category" : "categories",
              categories.length === 1
                ? categories[0]![0]
                : categories.map(([name, held]) => `${name} ${bytes(held)}`).join(", "),
            ),
        place.temporaries > 0 ? figure("temporary", plural(place.temporaries, "allocation")) : null,
        table.moduleName(frame) ? figure("module", table.moduleName(frame)) : null,
      ),
      model?.knownOverTime ? this.overTime(model, place.sites, input.selection) : null,
      this.source(table, frame),
      h(
        "h3",
        sites.length === 1
          ? "Call stack, innermost first"
          : `Call stacks, innermost first: ${count(Math.min(stacksShown, sites.length))} of ${count(sites.length)}`,
      ),
      h(
        "div.stacks",
        ...sites.slice(0, stacksShown).map((site, i) => {
          const list = this.frames(table, site, frame);
          if (sites.length === 1) return h("div.stack", list);
          const box = h(
            "details.stack",
            h("summary", `${bytes(figures.bytes[site]!)} in ${plural(figures.blocks[site]!, "block")}`),
            list,
          );
          box.open = i === 0;
          return box;
        }),
      ),
      this.callers.element,
    );
    this.callers.set(input.callers, frame);
  }

  // A stack, innermost first; runs of frames that are skipped are one line, unless they are asked for.
  private frames(table: SiteTable, site: number, own: number): HTMLElement {
    const list = h("ol");
    let hidden = 0;
    const tell = () => {
      if (hidden > 0)
        list.append(h("li.skipped", plural(hidden, "frame"), " of allocators, containers and startup code"));
      hidden = 0;
    };
    for (const frame of [...table.stacks[site]!].reverse()) {
      if (table.frames.skipped[frame] && !this.around.store.state.skipped) {
        ++hidden;
        continue;
      }
      tell();
      list.append(
        h(
          "li",
          { class: frame === own ? "own" : "" },
          h("span.function", table.functionName(frame)),
          " ",
          h("span.where", table.location(frame, true)),
        ),
      );
    }
    tell();
    return list;
  }

  private overTime(model: RecordingModel, sites: number[], [from, to]: [number, number]): HTMLElement {
    const all = new Set(sites);
    const series = model.groupsOverTime(1, (site) => (all.has(site) ? 0 : -1))[0]!;
    let most = 0;
    for (const value of series) if (value > most) most = value;
    const canvas = h("canvas", {
      attributes: { role: "img", "aria-label": `Bytes of this place over the run, ${bytes(most)} at most` },
    });
    const figure = h("figure.spark", canvas, h("figcaption", `this place over the run: ${bytes(most)} at most`));
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
      series.forEach((value, m) => {
        const y = height - 2 - (most > 0 ? (value / most) * (height - 6) : 0);
        if (m > 0)
          context.lineTo(x(model.moments[m]!), height - 2 - (most > 0 ? (series[m - 1]! / most) * (height - 6) : 0));
        context.lineTo(x(model.moments[m]!), y);
      });
      context.lineTo(width, height);
      context.globalAlpha = 0.75;
      context.fillStyle = c.accent;
      context.fill();
    };
    new ResizeObserver(draw).observe(figure);
    return figure;
  }

  private source(table: SiteTable, frame: number): HTMLElement | null {
    const line = table.line(frame);
    const file = this.around.files
      .get(table.file(frame))
      ?.find((one) => line >= one.first_line && line < one.first_line + one.lines.length);
    if (!file) return null;
    const first = Math.max(file.first_line, line - 4);
    return h(
      "pre.code",
      { attributes: { tabindex: "0", "aria-label": "The source around it" } },
      ...file.lines
        .slice(first - file.first_line, line - file.first_line + 4)
        .map((text, i) =>
          h("code", { class: first + i === line ? "own" : "" }, h("span.number", String(first + i)), `${text}\n`),
        ),
    );
  }
}

// "1.20 s" or "1.20 s to 1.40 s".
export function selectionText([from, to]: [number, number]): string {
  return from === to ? duration(from) : `${duration(from)} to ${duration(to)}`;
}
