"""A kernel of Triton's, compiled for several block sizes: each is a module of its own, new at its first launch. Exit code
77 where Triton finds no C compiler for its launchers."""

import os
import shutil
import sys

if not (os.environ.get("CC") or any(shutil.which(name) for name in ("gcc", "clang", "cc"))):
    print("Triton needs a C compiler")
    sys.exit(77)

import torch  # noqa: E402  (slow, and of no use without a compiler)
import triton  # noqa: E402
import triton.language as tl  # noqa: E402


@triton.jit
def add(left, right, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    total = tl.load(left + at, mask=inside) + tl.load(right + at, mask=inside)
    tl.store(out + at, total, mask=inside)


def main() -> None:
    count = 1 << 20
    left = torch.arange(count, device="cuda", dtype=torch.int32)
    right = torch.full_like(left, 3)
    for block in (128, 256, 512, 1024):
        out = torch.empty_like(left)
        add[(triton.cdiv(count, block),)](left, right, out, count, BLOCK=block)
        torch.cuda.synchronize()
        print(block, bool(torch.equal(out, left + right)))


main()
