// The data of the page. Where the comments below leave it open:
// - The placeholder is found as `>MEMLAB_DATA</script>`, exactly once.
// - Curve values are null before the first sample of device_used (exact: false). A bucket's min and max include the value
//   it began with.
// - `moments` may hold one time twice: the state right at a peak, and the state after all records of that time.
// - moment_ns: the stretches of the run, the first from 0 on. Each has a moment, and of each GPU and allocator the moment at
//   which it held most in that stretch. 0: there are no such moments, of a report alone.
// - within: moments after which more happened in the same nanosecond; the others are the state at the end of theirs.
// - gap: the first and the last time between which no event is known; null: there is none.
// - Recording.categories: the most that each category held at any time, be it at a moment or not.
// - sites.place: the frame that stands for the site, as an index into its stack; -1: none. sites.through: what it allocated
//   through ("via"), into strings.
// - frames.choice: what is known for the choice of another place (report/html/page_code.hpp).
// - sites.temporaries: allocations that were freed before the next one of their thread. sites.leaked_bytes: still
//   allocated at the end, without what a suppression explains.
// - Mark.moment is -1 where what was held then is not known (a report alone; beyond the first 2,048 marks).
// - Sites with an empty stack: no stack was recorded, or the rest beyond the cap: one for each device, kind and category.
// - frames: those of equal text may stand twice, skipped and not: `skipped` is 1 where `memlab-report tree` leaves the
//   frame out of that stack. function is never -1: "libx.so+0x1a5e" without a name.
// - Segments list only what is in use or not yet safe to reuse; what no entry covers is cached (free). site -2: several
//   sites. `pool` is a label ("GPU 0", "PyTorch on GPU 0").
// - documents.X is reports[0] of `memlab-report X --json` (50 places a list; the summary without
//   marks and labels, whose names may be most of it); diff and merge are whole documents.
// - files: a path may come several times (ranges apart, in order).
// - RunData.curve_ns: from one value of `curve` to the next (a process that took less time has fewer).
// - nn_modules: PyTorch's, by qualified name and class; those without a name each by itself. sites.nn_module: whose call had
//   allocated what this row holds; -1: no call of one. A call site has a row for each that held something of it, and one
//   for the rest of it, which also has the totals of the run (but leaked_bytes).
// - categories: -1 none. Kinds managed, pinned, ipc_import are not part of the allocated curve; a device's other kinds
//   add up to it.
//
// Everything the page knows: memlab-report writes it (report/html/page_data.cpp), the page reads it. Times are
// nanoseconds since the recording's start, sizes bytes. Numbers below 2^53 throughout.
export interface PageData {
  version: 2;
  memlab: string; // version of the tool that wrote it
  title: string;
  show?: string; // what is shown where the page's address says nothing, as in it behind '#'
  mode: "single" | "compare" | "run"; // compare: recordings[0] is before, [1] after
  sources: boolean; // false: --no-source, no arguments, no source lines
  recordings: Recording[];
  files: SourceFile[]; // source lines around the frames, where sources were there
  run?: RunData; // mode "run"
  documents?: { diff?: unknown }; // compare: the document of `memlab-report diff --json`
}
export interface SourceFile {
  path: string;
  first_line: number;
  changed_since: boolean;
  lines: string[];
}
export interface Recording {
  name: string;
  path: string;
  host: string;
  pid: number;
  rank: number | null;
  command: string[]; // the name alone with --no-source
  duration_ns: number;
  events: number;
  ended: string;
  last_moment: string; // what final values are of: "at the end", "now", "when the recording stopped"
  lacks: string[]; // sentences: what the recording lacks; first among the notes
  notes: string[]; // sentences: gaps, limits, missing names
  curves: Curve[];
  moments: number[]; // ascending; at each the figures of `holders` are exact
  moment_ns: number;
  within: number[];
  gap: [number, number] | null;
  categories: { device: number; name: string; most: number; at: number }[];
  marks: Mark[];
  scopes: {
    names: string[];
    name: number[];
    depth: number[];
    thread: number[];
    begin: number[];
    end: number[];
    left_out: number;
  };
  threads: string[];
  strings: string[]; // functions, files, modules, categories: interned
  frames: {
    function: number[];
    file: number[];
    line: number[];
    module: number[];
    language: number[];
    skipped: number[];
    choice: number[];
  };
  // file -1: unknown; language 0 native 1 Python; skipped 1: hidden by --skip's defaults
  sites: {
    stack: number[][]; // frame indices, outermost first
    place: number[];
    through: number[];
    kind: number[];
    device: number[];
    category: number[]; // into strings, device index or -1
    allocations: number[];
    allocated_bytes: number[];
    temporaries: number[];
    leaked_bytes: number[];
    nn_module: number[];
  }; // totals of the run
  nn_modules: { name: (string | null)[]; class: (string | null)[]; note: string }; // note: what is missing; "": nothing
  // The program's names for memory of a site, and what lives under them at the end; 16 of a site at most.
  // detail: what each holds, if all of a name hold the same; -1: not known.
  labels: { site: number[]; name: number[]; detail: number[]; bytes: number[] };
  holders: Holders;
  maps: MemoryMap[];
  documents: Partial<Record<string, unknown>>; // by view: its `--json` as it is
}
// A curve as an envelope: `levels[0]` is the finest; each bucket keeps the least and the greatest value in it, and its last.
export interface Curve {
  name: string;
  device: number;
  kind: string;
  unit: "bytes" | "count";
  default_on: boolean;
  exact: boolean;
  levels: { bucket_ns: number; min: (number | null)[]; max: (number | null)[]; last: (number | null)[] }[];
}
export interface Mark {
  moment: number;
  at: number;
  kind: "peak" | "oom" | "mark" | "end";
  text: string;
} // moment: index into moments
// Live bytes and blocks of each site at each moment, as changes: site s has entries start[s]..start[s+1]; at moments[moment[i]] it begins to hold
// bytes[i] in blocks[i], until its next entry. Sites beyond a cap are summed into one site whose stack is empty, so sums are exact.
export interface Holders {
  start: number[];
  moment: number[];
  bytes: number[];
  blocks: number[];
}
export interface MemoryMap {
  moment: number;
  segments: {
    device: number;
    address: string;
    size: number;
    pool: string;
    offset: number[];
    length: number[];
    site: number[];
    label: number[]; // into strings, the program's name for the block; -1: none
    label_detail: number[]; // the same of what it holds, "float32[512, 512]"
  }[];
} // site -1: cached, free within the segment
export interface RunData {
  curve_ns: number;
  ranks: {
    recording: number | null;
    name: string;
    rank: number | null;
    host: string;
    peak_bytes: number;
    at_end_bytes: number;
    outlier: string | null;
    curve: number[];
  }[];
  documents: { merge?: unknown };
}
