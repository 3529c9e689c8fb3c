// A recording as the views read it: typed arrays, the figures of every call site at every moment, names of places.
import type { Curve, Mark, MemoryMap, Recording } from "../data";
import { frameArrays, SiteTable } from "./site_table";

// Bytes and blocks of each site at one moment.
export interface Figures {
  bytes: Float64Array;
  blocks: Float64Array;
}

// Kinds that are not device memory of the allocated curve. Each is shown as a device of its own, beside the GPU: it has a
// peak of its own.
const outsideKinds = ["managed", "pinned", "ipc_import"];
const outsideNames = ["managed memory", "pinned host memory", "memory of other processes"];
const outside = 1 << 20;

function deviceOfSite(recording: Recording, site: number): number {
  const device = recording.sites.device[site]!;
  const kind = outsideKinds.indexOf(recording.strings[recording.sites.kind[site]!] ?? "");
  return kind < 0 ? device : (kind + 1) * outside + Math.max(0, device);
}

// The device of memory outside the curves of `device`, or `device` itself, on another device.
export function onDevice(device: number, other: number): number {
  return device >= outside ? device - (device % outside) + other : other;
}

// The device whose curves belong to a device of deviceOfSite.
export function curveDevice(device: number): number {
  return device >= outside ? device % outside : device;
}

// The kind of memory that a device of deviceOfSite is; null: what the curves have.
export function outsideKind(device: number): string | null {
  return device >= outside ? (outsideKinds[Math.floor(device / outside) - 1] ?? null) : null;
}

function siteTable(recording: Recording): SiteTable {
  const sites = recording.sites;
  return new SiteTable(recording.strings, frameArrays(recording.frames), {
    stacks: sites.stack.map((stack) => Int32Array.from(stack)),
    place: Int32Array.from(sites.place),
    through: Int32Array.from(sites.through),
    kind: Int32Array.from(sites.kind),
    device: Int32Array.from(sites.device, (_, site) => deviceOfSite(recording, site)),
    category: Int32Array.from(sites.category),
    allocations: Float64Array.from(sites.allocations),
    allocatedBytes: Float64Array.from(sites.allocated_bytes),
    temporaries: Float64Array.from(sites.temporaries),
    leakedBytes: Float64Array.from(sites.leaked_bytes),
    nnModule: Int32Array.from(sites.nn_module),
    nnModules: recording.nn_modules.name.map((name, i) => ({ name, className: recording.nn_modules.class[i] ?? null })),
  });
}

export interface Scopes {
  names: string[];
  name: Int32Array;
  depth: Int32Array;
  thread: Int32Array;
  begin: Float64Array;
  end: Float64Array;
  leftOut: number;
}

export interface Device {
  index: number;
  label: string; // "GPU 0: NVIDIA H100", "PyTorch on GPU 0"
  short: string; // "GPU 0", "PyTorch on GPU 0"
  gpu: number;
  allocator: string | null; // "PyTorch": the device is its cache
  totalBytes: number | null;
  peakBytes: number;
}

export class RecordingModel {
  readonly sites: SiteTable;
  readonly moments: Float64Array;
  readonly marks: Mark[];
  private readonly markTimes: Float64Array;
  readonly curves: Curve[];
  readonly scopes: Scopes;
  readonly maps: MemoryMap[];
  readonly devices: Device[];
  readonly duration: number;
  private readonly start: Int32Array;
  private readonly moment: Int32Array;
  private readonly bytes: Float64Array;
  private readonly blocks: Float64Array;

  constructor(readonly source: Recording) {
    this.sites = siteTable(source);
    this.moments = Float64Array.from(source.moments);
    this.marks = [...source.marks].sort((a, b) => a.at - b.at);
    this.markTimes = Float64Array.from(this.marks, (mark) => mark.at);
    this.curves = source.curves;
    this.duration = Math.max(1, source.duration_ns);
    this.maps = [...source.maps].sort((a, b) => a.moment - b.moment);
    const scopes = source.scopes;
    this.scopes = {
      names: scopes.names,
      name: Int32Array.from(scopes.name),
      depth: Int32Array.from(scopes.depth),
      thread: Int32Array.from(scopes.thread),
      begin: Float64Array.from(scopes.begin),
      end: Float64Array.from(scopes.end),
      leftOut: scopes.left_out,
    };
    this.start = Int32Array.from(source.holders.start);
    this.moment = Int32Array.from(source.holders.moment);
    this.bytes = Float64Array.from(source.holders.bytes);
    this.blocks = Float64Array.from(source.holders.blocks);
    this.devices = this.findDevices();
  }

  timeOf(moment: number): number {
    return this.moments[moment] ?? 0;
  }

  // What each site held at a moment, exactly.
  figures(moment: number): Figures {
    const count = this.sites.count;
    const result = { bytes: new Float64Array(count), blocks: new Float64Array(count) };
    for (let site = 0; site < count; ++site) {
      const entry = this.entryAt(site, moment);
      if (entry >= 0) {
        result.bytes[site] = this.bytes[entry]!;
        result.blocks[site] = this.blocks[entry]!;
      }
    }
    return result;
  }

  // The last entry of the site that is not after the moment, or -1.
  private entryAt(site: number, moment: number): number {
    const first = this.start[site]!;
    let low = first;
    let high = this.start[site + 1] ?? this.moment.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.moment[middle]! <= moment) low = middle + 1;
      else high = middle;
    }
    return low - 1 >= first ? low - 1 : -1;
  }

  // The program's names for memory of these sites, with what it holds where that is known. Those first under which most
  // lives at the end.
  labelsOf(sites: number[], wants: (name: string) => boolean = () => true): [name: string, bytes: number][] {
    const of = new Set(sites);
    const { site, name, detail, bytes } = this.source.labels;
    const held = new Map<string, number>();
    site.forEach((one, i) => {
      const named = this.sites.text(name[i]!);
      const text = [named, this.sites.text(detail[i]!)].filter(Boolean).join("  ");
      if (of.has(one) && named !== "" && wants(named)) held.set(text, (held.get(text) ?? 0) + bytes[i]!);
    });
    return [...held].sort((a, b) => b[1] - a[1]);
  }

  // Bytes at every moment, summed by group; group(site) < 0 leaves the site out.
  groupsOverTime(groups: number, group: (site: number) => number): Float64Array[] {
    const result = Array.from({ length: groups }, () => new Float64Array(this.moments.length));
    // Changes first, then one running sum: the work is that of the entries, not of sites times moments.
    for (let site = 0; site < this.sites.count; ++site) {
      const to = group(site);
      if (to < 0) continue;
      const changes = result[to]!;
      let held = 0;
      const last = this.start[site + 1] ?? this.moment.length;
      for (let entry = this.start[site]!; entry < last; ++entry) {
        changes[this.moment[entry]!]! += this.bytes[entry]! - held;
        held = this.bytes[entry]!;
      }
    }
    for (const series of result) for (let m = 1; m < series.length; ++m) series[m]! += series[m - 1]!;
    return result;
  }

  // Whether what was held is known over the whole run, or at the peak and at the end only (a report alone).
  get knownOverTime(): boolean {
    return this.source.moment_ns > 0;
  }

  // Of each stretch of the run the moment at which the device held most in it, exactly; -1 where no event is known of it.
  // `totals`: of the device.
  highestMoments(totals: Float64Array): Int32Array<ArrayBuffer> {
    const width = this.source.moment_ns;
    if (width <= 0) return new Int32Array(0);
    const result = new Int32Array(Math.floor(this.duration / width) + 1).fill(-1);
    for (let m = 0; m < this.moments.length; ++m) {
      const stretch = Math.min(result.length - 1, Math.floor(this.moments[m]! / width));
      const best = result[stretch]!;
      if (best < 0 || totals[m]! > totals[best]!) result[stretch] = m;
    }
    for (let i = 0; i < result.length; ++i)
      if (result[i]! < 0 && !this.inGap((i + 0.5) * width)) result[i] = i > 0 ? result[i - 1]! : 0;
    return result;
  }

  // Whether no event is known of a time.
  inGap(time: number): boolean {
    const { gap } = this.source;
    return gap !== null && time > gap[0] && time < gap[1];
  }

  // The most that a device's memory of a category held at any time; null: it is not known.
  mostOfCategory(device: number, name: string): number | null {
    return this.source.categories.find((one) => one.device === device && one.name === name)?.most ?? null;
  }

  // Bytes of one device at every moment.
  totals(device: number): Float64Array {
    return this.groupsOverTime(1, (site) => (this.sites.device[site] === device ? 0 : -1))[0]!;
  }

  // The moment that is nearest to a time. At the time of a mark it is the mark's: two moments may have one time, right at
  // a peak and after all that happened then.
  nearestMoment(time: number): number {
    let marked: Mark | null = null;
    for (let i = lowerBound(this.markTimes, time); i < this.marks.length && this.markTimes[i] === time; ++i) {
      const mark = this.marks[i]!;
      if (mark.moment >= 0 && (!marked || weightOf(mark) > weightOf(marked))) marked = mark;
    }
    if (marked) return marked.moment;
    const after = lowerBound(this.moments, time);
    if (after >= this.moments.length) return this.moments.length - 1;
    if (after === 0) return 0;
    return time - this.moments[after - 1]! <= this.moments[after]! - time ? after - 1 : after;
  }

  // The map that is nearest to a moment, as an index; -1 where there is none.
  nearestMap(moment: number): number {
    let best = -1;
    let distance = Infinity;
    const time = this.timeOf(moment);
    this.maps.forEach((map, i) => {
      const away = Math.abs(this.timeOf(map.moment) - time);
      if (away < distance) {
        distance = away;
        best = i;
      }
    });
    return best;
  }

  // A framework's cache does not tell what was asked for, nor which frees are pending.
  tellsCurve(device: number, kind: string): boolean {
    return !this.device(device)?.allocator || (kind !== "requested" && kind !== "active");
  }

  device(index: number): Device | undefined {
    return this.devices.find((device) => device.index === index);
  }

  // The one that held most; a framework's cache before the GPU under it, of which it knows more, unless it is next to
  // nothing of it.
  usualDevice(): number {
    const most = this.devices.reduce<Device | null>((a, b) => (!a || b.peakBytes > a.peakBytes ? b : a), null);
    if (!most) return 0;
    const inside = this.devices.find(
      (one) => one.allocator !== null && one.gpu === most.gpu && one.peakBytes >= most.peakBytes / 16,
    );
    return (inside ?? most).index;
  }

  private findDevices(): Device[] {
    const indices: number[] = [];
    const add = (index: number) => {
      if (!indices.includes(index)) indices.push(index);
    };
    for (const known of summaryDevices(this.source)) add(known.index);
    for (const curve of this.curves) add(curve.device);
    for (const device of [...new Set(this.sites.device)].sort((a, b) => a - b)) add(device);
    const known = new Map(summaryDevices(this.source).map((device) => [device.index, device]));
    const peaks = new Map<number, number>();
    for (const index of indices) {
      const totals = this.totals(index);
      let most = 0;
      for (const value of totals) if (value > most) most = value;
      peaks.set(index, most);
    }
    return indices.map((index) => {
      const more = known.get(curveDevice(index));
      const host = index >= outside;
      const short =
        index < 0
          ? "no GPU"
          : host
            ? `GPU ${more?.gpu ?? curveDevice(index)}: ${outsideNames[Math.floor(index / outside) - 1] ?? ""}`
            : more?.allocator
              ? `${more.allocator} on GPU ${more.gpu}`
              : `GPU ${index}`;
      return {
        index,
        short,
        gpu: more?.gpu ?? curveDevice(index),
        allocator: host ? null : (more?.allocator ?? null),
        label: more?.name && !host ? `${short}: ${more.name}` : short,
        totalBytes: more?.total_bytes ?? null,
        peakBytes: peaks.get(index) ?? 0,
      };
    });
  }
}

function weightOf(mark: Mark): number {
  return mark.kind === "oom" ? 2 : mark.kind === "peak" ? 1 : 0;
}

interface SummaryDevice {
  index: number;
  allocator: string | null;
  gpu: number;
  name: string;
  total_bytes: number | null;
}

// The GPUs as the embedded summary names them.
function summaryDevices(recording: Recording): SummaryDevice[] {
  const devices = (recording.documents.summary as { devices?: unknown } | null | undefined)?.devices;
  return Array.isArray(devices)
    ? (devices as SummaryDevice[]).filter((device) => typeof device?.index === "number")
    : [];
}

// The first moment from `from` to `to` at which the totals are highest.
export function greatestMoment(totals: Float64Array, from: number, to: number): number {
  let best = from;
  for (let m = from; m <= to; ++m) if (totals[m]! > totals[best]!) best = m;
  return best;
}

// The first index whose value is not below `value`, in ascending values.
export function lowerBound(values: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
