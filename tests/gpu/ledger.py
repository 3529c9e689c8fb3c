"""The ledger on a real GPU, as it is by default: at the sampled peak of device used at least 99 % has a row other than
the rest, at most 2 % "grew while work ran", and NVML, where it sees this process, has about as much."""

from __future__ import annotations

from typing import Any

MIB = 1 << 20
EXPLAINED = 0.99
GROWN = 0.02

# The module that must be installed, name, script of py/ or program of tests/programs, arguments.
RUNS: list[tuple[str, str, str, list[str]]] = [
    ("torch", "ledger: PyTorch training", "train.py", []),
    ("torch", "ledger: PyTorch, CUDA graphs", "graph_work.py", []),
    ("cupy", "ledger: CuPy", "cupy_work.py", []),
    ("triton", "ledger: Triton", "triton_work.py", []),
    ("ctypes", "ledger: cuBLAS", "cublas_work.py", []),
    ("ctypes", "ledger: large local memory", "ledger", ["locals"]),
    ("ctypes", "ledger: streams of 200 threads", "ledger", ["threads"]),
    ("ctypes", "ledger: 300 executable graphs", "ledger", ["execs"]),
    ("ctypes", "ledger: 6000 streams", "ledger", ["streams"]),
    ("ctypes", "ledger: a graph's memory, uploaded", "ledger", ["uploads"]),
    ("ctypes", "ledger: a graph of 20,000 nodes, uploaded", "ledger", ["uploads", "nodes"]),
]


def judge_ledger(page: dict[str, Any]) -> tuple[str, list[str]]:
    """A line of figures, and what is wrong with a ledger's JSON: the first GPU's."""
    if not page["devices"]:
        return "no ledger", ["the report has no ledger"]
    device = page["devices"][0]
    peak, end = device["moments"]["peak"], device["moments"]["end"]
    groups = {group["kind"]: group["bytes"] for group in peak["groups"]}
    problems = []
    explained = 1 - peak["rest_bytes"] / max(1, peak["used_bytes"])
    if explained < EXPLAINED:
        problems.append(f"{100 * explained:.2f} % of {peak['used_bytes'] / MIB:.1f} MiB have a row: {groups}")
    for name, moment in device["moments"].items():
        grown = sum(group["bytes"] for group in moment["groups"] if group["kind"] == "growth")
        if grown > GROWN * moment["used_bytes"]:
            problems.append(f"{name}: {grown / MIB:.1f} of {moment['used_bytes'] / MIB:.1f} MiB grew while work ran")
    if sum(groups.values()) + peak["rest_bytes"] != peak["used_bytes"]:
        problems.append(f"the rows are not the whole: {groups}, {peak['rest_bytes']} of {peak['used_bytes']}")
    if "context" not in groups:
        problems.append(f"no context has a row: {groups}")
    line = (f"{100 * explained:.2f} % of {peak['used_bytes'] / MIB:.1f} MiB explained, "
            f"{device['not_measured']} calls not measured: "
            + ", ".join(f"{kind} {size / MIB:.1f}" for kind, size in groups.items()))
    witness = device["witnesses"][-1] if device["witnesses"] else None
    if witness is None:
        return line + "; NVML not asked", problems
    line += f"; NVML {witness['state']}, own {witness['own_bytes'] / MIB:.1f}, others {witness['other_bytes'] / MIB:.1f}"
    if witness["state"] == "seen" and abs(witness["time_ns"] - end["time_ns"]) < 500_000_000:
        others = sum(group["bytes"] for group in end["groups"] if group["kind"] in ("others", "driver_own"))
        ours = end["used_bytes"] - others - end["rest_bytes"]
        if abs(ours - witness["own_bytes"]) > 32 * MIB + 0.02 * ours:
            problems.append(f"the rows of this process are {ours / MIB:.1f} MiB, NVML has {witness['own_bytes'] / MIB:.1f}")
    return line, problems
