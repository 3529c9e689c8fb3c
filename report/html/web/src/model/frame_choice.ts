// The frame that stands for a call site where the reader of the page skips more frames than the recording's own choice
// did: the same choice as choose_frame() of report/symbols/frame_choice.cpp makes with --skip.

// FrameRank of report/symbols/stack_frame.hpp: the least is the best.
const startup = 9;
const cuda = 10;

// Of frames.choice, beside the rank (report/html/page_code.hpp).
export const named = 16;
const backwardOperator = 32;
const forwardMarker = 64;
const skippedAlready = 128;

export const isOfBackward = (choice: number): boolean => (choice & (backwardOperator | forwardMarker)) !== 0;

const rankOf = (choice: number): number => choice & 15;

// `stack`: frames, outermost first. Returns an index into it, or -1 for an empty one.
export function chooseFrame(choice: Uint8Array, stack: Int32Array, skip: Uint8Array): number {
  const isSkipped = (frame: number) => skip[frame] === 1 || (choice[frame]! & skippedAlready) !== 0;
  const mayBe = (frame: number) => rankOf(choice[frame]!) < startup && isSkipped(frame);
  // Stripped internals of a static runtime: what is nearer to the leaf than a CUDA frame is CUDA's, too.
  let begin = stack.length - 1;
  for (let i = stack.length - 1; i >= 0; --i) {
    if (rankOf(choice[stack[i]!]!) === cuda) begin = i - 1;
    else if (choice[stack[i]!]! & named) break;
  }
  const best = (from: number, skippedToo: boolean): number => {
    let found = -1;
    let rank = cuda;
    for (let i = from; i >= 0; --i) {
      const frame = stack[i]!;
      if ((skippedToo || !mayBe(frame)) && rankOf(choice[frame]!) < rank) {
        found = i;
        rank = rankOf(choice[frame]!);
      }
    }
    return found;
  };
  const chosen = best(begin, true);
  if (chosen < 0) return stack.length - 1;
  if (!mayBe(stack[chosen]!)) return chosen;
  const caller = best(chosen - 1, false);
  return caller >= 0 && rankOf(choice[stack[caller]!]!) < startup ? caller : chosen;
}

// The frames between the chosen one and the leaf that a stack of PyTorch's backward has: the operator and the marker.
export function backwardOf(choice: Uint8Array, stack: Int32Array, chosen: number): { marker: number; node: number } {
  let node = -1;
  for (let i = stack.length - 1; i > chosen; --i) {
    if (choice[stack[i]!]! & forwardMarker) return { marker: i, node };
    if (node < 0 && choice[stack[i]!]! & backwardOperator) node = i;
  }
  return { marker: -1, node: -1 };
}

// The library between the chosen frame and CUDA, as an index into the stack; -1: the call is direct.
export function libraryBetween(
  frames: { choice: Uint8Array; module: Int32Array; language: Uint8Array },
  stack: Int32Array,
  chosen: number,
): number {
  const isCuda = (i: number) => rankOf(frames.choice[stack[i]!]!) === cuda;
  const module = (i: number) => frames.module[stack[i]!]!;
  if (frames.language[stack[chosen]!] === 1) {
    for (let i = stack.length - 1; i > chosen; --i) if (module(i) >= 0 && !isCuda(i)) return i;
    return -1;
  }
  for (let i = chosen + 1; i < stack.length; ++i) {
    if (isCuda(i)) return -1;
    if (module(i) >= 0 && module(i) !== module(chosen)) return i;
  }
  return -1;
}
