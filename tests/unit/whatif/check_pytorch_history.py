"""check_pytorch_history.py CHECK_HISTORY FOLDER

The what-if models against what was recorded on a GPU (tests/data/README.md): PyTorch's own allocator,
whose reserved bytes must never be off by more than 1 % over a whole training run; and the driver's
allocators, which are not open and only approached.
"""

from __future__ import annotations

import lzma
import json
import subprocess
import sys
from pathlib import Path

PYTORCH_TOLERANCE = 0.01
# Where the driver puts segments decides between free blocks of one size. Without those addresses, as
# in a what-if, the peak may be off by this much.
PEAK_TOLERANCE = 0.025
# Of the driver's allocators the peak is checked: (name in the recording, model, settings, tolerance).
DRIVER = (("plain", "plain", [], 0.01),
          ("async threshold max", "async", [], 0.05),
          ("async threshold 0", "async", ["threshold=0"], 0.05))


def changes(lines: list[str]) -> list[tuple[int, int]]:
    return [(int(event), int(value)) for event, value in (line.split() for line in lines)]


def modelled(program: str, model: str, settings: list[str], text: str) -> list[tuple[int, int]]:
    result = subprocess.run([program, model, *settings], input=text, capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    return changes([line for line in lines if line[0].isdigit()])


def curve(points: list[tuple[int, int]], length: int) -> list[int]:
    """The value after each event; several changes at one event: the last."""
    values, value, at = [], 0, 0
    for event in range(1, length + 1):
        while at < len(points) and points[at][0] <= event:
            value = points[at][1]
            at += 1
        values.append(value)
    return values


def read(path: Path) -> tuple[dict, str]:
    with lzma.open(path, "rt", encoding="ascii") as file:
        return json.loads(file.readline()), file.read()


def recorded(text: str) -> tuple[list[tuple[int, int]], int]:
    """Reserved bytes after each allocation or free. Segments come before the allocation they are for."""
    points, reserved, event = [], 0, 0
    for line in text.splitlines():
        what, *rest = line.split()
        if what in "SM":
            reserved += int(rest[1])
        elif what in "sm":
            reserved -= int(rest[1])
        elif what in "afr":
            event += 1
            if not points or points[-1][1] != reserved:
                points.append((event, reserved))
    return points, event


def worst(got: list[int], expected: list[int]) -> float:
    return max(abs(a - b) / b if b else float(a != 0) for a, b in zip(got, expected))


def check_pytorch(program: str, folder: Path) -> tuple[list[str], int]:
    problems, checked = [], 0
    for path in sorted(folder.glob("*_*.xz")):
        head, text = read(path)
        settings = [f"conf={head['settings']}"] + ([f"limit={head['limit_bytes']}"] if head["limit_bytes"] else [])
        settings.append(f"capacity={head['total_bytes']}")
        points, events = recorded(text)
        expected = curve(points, events)
        got = curve(modelled(program, "pytorch", [*settings, "addresses=recorded"], text), events)
        peak = max(curve(modelled(program, "pytorch", settings, text), events))
        if max(expected) != head["stats"]["reserved_bytes.all.peak"]:
            problems.append(f"{path.name}: the recorded segments do not add up to PyTorch's own peak")
        off = worst(got, expected)
        same = sum(a == b for a, b in zip(got, expected)) / events
        peak_off = abs(peak - max(expected)) / max(expected)
        print(f"{path.stem}: {events} events, reserved peak {max(expected) / 2**20:.0f} MiB, modelled "
              f"{max(got) / 2**20:.0f} MiB; at most {100 * off:.3f} % off, equal after {100 * same:.2f} % of events; "
              f"with other segment addresses the peak is {100 * peak_off:.2f} % off")
        if peak_off > PEAK_TOLERANCE:
            problems.append(f"{path.name}: with other segment addresses {100 * peak_off:.2f} % off")
        if off > PYTORCH_TOLERANCE:
            problems.append(f"{path.name}: {100 * off:.2f} % off, more than {100 * PYTORCH_TOLERANCE:.0f} %")
        checked += 1
    return problems, checked


def check_driver(program: str, folder: Path) -> list[str]:
    problems = []
    head, text = read(folder / "driver.xz")
    history, calls = read(folder / "transformer_default.xz")
    sections: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith(("plain", "async")):
            current = sections.setdefault(line, [])
        elif not line.endswith("sync"):
            current.append(line)
    ends = ",".join(str(count) for count in history["allocations_by_step"])
    for name, model, settings, tolerance in DRIVER:
        points = changes(sections[name])
        events = points[-1][0] if name.endswith("max") else head["events"]
        expected = curve(points, events)
        got = curve(modelled(program, model, [*settings, f"ends={ends}"], calls), events)
        off = abs(max(got) - max(expected)) / max(expected)
        mean = sum(abs(a - b) / b for a, b in zip(got, expected) if b) / events
        print(f"driver, {name}: peak {max(expected) / 2**20:.0f} MiB, modelled {max(got) / 2**20:.0f} MiB "
              f"({100 * off:.2f} % off); over {events} events {100 * mean:.2f} % off in the mean")
        if off > tolerance:
            problems.append(f"driver, {name}: the peak is {100 * off:.2f} % off, more than {100 * tolerance:.0f} %")
    return problems


def main() -> int:
    program, folder = sys.argv[1], Path(sys.argv[2])
    problems, checked = check_pytorch(program, folder)
    if checked < 6:
        problems.append(f"only {checked} recordings in {folder}")
    problems += check_driver(program, folder)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
