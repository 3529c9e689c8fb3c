"""PyTorch's tensors inside its own cache: memlab's figures against torch.cuda.memory_stats, its categories
against torch.profiler's."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

from harness import Found

FIRST_OF_PYTORCH = 64  # trace::DeviceInfo::suballocator_index(0, 0)

# Name, mode of py/pytorch_tensors.py, settings.
EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
DRIVERS_POOL = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
RUNS: list[tuple[str, str, dict[str, str]]] = [
    *((f"tensors: {mode}", mode, {}) for mode in
      ("training", "peaks", "graphs", "mempool", "streams", "threads", "out_of_memory", "compiled", "generate")),
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


def judge_nn_modules(report: dict[str, Any], expected: dict[str, int]) -> list[str]:
    """What nn_modules.py says that each of its layers holds at the peak. PyTorch rounds each block up by 1 MiB at most;
    the workspace of a library is in the layer that first used it."""
    slack, held = 4 << 20, dict.fromkeys(expected, 0)
    for entry in report.get("nn_modules", []):
        if entry["name"] in held and entry["class"] == "Linear":
            held[entry["name"]] += sum(of["at_peak_bytes"] for of in entry["sites"])
    less = {name: size for name, size in held.items() if size < expected[name]}
    more = {name: size for name, size in held.items() if size > expected[name] + slack}
    problems = [f"less than {expected}: {less}"] if less else []
    return problems + ([f"more than {expected}: {more}"] if len(more) > 2 else [])


def judge_names(report: dict[str, Any], expected: dict[str, dict[str, Any]]) -> list[str]:
    """What names.py says that its nn.Modules and tensors are called. An nn.Module that allocates nothing has no entry;
    PyTorch rounds a block up to 512 bytes."""
    found = {entry["name"]: entry["class"] for entry in report.get("nn_modules", [])}
    problems = [f"{name}: {found[name]}, not {expected['modules'].get(name)}" for name in found
                if found[name] != expected["modules"].get(name)]
    missing = [name for name in ("MSELoss", "Sampler", "Net.layers.2.0", "Net#2.layers.0.2", "Net.head") if name not in found]
    problems += [f"no memory of {missing}, but of {sorted(map(str, found))}"] if missing else []
    labels = {label["name"]: label["peak_bytes"] for label in report.get("labels", [])}
    wrong = {name: (labels.get(name), size) for name, size in expected["labels"].items()
             if not size <= labels.get(name, -1) < size + 512}
    problems += [f"labels: {wrong}"] if wrong else []
    more = {name for name in labels if name not in expected["labels"] and not name.startswith("Sampler.")}
    return problems + ([f"labels of nothing: {sorted(more)}"] if more else [])


WITNESSED = ("gpt2", "vit", "encoder", "lora", "ema", "checkpointing", "generate", "data_parallel", "fsdp2")
TRACKED = ("gpt2", "vit", "encoder", "ema")
# So that the witness sees all of a block, and no library takes memory in an nn.Module's call that it does not see: blocks
# that PyTorch splits to the last 512 B, and small workspaces of cuBLAS.
EXACT_BLOCKS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "CUBLAS_WORKSPACE_CONFIG": ":16:8",
                "CUBLASLT_WORKSPACE_SIZE": "0"}
LARGE = 2 << 30  # of module_witness.py, at the peak
OUTSIDE = "[of no nn.Module]"
# What MemTracker calls memlab's categories. Its buffers are of the model, as parameters; what it calls temporary is what
# is made in backward and by the optimizer.
OF_THE_TRACKER = {"Parameter": "parameters", "Buffer": "parameters", "Gradient": "gradients",
                  "Optstate": "optimizer state", "Activation": "activations"}


def judge_moment(moment: str, page: dict[str, Any], said: dict[str, int]) -> tuple[float, list[str]]:
    """The share of what the witness says of nn.Modules at a mark that memlab has in the same one, of timeline's JSON; and
    whether memlab has more than 2 % outside of them, or in others, that is not there."""
    ours: dict[str, int] = {}
    devices = [device for device in (page["at"] or {"devices": []})["devices"] if device["index"] >= FIRST_OF_PYTORCH]
    for device in devices:
        for site in device["sites"]:
            name = "" if site["nn_module"] == OUTSIDE else site["nn_module"]
            ours[name] = ours.get(name, 0) + site["bytes"]
    inside = {name: size for name, size in said.items() if name}
    agreed = sum(min(size, ours.get(name, 0)) for name, size in inside.items()) / max(1, sum(inside.values()))
    total = sum(said.values()) - (LARGE if moment == "peak" else 0)
    # In the midst of backward the witness holds gradients that meet, so that the engine adds them up in a block of another
    # node's; without it the sum is in the block of one of them, which may be the loss's.
    in_backward = moment.startswith("backward ")
    least = 0.94 if in_backward else 0.99
    beyond = sum(max(0, size - inside.get(name, 0)) for name, size in ours.items() if name)
    if moment == "peak" and len(devices) > 1:
        beyond = 0  # each GPU has its own peak, at another moment
    if ((agreed >= least or not inside) and (in_backward or ours.get("", 0) - said.get("", 0) <= 0.02 * total)
            and beyond <= (0.06 if in_backward else 0.02) * total):
        return agreed, []
    differ = {name: (ours.get(name, 0), said.get(name, 0)) for name in ours.keys() | said.keys()
              if ours.get(name, 0) != said.get(name, 0)}
    return agreed, [f"{moment}: {100 * agreed:.2f} % agree; memlab's bytes and the witness's: {differ}"]


def judge_tracker(summary: dict[str, Any], expected: dict[str, int]) -> tuple[float, list[str]]:
    """The share of MemTracker's bytes at the peak that memlab has in the same category, of its summary's JSON."""
    device = next((each for each in summary["devices"] if each["index"] == FIRST_OF_PYTORCH), {})
    ours = {name: share["bytes"] for name, share in device.get("categories", {}).items()}
    theirs: dict[str, int] = {}
    for name, size in expected.items():
        if name in OF_THE_TRACKER:
            theirs[OF_THE_TRACKER[name]] = theirs.get(OF_THE_TRACKER[name], 0) + size
    agreed = sum(min(size, ours.get(name, 0)) for name, size in theirs.items()) / max(1, sum(theirs.values()))
    return agreed, [] if agreed >= 0.98 else [f"{100 * agreed:.1f} % agree: {ours}, MemTracker has {expected}"]


BACKWARD = ("layers", "retained", "twice", "checkpoint", "reentrant", "function", "threads", "compiled")
Stack = tuple[tuple[str, int, str], ...]


def backward_stacks(snapshot: Path) -> Counter[tuple[Stack, int]]:
    """The Python frames behind the marker, innermost first, and the size of each allocation that has it, of a
    recording as a snapshot for PyTorch's viewer."""
    found: Counter[tuple[Stack, int]] = Counter()
    for trace in pickle.loads(snapshot.read_bytes())["device_traces"]:
        for entry in trace:
            names = [frame["name"] for frame in entry.get("frames", [])]
            if entry["action"] == "alloc" and "[forward]" in names:
                frames = entry["frames"][names.index("[forward]") + 1:]
                found[tuple((frame["filename"], frame["line"], frame["name"].rsplit(".", 1)[-1])
                            for frame in frames), entry["size"]] += 1
    return found


def judge_backward(mode: str, snapshot: Path, expected: Path) -> tuple[str, list[str]]:
    """Each stack that goes on as the forward's must be one in which PyTorch made a node; and what a node's backward
    made must have the node's."""
    said = json.loads(expected.read_text(encoding="utf-8"))
    stacks: list[Stack] = [tuple((file, line, function) for file, line, function in stack) for stack in said["nodes"]]
    found = backward_stacks(snapshot)
    if mode == "compiled":  # one node, whose backward is Python code
        return f"{mode}: {sum(found.values())} allocations with a line of the forward", []
    problems = []
    # Double backward's graph has the first one's lines, and nodes of backward's own.
    wrong = [stack for stack, _ in found if stack not in set(stacks)] if mode not in ("checkpoint", "reentrant") else []
    problems += [f"{len(wrong)} stacks in which no node was made, as {wrong[0]}"] if wrong else []
    wanted: Counter[tuple[Stack, int]] = Counter()
    for number, size, count in said["gradients"]:
        wanted[stacks[number], (size + 511) // 512 * 512] += count
    # With a node of Python code (its backward has lines of its own) or memory from another node's allocation (a
    # gradient that a view's backward passed on) memlab has fewer.
    missing = sum(max(0, count - found[key]) for key, count in wanted.items())
    total = sum(wanted.values())
    if total == 0 or missing > total // 10:
        lacking = [key for key, count in wanted.items() if count > found[key]]
        problems.append(f"{missing} of {total} gradients lack the line of the forward, as {lacking[:1]}")
    of_size: dict[int, set[Stack]] = {}
    for stack, size in wanted:
        of_size.setdefault(size, set()).add(stack)
    mistaken = [(stack, size) for (stack, size) in found
                if len(of_size.get(size, ())) == 1 and stack not in of_size[size]]
    note = (f"{mode}: {total - missing} of {total} gradients at the line that made the node, "
            f"{sum(found.values())} allocations of backward in all, {len(mistaken)} of another line with a size that "
            f"one node's gradients have")
    return note, problems
