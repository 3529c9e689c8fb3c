"""What of the GPU suite a process runs: all, or its share beside others, within a time, without what passed before."""

from __future__ import annotations

import json
import time
from pathlib import Path

from harness import file_name
from verdicts import Verdict

# Parts whose runs need nothing of each other: processes take them one by one, other parts as a whole.
DIVIDED = ("programs", "samples", "one_stream", "witness", "unmarked_steps", "witnessed_nn_modules")
# What fills the GPU's memory, compares how much is free or used, or takes times, has the GPU for itself.
ALONE = ("limits", "transcripts", "benchmarks", "peer_memory", "training_ranks", "broken_ranks", "stray_context",
         "frameworks_on_all", "ledgers", "given_programs", "stepping_aside")
ALONE_RUNS = ("program: memory info", "program: out of memory", "program: freed memory", "program: many frees",
              "program: short of memory", "program: beside a capture", "program: fragmented", "program: limited", "sample: oom_recovery",
              "program: descriptors", "program: memory of a context that is released",
              "sample: result_cache", "conformance_calls_driver")


def needs_the_gpu(part: str, name: str) -> bool:
    return part in ALONE or name.startswith(ALONE_RUNS)


class Plan:
    """`claims`: the folder in which workers say what they have taken; None without workers. `alone`: only what has
    the GPU for itself, after the workers. `until`: of time.monotonic(); nothing begins later."""

    def __init__(self, claims: Path | None = None, *, alone: bool = False, until: float | None = None,
                 only: tuple[str, ...] = (), done: frozenset[str] = frozenset()) -> None:
        self.claims, self.alone, self.until, self.only, self.done = claims, alone, until, only, done
        self.part = ""
        self.mine: dict[str, bool] = {}
        self.not_begun: list[str] = []

    def begin(self, part: str) -> bool:
        """Whether this process may have something to do in a part."""
        self.part = part
        if self.claims is None:
            return True
        return part not in ALONE and (part in DIVIDED or self.claim(f"part {part}"))

    def take(self, name: str) -> bool:
        """Whether this process runs it, now."""
        if name in self.done or (self.only and not any(text in name.lower() for text in self.only)):
            return False
        key = f"{self.part} {name}"
        if key in self.mine:
            return self.mine[key]
        if needs_the_gpu(self.part, name) != self.alone and (self.alone or self.claims is not None):
            return False
        if self.claims is not None and self.part in DIVIDED and not self.claim(key):
            return False
        self.mine[key] = self.until is None or time.monotonic() < self.until
        if not self.mine[key]:
            self.not_begun.append(name)
        return self.mine[key]

    def claim(self, what: str) -> bool:
        """False: another process has it."""
        assert self.claims is not None
        try:
            (self.claims / file_name(what)).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class Results:
    """verdicts.jsonl of the output folder: a line for each verdict as it is known, so that a run which is cut off
    has what it found. Several processes write it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **members: object) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(members) + "\n")  # one write each

    def add(self, verdict: Verdict) -> None:
        self.write(**vars(verdict))

    def add_table(self, text: str) -> None:
        self.write(table=text)

    def read(self) -> tuple[list[Verdict], list[str]]:
        """All verdicts and tables; a line that was cut off is left out."""
        verdicts, tables = [], []
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []:
            try:
                members = json.loads(line)
            except ValueError:
                continue
            if "table" in members:
                tables.append(members["table"])
            else:
                verdicts.append(Verdict(**members))
        return verdicts, tables


def passed_in(path: Path) -> frozenset[str]:
    """What need not run again: all that passed there, and did not fail. What was skipped may find here what it needs."""
    verdicts, _ = Results(path).read()
    return frozenset(each.name for each in verdicts if not each.skipped) - {each.name for each in verdicts if each.problems}
