"""compare.py --build DIR [--library-path DIR] [--record DIR] PROGRAM...

Runs programs of CUDA calls (conformance_calls_*) group by group without memlab and with it, with and
without its pool, and demands the same transcript. --record writes what was seen without memlab to
DIR/PROGRAM.GROUP.txt; tests/data has what a GPU showed, and the simulated driver must show the same.

Prints a line a group; exit code 0 when all are the same, 1 otherwise, 2 when nothing could be run.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "programs"))

from harness import Layout, Outcome, run, without_warnings  # noqa: E402  (the path above)

VARIANTS = {"memlab": {}, "memlab, MEMLAB_POOL=off": {"MEMLAB_POOL": "off"},
            "memlab, MEMLAB_FREE_SYNC=never": {"MEMLAB_FREE_SYNC": "never"},
            "memlab, MEMLAB_BACKEND=vmm": {"MEMLAB_BACKEND": "vmm"}}


def groups(layout: Layout, program: str) -> list[str]:
    """The groups that a program names when it is run without arguments."""
    outcome = run([str(layout.program(program))], layout.environment(memlab=False), Path.cwd())
    return outcome.stdout.decode().split() if outcome.code == 0 else []


def unlike(title: str, expected: str, seen: str) -> list[str]:
    """What is different, with the call that it belongs to; empty when nothing is."""
    if expected == seen:
        return []
    lines = list(difflib.unified_diff(expected.splitlines(), seen.splitlines(), "plain CUDA", title,
                                      n=2, lineterm=""))
    return ["\n".join(lines[:60])]


# Of pages of its own memlab says the truth where plain CUDA's memory could do more: they have no legacy
# IPC handles (an export fails, in plain words), were not created for hardware decompression, and the
# driver refuses SYNC_MEMOPS for them.
TOLD_TRULY = re.compile(
    r"(IS_LEGACY_CUDA_IPC_CAPABLE: 0\n    it is: |IS_HW_DECOMPRESS_CAPABLE: 0\n    it is: "
    r"|cuPointerGetAttribute\(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p\): 0\n    it is: "
    r"|cuPointerSetAttribute\(&o\w+, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a[ 0-9+]*\): )(?:0|1|801)$", re.MULTILINE)


def comparable(settings: dict[str, str], transcript: str) -> str:
    """The transcript without what a variant may say otherwise."""
    return TOLD_TRULY.sub(r"\1?", transcript) if settings.get("MEMLAB_BACKEND") == "vmm" else transcript


def compare(layout: Layout, program: str, group: str, work: Path) -> tuple[Outcome, list[str]]:
    """The run without memlab, and how the runs with it differ."""
    command = [str(layout.program(program)), group]
    native = run(command, layout.environment(memlab=False), work, 120)
    problems = [] if native.code == 0 else [f"without memlab it {native.describe()}"]
    for number, (title, settings) in enumerate(VARIANTS.items()):
        environment = layout.environment(memlab=True, output=work / f"out{number}", settings=settings)
        under = run(command, environment, work, 120)
        problems += unlike(title, *(comparable(settings, outcome.stdout.decode()) for outcome in (native, under)))
        if under.code != native.code or without_warnings(under.stderr) != native.stderr:
            problems.append(f"{title}: it {under.describe()}")
    return native, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--library-path", action="append", default=[])
    parser.add_argument("--record", type=Path)
    parser.add_argument("program", nargs="+")
    arguments = parser.parse_args()
    layout = Layout(arguments.build.resolve(), arguments.library_path)
    ran, failed = 0, 0
    for program in arguments.program:
        for group in groups(layout, program):
            with tempfile.TemporaryDirectory(prefix="memlab-compare.") as folder:
                native, problems = compare(layout, program, group, Path(folder))
            name = f"{program}.{group}.txt"
            if arguments.record:
                arguments.record.mkdir(parents=True, exist_ok=True)
                (arguments.record / name).write_bytes(native.stdout)
            ran += 1
            failed += bool(problems)
            print(f"{program} {group}: {'DIFFERENT' if problems else 'the same'}")
            print("\n".join(problems), end="\n" if problems else "", flush=True)
    print(f"{ran} groups, {failed} different")
    return 2 if ran == 0 else 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
