"""The line profiler and the reporter of the Python package on a GPU: against PyTorch's own statistics at each line's end, and
the tables that pytorch_memlab documents for the same uses. What pytest --memlab says of py/limits_in_tests.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

KIB = 1 << 10
BLOCKS = 40960  # of the weight and bias of Linear(100, 100)


def judge_line_profiles(answers: dict[str, Any]) -> list[str]:
    return judge_lines(answers) + judge_examples(answers) + judge_reports(answers)


def judge_lines(answers: dict[str, Any]) -> list[str]:
    """Each line's figures equal PyTorch's, which it asked for as the last thing that it did, and reset the peaks."""
    problems = []
    for line, wanted in answers["asked"]:
        row = answers["lines"].get(str(line))
        if row is None:
            problems.append(f"line {line} has no figures")
            continue
        for column, got, want in zip(answers["columns"], row, wanted):
            by_pytorch = column.startswith(("requested", "inactive")) and column.endswith("peak")  # at ends of lines only
            if got != want and not (by_pytorch and got <= want):
                problems.append(f"line {line}: {column} is {got}, PyTorch has {want}")
    return problems


def judge_examples(answers: dict[str, Any]) -> list[str]:
    problems = []
    made = {"outer": [0, BLOCKS, BLOCKS, BLOCKS], "inner": [0, BLOCKS]}
    if answers["made"] != made:
        problems.append(f"made by line: {answers['made']}, not {made}")
    for heading in ("## outer", "## inner", "active_bytes reserved_bytes line  code", "def outer():", "def inner():"):
        if heading not in answers["readme"]:
            problems.append(f"the table lacks {heading!r}")
    if "## Net.forward" not in answers["every"]:
        problems.append(f"profile_every printed {answers['every']!r}")
    weights = 4 * KIB * KIB + 4 * KIB
    if answers.get("two_gpus", [0, weights, 0, weights, 0, weights]) != [0, weights, 0, weights, 0, weights]:
        problems.append(f"two GPUs: {answers['two_gpus']}")
    return problems


def rows_of(table: str) -> set[tuple[str, str, str]]:
    """Name, size and memory; the numbers of tensors without a name are left out, since those on the CPU take some."""
    return {(re.sub(r"^(Tensor|Parameter)\d+", r"\1", found[1]), found[2], found[3])
            for found in re.finditer(r"^(\S+) +(\(.*?\)) +(\S+)$", table, re.M)}


WEIGHT, BIAS = ("(1024, 1024)", "4.00M"), ("(1024,)", "4.00K")
BATCH, MEAN = ("(512, 1024)", "2.00M"), ("(1,)", "512.00B")
BEFORE = {"weight": WEIGHT, "bias": BIAS, "Tensor": BATCH}
AFTER = {"weight": WEIGHT, "bias": BIAS, "Tensor": MEAN, "weight.grad": WEIGHT, "bias.grad": BIAS}
LSTM = ("(4096, 1024)", "0.00B")
WANTED = {"minimal": {"Parameter": WEIGHT}, "before": BEFORE, "after": AFTER,
          "optimizer": {**AFTER, **{f"Adam.{name}.{state}": size for name, size in (("weight", WEIGHT), ("bias", BIAS))
                                    for state in ("exp_avg", "exp_avg_sq")}},
          "shared": {"0.weight": WEIGHT, "0.weight.grad": WEIGHT, "0.bias": BIAS, "0.bias.grad": BIAS, "1.bias": BIAS,
                     "1.bias.grad": BIAS},
          "lstm": {"weight_ih_l0": ("(4096, 1024)", "32.03M"), "weight_hh_l0(->weight_ih_l0)": LSTM,
                   "bias_ih_l0(->weight_ih_l0)": ("(4096,)", "0.00B"), "bias_hh_l0(->weight_ih_l0)": ("(4096,)", "0.00B")}}


def judge_reports(answers: dict[str, Any]) -> list[str]:
    problems = []
    for name, wanted in WANTED.items():
        got = rows_of(answers[name])
        lacks = {row: size for row, size in wanted.items() if (row, *size) not in got}
        if lacks:
            problems.append(f"the report {name!r} has not {lacks}:\n{answers[name]}")
    held = re.search(r"^Held by C\+\+ alone: (\S+)$", answers["of_cpp"], re.M)
    if held is None or "2.00M" not in answers["of_cpp"][held.end():] or "line_profiles.py:" not in answers["of_cpp"][held.end():]:
        problems.append(f"what autograd keeps is not told:\n{answers['of_cpp']}")
    return problems


def judge_limits(junit: Path) -> list[str]:
    """Names of tests say what is right. A test's figure is the same in each of its runs: what libraries take is apart."""
    problems, seen, libraries = [], 0, 0
    needed: dict[str, set[str | None]] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        name = case.get("name", "")
        told = [(each.get("message") or "") + (each.text or "") for kind in ("failure", "error") for each in case.findall(kind)]
        if name.startswith("test_holds_") and told:
            problems.append(f"{name}: {told[0][:300]}")
        elif name.startswith("test_exceeds_") and not any("The test " in text for text in told):
            problems.append(f"{name}: its limit holds")
        figures = {each.get("name"): each.get("value") for each in case.iter("property")}
        seen += 1
        libraries += int(figures.get("memlab_library_bytes") or 0)
        needed.setdefault(name.partition("[")[0], set()).add(figures.get("memlab_gpu_bytes"))
    if seen < 105:
        problems.append(f"{seen} tests ran")
    if libraries == 0:
        problems.append("no workspace of cuBLAS was told apart")
    return problems + [f"{name} needed {sorted(map(str, values))}" for name, values in needed.items() if len(values) != 1]
