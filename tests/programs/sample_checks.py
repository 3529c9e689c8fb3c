"""What each sample promises to show, looked up in its report. The same on the simulated driver and
on a real GPU.
"""

from __future__ import annotations

import re

MIB = 1 << 20

# Sample and arguments, in the order in which they are run.
RUNS: list[tuple[str, tuple[str, ...]]] = [
    ("cache_lines", ()),
    ("inplace", ()),
    ("checkpointing", ("plain",)),
    ("checkpointing", ("checkpointed",)),
    ("oom_recovery", ()),
    ("result_cache", ()),
    ("leak", ()),
]

# What each runs with under memlab, and which say on stderr that memory ran out.
SETTINGS: dict[str, dict[str, str]] = {"cache_lines": {"MEMLAB_BACKEND": "classic"},
                                       "result_cache": {"MEMLAB_LIMIT": "2GiB"}}
OUT_OF_MEMORY = ("oom_recovery", "result_cache")

# The seed's four lines: mark, allocated and reserved MiB as people read them.
FOUR_LINES = (("start", "0.00", "0.00"), ("after tensor", "3.81", "20.00"),
              ("after del", "0.00", "20.00"), ("after empty_cache", "0.00", "0.00"))


def problems_of(name: str, arguments: tuple[str, ...], stdout: str, report: dict) -> list[str]:
    """What the report of a sample's run lacks. Empty when it keeps its promise."""
    check = {"cache_lines": _cache_lines, "inplace": _inplace, "checkpointing": _checkpointing,
             "oom_recovery": _oom_recovery, "result_cache": _result_cache, "leak": _leak}[name]
    if not report["devices"]:
        return ["the report knows no device"]
    try:
        return check(arguments, stdout, report)
    except (KeyError, IndexError) as error:
        return [f"the report lacks {error!r}"]


def problems_of_text(text: str) -> list[str]:
    """What memlab-report's text for cache_lines lacks of the four lines. A mark's line holds its
    name, allocated and reserved in this order of columns; zero may be written in any way."""
    problems = []
    for name, allocated, reserved in FOUR_LINES:
        line = next((line for line in text.splitlines() if re.search(rf"\b{name}$", line.rstrip())), "")
        numbers = re.findall(r"([0-9.]+)(?= (?:MiB|B)\b)", line)
        if [f"{float(number):.2f}" for number in numbers[:2]] != [allocated, reserved]:
            problems.append(f"the line of mark {name!r} is {line!r}, not {allocated} and {reserved} MiB")
    return problems


def _marks(report: dict) -> dict[str, dict]:
    return {mark["name"]: mark["devices"][0] for mark in report["marks"]}


def _cache_lines(_arguments: tuple[str, ...], _stdout: str, report: dict) -> list[str]:
    lines = []
    for mark in report["marks"]:
        curves = [sum(device[f"{curve}_bytes"] for device in mark["devices"]) / MIB
                  for curve in ("allocated", "reserved")]
        lines.append((mark["name"], *(f"{mib:.2f}" for mib in curves)))
    return [] if tuple(lines) == FOUR_LINES else [f"the four lines are {lines}"]


def _inplace(_arguments: tuple[str, ...], _stdout: str, report: dict) -> list[str]:
    problems = []
    sites = sorted((site["count"], site["requested_bytes"]) for site in report["sites"])
    if sites != [(1, 8_000_000), (8, 64_000_000)]:
        problems.append(f"the sites are {sites}")
    peak = report["devices"][0]["curves"]["requested"]["peak_bytes"]
    if peak != 16_000_000:
        problems.append(f"the peak is {peak}, not two tensors")
    if _marks(report)["in place"]["requested_bytes"] != 8_000_000:
        problems.append("more than one tensor after the additions in place")
    return problems


def _checkpointing(arguments: tuple[str, ...], stdout: str, report: dict) -> list[str]:
    said = re.search(r"(\d+) allocations, at most (\d+) tensors of (\d+) bytes", stdout)
    if said is None:
        return [f"it printed {stdout!r}"]
    allocations, tensors, size = (int(number) for number in said.groups())
    device, problems = report["devices"][0], []
    if device["kinds"]["device"]["count"] != allocations:
        problems.append(f"{device['kinds']['device']['count']} allocations, it counted {allocations}")
    if device["curves"]["requested"]["peak_bytes"] != tensors * size:
        problems.append(f"a peak of {device['curves']['requested']['peak_bytes']}, "
                        f"it counted {tensors * size}")
    # 16 layers kept whole, or a fourth of them and the four of one stretch.
    if (arguments == ("checkpointed",)) != (tensors < 12):
        problems.append(f"{tensors} tensors at a time in mode {arguments}")
    return problems


def _oom_recovery(_arguments: tuple[str, ...], stdout: str, report: dict) -> list[str]:
    problems = []
    if stdout != "batch 64: out of memory\nbatch 32: done\n":
        problems.append(f"it printed {stdout!r}")
    if report["oom_count"] != 1:
        return problems + [f"{report['oom_count']} out-of-memory failures"]
    oom = report["ooms"][0]
    if oom["error"] != 2:
        problems.append(f"the program got error {oom['error']}")
    if oom["holders"]["bytes"] != oom["current"]["allocated_bytes"] or len(oom["holders"]["sites"]) != 1:
        problems.append(f"the holders are {oom['holders']}")
    if report["devices"][0]["live"]["bytes"] != 0:
        problems.append("something is live at the end")
    return problems


def _result_cache(_arguments: tuple[str, ...], stdout: str, report: dict) -> list[str]:
    problems = []
    if stdout != "48 results, the last of them right: yes\n":
        problems.append(f"it printed {stdout!r}")
    device = report["devices"][0]
    if device["limit_bytes"] != 2048 * MIB:
        problems.append(f"the device's limit is {device['limit_bytes']}")
    if device["curves"]["reserved"]["peak_bytes"] > 2048 * MIB:
        problems.append(f"{device['curves']['reserved']['peak_bytes']} bytes were reserved past the limit")
    # 48 results have 4.5 GiB: they were thrown away at least twice, and at the end.
    if report["oom_count"] < 2 or report["mark_count"] <= report["oom_count"]:
        problems.append(f"{report['oom_count']} failures, {report['mark_count']} marks")
        return problems
    said = " ".join(report["ooms"][0]["explanation"])
    if not re.search(r"2\.00 GiB by MEMLAB_LIMIT .* One call site has allocated \d+ times, freed nothing",
                     said):
        problems.append(f"the explanation is {said!r}")
    if device["live"]["bytes"] != 0:
        problems.append("something is live at the end")
    return problems


def _leak(_arguments: tuple[str, ...], stdout: str, report: dict) -> list[str]:
    if stdout != "400 steps\n":
        return [f"it printed {stdout!r}"]
    problems = []
    steps = [each for each in report["steps"] if each["name"] == "step"]
    if [(each["steps"], each["verdict"]) for each in steps] != [(400, "growing")]:
        return [f"the steps are {report['steps']}"]
    growing = [report["sites"][each["site"]]["requested_bytes"] for each in steps[0]["growing_sites"]]
    rates = [round(each["bytes_per_step"], 6) for each in steps[0]["growing_sites"]]
    if (growing, rates) != ([400 * 512], [512]):
        problems.append(f"what grows has {growing} bytes, by {rates} a step")
    scopes = {scope["name"]: scope for scope in report["scopes"]}
    forward, backward, step = scopes["forward"], scopes["backward"], scopes["step"]
    if forward["escaped"]["bytes"] != backward["freed_bytes"] or forward["escaped"]["count"] != 3200:
        problems.append(f"forward left {forward['escaped']}, backward freed {backward['freed_bytes']}")
    if forward["peak_growth_bytes"] != 8 * 512 * (64 << 10):
        problems.append(f"forward added {forward['peak_growth_bytes']} at its peak")
    if step["escaped"]["count"] != 400 + 8:
        problems.append(f"the steps left {step['escaped']}")
    if [(label["name"], label["count"], label["live_count"]) for label in report["labels"]] != [
            ("attention masks", 8, 0)]:
        problems.append(f"the names are {report['labels']}")
    return problems
