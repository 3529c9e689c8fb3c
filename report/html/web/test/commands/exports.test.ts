// The sums of every format of `memlab-report export` (at the peak, at the end, of all allocations) against what the page
// has of the same sites, at each level and with a filter.
import { expect, test } from "vitest";
import { matchSites } from "../../src/model/filter";
import { sumOf } from "../../src/model/places";
import { curveDevice, outsideKind } from "../../src/model/recording";
import { Comparison } from "./differences";
import { metrics, perfetto, pickle, pprof } from "./decoders";
import { everyRecording } from "./every_recording";
import { levels, printed, random, type Recorded } from "./memlab";
import { open, type Page, patterns } from "./page";

interface Sums {
  peak: number;
  peakCount: number;
  live: number;
  liveCount: number;
  bytes: number;
  count: number;
}

// A report of an older memlab has no peaks of kinds that the curves do not include.
function knowsPeak(page: Page, index: number): boolean {
  const kind = outsideKind(index);
  const summary = page.model.source.documents.summary as
    { devices: { index: number; kind_curves?: Record<string, unknown> }[] } | undefined;
  return (
    kind === null ||
    !!summary?.devices.some((one) => one.index === curveDevice(index) && one.kind_curves?.[kind] !== undefined)
  );
}

function sums(page: Page, filter: string): Sums {
  const { model } = page;
  const { sites } = model;
  const result = { peak: 0, peakCount: 0, live: 0, liveCount: 0, bytes: 0, count: 0 };
  for (const { index } of model.devices) {
    const end = sumOf(page.places(index, page.end, { filter }));
    result.live += end.bytes;
    result.liveCount += end.blocks;
    if (!knowsPeak(page, index)) continue;
    const peak = sumOf(page.places(index, page.peak(index), { filter }));
    result.peak += peak.bytes;
    result.peakCount += peak.blocks;
  }
  const matched = matchSites(sites, filter);
  for (let site = 0; site < sites.count; ++site) {
    if (matched?.[site] === 0) continue;
    result.bytes += sites.allocatedBytes[site]!;
    result.count += sites.allocations[site]!;
  }
  return result;
}

const exported = async (...args: string[]): Promise<Buffer> => {
  const text = await printed("export", "--no-symbols", "--to", ...args);
  if (!text) throw new Error(`memlab-report export --to ${args.join(" ")}: refused`);
  return text;
};

function folded(text: Buffer): number {
  return text
    .toString("utf8")
    .split("\n")
    .reduce((sum, line) => sum + (line === "" ? 0 : Number(line.slice(line.lastIndexOf(" ")))), 0);
}

function speedscope(text: Buffer): number {
  const { profiles } = JSON.parse(text.toString("utf8")) as { profiles: { weights: number[] }[] };
  return profiles.flatMap(({ weights }) => weights).reduce((sum, weight) => sum + weight, 0);
}

// What all stacks weigh, by what --by says.
async function stacks(to: Comparison, what: string, page: Page, filter: string, args: string[]): Promise<void> {
  const shown = sums(page, filter);
  const some = filter ? ["--filter", filter, ...args] : args;
  const name = `${what}${filter ? ` ${filter}` : ""}`;
  for (const by of ["peak", "live", "bytes", "count"] as const) {
    const [a, b] = await Promise.all([
      exported("folded", "--by", by, ...some),
      exported("speedscope", "--by", by, ...some),
    ]);
    to.same("exports folded", `${name} --by ${by}`, shown[by], folded(a));
    to.same("exports speedscope", `${name} --by ${by}`, shown[by], speedscope(b));
  }
  const profile = pprof(await exported("pprof", ...some));
  const values = ["allocations", "space", "peak_objects", "peak_space", "inuse_objects", "inuse_space"];
  const own = [shown.count, shown.bytes, shown.peakCount, shown.peak, shown.liveCount, shown.live];
  values.forEach((value, i) => to.same("exports pprof", `${name} ${value}`, own[i]!, profile.get(value)!));
}

// What was held at a moment.
async function moments(
  to: Comparison,
  page: Page,
  path: string,
  choice: (below: number) => number,
  alone: boolean,
): Promise<void> {
  const { model } = page;
  const held = (moment: (device: number) => number) =>
    model.devices.reduce((sum, { index }) => sum + sumOf(page.places(index, moment(index))).bytes, 0);
  to.same(
    "exports --at end",
    "folded",
    held(() => page.end),
    folded(await exported("folded", "--at", "end", path)),
  );
  if (alone) return;
  for (const moment of [choice(model.moments.length), choice(model.moments.length)]) {
    if (model.source.within.includes(moment) || model.moments[moment] === model.moments[moment + 1]) continue;
    const at = ["--at", `${model.moments[moment]}ns`, path];
    const all = held(() => moment);
    to.same("exports --at a moment", `folded ${at[1]}`, all, folded(await exported("folded", ...at)));
    to.same("exports --at a moment", `speedscope ${at[1]}`, all, speedscope(await exported("speedscope", ...at)));
  }
  // The peak and the nanosecond of the peak are one moment.
  if (model.devices.filter(({ index }) => index === curveDevice(index)).length !== 1) return;
  const { index } = model.devices[0]!;
  const peak = page.peak(index);
  if (model.moments[peak] === model.moments[peak + 1]) return;
  to.same(
    "exports --at peak",
    `folded`,
    held(() => peak),
    folded(await exported("folded", "--at", "peak", path)),
  );
}

// Of a memory resource of RMM's.
const rmmKinds = new Set(["device", "managed", "async_pool", "graph", "suballocation"]);

interface Trace {
  action: string;
  size: number;
}

// Formats of events and of figures.
async function events(to: Comparison, page: Page, path: string): Promise<void> {
  const { model } = page;
  const devices = model.devices.filter(({ index }) => index >= 0 && index === curveDevice(index));
  const curve = (device: number, kind: string) =>
    model.curves.find((one) => one.device === device && one.kind === kind)?.levels[0];
  const most = (device: number, kind: string) =>
    (curve(device, kind)?.max ?? []).reduce<number>((high, value) => Math.max(high, value ?? 0), 0);
  const last = (device: number, kind: string) => curve(device, kind)?.last.at(-1) ?? 0;

  for (const metric of metrics((await exported("openmetrics", path)).toString("utf8"))) {
    const { labels, value } = metric;
    const gpu = devices.filter(
      ({ short }) => (labels["allocator"] ? `${labels["allocator"]} on ` : "") + `GPU ${labels["device"]}` === short,
    );
    if (gpu.length !== 1) continue;
    const { index } = gpu[0]!;
    const name = `${gpu[0]!.short} ${Object.values({ ...labels, executable: "", uuid: "", device: "" })
      .filter(Boolean)
      .join(" ")}`;
    const sitesOf = (sum: (site: number) => number) => {
      let all = 0;
      for (let site = 0; site < model.sites.count; ++site)
        if (
          curveDevice(model.sites.device[site]!) === index &&
          model.sites.text(model.sites.kind[site]!) === labels["kind"]
        )
          all += sum(site);
      return all;
    };
    const end = model.figures(page.end);
    const own: Record<string, () => number> = {
      memlab_peak_bytes: () => most(index, labels["curve"]!),
      memlab_end_bytes: () => last(index, labels["curve"]!),
      memlab_allocations: () => sitesOf((site) => model.sites.allocations[site]!),
      memlab_allocated_bytes: () => sitesOf((site) => model.sites.allocatedBytes[site]!),
      memlab_live_allocations: () => sitesOf((site) => end.blocks[site]!),
      memlab_live_bytes: () => sitesOf((site) => end.bytes[site]!),
    };
    if (own[metric.name]) to.same("exports openmetrics", `${metric.name} ${name}`, own[metric.name]!(), value);
  }

  const counters = perfetto(await exported("perfetto", path));
  for (const { index, short } of devices)
    for (const kind of ["allocated", "reserved", "requested", "active"]) {
      const name = `${short} ${kind}`;
      const [, values] = [...counters].find(([track]) => track.split(" / ").at(-1) === name) ?? [];
      to.same(
        "exports perfetto",
        `${name}: peak`,
        most(index, kind),
        (values ?? []).reduce((high, value) => Math.max(high, value), 0),
      );
      to.same("exports perfetto", `${name}: at the end`, last(index, kind), values?.at(-1) ?? 0);
    }

  // PyTorch and RMM know one level: a framework's tensors where its cache is seen from inside, else what CUDA handed out.
  const gpuOf = (short: string) => Number(/\d+$/.exec(short)?.[0]);
  const caches = devices.filter(({ index, short }) => short !== `GPU ${index}`);
  const cut = new Set(caches.map(({ short }) => gpuOf(short)));
  const inside = devices.filter((device) => caches.includes(device) || !cut.has(device.index));
  const snapshot = pickle(await exported("pytorch", path)) as { device_traces: Trace[][] };
  for (const { index, short } of inside) {
    let held = 0;
    let peak = 0;
    for (const { action, size } of snapshot.device_traces[gpuOf(short)] ?? []) {
      if (action === "alloc") held += size;
      else if (action === "free_requested") held -= size;
      peak = Math.max(peak, held);
    }
    to.same("exports pytorch", `${short} requested: peak`, most(index, "requested"), peak);
    to.same("exports pytorch", `${short} requested: at the end`, last(index, "requested"), held);
  }

  for (const { index, short } of inside) {
    const rows = (await exported("csv", "--device", String(gpuOf(short)), path)).toString("utf8").split("\n").slice(1);
    let held = 0;
    let peak = 0;
    let times = 0;
    for (const [, , action, , size] of rows.map((row) => row.split(","))) {
      if (action === "allocate") held += Number(size);
      else if (action === "free") held -= Number(size);
      if (action === "allocate") ++times;
      peak = Math.max(peak, held);
    }
    let allocations = 0;
    let others = 0;
    for (let site = 0; site < model.sites.count; ++site) {
      if (curveDevice(model.sites.device[site]!) !== index) continue;
      const kind = model.sites.text(model.sites.kind[site]!);
      if (rmmKinds.has(kind)) allocations += model.sites.allocations[site]!;
      if (!rmmKinds.has(kind) || kind === "managed") others += model.sites.allocations[site]!;
    }
    to.same("exports csv", `${short} allocations`, allocations, times);
    // The page's curve of what was asked for has other kinds on it, and managed memory not.
    if (others > 0) continue;
    to.same("exports csv", `${short} requested: peak`, most(index, "requested"), peak);
    to.same("exports csv", `${short} requested: at the end`, last(index, "requested"), held);
  }
}

async function check(recording: Recorded, seed: number): Promise<Comparison> {
  const to = new Comparison(recording.name, recording.seed);
  const { path, alone } = recording;
  const choice = random(seed);
  const page = await open(path);
  if (page.model.devices.length === 0) return to;
  for (const level of await levels(path))
    await stacks(to, level, await open("--level", level, path), "", ["--level", level, path]);
  const filter = patterns(page.model.sites, choice).find(({ form }) => form === "module=")?.pattern;
  if (filter && !alone) await stacks(to, "all", page, filter, [path]);
  await moments(to, page, path, choice, alone);
  if (!alone) await events(to, page, path);
  return to;
}

everyRecording("exports", check);

test("a pickle is read", () => {
  const text = Buffer.from(
    "\x80\x02}q\x00(X\x01\x00\x00\x00aK\x05X\x01\x00\x00\x00b](M\x00\x01\x8a\x01\xff\x88eu.",
    "latin1",
  );
  expect(pickle(text)).toEqual({ a: 5, b: [256, -1, true] });
});
