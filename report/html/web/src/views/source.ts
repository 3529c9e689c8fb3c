// Source lines with what they held: a line stands for everything that it called, as in `memlab-report lines`.
import { bytes, count, duration, markdownRows, markdownTable, plural } from "../model/format";
import { basename } from "../model/format";
import { type Line, linesOf } from "../model/lines";
import { h, replace, select } from "../ui/dom";
import { bar, figures, Table } from "../ui/table";
import type { Scene } from "../model/scene";
import type { Surroundings, View } from "./view";

export class SourceView implements View {
  readonly id = "source";
  readonly title = "Source lines";
  readonly element: HTMLElement;
  private readonly heading = h("p.heading");
  private readonly file = select("File", [], (value) => this.around.store.set({ file: value }));
  private readonly table: Table<Line>;
  private rows: Line[] = [];
  private largest = 1;

  constructor(private readonly around: Surroundings) {
    this.table = new Table<Line>(
      "Source lines",
      [
        {
          id: "line",
          head: "line",
          width: "56px",
          right: true,
          cell: (row) => String(row.number),
          sort: (row) => -row.number,
        },
        figures<Line>(
          "held",
          "held",
          116,
          (row) => row.held,
          (value) => (value > 0 ? bar(bytes(value), value / this.largest) : ""),
          {
            low: false,
            hint: "Held at the moment by what this line called",
          },
        ),
        figures<Line>(
          "allocated",
          "in the run",
          110,
          (row) => row.allocated,
          (value) => (value > 0 ? bytes(value) : ""),
        ),
        figures<Line>(
          "allocations",
          "allocations",
          104,
          (row) => row.allocations,
          (value) => (value > 0 ? count(value) : ""),
        ),
        {
          id: "code",
          head: "code",
          width: "minmax(0, 1fr)",
          cell: (row) => h("code.line", { title: row.code ?? "" }, row.code ?? "…"),
          text: (row) => row.code ?? "",
        },
      ],
      "line",
      null,
      undefined,
      "No source lines are known here.",
    );
    this.element = h("div.view", h("div.controls", this.file.element), this.heading, this.table.element);
  }

  update(scene: Scene): void {
    const files = linesOf(scene.model.sites, scene.figures(scene.shown), scene.device);
    const withCode = (path: string) => (this.around.files.has(path) ? 1 : 0);
    const paths = [...files.keys()].sort(
      (a, b) =>
        withCode(b) - withCode(a) ||
        files.get(b)!.held - files.get(a)!.held ||
        files.get(b)!.allocated - files.get(a)!.allocated,
    );
    const path = files.has(scene.state.file) ? scene.state.file : (paths[0] ?? "");
    this.file.options(
      paths.map((one) => [
        one,
        `${basename(one)}: ${bytes(files.get(one)!.held)}${withCode(one) ? "" : " (no source here)"}`,
      ]),
    );
    this.file.set(path);
    const found = files.get(path);
    if (!found) {
      replace(
        this.heading,
        scene.data.sources
          ? "No source line is known of this recording: its binaries have no debug information here."
          : "This page was written without source lines (--no-source).",
      );
      return this.table.set([]);
    }
    for (const part of this.around.files.get(path) ?? [])
      part.lines.forEach((code, i) => {
        const number = part.first_line + i;
        const line = found.of.get(number);
        if (line) line.code = code;
        else found.of.set(number, { number, code, held: 0, blocks: 0, allocated: 0, allocations: 0 });
      });
    this.rows = [...found.of.values()].sort((a, b) => a.number - b.number);
    this.largest = this.rows.reduce((most, row) => Math.max(most, row.held), 1);
    replace(
      this.heading,
      h("span.path", path),
      ` at ${duration(scene.model.timeOf(scene.shown))}: ${bytes(found.held)}. A line stands for all that it called.`,
      this.around.files.get(path)?.some((part) => part.changed_since)
        ? h("span.muted", " The file was changed after the recording: lines may have moved.")
        : null,
    );
    this.table.set(this.rows);
  }

  markdown(): string {
    const rows = this.rows
      .filter((row) => row.held > 0 || row.allocated > 0)
      .sort((a, b) => b.held - a.held)
      .slice(0, markdownRows);
    return `${this.heading.textContent}\n\n${markdownTable(
      ["line", "held", "in the run", "code"],
      rows.map((row) => [
        String(row.number),
        `${bytes(row.held)} in ${plural(row.blocks, "block")}`,
        bytes(row.allocated),
        row.code?.trim() ?? "",
      ]),
      [true, true, true, false],
    )}`;
  }
}
