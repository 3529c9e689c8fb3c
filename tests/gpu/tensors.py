"""PyTorch's tensors inside its own cache: memlab's figures against torch.cuda.memory_stats, its categories
against torch.profiler's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness import Found

FIRST_OF_PYTORCH = 64  # trace::DeviceInfo::suballocator_index(0, 0)

# Name, mode of py/pytorch_tensors.py, settings.
EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
DRIVERS_POOL = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
RUNS: list[tuple[str, str, dict[str, str]]] = [
    *((f"tensors: {mode}", mode, {}) for mode in
      ("training", "graphs", "mempool", "streams", "threads", "out_of_memory", "compiled", "generate")),
    ("tensors: training, expandable segments", "training", EXPANDABLE),
    ("tensors: graphs, expandable segments", "graphs", EXPANDABLE),
    ("tensors: training, segments from memlab's pool", "training", {"MEMLAB_IPC": "off"}),
    ("tensors: training, the driver's pool", "training", DRIVERS_POOL),
]


def judge_drivers_pool(report: dict[str, Any], wanted: list[dict[str, Any]]) -> list[str]:
    """PyTorch has no cache of its own then: each tensor is an allocation from the driver's pool."""
    kind, last = report["devices"][0]["kinds"]["async_pool"], wanted[-1]
    return [f"{what}: {got}, PyTorch has {want}" for what, got, want in (
        ("live bytes", kind["live_bytes"], last["allocated"]),
        ("peak", kind["peak_bytes"], last["allocated_peak"])) if got != want]


def judge_tensors(found: list[Found], expected: Path) -> list[str]:
    """At each mark the cache's own bytes; at the end its own number of blocks, and the peaks."""
    report: dict[str, Any] | None = next((one.report for one in found if one.report and one.report["sites"]), None)
    if report is None:
        return ["no report with sites"]
    wanted = json.loads(expected.read_text(encoding="utf-8"))
    device = next((each for each in report["devices"] if each["index"] == FIRST_OF_PYTORCH), None)
    if not wanted[-1]["blocks"] and device is None:
        return judge_drivers_pool(report, wanted)
    if device is None:
        return ["the report has no PyTorch on GPU 0"]
    problems = [f"missed: {entry['reason']}" for entry in report["missed"] if "PyTorch" in entry["reason"]]
    marks = [mark for mark in report["marks"] if mark["type"] == "mark"]
    if [mark["name"] for mark in marks] != [mark["name"] for mark in wanted]:
        return [f"the marks are {[mark['name'] for mark in marks]}"]
    for mark, want in zip(marks, wanted):
        values = next((each for each in mark["devices"] if each["device"] == FIRST_OF_PYTORCH),
                      {"allocated_bytes": 0, "reserved_bytes": 0})
        got = (values["allocated_bytes"], values["reserved_bytes"])
        if got != (want["allocated"], want["reserved"]):
            problems.append(f"at {mark['name']!r} {got} bytes allocated and reserved, PyTorch has "
                            f"{(want['allocated'], want['reserved'])}")
    last, kind, curves = wanted[-1], device["kinds"]["suballocation"], device["curves"]
    for what, got, want in (("blocks", kind["count"], last["blocks"]), ("live blocks", kind["live_count"], last["live"]),
                            ("allocated peak", curves["allocated"]["peak_bytes"], last["allocated_peak"]),
                            ("reserved peak", curves["reserved"]["peak_bytes"], last["reserved_peak"])):
        if got != want:
            problems.append(f"{what}: {got}, PyTorch has {want}")
    stacks = [report["stacks"][site["stack"]]["frames"] for site in report["sites"] if site["kind"] == "suballocation"]
    if not any("python" in report["frames"][frame] for frames in stacks for frame in frames):
        problems.append("no tensor has a line of Python")
    return problems


MODELS = ("transformer", "resnet", "gpt2")
# What torch.profiler calls memlab's categories; the other ones it does not tell, or tells as what they are not.
OF_THE_PROFILER = {"parameter": "parameters", "gradient": "gradients", "optimizer_state": "optimizer state",
                   "activation": "activations", "input": "inputs"}


def judge_categories(summary: dict[str, Any], expected: Path) -> tuple[float, list[str]]:
    """The share of the profiler's bytes at its peak that memlab has in the same category, of its summary's JSON."""
    device = next((each for each in summary["devices"] if each["index"] == FIRST_OF_PYTORCH), {})
    ours = {name: share["bytes"] for name, share in device.get("categories", {}).items()}
    theirs = {OF_THE_PROFILER[name]: size
              for name, size in json.loads(expected.read_text(encoding="utf-8")).items() if name in OF_THE_PROFILER}
    agreed = sum(min(size, ours.get(name, 0)) for name, size in theirs.items()) / max(1, sum(theirs.values()))
    return agreed, [] if agreed >= 0.95 else [f"{100 * agreed:.1f} % agree: {ours}, torch.profiler has {theirs}"]


def judge_validation(way: str, summary: dict[str, Any], peaks: dict[str, int]) -> list[str]:
    """What samples/validation.py says of its report, of the summary's JSON. `peaks` gets this way's."""
    device = next((each for each in summary["devices"] if each["index"] == FIRST_OF_PYTORCH), None)
    if device is None:
        return ["the summary has no PyTorch on GPU 0"]
    held, batches, activation = device["at_peak"], 16, 512 * 1024 * 4
    peaks[way] = held["bytes"]
    if way == "no_grad":
        saved = peaks.get("grad", 0) - peaks[way]
        return [] if saved >= batches * 3 * activation else [f"no_grad() saves {saved} bytes at the peak only"]
    place, kept = held["places"][0]["place"], device["categories"]["activations"]["bytes"]
    problems = [] if 2 * kept >= held["bytes"] else [f"{kept} of {held['bytes']} bytes are activations"]
    if place["function"] != "validate" or not place["file"].endswith("validation.py"):
        problems.append(f"most is held by {place}")
    return problems
