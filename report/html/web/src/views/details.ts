// One place in full: its figures, its bytes over time, the whole stacks that lead to it, the source around it.
import { bytes, count, duration, plural, signedBytes } from "../model/format";
import type { Figures, RecordingModel } from "../model/recording";
import type { SiteTable } from "../model/site_table";
import { categoriesOf, type Place } from "../model/places";
import { nnModuleName } from "../model/nn_modules";
import { button, figure, h, replace } from "../ui/dom";
import { spark } from "../ui/spark";
import { Callers, type CallersInput } from "./callers";
import type { Surroundings } from "./view";

const stacksShown = 5;
const namesShown = 8;

interface StackOfPlace {
  site: number; // one that has it
  bytes: number;
  blocks: number;
}

// The largest first. Sites that differ by the nn.Module alone are of one stack.
function stacksOf(table: SiteTable, place: Place, figures: Figures): StackOfPlace[] {
  const found = new Map<string, StackOfPlace>();
  for (const site of place.sites) {
    const key = table.stacks[site]!.join(" ");
    const stack = found.get(key) ?? { site, bytes: 0, blocks: 0 };
    found.set(key, stack);
    stack.bytes += figures.bytes[site]!;
    stack.blocks += figures.blocks[site]!;
  }
  return [...found.values()].sort((a, b) => b.bytes - a.bytes);
}

// Names with their bytes, folded.
function nameList(what: string, list: [name: string, bytes: number][], when = ""): HTMLElement | null {
  if (list.length === 0) return null;
  return h(
    "details.stack",
    h("summary", [plural(list.length, what), when].filter(Boolean).join(", by bytes ")),
    h(
      "ul.plain",
      ...list.slice(0, namesShown).map(([name, value]) => h("li", h("span.function", name), ` ${bytes(value)}`)),
      list.length > namesShown ? h("li.muted", `${count(list.length - namesShown)} more`) : null,
    ),
  );
}

function isOneOf(sites: number[]): (site: number) => boolean {
  const all = new Set(sites);
  return (site) => all.has(site);
}

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
    const stacks = stacksOf(table, place, figures);
    replace(
      this.element,
      button("×", this.close, { class: "close", title: "Close", attributes: { "aria-label": "Close" } }),
      h("h2", table.functionName(frame), h("span.where", table.location(frame, true))),
      h(
        "dl.figures",
        signed ? figure("before", `${bytes(place.before)} in ${plural(place.beforeBlocks, "block")}`) : null,
        figure(signed ? "after" : "held", `${bytes(place.bytes)} in ${plural(place.blocks, "block")}`),
        signed ? figure("change", signedBytes(place.change)) : null,
        // Of nn.Modules it is not known.
        place.allocations > 0
          ? figure("in the whole run", `${bytes(place.allocatedBytes)} in ${plural(place.allocations, "allocation")}`)
          : null,
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
      model?.knownOverTime ? spark("this place", model, isOneOf(place.sites), input.selection) : null,
      nameList("nn.Module", this.nnModules(table, place, figures)),
      nameList("label", model?.labelsOf(place.sites) ?? [], model?.source.last_moment),
      this.source(table, frame),
      h(
        "h3",
        stacks.length === 1
          ? "Call stack, innermost first"
          : `Call stacks, innermost first: ${count(Math.min(stacksShown, stacks.length))} of ${count(stacks.length)}`,
      ),
      h(
        "div.stacks",
        ...stacks.slice(0, stacksShown).map((stack, i) => {
          const list = this.frames(table, stack.site, frame);
          if (stacks.length === 1) return h("div.stack", list);
          const box = h(
            "details.stack",
            h("summary", `${bytes(stack.bytes)} in ${plural(stack.blocks, "block")}`),
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

  // Whose calls allocated it, the largest first.
  private nnModules(table: SiteTable, place: Place, figures: Figures): [string, number][] {
    const held = new Map<string, number>();
    for (const site of table.nnModules.length > 0 ? place.sites : []) {
      const name = nnModuleName(table, site, Infinity);
      if (figures.bytes[site]! > 0) held.set(name, (held.get(name) ?? 0) + figures.bytes[site]!);
    }
    return [...held].sort((a, b) => b[1] - a[1]);
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
