"""A program that is asked while it runs (docs/live.md): tests/programs/asked.cpp, memlab-ctl and memlab-top on a real
GPU, with the real NVML."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "programs"))

from harness import Layout  # noqa: E402  (the path above)

MIB = 1 << 20


class Asked:
    def __init__(self, layout: Layout, work: Path) -> None:
        self.ctl = str(layout.tool("memlab-ctl"))
        self.top = str(layout.tool("memlab-top"))
        self.problems: list[str] = []
        self.process = subprocess.Popen([str(layout.program("asked"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, cwd=work,
                                        env=layout.environment(memlab=True, output=work / "out"))

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, *words: str) -> dict[str, Any]:
        done = subprocess.run([self.ctl, "--json", str(self.process.pid), *words], capture_output=True, text=True,
                              timeout=60, check=False)
        if done.returncode != 0:
            self.problems.append(f"memlab-ctl {' '.join(words)}: {done.stderr.strip()}")
            return {}
        return dict(json.loads(done.stdout))

    def machine(self, *command: str) -> dict[str, Any]:
        """What a tool says of all processes."""
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0 or done.stderr:
            self.problems.append(f"{' '.join(command)}: {done.returncode}, {done.stderr.strip()}")
            return {}
        return dict(json.loads(done.stdout))

    def judge_machine(self) -> None:
        """NVML's GPU is the program's; its figure of the process is more than what the program holds."""
        holders = self.machine(self.ctl, "holders", "--json")
        self.expect("NVML's driver", bool(holders.get("driver")), True)
        here = [(gpu, process) for gpu in holders.get("gpus", []) for process in gpu["processes"]
                if process["pid"] == self.process.pid]
        self.expect("holders with this program", len(here), 1)
        for gpu, process in here:
            self.expect("a GPU's memory", gpu["total_bytes"] > gpu["used_bytes"] > 3 * MIB, True)
            self.expect("held, by memlab", process["memlab"]["allocated_bytes"], 3 * MIB)
            # In a container NVML need not list it by this process id.
            if process["bytes"] is not None:
                self.expect("its bytes, by NVML", process["bytes"] > 3 * MIB, True)
        seen = self.machine(self.top, "--json")
        found = [process for process in seen.get("processes", []) if process["pid"] == self.process.pid]
        self.expect("memlab-top with this program", [process["under_memlab"] for process in found], [True])

    def expect(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            self.problems.append(f"{what}: {found}, not {wanted}")

    def judge(self) -> None:
        self.expect("its first word", self.line(), "ready")
        status = self.ask("status")
        gpu = (status.get("gpus") or [{}])[0]
        self.expect("allocated", gpu.get("allocated_bytes"), 3 * MIB)
        self.expect("sites", [site["bytes"] for site in self.ask("sites").get("sites", [])], [3 * MIB])
        self.judge_machine()
        self.ask("mark", "here")
        self.tell("allocate")
        self.expect("an allocation", self.line(), "done")
        grown = self.ask("sites", "since-mark").get("sites", [])
        self.expect("since the mark", [site["bytes"] for site in grown], [MIB])
        self.ask("limit", "8MiB")
        self.tell("large")
        self.expect("64 MiB of 8", self.line(), "got 2")
        self.ask("limit", "none")
        self.ask("hold-on-oom", "on")
        self.tell("full_there")
        self.expect("a thread's start", self.line(), "done")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not self.ask("status").get("hold_on_oom", {}).get("waiting"):
            time.sleep(0.05)
        self.expect("released", self.ask("release").get("text"), "released 1 thread")
        self.expect("what it got then", self.line(), "got 2")
        self.tell("exits")
        self.expect("its end", self.process.wait(timeout=60), 0)


def judge_live(layout: Layout, work: Path) -> list[str]:
    """What is wrong."""
    asked = Asked(layout, work)
    try:
        asked.judge()
    finally:
        asked.process.kill()
        asked.process.communicate()
    return asked.problems
