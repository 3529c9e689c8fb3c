// What the page says against what a command says. What differs is known (known.txt), or fails; what is known and differs
// no longer fails as well, so that the list only shrinks.
import { readFileSync } from "node:fs";
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

// The table: why, as a line that begins with #, and below it the differences that it is the reason of.
function readKnown(): { recording: string; what: string; line: string }[] {
  const known: { recording: string; what: string; line: string }[] = [];
  let why = "";
  for (const text of readFileSync(new URL("known.txt", import.meta.url), "utf8").split("\n")) {
    if (text.startsWith("#")) why = text;
    else if (text !== "") {
      const [recording, what, ...rest] = text.split(" | ");
      if (!why || !what || rest.length !== 4) throw new Error(`known.txt: no difference with a reason: ${text}`);
      known.push({ recording: recording!, what, line: text });
    }
  }
  return known;
}

const known = readKnown();

const judged = new Set<string>();

// Fails on every difference that is not known, and on every known one that is not there. `area` is the first word of
// `what`, so that each file of tests has its own part of the table. MEMLAB_ROWS=1 prints every row that differs.
export function judge(area: string, recording: string, comparisons: Comparison[]): void {
  const of = (what: string) => what.split(" ")[0] === area;
  if (process.env["MEMLAB_ROWS"])
    for (const { what, row, page, command, seed } of comparisons.flatMap((one) => one.found()))
      console.log(`${recording} ${seed} | ${what} | ${row} | ${page} | ${command}`);
  judged.add(recording);
  const found = summed(comparisons.flatMap((one) => one.found()));
  for (const one of found) if (!of(one.what)) throw new Error(`${one.what} is not of ${area}`);
  const expected = known.filter((one) => one.recording === recording && of(one.what)).map((one) => one.line);
  const wanted = new Set(expected);
  const got = new Set(found.map(line));
  const fresh = found.filter((one) => !wanted.has(line(one)));
  const gone = expected.filter((one) => !got.has(one));
  const told = [
    ...fresh.map((one) => `differs, and known.txt has it not so${one.seed ? ` (${one.seed})` : ""}:\n${line(one)}`),
    ...gone.map((one) => `is known to differ, and does not so any more:\n${one}`),
  ];
  expect
    .soft(told.join("\n"), "recording | what | rows that differ | the one that differs most | page | command")
    .toBe("");
}

// Of the table's part, what is of a recording that no test has.
export function notJudged(area: string): string[] {
  return known.filter((one) => one.what.split(" ")[0] === area && !judged.has(one.recording)).map((one) => one.line);
}
