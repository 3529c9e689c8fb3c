"""Checks that no pointer attribute of <cuda.h> is forgotten: memlab's hook says of each whether it corrects
it or lets it pass, and the transcripts of calls ask for each. A new toolkit may bring new ones.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NAME = re.compile(r"\bCU_POINTER_ATTRIBUTE_[A-Z0-9_]+\b")
# What must name each attribute: files, and the part of their text that counts.
PLACES = {
    "memlab's hook (query.cpp)": ([ROOT / "interpose/hooks/query.cpp"], re.compile(r"\bcase (CU_POINTER_ATTRIBUTE_\w+):")),
    "the transcripts of calls": (sorted((ROOT / "tests/conformance").glob("calls_*.cpp")), re.compile(f"({NAME.pattern})")),
}
# Those that older headers lack have a constant of memlab's own, which it compares with the newer headers' name.
NEWER = {f"mi::newer_cuda::{constant}": name for constant, name in re.findall(
    r"static_assert\((\w+) == (CU_POINTER_ATTRIBUTE_\w+)\)",
    (ROOT / "interpose/driver/newer_cuda.hpp").read_text(encoding="utf-8"))}


def text_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    for constant, name in NEWER.items():
        text = text.replace(constant, name)
    return text


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--header", type=Path, required=True, help="what tests/support/cuda_header.py wrote")
    arguments = parser.parse_args()
    attributes = set(json.loads(arguments.header.read_text(encoding="utf-8"))["pointer_attributes"])
    problems = []
    for place, (paths, pattern) in PLACES.items():
        named = {name for path in paths for name in pattern.findall(text_of(path))}
        problems += [f"{name} of <cuda.h> is not named by {place}" for name in sorted(attributes - named)]
    print("\n".join([*problems, f"{len(attributes)} attributes checked"]))
    return 1 if problems or len(attributes) < 21 else 0


if __name__ == "__main__":
    sys.exit(main())
