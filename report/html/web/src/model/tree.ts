// The calls of all sites merged into one tree, as a flame graph draws it: top-down from the outermost call, or
// bottom-up from the place that allocated; both below other levels, where there are any. Weights may be changes, which are
// signed.
import type { SiteTable } from "./site_table";

export interface TreeOptions {
  bottomUp: boolean;
  showSkipped: boolean; // frames of allocators and containers, hidden by default
  skip: Uint8Array | null; // more frames to leave out
  use: (site: number) => boolean; // which sites count
  levels?: (site: number) => { key: string; label: string }[]; // above the calls
}

// Nodes in depth-first order, the children of a node by weight, the largest first. Node 0 is the root.
export interface CallTree {
  frame: Int32Array; // -1: the root or a level above the calls
  label: (string | null)[]; // of nodes without a frame
  parent: Int32Array;
  depth: Int32Array;
  next: Int32Array; // the node after the node's last descendant
  weight: Float64Array; // what the node's width stands for: never negative
  value: Float64Array; // what it holds, or by how much it changed
  blocks: Float64Array;
  maxDepth: number;
}

interface Building {
  frame: number;
  label: string | null;
  children: Map<number | string, Building>;
  weight: number;
  value: number;
  blocks: number;
}

// `values` and `blocks` are of the sites; a site's width is the absolute value.
export function buildTree(
  table: SiteTable,
  values: Float64Array,
  blocks: Float64Array,
  options: TreeOptions,
): CallTree {
  const make = (frame: number, label: string | null): Building => ({
    frame,
    label,
    children: new Map(),
    weight: 0,
    value: 0,
    blocks: 0,
  });
  const root = make(-1, null);
  let nodes = 1;
  for (let site = 0; site < table.count; ++site) {
    const value = values[site]!;
    if (value === 0 || !options.use(site)) continue;
    let at = root;
    const add = () => {
      at.weight += Math.abs(value);
      at.value += value;
      at.blocks += blocks[site]!;
    };
    const down = (key: number | string, frame: number, label: string | null) => {
      let child = at.children.get(key);
      if (!child) {
        child = make(frame, label);
        at.children.set(key, child);
        ++nodes;
      }
      at = child;
      add();
    };
    add();
    for (const { key, label } of options.levels?.(site) ?? []) down(`level ${key}`, -1, label);
    const shown = table.shown(site, options.showSkipped, options.skip);
    if (table.stacks[site]!.length === 0) down("others", -1, "[other call sites]");
    if (options.bottomUp) shown.reverse();
    for (const frame of shown) down(table.reads[frame]!, table.reads[frame]!, null);
  }
  return flatten(root, nodes);
}

function flatten(root: Building, nodes: number): CallTree {
  const tree: CallTree = {
    frame: new Int32Array(nodes),
    label: new Array<string | null>(nodes).fill(null),
    parent: new Int32Array(nodes).fill(-1),
    depth: new Int32Array(nodes),
    next: new Int32Array(nodes),
    weight: new Float64Array(nodes),
    value: new Float64Array(nodes),
    blocks: new Float64Array(nodes),
    maxDepth: 0,
  };
  let made = 0;
  const visit = (node: Building, parent: number, depth: number) => {
    const id = made++;
    tree.frame[id] = node.frame;
    tree.label[id] = node.label;
    tree.parent[id] = parent;
    tree.depth[id] = depth;
    tree.weight[id] = node.weight;
    tree.value[id] = node.value;
    tree.blocks[id] = node.blocks;
    tree.maxDepth = Math.max(tree.maxDepth, depth);
    for (const child of [...node.children.values()].sort((a, b) => b.weight - a.weight)) visit(child, id, depth + 1);
    tree.next[id] = made;
  };
  visit(root, -1, 0);
  return tree;
}
