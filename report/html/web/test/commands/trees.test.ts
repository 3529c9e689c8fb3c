// The calls that led to memory, up and down, with the frames that are hidden and without: the page's tree against
// `memlab-report tree`; its source lines against `memlab-report lines`.
import { matchFrames, usedSites } from "../../src/model/filter";
import { linesOf } from "../../src/model/lines";
import { placeName } from "../../src/model/place_names";
import { buildTree } from "../../src/model/tree";
import { add, Comparison, type Rows } from "./differences";
import type { LinesReport, TreeReport } from "./documents";
import { everyRecording } from "./every_recording";
import { all, document, levels, random, type Recorded, reported } from "./memlab";
import { besideOf, open, type Page, patterns } from "./page";

interface Way {
  bottomUp: boolean;
  allFrames: boolean;
  filter: string;
  skip?: string;
}

// Each path of calls and what it holds. Downwards a command has one node for all lines of a function, and its lines
// below it: there paths are of functions and files.
function pageTree(
  page: Page,
  devices: number[],
  moment: number,
  { bottomUp, allFrames, filter, skip = "" }: Way,
): Rows {
  const table = page.model.sites;
  const figures = page.model.figures(moment);
  const used = devices.map((device) => usedSites(table, device, filter));
  const tree = buildTree(table, figures.bytes, figures.blocks, {
    bottomUp,
    showSkipped: allFrames,
    skip: matchFrames(table, skip, true),
    use: (site) => used.some((use) => use(site)),
  });
  const rows: Rows = new Map();
  const path: string[] = [];
  for (let node = 0; node < tree.frame.length; ++node) {
    const frame = tree.frame[node]!;
    const line = bottomUp && table.line(frame) > 0 ? `:${table.line(frame)}` : "";
    path.length = tree.depth[node]!;
    path.push(
      node === 0 ? "all" : frame < 0 ? "[unknown] " : `${table.functionName(frame)} ${table.file(frame)}${line}`,
    );
    if (tree.value[node] !== 0) add(rows, path.join(" < "), tree.value[node]!, tree.blocks[node]!);
  }
  return rows;
}

function commandTree(device: TreeReport["devices"][number], at: "at_peak" | "live", bottomUp: boolean): Rows {
  const rows: Rows = new Map();
  const path: string[] = [];
  for (const node of device.nodes) {
    path.length = node.depth;
    const line = bottomUp && node.line ? `:${node.line}` : "";
    path.push(node.depth === 0 ? "all" : `${placeName(node)} ${node.file ?? ""}${line}`);
    if (!node.self && node[`${at}_bytes`] !== 0) add(rows, path.join(" < "), node[`${at}_bytes`], node[`${at}_count`]);
  }
  return rows;
}

async function trees(to: Comparison, page: Page, args: string[], way: Way, what: string): Promise<void> {
  for (const [sort, at] of [
    ["peak", "at_peak"],
    ["live", "live"],
  ] as const) {
    const found = await reported<TreeReport>(
      "tree",
      ...all,
      ...["--min", "0", "--sort", sort, way.bottomUp ? "--bottom-up" : "--top-down"],
      ...(way.allFrames ? ["--all-frames"] : []),
      ...(way.filter ? ["--filter", way.filter] : []),
      ...(way.skip ? ["--skip", way.skip] : []),
      ...args,
    );
    for (const device of found.devices) {
      const { index } = device;
      const beside = besideOf(page, index);
      const devices = at === "live" ? [index, ...beside] : [index];
      const moment = at === "live" ? page.end : page.peak(index);
      to.tables(
        what,
        `GPU ${index} ${at === "live" ? "at the end" : "at the peak"}`,
        ["bytes", "blocks"],
        pageTree(page, devices, moment, way),
        commandTree(device, at, way.bottomUp),
      );
    }
  }
}

// Figures of each line, and of what it called.
async function lines(to: Comparison, page: Page, path: string): Promise<void> {
  const table = page.model.sites;
  for (const { index } of page.model.devices) {
    if (index < 0 || index >= 1 << 20) continue;
    const beside = besideOf(page, index);
    const devices = [index, ...beside];
    const files = new Map<string, Map<number, number[]>>();
    for (const device of devices)
      for (const [moment, at] of [
        [page.peak(index), 0],
        [page.end, 1],
      ] as const) {
        if (at === 0 && device !== index) continue;
        for (const [file, { of }] of linesOf(table, page.model.figures(moment), device)) {
          const known = files.get(file) ?? new Map<number, number[]>();
          files.set(file, known);
          for (const line of of.values()) {
            const row = known.get(line.number) ?? [0, 0, 0, 0];
            known.set(line.number, row);
            row[at]! += line.held;
            if (at === 1) {
              row[2]! += line.allocated;
              row[3]! += line.allocations;
            }
          }
        }
      }
    for (const [file, of] of files) {
      if (!/\.(py|cpp|cu|c)$/.test(file)) continue;
      const level = page.model.device(index)?.short === `GPU ${index}` ? "driver" : "framework";
      const columns = ["at_peak", "live", "bytes", "count"].flatMap((column) => ["--column", column]);
      const which = ["--level", level, "--device", String(index)];
      const found = await document<{ reports: LinesReport[] }>("lines", ...columns, ...which, file, path);
      const rows: Rows = new Map();
      const several = new Set<string>(); // lines of several functions, which may be in one call stack: not to be added
      for (const report of (found?.reports ?? []).filter((one) => one.device === index))
        for (const each of report.groups.flatMap(({ functions }) => functions).filter((one) => one.file === file))
          for (const line of each.lines) {
            const key = `${file}:${line.line}`;
            if (rows.has(key)) several.add(key);
            const known = of.get(line.line);
            // null: beyond the largest sites, of which alone a recording knows what they held at the peak.
            if (line.at_peak === null && known) known[0] = 0;
            rows.set(key, [line.at_peak ?? 0, line.live, line.bytes, line.count]);
          }
      const shown: Rows = new Map();
      for (const [number, values] of of)
        if (values.some((value) => value !== 0)) shown.set(`${file}:${number}`, values);
      const what = level === "driver" ? "trees by source line" : "trees by source line of tensors";
      to.tables(what, `GPU ${index}`, ["at the peak", "at the end", "in the run", "allocations"], shown, rows, several);
    }
  }
}

async function check(recording: Recorded, seed: number): Promise<Comparison> {
  const to = new Comparison(recording.name, recording.seed);
  const { path } = recording;
  for (const level of await levels(path)) {
    const args = ["--level", level, path];
    const page = await open(...args);
    const way = { bottomUp: true, allFrames: false, filter: "" };
    await trees(to, page, args, way, "trees bottom-up");
    await trees(to, page, args, { ...way, bottomUp: false }, "trees top-down");
    if (level !== "all") continue;
    await trees(to, page, args, { ...way, allFrames: true }, "trees bottom-up of all frames");
    const filter = patterns(page.model.sites, random(seed)).find(({ form }) => form === "func=" || form === "module=");
    if (filter) await trees(to, page, args, { ...way, filter: filter.pattern }, "trees that match");
    for (const { form, pattern } of patterns(page.model.sites, random(seed + 1)))
      if (form === "func=" || form === "file=") {
        await trees(to, page, args, { ...way, skip: pattern }, `trees with --skip ${form}`);
        await trees(to, page, args, { ...way, skip: pattern, bottomUp: false }, `trees with --skip ${form}`);
      }
    await lines(to, page, path);
  }
  return to;
}

everyRecording("trees", check);
