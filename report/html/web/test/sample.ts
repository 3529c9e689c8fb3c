// Recordings for the tests, made up but consistent: a training loop whose curves, holders and maps say the same.
import { gzipSync } from "node:zlib";
import { readFileSync } from "node:fs";
import type { Curve, PageData, Recording } from "../src/data";

export interface SampleOptions {
  name?: string;
  steps?: number;
  sites?: number; // beside those of the loop
  moments?: number;
  layers?: number;
  hostile?: boolean; // names with markup in them
  leak?: boolean;
  pid?: number;
  rank?: number | null;
  scale?: number;
  seed?: number;
  failure?: boolean;
}

function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 2246822519) + 0x9e3779b9) >>> 0;
    return ((state ^ (state >>> 13)) >>> 0) / 4294967296;
  };
}

const MiB = 1024 * 1024;
export const hostileNames = [
  "<img src=x onerror=window.hacked=1>",
  "</script><script>window.hacked=1</script>",
  "javascript:alert(1)",
  "a|b`c*d_e[f](g)",
  "\u202Ereversed",
  "x".repeat(5000),
  "",
  "line\nbreak",
  "${7*7}{{7*7}}",
];

export const noSites = (): Recording["sites"] => ({
  stack: [],
  place: [],
  through: [],
  kind: [],
  device: [],
  category: [],
  allocations: [],
  allocated_bytes: [],
  temporaries: [],
  leaked_bytes: [],
  nn_module: [],
});

export function recording(options: SampleOptions = {}): Recording {
  const {
    steps = 24,
    sites: more = 60,
    moments: wanted = 600,
    layers = 12,
    hostile = false,
    leak = true,
    pid = 4711,
    rank = null,
    scale = 1,
    failure = true,
  } = options;
  const next = random(options.seed ?? 7);
  const duration = steps * 250e6 + 900e6;
  const strings: string[] = [];
  const ids = new Map<string, number>();
  const intern = (text: string) => {
    let id = ids.get(text);
    if (id === undefined) ids.set(text, (id = strings.push(text) - 1));
    return id;
  };
  const frames = {
    function: [] as number[],
    file: [] as number[],
    line: [] as number[],
    module: [] as number[],
    language: [] as number[],
    skipped: [] as number[],
    choice: [] as number[],
  };
  const frame = (
    name: string,
    file: string,
    line: number,
    module: string,
    python: boolean,
    skipped = false,
  ): number => {
    frames.function.push(intern(name));
    frames.file.push(file ? intern(file) : -1);
    frames.line.push(line);
    frames.module.push(intern(module));
    frames.language.push(python ? 1 : 0);
    frames.skipped.push(skipped ? 1 : 0);
    // As report/html/page_code.hpp has it: a line of its own or of a library, a function, an allocator, CUDA; and a name.
    const rank = /libcud/.test(module) ? 10 : skipped ? 6 : !file ? 5 : /site-packages/.test(file) ? 2 : 1;
    frames.choice.push((file && !/site-packages|home/.test(file) ? 2 : rank) + (name ? 16 : 0));
    return frames.function.length - 1;
  };
  const py = "/usr/bin/python3.12";
  const torch = "/opt/venv/lib/python3.12/site-packages/torch";
  const base = [
    frame("_start", "", 0, py, false),
    frame("Py_RunMain", "", 0, py, false),
    frame("<module>", "/home/user/gpt/train.py", 141, py, true),
    frame("main", "/home/user/gpt/train.py", 128, py, true),
  ];
  const allocate = [
    frame(
      "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc",
      "",
      0,
      `${torch}/lib/libc10_cuda.so`,
      false,
      true,
    ),
    frame("cudaMalloc", "", 0, "/opt/cuda/lib64/libcudart.so.13", false, true),
    frame("cuMemAlloc_v2", "", 0, "libcuda.so.1", false, true),
  ];
  const sites = noSites();
  const nnModules: Recording["nn_modules"] = { name: [""], class: ["GPT"], note: "" };
  const nnModule = (name: string, className: string): number => {
    const known = nnModules.name.indexOf(name);
    if (known >= 0) return known;
    nnModules.class.push(className);
    return nnModules.name.push(name) - 1;
  };
  const site = (stack: number[], category: string, kind = "device", device = 0, of = -1): number => {
    sites.nn_module.push(of);
    sites.stack.push(stack);
    sites.place.push(stack.findLastIndex((one) => frames.skipped[one] === 0));
    sites.through.push(-1);
    sites.temporaries.push(0);
    sites.leaked_bytes.push(0);
    sites.kind.push(intern(kind));
    sites.category.push(intern(category));
    sites.device.push(device);
    sites.allocations.push(0);
    sites.allocated_bytes.push(0);
    return sites.stack.length - 1;
  };
  interface Block {
    site: number;
    size: number;
    from: number;
    to: number;
  }
  const blocks: Block[] = [];
  const hold = (of: number, megabytes: number, from: number, to: number) => {
    const size = Math.max(512, Math.round((megabytes * scale * MiB) / 512) * 512);
    blocks.push({ site: of, size, from, to });
    sites.allocations[of]! += 1;
    sites.allocated_bytes[of]! += size;
    if (to >= duration) sites.leaked_bytes[of]! += size;
    else if (to - from < 60e6) sites.temporaries[of]! += 1;
  };
  const module = (line: number) =>
    frame("Module._call_impl", `${torch}/nn/modules/module.py`, 1750 + (line % 7), py, true);
  const start = 300e6;
  const step = frame("train_step", "/home/user/gpt/train.py", 97, py, true);
  const optimizer = frame("Optimizer.step", `${torch}/optim/adamw.py`, 243, py, true);
  const optimizerState = site(
    [...base, step, optimizer, frame("_init_group", `${torch}/optim/adamw.py`, 185, py, true), ...allocate],
    "optimizer state",
  );
  const names = hostile ? hostileNames : [];
  for (let layer = 0; layer < layers; ++layer) {
    const build = frame("GPT.__init__", "/home/user/gpt/model.py", 61, py, true);
    const linear = frame(
      names[layer % Math.max(1, names.length)] ?? "Linear.__init__",
      `${torch}/nn/modules/linear.py`,
      106,
      py,
      true,
    );
    const block = frame(`Block.__init__`, "/home/user/gpt/model.py", 40 + layer, py, true);
    const mlp = nnModule(`transformer.h.${layer}.mlp`, names[layer % Math.max(1, names.length)] ?? "MLP");
    const weights = site([...base, build, block, linear, ...allocate], "parameters", "device", 0, mlp);
    hold(weights, 48 + layer, 20e6 + layer * 18e6, duration);
    hold(optimizerState, 96, start + 200e6 + layer * 1e6, duration);
  }
  const forward = frame("GPT.forward", "/home/user/gpt/model.py", 74, py, true);
  const backward = frame("Tensor.backward", `${torch}/_tensor.py`, 647, py, true);
  const engine = frame(
    "torch::autograd::Engine::evaluate_function",
    "engine.cpp",
    1071,
    `${torch}/lib/libtorch_cpu.so`,
    false,
  );
  const activation: number[] = [];
  const gradient: number[] = [];
  for (let layer = 0; layer < layers; ++layer) {
    const call = module(layer);
    const attention = frame("Attention.forward", "/home/user/gpt/model.py", 22 + (layer % 3), py, true);
    const attended = nnModule(
      names.length > 0 ? `${names[layer % names.length]}.${layer}` : `transformer.h.${layer}.attn`,
      "Attention",
    );
    activation.push(
      site(
        [
          ...base,
          step,
          forward,
          call,
          attention,
          frame("at::native::matmul", "LinearAlgebra.cpp", 2012, `${torch}/lib/libtorch_cpu.so`, false),
          ...allocate,
        ],
        "activations",
        "device",
        0,
        attended,
      ),
    );
    gradient.push(
      site(
        [
          ...base,
          step,
          backward,
          engine,
          frame("MmBackward0::apply", "Functions.cpp", 9001 + layer, `${torch}/lib/libtorch_cpu.so`, false),
          ...allocate,
        ],
        "gradients",
        "device",
        0,
        nnModule(`transformer.h.${layer}.mlp`, "MLP"),
      ),
    );
  }
  const loss = site(
    [...base, step, frame("Trainer.remember_loss", "/home/user/gpt/train.py", 82, py, true), ...allocate],
    "other",
  );
  const workspace = site(
    [...base, step, forward, frame("cublasLtMatmul", "", 0, "/opt/cuda/lib64/libcublasLt.so.13", false), ...allocate],
    "workspaces",
    "device",
    0,
    0,
  );
  const scopes = {
    names: ["step", "forward", "backward", "optimizer"],
    name: [] as number[],
    depth: [] as number[],
    thread: [] as number[],
    begin: [] as number[],
    end: [] as number[],
    left_out: 0,
  };
  const scope = (name: number, depth: number, begin: number, end: number) => {
    scopes.name.push(name);
    scopes.depth.push(depth);
    scopes.thread.push(0);
    scopes.begin.push(Math.round(begin));
    scopes.end.push(Math.round(end));
  };
  hold(workspace, 32, start, duration);
  for (let i = 0; i < steps; ++i) {
    const from = start + i * 250e6 + 100e6;
    scope(0, 0, from, from + 240e6);
    scope(1, 1, from, from + 100e6);
    scope(2, 1, from + 100e6, from + 205e6);
    scope(3, 1, from + 205e6, from + 240e6);
    for (let layer = 0; layer < layers; ++layer) {
      const made = from + 4e6 + layer * (92e6 / layers);
      const freed = from + 200e6 - layer * (92e6 / layers);
      hold(activation[layer]!, 70 + 12 * next(), made, freed);
      hold(gradient[layer]!, 48 + layer, freed - 3e6, from + 240e6);
    }
    if (leak) hold(loss, 6, from + 95e6, duration);
  }
  for (let i = 0; i < more; ++i) {
    const file = `/home/user/gpt/data/loader_${i % 9}.py`;
    const stack = [
      ...base,
      frame(hostile ? names[i % names.length]! : `Loader.prefetch_${i % 17}`, file, 10 + i, py, true),
      frame(
        `collate<${i % 5}>(std::vector<at::Tensor>)`,
        "collate.cpp",
        20 + i,
        `${torch}/lib/libtorch_python.so`,
        false,
      ),
      ...allocate,
    ];
    const of = site(stack, i % 4 === 0 ? "inputs" : "other", i % 13 === 0 ? "pinned" : "device", 0);
    for (let k = 0; k < 1 + (i % 4); ++k) {
      const from = next() * duration * 0.9;
      hold(of, 0.5 + 9 * next() * next(), from, Math.min(duration, from + next() * duration * 0.2));
    }
  }
  // Moments, and what each site holds at them.
  const allocatedAt = (device: number) => {
    const changes: [number, number][] = [];
    for (const block of blocks)
      if (sites.device[block.site] === device && strings[sites.kind[block.site]!] === "device")
        changes.push([block.from, block.size], [block.to, -block.size]);
    return changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  };
  const changes = allocatedAt(0);
  let held = 0;
  let peak = 0;
  let peakAt = 0;
  for (const [at, by] of changes) {
    held += by;
    if (held > peak) [peak, peakAt] = [held, at];
  }
  const failureAt = Math.round(start + 100e6 + 250e6 * Math.floor(steps * 0.7) + 98e6);
  const special = [Math.round(peakAt), ...(failure ? [failureAt] : []), duration];
  const moments = [
    ...new Set([...Array.from({ length: wanted }, (_, i) => Math.round((i / (wanted - 1)) * duration)), ...special]),
  ].sort((a, b) => a - b);
  const mostOfCategories = (): Recording["categories"] => {
    const device = (block: Block) => strings[sites.kind[block.site]!] === "device";
    const name = (block: Block) => strings[sites.category[block.site]!]!;
    return [...new Set(blocks.map(name))].map((category) => {
      const own = blocks.filter((block) => device(block) && name(block) === category);
      const events = own.flatMap(({ from, to, size }) => [[from, size] as const, [to, -size] as const]);
      let now = 0;
      const highest = { device: 0, name: category, most: 0, at: 0 };
      for (const [at, by] of events.sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
        now += by;
        if (now > highest.most) Object.assign(highest, { most: now, at: Math.round(at) });
      }
      return highest;
    });
  };
  const momentOf = (time: number) => moments.findIndex((one) => one >= time - 0.5);
  const perSite = new Map<number, Block[]>();
  for (const block of blocks) perSite.set(block.site, [...(perSite.get(block.site) ?? []), block]);
  const holders = { start: [0], moment: [] as number[], bytes: [] as number[], blocks: [] as number[] };
  for (let of = 0; of < sites.stack.length; ++of) {
    const own: [number, number, number][] = [];
    for (const block of perSite.get(of) ?? [])
      own.push(
        [block.from, block.size, 1],
        ...(block.to < duration ? [[block.to, -block.size, -1] as [number, number, number]] : []),
      );
    own.sort((a, b) => a[0] - b[0]);
    let size = 0,
      number = 0,
      at = 0,
      last = 0;
    for (let m = 0; m < moments.length; ++m) {
      while (at < own.length && own[at]![0] <= moments[m]!) {
        size += own[at]![1];
        number += own[at++]![2];
      }
      if (size !== last) {
        holders.moment.push(m);
        holders.bytes.push(size);
        holders.blocks.push(number);
        last = size;
      }
    }
    holders.start.push(holders.moment.length);
  }
  const curve = (
    name: string,
    device: number,
    value: (allocated: number) => number,
    on: boolean,
    exact = true,
  ): Curve => {
    const buckets = 4096;
    const width = Math.ceil(duration / buckets);
    const levels = [
      { bucket_ns: width, min: [] as (number | null)[], max: [] as (number | null)[], last: [] as (number | null)[] },
    ];
    const own = allocatedAt(device);
    let at = 0,
      now = 0;
    for (let bucket = 0; bucket < buckets; ++bucket) {
      let low = now,
        high = now;
      while (at < own.length && own[at]![0] < (bucket + 1) * width) {
        now += own[at++]![1];
        low = Math.min(low, now);
        high = Math.max(high, now);
      }
      levels[0]!.min.push(value(low));
      levels[0]!.max.push(value(high));
      levels[0]!.last.push(value(now));
    }
    while (levels.at(-1)!.max.length > 256) {
      const fine = levels.at(-1)!;
      const half = (list: (number | null)[], pick: (a: number, b: number) => number) =>
        Array.from({ length: Math.ceil(list.length / 2) }, (_, i) =>
          pick(list[2 * i]!, list[2 * i + 1] ?? list[2 * i]!),
        );
      levels.push({
        bucket_ns: fine.bucket_ns * 2,
        min: half(fine.min, Math.min),
        max: half(fine.max, Math.max),
        last: half(fine.last, (_, b) => b),
      });
    }
    return { name: `GPU ${device}: ${name}`, device, kind: name, unit: "bytes", default_on: on, exact, levels };
  };
  let high = 0;
  const reserved = (allocated: number) => (high = Math.max(high, Math.ceil(allocated / (20 * MiB)) * 20 * MiB));
  const curves = [
    curve("allocated", 0, (value) => value, true),
    curve("reserved", 0, reserved, true),
    curve("active", 0, (value) => value + 2 * MiB, false),
    curve("device used", 0, (value) => value + 700 * MiB, false, false),
  ];
  curves[3]!.kind = "device_used";
  // Maps: first fit into segments of 512 MiB.
  const maps: Recording["maps"] = [];
  const mapMoments = [
    ...new Set([
      ...Array.from({ length: 24 }, (_, i) => momentOf((i / 23) * duration)),
      momentOf(peakAt),
      ...(failure ? [momentOf(failureAt)] : []),
    ]),
  ].sort((a, b) => a - b);
  const named = Array.from({ length: Math.min(layers, sites.stack.length) }, (_, site) => site);
  const labels: Recording["labels"] = {
    site: named,
    name: named.map((site) => intern(hostile ? hostileNames[site % 4]! : `transformer.h.${site}.mlp.weight`)),
    detail: named.map(() => intern("float32[512, 512]")),
    bytes: named.map(() => MiB),
  };
  for (const moment of mapMoments) {
    const time = moments[moment]!;
    const live = blocks.filter(
      (block) => strings[sites.kind[block.site]!] === "device" && block.from <= time && block.to > time,
    );
    const segments: Recording["maps"][number]["segments"] = [];
    let address = 0x7f3a00000000;
    const segmentSize = Math.max(256 * MiB * scale, ...live.map((block) => block.size));
    let segment = {
      device: 0,
      address: `0x${address.toString(16)}`,
      size: segmentSize,
      pool: "large",
      offset: [] as number[],
      length: [] as number[],
      site: [] as number[],
      label: [] as number[],
      label_detail: [] as number[],
    };
    let offset = 0;
    for (const block of live) {
      const gap = next() < 0.3 ? Math.round(next() * 12 * scale) * MiB : 0;
      if (offset + gap + block.size > segmentSize) {
        segments.push(segment);
        address += segmentSize;
        segment = {
          device: 0,
          address: `0x${address.toString(16)}`,
          size: segmentSize,
          pool: "large",
          offset: [],
          length: [],
          site: [],
          label: [],
          label_detail: [],
        };
        offset = 0;
      } else if (gap > 0) {
        segment.offset.push(offset);
        segment.length.push(gap);
        segment.site.push(-1);
        segment.label.push(-1);
        segment.label_detail.push(-1);
        offset += gap;
      }
      segment.offset.push(offset);
      segment.length.push(block.size);
      segment.site.push(block.site);
      segment.label.push(block.site < layers ? labels.name[block.site]! : -1);
      segment.label_detail.push(block.site < layers ? labels.detail[block.site]! : -1);
      offset += block.size;
    }
    segments.push(segment);
    maps.push({ moment, segments });
  }
  const name = options.name ?? "train.py";
  return {
    name: `${name} (pid ${pid})`,
    path: `memlab.${name}.${pid}.memlog`,
    host: "node1",
    pid,
    rank,
    command: ["python3", "train.py", "--layers", String(layers)],
    duration_ns: duration,
    events: blocks.length * 2,
    ended: "ended normally after 6.900 s",
    last_moment: "at the end",
    lacks: [],
    notes: hostile ? hostileNames : ["Names are missing for libcublasLt.so.13: it has no debug information here."],
    curves,
    moments,
    moment_ns: Math.ceil(duration / Math.max(1, wanted - 1)),
    within: [],
    gap: null,
    categories: mostOfCategories(),
    marks: [
      { moment: momentOf(peakAt), at: Math.round(peakAt), kind: "peak", text: "peak of GPU 0" },
      ...(failure
        ? [{ moment: momentOf(failureAt), at: failureAt, kind: "oom" as const, text: "out of memory: 12.00 GiB" }]
        : []),
      { moment: momentOf(start), at: start, kind: "mark", text: hostile ? hostileNames[0]! : "model built" },
      { moment: moments.length - 1, at: duration, kind: "end", text: "end" },
    ],
    scopes: hostile ? { ...scopes, names: hostileNames.slice(0, 4) } : scopes,
    threads: hostile ? [hostileNames[1]!] : ["MainThread"],
    strings,
    frames,
    sites,
    nn_modules: nnModules,
    labels,
    holders,
    maps,
    documents: documents(peak, failureAt, hostile),
  };
}

// `--json` documents in the shapes of the tool.
function documents(peak: number, failureAt: number, hostile: boolean): Recording["documents"] {
  const place = {
    function: hostile ? hostileNames[0]! : "Trainer.remember_loss",
    file: "/home/user/gpt/train.py",
    line: 82,
    module: null,
    address: null,
    through: null,
    problem: null,
  };
  const stack = [
    {
      function: "cuMemAlloc_v2",
      file: null,
      line: null,
      module: "libcuda.so.1",
      address: 1,
      inlined: false,
      python: false,
      problem: null,
    },
    { ...place, inlined: false, python: true },
    { ...place, function: "main", line: 128, inlined: false, python: true },
  ];
  const none = { bytes: 0, count: 0, live_bytes: 0, live_count: 0 };
  const device = { index: 0, name: "NVIDIA H100 80GB HBM3" };
  return {
    summary: {
      process: { executable: "/usr/bin/python3.12", start_wall_ns: 1795236111854013078 },
      warnings: [],
      scopes: [],
      coverage: {
        audited: true,
        because: "",
        cupti: "CUPTI 13.0.1, /opt/cuda/libcupti.so.13",
        driver_count: 40,
        driver_bytes: peak + 20 * MiB,
        lost_records: 0,
        bypassed_count: 1,
        bypassed_bytes: 2 * MiB,
        bypassed: [
          {
            device: 0,
            kind: "device",
            api: "cuMemAlloc_v2",
            count: 1,
            bytes: 2 * MiB,
            first_time_ns: failureAt,
            place,
          },
        ],
      },
      devices: [
        {
          ...device,
          gpu: 0,
          allocator: null,
          total_bytes: 85017493504,
          limit_bytes: null,
          curves: {
            allocated: { peak_bytes: peak, peak_time_ns: failureAt, at_end_bytes: 104857600 },
            reserved: { peak_bytes: peak + 20 * MiB, peak_time_ns: failureAt, at_end_bytes: peak },
            device_used: null,
          },
          waterfall: {
            device_used_bytes: peak + 720 * MiB,
            remainder_bytes: 700 * MiB,
            reserved_bytes: peak + 20 * MiB,
            cached_bytes: 18 * MiB,
            active_bytes: peak + 2 * MiB,
            pending_bytes: 2 * MiB,
            allocated_bytes: peak,
            rounding_bytes: 1 * MiB,
            requested_bytes: peak - 1 * MiB,
          },
          fragmentation: { at_peak: 0.018, external: 0.227, internal: 0.001 },
          kernels_at_peak: {
            from_ns: failureAt,
            to_ns: failureAt + 1000000,
            kernels: [{ name: "_Z7forwardPf", function: "forward(float*)", count: 12, busy_ns: 46176 }],
            other: { names: 3, count: 5, busy_ns: 9000 },
          },
        },
      ],
    },
    leaks: {
      ended_text: "ended normally after 6.9 s",
      devices: [
        {
          ...device,
          leaked: { ...none, live_bytes: 150994944, live_count: 24 },
          places: [
            {
              place,
              kind: "device",
              api: "cuMemAlloc_v2",
              ...none,
              bytes: 150994944,
              count: 24,
              live_bytes: 150994944,
              live_count: 24,
              stack,
            },
          ],
          others: { ...none, places: 0 },
          suppressed: { ...none, live_bytes: 67110912, live_count: 4 },
          suppressions: [
            { name: "cuBLAS handles", reason: "cuBLAS keeps a workspace with each handle", count: 4, bytes: 67110912 },
          ],
        },
      ],
      steps: [
        {
          kind: "scope",
          name: "step",
          steps: 24,
          verdict: "growing",
          bytes_per_step: 6291456,
          growing: [{ place, kind: "device", bytes_per_step: 6291456 }],
        },
      ],
    },
    inefficiencies: {
      steps: 'scope "step"',
      lacks: [],
      notes: [],
      devices: [
        {
          ...device,
          allocated_peak_bytes: peak,
          reserved_peak_bytes: peak + 20 * MiB,
          collected: { count: 0, bytes: 0, at_peak_bytes: 0 },
          findings: [
            {
              pattern: "leak",
              confidence: "certain",
              place,
              kind: "device",
              api: "cuMemAlloc_v2",
              count: 24,
              bytes: 150994944,
              saves: { peak_bytes: 144703488, peak_is_exact: true, reserved_bytes: 0, end_bytes: 150994944, calls: 0 },
              what: "24 allocations were never freed (144.00 MiB). It grows by 6.00 MiB with each step.",
              change: "Free it at the end of its step, or keep a fixed number of them.",
              stack,
            },
            {
              pattern: "late_deallocation",
              confidence: "likely",
              place: { ...place, function: "Attention.forward", file: "/home/user/gpt/model.py", line: 22 },
              kind: "device",
              api: "cuMemAlloc_v2",
              count: 288,
              bytes: 22548578304,
              saves: { peak_bytes: 79691776, peak_is_exact: false, reserved_bytes: 0, end_bytes: 0, calls: 0 },
              what: "47 of 96 were freed right after the next one of the same size had been made: both were held at once.",
              change: "Free the old one before the new one is made, or write the new values into it.",
              stack,
            },
          ],
        },
      ],
    },
    ledger: {
      devices: [
        {
          ...device,
          not_measured: 2,
          witnesses: [],
          advice: ["2 contexts are on this GPU, 600.00 MiB in all."],
          moments: {
            peak: {
              time_ns: failureAt,
              used_bytes: peak + 720 * MiB,
              rest_bytes: 12 * MiB,
              others_in_rows_bytes: 0,
              managed_bytes: 0,
              import_bytes: 0,
              groups: [
                { kind: "allocations", title: "memory allocated", bytes: peak + 20 * MiB, rows: [] },
                {
                  kind: "context",
                  title: "contexts",
                  bytes: 526 * MiB,
                  rows: [
                    {
                      what: null,
                      place,
                      api: "cuDevicePrimaryCtxRetain",
                      bytes: 526 * MiB,
                      count: 1,
                      uncertain: false,
                      with_earlier: true,
                      estimated: false,
                    },
                  ],
                },
                { kind: "growth", title: "growth while work ran", bytes: 162 * MiB, rows: [] },
              ],
            },
            end: null,
          },
        },
      ],
    },
    oom: {
      oom_count: 1,
      ooms: [
        {
          time_ns: failureAt,
          device: 0,
          thread: 4711,
          thread_name: "MainThread",
          api: "cuMemAlloc_v2",
          kind: "device",
          requested_bytes: 12884901888,
          device_free_bytes: 9663676416,
          device_total_bytes: 85017493504,
          largest_free_block_bytes: 20971520,
          error: 2,
          current: {
            requested_bytes: peak,
            allocated_bytes: peak,
            active_bytes: peak,
            reserved_bytes: peak + 20 * MiB,
          },
          place: { ...place, function: "GPT.forward", file: "/home/user/gpt/model.py", line: 74 },
          explanation: "The device has 79.18 GiB, 9.00 GiB of it free. It is short by 3.00 GiB, fragmentation aside.",
          holders: { count: 40, bytes: peak, places: [{ bytes: Math.round(peak / 2), count: 24, share: 0.5, place }] },
          stack,
        },
      ],
    },
  };
}

export const trainSource = [
  {
    path: "/home/user/gpt/train.py",
    first_line: 78,
    changed_since: false,
    lines: [
      "class Trainer:",
      "    losses = []",
      "",
      "    def remember_loss(self, loss):",
      "        self.losses.append(loss)          # keeps its memory",
      "",
      "",
      "def train_step(model, batch):",
      "    x, y = batch",
      "    with nvtx.range('forward'):",
      "        logits, loss = model(x, y)",
      "    with nvtx.range('backward'):",
      "        loss.backward()",
      "    with nvtx.range('optimizer'):",
      "        optimizer.step()",
      "        optimizer.zero_grad()",
      "    trainer.remember_loss(loss)",
      "    return loss",
      "",
      "    # one step",
      "",
      "",
      "def main():",
    ],
  },
  {
    path: "/home/user/gpt/model.py",
    first_line: 18,
    changed_since: true,
    lines: [
      "class Attention(nn.Module):",
      "    def forward(self, x):",
      "        B, T, C = x.size()",
      "        q, k, v = self.qkv(x).split(self.width, dim=2)",
      "        att = q @ k.transpose(-2, -1)",
      "        att = F.softmax(att, dim=-1)",
      "        y = att @ v",
      "        return self.out(y)",
    ],
  },
];

export function page(mode: PageData["mode"], recordings: Recording[]): PageData {
  return {
    version: 2,
    memlab: "0.1.0",
    title:
      mode === "compare" ? "train.py: before and after" : mode === "run" ? "train.py: 64 ranks" : recordings[0]!.name,
    mode,
    sources: true,
    recordings,
    files: trainSource,
  };
}

export const single = (options: SampleOptions = {}): PageData => page("single", [recording(options)]);
export const compare = (options: SampleOptions = {}): PageData =>
  page("compare", [
    recording({ ...options, leak: true }),
    recording({ ...options, leak: false, layers: (options.layers ?? 12) - 2, pid: 4812, failure: false, seed: 8 }),
  ]);

export function run(ranks: number, options: SampleOptions = {}): PageData {
  const next = random(3);
  const shown = [recording({ ...options, rank: 0 }), recording({ ...options, rank: 5, scale: 1.6, pid: 4800 })];
  const peak = Math.max(...shown[0]!.curves[0]!.levels[0]!.max.map((value) => value ?? 0));
  const data = page("run", shown);
  const level = shown[0]!.curves[0]!.levels.at(-1)!.max;
  data.run = {
    curve_ns: 27e6,
    documents: {
      merge: {
        format: "memlab-merge",
        version: 2,
        world_size: ranks,
        imbalance: { allocated: { largest_bytes: peak * 1.6, mean_bytes: peak, ratio: 1.6, rank: 5 }, reserved: null },
        ranks: Array.from({ length: ranks }, (_, rank) => ({ rank })),
        nn_modules: ["transformer.h.0", "lm_head", "[of no nn.Module]"].map((name, i) => ({
          name: options.hostile ? hostileNames[i]! : name,
          difference_bytes: i === 1 ? 0 : 0.6 * 2 ** (30 - i),
          bytes: Array.from({ length: ranks }, (_, rank) => (rank === 5 && i !== 1 ? 1.6 : 1) * 2 ** (30 - i)),
        })),
        notes: ["Rank 17 is missing."],
      },
    },
    ranks: Array.from({ length: ranks }, (_, rank) => {
      const factor = rank === 5 ? 1.6 : 0.97 + 0.05 * next();
      return {
        recording: rank === 0 ? 0 : rank === 5 ? 1 : null,
        name: "train.py",
        rank,
        host: `node${rank >> 3}`,
        peak_bytes: Math.round(peak * factor),
        at_end_bytes: Math.round(peak * 0.4 * factor),
        outlier: rank === 5 ? "peak 60.0% above the median" : null,
        curve: level.map((value) => Math.round((value ?? 0) * factor)),
      };
    }),
  };
  return data;
}

// The built page with the data in it, as the tool writes it.
export function withData(html: string, data: PageData): string {
  return html.replace("MEMLAB_DATA", () => gzipSync(JSON.stringify(data)).toString("base64"));
}

export const builtPage = (): string =>
  readFileSync(process.env["MEMLAB_BUILT_PAGE"] ?? new URL("../dist/index.html", import.meta.url), "utf8");
