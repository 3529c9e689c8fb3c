import { describe, expect, test } from "vitest";
import { axisBytes, binaryStep, splits } from "../src/model/axis";
import { callsOf } from "../src/model/calls";
import { DevicePairs, onUnion, unite } from "../src/model/compare";
import { greatest, levelFor, sample } from "../src/model/curves";
import { matchFrames, matchSites } from "../src/model/filter";
import { textMatcher } from "../src/model/glob";
import { chooseFrame } from "../src/model/frame_choice";
import { groupsOf, usualGrouping } from "../src/model/groups";
import { decode, NoData, withoutDirections } from "../src/model/load";
import { metrics } from "../src/model/metrics";
import { places } from "../src/model/places";
import { curveDevice, lowerBound, RecordingModel } from "../src/model/recording";
import { segmentRow } from "../src/model/segments";
import { buildTree } from "../src/model/tree";
import { fromHash, initial, toHash } from "../src/state";
import { compare, hostileNames, recording, single, withData } from "./sample";

const source = recording({ steps: 6, sites: 30, moments: 120 });
const model = new RecordingModel(source);

// What a site holds at a moment, read from the data in the simplest way.
function slow(site: number, moment: number): { bytes: number; blocks: number } {
  let found = { bytes: 0, blocks: 0 };
  for (let i = source.holders.start[site]!; i < source.holders.start[site + 1]!; ++i)
    if (source.holders.moment[i]! <= moment)
      found = { bytes: source.holders.bytes[i]!, blocks: source.holders.blocks[i]! };
  return found;
}

describe("holders", () => {
  test("figures at every moment are those of the data", () => {
    for (let moment = 0; moment < source.moments.length; ++moment) {
      const figures = model.figures(moment);
      for (let site = 0; site < model.sites.count; ++site)
        expect({ bytes: figures.bytes[site], blocks: figures.blocks[site] }).toEqual(slow(site, moment));
    }
  });

  test("sums over time are the sums of figures", () => {
    const totals = model.totals(0);
    for (const moment of [0, 1, 60, source.moments.length - 1]) {
      const sum = model
        .figures(moment)
        .bytes.reduce((all, value, site) => all + (model.sites.device[site] === 0 ? value : 0), 0);
      expect(totals[moment]).toBe(sum);
    }
    const site = source.holders.start.findIndex((start, i) => (source.holders.start[i + 1] ?? start) > start);
    const groups = model.groupsOverTime(1, (one) => (one === site ? 0 : -1));
    expect([...groups[0]!]).toEqual(source.moments.map((_, moment) => slow(site, moment).bytes));
  });

  test("pinned, managed and imported memory is no part of the GPU's", () => {
    const pinned = model.sites.kind.findIndex((kind) => model.sites.text(kind) === "pinned");
    expect(pinned).toBeGreaterThanOrEqual(0);
    expect(model.sites.device[pinned]).not.toBe(0);
    expect(curveDevice(model.sites.device[pinned]!)).toBe(0);
    expect(model.devices.map((device) => device.short)).toEqual(["GPU 0", "GPU 0: pinned host memory"]);
  });

  test("the nearest moment; at a mark the mark's own", () => {
    expect(model.nearestMoment(-5)).toBe(0);
    expect(model.nearestMoment(1e18)).toBe(source.moments.length - 1);
    const middle = (source.moments[3]! + source.moments[4]!) / 2;
    expect(model.nearestMoment(middle - 1)).toBe(3);
    expect(model.nearestMoment(middle + 1)).toBe(4);
    // Two moments of one time: the peak's is the first, the failure's the second.
    const twice = new RecordingModel({
      ...source,
      moments: [0, 50, 50, 100],
      holders: { start: source.holders.start.map(() => 0), moment: [], bytes: [], blocks: [] },
      marks: [
        { kind: "peak", at: 50, moment: 1, text: "" },
        { kind: "oom", at: 50, moment: 2, text: "" },
        { kind: "mark", at: 100, moment: -1, text: "" },
      ],
      maps: [],
    });
    expect(twice.nearestMoment(50)).toBe(2);
    expect(twice.nearestMoment(100)).toBe(3);
  });

  test("a site's place is its innermost frame that is not skipped", () => {
    const site = 1;
    expect(model.sites.functionName(model.sites.place(site))).toBe("Linear.__init__");
    expect(model.sites.location(model.sites.place(site))).toBe("linear.py:106");
    expect(model.sites.functionName(-1)).toBe("[other call sites]");
  });
});

describe("places and trees", () => {
  const figures = model.figures(60);
  const use = (site: number) => model.sites.device[site] === 0;
  const total = figures.bytes.reduce((sum, value, site) => sum + (use(site) ? value : 0), 0);

  test("places add up to all that is held", () => {
    const rows = places(model.sites, figures, null, { use, skip: null });
    expect(rows.reduce((sum, row) => sum + row.bytes, 0)).toBe(total);
    expect(new Set(rows.map((row) => `${row.frame} ${row.kind}`)).size).toBe(rows.length);
  });

  test("--skip moves a place to its caller", () => {
    const skip = matchFrames(model.sites, "func=at::native::matmul")!;
    const rows = places(model.sites, figures, null, { use, skip });
    expect(rows.some((row) => model.sites.functionName(row.frame) === "at::native::matmul")).toBe(false);
    expect(rows.reduce((sum, row) => sum + row.bytes, 0)).toBe(total);
  });

  test("changes are signed and add up", () => {
    const before = model.figures(30);
    const rows = places(model.sites, figures, before, { use, skip: null });
    const all = before.bytes.reduce((sum, value, site) => sum + (use(site) ? value : 0), 0);
    expect(rows.reduce((sum, row) => sum + row.change, 0)).toBe(total - all);
  });

  test.each([false, true])("every node of a tree holds what its children hold, and more (bottom-up %s)", (bottomUp) => {
    const tree = buildTree(model.sites, figures.bytes, figures.blocks, {
      bottomUp,
      showSkipped: false,
      skip: null,
      use,
    });
    expect(tree.value[0]).toBe(total);
    for (let node = 0; node < tree.frame.length; ++node) {
      let below = 0;
      for (let child = node + 1; child < tree.next[node]!; child = tree.next[child]!) {
        expect(tree.parent[child]).toBe(node);
        below += tree.weight[child]!;
      }
      expect(below).toBeLessThanOrEqual(tree.weight[node]! + 1e-6);
      if (node > 0 && tree.frame[node]! >= 0) expect(model.sites.frames.skipped[tree.frame[node]!]).toBe(0);
    }
  });

  test("widths of changes are absolute, so what grew does not hide what shrank", () => {
    const values = new Float64Array(model.sites.count);
    values[0] = 100;
    values[1] = -100;
    const tree = buildTree(model.sites, values, values, {
      bottomUp: false,
      showSkipped: false,
      skip: null,
      use: () => true,
    });
    expect([tree.value[0], tree.weight[0]]).toEqual([0, 200]);
  });
});

// Places beyond 200 are weighed at some moments only; those that hold nothing then are among the others.
test("groups over time add up to the total, however many places there are", () => {
  const count = 201;
  const all = Array.from({ length: count }, (_, i) => i);
  const short = new RecordingModel({
    ...source,
    strings: ["device", ...all.map((i) => `f${i}`)],
    frames: {
      function: all.map((i) => i + 1),
      file: all.map(() => -1),
      line: all.map(() => 0),
      module: all.map(() => -1),
      language: all.map(() => 0),
      skipped: all.map(() => 0),
      choice: all.map(() => 21),
    },
    sites: {
      stack: all.map((i) => [i]),
      place: all.map(() => 0),
      through: all.map(() => -1),
      temporaries: all.map(() => 0),
      leaked_bytes: all.map(() => 0),
      kind: all.map(() => 0),
      device: all.map(() => 0),
      category: all.map(() => -1),
      allocations: all.map(() => 1),
      allocated_bytes: all.map(() => 100),
      nn_module: all.map(() => -1),
    },
    // The last one holds its bytes at one moment, which is none of those.
    holders: {
      start: all.map((i) => i),
      moment: [...all.map((i) => (i < count - 1 ? 0 : 7)), 8],
      bytes: [...all.map(() => 100), 0],
      blocks: [...all.map(() => 1), 0],
    },
    marks: [],
    maps: [],
  });
  const groups = groupsOf(short, { device: 0, by: "place", filter: "" }, [0], (moment) => short.figures(moment));
  expect(groups.reduce((sum, one) => sum + one.series[7]!, 0)).toBe(short.totals(0)[7]);
});

describe("filters", () => {
  test("texts and patterns", () => {
    expect(textMatcher("torch")("libtorch.so")).toBe(true);
    expect(textMatcher("Torch")("libtorch.so")).toBe(false);
    expect(textMatcher("[kl]ib*.s[!a]")("/opt/libtorch.so")).toBe(true);
    expect(textMatcher("lib[a-")("lib[a-")).toBe(true);
    expect(textMatcher("")("")).toBe(false);
    expect(textMatcher("libtorch_*.so")("/opt/libtorch_cuda.so")).toBe(true);
    expect(textMatcher("torch_*.so")("/opt/libtorch_cuda.so")).toBe(false);
    expect(textMatcher("a.c")("abc")).toBe(false);
  });
  test("parts of a site", () => {
    expect(matchSites(model.sites, "")).toBeNull();
    const ofKind = matchSites(model.sites, "kind=pinned")!;
    ofKind.forEach((hit, site) => expect(hit === 1).toBe(model.sites.text(model.sites.kind[site]!) === "pinned"));
    expect(matchSites(model.sites, "file=model.py")!.some((hit) => hit === 1)).toBe(true);
    expect(matchSites(model.sites, "func=model.py")!.some((hit) => hit === 1)).toBe(false);
  });
});

describe("curves", () => {
  const curve = source.curves[0]!;
  test("a column keeps the greatest and the least value in it", () => {
    const columns = 97;
    const drawn = sample(curve, 0, source.duration_ns, columns, source.duration_ns);
    const most = Math.max(...curve.levels[0]!.max.map((value) => value ?? 0));
    expect(Math.max(...drawn.max)).toBe(most);
    expect(greatest(curve, 0, source.duration_ns)).toBe(most);
    drawn.max.forEach((value, i) => expect(drawn.min[i]!).toBeLessThanOrEqual(value));
  });
  test("the level is no coarser than a column", () => {
    for (const width of [1, 1e6, 1e7, 1e8, 1e9]) {
      const level = levelFor(curve, width)!;
      expect(level === curve.levels[0] || level.bucket_ns <= width).toBe(true);
    }
  });
  test("before the first sample and after the end there is nothing", () => {
    const partly = { ...curve, levels: [{ bucket_ns: 10, min: [null, 5], max: [null, 7], last: [null, 6] }] };
    const drawn = sample(partly, 0, 40, 4, 20);
    expect([...drawn.max].map((value) => (Number.isNaN(value) ? null : value))).toEqual([null, 7, null, null]);
  });
  test("the axis has binary steps", () => {
    const step = binaryStep(3 * 2 ** 30, 4);
    expect(splits(3 * 2 ** 30, step).map((value) => axisBytes(value, step))).toEqual(["0", "1 GiB", "2 GiB", "3 GiB"]);
  });
});

test("a place's names have beside them what the memory holds, where that is known", () => {
  const { labels } = source;
  const text = (site: number): string => `transformer.h.${site}.mlp.weight`;
  const shape = labels.detail[0]!;
  const known = new RecordingModel({
    ...source,
    labels: { ...labels, detail: labels.detail.map((_, i) => (i ? -1 : shape)) },
  });
  expect(known.labelsOf([0, 1])).toEqual([
    [`${text(0)}  float32[512, 512]`, labels.bytes[0]],
    [text(1), labels.bytes[1]],
  ]);
});

test("a segment's free pieces are what no block covers", () => {
  const row = segmentRow({
    device: 0,
    address: "0x0",
    size: 100,
    pool: "",
    offset: [10, 30, 60],
    length: [10, 20, 10],
    site: [3, -2, -1],
    label: [-1, -1, -1],
    label_detail: [-1, -1, -1],
  });
  expect([row.used, row.largestFree]).toEqual([30, 50]);
  expect(
    segmentRow({
      device: 0,
      address: "0x0",
      size: 100,
      pool: "",
      offset: [],
      length: [],
      site: [],
      label: [],
      label_detail: [],
    }).largestFree,
  ).toBe(100);
});

test("two recordings meet in the names of their stacks", () => {
  const data = compare({ steps: 4, sites: 20, moments: 60 });
  const before = new RecordingModel(data.recordings[0]!);
  const after = new RecordingModel(data.recordings[1]!);
  const union = unite(before, after, new DevicePairs());
  const sum = (values: Float64Array) => values.reduce((all, value) => all + value, 0);
  expect(sum(onUnion(union, 0, before.figures(30)).bytes)).toBe(sum(before.figures(30).bytes));
  expect(sum(onUnion(union, 1, after.figures(30)).bytes)).toBe(sum(after.figures(30).bytes));
  expect(union.table.count).toBeLessThan(before.sites.count + after.sites.count);
  // Against itself nothing changes, whatever its lines.
  const moved = {
    ...data.recordings[0]!,
    frames: { ...data.recordings[0]!.frames, line: data.recordings[0]!.frames.line.map((line) => line + 3) },
  };
  const same = unite(before, new RecordingModel(moved), new DevicePairs());
  const [left, right] = [
    onUnion(same, 0, before.figures(30)).bytes,
    onUnion(same, 1, new RecordingModel(moved).figures(30)).bytes,
  ];
  expect([...left]).toEqual([...right]);
});

test("devices of two recordings meet whatever their indices", () => {
  const data = compare({ steps: 4, sites: 20, moments: 60 });
  const before = new RecordingModel(data.recordings[0]!);
  const { index } = before.devices.find((device) => device.peakBytes > 0)!;
  const after = new RecordingModel({
    ...data.recordings[0]!,
    sites: { ...data.recordings[0]!.sites, device: data.recordings[0]!.sites.device.map((one) => one + 3) },
  });
  const pairs = new DevicePairs({ devices: [{ index: index + 3, index_before: index }] });
  expect([pairs.before(index + 3), pairs.after(index)]).toEqual([index, index + 3]);
  expect(pairs.before((1 << 20) + index + 3)).toBe((1 << 20) + index);
  expect(pairs.before(9)).toBe(9);
  const { table, of } = unite(before, after, pairs);
  const used = [...before.sites.device].flatMap((device, site) => (device === index ? [site] : []));
  expect(used.length).toBeGreaterThan(0);
  for (const site of used) {
    expect(of[0][site]).toBe(of[1][site]);
    expect(table.device[of[0][site]!]).toBe(index + 3);
  }
});

describe("the hash", () => {
  test("keeps the state", () => {
    const state = {
      ...initial,
      view: "map",
      from: 10,
      to: 20,
      filter: "a&b=c#d",
      curves: ["0 allocated"],
      shape: "flame" as const,
      bottomUp: true,
      recording: 0,
    };
    expect(fromHash(`#${toHash(state)}`)).toEqual(state);
    expect(toHash(initial)).toBe("");
  });
  test("forgives what makes no sense", () => {
    expect(fromHash("#shape=cube&from=abc&curves={&gpu=&nonsense=1&recording=NaN")).toEqual(initial);
  });
});

describe("the data in the page", () => {
  const dataOf = (page: string) => />(.*)</s.exec(page)![1]!;
  test("is read back", async () => {
    const data = single({ steps: 3, sites: 5, moments: 20, hostile: true });
    const read = await decode(dataOf(withData("<s>MEMLAB_DATA</s>", data)));
    expect(read.recordings[0]!.holders).toEqual(data.recordings[0]!.holders);
    expect(read.recordings[0]!.notes).toEqual(hostileNames.map((name) => name.replace("\u202e", "\ufffd")));
  });
  test("is missed where it is missing", async () => {
    await expect(decode("MEMLAB_DATA")).rejects.toBeInstanceOf(NoData);
    await expect(decode("")).rejects.toBeInstanceOf(NoData);
    await expect(decode("AAAA")).rejects.toThrow();
    await expect(
      decode(dataOf(withData("<s>MEMLAB_DATA</s>", { ...single({ steps: 1, moments: 9 }), version: 3 as 2 }))),
    ).rejects.toThrow("version 3");
  });
  test("cannot turn the direction of text", () => {
    expect(JSON.parse(withoutDirections('["\u202ea", "\\u202Eb", "\\\\u202ec"]'))).toEqual([
      "\ufffda",
      "\ufffdb",
      "\\u202ec",
    ]);
  });
});

test("lowerBound", () => {
  expect([0, 1, 2, 3, 5].map((value) => lowerBound([1, 2, 2, 4], value))).toEqual([0, 0, 1, 3, 4]);
});

describe("callers and callees", () => {
  const values = model.sites.allocatedBytes;
  const use = (site: number) => model.sites.device[site] === 0;
  const options = { use, showSkipped: false, skip: null };
  const frameOf = (name: string) => {
    for (const stack of model.sites.stacks)
      for (const frame of stack) if (model.sites.functionName(frame) === name) return frame;
    throw new Error(`no ${name}`);
  };
  const sumOf = (calls: { value: number }[]) => calls.reduce((sum, call) => sum + call.value, 0);

  test("each site counts once, above and below", () => {
    const calls = callsOf(model.sites, values, frameOf("train_step"), options);
    let total = 0;
    for (let site = 0; site < model.sites.count; ++site)
      if (use(site) && model.sites.stacks[site]!.some((frame) => model.sites.functionName(frame) === "train_step"))
        total += values[site]!;
    expect(calls.total).toBe(total);
    expect(sumOf(calls.callers)).toBe(total);
    expect(sumOf(calls.callees) + calls.own).toBe(total);
    expect(calls.callers.map((call) => model.sites.functionName(call.frame))).toEqual(["main"]);
    const callees = calls.callees.map((call) => model.sites.functionName(call.frame));
    expect(callees).toContain("GPT.forward");
    expect(callees).toContain("Tensor.backward");
  });

  test("the outermost call has no caller; what allocates by itself has no callee", () => {
    const start = callsOf(model.sites, values, frameOf("_start"), options);
    expect(start.callers).toEqual([{ frame: -1, value: start.total }]);
    const leaf = callsOf(model.sites, values, frameOf("Trainer.remember_loss"), options);
    expect(leaf.callees).toEqual([]);
    expect(leaf.own).toBe(leaf.total);
  });
});

describe("metrics", () => {
  const figures = model.figures(60);
  const rows = places(model.sites, figures, null, { use: () => true, skip: null });
  test.each(metrics.map((metric) => [metric.name, metric] as const))(
    "%s of places is that of their sites",
    (_, metric) => {
      const ofPlaces = rows.reduce((sum, row) => sum + metric.place(row), 0);
      let ofSites = 0;
      for (let site = 0; site < model.sites.count; ++site) ofSites += metric.site(model.sites, site, figures);
      expect(ofPlaces).toBe(ofSites);
      expect(ofPlaces).toBeGreaterThan(0);
    },
  );
  test("what holds nothing now counts in the run", () => {
    expect(rows.some((row) => row.bytes === 0 && row.allocatedBytes > 0)).toBe(true);
    const inTheRun = rows.reduce((sum, row) => sum + row.allocatedBytes, 0);
    expect(inTheRun).toBe(source.sites.allocated_bytes.reduce((sum, bytes) => sum + bytes, 0));
  });
});

describe("over time", () => {
  test("each stretch is drawn as it was when most was held", () => {
    const totals = model.totals(0);
    const highest = model.highestMoments(totals);
    highest.forEach((moment, stretch) => {
      const within = [...model.moments.keys()].filter(
        (m) => Math.floor(model.moments[m]! / source.moment_ns) === stretch,
      );
      if (within.length > 0) expect(totals[moment]).toBe(Math.max(...within.map((m) => totals[m]!)));
    });
  });
  test("of a report alone nothing is known, nor in a gap", () => {
    const alone = new RecordingModel({ ...source, moment_ns: 0 });
    expect(alone.knownOverTime).toBe(false);
    expect(alone.highestMoments(alone.totals(0)).length).toBe(0);
    const cut = new RecordingModel({ ...source, gap: [100, 200] });
    expect([cut.inGap(100), cut.inGap(150), cut.inGap(200), model.inGap(150)]).toEqual([false, true, false, false]);
  });
  test("is by place where no framework tells categories", () => {
    expect(usualGrouping(model.sites, 0)).toBe("category");
    const plain = new RecordingModel({
      ...source,
      sites: { ...source.sites, category: source.sites.category.map(() => -1) },
    });
    expect(usualGrouping(plain.sites, 0)).toBe("place");
  });
});

describe("the choice of another place", () => {
  // Ranks of report/symbols/stack_frame.hpp, and named: a line of one's own, a function without one, CUDA.
  const own = 1 + 16;
  const library = 5 + 16;
  const cuda = 10 + 16;
  const choose = (choice: number[], skip: number[]) =>
    chooseFrame(
      Uint8Array.from(choice),
      Int32Array.from(choice, (_, i) => i),
      Uint8Array.from(choice, (_, i) => (skip.includes(i) ? 1 : 0)),
    );
  test("is the best of the callers of what is skipped", () => {
    expect(choose([own, own, library, cuda], [])).toBe(1);
    expect(choose([own, own, library, cuda], [1])).toBe(0);
    expect(choose([own, library, own, library, cuda], [2])).toBe(0);
    // Never a callee: without a caller that is left it stays.
    expect(choose([own, library, cuda], [0])).toBe(0);
    expect(choose([own, own, cuda], [0, 1])).toBe(1);
  });
});
