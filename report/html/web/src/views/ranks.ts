// The processes of a run side by side: those that differ most come first.
import type { RunData } from "../data";
import { bytes, count, markdownRows, markdownTable, percent, plural } from "../model/format";
import { append, figure, h, prepare, replace } from "../ui/dom";
import { bar, figures, Table } from "../ui/table";
import { colours } from "../ui/theme";
import { type NnModuleOfRanks, nnModulesOfRanks } from "./rank_nn_modules";
import type { Scene } from "../model/scene";
import type { Surroundings, View } from "./view";

type Rank = RunData["ranks"][number];
interface Merge {
  world_size: number | null;
  level?: "driver" | "framework";
  imbalance?: Record<
    "allocated" | "reserved",
    { largest_bytes: number; mean_bytes: number; ratio: number; rank: number } | null
  >;
  places?: unknown[];
  ranks?: { rank: number }[];
  nn_modules?: NnModuleOfRanks[];
  notes?: string[];
}

// The name without the rank, which has a column of its own.
function processName(rank: Rank): string {
  const prefix = `rank ${rank.rank}: `;
  return rank.name.startsWith(prefix) ? rank.name.slice(prefix.length) : rank.name;
}

// "Rank 3, python3 (pid 986)".
function processText(rank: Rank): string {
  return rank.rank === null ? rank.name : `Rank ${rank.rank}, ${processName(rank)},`;
}

export class RanksView implements View {
  readonly id = "ranks";
  readonly title: string;
  readonly element: HTMLElement;
  private readonly heading = h("p.heading");
  private readonly facts = h("dl.figures");
  private readonly nnModules = h("div");
  private readonly notes = h("div");
  private readonly said = h("p.note", { attributes: { role: "status" } });
  private readonly strip: HTMLElement;
  private readonly canvas = h("canvas", {
    attributes: { role: "img", "aria-label": "Peaks of all processes; the table has the figures" },
  });
  private readonly table: Table<Rank>;
  private ranks: Rank[] = [];
  private largest = 1;
  private longest = 1; // values of the longest curve
  private chosen: number | null = null;

  constructor(
    private readonly around: Surroundings,
    run: RunData,
  ) {
    this.title = run.ranks.some((rank) => rank.rank !== null) ? "Ranks" : "Processes";
    // Outliers first, then by rank.
    const byRank = (a: Rank, b: Rank) => (a.rank ?? Infinity) - (b.rank ?? Infinity) || 0;
    this.ranks = [...run.ranks].sort(
      (a, b) => Number(b.outlier !== null) - Number(a.outlier !== null) || byRank(a, b) || b.peak_bytes - a.peak_bytes,
    );
    this.longest = this.ranks.reduce((most, rank) => Math.max(most, rank.curve.length), 1);
    this.largest = this.ranks.reduce((most, rank) => Math.max(most, rank.peak_bytes), 1);
    const order = new Map(this.ranks.map((rank, i) => [rank, -i]));
    this.table = new Table<Rank>(
      "Ranks",
      [
        {
          id: "rank",
          head: "rank",
          width: "48px",
          right: true,
          cell: (rank) => (rank.rank === null ? "-" : String(rank.rank)),
          sort: (rank) => -(rank.rank ?? Infinity),
        },
        {
          id: "name",
          head: "process",
          width: "minmax(0, 1fr)",
          cell: (rank) => h("span", { title: rank.name }, processName(rank)),
          sort: (rank) => processName(rank),
        },
        { id: "host", head: "host", width: "120px", low: true, cell: (rank) => rank.host, sort: (rank) => rank.host },
        figures<Rank>(
          "peak",
          "peak",
          112,
          (rank) => rank.peak_bytes,
          (value, rank) => bar(bytes(value), value / this.largest, rank.outlier ? "more" : ""),
          { low: false },
        ),
        figures<Rank>("end", "at the end", 110, (rank) => rank.at_end_bytes, bytes),
        { id: "curve", head: "allocated", width: "150px", low: true, cell: (rank) => this.spark(rank), text: () => "" },
        {
          id: "outlier",
          head: "differs",
          width: "minmax(0, 1.2fr)",
          cell: (rank) => rank.outlier ?? "",
          sort: (rank) => order.get(rank)!,
        },
      ],
      "outlier",
      (rank) => this.choose(rank),
      (rank) => rank.recording !== null && rank.recording === this.chosen,
      "No processes.",
    );
    this.strip = h("div.rank-strip", this.canvas);
    this.element = h("div.view", this.heading, this.said, this.facts, this.strip, this.table.element);
    this.element.append(this.nnModules, this.notes);
    const merge = run.documents.merge as Merge | undefined;
    append(this.nnModules, [
      nnModulesOfRanks(
        merge?.nn_modules ?? [],
        (merge?.ranks ?? []).map(({ rank }) => rank),
      ),
    ]);
    this.said.hidden = true;
    new ResizeObserver(() => this.redraw()).observe(this.strip);
  }

  // Of most processes a page has the curve and the peak alone.
  private choose(rank: Rank): void {
    const { recording } = rank;
    this.said.hidden = recording !== null;
    if (recording === null) {
      replace(
        this.said,
        `${processText(rank)} is not in this page in full. A page of its own: memlab-report html -o page.html with its recording.`,
      );
      return;
    }
    this.around.store.set({ recording, device: null, from: null, to: null, zoomFrom: null, zoomTo: null });
  }

  count(): number {
    return this.ranks.length;
  }

  private spark(rank: Rank): HTMLElement {
    const canvas = h("canvas", { attributes: { "aria-hidden": "true" } });
    const context = prepare(canvas, 140, 26);
    const c = colours();
    context.fillStyle = rank.outlier ? c.more : c.accent;
    const step = 140 / this.longest;
    rank.curve.forEach((value, i) => {
      const height = (value / this.largest) * 24;
      context.fillRect(i * step, 25 - height, Math.max(0.8, step), height);
    });
    return canvas;
  }

  // "Ranks 0, 1, 2", "3 of them".
  private inFull(): string {
    const full = this.ranks.filter((rank) => rank.recording !== null);
    const ranks = full.flatMap((one) => (one.rank === null ? [] : [one.rank])).sort((a, b) => a - b);
    if (ranks.length !== full.length || ranks.length === 0) return `${count(full.length)} of them`;
    return `${ranks.length === 1 ? "Rank" : "Ranks"} ${ranks.join(", ")}`;
  }

  update(scene: Scene): void {
    this.chosen = scene.state.recording ?? 0;
    const merge = scene.data.run?.documents.merge as Merge | undefined;
    const outliers = this.ranks.filter((rank) => rank.outlier !== null).length;
    const full = this.ranks.filter((rank) => rank.recording !== null).length;
    replace(
      this.heading,
      plural(this.ranks.length, "process"),
      outliers > 0 ? `; ${plural(outliers, "outlier")} first. ` : "; none differs from the others. ",
      full === this.ranks.length
        ? "Click one to look at it."
        : `${this.inFull()} ${full === 1 ? "is" : "are"} here in full: click one to look at it.`,
      merge?.level === "framework" ? " Figures are of what the framework's cache handed out." : "",
    );
    const kinds = (["allocated", "reserved"] as const).map((kind) => {
      const one = merge?.imbalance?.[kind];
      return one
        ? figure(
            `imbalance, ${kind}`,
            `${one.ratio.toFixed(2)} (rank ${one.rank}: ${bytes(one.largest_bytes)}, mean ${bytes(Math.round(one.mean_bytes))})`,
          )
        : null;
    });
    // Of an even number the middle of the middle two, as where "differs" says how far a peak is from it.
    const peaks = this.ranks.map((rank) => rank.peak_bytes).sort((a, b) => a - b);
    const low = peaks[(peaks.length - 1) >> 1] ?? 0;
    const median = low + Math.floor(((peaks[peaks.length >> 1] ?? 0) - low) / 2);
    replace(this.facts, figure("median peak", bytes(median)), figure("largest peak", bytes(this.largest)), ...kinds);
    replace(this.notes, ...(merge?.notes ?? []).map((note) => h("p.note", note)));
    this.table.set(this.ranks);
    this.redraw();
  }

  // A bar for each process in order of rank: one glance over a thousand.
  redraw(): void {
    const width = this.strip.clientWidth;
    if (width < 50) return;
    const height = 90;
    const context = prepare(this.canvas, width, height);
    const c = colours();
    const ranks = [...this.ranks].sort((a, b) => (a.rank ?? Infinity) - (b.rank ?? Infinity));
    const step = Math.min(40, width / Math.max(1, ranks.length));
    ranks.forEach((rank, i) => {
      const tall = (rank.peak_bytes / this.largest) * (height - 18);
      context.fillStyle = rank.outlier ? c.more : c.accent;
      context.fillRect(i * step, height - 16 - tall, Math.max(0.7, step - (step > 4 ? 2 : 0.2)), tall);
    });
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = c.muted;
    const every = Math.max(1, Math.ceil(36 / step));
    ranks.forEach((rank, i) => {
      if (i % every === 0 && rank.rank !== null) context.fillText(String(rank.rank), i * step, height - 4);
    });
  }

  markdown(): string {
    const rows = this.ranks
      .slice(0, markdownRows)
      .map((rank) => [
        rank.rank === null ? "-" : String(rank.rank),
        processName(rank),
        rank.host,
        bytes(rank.peak_bytes),
        percent(rank.peak_bytes, this.largest),
        bytes(rank.at_end_bytes),
        rank.outlier ?? "",
      ]);
    return `${this.heading.textContent}\n\n${markdownTable(["rank", "process", "host", "peak", "of the largest", "at the end", "differs"], rows, [true, false, false, true, true, true, false])}${
      this.ranks.length > markdownRows ? `\n\n${count(this.ranks.length - markdownRows)} more` : ""
    }`;
  }
}
