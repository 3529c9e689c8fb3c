// Two recordings on one table of sites: call stacks are matched by the names in them, for lines move and addresses differ
// between builds.
import type { Figures, RecordingModel } from "./recording";
import { frameArrays, SiteTable } from "./recording";

export interface Union {
  table: SiteTable;
  of: [Int32Array, Int32Array]; // the site of the union for each site of the first and of the second recording
}

export function unite(before: RecordingModel, after: RecordingModel): Union {
  const strings: string[] = [];
  const stringIds = new Map<string, number>();
  const intern = (text: string): number => {
    let id = stringIds.get(text);
    if (id === undefined) {
      id = strings.length;
      strings.push(text);
      stringIds.set(text, id);
    }
    return id;
  };
  const frames = {
    function: [] as number[],
    file: [] as number[],
    line: [] as number[],
    module: [] as number[],
    language: [] as number[],
    skipped: [] as number[],
  };
  const frameIds = new Map<string, number>();
  const stacks: Int32Array[] = [];
  const kind: number[] = [],
    device: number[] = [],
    category: number[] = [],
    allocations: number[] = [],
    allocated: number[] = [];
  const siteIds = new Map<string, number>();

  // The later recording first, so that lines are those of the newer sources.
  const addAll = (model: RecordingModel): Int32Array => {
    const table = model.sites;
    const frameOf = Int32Array.from(table.frames.function, (_, frame) => {
      const name = table.functionName(frame);
      const file = table.file(frame);
      const key = [name, file, table.moduleName(frame)].join("\n");
      let id = frameIds.get(key);
      if (id === undefined) {
        id = frames.function.length;
        frameIds.set(key, id);
        frames.function.push(intern(name));
        frames.file.push(file ? intern(file) : -1);
        frames.line.push(table.line(frame));
        frames.module.push(table.frames.module[frame]! >= 0 ? intern(table.text(table.frames.module[frame]!)) : -1);
        frames.language.push(table.frames.language[frame]!);
        frames.skipped.push(table.frames.skipped[frame]!);
      }
      return id;
    });
    return Int32Array.from(table.stacks, (stack, site) => {
      const of = stack.map((frame) => frameOf[frame]!);
      const key = `${table.device[site]} ${table.text(table.kind[site]!)} ${of.join(" ")}`;
      let id = siteIds.get(key);
      if (id === undefined) {
        id = stacks.length;
        siteIds.set(key, id);
        stacks.push(of);
        kind.push(intern(table.text(table.kind[site]!)));
        device.push(table.device[site]!);
        category.push(intern(table.text(table.category[site]!)));
        allocations.push(0);
        allocated.push(0);
      }
      allocations[id]! += table.allocations[site]!;
      allocated[id]! += table.allocatedBytes[site]!;
      return id;
    });
  };
  const ofAfter = addAll(after);
  const ofBefore = addAll(before);
  return {
    table: new SiteTable(
      strings,
      frameArrays(frames),
      stacks,
      Int32Array.from(kind),
      Int32Array.from(device),
      Int32Array.from(category),
      Float64Array.from(allocations),
      Float64Array.from(allocated),
    ),
    of: [ofBefore, ofAfter],
  };
}

// Figures of one of the recordings on the sites of the union.
export function onUnion(union: Union, which: 0 | 1, figures: Figures): Figures {
  const result = { bytes: new Float64Array(union.table.count), blocks: new Float64Array(union.table.count) };
  union.of[which].forEach((to, site) => {
    result.bytes[to]! += figures.bytes[site]!;
    result.blocks[to]! += figures.blocks[site]!;
  });
  return result;
}
