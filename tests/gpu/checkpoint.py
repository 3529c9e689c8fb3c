"""Stepping aside by the driver's own checkpoint on a real GPU, alone and behind the pool's engine (docs/step-aside.md):
contents and addresses, what is left on the GPU, how long it takes, helpers that are lost, the end of a program that is
away. Each part is judged on its own and says what it found. Used by step_aside.py."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENGINES = ("driver", "both")
MOST_LEFT_MIB = 16
TARGET_S = {"out": 0.9, "back": 0.8}  # of both, prepared, 10 GiB
HELPER_S = 120  # its start is the driver's


def gpu_used_mib() -> int | None:
    """Of the first GPU, by all processes."""
    try:
        done = subprocess.run(["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, check=False)
    except OSError:
        return None
    word = done.stdout.strip().split("\n")[0]
    return int(word) if word.isdigit() else None


def helpers() -> list[int]:
    found = []
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if each.name.isdigit() and (each / "comm").read_text().strip() == "memlab-helper" and (each / "exe").exists():
                found.append(int(each.name))
    return found


class Checkpoints:
    """`of`: a step_aside.Yielding, which has the programs and takes the verdicts."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def possible(self) -> bool:
        """Says what the machine lets it do; without the right, or an older driver, there is no more to see."""
        with self.of.program("checkpoint-try", [str(self.of.layout.program("steps_aside"))]) as process:
            self.of.expect("checkpoint: its first word", self.of.line(process), "ready")
            begin = time.monotonic()
            good, answer = self.of.ask(process, "yield", "engine=driver", "prepare", timeout=HELPER_S)
            self.of.figures.append(f"step aside, checkpoint: its helper after {time.monotonic() - begin:.2f} s: "
                                   f"{answer.get('text')}")
            begin = time.monotonic()
            self.of.ask(process, "yield", "engine=driver", "prepare", timeout=HELPER_S)
            self.of.figures.append(f"step aside, checkpoint: the same again {time.monotonic() - begin:.2f} s")
            return good

    def blocks(self, engine: str) -> None:
        idle = gpu_used_mib()
        with self.of.program(f"checkpoint-{engine}", [str(self.of.layout.program("steps_aside"))]) as process:
            self.of.expect(f"{engine}: its first word", self.of.line(process), "ready")
            self.of.tell(process, "where")
            where = self.of.line(process)
            for which in range(3):
                before = gpu_used_mib()
                begin = time.monotonic()
                out = self.of.must(process, "yield", f"engine={engine}")
                middle = time.monotonic()
                away = gpu_used_mib()
                self.of.expect(f"{engine}: by the driver",
                               self.of.must(process, "status").get("step_aside", {}).get("by_driver"), True)
                self.of.tell(process, "waits")
                waits = self.of.line(process).split()[:3]
                self.of.expect(f"{engine}: what waits are answered while it is away", waits, ["0", "0", "0"])
                self.of.tell(process, "check")
                time.sleep(0.2)
                if which == 1:
                    for each in helpers():
                        os.kill(each, signal.SIGKILL)
                begin_back = time.monotonic()
                self.of.must(process, "restore")
                end = time.monotonic()
                self.of.expect(f"{engine}: its contents", self.of.line(process), "intact")
                self.of.tell(process, "where")
                self.of.expect(f"{engine}: its addresses", self.of.line(process), where)
                self.of.tell(process, "children")
                self.of.expect(f"{engine}: what wait() sees", self.of.line(process), f"-1 {errno.ECHILD}")
                self.of.figures.append(
                    f"step aside, {engine}, blocks: out {middle - begin:.2f} s, back {end - begin_back:.2f} s"
                    f"{' by another helper' if which == 1 else ''}; GPU in use {idle} MiB without it, {before} MiB, "
                    f"meanwhile {away} MiB; {out.get('text')}")
                if idle is not None and away is not None and away - idle > MOST_LEFT_MIB:
                    self.of.problems.append(f"{engine}: {away - idle} MiB are left on the GPU")
            self.of.tell(process, "churn")
            self.of.line(process)
            for _ in range(3):
                self.of.must(process, "yield", f"engine={engine}", "timeout=10")
                self.of.must(process, "restore")
            self.of.tell(process, "still")
            self.of.expect(f"{engine}: what its threads found", self.of.line(process), "intact")

    def ends(self) -> None:
        for how in ("exits", "late", "term"):
            with self.of.program(f"checkpoint-{how}", [str(self.of.layout.program("steps_aside"))]) as process:
                self.of.line(process)
                if how == "late":
                    self.of.tell(process, "late")
                    self.of.line(process)
                self.of.must(process, "yield", "engine=driver")
                begin = time.monotonic()
                if how == "term":
                    process.terminate()
                else:
                    self.of.tell(process, "exits")
                code: int | None = None
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(timeout=30)
                self.of.expect(f"checkpoint: the code of a program that {how}", code,
                               -signal.SIGTERM if how == "term" else 0)
                self.of.figures.append(f"step aside, checkpoint: a program that {how} while it is away has ended after "
                                       f"{time.monotonic() - begin:.2f} s")
        time.sleep(1)
        self.of.figures.append(f"step aside, checkpoint: helpers that are there a second later (other runs'): {helpers()}")

    def timing(self, mebibytes: int) -> None:
        idle = gpu_used_mib()
        command = [sys.executable, str(HERE / "py" / "yielding_timing.py"), str(mebibytes)]
        for engine in ENGINES:
            with self.of.program(f"checkpoint-timing-{engine}", command) as process:
                first = self.of.line(process)
                if not first.startswith("{"):
                    self.of.problems.append(f"checkpoint timing: it says {first!r}")
                    return
                plain = json.loads(first)
                self.of.expect("checkpoint timing: ready", self.of.line(process), "ready")
                for which in ("helper started", "again", "prepared", "prepared"):
                    if which == "prepared":
                        self.of.must(process, "yield", f"engine={engine}", "prepare")
                    before = gpu_used_mib()
                    out = self.of.must(process, "yield", f"engine={engine}")
                    away = gpu_used_mib()
                    back = self.of.must(process, "restore")
                    self.of.tell(process, "check")
                    self.of.expect(f"{engine} timing: its contents", self.of.line(process), "intact")
                    seconds = {"out": self.of.seconds(out), "back": self.of.seconds(back)}
                    missed = [f"{key} more than {TARGET_S[key]} s" for key in TARGET_S
                              if engine == "both" and which == "prepared" and mebibytes <= 10240
                              and not seconds[key] <= TARGET_S[key]]
                    self.of.figures.append(
                        f"step aside, {mebibytes} MiB of PyTorch's by {engine}, {which}: out {seconds['out']:.2f} s, back "
                        f"{seconds['back']:.2f} s{' (' + ', '.join(missed) + ')' if missed else ''}; GPU in use {idle} MiB "
                        f"without it, {before} MiB, meanwhile {away} MiB; tensor.cpu() {plain['out']:.2f} s, tensor.cuda() "
                        f"{plain['in']:.2f} s; {out.get('text')}")
                    if idle is not None and away is not None and away - idle > MOST_LEFT_MIB:
                        self.of.problems.append(f"{engine}: {away - idle} MiB of PyTorch's process are left on the GPU")
                self.of.tell(process, "end")
