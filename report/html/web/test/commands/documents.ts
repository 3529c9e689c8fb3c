// The documents of memlab-report --json, as far as they are compared.
import type { PlaceDocument } from "../../src/model/place_names";

export interface Counted {
  temporaries: number;
  at_peak_bytes: number;
  at_peak_count: number;
  bytes: number;
  count: number;
  live_bytes: number;
  live_count: number;
}

type SiteDocument = Counted & { place: PlaceDocument; kind: string; category: string; share: number };

// With `--by nn-module` rows have `nn_module`.
export interface SitesReport<Row = unknown> {
  devices: {
    index: number;
    name: string;
    total: Counted;
    taken: Counted;
    sites: (SiteDocument & Row)[];
    // Of memory with a peak of its own.
    kinds?: Record<string, { sites: SiteDocument[] }>;
  }[];
}

interface NnModuleHeld {
  bytes: number;
  count: number;
  categories: Record<string, number> | null;
}

export interface NnModulesReport {
  devices: {
    index: number;
    peak_bytes: number;
    nn_modules: (NnModuleHeld & { name: string; class: string | null; own_bytes: number; own_count: number })[];
    unnamed: NnModuleHeld & { nn_modules: number };
    outside: NnModuleHeld & { labels?: { name: string; detail?: string | null }[] };
  }[];
}

// timeline --at --by nn-module
export interface NnModulesTimeline {
  at: { devices: { index: number; sites: { nn_module: string; bytes: number; count: number }[] }[] } | null;
}

export interface LeaksReport {
  devices: { index: number; places: { place: PlaceDocument; kind: string; live_bytes: number }[] }[];
}

export interface TreeReport {
  devices: {
    index: number;
    nodes: (Counted & PlaceDocument & { parent: number | null; depth: number; self: boolean; others: unknown })[];
  }[];
}

type CurveName = "requested" | "allocated" | "active" | "reserved" | "device_used";

export interface SummaryReport {
  process: { duration_ns: number; pid: number };
  devices: {
    index: number;
    allocator: string | null;
    total_bytes: number | null;
    curves: Record<CurveName, { peak_bytes: number; peak_time_ns: number; at_end_bytes: number } | null>;
    kinds: Record<string, { count: number; bytes: number; live_count: number; live_bytes: number }>;
  }[];
  marks: { type: string; name: string; time_ns: number; devices: { device: number; allocated_bytes: number }[] }[];
  mark_count: number;
  ooms: { time_ns: number; device: number; current: { allocated_bytes: number } | null }[];
  oom_count: number;
}

interface CategoryAt {
  at_highest: number;
  highest: number;
  at_end: number;
}

export interface TimelineReport {
  from_ns: number;
  to_ns: number;
  devices: {
    index: number;
    curves: Record<CurveName, { lowest: number; highest: number; highest_ns: number; at_end: number } | null>;
    by_category: { highest_ns: number; categories: Record<string, CategoryAt> } | null;
  }[];
  marks: { time_ns: number; name: string }[];
  scopes: { name: string; thread: number; depth: number; begin_ns: number; end_ns: number; ended: boolean }[];
  ooms: { time_ns: number }[];
  left_out: number;
  at: {
    time_ns: number;
    devices: {
      index: number;
      bytes: number;
      count: number;
      sites: { place: PlaceDocument; kind: string; bytes: number; count: number }[];
      kinds?: Record<string, { bytes: number; count: number }>;
    }[];
  } | null;
}

export interface LinesReport {
  device: number;
  groups: {
    functions: {
      file: string;
      lines: { line: number; bytes: number; count: number; live: number; at_peak: number | null }[];
    }[];
  }[];
}

export interface PoolReport {
  devices: {
    index: number;
    fragmentation: { external: number | null };
    moments: {
      what: string;
      time_ns: number;
      reserved_bytes: number;
      active_bytes: number;
      pending_bytes: number;
      largest_free_bytes: number;
      segments: { address: number; size: number; blocks: { address: number; size: number; label: string | null }[] }[];
    }[];
  }[];
}

export interface HistogramReport {
  devices: { index: number; total: { count: number; bytes: number } }[];
}

export interface DiffByNnModule {
  devices: {
    index: number;
    sites: { nn_module: string; before: { at_peak_bytes: number }; after: { at_peak_bytes: number } }[];
  }[];
}

export interface Diff {
  devices: {
    index: number;
    totals: Record<string, { before: number; after: number; change: number }>;
    sites: { place: PlaceDocument; calls: PlaceDocument[]; kind: string; before: Counted; after: Counted }[];
    unchanged: number;
    before: Counted;
    after: Counted;
  }[];
}

export interface Merge {
  ranks: { rank: number; pid: number; allocated_peak_bytes: number; reserved_peak_bytes: number }[];
  imbalance: { allocated: { largest_bytes: number; rank: number } };
}
