// Who called a function, and what it called, with their bytes: one goes from function to function by clicking.
import { percent } from "../model/format";
import { type Call, callsOf, functionKey } from "../model/calls";
import type { SiteTable } from "../model/site_table";
import { button, h, replaceControls } from "../ui/dom";
import { bar } from "../ui/table";

export interface CallersInput {
  table: SiteTable;
  values: Float64Array; // by site
  text: (value: number) => string;
  use: (site: number) => boolean;
  showSkipped: boolean;
  skip: Uint8Array | null;
}

const shown = 8; // of each

export class Callers {
  readonly element = h("section.callers", { attributes: { "aria-label": "Callers and callees" } });
  private input: CallersInput | null = null;
  private of = "";
  private way: number[] = []; // functions that one came from

  // `frame`: the function to begin with; -1: none.
  set(input: CallersInput | null, frame: number): void {
    this.input = input;
    this.element.hidden = input === null || frame < 0;
    if (!input || frame < 0) return;
    const key = functionKey(input.table, frame);
    if (this.of !== key) this.way = [frame];
    this.of = key;
    this.draw();
  }

  private go(frame: number): void {
    this.way.push(frame);
    this.draw();
  }

  private draw(): void {
    const { table, values, text, use, showSkipped, skip } = this.input!;
    const frame = this.way.at(-1)!;
    const calls = callsOf(table, values, frame, { use, showSkipped, skip });
    const list = (title: string, of: Call[], nothing: string) =>
      h(
        "div",
        h("h4", title),
        h(
          "ul.plain",
          ...of.slice(0, shown).map((call) =>
            h(
              "li",
              bar(text(call.value), calls.total === 0 ? 0 : Math.abs(call.value / calls.total)),
              call.frame < 0
                ? h("span.muted", nothing)
                : button(table.functionName(call.frame), () => this.go(call.frame), {
                    class: "name",
                    title: `${table.functionName(call.frame)}\n${table.location(call.frame, true)}`,
                  }),
            ),
          ),
          of.length > shown ? h("li.muted", `${of.length - shown} more`) : null,
        ),
      );
    const callees = calls.own !== 0 ? [...calls.callees, { frame: -1, value: calls.own }] : calls.callees;
    callees.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
    replaceControls(
      this.element,
      h(
        "h3",
        "Callers and callees of ",
        h("span.function", table.functionName(frame)),
        this.way.length > 1
          ? button("Back", () => {
              this.way.pop();
              this.draw();
            })
          : null,
      ),
      h(
        "p.muted",
        `${text(calls.total)} with all that it called, ${text(calls.own)} (${percent(Math.abs(calls.own), Math.abs(calls.total))}) by itself`,
      ),
      h(
        "div.calls",
        list("Called by", calls.callers, "nothing: the outermost call"),
        list("Calls", callees, "allocates by itself"),
      ),
    );
  }
}
