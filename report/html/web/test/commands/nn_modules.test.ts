// PyTorch's nn.Modules: the page's tree and its sums by name against `memlab-report nn-modules`, `timeline --by nn-module`
// and `sites --by nn-module`, also with filters.
import { usedSites } from "../../src/model/filter";
import { groupsOf } from "../../src/model/groups";
import {
  comparedName,
  lastComponent,
  namesOutside,
  type NnModule,
  nnModuleLevels,
  nnModuleName,
  nnModulesOf,
  type NnModuleShare,
} from "../../src/model/nn_modules";
import { sumOf } from "../../src/model/places";
import { buildTree } from "../../src/model/tree";
import { add, Comparison, type Rows } from "./differences";
import type { NnModulesReport, NnModulesTimeline, SitesReport } from "./documents";
import { everyRecording } from "./every_recording";
import { all, levels, random, type Recorded, reported } from "./memlab";
import { besideOf, open, type Page } from "./page";

const held = ["bytes", "blocks"];

// The categories of a row, as the command has them; without any it tells of none.
function categoriesOf(share: NnModuleShare): Record<string, number> {
  return Object.fromEntries([...share.categories].filter(([name, bytes]) => name !== "" && bytes !== 0));
}

const withoutZeros = (categories: Record<string, number> | null): Record<string, number> =>
  Object.fromEntries(Object.entries(categories ?? {}).filter(([, bytes]) => bytes !== 0));

function sameCategories(
  to: Comparison,
  row: string,
  share: NnModuleShare,
  command: Record<string, number> | null,
): void {
  const page = categoriesOf(share);
  const wanted = withoutZeros(command);
  for (const name of new Set([...Object.keys(page), ...Object.keys(wanted)]))
    to.same("nn_modules by category", `${row}: ${name}`, page[name] ?? 0, wanted[name] ?? 0);
}

// The tree at the peak of each device: every nn.Module, what is its own, parents before their children.
function trees(to: Comparison, page: Page, report: NnModulesReport): void {
  const table = page.model.sites;
  for (const { index } of page.model.devices.filter((one) => one.index < 1 << 20)) {
    const found = nnModulesOf(table, page.model.figures(page.peak(index)), usedSites(table, index, ""));
    const command = report.devices.find((one) => one.index === index);
    const what = "nn_modules as a tree";
    const inside = found.outermost.blocks + found.unnamed.blocks;
    to.same(what, `GPU ${index} is there`, String(inside > 0), String(command !== undefined));
    if (!command) continue;
    const rows: Rows = new Map();
    const wanted: Rows = new Map();
    const known = new Map<string, NnModule>();
    const walk = (module: NnModule) => {
      add(rows, module.name, module.bytes, module.blocks, module.own.bytes, module.own.blocks);
      known.set(module.name, module);
      module.children.forEach(walk);
    };
    if (found.outermost.blocks > 0) walk(found.outermost);
    for (const one of command.nn_modules) {
      add(wanted, one.name, one.bytes, one.count, one.own_bytes, one.own_count);
      const module = known.get(one.name);
      if (!module) continue;
      sameCategories(to, `GPU ${index} ${one.name}`, module, one.categories);
      // Of several by one name the page knows those that hold nothing at the peak, too.
      if (one.class && module.className !== "") to.same(what, `${one.name}: class`, module.className, one.class);
    }
    to.tables(what, `GPU ${index}`, ["bytes", "blocks", "own bytes", "own blocks"], rows, wanted);
    to.same(what, `GPU ${index}: rows`, known.size, command.nn_modules.length);
    to.same(what, `GPU ${index}: unnamed`, found.unnamedCount, command.unnamed.nn_modules);
    for (const [name, share, of] of [
      ["unnamed", found.unnamed, command.unnamed],
      ["outside", found.outside, command.outside],
    ] as const) {
      to.same(what, `GPU ${index} ${name}: bytes`, share.bytes, of.bytes);
      to.same(what, `GPU ${index} ${name}: blocks`, share.blocks, of.count);
      sameCategories(to, `GPU ${index} ${name}`, share, of.categories);
    }
    const names = (command.outside.labels ?? []).map(({ name, detail }) => (detail ? `${name}  ${detail}` : name));
    to.same(
      "names of memory of no nn.Module",
      `GPU ${index}`,
      JSON.stringify(namesOutside(page.model, found).sort()),
      JSON.stringify(names.sort()),
    );
    to.same(
      what,
      `GPU ${index}: all`,
      found.outermost.bytes + found.unnamed.bytes + found.outside.bytes,
      command.peak_bytes,
    );
    // A graph that has them above the calls is of the same bytes.
    const { bytes, blocks } = page.model.figures(page.peak(index));
    const graph = buildTree(table, bytes, blocks, {
      bottomUp: false,
      showSkipped: false,
      skip: null,
      use: usedSites(table, index, ""),
      levels: nnModuleLevels(table),
    });
    to.same("nn_modules in a graph", `GPU ${index}: all`, graph.value[0]!, command.peak_bytes);
    const top = (label: (text: string) => boolean) => {
      let sum = 0;
      for (let node = 1; node < graph.frame.length; node = graph.next[node]!)
        if (label(graph.label[node] ?? "")) sum += graph.value[node]!;
      return sum;
    };
    to.same(
      "nn_modules in a graph",
      `GPU ${index}: named`,
      top((text) => !text.startsWith("[")),
      found.outermost.bytes,
    );
  }
}

// What is held of each name, without those within: a row of `--by nn-module`.
function byName(page: Page, devices: number[], moment: number, filter = ""): Rows {
  const table = page.model.sites;
  const { bytes, blocks } = page.model.figures(moment);
  const rows: Rows = new Map();
  for (const device of devices) {
    const use = usedSites(table, device, filter);
    for (let site = 0; site < table.count; ++site)
      if (use(site) && blocks[site]! > 0) add(rows, nnModuleName(table, site, Infinity), bytes[site]!, blocks[site]!);
  }
  return rows;
}

function atMoment(
  to: Comparison,
  what: string,
  page: Page,
  moment: (device: number) => number,
  { at }: NnModulesTimeline,
  when: string,
  filter = "",
): void {
  for (const device of at?.devices ?? []) {
    const wanted: Rows = new Map();
    for (const row of device.sites) add(wanted, row.nn_module, row.bytes, row.count);
    to.tables(
      what,
      `GPU ${device.index} ${when}`,
      held,
      byName(page, [device.index], moment(device.index), filter),
      wanted,
    );
  }
}

// Rows, and the sum of the places that match, with a filter by name.
async function filtered(to: Comparison, page: Page, args: string[], filter: string): Promise<void> {
  const [rows, some] = await Promise.all([
    reported<SitesReport<{ nn_module: string }>>("sites", ...all, "--by", "nn-module", "--filter", filter, ...args),
    reported<SitesReport>("sites", ...all, "--filter", filter, ...args),
  ]);
  for (const { index, sites } of rows.devices) {
    const beside = [index, ...besideOf(page, index)];
    for (const [when, moment, devices] of [
      ["at_peak", page.peak(index), [index]],
      ["live", page.end, beside],
    ] as const) {
      const wanted: Rows = new Map();
      for (const row of sites) add(wanted, row.nn_module, row[`${when}_bytes`], row[`${when}_count`]);
      for (const [name, [, blocks]] of wanted) if (blocks === 0) wanted.delete(name);
      const name = `GPU ${index} ${when} ${filter}`;
      to.tables("nn_modules by name", name, held, byName(page, [...devices], moment, filter), wanted);
      const taken = some.devices.find((one) => one.index === index)!.taken;
      const sum = sumOf(devices.flatMap((of) => page.places(of, moment, { filter })));
      to.same("nn_modules that match", `${name}: bytes`, sum.bytes, taken[`${when}_bytes`]);
      to.same("nn_modules that match", `${name}: blocks`, sum.blocks, taken[`${when}_count`]);
    }
  }
}

// What Over time draws by nn.Module, to any depth, is the device's curve.
function overTime(to: Comparison, page: Page): void {
  for (const { index, short } of page.model.devices)
    for (const depth of [0, 1, 2, Infinity]) {
      const groups = groupsOf(page.model, { device: index, by: "nn-module", filter: "", depth }, [page.end], (moment) =>
        page.model.figures(moment),
      );
      page.model.totals(index).forEach((total, moment) => {
        const drawn = groups.reduce((sum, one) => sum + one.series[moment]!, 0);
        to.same("nn_modules over time", `${short} to depth ${depth}, moment ${moment}`, drawn, total);
      });
    }
}

// Of each form: a whole name, one with what is within, without its first part, patterns, one that is compared.
function patternsOf(page: Page, choice: (below: number) => number): string[] {
  const names = page.model.sites.nnModules.flatMap(({ name }) => (name ? [name] : []));
  if (names.length === 0) return [];
  const one = () => names[choice(names.length)]!;
  const compared = comparedName(one());
  return [
    one(),
    compared,
    compared.slice(compared.indexOf(".") + 1),
    one().split(".").slice(0, 2).join("."),
    `*${lastComponent(one())}`,
    `${compared.slice(0, 3)}*`,
    `?${compared.slice(1)}`,
    `[${compared[0]}-z]${compared.slice(1)}`,
    "none of these",
  ].map((text) => `nn_module=${text}`);
}

async function check(recording: Recorded, seed: number): Promise<Comparison> {
  const to = new Comparison(recording.name, recording.seed);
  const { path, alone } = recording;
  const choice = random(seed);
  for (const level of await levels(path)) {
    const args = ["--level", level, path];
    const page = await open(...args);
    const { model } = page;
    trees(to, page, await reported<NnModulesReport>("nn-modules", ...args));
    if (model.source.nn_modules.name.length === 0) continue;
    const filters = ["kind=[ds]*", ...patternsOf(page, choice)];
    await Promise.all(filters.map((filter) => filtered(to, page, args, filter)));
    if (level !== "all" || alone) continue;
    overTime(to, page);
    const within = new Set(model.source.within);
    const times = new Set([
      0,
      model.moments.length - 2,
      ...Array.from({ length: 4 }, () => choice(model.moments.length)),
    ]);
    for (const moment of times) {
      // Of two moments of one time the second is what the command has.
      if (moment < 0 || within.has(moment) || model.moments[moment] === model.moments[moment + 1]) continue;
      const when = `${model.moments[moment]}ns`;
      const filter = filters[choice(filters.length)]!;
      const [every, some] = await Promise.all([
        reported<NnModulesTimeline>("timeline", ...all, "--at", when, "--by", "nn-module", path),
        reported<NnModulesTimeline>("timeline", ...all, "--at", when, "--by", "nn-module", "--filter", filter, path),
      ]);
      atMoment(to, "nn_modules at a moment", page, () => moment, every, when);
      atMoment(to, "nn_modules at a moment", page, () => moment, some, `${when} ${filter}`, filter);
    }
    const peak = await reported<NnModulesTimeline>("timeline", ...all, "--at", "peak", "--by", "nn-module", path);
    atMoment(to, "nn_modules at the peak", page, (device) => page.peak(device), peak, "at the peak");
  }
  return to;
}

everyRecording("nn_modules", check);
