// Call sites with the frames of their stacks, and the place that each stands for.
import { basename } from "./format";
import { backwardOf, chooseFrame, isOfBackward, libraryBetween } from "./frame_choice";

export interface Frames {
  function: Int32Array;
  file: Int32Array;
  line: Int32Array;
  module: Int32Array;
  language: Uint8Array;
  skipped: Uint8Array;
  choice: Uint8Array;
}

export function frameArrays(frames: Record<keyof Frames, number[]>): Frames {
  return {
    function: Int32Array.from(frames.function),
    file: Int32Array.from(frames.file),
    line: Int32Array.from(frames.line),
    module: Int32Array.from(frames.module),
    language: Uint8Array.from(frames.language),
    skipped: Uint8Array.from(frames.skipped),
    choice: Uint8Array.from(frames.choice),
  };
}

export interface SiteColumns {
  stacks: Int32Array[]; // frames, outermost first
  place: Int32Array; // an index into the stack, -1: none
  through: Int32Array; // into strings
  kind: Int32Array;
  device: Int32Array;
  category: Int32Array;
  allocations: Float64Array;
  allocatedBytes: Float64Array;
  temporaries: Float64Array;
  leakedBytes: Float64Array;
  nnModule: Int32Array; // into nnModules, -1: allocated in no call of one
  nnModules: NnModuleName[];
}

// One of PyTorch's nn.Modules. name: null where the program gave none; empty for the outermost one.
export interface NnModuleName {
  name: string | null;
  className: string | null;
}

// Where a site's memory is booked: a frame of its stack (-1: none), and what that allocated through.
export interface PlaceOfSite {
  frame: number;
  through: string;
}

// Call sites and the frames of their stacks. Two recordings that are compared share one (model/compare.ts).
export class SiteTable {
  readonly count: number;
  readonly stacks: Int32Array[]; // outermost first; frames that are the same are one
  readonly kind: Int32Array;
  readonly device: Int32Array;
  readonly category: Int32Array;
  readonly allocations: Float64Array;
  readonly allocatedBytes: Float64Array;
  readonly temporaries: Float64Array;
  readonly leakedBytes: Float64Array;
  readonly nnModule: Int32Array;
  readonly nnModules: NnModuleName[];
  readonly reads: Int32Array; // for each frame the first of the same text, be it skipped in some stacks or not
  private readonly placeAt: Int32Array;
  private readonly through: Int32Array;

  constructor(
    readonly strings: string[],
    readonly frames: Frames,
    columns: SiteColumns,
    reads: Int32Array = sameFrames(frames, false),
  ) {
    this.count = columns.stacks.length;
    const same = sameFrames(frames, true);
    this.reads = reads;
    this.stacks = columns.stacks.map((stack) => stack.map((frame) => same[frame]!));
    this.placeAt = columns.place;
    this.through = columns.through;
    this.kind = columns.kind;
    this.device = columns.device;
    this.category = columns.category;
    this.allocations = columns.allocations;
    this.allocatedBytes = columns.allocatedBytes;
    this.temporaries = columns.temporaries;
    this.leakedBytes = columns.leakedBytes;
    this.nnModule = columns.nnModule;
    this.nnModules = columns.nnModules;
  }

  text(index: number): string {
    return index >= 0 ? (this.strings[index] ?? "") : "";
  }

  // The frame that stands for the site, as the commands choose it; -1: it has no stack, or is the sum of those left out.
  place(site: number): number {
    const at = this.placeAt[site]!;
    return at >= 0 ? this.stacks[site]![at]! : -1;
  }

  private placeAtWith(site: number, skip: Uint8Array | null): number {
    const stack = this.stacks[site]!;
    return skip && stack.some((frame) => skip[frame] === 1)
      ? chooseFrame(this.frames.choice, stack, skip)
      : this.placeAt[site]!;
  }

  // The same where the reader skips frames, and what it allocated through: a library, or an operator's backward.
  placeWith(site: number, skip: Uint8Array | null): PlaceOfSite {
    const at = this.placeAtWith(site, skip);
    if (at === this.placeAt[site]) return { frame: this.place(site), through: this.text(this.through[site]!) };
    const stack = this.stacks[site]!;
    const backward = backwardOf(this.frames.choice, stack, at);
    if (backward.marker >= 0)
      return {
        frame: stack[at]!,
        through: backward.node >= 0 ? this.functionName(stack[backward.node]!) : "backward",
      };
    const library = libraryBetween(this.frames, stack, at);
    return { frame: stack[at]!, through: library >= 0 ? this.moduleName(stack[library]!) : "" };
  }

  // Whether it allocates in PyTorch's backward, for a line of the forward.
  isOfBackward(site: number): boolean {
    return backwardOf(this.frames.choice, this.stacks[site]!, this.placeAt[site]!).marker >= 0;
  }

  // The frames of a site's stack that the views show, outermost first. Beyond the place there are only the marks of
  // PyTorch's backward.
  shown(site: number, all: boolean, skip: Uint8Array | null): number[] {
    const stack = this.stacks[site]!;
    if (all) return [...stack];
    const at = this.placeAtWith(site, skip);
    const { skipped, choice } = this.frames;
    return [...stack].filter((frame, i) => {
      if (i === at) return true;
      if (skipped[frame] !== 0 || skip?.[frame] === 1) return false;
      return i < at || !skip || isOfBackward(choice[frame]!);
    });
  }

  functionName(frame: number): string {
    if (frame < 0) return "[other call sites]";
    return this.text(this.frames.function[frame]!) || this.moduleName(frame) || "[unknown]";
  }

  moduleName(frame: number): string {
    return frame < 0 ? "" : basename(this.text(this.frames.module[frame]!));
  }

  file(frame: number): string {
    return frame < 0 ? "" : this.text(this.frames.file[frame]!);
  }

  line(frame: number): number {
    return frame < 0 ? 0 : this.frames.line[frame]!;
  }

  // "train.py:12", or the library where no source line is known.
  location(frame: number, whole = false): string {
    const file = this.file(frame);
    // "libx.so+0x1a5e" has the library in it.
    if (!file)
      return frame >= 0 && this.moduleName(frame) && this.functionName(frame).startsWith(this.moduleName(frame))
        ? ""
        : this.moduleName(frame);
    const line = this.line(frame);
    return (whole ? file : basename(file)) + (line > 0 ? `:${line}` : "");
  }
}

// For each frame the first that reads the same: function, file, line, module, and with `all` whether it is skipped.
function sameFrames(frames: Frames, all: boolean): Int32Array {
  const first = new Map<string, number>();
  return Int32Array.from(frames.function, (name, frame) => {
    const key = `${name} ${frames.file[frame]} ${frames.line[frame]} ${frames.module[frame]} ${all ? frames.skipped[frame] : ""}`;
    const known = first.get(key);
    if (known === undefined) first.set(key, frame);
    return known ?? frame;
  });
}
