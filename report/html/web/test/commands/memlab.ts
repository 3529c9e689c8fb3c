// The commands that the page is compared with, and the recordings: all of tests/data, and random ones.
// MEMLAB_REPORT, MEMLAB_RANDOM_LOG and MEMLAB_SYNTH are the programs.
import { execFile } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll } from "vitest";

const run = promisify(execFile);
const data = fileURLToPath(new URL("../../../../../tests/data", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "memlab-commands-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function program(variable: string): string {
  const path = process.env[variable];
  if (!path) throw new Error(`${variable} names no program: build it, and say where it is`);
  return path;
}

// What a command prints; null where it refuses. A refusal that is not expected fails what uses the answer.
export async function printed(...args: string[]): Promise<Buffer | null> {
  try {
    const { stdout } = await run(program("MEMLAB_REPORT"), args, { encoding: "buffer", maxBuffer: 2 ** 30 });
    return stdout;
  } catch (error) {
    if ((error as { code?: unknown }).code === 2) return null;
    throw error;
  }
}

const answers = new Map<string, Promise<unknown>>();

// The document that a command prints with --json, whole: no list is cut. Asked for twice, it runs once.
export function document<T>(command: string, ...args: string[]): Promise<T | null> {
  const key = [command, ...args].join("\0");
  let answer = answers.get(key);
  if (!answer) {
    answer = printed(...(command === "summary" ? [] : [command]), "--json", "--no-symbols", ...args).then((text) =>
      text === null ? null : (JSON.parse(text.toString("utf8")) as unknown),
    );
    answers.set(key, answer);
  }
  return answer as Promise<T | null>;
}

// The report of the one recording in a document that has a list of them.
export async function reported<T>(command: string, ...args: string[]): Promise<T> {
  const found = await document<{ reports: T[] }>(command, ...args);
  if (!found || found.reports.length !== 1) throw new Error(`memlab-report ${command} ${args.join(" ")}: no report`);
  return found.reports[0]!;
}

// Device memory and what a framework made of it, where a recording has both; each alone, and both together.
export async function levels(path: string): Promise<string[]> {
  const { devices } = await reported<{ devices: { allocator: string | null }[] }>("summary", path);
  return devices.some((one) => one.allocator !== null) ? ["all", "driver", "framework"] : ["all"];
}

export const all = ["--top", "1000000"];

export interface Recorded {
  name: string; // as in the table of known differences; random recordings of a kind have one
  seed: string; // how to have it again
  path: string;
  alone: boolean; // a report without its log
}

function files(under: string): string[] {
  return readdirSync(under, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

// Event logs and reports of tests/data; reports beside their log once more without it.
export function recordings(): Recorded[] {
  const found: Recorded[] = [];
  for (const path of files(data)) {
    const name = relative(data, path);
    if (path.endsWith(".memlog")) found.push({ name, seed: "", path, alone: false });
    if (!path.endsWith(".json") || basename(path).startsWith("memlab-run")) continue;
    const alone = join(folder, name);
    mkdirSync(dirname(alone), { recursive: true });
    copyFileSync(path, alone);
    found.push({ name, seed: "a report alone", path: alone, alone: true });
  }
  return found;
}

export const ranks = join(data, "h200/run_of_four_ranks");

// Recordings whose allocations are made those of calls of a network's nn.Modules.
const layered = ["h200/pytorch_tensors.memlog", "h200/pytorch_transformer.memlog", "h100/program_every_kind.memlog"];

const plausible = [1, 2, 3, 4, 5, 6, 7, 8];
const synthetic = [
  { seed: 1, sites: 100 },
  { seed: 2, sites: 200 },
  { seed: 3, sites: 700 },
];

// Recordings that nobody planned (tests/cli/random_log.cpp), of layers of a network with more call sites than the page has
// groups for (tests/cli/memlab_synth.cpp), and of nn.Modules. The seeds are these, so that the table of known differences holds.
export async function randomRecordings(): Promise<Recorded[]> {
  const made: Recorded[] = [];
  for (const seed of plausible) {
    const path = join(folder, `plausible.${seed}.memlog`);
    await run(program("MEMLAB_RANDOM_LOG"), ["plausible", String(seed), "3000", path]);
    made.push({ name: "random_log plausible", seed: `random_log plausible ${seed} 3000`, path, alone: false });
  }
  for (const { seed, sites } of synthetic) {
    const path = join(folder, `synth.${seed}.memlog`);
    await run(program("MEMLAB_SYNTH"), [
      "--events",
      "12000",
      "--sites",
      String(sites),
      "--seed",
      String(seed),
      "-o",
      path,
    ]);
    made.push({
      name: "memlab-synth",
      seed: `memlab-synth --events 12000 --sites ${sites} --seed ${seed}`,
      path,
      alone: false,
    });
  }
  for (const alone of [false, true])
    for (const of of layered) {
      const log = join(folder, `layers.${basename(of)}`);
      const path = alone ? join(folder, `layers.${basename(of, ".memlog")}.alone.json`) : log;
      if (alone) await run(program("MEMLAB_REPORT"), ["recover", "-o", path, log]);
      else await run(program("MEMLAB_RANDOM_LOG"), ["layers", join(data, of), path]);
      const name = `random_log layers${alone ? ", reports alone" : ""}`;
      made.push({ name, seed: `random_log layers ${of}`, path, alone });
    }
  // Its log reached its limit while the program went on, of which memlab-synth complains.
  const stopped = join(folder, "stopped.memlog");
  const few = ["--events", "12000", "--sites", "100", "--limit", "65536"];
  await run(program("MEMLAB_SYNTH"), [...few, "-o", stopped]).catch(() => {});
  made.push({
    name: "memlab-synth that stopped",
    seed: `memlab-synth ${few.join(" ")}`,
    path: stopped,
    alone: false,
  });
  return made;
}

// The same report as if the program had been built and run elsewhere: other folders, another name of the program.
export function elsewhere(name: string, was: string, is: string): Recorded {
  const path = join(mkdtempSync(join(folder, "elsewhere-")), basename(name));
  const text = readFileSync(join(data, name), "utf8");
  if (!text.includes(was)) throw new Error(`${name} has no ${was}`);
  writeFileSync(path, text.replaceAll(was, is));
  return { name: `${name} elsewhere`, seed: "", path, alone: true };
}

export function recording(name: string): Recorded {
  return { name, seed: "", path: join(data, name), alone: name.endsWith(".json") };
}

// Numbers that are the same in every run: which moments are compared.
export function random(seed: number): (below: number) => number {
  let state = (seed * 2654435761) >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}
