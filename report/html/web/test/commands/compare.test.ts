// Two recordings, and the ranks of a run: the page's tables of what changed against `memlab-report diff`, its ranks
// against `merge` and the summary of each.
import { describe, expect, test } from "vitest";
import { DevicePairs, onUnion, unite } from "../../src/model/compare";
import { usedSites } from "../../src/model/filter";
import { basename } from "../../src/model/format";
import { nnModuleName } from "../../src/model/nn_modules";
import { placeName } from "../../src/model/place_names";
import { places } from "../../src/model/places";
import { curveDevice, greatestMoment, RecordingModel } from "../../src/model/recording";
import { add, Comparison, judge, type Rows } from "./differences";
import type { Diff, DiffByNnModule, Merge, SummaryReport } from "./documents";
import {
  all,
  document,
  elsewhere,
  random,
  randomRecordings,
  ranks,
  recording,
  type Recorded,
  reported,
} from "./memlab";
import { hostKinds, open, type Page, patterns } from "./page";

const columns = ["before", "after"];

const pairsOf = (page: Page) => new DevicePairs(page.data.documents?.diff);

// The device of one of both that `device` of the recording after is compared with.
const deviceOf = (page: Page, which: 0 | 1, device: number) => (which === 0 ? pairsOf(page).before(device) : device);

// Libraries have other names in other recordings: what tells rows apart is the operator of a backward.
const operator = (through: string | null | undefined) => (through && !through.includes(".so") ? through : "");

// Rows are named by function, file without its folder, and kind: lines move and folders differ between builds.
function changes(page: Page, device: number, when: "at the peak" | "at the end", filter: string): Rows {
  const [before, after] = page.models as [RecordingModel, RecordingModel];
  const union = unite(before, after, pairsOf(page));
  const { table } = union;
  const figures = (which: 0 | 1, model: RecordingModel) => {
    const own = deviceOf(page, which, device);
    const end = model.moments.length - 1;
    const moment = when === "at the peak" ? greatestMoment(model.totals(own), 0, end) : end;
    return onUnion(union, which, model.figures(moment), usedSites(model.sites, own, filter));
  };
  const use = (site: number) => table.device[site] === device;
  const list = places(table, figures(1, after), figures(0, before), { use, skip: null, anyLibrary: true });
  const rows: Rows = new Map();
  for (const place of list) {
    const { frame, kind, through } = place;
    const name = frame < 0 ? "[unknown]" : table.functionName(frame);
    const key = `${name} ${basename(table.file(frame))} ${operator(through)} [${kind}]`;
    if (place.change !== 0) add(rows, key, place.before, place.bytes);
  }
  return rows;
}

// The call stacks that changed, by what they held: as many of each as `memlab-report diff` has.
function stacks(rows: Iterable<{ kind: string; before: number; after: number }>): Rows {
  const counted: Rows = new Map();
  for (const { kind, before, after } of rows)
    if (before !== after && !hostKinds.has(kind)) add(counted, `${before} then ${after} [${kind}]`, 1);
  return counted;
}

function changedStacks(page: Page, device: number): Rows {
  const [before, after] = page.models as [RecordingModel, RecordingModel];
  const union = unite(before, after, pairsOf(page));
  const end = (which: 0 | 1, model: RecordingModel) => onUnion(union, which, model.figures(model.moments.length - 1));
  const [was, is] = [end(0, before), end(1, after)];
  const { table } = union;
  // Of a stack there is a site for each nn.Module.
  const found = new Map<string, { kind: string; before: number; after: number }>();
  for (let site = 0; site < table.count; ++site) {
    if (table.device[site] !== device) continue;
    const kind = table.text(table.kind[site]!);
    const calls = table.shown(site, false, null).map((frame) => table.reads[frame]);
    const key = `${kind} ${calls.join(" ")}`;
    const stack = found.get(key) ?? { kind, before: 0, after: 0 };
    found.set(key, stack);
    stack.before += was.bytes[site]!;
    stack.after += is.bytes[site]!;
  }
  return stacks(found.values());
}

// What each nn.Module of both held at the peak.
async function nnModules(to: Comparison, page: Page, pair: string[]): Promise<void> {
  const [before, after] = page.models as [RecordingModel, RecordingModel];
  const union = unite(before, after, pairsOf(page));
  const { table } = union;
  const found = await document<DiffByNnModule>("diff", "--by", "nn-module", ...all, ...pair);
  for (const { index, sites } of found?.devices ?? []) {
    const [was, is] = ([0, 1] as const).map((which) => {
      const model = page.models[which]!;
      const totals = model.totals(deviceOf(page, which, index));
      return onUnion(union, which, model.figures(greatestMoment(totals, 0, model.moments.length - 1)));
    });
    const rows: Rows = new Map();
    const wanted: Rows = new Map();
    for (let site = 0; site < table.count; ++site)
      if (table.device[site] === index)
        add(rows, nnModuleName(table, site, Infinity), was!.bytes[site]!, is!.bytes[site]!);
    for (const row of sites) add(wanted, row.nn_module, row.before.at_peak_bytes, row.after.at_peak_bytes);
    for (const [name, [before, after]] of rows) if (before === after) rows.delete(name); // did not change
    for (const [name, [before, after]] of wanted) if (before === after) wanted.delete(name);
    to.tables("compare nn.Modules", `GPU ${index} at the peak`, columns, rows, wanted);
  }
}

// What both allocated in all, on the sites that they share.
function inTheRun(page: Page, device: number): number {
  const { table } = unite(page.models[0]!, page.models[1]!, pairsOf(page));
  return table.allocatedBytes.reduce(
    (sum, bytes, site) => sum + (curveDevice(table.device[site]!) === device ? bytes : 0),
    0,
  );
}

function told(device: Diff["devices"][number], at: "at_peak" | "live"): Rows {
  const rows: Rows = new Map();
  for (const { place, kind, before, after } of device.sites)
    if (!hostKinds.has(kind) && before[`${at}_bytes`] !== after[`${at}_bytes`])
      add(
        rows,
        `${place ? placeName(place) : "[unknown]"} ${basename(place?.file ?? "")} ${operator(place?.through)} [${kind}]`,
        before[`${at}_bytes`],
        after[`${at}_bytes`],
      );
  return rows;
}

// By how much all places grew, and by how much all shrank: the heading above the table.
function grownAndShrunk(rows: Rows): Rows {
  const sums: Rows = new Map();
  for (const [before, after] of rows.values())
    add(sums, "all", Math.max(0, after! - before!), Math.min(0, after! - before!));
  return sums;
}

async function check(before: Recorded, after: Recorded): Promise<Comparison> {
  const to = new Comparison(`${before.name} to ${after.name}`, [before.seed, after.seed].filter(Boolean).join(", "));
  const pair = [before.path, after.path];
  const page = await open(...pair);
  const byStack = await document<Diff>("diff", "--sort", "live", ...all, ...pair);
  for (const device of byStack?.devices ?? [])
    to.tables(
      "compare call stacks",
      `GPU ${device.index} at the end`,
      ["stacks"],
      changedStacks(page, device.index),
      stacks(
        device.sites.map(({ kind, before, after }) => ({ kind, before: before.live_bytes, after: after.live_bytes })),
      ),
    );
  await nnModules(to, page, pair);
  const odd = new Map<string, Set<string>>(); // what differs is not said again of what matches
  const filter = patterns(page.models[1]!.sites, random(1)).find(({ form }) => form === "module=")?.pattern;
  for (const [sort, when, at] of [
    ["peak", "at the peak", "at_peak"],
    ["live", "at the end", "live"],
  ] as const)
    for (const pattern of filter ? ["", filter] : [""]) {
      const found = await document<Diff>(
        "diff",
        "--by",
        "place",
        "--sort",
        sort,
        ...all,
        ...(pattern ? ["--filter", pattern] : []),
        ...pair,
      );
      if (!found) throw new Error(`memlab-report diff ${pair.join(" ")}: refused`);
      const known = new Set(found.devices.map((one) => one.index));
      for (const [which, model] of page.models.entries())
        for (const { index, peakBytes } of model.devices)
          if (index >= 0 && index < 1 << 20 && peakBytes > 0) {
            const compared = which === 0 ? pairsOf(page).after(index) : index;
            to.same("compare devices", `GPU ${index}`, 1, known.has(compared) ? 1 : 0);
          }
      for (const device of found.devices) {
        if (sort === "peak" && !pattern)
          to.same(
            "compare in the run",
            `GPU ${device.index}: bytes`,
            inTheRun(page, device.index),
            device.before.bytes + device.after.bytes,
          );
        const shown = changes(page, device.index, when, pattern);
        const wanted = told(device, at);
        const name = `GPU ${device.index} ${when}`;
        const of = `${name} ${pattern}`.trim();
        if (!pattern) odd.set(name, to.tables("compare", of, columns, shown, wanted));
        else to.tables("compare what matches", of, columns, shown, wanted, odd.get(name));
        if (!pattern)
          to.tables("compare in all", of, ["grown", "shrunk"], grownAndShrunk(shown), grownAndShrunk(wanted));
      }
    }
  return to;
}

const pairs: [string, string][] = [
  ["h100/sample_checkpointing_plain.memlog", "h100/sample_checkpointing_checkpointed.memlog"],
  ["h100/sample_checkpointing_plain.json", "h100/sample_checkpointing_checkpointed.json"],
  ["h100/cupy_without_its_cache.memlog", "h200/cupy_own_cache.memlog"],
  ["h100/pytorch_own_cache.memlog", "h100/pytorch_without_its_cache.memlog"],
  ["h100/jax_platform_allocator.memlog", "h200/jax_driver_pool.memlog"],
  ["h200/pytorch_scopes.memlog", "h200/pytorch_tensors.memlog"],
  ["h200/pytorch_checkpoint.memlog", "h200/pytorch_cuda_graphs.memlog"],
  ["h200/run_of_four_ranks/memlab.python3.12.983.memlog", "h200/run_of_four_ranks/memlab.python3.12.984.memlog"],
  ["h200/sample_result_cache.memlog", "h200/sample_result_cache.memlog"],
  ["h200/pytorch_tensors.memlog", "h200/pytorch_tensors.memlog"],
];

describe("compare", () => {
  for (const [before, after] of pairs)
    test(`${before} to ${after}`, async () => {
      const found = await check(recording(before), recording(after));
      judge("compare", `${before} to ${after}`, [found]);
    });

  // The same program, built in another folder and under another name: nothing changed.
  for (const [name, was, is] of [
    ["h200/pytorch_tensors_named.json", "/opt/a/pack", "/srv/of/others"],
    ["h200/pytorch_checkpoint_named.json", "/opt/torch/.venv", "/home/user/env"],
    ["h100/sample_checkpointing_plain.json", "/opt/memlab/out/gpu/bin", "/srv/build"],
    ["h100/sample_checkpointing_plain.json", "bin/sample_checkpointing", "bin/checkpointing_new"],
    ["h200/pytorch_checkpoint_named.json", "libtorch_cuda.so", "libtorch_of_others.so"],
  ] as const)
    test(`${name} with ${is} for ${was}`, async () => {
      const found = await check(recording(name), { ...elsewhere(name, was, is), name: `${was} as ${is}` });
      judge("compare", `${name} to ${was} as ${is}`, [found]);
    });

  test("random recordings", async () => {
    const of = new Map<string, Comparison[]>();
    const list = await randomRecordings();
    for (let i = 0; i + 1 < list.length; ++i) {
      const [before, after] = [list[i]!, list[i + 1]!];
      if (before.name !== after.name) continue;
      const name = `${before.name} to ${after.name}`;
      of.set(name, [...(of.get(name) ?? []), await check(before, after)]);
    }
    for (const [name, comparisons] of of) judge("compare", name, comparisons);
  });

  test("the ranks of a run", async () => {
    const to = new Comparison("h200/run_of_four_ranks", "");
    const page = await open(ranks);
    const merge = (await document<Merge>("merge", ranks))!;
    const run = page.data.run!;
    for (const rank of merge.ranks) {
      const shown = run.ranks.find((one) => one.rank === rank.rank)!;
      const name = `rank ${rank.rank}`;
      to.same("compare ranks", `${name}: peak`, shown.peak_bytes, rank.allocated_peak_bytes);
      to.same("compare ranks", `${name}: most of its curve`, Math.max(...shown.curve), rank.allocated_peak_bytes);
    }
    for (const [i, model] of page.models.entries()) {
      const { path } = page.data.recordings[i]!;
      const summary = await reported<SummaryReport>("summary", path);
      for (const device of summary.devices) {
        const totals = model.totals(device.index);
        const { allocated } = device.curves;
        const name = `${basename(path)} GPU ${device.index}`;
        to.same("compare ranks", `${name}: peak`, Math.max(...totals), allocated?.peak_bytes ?? 0);
        to.same("compare ranks", `${name}: at the end`, totals.at(-1)!, allocated?.at_end_bytes ?? 0);
      }
      const shown = run.ranks.find((one) => one.recording === i)!;
      const ends = summary.devices.map((device) => device.curves.allocated?.at_end_bytes ?? 0);
      to.same(
        "compare ranks",
        `${basename(path)}: at the end is a GPU's`,
        ends.includes(shown.at_end_bytes) ? 1 : 0,
        1,
      );
    }
    expect(page.models.length).toBeGreaterThan(1);
    judge("compare", "h200/run_of_four_ranks", [to]);
  });
});
