// Two recordings on one table of sites, matched as `memlab-report diff` does: by the functions and base file names of the
// calls that the views show, and by the kind of memory. Lines and folders are ignored: code moves, and checkouts differ.
// Frames without names match where library and offset are the same.
import { basename } from "./format";
import { named } from "./frame_choice";
import { comparedName } from "./nn_modules";
import { curveDevice, type Figures, onDevice, type RecordingModel } from "./recording";
import { frameArrays, type Frames, type NnModuleName, SiteTable } from "./site_table";

export interface Union {
  table: SiteTable;
  of: [Int32Array, Int32Array]; // the site of the union for each site of the first and of the second recording
}

// Which devices are compared: `memlab-report diff` says where their indices differ.
export class DevicePairs {
  private readonly inBefore = new Map<number, number>(); // by index in the recording after
  private readonly inAfter = new Map<number, number>();

  constructor(diff?: unknown) {
    const { devices } = (diff ?? { devices: [] }) as { devices: { index: number; index_before?: number }[] };
    for (const { index, index_before } of devices)
      if (index_before !== undefined) {
        this.inBefore.set(index, index_before);
        this.inAfter.set(index_before, index);
      }
  }

  before(device: number): number {
    const found = this.inBefore.get(curveDevice(device));
    return found === undefined ? device : onDevice(device, found);
  }

  after(device: number): number {
    const found = this.inAfter.get(curveDevice(device));
    return found === undefined ? device : onDevice(device, found);
  }
}

// By which frames of both are the same.
function frameKey(table: SiteTable, frame: number): string {
  const { choice } = table.frames;
  const file = table.file(frame);
  const place = file ? basename(file) : table.moduleName(frame);
  return choice[frame]! & named || file ? `${table.functionName(frame)}\n${place}` : table.functionName(frame);
}

class Merged {
  private readonly strings: string[] = [];
  private readonly stringIds = new Map<string, number>();
  private readonly frameIds = new Map<string, number>();
  private readonly readIds = new Map<string, number>();
  private readonly siteIds = new Map<string, number>();
  private readonly frames: Record<keyof Frames, number[]> = {
    function: [],
    file: [],
    line: [],
    module: [],
    language: [],
    skipped: [],
    choice: [],
  };
  private readonly reads: number[] = [];
  private readonly stacks: Int32Array[] = [];
  private readonly columns = {
    place: [] as number[],
    through: [] as number[],
    kind: [] as number[],
    device: [] as number[],
    category: [] as number[],
    allocations: [] as number[],
    allocatedBytes: [] as number[],
    temporaries: [] as number[],
    leakedBytes: [] as number[],
    nnModule: [] as number[],
  };
  private readonly nnModules: NnModuleName[] = [];
  private readonly nnModuleIds = new Map<string, number>();

  private intern(text: string): number {
    let id = this.stringIds.get(text);
    if (id === undefined) this.stringIds.set(text, (id = this.strings.push(text) - 1));
    return id;
  }

  private frame(table: SiteTable, frame: number): number {
    const { frames } = table;
    const text = (index: number) => (index >= 0 ? this.intern(table.text(index)) : -1);
    const one = {
      function: text(frames.function[frame]!),
      file: text(frames.file[frame]!),
      line: frames.line[frame]!,
      module: text(frames.module[frame]!),
      language: frames.language[frame]!,
      skipped: frames.skipped[frame]!,
      choice: frames.choice[frame]!,
    };
    const key = Object.values(one).join(" ");
    let id = this.frameIds.get(key);
    if (id === undefined) {
      this.frameIds.set(key, (id = this.reads.length));
      for (const name of Object.keys(one) as (keyof Frames)[]) this.frames[name].push(one[name]);
      const same = frameKey(table, frame);
      const first = this.readIds.get(same);
      if (first === undefined) this.readIds.set(same, id);
      this.reads.push(first ?? id);
    }
    return id;
  }

  // As the names of nn.Modules are compared; those without a name are one.
  private nnModule(table: SiteTable, index: number): number {
    if (index < 0) return -1;
    const { name, className } = table.nnModules[index]!;
    const compared = name === null ? null : comparedName(name);
    const key = compared === null ? "null" : `${compared}\n${className ?? ""}`;
    let id = this.nnModuleIds.get(key);
    if (id === undefined) this.nnModuleIds.set(key, (id = this.nnModules.push({ name: compared, className }) - 1));
    return id;
  }

  add({ sites: table }: RecordingModel, deviceOf: (device: number) => number = (device) => device): Int32Array {
    return Int32Array.from({ length: table.count }, (_, site) => {
      const calls = table.shown(site, false, null).map((frame) => frameKey(table, frame));
      const { frame, through } = table.placeWith(site, null);
      const at = frame < 0 ? -1 : table.stacks[site]!.indexOf(frame);
      const kind = table.text(table.kind[site]!);
      const nnModule = this.nnModule(table, table.nnModule[site]!);
      const device = deviceOf(table.device[site]!);
      const key = `${device} ${nnModule} ${kind}\n${calls.join("\n\n")}`;
      let id = this.siteIds.get(key);
      if (id === undefined) {
        // The first one's stack stands for all that match it.
        this.siteIds.set(key, (id = this.stacks.length));
        this.stacks.push(table.stacks[site]!.map((one) => this.frame(table, one)));
        this.columns.place.push(at);
        this.columns.through.push(through ? this.intern(through) : -1);
        this.columns.kind.push(this.intern(kind));
        this.columns.device.push(device);
        this.columns.category.push(this.intern(table.text(table.category[site]!)));
        this.columns.allocations.push(0);
        this.columns.allocatedBytes.push(0);
        this.columns.temporaries.push(0);
        this.columns.leakedBytes.push(0);
        this.columns.nnModule.push(nnModule);
      }
      this.columns.allocations[id]! += table.allocations[site]!;
      this.columns.allocatedBytes[id]! += table.allocatedBytes[site]!;
      this.columns.temporaries[id]! += table.temporaries[site]!;
      this.columns.leakedBytes[id]! += table.leakedBytes[site]!;
      return id;
    });
  }

  table(): SiteTable {
    const { frames, columns } = this;
    return new SiteTable(
      this.strings,
      frameArrays(frames),
      {
        stacks: this.stacks,
        place: Int32Array.from(columns.place),
        through: Int32Array.from(columns.through),
        kind: Int32Array.from(columns.kind),
        device: Int32Array.from(columns.device),
        category: Int32Array.from(columns.category),
        allocations: Float64Array.from(columns.allocations),
        allocatedBytes: Float64Array.from(columns.allocatedBytes),
        temporaries: Float64Array.from(columns.temporaries),
        leakedBytes: Float64Array.from(columns.leakedBytes),
        nnModule: Int32Array.from(columns.nnModule),
        nnModules: this.nnModules,
      },
      Int32Array.from(this.reads),
    );
  }
}

// Devices are those of the recording after.
export function unite(before: RecordingModel, after: RecordingModel, pairs: DevicePairs): Union {
  const merged = new Merged();
  // The later recording first, so that lines are those of the newer sources.
  const ofAfter = merged.add(after);
  const ofBefore = merged.add(before, (device) => pairs.after(device));
  return { table: merged.table(), of: [ofBefore, ofAfter] };
}

// Figures of one of the recordings on the sites of the union: of its sites that are used.
export function onUnion(
  union: Union,
  which: 0 | 1,
  figures: Figures,
  use: (site: number) => boolean = () => true,
): Figures {
  const result = { bytes: new Float64Array(union.table.count), blocks: new Float64Array(union.table.count) };
  union.of[which].forEach((to, site) => {
    if (!use(site)) return;
    result.bytes[to]! += figures.bytes[site]!;
    result.blocks[to]! += figures.blocks[site]!;
  });
  return result;
}
