"""Yield and restore on a real GPU (docs/step-aside.md): contents and results bit for bit as without, what is left on the
GPU, and how long it takes. Run as a script: all of it alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "programs"))

sys.path.insert(0, str(HERE))

from checkpoint import ENGINES, Checkpoints  # noqa: E402  (the paths above)
from harness import Layout  # noqa: E402

MIB = 1 << 20
YIELD = {"MEMLAB_YIELD": "on"}
LONGEST_S = 240


class Yielding:
    """A program whose memory is moved while it runs. `problems`: what is wrong; `figures`: lines for the results."""

    def __init__(self, layout: Layout, work: Path) -> None:
        self.layout, self.work = layout, work
        self.ctl = str(layout.tool("memlab-ctl"))
        self.problems: list[str] = []
        self.figures: list[str] = []

    def expect(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            self.problems.append(f"{what}: {found}, not {wanted}")

    @contextlib.contextmanager
    def program(self, name: str, command: list[str], *, memlab: bool = True,
                more: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
        """It is killed when it takes too long, so that reading from it ends."""
        environment = self.layout.environment(memlab=memlab, inherit=command[0] == sys.executable,
                                              output=self.work / name if memlab else None,
                                              settings=(YIELD if memlab else {}) | (more or {}))
        errors = (self.work / f"{name}.stderr").open("w+", encoding="utf-8")
        process = subprocess.Popen(command, env=environment, cwd=self.work, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=errors, text=True)
        watch = threading.Timer(LONGEST_S, process.kill)
        watch.start()
        try:
            yield process
        finally:
            watch.cancel()
            process.kill()
            process.communicate()
            errors.seek(0)
            if said := errors.read().strip():
                self.figures.append(f"step aside, {name}: stderr: {said[-600:]}")
            errors.close()

    def line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def tell(self, process: subprocess.Popen[str], word: str) -> None:
        assert process.stdin is not None
        process.stdin.write(word + "\n")
        process.stdin.flush()

    def ask(self, process: subprocess.Popen[str], *words: str, timeout: float = 60) -> tuple[bool, dict[str, Any]]:
        done = subprocess.run([self.ctl, "--json", str(process.pid), *words], capture_output=True, text=True,
                              timeout=timeout, check=False)
        if done.returncode != 0:
            return False, {"text": done.stderr.strip()}
        return True, dict(json.loads(done.stdout))

    def must(self, process: subprocess.Popen[str], *words: str) -> dict[str, Any]:
        good, answer = self.ask(process, *words)
        if not good:
            self.problems.append(f"memlab-ctl {' '.join(words)}: {answer['text']}")
        return answer

    def used_mib(self, process: subprocess.Popen[str]) -> int | None:
        """What the driver's tools say that the process, or in a container all processes, have of the GPU."""
        for query in ("compute-apps=pid,used_memory", "gpu=memory.used"):
            kind, _, columns = query.partition("=")
            done = subprocess.run(["nvidia-smi", f"--query-{kind}={columns}", "--format=csv,noheader,nounits"],
                                  capture_output=True, text=True, check=False)
            for row in done.stdout.splitlines():
                cells = [cell.strip() for cell in row.split(",")]
                if kind == "gpu" or cells[0] == str(process.pid):
                    return int(cells[-1]) if cells[-1].isdigit() else None
        return None

    @staticmethod
    def resident_mib(process: subprocess.Popen[str]) -> int:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) >> 10

    # ---- the parts

    def blocks(self) -> None:
        """The driver-API program of the tests on the simulated driver."""
        with self.program("blocks", [str(self.layout.program("steps_aside"))]) as process:
            self.expect("its first word", self.line(process), "ready")
            self.tell(process, "where")
            where = self.line(process)
            self.tell(process, "asks")
            asks = re.sub(r"free \d+", "", self.line(process))
            for arguments in ((), ("keep=8MiB",), (f"to=disk:{self.work}",)):
                self.must(process, "yield", *arguments)
                self.tell(process, "asks")
                self.expect(f"answers while it is away ({arguments})", re.sub(r"free \d+", "", self.line(process)), asks)
                self.tell(process, "check")
                time.sleep(0.2)
                self.expect("threads that wait", self.must(process, "status").get("step_aside", {}).get("waiting"), 1)
                self.must(process, "restore")
                self.expect(f"its contents ({arguments})", self.line(process), "intact")
                self.tell(process, "where")
                self.expect("its addresses", self.line(process), where)
            self.tell(process, "churn")
            self.line(process)
            for _ in range(10):
                self.must(process, "yield", "timeout=10")
                time.sleep(0.02)
                self.must(process, "restore")
                time.sleep(0.02)
            self.tell(process, "still")
            self.expect("what its threads found", self.line(process), "intact")
            self.tell(process, "exits")
            self.expect("its end", process.wait(timeout=60), 0)

    def own_handles(self) -> None:
        """Physical memory that the program creates and maps itself, against its model: without memlab the driver's."""
        command = [str(self.layout.program("own_handles"))]
        for memlab in (False, True):
            with self.program(f"own-handles-{memlab}", command, memlab=memlab) as process:
                self.expect("own handles: its first word", self.line(process), "ready")
                moved: list[int] = []
                for seed in range(6):
                    words = [f"random {seed} 60", f"answered {seed} 12"]
                    for which, word in enumerate([*words, "check", "check"]):
                        away = memlab and which == 1
                        if away:
                            moved.append(int(self.must(process, "yield").get("bytes") or 0))
                        self.tell(process, word)
                        self.expect(f"own handles{', moved' if memlab else ''}: {word}", self.line(process), "right")
                        if away:
                            self.must(process, "restore")
                self.tell(process, "clear")
                self.expect("own handles: clear", self.line(process), "right")
                if memlab:
                    self.figures.append(f"step aside, own handles: moved {[each >> 20 for each in moved]} MiB")

    def case(self, name: str, more: dict[str, str] | None = None, *, may_stay: bool = False) -> None:
        """One of yielding_cases.py, right after its memory came back. `may_stay`: nothing of it has to move."""
        command = [sys.executable, str(HERE / "py" / "yielding_cases.py"), name]
        with self.program(f"case-{name}", command, more=more) as process:
            first = self.line(process)
            if first != "ready":
                if first.startswith("not here"):
                    self.figures.append(f"step aside, {name}: {first}")
                else:
                    self.problems.append(f"{name}: it says {first!r}")
                return
            said = []
            for which in range(4):
                good, out = self.ask(process, "yield", "timeout=10", "engine=pool")
                said.append(str(out["text"]))
                if not good and not may_stay:
                    self.problems.append(f"{name}: yield: {out['text']}")
                if good:
                    if which % 2:
                        self.tell(process, "while it is away")  # its first call waits
                        time.sleep(0.3)
                    self.must(process, "restore")
                if not (good and which % 2):
                    self.tell(process, "after it is back")
                self.expect(f"{name}: what it finds, move {which}", self.line(process), "right")
            self.figures.append(f"step aside, {name}: {said[0]}")
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
            self.expect(f"{name}: its end", process.wait(timeout=60), 0)

    def moved_meanwhile(self, name: str, command: list[str], least: int, more: dict[str, str] | None = None,
                        engine: str = "pool") -> None:
        """The program's last line, run twice alone and then with its memory moved at random moments."""
        said = []
        for run in ("alone", "again"):
            with self.program(f"{name}-{run}", command, memlab=False, more=more) as process:
                output, _ = process.communicate(timeout=LONGEST_S)
                said.append(output.strip().splitlines()[-1:])
        self.expect(f"{name}: two runs alone", said[0], said[1])
        chance = random.Random(name)
        times: list[tuple[float, float]] = []
        refused: list[str] = []
        with self.program(f"{name}-moved", command, more=more) as process:
            self.expect(f"{name}: its first word", self.line(process), "ready")
            begin = time.monotonic()
            while process.poll() is None and time.monotonic() - begin < LONGEST_S and len(times) < 40:
                time.sleep(chance.random() / 4)
                good, out = self.ask(process, "yield", "timeout=10", f"engine={engine}")
                if not good:
                    if process.poll() is None:
                        refused.append(str(out["text"]))
                    continue
                time.sleep(chance.random() / 10)
                good, back = self.ask(process, "restore")
                if good:
                    times.append((self.seconds(out), self.seconds(back)))
                elif self.ends_by_itself(process):
                    break
                else:
                    self.problems.append(f"{name}: restore: {back['text']}")
                    break
            output, _ = process.communicate(timeout=LONGEST_S)
            self.expect(f"{name}: its end", process.returncode, 0)
            self.expect(f"{name}: its result, moved {len(times)} times", output.strip().splitlines()[-1:], said[0])
        if len(times) < least:
            self.problems.append(f"{name}: moved {len(times)} times only; refused: {refused[:3]}")
        if times:
            self.figures.append(f"step aside, {name}: moved {len(times)} times, out "
                                f"{statistics.median(out for out, _ in times):.2f} s, back "
                                f"{statistics.median(back for _, back in times):.2f} s (medians), "
                                f"refused {len(refused)} times {sorted(set(refused))[:2]}")

    @staticmethod
    def ends_by_itself(process: subprocess.Popen[str]) -> bool:
        """It was through with its work, and ended while its memory was away."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=5) == 0
        return False

    @staticmethod
    def seconds(answer: dict[str, Any]) -> float:
        found = re.search(r" in (\d+\.\d+) s", str(answer.get("text", "")))
        return float(found.group(1)) if found else float("nan")

    def timing(self, mebibytes: int, rounds: int = 3) -> None:
        command = [sys.executable, str(HERE / "py" / "yielding_timing.py"), str(mebibytes)]
        with self.program("timing", command) as process:
            first = self.line(process)
            if not first.startswith("{"):
                self.problems.append(f"timing: it says {first!r}")
                return
            plain = json.loads(first)
            self.expect("timing: ready", self.line(process), "ready")
            before, resident = self.used_mib(process), self.resident_mib(process)
            for which in range(2 * rounds):
                if which == rounds:
                    self.figures.append(f"step aside, {self.must(process, 'yield', 'prepare').get('text')}")
                begin = time.monotonic()
                out = self.must(process, "yield")
                middle = time.monotonic()
                away = self.used_mib(process)
                self.must(process, "status")
                begin_back = time.monotonic()
                back = self.must(process, "restore")
                end = time.monotonic()
                again = self.resident_mib(process)
                if which < rounds and abs(again - resident) > resident // 100:
                    self.problems.append(f"timing: {again} MiB of host memory are resident after it came back, "
                                         f"{resident} before")
                self.tell(process, "check")
                self.expect("timing: its contents", self.line(process), "intact")
                self.figures.append(
                    f"step aside, {mebibytes} MiB of PyTorch's, {'prepared' if which >= rounds else 'cold'}: out {self.seconds(out):.2f} s "
                    f"({middle - begin:.2f} with memlab-ctl), back {self.seconds(back):.2f} s ({end - begin_back:.2f}), "
                    f"{int(out.get('bytes') or 0) / MIB:.0f} MiB moved; GPU in use {before} MiB, meanwhile {away} MiB; "
                    f"resident {resident} MiB, then {again} MiB; tensor.cpu() {plain['out']:.2f} s, tensor.cuda() "
                    f"{plain['in']:.2f} s; {out.get('text')}")
            self.tell(process, "end")
            self.expect("timing: its end", process.wait(timeout=60), 0)

    def courtesy(self) -> None:
        """By the program itself, in Python: the first work brings it back."""
        script = ("import torch, memlab, warnings\nwarnings.simplefilter('error')\n"
                  "x = torch.arange(1 << 24, device='cuda')\ns = int(x.sum())\nplace = x.data_ptr()\n"
                  "def used():\n    free, total = torch.cuda.mem_get_info()\n    return total - free\n"
                  "c = memlab.Courtesy()\nassert c.yield_memory()\nassert int(x.sum()) == s\n"
                  "assert x.data_ptr() == place\nassert not c.restore()\n"
                  "with memlab.Courtesy():\n    pass\nassert int(x.sum()) == s\nprint('courtesy')\n")
        package = os.pathsep.join([str(HERE.parent.parent / "python"), os.environ.get("PYTHONPATH", "")])
        environment = self.layout.environment(memlab=True, inherit=True, output=self.work / "courtesy",
                                              settings=YIELD | {"PYTHONPATH": package})
        done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=self.work, capture_output=True,
                              text=True, timeout=LONGEST_S, check=False)
        self.expect("courtesy", (done.returncode, done.stdout.strip(), done.stderr[-400:]), (0, "courtesy", ""))


def has_torch() -> bool:
    return subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"],
                          capture_output=True, check=False).returncode == 0


def judge_step_aside(layout: Layout, inheriting: Layout, work: Path, mebibytes: int = 10240,
                     say: Callable[[str], None] = lambda line: None, only: list[str] | None = None,
                     ) -> tuple[list[str], list[str]]:
    """What is wrong, and lines of figures; `say` gets both as they are known. `inheriting`: for Python, with the
    environment of this process. `only`: the parts whose names have one of these texts."""
    native, python = Yielding(layout, work), Yielding(inheriting, work)

    def part(of: Yielding, what: str, run: Any) -> None:
        if only and not any(text in what for text in only):
            return
        begin, figures, problems = time.monotonic(), len(of.figures), len(of.problems)
        try:
            run()
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            of.problems.append(f"{what}: {type(error).__name__}: {error}")
        of.figures.append(f"step aside, {what}: {time.monotonic() - begin:.0f} s")
        for line in of.figures[figures:] + [f"PROBLEM: {problem}" for problem in of.problems[problems:]]:
            say(line)

    part(native, "blocks", native.blocks)
    part(native, "own handles", native.own_handles)
    work_tool = layout.tool("yielding_work")
    if work_tool.exists():
        part(native, "streams and a graph", lambda: native.moved_meanwhile("work", [str(work_tool), "30000", "1024"], 5))
    else:
        native.figures.append("step aside: no yielding_work here (no CUDA compiler)")
    if has_torch():
        part(python, "courtesy", python.courtesy)
        part(python, "training", lambda: python.moved_meanwhile(
            "training", [sys.executable, str(HERE / "py" / "yielding_training.py"), "800", "512"], 5))
        part(python, "timing", lambda: python.timing(mebibytes))
        expandable = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        part(python, "training with expandable segments", lambda: python.moved_meanwhile(
            "expandable training", [sys.executable, str(HERE / "py" / "yielding_training.py"), "800", "512"], 5,
            expandable))
        part(python, "expandable segments", lambda: python.case("expandable", expandable))
    else:
        python.figures.append("step aside: no PyTorch here")
    for name in ("generate", "compiled", "graphs", "workspaces", "window", "managed", "peers", "cupy", "texture"):
        part(python, name, lambda name=name: python.case(name))
    # The driver's own pool stays; nothing but that may be there.
    for allocator in ("platform", "cuda_async"):
        part(python, f"JAX, {allocator}", lambda allocator=allocator: python.case(
            f"jax-{allocator}", {"XLA_PYTHON_CLIENT_ALLOCATOR": allocator, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
            may_stay=allocator == "cuda_async"))
    checkpoints, of_python = Checkpoints(native), Checkpoints(python)
    allowed: list[bool] = []
    part(native, "checkpoint, tried", lambda: allowed.append(checkpoints.possible()))
    if any(allowed):
        for engine in ENGINES:
            part(native, f"checkpoint, {engine}", lambda engine=engine: checkpoints.blocks(engine))
        part(native, "checkpoint, ends", checkpoints.ends)
        if has_torch():
            part(python, "checkpoint, training", lambda: python.moved_meanwhile(
                "checkpoint-training", [sys.executable, str(HERE / "py" / "yielding_training.py"), "800", "512"], 2,
                engine="both"))
            part(python, "checkpoint, timing", lambda: of_python.timing(mebibytes))
    return native.problems + python.problems, native.figures + python.figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="the folder of a build")
    parser.add_argument("--mib", type=int, default=10240, help="moved for the timing (default: 10240)")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="parts with TEXT in their names")
    arguments = parser.parse_args()
    layout = Layout(arguments.build.resolve(), [], [], {}, None)
    with tempfile.TemporaryDirectory(prefix="memlab-step-aside.") as folder:
        problems, _ = judge_step_aside(layout, layout, Path(folder), arguments.mib, lambda line: print(line, flush=True),
                                       arguments.only)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
