// What the page says against what a command says: every figure that differs fails.
import { expect } from "vitest";

// Of one recording, all rows of a comparison that differ: how many, and the one that differs most.
interface Difference {
  recording: string;
  what: string;
  rows: number;
  row: string;
  page: string;
  command: string;
}

interface Row {
  recording: string;
  seed: string;
  what: string;
  row: string;
  page: number | string;
  command: number | string;
}

export type Rows = Map<string, number[]>;

export function add(rows: Rows, key: string, ...values: number[]): void {
  const row = rows.get(key);
  if (row) values.forEach((value, i) => (row[i]! += value));
  else rows.set(key, values);
}

export class Comparison {
  private readonly rows: Row[] = [];
  compared = 0; // figures

  constructor(
    private readonly recording: string,
    private readonly seed: string,
  ) {}

  same(what: string, row: string, page: number | string, command: number | string): void {
    ++this.compared;
    if (page !== command) this.rows.push({ recording: this.recording, seed: this.seed, what, row, page, command });
  }

  // Tables with a row for each key. A row that one of the two has not is one of zeros. Rows `but` are passed over; returns
  // those that differ.
  tables(
    what: string,
    when: string,
    columns: string[],
    page: Rows,
    command: Rows,
    but: Set<string> = new Set(),
  ): Set<string> {
    const differ = new Set<string>();
    const none = columns.map(() => 0);
    for (const key of new Set([...page.keys(), ...command.keys()])) {
      if (but.has(key)) continue;
      const left = page.get(key) ?? none;
      const right = command.get(key) ?? none;
      columns.forEach((column, i) => this.same(what, `${when}, ${key}: ${column}`, left[i]!, right[i]!));
      if (columns.some((_, i) => left[i] !== right[i])) differ.add(key);
    }
    return differ;
  }

  found(): Row[] {
    return this.rows;
  }
}

function distance(row: Row): number {
  return typeof row.page === "number" && typeof row.command === "number" ? Math.abs(row.page - row.command) : 0;
}

// The differences of all recordings that share a name, one for each thing that was compared.
function summed(rows: Row[]): (Difference & { seed: string })[] {
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const key = `${row.recording}\n${row.what}`;
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  return [...groups.values()].map((group) => {
    const most = group.sort((a, b) => distance(b) - distance(a) || (a.seed + a.row < b.seed + b.row ? -1 : 1))[0]!;
    return {
      recording: most.recording,
      what: most.what,
      rows: group.length,
      row: most.row,
      page: String(most.page),
      command: String(most.command),
      seed: most.seed,
    };
  });
}

const line = (one: Difference) =>
  [one.recording, one.what, one.rows, one.row, one.page, one.command].map((part) => String(part)).join(" | ");

// Fails on every difference, with the seed of a random recording. `area` is the first word of `what`. MEMLAB_ROWS=1 prints
// every row that differs.
export function judge(area: string, recording: string, comparisons: Comparison[]): void {
  const rows = comparisons.flatMap((one) => one.found());
  if (process.env["MEMLAB_ROWS"])
    for (const { what, row, page, command, seed } of rows)
      console.log(`${recording} ${seed} | ${what} | ${row} | ${page} | ${command}`);
  const found = summed(rows);
  for (const one of found) if (one.what.split(" ")[0] !== area) throw new Error(`${one.what} is not of ${area}`);
  expect
    .soft(
      found.map((one) => `${line(one)}${one.seed ? ` (${one.seed})` : ""}`).join("\n"),
      "recording | what | rows that differ | the one that differs most | page | command",
    )
    .toBe("");
}
