// Who holds it, by place, kind and category, at the peak, at the end and in the whole run; with filters and --skip: the
// page's tables against `memlab-report sites`, `sites --by category`, `histogram` and `summary`.
import { matchSites } from "../../src/model/filter";
import { groupsOf } from "../../src/model/groups";
import { sumOf } from "../../src/model/places";
import { curveDevice, outsideKind } from "../../src/model/recording";
import { add, Comparison, type Rows } from "./differences";
import type { HistogramReport, LeaksReport, SitesReport, SummaryReport } from "./documents";
import { everyRecording } from "./every_recording";
import { all, levels, random, type Recorded, reported } from "./memlab";
import { besideOf, documentKey, hostKinds, type Looked, open, type Page, patterns, placeKey, rowsOf } from "./page";

type Device = SitesReport["devices"][number];

function sites(device: Device, use: (kind: string) => boolean, of: (row: Device["sites"][number]) => number[]): Rows {
  const rows: Rows = new Map();
  for (const row of device.sites) if (use(row.kind)) add(rows, documentKey(row.place, row.kind), ...of(row));
  return rows;
}

const held = ["bytes", "blocks"];
const onCurve = (kind: string) => !hostKinds.has(kind);

// The table of places at the peak and at the end. Returns the places that differ: what is known of a recording is not
// said again of it with each filter.
function placesOf(to: Comparison, page: Page, device: Device): Set<string> {
  const { index } = device;
  const table = page.model.sites;
  const name = `GPU ${index}`;
  const odd = tablesOf(to, "places", page, device, {}, new Set());
  const atPeak = page.places(index, page.peak(index));
  const inRun = rowsOf(table, atPeak, (place) => [place.allocatedBytes, place.allocations, place.temporaries]);
  const wanted = sites(device, onCurve, (row) => [row.bytes, row.count, row.temporaries]);
  to.tables("places in the run", name, ["bytes", "allocations", "temporary"], inRun, wanted);
  const beside = besideOf(page, index);
  const hosted = beside.flatMap((of) => page.places(of, page.end));
  to.tables(
    "places beside device memory",
    `${name} at the end`,
    held,
    rowsOf(table, hosted, (place) => [place.bytes, place.blocks]),
    sites(
      device,
      (kind) => !onCurve(kind),
      (row) => [row.live_bytes, row.live_count],
    ),
  );
  // Managed and pinned memory at the peak of its own kind.
  for (const [kind, told] of Object.entries(device.kinds ?? {})) {
    const own = beside.find((of) => outsideKind(of) === kind);
    const atItsPeak = own === undefined ? [] : page.places(own, page.peak(own));
    to.tables(
      "places beside device memory",
      `${name} ${kind} at its peak`,
      held,
      rowsOf(table, atItsPeak, (place) => [place.bytes, place.blocks]),
      sites(
        { ...device, sites: told.sites },
        () => true,
        (row) => [row.at_peak_bytes, row.at_peak_count],
      ),
    );
  }
  const shares = sites(device, onCurve, (row) => [Math.round(row.share * device.total.at_peak_bytes)]);
  to.tables(
    "places by share",
    name,
    ["bytes"],
    rowsOf(table, atPeak, (place) => [place.bytes]),
    shares,
    odd,
  );
  return odd;
}

function tablesOf(
  to: Comparison,
  what: string,
  page: Page,
  device: Device,
  looked: Looked,
  but: Set<string>,
): Set<string> {
  const { index } = device;
  const name = ["GPU", index, looked.filter, looked.skip].filter((part) => part !== undefined).join(" ");
  const table = (moment: number) =>
    rowsOf(page.model.sites, page.places(index, moment, looked), (place) => [place.bytes, place.blocks]);
  const command = (at: "at_peak" | "live") => sites(device, onCurve, (row) => [row[`${at}_bytes`], row[`${at}_count`]]);
  return new Set([
    ...to.tables(what, `${name} at the peak`, held, table(page.peak(index)), command("at_peak"), but),
    ...to.tables(what, `${name} at the end`, held, table(page.end), command("live"), but),
  ]);
}

// What was never freed, without what is suppressed.
function leaks(to: Comparison, page: Page, found: LeaksReport): void {
  for (const device of found.devices) {
    const beside = besideOf(page, device.index);
    const rows: Rows = new Map();
    const wanted: Rows = new Map();
    for (const of of [device.index, ...beside])
      for (const place of page.places(of, page.end)) add(rows, placeKey(page.model.sites, place), place.leaked);
    for (const row of device.places) add(wanted, documentKey(row.place, row.kind), row.live_bytes);
    to.tables("places that leak", `GPU ${device.index}`, ["bytes"], rows, wanted);
  }
}

// What all sites that match hold, and allocated in the run.
function sums(
  to: Comparison,
  what: string,
  page: Page,
  device: Device,
  filter: string,
  counted: HistogramReport | null,
): void {
  const table = page.model.sites;
  const { index, taken } = device;
  const beside = besideOf(page, index);
  const at = (of: number, moment: number) => sumOf(page.places(of, moment, { filter }));
  const name = `GPU ${index} ${filter}`;
  const end = at(index, page.end);
  const hosted = sumOf(beside.flatMap((of) => page.places(of, page.end, { filter })));
  // At the peak a command counts what the curve has.
  const peak = at(index, page.peak(index));
  to.same(what, `${name} at the peak: bytes`, peak.bytes, taken.at_peak_bytes);
  to.same(what, `${name} at the peak: blocks`, peak.blocks, taken.at_peak_count);
  to.same(what, `${name} at the end: bytes`, end.bytes + hosted.bytes, taken.live_bytes);
  to.same(what, `${name} at the end: blocks`, end.blocks + hosted.blocks, taken.live_count);
  const matched = matchSites(table, filter);
  let allocations = 0;
  let allocated = 0;
  for (let site = 0; site < table.count; ++site) {
    if (curveDevice(table.device[site]!) !== index || matched?.[site] === 0) continue;
    allocations += table.allocations[site]!;
    allocated += table.allocatedBytes[site]!;
  }
  to.same(what, `${name} in the run: bytes`, allocated, taken.bytes);
  to.same(what, `${name} in the run: allocations`, allocations, taken.count);
  const total = counted?.devices.find((one) => one.index === index)?.total;
  if (!counted) return;
  to.same(what, `${name} in the histogram: bytes`, allocated, total?.bytes ?? 0);
  to.same(what, `${name} in the histogram: allocations`, allocations, total?.count ?? 0);
}

// The rows of each category: as the table of places names it, and as *Over time* does.
function categories(to: Comparison, page: Page, device: Device): void {
  const { index } = device;
  const peak = page.peak(index);
  const name = (category: string) => (category === "" || category === "no category" ? "other" : category);
  const beside = besideOf(page, index);
  const both = [index, ...beside];
  const over = (of: number) =>
    groupsOf(page.model, { device: of, by: "category", filter: "" }, [peak, page.end], (moment) =>
      page.model.figures(moment),
    );
  for (const [when, moment, devices] of [
    ["at the peak", peak, [index]],
    ["at the end", page.end, both],
  ] as const) {
    const rows: Rows = new Map();
    const drawn: Rows = new Map();
    const wanted: Rows = new Map();
    for (const row of device.sites)
      add(wanted, row.category, when === "at the peak" ? row.at_peak_bytes : row.live_bytes);
    for (const of of devices) {
      for (const { categories } of page.places(of, moment))
        for (const [category, bytes] of categories) add(rows, name(category), bytes);
      for (const one of over(of)) add(drawn, name(one.name), one.series[moment]!);
    }
    to.tables("places by category of their row", `GPU ${index} ${when}`, ["bytes"], rows, wanted);
    for (const [category, [held_]] of wanted) {
      if (category === "other") continue;
      const filter = `category=${category}`;
      const sum = devices.reduce((all, of) => all + sumOf(page.places(of, moment, { filter })).bytes, 0);
      to.same("places that match category=", `GPU ${index} ${category} ${when}: bytes`, sum, held_!);
    }
    to.tables("places by category over time", `GPU ${index} ${when}`, ["bytes"], drawn, wanted);
  }
}

function kinds(to: Comparison, page: Page, device: SummaryReport["devices"][number], rows: Device | undefined): void {
  const { index } = device;
  const beside = besideOf(page, index);
  const series = [index, ...beside].flatMap((of) =>
    groupsOf(page.model, { device: of, by: "kind", filter: "" }, [page.end], (moment) => page.model.figures(moment)),
  );
  const atEnd: Rows = new Map();
  const atPeak: Rows = new Map();
  for (const one of series) {
    add(atEnd, one.name, one.series[page.end]!);
    if (!hostKinds.has(one.name)) add(atPeak, one.name, one.series[page.peak(index)]!);
  }
  const live: Rows = new Map();
  for (const [kind, figures] of Object.entries(device.kinds)) add(live, kind, figures.live_bytes);
  to.tables("places by kind over time", `GPU ${index} at the end`, ["bytes"], atEnd, live);
  const peak: Rows = new Map();
  for (const row of rows?.sites ?? []) if (!hostKinds.has(row.kind)) add(peak, row.kind, row.at_peak_bytes);
  to.tables("places by kind over time", `GPU ${index} at the peak`, ["bytes"], atPeak, peak);
}

// All groups of *Over time* together are the device's curve.
function overTime(to: Comparison, page: Page): void {
  const moments = page.model.moments.length;
  for (const device of page.model.devices) {
    const totals = page.model.totals(device.index);
    for (const by of ["category", "kind", "place"] as const) {
      const drawn = new Float64Array(moments);
      for (const one of groupsOf(page.model, { device: device.index, by, filter: "" }, [page.end], (moment) =>
        page.model.figures(moment),
      ))
        one.series.forEach((value, moment) => (drawn[moment]! += value));
      for (let moment = 0; moment < moments; ++moment)
        to.same(
          "places over time add up to the total",
          `${device.short} by ${by}, moment ${moment}`,
          drawn[moment]!,
          totals[moment]!,
        );
    }
  }
}

const usual = new Set(["func=", "file=", "module=", "text", "*", "kind="]);
// How the two read a pattern does not depend on the recording: the forms in which they differ are tried with one.
const unusualOf = "h200/pytorch_tensors.memlog";

async function check(recording: Recorded, seed: number): Promise<Comparison> {
  const to = new Comparison(recording.name, recording.seed);
  const { path } = recording;
  const choice = random(seed);
  const alone = recording.alone;
  for (const level of await levels(path)) {
    const args = ["--level", level, path];
    const page = await open(...args);
    const [found, byCategory, whole, counted] = await Promise.all([
      reported<SitesReport>("sites", ...all, ...args),
      reported<SitesReport>("sites", "--by", "category", ...args),
      reported<SummaryReport>("summary", ...args),
      alone ? null : reported<HistogramReport>("histogram", ...args),
    ]);
    leaks(to, page, await reported<LeaksReport>("leaks", ...all, ...args));
    const odd = new Map<number, Set<string>>();
    for (const device of found.devices) {
      odd.set(device.index, placesOf(to, page, device));
      sums(to, "places of all", page, device, "", counted);
    }
    for (const device of byCategory.devices) categories(to, page, device);
    for (const device of whole.devices)
      kinds(
        to,
        page,
        device,
        found.devices.find((one) => one.index === device.index),
      );
    if (level !== "all") continue;
    overTime(to, page);
    const used = patterns(page.model.sites, choice).filter(
      ({ form }) => !alone && (usual.has(form) || recording.name === unusualOf),
    );
    await Promise.all(
      used.map(async ({ form, pattern }) => {
        const [some, counted] = await Promise.all([
          reported<SitesReport>("sites", ...all, "--filter", pattern, path),
          alone ? null : reported<HistogramReport>("histogram", "--filter", pattern, path),
        ]);
        for (const device of some.devices) {
          tablesOf(to, `places that match ${form}`, page, device, { filter: pattern }, odd.get(device.index)!);
          sums(to, `places that match ${form}`, page, device, pattern, counted);
        }
      }),
    );
    await Promise.all(
      used
        .filter(({ form }) => usual.has(form) && form !== "kind=")
        .map(async ({ form, pattern }) => {
          const some = await reported<SitesReport>("sites", ...all, "--skip", pattern, path);
          for (const device of some.devices)
            tablesOf(to, `places with --skip ${form}`, page, device, { skip: pattern }, odd.get(device.index)!);
        }),
    );
  }
  return to;
}

everyRecording("places", check);
