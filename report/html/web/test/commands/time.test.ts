// Moments, curves, marks, failures, scopes and maps: the page's model against `memlab-report timeline` (also --at, --from,
// --until, --by category), `summary` and `pool`.
import type { Curve } from "../../src/data";
import { sample } from "../../src/model/curves";
import { groupsOf } from "../../src/model/groups";
import { sumOf } from "../../src/model/places";
import { curveDevice } from "../../src/model/recording";
import { mostIn } from "../../src/model/scene";
import { segmentRow, segmentSums } from "../../src/model/segments";
import { add, Comparison, type Rows } from "./differences";
import type { PoolReport, SummaryReport, TimelineReport } from "./documents";
import { everyRecording } from "./every_recording";
import { all, levels, random, type Recorded, reported } from "./memlab";
import { besideOf, documentKey, hostKinds, open, type Page, rowsOf } from "./page";

type At = NonNullable<TimelineReport["at"]>;

// Who held it at a moment.
function heldAt(
  to: Comparison,
  what: string,
  page: Page,
  moment: (device: number) => number,
  at: At,
  when: string,
): void {
  for (const device of at.devices) {
    const { index } = device;
    const places = page.places(index, moment(index));
    const sum = sumOf(places);
    to.same(what, `GPU ${index} ${when}: bytes`, sum.bytes, device.bytes);
    to.same(what, `GPU ${index} ${when}: blocks`, sum.blocks, device.count);
    const wanted: Rows = new Map();
    for (const row of device.sites) add(wanted, documentKey(row.place, row.kind), row.bytes, row.count);
    const shown = rowsOf(page.model.sites, places, (place) => [place.bytes, place.blocks]);
    to.tables(`${what} by place`, `GPU ${index} ${when}`, ["bytes", "blocks"], shown, wanted);
  }
}

// What lies beside device memory is live as well.
async function besideAt(to: Comparison, page: Page, path: string): Promise<void> {
  for (const kind of hostKinds) {
    const { at } = await reported<TimelineReport>("timeline", ...all, "--at", "end", "--filter", `kind=${kind}`, path);
    for (const device of at?.devices ?? []) {
      const own = besideOf(page, device.index);
      const shown = sumOf(own.flatMap((of) => page.places(of, page.end, { filter: `kind=${kind}` })));
      const told = device.kinds?.[kind];
      to.same("time at the end of host memory", `GPU ${device.index} ${kind}: bytes`, shown.bytes, told?.bytes ?? 0);
      to.same("time at the end of host memory", `GPU ${device.index} ${kind}: blocks`, shown.blocks, told?.count ?? 0);
    }
  }
}

// The least and the greatest value in a stretch of the finest buckets, as it is drawn in so many columns.
function drawn(
  curve: Curve,
  first: number,
  last: number,
  columns: number,
  end: number,
): { least: number; most: number } {
  const width = curve.levels[0]!.bucket_ns;
  const { min, max } = sample(curve, first * width, last * width, columns, end);
  const known = (values: Float64Array) => values.filter((value) => !Number.isNaN(value));
  return { least: Math.min(...known(min)), most: Math.max(...known(max)) };
}

function curves(
  to: Comparison,
  what: string,
  page: Page,
  found: TimelineReport,
  first: number,
  last: number | null,
): void {
  const { model } = page;
  for (const curve of model.curves) {
    const name = `${curve.name} from ${first} to ${last ?? "the end"}`;
    const device = found.devices.find((one) => one.index === curve.device);
    const wanted = device?.curves[curve.kind as "allocated"] ?? null;
    const finest = curve.levels[0];
    if (!wanted || !finest || finest.max.length === 0) {
      if (first === 0) to.same(what, `${name}: is known`, Boolean(finest?.max.length) ? 1 : 0, wanted ? 1 : 0);
      continue;
    }
    // Between samples of the device's memory in use nothing is known.
    if (!curve.exact && last !== null) continue;
    const until = last ?? finest.max.length;
    // A stretch in columns of one bucket; the whole run in any, from coarser levels.
    for (const columns of last === null ? [until, 1, 7, 150] : [until - first]) {
      const seen = drawn(curve, first, until, columns, model.duration);
      to.same(what, `${name} in ${columns} columns: greatest`, seen.most, wanted.highest);
      to.same(what, `${name} in ${columns} columns: least`, seen.least, wanted.lowest);
    }
    if (last === null) to.same(what, `${name}: at the end`, finest.last.at(-1)!, wanted.at_end);
    if (last === null)
      for (const [i, level] of curve.levels.entries())
        to.same(
          what,
          `${name}: greatest of level ${i}`,
          Math.max(...level.max.map((value) => value ?? 0)),
          wanted.highest,
        );
  }
}

// *Over time* draws each stretch of the run as it was when the device held most in it: the curve's greatest value there.
// Where there are no such moments it draws nothing.
function steps(to: Comparison, page: Page, alone: boolean): void {
  const { model } = page;
  const width = model.source.moment_ns;
  to.same("time over time is known", "", model.knownOverTime ? 1 : 0, alone ? 0 : 1);
  for (const { device, kind, levels } of model.curves) {
    const finest = levels[0];
    if (kind !== "allocated" || !finest || alone) continue;
    const totals = model.totals(device);
    const of = width / finest.bucket_ns;
    model.highestMoments(totals).forEach((moment, stretch) => {
      if (model.inGap(stretch * width) || model.inGap((stretch + 1) * width)) {
        if (model.inGap((stretch + 0.5) * width)) to.same("time over time in a gap", `stretch ${stretch}`, moment, -1);
        return;
      }
      const most = Math.max(...finest.max.slice(stretch * of, (stretch + 1) * of).map((value) => value ?? 0));
      to.same("time over time as drawn", `GPU ${device} in stretch ${stretch}`, totals[moment]!, most);
    });
  }
}

// A stretch of time: what is drawn of it, and the most that the page says there was in it.
async function stretch(to: Comparison, page: Page, path: string, choice: (below: number) => number): Promise<void> {
  const { model } = page;
  const curve = model.curves.find((one) => one.kind === "allocated");
  const finest = curve?.levels[0];
  if (!finest || finest.max.length < 4) return;
  const first = choice(finest.max.length - 2);
  const last = first + 1 + choice(finest.max.length - first - 1);
  const [from, until] = [first * finest.bucket_ns, last * finest.bucket_ns - 1];
  if (until > model.duration || until <= from) return;
  const found = await reported<TimelineReport>("timeline", "--from", `${from}ns`, "--until", `${until}ns`, path);
  const widths = new Set(model.curves.map((one) => one.levels[0]?.bucket_ns));
  if (widths.size === 1) curves(to, "time of a stretch", page, found, first, last);
  for (const device of found.devices) {
    if (!device.curves.allocated) continue;
    const { highest } = device.curves.allocated;
    const name = `GPU ${device.index} ${from} to ${until}`;
    to.same("time of a stretch: most", name, mostIn(model, device.index, [from, until])!, highest);
  }
}

function marks(to: Comparison, page: Page, summary: SummaryReport, found: TimelineReport, alone: boolean): void {
  const { model } = page;
  const shown: Rows = new Map();
  const wanted: Rows = new Map();
  for (const mark of model.marks) if (mark.kind === "mark") add(shown, `${mark.text} at ${mark.at}`, 1);
  for (const mark of summary.marks) if (mark.type === "mark") add(wanted, `${mark.name} at ${mark.time_ns}`, 1);
  to.tables("time of marks", "", ["times"], shown, wanted);
  const failures: Rows = new Map();
  const told: Rows = new Map();
  for (const mark of model.marks) if (mark.kind === "oom") add(failures, `${mark.at}`, 1);
  for (const failure of found.ooms) add(told, `${failure.time_ns}`, 1);
  to.tables("time of failures", "", ["times"], failures, told);
  if (alone) return;
  // What was allocated then, as the program's own record of the mark has it.
  for (const mark of summary.marks) {
    const seen = model.marks.find((one) => one.kind === "mark" && one.at === mark.time_ns && one.text === mark.name);
    if (!seen || seen.moment < 0) continue;
    for (const device of mark.devices)
      to.same(
        "time of marks: allocated",
        `GPU ${device.device} at ${mark.name}, ${mark.time_ns}`,
        model.totals(device.device)[seen.moment]!,
        device.allocated_bytes,
      );
  }
  for (const failure of summary.ooms) {
    if (!failure.current) continue;
    const seen = model.marks.find((one) => one.kind === "oom" && one.at === failure.time_ns);
    if (seen && seen.moment >= 0)
      to.same(
        "time of failures: allocated",
        `GPU ${failure.device} at ${failure.time_ns}`,
        model.totals(failure.device)[seen.moment]!,
        failure.current.allocated_bytes,
      );
  }
}

function categories(to: Comparison, page: Page, found: TimelineReport): void {
  for (const device of found.devices) {
    if (!device.by_category) continue;
    const { index } = device;
    const peak = page.peak(index);
    const groups = groupsOf(page.model, { device: index, by: "category", filter: "" }, [peak, page.end], (moment) =>
      page.model.figures(moment),
    );
    const shown: Rows = new Map();
    const most: Rows = new Map();
    const wanted: Rows = new Map();
    const highest: Rows = new Map();
    for (const one of groups) {
      const name = one.name === "no category" ? "other" : one.name;
      add(shown, name, one.series[peak]!, one.series[page.end]!);
      add(most, name, page.model.mostOfCategory(index, name) ?? Math.max(...one.series));
    }
    for (const [name, one] of Object.entries(device.by_category.categories)) {
      add(wanted, name, one.at_highest, one.at_end);
      add(highest, name, one.highest);
    }
    to.tables("time by category", `GPU ${index}`, ["at the peak", "at the end"], shown, wanted);
    to.tables("time by category: most", `GPU ${index}`, ["bytes"], most, highest);
  }
}

function scopes(to: Comparison, page: Page, found: TimelineReport): void {
  const { scopes } = page.model;
  const shown: Rows = new Map();
  const wanted: Rows = new Map();
  for (let i = 0; i < scopes.begin.length; ++i)
    add(shown, `${scopes.names[scopes.name[i]!]} ${scopes.depth[i]} ${scopes.begin[i]} to ${scopes.end[i]}`, 1);
  for (const one of found.scopes) add(wanted, `${one.name} ${one.depth} ${one.begin_ns} to ${one.end_ns}`, 1);
  // The page has the longest, and says how many it left out.
  if (scopes.leftOut === 0) to.tables("time of scopes", "", ["times"], shown, wanted);
  to.same("time of scopes: how many", "", scopes.begin.length + scopes.leftOut, found.scopes.length + found.left_out);
}

function maps(to: Comparison, page: Page, found: PoolReport): void {
  for (const device of found.devices)
    for (const moment of device.moments) {
      const map = page.model.maps.find((one) => page.model.moments[one.moment] === moment.time_ns);
      if (!map) continue;
      const rows = map.segments.filter((one) => one.device === curveDevice(device.index)).map(segmentRow);
      const sums = segmentSums(rows);
      const name = `GPU ${device.index} at the ${moment.what}`;
      to.same("time of maps", `${name}: segments`, rows.length, moment.segments.length);
      to.same("time of maps", `${name}: reserved`, sums.reserved, moment.reserved_bytes);
      to.same("time of maps", `${name}: in use`, sums.used, moment.active_bytes);
      to.same("time of maps", `${name}: largest free block`, sums.largest, moment.largest_free_bytes);
      if (moment.what === "peak") continue; // labels may have been given later
      const labels: Rows = new Map();
      const wanted: Rows = new Map();
      for (const { segment } of rows)
        segment.label.forEach((text, i) => {
          if (text >= 0) add(labels, page.model.sites.text(text), segment.length[i]!);
        });
      for (const { blocks } of moment.segments)
        for (const { label, size } of blocks) if (label) add(wanted, label, size);
      to.tables("time of maps", `${name}: labels`, ["bytes"], labels, wanted);
    }
}

async function check(recording: Recorded, seed: number): Promise<Comparison> {
  const to = new Comparison(recording.name, recording.seed);
  const { path, alone } = recording;
  const choice = random(seed);
  for (const level of await levels(path)) {
    const args = ["--level", level, path];
    const page = await open(...args);
    const { model } = page;
    const [summary, found] = await Promise.all([
      reported<SummaryReport>("summary", ...args),
      reported<TimelineReport>("timeline", ...all, ...args),
    ]);
    for (const device of summary.devices) {
      const shown = model.device(device.index);
      to.same("time of peaks", `GPU ${device.index}`, shown?.peakBytes ?? 0, device.curves.allocated?.peak_bytes ?? 0);
      to.same("time of peaks", `GPU ${device.index}: memory`, shown?.totalBytes ?? -1, device.total_bytes ?? -1);
    }
    curves(to, "time of curves", page, found, 0, null);
    if (level !== "all") continue;
    marks(to, page, summary, found, alone);
    steps(to, page, alone);
    for (const when of ["peak", "end"]) {
      const { at } = await reported<TimelineReport>("timeline", ...all, "--at", when, path);
      // The peak is each device's own.
      if (at)
        heldAt(to, `time at the ${when}`, page, (device) => (when === "end" ? page.end : page.peak(device)), at, when);
    }
    if (alone) continue;
    const within = new Set(model.source.within);
    const moments = new Set([0, model.moments.length - 2]);
    for (const kind of ["mark", "oom"]) {
      const some = model.marks.filter((one) => one.kind === kind && one.moment >= 0);
      for (let i = 0; i < 2 && some.length > 0; ++i) moments.add(some[choice(some.length)]!.moment);
    }
    for (let i = 0; i < 3; ++i) moments.add(choice(model.moments.length));
    for (const moment of moments) {
      // Of two moments of one time the second is what the command has.
      if (moment < 0 || within.has(moment) || model.moments[moment] === model.moments[moment + 1]) continue;
      const when = `${model.moments[moment]}ns`;
      const { at } = await reported<TimelineReport>("timeline", ...all, "--at", when, path);
      if (at) heldAt(to, "time at a moment", page, () => moment, at, when);
    }
    await besideAt(to, page, path);
    for (let i = 0; i < 2; ++i) await stretch(to, page, path, choice);
    categories(to, page, await reported<TimelineReport>("timeline", ...all, "--by", "category", path));
    scopes(to, page, found);
    maps(to, page, await reported<PoolReport>("pool", path));
  }
  return to;
}

everyRecording("time", check);
