"""run.py DIR [--out DIR] [--only TEXT]... [--set NAME=VALUE]... [--hunt SECONDS] [--jobs N] [--seconds S]
       [--again FILE] [--programs FOLDER]

Runs the GPU suite that pack.py made, on a machine with a GPU and without network or packages, and
judges it. Everything runs twice, without and with memlab: output and exit code must be the same, and
every byte must be accounted for in what was recorded. Parts that need something that is not installed
are skipped by name.

Prints a table and "N passed, N failed, N skipped"; exit code 0 when nothing failed, 1 otherwise, 2
when the suite cannot start. Logs and small recordings go to the output folder (DIR/results), and each verdict, as
soon as it is known, to verdicts.jsonl there: --again FILE of an earlier run that was cut off, or failed, runs the rest.

With --jobs N so many processes share the suite. What fills the GPU's memory or takes times has the GPU for itself,
after them; what fails beside others is to be run again alone before it counts.
"""

from __future__ import annotations

import argparse
import glob
import importlib.util
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "programs"))
sys.path.insert(0, str(HERE.parent / "conformance"))
sys.dont_write_bytecode = True

from catalogue import CASES, SHARES_AS_PLAIN_CUDA, SHARES_REFUSED  # noqa: E402  (the path above)
from compare import compare, groups  # noqa: E402
from driver_calls import PROGRAMS, uncounted, watch  # noqa: E402
from harness import (Found, Layout, Outcome, differences, file_name, judge_recordings, run,  # noqa: E402
                     run_case, without_warnings)
import ledger  # noqa: E402
import lines  # noqa: E402
import live  # noqa: E402
import step_aside  # noqa: E402
import sample_checks  # noqa: E402
import steps  # noqa: E402
import tensors  # noqa: E402
from plan import Plan, Results, passed_in  # noqa: E402
from several_gpus import NO_MULTICAST, SeveralGpus  # noqa: E402
from verdicts import Verdict, brief, gpu_count, gpu_name  # noqa: E402

SMALL_RECORDING = 1 << 20


class Suite(SeveralGpus):
    """The run: where things are and what came out."""

    def __init__(self, packed: Path, out: Path, plan: Plan, hunt: float, settings: dict[str, str],
                 programs_folder: Path | None) -> None:
        self.packed, self.out, self.plan, self.hunt = packed, out, plan, hunt
        self.programs_folder = programs_folder
        self.results = Results(out / "verdicts.jsonl")
        self.work = Path(tempfile.mkdtemp(prefix="memlab-gpu."))
        passed_on = {name: value for name, value in os.environ.items()
                     if name.startswith(("CUDA_VISIBLE", "NVIDIA_"))}
        self.layout = Layout(packed, [str(self.libraries())], [], passed_on | settings)
        # What inherits this process's environment brings its own libraries of CUDA.
        self.inheriting_layout = Layout(packed, [], [], settings)
        startup = [str(HERE.parent.parent / "python" / "memlab" / "startup"), os.environ.get("PYTHONPATH", "")]
        self.with_names = {"MEMLAB_NAMES": "auto", "PYTHONPATH": ":".join(filter(None, startup))}
        for folder in ("logs", "recordings"):
            (out / folder).mkdir(parents=True, exist_ok=True)

    def libraries(self) -> Path:
        """A folder with the machine's shared CUDA runtime and CUPTI and nothing else: programs of
        the suite find them there, and no other library of the toolkit takes the place of the one
        that a framework brought along."""
        folder = self.work / "cuda"
        folder.mkdir()
        places = [place for place in os.environ.get("LD_LIBRARY_PATH", "").split(":") if place]
        places += ["/usr/local/cuda/lib64", *sorted(glob.glob("/usr/local/cuda-13*/lib64"), reverse=True),
                   "/usr/lib/x86_64-linux-gnu", "/usr/local/cuda/extras/CUPTI/lib64"]
        for packages in [*site.getsitepackages(), site.getusersitepackages()]:
            places += glob.glob(f"{packages}/nvidia/*/lib")
        for name in ("libcudart.so.13", "libcupti.so.13"):
            for place in places:
                if (Path(place) / name).exists():
                    (folder / name).symlink_to((Path(place) / name).resolve())
                    break
        return folder

    def has_library(self, name: str) -> bool:
        return (self.work / "cuda" / name).exists()

    def wanted(self, name: str) -> bool:
        return self.plan.take(name)

    def can_run_with(self, module: str, name: str) -> bool:
        """Asked for, and the module that it needs is installed; else that is said."""
        if not self.wanted(name):
            return False
        if importlib.util.find_spec(module) is None:
            self.skip(name, f"{module} is not installed")
            return False
        return True

    def folder(self, name: str) -> Path:
        folder = self.work / file_name(name)
        folder.mkdir(parents=True)
        return folder

    def add(self, verdict: Verdict, *outcomes: Outcome) -> None:
        self.results.add(verdict)
        lines = [f"{verdict.name:<46} {verdict.native:<14} {verdict.memlab:<14} {verdict.word}"]
        lines += [f"    {line}" for problem in verdict.problems[:6] for line in problem.splitlines()[:12]]
        sys.stdout.write("\n".join(lines) + "\n")  # at once: others write, too
        sys.stdout.flush()
        if verdict.problems:
            text = "\n".join(verdict.problems)
            for outcome in outcomes:
                text += f"\n\n==== {outcome.describe()}"
            (self.out / "logs" / f"{file_name(verdict.name)}.txt").write_text(text, encoding="utf-8")

    def skip(self, name: str, reason: str) -> None:
        if self.wanted(name):
            self.add(Verdict(name, skipped=reason))

    def keep(self, name: str, found: list[Found]) -> None:
        """Small recordings are kept for later tests."""
        for one in found:
            for path in (one.log, one.report_path):
                if path is not None and path.stat().st_size < SMALL_RECORDING:
                    shutil.copy(path, self.out / "recordings" / f"{file_name(name)}{path.suffix}")

    def page(self, report: Path, *view: str) -> dict:
        """The JSON of a page of memlab-report, the summary's without a view."""
        outcome = run([str(self.layout.tool("memlab-report")), *view, "--json", str(report)],
                      self.layout.environment(memlab=False), self.work, 120)
        return json.loads(outcome.stdout)["reports"][0]

    def keep_named(self, name: str, found: Found) -> None:
        """The report with the names of functions: it is read where the program's libraries are not."""
        named = self.work / f"{file_name(name)}-named.json"
        run([str(self.layout.tool("memlab-report")), "symbolize", str(found.report_path), "--force", "-o", str(named)],
            self.layout.environment(memlab=False), self.work, 120)
        self.keep(name, [replace(found, report_path=named) if named.exists() else found])

    # ---- the parts ------------------------------------------------------------------------------

    def pair(self, name: str, command: list[str], *, expected=None, inherit: bool = False,
             settings: dict[str, str] | None = None, native_settings: dict[str, str] | None = None,
             same_stderr: bool = True, same_figures: bool = True, may_warn: bool = False,
             timeout: float = 120) -> tuple[Verdict, list[Found], list[Outcome]]:
        """A command without and with memlab, compared; what was recorded, judged."""
        work = self.folder(name)
        outcomes, times = [], []
        for memlab in (False, True):
            environment = self.layout.environment(
                memlab=memlab, output=work / "out", inherit=inherit,
                settings=settings if memlab or native_settings is None else native_settings)
            cwd = work / ("memlab" if memlab else "native")
            cwd.mkdir()
            start = time.monotonic()
            outcomes.append(run(command, environment, cwd, timeout))
            times.append(time.monotonic() - start)
        native, under = outcomes
        verdict = Verdict(name, brief(native, times[0]), brief(under, times[1]))
        if not same_stderr:
            own = [line for line in under.stderr.splitlines() if line.startswith(b"memlab:")]
            if own:
                verdict.problems.append("memlab said: " + b"\n".join(own).decode(errors="replace"))
            native = Outcome(native.code, native.stdout, b"")
            under = Outcome(under.code, under.stdout, b"")
        if not same_figures:
            native, under = (replace(each, stdout=re.sub(rb"\d+(\.\d+)?", b"#", each.stdout)) for each in (native, under))
        verdict.problems += differences(native, under, may_warn)
        if outcomes[0].code != 0:
            verdict.problems.append(f"even without memlab it {outcomes[0].describe()}")
        found, problems = judge_recordings(self.layout, work / "out", expected)
        verdict.problems += problems
        return verdict, found, outcomes

    def framework_pair(self, name: str, script: str, arguments: list[str], *, settings: dict[str, str] | None = None,
                       native_settings: dict[str, str] | None = None,
                       timeout: float = 120) -> tuple[Verdict, list[Found], list[Outcome]]:
        """pair() of a script of tests/gpu/py. A framework's own libraries serve it: the suite's folder stays out
        of its way."""
        layout, self.layout = self.layout, self.inheriting_layout
        try:
            return self.pair(name, [sys.executable, str(HERE / "py" / script), *arguments], inherit=True,
                             settings=settings, native_settings=native_settings, same_stderr=False, timeout=timeout)
        finally:
            self.layout = layout

    def programs(self) -> None:
        for case in CASES:
            name = f"program: {case.name}"
            if not self.wanted(name):
                continue
            if case.command[0] in ("runtime_api", "runtime_fork", "device_reset", "two_gpus") and not self.has_library("libcudart.so.13"):
                self.skip(name, "no libcudart.so.13 here")
                continue
            if case.not_on_gpu:
                self.skip(name, case.not_on_gpu)
                continue
            if case.gpus > gpu_count():
                self.skip(name, f"needs {case.gpus} GPUs")
                continue
            start = time.monotonic()
            native, under, found, problems = run_case(self.layout, case, self.folder(name), timeout=90)
            seconds = time.monotonic() - start
            self.add(Verdict(name, str(native.code), brief(under, seconds), problems), native, under)
            if case.command[0] in ("runtime_api", "kinds", "bad_calls", "threads", "contexts", "execs"):
                self.keep(name, found)

    def samples(self) -> None:
        for sample, arguments in sample_checks.RUNS:
            for variant in ("", "_static"):
                name = " ".join((f"sample: {sample}{variant}", *arguments))
                if not self.wanted(name):
                    continue
                if not variant and not self.has_library("libcudart.so.13"):
                    self.skip(name, "no libcudart.so.13 here")
                    continue
                command = [str(self.layout.tool(f"sample_{sample}{variant}")), *arguments]
                verdict, found, outcomes = self.pair(
                    name, command, settings=sample_checks.SETTINGS.get(sample),
                    may_warn=sample in sample_checks.OUT_OF_MEMORY)
                if len(found) == 1 and found[0].report:
                    verdict.problems += sample_checks.problems_of(
                        sample, arguments, outcomes[1].stdout.decode(), found[0].report)
                else:
                    verdict.problems.append(f"{len(found)} recordings, not 1 with a report")
                self.add(verdict, *outcomes)
                self.keep(name, found)
                if found and found[0].report_path and variant:
                    self.show(sample, found[0].report_path)

    def show(self, name: str, report: Path) -> None:
        """memlab-report's text, for the results folder and the reader."""
        outcome = run([str(self.layout.tool("memlab-report")), str(report)],
                      self.layout.environment(memlab=False), self.work)
        (self.out / "logs" / f"report_{file_name(name)}.txt").write_bytes(outcome.stdout + outcome.stderr)
        problems = [] if outcome.code == 0 else [outcome.describe()]
        if name == "cache_lines":
            problems += sample_checks.problems_of_text(outcome.stdout.decode(errors="replace"))
        self.add(Verdict(f"memlab-report of {name}", "", str(outcome.code), problems), outcome)

    def conformance(self) -> None:
        for program in sorted((self.packed / "bin").glob("conformance_*")):
            name = program.name
            if not self.wanted(name):
                continue
            work = self.folder(name)
            outcomes, times = [], []
            for memlab in (False, True):
                start = time.monotonic()
                outcomes.append(run([str(program)], self.layout.environment(memlab=memlab, output=work / "out"),
                                    work, 120))
                times.append(time.monotonic() - start)
            verdict = Verdict(name, brief(outcomes[0], times[0]), brief(outcomes[1], times[1]))
            for who, outcome in zip(("the real driver", "the real driver under memlab"), outcomes):
                if outcome.code != 0:
                    wrong = [line for line in outcome.stdout.decode(errors="replace").splitlines()
                             if not line.startswith("ok ")]
                    verdict.problems.append(f"on {who}, exit code {outcome.code}:\n" + "\n".join(wrong))
            _, problems = judge_recordings(self.layout, work / "out", None)
            verdict.problems += problems
            self.add(verdict, *outcomes)

    def transcripts(self) -> None:
        """The same calls with and without memlab, and with and without its pool, answer the same."""
        for name in ("conformance_calls_driver", "conformance_calls_edges", "conformance_calls_runtime", "conformance_calls_runtime_static"):
            if not self.wanted(name):
                continue
            if name == "conformance_calls_runtime" and not self.has_library("libcudart.so.13"):
                self.skip(name, "no libcudart.so.13 here")
                continue
            start, verdict, calls = time.monotonic(), Verdict(name), 0
            for group in groups(self.layout, name):
                native, problems = compare(self.layout, name, group, self.folder(f"{name} {group}"))
                verdict.problems += [f"{group}: {problem}" for problem in problems]
                calls += sum(line[:1].isdigit() and ": " in line for line in native.stdout.decode().splitlines())
            if calls < 150:
                verdict.problems.append(f"{calls} calls only")
            verdict.native, verdict.memlab = f"{calls} calls", f"{time.monotonic() - start:.1f} s"
            self.add(verdict)

    def shared_memory(self) -> None:
        """Importers of memlab's memory see the exporter's, or the export was refused; see ipc.cpp."""
        for backend in ("classic", "vmm"):
            for importer in ("plain", "preloaded"):
                name = f"ipc: {importer} importer, {backend}"
                if self.wanted(name):
                    self.share_memory(name, [importer], {"MEMLAB_BACKEND": backend})
        for way in (*SHARES_AS_PLAIN_CUDA, *SHARES_REFUSED):
            name = f"ipc: {way}, vmm"
            if self.wanted(name):
                self.share_one_block(name, way)

    def share_one_block(self, name: str, way: str) -> None:
        """A handle of memlab's own is worth what the driver's is; see shares.cpp."""
        work, start = self.folder(name), time.monotonic()
        command = [str(self.layout.program("shares")), way]
        native = run(command, self.layout.environment(memlab=False), work, 90)
        under = run(command, self.layout.environment(memlab=True, output=work / "out",
                                                     settings={"MEMLAB_BACKEND": "vmm"}), work, 90)
        verdict = Verdict(name, str(native.code), brief(under, time.monotonic() - start))
        expected = b"refused: %d\n" % SHARES_REFUSED[way] if way in SHARES_REFUSED else native.stdout
        if under.code != 0 or under.stdout != expected:
            verdict.problems.append(f"it {under.describe()}")
        self.add(verdict, native, under)

    def share_memory(self, name: str, arguments: list[str], settings: dict[str, str]) -> None:
        """`arguments` say who imports, and where."""
        work, start = self.folder(name), time.monotonic()
        sizes = ["1000", "2000", "100000", "3000000", "30000000"]
        command = [str(self.layout.program("ipc")), "export", *arguments, *sizes]
        native = run(command, self.layout.environment(memlab=False), work, 90)
        under = run(command, self.layout.environment(memlab=True, output=work / "out", settings=settings), work, 90)
        verdict = Verdict(name, str(native.code), brief(under, time.monotonic() - start))
        for outcome in (native, under):
            if outcome.code != 0:
                verdict.problems.append(f"it {outcome.describe()}")
        exact = [f"{size}: exact" for size in sizes]
        if native.stdout.decode().splitlines()[1:] != [*exact, "allocated afterwards", *exact]:
            verdict.problems.append(f"plain CUDA is not exact: {native.describe()}")
        lines = under.stdout.decode().splitlines()
        if lines[-len(sizes):] != exact:
            verdict.problems.append(f"not exact after the first export: {under.describe()}")
        if settings.get("MEMLAB_BACKEND") == "vmm" and "preloaded" in arguments and lines[1:1 + len(sizes)] != exact:
            verdict.problems.append(f"mapped memory was not shared exactly: {under.describe()}")
        self.add(verdict, native, under)

    def limits(self) -> None:
        """MEMLAB_LIMIT: every kind of memory ends where the limited device says that it is full."""
        program = str(self.layout.program("limited"))
        for kind in ("device", "pitch", "vmm", "array", "async", "pool"):
            for name, settings in (("", {}), (", not pooled", {"MEMLAB_POOL": "off"}),
                                   (", MEMLAB_BACKEND=classic", {"MEMLAB_BACKEND": "classic"})):
                name = f"limit: {kind}{name}"
                if not self.wanted(name):
                    continue
                work, start = self.folder(name), time.monotonic()
                environment = self.layout.environment(memlab=True, output=work / "out",
                                                      settings=settings | {"MEMLAB_LIMIT": "2GiB"})
                info = run([program, "info"], environment, work, 60)
                filled = run([program, "fill", kind], environment, work, 60)
                verdict = Verdict(name, "", brief(filled, time.monotonic() - start))
                seen = re.match(rb"free (\d+) total (\d+) device (\d+)\n", info.stdout)
                if seen is None or seen[2] != seen[3] or int(seen[2]) != 2 << 30:
                    verdict.problems.append(f"the device is not one of 2 GiB: {info.describe()}")
                else:
                    full = f"{int(seen[1]) // (64 << 20)} pieces, then 2\n".encode()
                    if filled.stdout != full * 2 or filled.code != 0:
                        verdict.problems.append(f"not twice {full!r}: {filled.describe()}")
                _, problems = judge_recordings(self.layout, work / "out", None)
                verdict.problems += problems
                self.add(verdict, info, filled)

    def waiting_work(self) -> None:
        """Work that waits for later work, with frees between that must not wait for it."""
        name = "spin free, MEMLAB_FREE_SYNC=never"
        if self.wanted(name):
            work, start = self.folder(name), time.monotonic()
            outcome = run([str(self.layout.program("spin")), "free"],
                          self.layout.environment(memlab=True, output=work / "out",
                                                  settings={"MEMLAB_FREE_SYNC": "never"}), work, 60)
            problems = [] if outcome.code == 0 else [outcome.describe()]
            self.add(Verdict(name, "", brief(outcome, time.monotonic() - start), problems), outcome)

    def race_hunter(self) -> None:
        """No memory in two hands at once; and without fences it is found that there would be."""
        short = {"MEMLAB_LIMIT": "2GiB"}  # the pool must reuse what is freed, whatever runs on it
        runs = [*((f"race hunter, {sync}", sync, {}, []) for sync in ("auto", "always", "never")),
                ("race hunter, never, memory short", "never", short, ["--leave", "48"]),
                ("race hunter, no fences", "", {}, [])]
        for seed, (name, sync, settings, arguments) in enumerate(runs):
            if not self.wanted(name):
                continue
            work, start = self.folder(name), time.monotonic()
            seconds = self.hunt if sync else min(self.hunt, 4)
            settings = settings | {"MEMLAB_KEEP_LOG": "off"}
            if sync:
                settings["MEMLAB_FREE_SYNC"] = sync
            else:
                settings["LD_PRELOAD"] = str(self.packed / "lib" / "libmemlab_unfenced.so")
            outcome = run([str(self.layout.tool("race_hunter")), "--seconds", str(seconds), "--seed",
                           str(int(time.time()) * 10 + seed), *arguments],
                          self.layout.environment(memlab=True, output=work / "out", settings=settings),
                          work, seconds + 60)
            sums = outcome.stdout.decode(errors="replace").splitlines()[-1:]
            verdict = Verdict(name, "", brief(outcome, time.monotonic() - start))
            # Without fences the VMM backend also takes pages away from running work.
            found = outcome.code == 1 or b"an illegal memory access" in outcome.stdout
            if outcome.code != 0 if sync else not found:
                verdict.problems.append(f"it {outcome.describe()}")
            self.results.add_table(f"{name}: {sums[0] if sums else 'nothing'}\n")
            self.add(verdict, outcome)

    def one_stream(self) -> None:
        """Memory used again at once while all work goes to one stream, and when that ends. With the order
        left out that a second stream begins with, it is found to be needed: there is one moment for that in a
        run, which does not always tell."""
        second, third = "work on a second stream", "a stream capture"
        runs = [(kind, threads, then, said) for kind, threads, then, said in (
            ("non-blocking", 1, "nothing", "all work went to one stream"),
            ("non-blocking", 4, "nothing", "all work went to one stream"),
            ("blocking", 2, "nothing", "all work went to one stream"),
            ("legacy", 1, "nothing", "all work went to one stream"),
            ("legacy", 4, "copies", "all work went to one stream"),
            ("per-thread", 1, "nothing", "all work went to one stream"),
            ("per-thread", 4, "nothing", second),
            ("non-blocking", 1, "streams", second), ("non-blocking", 8, "streams", second),
            ("blocking", 4, "streams", second), ("legacy", 4, "streams", second),
            ("per-thread", 1, "streams", second), ("non-blocking", 4, "copies", second),
            ("non-blocking", 1, "destroy", second), ("blocking", 1, "destroy", second),
            ("non-blocking", 4, "graphs", third), ("legacy", 4, "graphs", third))]
        variants = [(f"one stream, {kind}, {threads} threads, then {then}", said, "libmemlab.so",
                     ["--one", kind, "--threads", str(threads), "--then", then])
                    for kind, threads, then, said in runs]
        variants += [(f"one stream, no order, then {then}", "", "libmemlab_unordered.so",
                      ["--one", "non-blocking", "--threads", "4", "--then", then])
                     for then in ("streams", "copies")]
        for seed, (name, said, library, arguments) in enumerate(variants):
            if not self.wanted(name):
                continue
            work, start = self.folder(name), time.monotonic()
            seconds = max(1, self.hunt // 6)
            environment = self.layout.environment(memlab=True, output=work / "out", settings={
                "LD_PRELOAD": str(self.packed / "lib" / library), "MEMLAB_FREE_SYNC": "never",
                "MEMLAB_KEEP_LOG": "off", "MEMLAB_VERBOSITY": "debug"})
            for _ in range(1 if said else 10):
                outcome = run([str(self.layout.tool("race_hunter")), "--seconds", str(seconds), "--seed",
                               str(int(time.time()) * 20 + seed), *arguments], environment, work, seconds + 60)
                if outcome.code != 0:
                    break
            sums = outcome.stdout.decode(errors="replace").splitlines()[-1:]
            verdict = Verdict(name, "", brief(outcome, time.monotonic() - start))
            if outcome.code != (0 if said else 1):
                verdict.problems.append(f"it {outcome.describe()}")
            elif said and f"one stream: {said}\n" not in outcome.stderr.decode(errors="replace"):
                verdict.problems.append(f"memlab does not say \"{said}\": {outcome.describe()}")
            elif said and ", 0 of running," in sums[0] and arguments[3] == "1":
                verdict.problems.append("no memory was used again while its work still ran")
            self.results.add_table(f"{name}: {sums[0] if sums else 'nothing'}\n")
            self.add(verdict, outcome)

    def unwinder(self) -> None:
        """Every stack captured in a training run is the one that libgcc's unwinder finds."""
        for name, settings, at_least in (
                ("unwinder: PyTorch, own cache", {}, 10),
                ("unwinder: PyTorch, without its cache", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, 1000)):
            if not self.can_run_with("torch", name):
                continue
            work, start = self.folder(name), time.monotonic()
            settings |= {"LD_PRELOAD": str(self.packed / "lib" / "libmemlab_verified.so"),
                         "MEMLAB_STACK_DEPTH": "256", "MEMLAB_KEEP_LOG": "off"}
            environment = self.inheriting_layout.environment(memlab=True, output=work / "out", settings=settings,
                                                          inherit=True)
            outcome = run([sys.executable, str(HERE / "py" / "train.py")], environment, work, 150)
            found = re.findall(rb"memlab verified: (\d+) stacks of (\d+) frames", outcome.stderr)
            stacks, frames = (sum(int(count[i]) for count in found) for i in (0, 1))
            verdict = Verdict(name, "", brief(outcome, time.monotonic() - start))
            if outcome.code != 0 or stacks < at_least:
                verdict.problems.append(f"{stacks} stacks verified; it {outcome.describe()}")
            self.results.add_table(f"{name}: {stacks} stacks of {frames} frames are those of libgcc\n")
            self.add(verdict, outcome)

    def work_clock(self) -> None:
        """All work that CUPTI saw run was seen submitted by memlab."""
        for module, program, script, arguments, settings in PROGRAMS:
            name = f"work clock: {program}"
            if not self.can_run_with(module, name):
                continue
            work, start = self.folder(name), time.monotonic()
            sees = "calls,work" if program == "pytorch_cuda_graphs" else "work"
            lines, problem = watch(self.packed, True, work, script, arguments, settings, sees)
            problem = problem or uncounted(lines)
            figures = ", ".join(" ".join(line.split()[1:]) for line in lines
                                if not line.startswith("call ") or "GraphLaunch" in line)
            self.results.add_table(f"{name}: {figures}\n")
            self.add(Verdict(name, "", f"{time.monotonic() - start:.1f} s", [problem] if problem else []))

    def witness(self) -> None:
        """CUPTI's MEMORY2 records against the segments and driver allocations of the log."""
        runs = [("malloc_free",), ("threads",), ("contents",), ("out_of_memory",), ("runtime_api_static",),
                ("runtime_api",)]
        commands = {" ".join(run_): [str(self.layout.program(run_[0])), *run_[1:]] for run_ in runs}
        for sample in ("cache_lines_static", "inplace_static", "oom_recovery_static"):
            commands[f"sample_{sample}"] = [str(self.layout.tool(f"sample_{sample}"))]
        for what, command in commands.items():
            name = f"witness: {what}"
            if not self.wanted(name):
                continue
            if not self.has_library("libcupti.so.13"):
                self.skip(name, "no libcupti.so.13 here")
                continue
            work = self.folder(name)
            # Of mapped memory CUPTI has a record for each chunk, the log an event for each growth.
            environment = self.layout.environment(memlab=True, output=work / "out", settings={
                "CUDA_INJECTION64_PATH": str(self.packed / "lib" / "cupti_reference.so"),
                "WITNESS_OUTPUT": str(work / "witness.txt"), "MEMLAB_BACKEND": "classic"})
            start = time.monotonic()
            outcome = run(command, environment, work, 90)
            verdict = Verdict(name, "", brief(outcome, time.monotonic() - start))
            found, verdict.problems = judge_recordings(self.layout, work / "out", None, traffic=True)
            if len(found) != 1:
                verdict.problems.append(f"{len(found)} recordings, not 1")
            else:
                verdict.problems += self.compare_witness(work / "witness.txt", found[0].audit["traffic"])
            self.add(verdict, outcome)
            if verdict.problems and (work / "witness.txt").exists():
                shutil.copy(work / "witness.txt", self.out / "logs" / f"{file_name(name)}_cupti.txt")

    def pool_records(self) -> None:
        """Why the audit leaves CUPTI's MEMORY_POOL records alone: they tell neither a pool's growth nor its
        handle; all that is allocated from a pool has a MEMORY2 record."""
        name = "witness: CUPTI's records of pools"
        if not self.wanted(name):
            return
        if not self.has_library("libcupti.so.13"):
            self.skip(name, "no libcupti.so.13 here")
            return
        work, start = self.folder(name), time.monotonic()
        environment = self.layout.environment(memlab=False, settings={
            "CUDA_INJECTION64_PATH": str(self.packed / "lib" / "cupti_reference.so"),
            "WITNESS_SEES": "memory,pools", "WITNESS_OUTPUT": str(work / "witness.txt")})
        outcome = run([str(self.layout.program("limited")), "fill", "pool"], environment, work, 90)
        records = [line.split() for line in (work / "witness.txt").read_text(encoding="utf-8").splitlines()]
        taken = sum(int(record[3]) for record in records if record[0] == "alloc" and record[4] == "1")
        pools = [record for record in records if record[0] == "pool"]
        verdict = Verdict(name, brief(outcome, time.monotonic() - start))
        if outcome.code != 0 or taken < 2 << 30:
            verdict.problems.append(f"{taken} bytes from pools; it {outcome.describe()}")
        if {record[1] for record in pools} - {"created", "destroyed", "trimmed"} or \
                not 0 < max((int(record[4]) for record in pools), default=0) < 1 << 30:
            verdict.problems.append(f"the records of pools are {pools}")
        self.add(verdict, outcome)

    def compare_witness(self, path: Path, traffic: list[list]) -> list[str]:
        if not path.exists():
            return ["the witness wrote nothing"]
        lines = path.read_text(encoding="utf-8").splitlines()
        failed = [line for line in lines if line.startswith("failed")]
        if failed or not lines or lines[-1] != "end":
            return [f"the witness was cut off: {failed or lines[-1:]}"]
        seen: Counter = Counter()
        for line in lines[:-1]:
            what, kind, address, size, is_async = line.split()
            if kind == "3" and is_async == "0":
                seen[(what, int(address), int(size))] += 1
        recorded = Counter((what, address, size) for what, address, size in traffic)
        problems = []
        for title, difference in (("CUPTI saw and memlab did not", seen - recorded),
                                  ("memlab recorded and CUPTI did not see", recorded - seen)):
            if difference:
                shown = ", ".join(f"{what} 0x{address:x} {size}" for what, address, size in list(difference)[:8])
                problems.append(f"{title}: {sum(difference.values())}: {shown}")
        if not seen:
            problems.append("CUPTI saw no device memory at all")
        return problems

    def python(self) -> None:
        uncached = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        compared = uncached | {"MEMLAB_PYTHON": "verify", "MEMLAB_STACK_DEPTH": "128"}
        stacks = str(self.work / "python-stacks.json")
        runs = [("torch", "PyTorch, own cache", "train.py", [], {}, 1),
                ("torch", "PyTorch, CUDA graphs", "graph_work.py", [], {}, 1),
                ("torch", "PyTorch, without its cache", "train.py", [], uncached, 1000),
                ("torch", "PyTorch, Python stacks", "python_stacks.py", [stacks], compared, 60),
                ("torch", "PyTorch, NVTX scopes", "nvtx_scopes.py", [],
                 uncached | {"NVTX_INJECTION64_PATH": str(self.packed / "lib" / "libmemlab.so")}, 100),
                ("cupy", "CuPy, own cache", "cupy_work.py", [], {}, 1),
                ("cupy", "CuPy, without its cache", "cupy_work.py", ["uncached"], {}, 10),
                ("jax", "JAX, platform allocator", "jax_work.py", [],
                 {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, 5),
                ("jax", "JAX, the driver's pool", "jax_work.py", [],
                 {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, 5),
                ("numba", "numba", "numba_work.py", [], {}, 2)]
        losses = {}
        for module, name, script, arguments, settings, at_least in runs:
            if not self.can_run_with(module, name):
                continue
            verdict, found, outcomes = self.framework_pair(name, script, arguments, settings=settings,
                                                           native_settings=settings, timeout=150)
            verdict.problems += self.judge_framework(found, at_least)
            if script == "train.py":
                losses[name] = outcomes[1].stdout
                verdict.problems += self.judge_torch_sites(found)
            if script == "python_stacks.py":
                verdict.problems += self.judge_python_stacks(found, Path(stacks))
            if script == "nvtx_scopes.py":
                verdict.problems += self.judge_scopes(found, outcomes[1].stdout)
            if module == "jax" and outcomes[0].stdout.split()[:1] not in ([b"gpu"], [b"cuda"]):
                verdict = Verdict(name, skipped="jax finds no GPU")
            self.add(verdict, *outcomes)
            self.keep(name, found)
            if found and found[0].report_path:
                self.show(name, found[0].report_path)
            if name == "PyTorch, without its cache" and found and found[0].log:
                self.memory_viz(found[0].log)
        if len(losses) == 2 and len(set(losses.values())) != 1:
            self.add(Verdict("PyTorch, the same loss with and without its cache", problems=[
                b"\n".join(losses.values()).decode(errors="replace")]))

    def tensors(self) -> None:
        for name, mode, settings in tensors.RUNS:
            if not self.can_run_with("torch", name):
                continue
            statistics = self.work / "torch-statistics.json"
            verdict, found, outcomes = self.framework_pair(name, "pytorch_tensors.py", [mode, str(statistics)],
                                                           settings=settings, native_settings=settings)
            if mode == "out_of_memory":  # which memlab explains
                said = [problem for problem in verdict.problems if "memlab: out of memory: PyTorch's allocation" in problem]
                verdict.problems = [problem for problem in verdict.problems if problem not in said]
                verdict.problems += [] if said else ["memlab did not explain the failure"]
            verdict.problems += tensors.judge_tensors(found, statistics)
            self.add(verdict, *outcomes)
            if not found or not found[0].report_path:
                continue
            self.show(name, found[0].report_path)
            self.keep_named(name, found[0])

    def flight_recorder(self) -> None:
        """A log that is a ring has every figure of the whole run, at each mark, after SIGKILL too."""
        for mode, code in (("many", 0), ("many_killed", -9)):
            name = f"flight recorder: {mode.replace('_', ', ')}"
            if not self.can_run_with("torch", name):
                continue
            work, statistics, start = self.folder(name), self.work / f"{mode}.json", time.monotonic()
            outcome = run([sys.executable, str(HERE / "py" / "pytorch_tensors.py"), mode, str(statistics)],
                          self.inheriting_layout.environment(memlab=True, output=work / "out", inherit=True,
                                                             settings={"MEMLAB_LOG_LIMIT": "2MiB"}), work, 120)
            verdict = Verdict(name, "", brief(outcome, time.monotonic() - start))
            if outcome.code != code or outcome.stderr:
                verdict.problems.append(outcome.describe())
            logs = list((work / "out").glob("*.memlog"))
            whole = run([str(self.layout.tool("log_to_report")), *map(str, logs)], self.layout.environment(memlab=False), work, 60)
            timeline = run([str(self.layout.tool("memlab-report")), "timeline", *map(str, logs)],
                           self.layout.environment(memlab=False), work, 60)
            if whole.code != 0 or b"MEMLAB_LOG_LIMIT" not in timeline.stdout + timeline.stderr:
                verdict.problems += [whole.describe(), timeline.describe()]
            else:
                verdict.problems += tensors.judge_tensors([Found(name, report=json.loads(whole.stdout))], statistics)
            if sum(log.stat().st_size for log in logs) > 2 << 20:
                verdict.problems.append(f"the log has {logs[0].stat().st_size} bytes")
            if code == 0 and [path.read_bytes() for path in (work / "out").glob("*.json")] != [whole.stdout]:
                verdict.problems.append("the report that was written at the end is not the log's")
            self.add(verdict, outcome)

    def backward(self) -> None:
        """The lines of the forward in what backward allocates, against PyTorch's anomaly detection."""
        for mode in tensors.BACKWARD:
            name = f"backward: {mode}"
            if not self.can_run_with("torch", name):
                continue
            expected, snapshot = (self.work / f"backward-{mode}.{ending}" for ending in ("json", "pickle"))
            settings = {"MEMLAB_STACK_DEPTH": "128"}
            verdict, found, outcomes = self.framework_pair(name, "backward_lines.py", [mode, str(expected)],
                                                           settings=settings, native_settings={}, timeout=300)
            logs = [one.log for one in found if one.log and one.report and one.report["sites"]]
            if logs:
                run([str(self.layout.tool("memlab-report")), "export", "--to", "pytorch", "--no-symbols", "-o",
                     str(snapshot), str(logs[0])], self.layout.environment(memlab=False), self.work, 300)
            if snapshot.exists() and expected.exists():
                note, problems = tensors.judge_backward(mode, snapshot, expected)
                self.results.add_table(f"backward: {note}\n")
                verdict.problems += problems
                verdict.problems += [f"missed: {entry['reason']}" for entry in found[0].report["missed"]
                                     if "backward" in entry["reason"]]
                self.keep_named(name, found[0])
            else:
                verdict.problems.append("no report, or no word of PyTorch's")
            self.add(verdict, *outcomes)
            if found and found[0].report_path:
                self.show(name, found[0].report_path)

    def nn_modules(self) -> None:
        """The memory of each layer at the peak, against the sizes of its tensors."""
        name = "nn.Modules"
        if not self.can_run_with("torch", name):
            return
        expected = self.work / "nn_modules.json"
        verdict, found, outcomes = self.framework_pair(name, "nn_modules.py", [str(expected)])
        reports = [one.report for one in found if one.report and one.report["sites"]]
        if reports and expected.exists():
            verdict.problems += tensors.judge_nn_modules(reports[0], json.loads(expected.read_text(encoding="utf-8")))
        else:
            verdict.problems.append("no report, or no word of PyTorch's")
        self.add(verdict, *outcomes)

    def witnessed_nn_modules(self) -> None:
        """Memory by nn.Module at eleven moments, against hooks on every one; by category, against PyTorch's MemTracker."""
        for kind, models in (("nn.Modules:", tensors.WITNESSED), ("MemTracker:", tensors.TRACKED)):
            for model in models:
                name = f"{kind} {model}"
                if not self.can_run_with("transformers" if model in ("gpt2", "vit", "generate", "fsdp2") else "torch", name):
                    continue
                if model in ("data_parallel", "fsdp2") and gpu_count() < 2:
                    self.skip(name, "needs 2 GPUs")
                    continue
                expected = self.work / f"{file_name(name)}.json"
                verdict, found, outcomes = self.framework_pair(
                    name, "module_witness.py", [("tracker:" if kind == "MemTracker:" else "") + model, str(expected)],
                    settings=self.with_names | NO_MULTICAST | tensors.EXACT_BLOCKS,
                    native_settings=NO_MULTICAST | tensors.EXACT_BLOCKS, timeout=200)
                one = next((one for one in found if one.log and one.report and one.report["sites"]), None)
                if one is None or not expected.exists():
                    verdict.problems.append("no log, or no word of the witness's")
                elif kind == "MemTracker:":
                    agreed, problems = tensors.judge_tracker(self.page(one.report_path),
                                                             json.loads(expected.read_text(encoding="utf-8")))
                    self.results.add_table(f"{name}: {100 * agreed:.2f} % of its bytes at the peak agree\n")
                    verdict.problems += problems
                else:
                    said, shares = json.loads(expected.read_text(encoding="utf-8")), {}
                    # DataParallel's others are while other threads run, or behind a Python function; FSDP2 makes memory in
                    # storages that are there already, unseen by the witness.
                    if model in ("data_parallel", "fsdp2"):
                        said = {moment: said[moment] for moment in ("forward", "peak")}
                    for moment, held in said.items():
                        page = self.page(one.log, "timeline", "--at", moment, "--by", "nn-module", "--top", "100000")
                        shares[moment], problems = tensors.judge_moment(moment, page, held)
                        verdict.problems += problems
                    self.results.add_table(f"{name}: " + ", ".join(f"{moment} {100 * share:.2f} %"
                                                                   for moment, share in shares.items()) + "\n")
                    self.keep_named(name, one)
                self.add(verdict, *outcomes)
                if one is not None and one.report_path:
                    self.show(name, one.report_path)

    def line_profiles(self) -> None:
        """pytorch_memlab's names in the Python package, in the uses that it documents."""
        name = "line profiles"
        if not self.can_run_with("torch", name):
            return
        answers = self.work / "line_profiles.json"
        verdict, _, outcomes = self.framework_pair(name, "line_profiles.py", [str(answers)])
        if answers.exists():
            verdict.problems += lines.judge_line_profiles(json.loads(answers.read_text(encoding="utf-8")))
        else:
            verdict.problems.append("nothing was collected")
        self.add(verdict, *outcomes)

    def limits_in_tests(self) -> None:
        """pytest --memlab, of tests that use PyTorch."""
        name = "pytest --memlab"
        if not self.can_run_with("torch", name) or not self.can_run_with("pytest", name):
            return
        work, start = self.folder(name), time.monotonic()
        environment = self.inheriting_layout.environment(memlab=False, inherit=True)
        packages = [str(HERE.parent.parent / "python"), environment.get("PYTHONPATH", "")]
        outcome = run([str(self.layout.tool("memlab-run")), "--quiet", "--", sys.executable, "-m", "pytest", "--memlab",
                       "-p", "memlab.pytest_plugin", "-p", "no:cacheprovider", "--junit-xml", str(work / "junit.xml"),
                       str(HERE / "py" / "limits_in_tests.py")],
                      environment | {"PYTHONPATH": ":".join(filter(None, packages)), "MEMLAB_FILES": "off"}, work, 300)
        verdict = Verdict(name, "", brief(outcome, time.monotonic() - start))
        if (work / "junit.xml").exists():
            verdict.problems += lines.judge_limits(work / "junit.xml")
        else:
            verdict.problems.append(outcome.describe())
        self.add(verdict, outcome)

    def names(self) -> None:
        """Names of nn.Modules, gradients and the optimizer's states, without a call in the program."""
        name = "names without a call"
        if not self.can_run_with("torch", name):
            return
        expected = self.work / "names.json"
        verdict, found, outcomes = self.framework_pair(name, "names.py", [str(expected)], native_settings={},
                                                       settings=self.with_names)
        reports = [one.report for one in found if one.report and one.report["sites"]]
        if reports and expected.exists():
            verdict.problems += tensors.judge_names(reports[0], json.loads(expected.read_text(encoding="utf-8")))
        else:
            verdict.problems.append("no report, or no word of PyTorch's")
        self.add(verdict, *outcomes)

    def validation(self) -> None:
        """The sample that shows what a validation keeps; PyTorch runs it."""
        peaks: dict[str, int] = {}
        for way in ("grad", "no_grad"):
            name = f"sample: validation {way}"
            if not self.can_run_with("torch", name):
                continue
            verdict, found, outcomes = self.framework_pair(name, "../../../samples/validation.py", [way])
            report = next((one.report_path for one in found if one.report_path and one.report and one.report["sites"]), None)
            if report is None:
                verdict.problems.append("no report with sites")
            else:
                verdict.problems += tensors.judge_validation(way, self.page(report), peaks)
                self.keep_named(name, found[0])
                self.show(name, report)
            self.add(verdict, *outcomes)

    def gpt2_training(self) -> None:
        """The sample of a training; its recording has names."""
        name = "sample: GPT-2 training"
        if not self.can_run_with("transformers", name):
            return
        verdict, found, outcomes = self.framework_pair(name, "../../../samples/gpt2_training.py", [], native_settings={},
                                                       settings=self.with_names, timeout=200)
        one = next((one for one in found if one.report_path and one.report and one.report["sites"]), None)
        if one is None:
            verdict.problems.append("no report with sites")
        else:
            named = {entry["name"] for entry in one.report.get("nn_modules", [])}
            wanted = {f"GPT2LMHeadModel.transformer.h.{layer}.mlp.c_fc" for layer in range(12)}
            verdict.problems += [f"no memory of {sorted(wanted - named)}"] if wanted - named else []
            self.keep_named(name, one)
            self.show(name, one.report_path)
        self.add(verdict, *outcomes)

    def categories(self) -> None:
        for model in tensors.MODELS:
            name = f"categories: {model}"
            module = "transformers" if model == "gpt2" else "torch"
            if not self.can_run_with(module, name):
                continue
            expected = self.work / f"categories-{model}.json"
            verdict, found, outcomes = self.framework_pair(name, "pytorch_categories.py", [model, str(expected)],
                                                           timeout=300)
            reports = [one.report_path for one in found if one.report_path and one.report and one.report["sites"]]
            if reports and expected.exists():
                agreed, problems = tensors.judge_categories(self.page(reports[0]), expected)
                self.results.add_table(f"{name}: {100 * agreed:.1f} % of torch.profiler's bytes at the peak agree\n")
                verdict.problems += problems
                self.keep_named(name, found[0])
            else:
                verdict.problems.append("no report, or no word of torch.profiler's")
            self.add(verdict, *outcomes)

    def ledgers(self) -> None:
        """What has no row in the ledger, of each kind of program."""
        for module, name, script, arguments in ledger.RUNS:
            if not self.can_run_with(module, name):
                continue
            if script.endswith(".py"):
                verdict, found, outcomes = self.framework_pair(name, script, arguments, timeout=150)
            else:
                verdict, found, outcomes = self.pair(name, [str(self.layout.program(script)), *arguments])
            if outcomes[0].code == 77:  # its one line says why
                self.skip(name, outcomes[0].stdout.decode("utf-8").strip())
                continue
            reports = [one.report_path for one in found if one.report_path and one.report and one.report["devices"]]
            if reports:
                line, problems = ledger.judge_ledger(self.page(reports[0], "ledger"))
                self.results.add_table(f"{name}: {line}\n")
                verdict.problems += problems
                text = run([str(self.layout.tool("memlab-report")), "ledger", str(reports[0])],
                           self.layout.environment(memlab=False), self.work, 120)
                (self.out / "logs" / f"{file_name(name)}_page.txt").write_bytes(text.stdout + text.stderr)
            else:
                verdict.problems.append("no report")
            self.add(verdict, *outcomes)

    def memory_viz(self, log: Path) -> None:
        """PyTorch's own tools read the snapshot that memlab-report makes of the log."""
        name = "PyTorch's memory_viz reads the export"
        start = time.monotonic()
        outcome = run([sys.executable, str(HERE / "py" / "memory_viz.py"),
                       str(self.layout.tool("memlab-report")), str(log)],
                      self.inheriting_layout.environment(memlab=False, inherit=True), self.folder(name), 180)
        verdict = Verdict(name, "", brief(outcome, time.monotonic() - start))
        counted = re.fullmatch(rb"(\d+) segments (\d+) blocks (\d+) entries\n", outcome.stdout)
        if outcome.code != 0 or counted is None or int(counted[3]) < 1000:
            verdict.problems.append(outcome.describe())
        self.add(verdict, outcome)

    @staticmethod
    def judge_framework(found: list[Found], at_least: int) -> list[str]:
        using = [one for one in found if one.audit.get("kinds")]
        if len(using) != 1:
            return [f"{len(using)} recordings with memory in them, not 1: {[one.stem for one in found]}"]
        count = using[0].audit["kinds"].get("device", {"allocs": {"count": 0}})["allocs"]["count"]
        return [] if count >= at_least else [f"{count} device allocations, expected {at_least} at least"]

    @staticmethod
    def judge_scopes(found: list[Found], stdout: bytes) -> list[str]:
        """What forward leaves behind is what autograd saved; backward, in threads of its own, and the
        optimizer give it all back."""
        said = re.fullmatch(rb"saved (\d+) parameters (\d+)\n", stdout)
        scopes = {scope["name"]: scope for scope in found[0].report.get("scopes", [])} if found else {}
        if said is None or not {"step", "forward", "backward", "optimizer"} <= scopes.keys():
            return [f"it printed {stdout!r}; the scopes are {sorted(scopes)}"]
        saved, parameters = int(said[1]), int(said[2])
        step, forward = scopes["step"], scopes["forward"]
        backward, optimizer = scopes["backward"], scopes["optimizer"]
        steps, problems = forward["entries"], []
        left = forward["escaped"]["bytes"] / steps
        # Beside it: the loss, and in the first step the libraries' workspaces.
        if not saved <= left <= 1.02 * saved + (64 << 20) / steps:
            problems.append(f"forward leaves {left:.0f} bytes, autograd saved {saved}")
        if forward["peak_growth_bytes"] < saved:
            problems.append(f"forward adds {forward['peak_growth_bytes']} at its peak")
        if backward["other_threads_bytes"] < steps * parameters:
            problems.append(f"autograd's threads allocated {backward['other_threads_bytes']} in backward, "
                            f"the gradients alone have {steps * parameters}")
        if backward["freed_bytes"] < steps * saved:
            problems.append(f"backward freed {backward['freed_bytes']}, not the {steps * saved} saved")
        if optimizer["freed_bytes"] < steps * parameters:
            problems.append(f"the optimizer freed {optimizer['freed_bytes']}, not the gradients")
        # Two cuBLAS handles (the program's thread and autograd's) keep 64 MiB each, PyTorch 32 for each of them.
        if step["escaped"]["bytes"] > (256 << 20):
            problems.append(f"the steps leave {step['escaped']['bytes']} bytes behind")
        verdicts = {each["name"]: each["verdict"] for each in found[0].report.get("steps", [])}
        if verdicts.get("step") != "steady":
            problems.append(f"the verdicts are {verdicts}")
        return problems

    @staticmethod
    def judge_python_stacks(found: list[Found], expected: Path) -> list[str]:
        """Each operator's Python frames must be those that Python itself gave beside it."""
        report = next((one.report for one in found if one.report and one.report["sites"]), None)
        if report is None or "python_frames" not in report:
            return ["no report with Python frames"]
        problems = [f"missed: {entry['reason']}" for entry in report["missed"] if "Python" in entry["reason"]]
        stacks: dict[tuple, list[int]] = {}
        for site_ in report["sites"]:
            frames = [report["frames"][frame] for frame in report["stacks"][site_["stack"]]["frames"]]
            python = [report["python_frames"][frame["python"]] for frame in frames if "python" in frame]
            totals = stacks.setdefault(tuple((frame["function"], frame["file"], frame["line"])
                                             for frame in python), [0, 0])
            totals[0] += site_["count"]
            totals[1] += site_["requested_bytes"]
        wanted = json.loads(expected.read_text(encoding="utf-8"))
        for entry in wanted:
            stack = tuple(map(tuple, entry["stack"]))
            want, got = [entry["count"], entry["bytes"]], stacks.get(stack, [0, 0])
            if got != want and not (stack[0][0] == "multiplied" and got > want):
                problems.append(f"{want} allocations and bytes at {stack[:3]}, the report has {got}")
        return problems[:5] + ([] if len(wanted) >= 20 else [f"only {len(wanted)} stacks"])

    @staticmethod
    def judge_torch_sites(found: list[Found]) -> list[str]:
        """The sites that hold most at the peak must have been called from PyTorch's libraries."""
        report = next((one.report for one in found if one.report and one.report["sites"]), None)
        if report is None:
            return ["no report with sites"]
        device_sites = [site_ for site_ in report["sites"] if site_["kind"] == "device"]
        top = sorted(device_sites, key=lambda site_: -site_["at_peak_bytes"])[:5]
        problems = []
        for site_ in top:
            frames = report["stacks"][site_["stack"]]["frames"]
            paths = {report["modules"][report["frames"][frame]["module"]]["path"] for frame in frames}
            if not any("/libtorch" in path or "/libc10" in path for path in paths):
                problems.append(f"site {site_['id']} with {site_['at_peak_bytes']} bytes at the peak was "
                                f"called from {sorted(paths)}")
        return problems

    # ---- CUPTI: who is its subscriber, and what memlab learns from it (docs/cupti.md)

    def cupti(self) -> None:
        for flavor in ("runtime_api", "runtime_api_static"):
            self.cupti_program(f"CUPTI: names, {flavor}", flavor, [], {"MEMLAB_CUPTI": "on"},
                               self.judge_names)
        for program in ("kinds", "threads", "contents"):
            self.cupti_program(f"CUPTI: audit, {program}", program, [], {"MEMLAB_AUDIT": "on"},
                               lambda report: self.judge_audit(report, 0, 0))
        self.cupti_program("CUPTI: audit, a bypass", "bypass", ["3"], {"MEMLAB_AUDIT": "on"},
                           lambda report: self.judge_audit(report, 3, 9 << 20))
        self.cupti_program("CUPTI: memlab unsubscribes for another profiler", "subscribes_itself", [], {"MEMLAB_CUPTI": "on"},
                           lambda report: [] if "memlab unsubscribed" in report["coverage"]["because"] else
                           [f"memlab did not leave: {report['coverage']}"])
        name = "CUPTI: kernels at the peak"
        if self.wanted(name):
            command = [str(self.layout.tool("sample_checkpointing")), "plain"]
            verdict, found, outcomes = self.pair(name, command, settings={"MEMLAB_KERNELS": "on"})
            verdict.problems += self.judge_work(found)
            self.add(verdict, *outcomes)
            self.keep(name, found)
        self.cupti_frameworks()
        self.cupti_under_a_sanitizer()

    def cupti_program(self, name: str, program: str, arguments: list[str], settings: dict[str, str],
                      judge) -> None:
        if not self.wanted(name):
            return
        command = [str(self.layout.program(program)), *arguments]
        verdict, found, outcomes = self.pair(name, command, settings=settings, may_warn=True)
        if len(found) != 1 or not found[0].report:
            verdict.problems.append(f"{len(found)} recordings")
        else:
            verdict.problems += judge(found[0].report)
        self.add(verdict, *outcomes)

    @staticmethod
    def judge_audit(report: dict, count: int, size: int) -> list[str]:
        coverage = report["coverage"]
        if not coverage["audited"] or not coverage["driver_count"] or coverage["lost_records"]:
            return [f"not audited, or not all of it: {coverage}"]
        if (coverage["bypassed_count"], coverage["bypassed_bytes"]) != (count, size):
            return [f"not {count} allocations of {size} bytes bypassed memlab: {coverage}"]
        nameless = [each for each in coverage["bypassed"] if not each["api"] or not each["stack"]]
        return [f"nobody is named: {nameless}"] if nameless else []

    def judge_names(self, report: dict) -> list[str]:
        apis = {site["api"] for site in report["sites"]}
        wanted = {"cudaMalloc", "cudaMallocPitch", "cudaMalloc3D", "cudaMallocManaged", "cudaMallocHost",
                  "cudaHostAlloc", "cudaMallocAsync", "cudaMallocArray"}
        problems = [f"not named: {sorted(wanted - apis)}, but {sorted(apis)}"] if wanted - apis else []
        return problems + self.judge_audit(report, 0, 0)

    @staticmethod
    def judge_work(found: list[Found]) -> list[str]:
        reports = [one.report for one in found if one.report and one.report["sites"]]
        if len(reports) != 1:
            return [f"{len(reports)} reports"]
        device = reports[0]["devices"][0]
        if not device.get("work", {}).get("kernel", {}).get("count"):
            return [f"no kernel was recorded: {reports[0]['coverage']}"]
        moment = device["kernels_at_peak"]
        if not moment["kernels"] or not all(kernel["name"] for kernel in moment["kernels"]):
            return [f"no kernel at the peak has a name: {moment}"]
        return []

    def cupti_frameworks(self) -> None:
        """With the frameworks' own caches off, so that all of their memory is memlab's to account for."""
        uncached = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        platform = {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}
        everything = {"MEMLAB_CUPTI": "on", "MEMLAB_KERNELS": "on"}
        left = "Another profiler wants to be CUPTI's only subscriber"
        runs = [("torch", "CUPTI: torch.profiler beside memlab", "profiled.py", [], uncached, left),
                ("torch", "CUPTI: PyTorch, audit and kernels", "train.py", [], uncached, ""),
                ("cupy", "CUPTI: CuPy, audit and kernels", "cupy_work.py", ["uncached"], {}, ""),
                ("jax", "CUPTI: JAX, audit and kernels", "jax_work.py", [], platform, "")]
        for module, name, script, arguments, settings, because in runs:
            if not self.can_run_with(module, name):
                continue
            verdict, found, outcomes = self.framework_pair(name, script, arguments, settings=settings | everything,
                                                           native_settings=settings)
            reports = [one.report for one in found if one.report and one.report["sites"]]
            if len(reports) != 1:
                verdict.problems.append(f"{len(reports)} reports with memory in them")
            elif because:
                if because not in reports[0]["coverage"]["because"]:
                    verdict.problems.append(f"memlab did not say that it left: {reports[0]['coverage']}")
            else:
                verdict.problems += self.judge_audit(reports[0], 0, 0) + self.judge_work(found)
            self.add(verdict, *outcomes)

    def cupti_under_a_sanitizer(self) -> None:
        """CUPTI does not work there: memlab says so, and nothing else happens."""
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        for name, settings in (("CUPTI: auto under compute-sanitizer", {"MEMLAB_AUDIT": "on"}),
                               ("CUPTI: on under compute-sanitizer", {"MEMLAB_CUPTI": "on"})):
            if not self.wanted(name):
                continue
            if not Path(tool).exists():
                self.skip(name, "compute-sanitizer is not installed")
                continue
            command = [tool, "--tool", "memcheck", "--error-exitcode", "99", str(self.layout.program("contents"))]
            verdict, found, outcomes = self.pair(name, command, inherit=True, settings=settings)
            using = [one for one in found if one.report and one.report["sites"]]
            if len(using) != 1:
                verdict.problems.append(f"{len(using)} recordings with memory in them, not 1")
            elif using[0].report["coverage"]["audited"] or not using[0].report["coverage"]["because"]:
                verdict.problems.append(f"it claims an audit: {using[0].report['coverage']}")
            self.add(verdict, *outcomes)

    def forked(self) -> None:
        """A child that uses its parent's CUDA fails as it does without memlab; who cannot know why is told."""
        for module, told in (("torch", 0), ("numba", 1), ("cupy", 1)):  # PyTorch looks for the fork itself
            name = f"fork: {module}"
            if not self.can_run_with(module, name):
                continue
            work, layout = self.folder(name), self.inheriting_layout
            command = [sys.executable, str(HERE / "py" / "fork_work.py"), module]
            outcomes = [run(command, layout.environment(memlab=memlab, output=work / "out", inherit=True), work, 90)
                        for memlab in (False, True)]
            lines = [line for line in outcomes[1].stderr.splitlines() if line.startswith(b"memlab: process ")]
            verdict = Verdict(name, str(outcomes[0].code), str(outcomes[1].code))
            if outcomes[0].code != 0 or outcomes[0].stdout != outcomes[1].stdout:
                verdict.problems += [outcome.describe() for outcome in outcomes]
            if len(lines) != told:
                verdict.problems.append(f"memlab said {lines}, expected {told} lines")
            self.results.add_table(f"{name}: {outcomes[0].stdout.decode(errors='replace').splitlines()[1]}\n")
            self.add(verdict, *outcomes)

    def ranks(self) -> None:
        """torchrun with two ranks on one GPU: a run folder, its tree, and the ranks side by side."""
        name = "ranks: torchrun"
        if not self.can_run_with("torch", name):
            return
        work, start, layout = self.folder(name), time.monotonic(), self.inheriting_layout
        environment = layout.environment(memlab=False, inherit=True)
        outcome = run([str(layout.tool("memlab-run")), "--quiet", "-o", f"{work}/run/", "--", sys.executable, "-m",
                       "torch.distributed.run", "--nproc-per-node", "2", str(HERE / "py" / "ranks_work.py")],
                      environment, work, 120)
        verdict = Verdict(name, "", brief(outcome, time.monotonic() - start))
        merged = run([str(layout.tool("memlab-report")), "merge", "--json", f"{work}/run"], environment, work, 60)
        tree = run([str(layout.tool("memlab-report")), "--json", f"{work}/run"], environment, work, 60)
        try:
            rows = json.loads(merged.stdout)["ranks"]
            seen = [(row["rank"], row["local_rank"], row["allocated_peak_bytes"]) for row in rows]
            if [row[:2] for row in seen] != [(0, 0), (1, 1)] or seen[1][2] - seen[0][2] != 32 << 20:
                verdict.problems.append(f"not two ranks of which the second keeps 32 MiB more: {seen}")
            (gpu,) = json.loads(tree.stdout)["gpus"]
            at_once = gpu["allocated"]
            if not at_once["at_once_at_least_bytes"] <= at_once["at_once_at_most_bytes"] <= at_once["sum_of_peaks_bytes"]:
                verdict.problems.append(f"what both held at once: {at_once}")
        except (ValueError, KeyError, IndexError) as error:
            verdict.problems.append(f"{error!r}: {merged.describe()} {tree.describe()}")
        for what, view in (("tree", [f"{work}/run"]), ("ranks", ["merge", f"{work}/run"])):
            text = run([str(layout.tool("memlab-report")), *view], environment | {"COLUMNS": "110"}, work, 60)
            (self.out / "logs" / f"torchrun_{what}.txt").write_bytes(text.stdout + text.stderr)
        self.add(verdict, outcome)

    def frameworks(self) -> None:
        """Each framework with its own cache and without: time a step and peaks, as docs/frameworks.md has them."""
        off = {"torch": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "jax": {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}}
        small = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".10"}  # of a GPU that others may use too
        for module in ("torch", "jax", "cupy", "numba"):
            name = f"framework: {module}"
            if not self.can_run_with(module, name):
                continue
            verdict, sums, outcomes = Verdict(name), set(), []
            without = {"cupy": ["uncached"]}.get(module, [])
            variants = [("alone", None, [], {}), ("memlab", [], [], {})]
            if module != "numba":  # keeps nothing
                variants += [("alone, its cache off", None, without, off.get(module, {})),
                             ("memlab --replace", ["--replace"] if not without else [], without, {})]
            for variant, options, arguments, settings in variants:
                work = self.folder(f"{name} {variant}")
                command = [sys.executable, os.path.relpath(HERE / "py" / "framework_steps.py"), module, *arguments]
                if options is not None:
                    command = [str(self.layout.tool("memlab-run")), "--quiet", "-o", f"{work}/out/", *options, "--",
                               *command]
                environment = self.inheriting_layout.environment(memlab=False, inherit=True, settings=small | settings)
                outcome = run(command, environment, Path.cwd(), 120)
                outcomes.append(outcome)
                if outcome.code != 0:
                    verdict.problems.append(f"{variant}: {outcome.describe()}")
                    continue
                figures = json.loads(outcome.stdout.splitlines()[-1])
                sums.add(figures["sum"])
                line = f"{name}, {variant}: {figures['ms']} ms a step"
                if options is not None:
                    line += self.framework_peaks(work / "out", f"{module}_{file_name(variant)}")
                self.results.add_table(line + "\n")
            if len(sums) != 1:
                verdict.problems.append(f"different results: {sums}")
            self.add(verdict, *outcomes)

    def asked_while_it_runs(self) -> None:
        name = "live: a program that is asked"
        if self.wanted(name):
            start = time.monotonic()
            problems = live.judge_live(self.layout, self.folder(name))
            self.add(Verdict(name, "", f"{time.monotonic() - start:.1f} s", problems))

    def stepping_aside(self) -> None:
        name = "step aside: memory out and back"
        if self.wanted(name):
            start = time.monotonic()
            problems, figures = step_aside.judge_step_aside(self.layout, self.inheriting_layout, self.folder(name))
            self.results.add_table("\n".join(figures) + "\n")
            self.add(Verdict(name, "", f"{time.monotonic() - start:.1f} s", problems))

    def unmarked_steps(self) -> None:
        for module, mode, arguments, options, seen in steps.RUNS:
            name = " ".join(("steps:", mode, *arguments, *options))
            if not self.can_run_with(module, name):
                continue
            work, start = self.folder(name), time.monotonic()
            command = [str(self.layout.tool("memlab-run")), "--quiet", "-o", f"{work}/out/", *options, "--",
                       sys.executable, str(HERE / "py" / "unmarked_steps.py"), mode, *arguments]
            settings = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".10"}  # of a GPU that others may use too
            outcome = run(command, self.inheriting_layout.environment(memlab=False, inherit=True, settings=settings),
                          work, 240)
            verdict = Verdict(name, "", brief(outcome, time.monotonic() - start))
            if outcome.code != 0:
                verdict.problems.append(outcome.describe())
            else:
                log = max((work / "out").glob("*.memlog"), key=lambda path: path.stat().st_size)
                count = json.loads(outcome.stdout.splitlines()[-1])["steps"]
                verdict.problems += steps.judge_steps(self.page(log), count, seen)
                if verdict.problems and log.stat().st_size < 16 * SMALL_RECORDING:
                    shutil.copy(log, self.out / "recordings" / f"{file_name(name)}.memlog")
            self.add(verdict, outcome)

    def framework_peaks(self, folder: Path, name: str) -> str:
        """The peaks of the recording in a folder, which is kept where it is small."""
        found = max(folder.glob("memlab.*.json"), key=lambda path: path.stat().st_size)
        report = json.loads(found.read_text(encoding="utf-8"))
        for path in (found, found.with_suffix(".memlog")):
            if path.stat().st_size < SMALL_RECORDING:
                shutil.copy(path, self.out / "recordings" / f"framework_{name}{path.suffix}")
        text = ""
        for device in report["devices"]:
            curves = device["curves"]
            text += (f", allocated {curves['allocated']['peak_bytes'] / (1 << 20):.2f} MiB, reserved "
                     f"{curves['reserved']['peak_bytes'] / (1 << 20):.2f} MiB, "
                     f"{sum(kind['count'] for kind in device['kinds'].values())} allocations")
        return text

    def sanitizer(self) -> None:
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        for sample, arguments in (("inplace_static", ()), ("checkpointing_static", ("checkpointed",))):
            name = f"compute-sanitizer: {sample}"
            if not self.wanted(name):
                continue
            if not Path(tool).exists():
                self.skip(name, "compute-sanitizer is not installed")
                continue
            command = [tool, "--tool", "memcheck", "--error-exitcode", "99",
                       str(self.layout.tool(f"sample_{sample}")), *arguments]
            verdict, found, outcomes = self.pair(name, command, inherit=True)
            using = [one for one in found if one.audit.get("kinds")]
            if len(using) != 1:
                verdict.problems.append(f"{len(using)} recordings with memory in them, not 1")
            for one in using:
                device = one.audit["kinds"]["device"]
                if device["by_pool"]["count"] or one.audit["segments"]["allocs"]["count"]:
                    verdict.problems.append("memlab pooled under the sanitizer: overruns would be hidden")
            self.add(verdict, *outcomes)

    def launcher(self) -> None:
        """memlab-run passes exit codes and signals through, and recovers the report of the killed."""
        for way, code in (("exit", 8), ("sigkill", 137), ("_exit", 9)):
            name = f"memlab-run: {way}"
            if not self.wanted(name):
                continue
            work = self.folder(name)
            command = [str(self.layout.tool("memlab-run")), "--",
                       str(self.layout.program("ways_to_end")), way]
            outcome = run(command, self.layout.environment(memlab=False), work, 60)
            verdict = Verdict(name, str(code), str(outcome.code))
            if outcome.code not in (code, -9 if way == "sigkill" else code):
                verdict.problems.append(f"it {outcome.describe()}")
            if outcome.stdout.splitlines()[:1] != [f"ending by {way}".encode()]:
                verdict.problems.append("the program's output is not the first that is seen")
            reports = list(work.glob("*.json"))
            if len(reports) != 1:
                verdict.problems.append(f"{len(reports)} reports")
            self.add(verdict, outcome)

    def given_programs(self) -> None:
        """Each program of a folder behaves as natively, with both backends; times that it prints may differ."""
        default = {"MEMLAB_TRIM_AFTER": "500ms"}  # memory for other processes, which the suite turns off
        for program in sorted(self.programs_folder.iterdir()) if self.programs_folder else []:
            for suffix, settings in (("", default), (", classic", default | {"MEMLAB_BACKEND": "classic"})):
                name = f"given: {program.name}{suffix}"
                if program.is_file() and os.access(program, os.X_OK) and self.wanted(name):
                    verdict, _, outcomes = self.pair(name, [str(program)], settings=settings, native_settings={},
                                                     same_stderr=False, same_figures=False)
                    self.add(verdict, *outcomes)

    def benchmarks(self) -> None:
        for program in ("bench_pair", "bench_passing", "bench_startup", "bench_unwind"):
            if not self.wanted(program):
                continue
            start = time.monotonic()
            outcome = run([str(self.layout.tool(program))], self.layout.environment(memlab=False),
                          self.folder(program), 180)
            problems = [] if outcome.code == 0 else [outcome.describe()]
            self.add(Verdict(program, "", brief(outcome, time.monotonic() - start), problems), outcome)
            self.results.add_table(outcome.stdout.decode(errors="replace"))
        if self.wanted("bench_launches") and importlib.util.find_spec("torch") is not None:
            start = time.monotonic()
            outcome = run([sys.executable, str(HERE.parent / "bench" / "bench_launches.py"), str(self.layout.library)],
                          self.inheriting_layout.environment(memlab=False, inherit=True),
                          self.folder("bench_launches"), 180)
            problems = [] if outcome.code == 0 else [outcome.describe()]
            self.add(Verdict("bench_launches", "", brief(outcome, time.monotonic() - start), problems), outcome)
            self.results.add_table(outcome.stdout.decode(errors="replace"))

    def run_parts(self, share: float = 0) -> None:
        """`share`: how far down the list to begin, so that workers begin with different parts."""
        parts = [self.programs, self.samples, self.conformance, self.transcripts, self.shared_memory, self.limits,
                 self.waiting_work, self.race_hunter, self.one_stream, self.witness, self.pool_records, self.launcher,
                 self.sanitizer, self.cupti, self.python, self.tensors, self.flight_recorder, self.backward,
                 self.nn_modules, self.witnessed_nn_modules, self.line_profiles, self.limits_in_tests, self.names,
                 self.validation, self.gpt2_training, self.categories, self.ledgers, self.unwinder, self.forked,
                 self.ranks, self.frameworks, self.unmarked_steps, self.asked_while_it_runs, self.stepping_aside,
                 self.work_clock, self.given_programs, self.peer_memory, self.peer_races, self.shared_between_gpus,
                 self.training_ranks, self.broken_ranks, self.stray_context, self.frameworks_on_all, self.benchmarks]
        first = int(share * len(parts))
        for part in parts[first:] + parts[:first]:
            if not self.plan.begin(part.__name__):
                continue
            try:
                part()
            except Exception as error:  # one broken part must not cost the results of the others
                self.add(Verdict(part.__name__, problems=["".join(traceback.format_exception(error))]))
        for name in self.plan.not_begun:
            self.results.add(Verdict(name, skipped="no time was left", begun=False))

    def finish(self) -> int:
        verdicts, tables = self.results.read()
        failed = [verdict for verdict in verdicts if verdict.problems and not verdict.skipped]
        late = [verdict for verdict in verdicts if not verdict.begun]
        skipped = [verdict for verdict in verdicts if verdict.skipped and verdict.begun]
        passed = len(verdicts) - len(failed) - len(late) - len(skipped)
        for table in tables:
            print(f"\n{table}", end="")
        (self.out / "logs" / "benchmarks.txt").write_text("\n".join(tables), encoding="utf-8")
        if failed:
            print("\nfailed: " + "; ".join(verdict.name for verdict in failed))
        if late:
            print("\nno time was left for: " + "; ".join(verdict.name for verdict in late))
        print(f"\n{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
        shutil.rmtree(self.work, ignore_errors=True)
        return 1 if failed or passed == 0 else 0


def run_workers(jobs: int, claims: Path, until: float | None) -> None:
    """This script so many times, each with a share; until all have ended."""
    workers = []
    for number in range(jobs):
        command = [sys.executable, *sys.argv, "--worker", str(claims), "--share", f"{number}/{jobs}"]
        command += [] if until is None else ["--until", str(until)]
        workers.append(subprocess.Popen(command))
    for worker in workers:
        worker.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, help="where logs and recordings go (default: DIR/results)")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT",
                        help="only what has TEXT in its name; with several, one of them")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="an option of memlab, or several, that the whole suite runs with")
    parser.add_argument("--hunt", type=float, default=4, metavar="SECONDS",
                        help="how long the race hunter looks in each mode (default: 4)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many processes share the suite (default: 1)")
    parser.add_argument("--seconds", type=float, metavar="S", help="begin nothing after S seconds, and name what is left")
    parser.add_argument("--again", type=Path, metavar="FILE",
                        help="a verdicts.jsonl: only what did not pass there, and what it does not have")
    parser.add_argument("--programs", type=Path, metavar="FOLDER",
                        help="executables of your own, which must behave as natively, too")
    # Of run_workers().
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--share", default="0/1", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    packed = arguments.folder.resolve()
    for setting in arguments.set:
        if "=" not in setting:
            print(f"gpu: --set {setting}: give NAME=VALUE", file=sys.stderr)
            return 2
    if not (packed / "lib" / "libmemlab.so").exists():
        print(f"gpu: {packed} is no packed suite: make it with tools/dev gpu --pack", file=sys.stderr)
        return 2
    if arguments.again is not None and not arguments.again.is_file():
        print(f"gpu: --again {arguments.again}: no such file; it is verdicts.jsonl of an earlier run", file=sys.stderr)
        return 2
    if arguments.programs is not None and not arguments.programs.is_dir():
        print(f"gpu: --programs {arguments.programs}: no such folder", file=sys.stderr)
        return 2
    try:
        name = gpu_name()
    except OSError as error:
        print(f"gpu: {error}: this suite needs a GPU machine", file=sys.stderr)
        return 2
    out = (arguments.out or packed / "results").resolve()
    start = time.monotonic()
    until = arguments.until
    if until is None and arguments.seconds is not None:
        until = start + arguments.seconds
    done = frozenset() if arguments.again is None else passed_in(arguments.again)
    beside = arguments.jobs > 1 and arguments.worker is None
    plan = Plan(arguments.worker, alone=beside, until=until, done=done,
                only=tuple(text.lower() for text in arguments.only))
    suite = Suite(packed, out, plan, arguments.hunt, dict(setting.split("=", 1) for setting in arguments.set),
                  arguments.programs.resolve() if arguments.programs else None)
    if arguments.worker is not None:
        number, jobs = map(int, arguments.share.split("/"))
        suite.run_parts(number / jobs)
        shutil.rmtree(suite.work, ignore_errors=True)
        return 0
    suite.results.path.unlink(missing_ok=True)
    print(f"{name}; Python {sys.version.split()[0]}", flush=True)
    print(f"{'name':<46} {'native':<14} {'memlab':<14} verdict", flush=True)
    if beside:
        with tempfile.TemporaryDirectory(prefix="memlab-gpu-claims.") as claims:
            run_workers(arguments.jobs, Path(claims), until)
    suite.run_parts()
    print(f"\n{time.monotonic() - start:.0f} s")
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
