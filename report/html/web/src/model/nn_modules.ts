// What PyTorch's nn.Modules hold, by qualified name, as `memlab-report nn-modules` adds it up.
import { globExpression } from "./glob";
import type { Figures, RecordingModel } from "./recording";
import type { SiteTable } from "./site_table";

export const outsideNnModules = "[of no nn.Module]";
export const unnamedNnModules = "[nn.Modules without a name]";

export interface NnModuleShare {
  bytes: number;
  blocks: number;
  categories: Map<string, number>; // bytes
}

// One, or several of one name. What it holds is with those within.
export interface NnModule extends NnModuleShare {
  name: string; // qualified; empty: the outermost
  className: string; // empty: unknown, or several
  depth: number;
  own: NnModuleShare; // without those within
  children: NnModule[]; // largest first
}

export interface NnModules {
  outermost: NnModule; // of all that have names
  unnamed: NnModuleShare;
  unnamedCount: number;
  outside: NnModuleShare; // of none
  outsideSites: number[]; // that hold it
}

const maxDepth = 32; // components that are told apart

// "a.b.c": "a", "a.b", "a.b.c".
export function beginnings(name: string): string[] {
  const result: string[] = [];
  for (let end = 0; end < name.length;) {
    const dot = result.length + 1 === maxDepth ? -1 : name.indexOf(".", end + 1);
    end = dot < 0 ? name.length : dot;
    result.push(name.slice(0, end));
  }
  return result;
}

export const lastComponent = (name: string): string => name.slice(name.lastIndexOf(".") + 1);

// A name as comparisons take it: without what torch.compile, FSDP and checkpoint_wrapper put in, and a leading one of
// DistributedDataParallel.
export function comparedName(name: string): string {
  const wrappers = ["_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];
  const parts = name.split(".");
  if (parts.at(-1) === "") parts.pop();
  let compared = "";
  for (const part of parts)
    if (!wrappers.includes(part) && (compared !== "" || part !== "module")) compared += (compared && ".") + part;
  return compared;
}

// Whether a pattern names an nn.Module or one around it, with or without the first part of the name.
export function nnModuleMatcher(pattern: string): (name: string) => boolean {
  const expression = globExpression(comparedName(pattern));
  return (name) => {
    let around = comparedName(name);
    const root = around.indexOf(".") + 1;
    for (;;) {
      if (around === "") return false;
      if (expression.test(around) || (root > 0 && around.length > root && expression.test(around.slice(root))))
        return true;
      const last = around.lastIndexOf(".");
      if (last < 0) return false;
      around = around.slice(0, last);
    }
  };
}

// The class of those of a name; empty where they are of several, or it is not known.
function classes(table: SiteTable): Map<string, string> {
  const known = new Map<string, string>();
  for (const { name, className } of table.nnModules)
    if (name !== null && className !== null)
      known.set(name, (known.get(name) ?? className) === className ? className : "");
  return known;
}

const emptyShare = (): NnModuleShare => ({ bytes: 0, blocks: 0, categories: new Map() });

// The nn.Modules that hold something at the moment of the figures.
export function nnModulesOf(table: SiteTable, figures: Figures, use: (site: number) => boolean): NnModules {
  const className = classes(table);
  const make = (name: string, depth: number): NnModule => ({
    ...emptyShare(),
    name,
    className: className.get(name) ?? "",
    depth,
    own: emptyShare(),
    children: [],
  });
  const outermost = make("", 0);
  const known = new Map<string, NnModule>([["", outermost]]);
  const unnamed = emptyShare();
  const without = new Set<number>();
  const outside = emptyShare();
  const outsideSites: number[] = [];
  const paths = table.nnModules.map(({ name }) => (name === null ? [] : beginnings(name)));
  for (let site = 0; site < table.count; ++site) {
    const bytes = figures.bytes[site]!;
    const blocks = figures.blocks[site]!;
    if ((bytes === 0 && blocks === 0) || !use(site)) continue;
    const category = table.text(table.category[site]!);
    const add = (to: NnModuleShare) => {
      to.bytes += bytes;
      to.blocks += blocks;
      to.categories.set(category, (to.categories.get(category) ?? 0) + bytes);
    };
    const index = table.nnModule[site]!;
    if (index < 0) {
      add(outside);
      outsideSites.push(site);
    } else if (table.nnModules[index]!.name === null) {
      add(unnamed);
      without.add(index);
    } else {
      let at = outermost;
      add(at);
      for (const name of paths[index]!) {
        let child = known.get(name);
        if (!child) {
          child = make(name, at.depth + 1);
          known.set(name, child);
          at.children.push(child);
        }
        at = child;
        add(at);
      }
      add(at.own);
    }
  }
  for (const one of known.values()) one.children.sort((a, b) => b.bytes - a.bytes);
  return { outermost, unnamed, unnamedCount: without.size, outside, outsideSites };
}

// Whether a name of memory is that of an nn.Module's: by the rules of trace/aggregate/nn_module_owner.hpp. `known`: the
// qualified names of nn.Modules; "" is the outermost.
export function belongsToNnModule(label: string, known: ReadonlySet<string>): boolean {
  const tied = label.includes("+");
  const name = label.split("+", 1)[0]!;
  const first = name.indexOf(".");
  const byClass = first >= 0 && /^[A-Z]/.test(name);
  const behindClass = byClass ? name.slice(first + 1) : "";
  for (let beginning of [name, behindClass])
    for (let end = beginning.lastIndexOf("."); end > 0; end = beginning.lastIndexOf(".")) {
      beginning = beginning.slice(0, end);
      if (known.has(beginning)) return true;
    }
  const second = behindClass.indexOf(".");
  const isOwn = first < 0 || name.slice(first) === ".grad";
  const isState = byClass && (second >= 0 || tied);
  const own = isOwn
    ? name.slice(0, first < 0 ? undefined : first)
    : behindClass.slice(0, second < 0 ? undefined : second);
  return (isOwn || isState) && /^[A-Za-z_][A-Za-z0-9_]*$/.test(own) && known.has("");
}

// The names of memory of no nn.Module, those first under which most lives at the end; as `memlab-report nn-modules` has
// them.
export function namesOutside(model: RecordingModel, found: NnModules): string[] {
  const known = new Set(model.sites.nnModules.flatMap(({ name }) => (name === null ? [] : [name])));
  return model.labelsOf(found.outsideSites, (name) => !belongsToNnModule(name, known)).map(([name]) => name);
}

export interface Level {
  key: string;
  label: string;
}

// The nn.Modules around each one, outermost first, as levels of a graph.
export function nnModuleLevels(table: SiteTable): (site: number) => Level[] {
  const className = classes(table);
  const level = (name: string): Level => {
    const of = className.get(name) ?? "";
    const own = name === "" ? (of ? "" : "outermost") : lastComponent(name);
    return { key: `nn.Module ${name}`, label: own && of ? `${own}: ${of}` : own || of };
  };
  const single = (label: string): Level[] => [{ key: label, label }];
  const levels = table.nnModules.map(({ name }) =>
    name === null ? single(unnamedNnModules) : ["", ...beginnings(name)].map(level),
  );
  const outside = single(outsideNnModules);
  return (site) => levels[table.nnModule[site]!] ?? outside;
}

// Whose a site is, by names of so many components at most.
export function nnModuleName(table: SiteTable, site: number, depth: number): string {
  const of = table.nnModules[table.nnModule[site]!];
  if (!of) return outsideNnModules;
  if (of.name === null) return unnamedNnModules;
  const path = beginnings(of.name);
  const name = path[Math.min(depth, path.length) - 1] ?? "";
  return comparedName(name) || (name === of.name && of.className) || "outermost";
}

// The most components that a name has.
export function deepestNnModule(table: SiteTable): number {
  return table.nnModules.reduce((most, { name }) => Math.max(most, name === null ? 0 : beginnings(name).length), 0);
}
