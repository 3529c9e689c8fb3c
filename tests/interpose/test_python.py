"""Python frames in call sites, under every tested CPython that is installed here: the report must give
the stacks that Python itself gives in the same program. On the simulated driver, through ctypes,
which releases the GIL around its calls as PyTorch does.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from harness import Found, Outcome, judge_recordings
from support import ROOT, Build, EndToEnd

GROUP = ""  # run.py's: only the interpreters of this version ("3.12"); empty: all
PROGRAMS = ROOT / "tests" / "programs" / "python"
TESTED = tuple((3, minor) for minor in range(9, 16))
LONGEST_TEXT = 4096
DEPTH = 256
MOST_ACTIVATIONS = 64


def installed(versions: tuple[tuple[int, int], ...]) -> list[tuple[str, str]]:
    """(version, executable) of the interpreters that are here, pyenv's too; each build once."""
    candidates = [sys.executable]
    for major, minor in versions:
        name = f"python{major}.{minor}"
        candidates += [folder + "/" + name for folder in
                       ("/usr/bin", "/usr/local/bin", *os.environ.get("PATH", "").split(":"))]
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
        candidates += map(str, sorted(pyenv.glob(f"versions/{major}.{minor}*/bin/{name}")))
    return known_builds(candidates, versions, without_gil=False)


def free_threaded() -> list[tuple[str, str]]:
    """The same of builds without the GIL."""
    names = [f"python{major}.{minor}t" for major, minor in TESTED]
    candidates = [shutil.which(name) or "" for name in names]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += [str(path) for name in names for path in sorted(pyenv.glob(f"versions/*/bin/{name}"))]
    return known_builds(candidates, TESTED, without_gil=True)


def known_builds(candidates: list[str], versions: tuple[tuple[int, int], ...],
                 without_gil: bool) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    probe = ("import sys, ctypes, sysconfig; print(sys.version_info[0], sys.version_info[1], "
             "sys.implementation.name, hex(sys.hexversion), "
             "sysconfig.get_config_var('Py_GIL_DISABLED'), "
             "sys._base_executable or sys.executable)")
    for candidate in candidates:
        if shutil.which(candidate) is None:
            continue
        answer = subprocess.run([candidate, "-c", probe], capture_output=True, text=True,
                                check=False, timeout=60).stdout.split()
        if (len(answer) == 6 and (int(answer[0]), int(answer[1])) in versions
                and answer[2] == "cpython" and (answer[4] == "1") == without_gil):
            found.setdefault(os.path.realpath(answer[5]), f"{answer[0]}.{answer[1]}")
    return sorted((version, path) for path, version in found.items())


def python_stack(report: dict, index: int) -> tuple:
    """The Python frames of a stack: (function, file, line), innermost first."""
    frames = [report["frames"][frame] for frame in report["stacks"][index]["frames"]]
    python = [report["python_frames"][frame["python"]] for frame in frames if "python" in frame]
    return tuple((frame["function"], frame["file"], frame["line"]) for frame in python)


def kept(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "..."


class PythonFrames(EndToEnd):
    """What Python programs of every shape are reported as."""

    interpreters: list[tuple[str, str]] = []
    maxDiff = None
    version = ""  # of the interpreter that each_interpreter() gave last

    @classmethod
    def setUpClass(cls) -> None:
        cls.interpreters = [entry for entry in installed(TESTED)
                            if not GROUP or entry[0] == GROUP]

    def each_interpreter(self):
        if not self.interpreters:
            self.skipTest(f"no CPython of the tested versions is installed here {GROUP}")
        for self.version, path in self.interpreters:
            yield self.version, path

    def run_python(self, interpreter: str, script: str, *arguments: str, timeout: float = 120,
                   **settings: str) -> Outcome:
        shutil.rmtree(self.output, ignore_errors=True)
        settings = {"MEMLAB_STACK_DEPTH": str(DEPTH), "PYTHONHASHSEED": "0"} | settings
        return self.under_memlab([interpreter, "-B", str(PROGRAMS / script), *arguments], settings,
                                 timeout=timeout)

    def recording(self) -> Found:
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        self.assertEqual(len(found), 1)
        return found[0]

    def compare(self, report: dict, expected_file: Path, depth: int = DEPTH) -> int:
        """Every stack of the report with its allocations and bytes against the program's own list."""
        expected = {}
        for entry in json.loads(expected_file.read_text(encoding="utf-8")):
            stack = tuple((kept(function), kept(file), line)
                          for function, file, line in entry["stack"])
            expected[stack] = (entry["count"], entry["bytes"])
        reported: dict[tuple, list[int]] = {}
        for site in report["sites"]:
            key = (python_stack(report, site["stack"]),
                   report["stacks"][site["stack"]]["truncated"])
            totals = reported.setdefault(key, [0, 0])
            totals[0] += site["count"]
            totals[1] += site["requested_bytes"]
        for (stack, truncated), totals in reported.items():
            # The limit was reached: what is there is the beginning, and long (in 3.9 and 3.10 each frame is an
            # activation of its own), or only native frames are missing, of which 3.9 has most.
            if truncated and (depth == DEPTH or stack not in expected):
                self.assertGreaterEqual(len(stack), MOST_ACTIVATIONS if self.version in ("3.9", "3.10")
                                        else depth // 2 + 1)
            if truncated:
                same = [known for known in expected if known[:len(stack)] == stack]
            else:
                same = [stack] if stack in expected else []
            self.assertEqual(tuple(totals), tuple(map(sum, zip(*(expected.pop(known)
                                                                 for known in same)))),
                             f"\n{stack[:8]} of {len(stack)}")
        self.assertEqual(list(expected)[:1], [], "a stack is missing from the report")
        return len(reported)

    def check_group(self, group: str, least: int, **settings: str) -> None:
        expected = self.work / "expected.json"
        for _, interpreter in self.each_interpreter():
            outcome = self.run_python(interpreter, "call_sites.py", group, str(expected), **settings)
            self.assertEqual(outcome.code, 0, outcome.describe())
            report = self.recording().report
            self.assertEqual(report["missed"], [])
            self.assertGreaterEqual(self.compare(report, expected), least)

    def test_plain_calls(self) -> None:
        self.check_group("plain", 20)

    def test_what_each_instruction_calls(self) -> None:
        self.check_group("operators", 30)

    def test_recursion(self) -> None:
        self.check_group("recursion", 3)

    def test_generators_and_comprehensions(self) -> None:
        self.check_group("generators", 10)

    def test_coroutines(self) -> None:
        self.check_group("coroutines", 5)

    def test_c_code_that_calls_back(self) -> None:
        self.check_group("callbacks", 10)

    def test_code_made_at_run_time(self) -> None:
        self.check_group("compiled", 8)

    def test_addresses_of_code_are_used_again(self) -> None:
        self.check_group("addresses", 6000)

    def test_threads(self) -> None:
        self.check_group("threads", 1)

    def test_under_a_tracer(self) -> None:
        self.check_group("traced", 60)

    def test_compared_with_the_interpreters_own_account(self) -> None:
        # Whatever allocates with the GIL held is compared; a difference would be in `missed`.
        self.check_group("gil", 8, MEMLAB_PYTHON="verify")

    def test_known_stacks_are_what_reading_them_gives(self) -> None:
        """At the default depth, which recognizes what repeats; the library checks each that it recognizes."""
        expected = self.work / "expected.json"
        settings = {"MEMLAB_STACK_DEPTH": "64"}
        library = self.layout.root / "lib" / "libmemlab_verified.so"
        if library.exists():  # not built with a sanitizer
            settings["LD_PRELOAD"] = str(library)
        groups = ["plain", "operators", "generators", "coroutines", "callbacks", "compiled", "threads"]
        for _, interpreter in self.each_interpreter():
            outcome = self.run_python(interpreter, "call_sites.py", ",".join([*groups * 4, "addresses"]),
                                      str(expected), **settings)
            self.assertEqual(outcome.code, 0, outcome.describe())
            report = self.recording().report
            self.assertEqual(report["missed"], [])
            self.assertGreaterEqual(self.compare(report, expected, 64), 6000)

    def test_a_limit_keeps_the_innermost_frames(self) -> None:
        expected = self.work / "expected.json"
        for _, interpreter in self.each_interpreter():
            outcome = self.run_python(interpreter, "call_sites.py", "plain", str(expected),
                                      MEMLAB_STACK_DEPTH="9")
            self.assertEqual(outcome.code, 0, outcome.describe())
            report = self.recording().report
            known = {tuple(map(tuple, entry["stack"]))
                     for entry in json.loads(expected.read_text(encoding="utf-8"))}
            for site in report["sites"]:
                stack = report["stacks"][site["stack"]]
                self.assertLessEqual(len(stack["frames"]), 9)
                self.assertTrue(stack["truncated"])
                frames = python_stack(report, site["stack"])
                self.assertGreaterEqual(len(frames), 3)
                self.assertTrue(any(entry[:len(frames)] == frames for entry in known), frames)

    def test_off_is_off(self) -> None:
        for _, interpreter in self.each_interpreter():
            outcome = self.run_python(interpreter, "call_sites.py", "plain",
                                      str(self.work / "expected.json"), MEMLAB_PYTHON="off")
            self.assertEqual(outcome.code, 0, outcome.describe())
            report = self.recording().report
            self.assertNotIn("python_frames", report)
            self.assertEqual(report["missed"], [])
            self.assertEqual(report["options"]["MEMLAB_PYTHON"], "off")

    def test_threads_that_never_stop_and_the_end_of_the_interpreter(self) -> None:
        for _, interpreter in self.each_interpreter():
            for run in range(5):
                outcome = self.run_python(interpreter, "endings.py", str(0.05 * run))
                # CPython 3.10's own: a thread that waits for the GIL when the interpreter ends looks 5 ms later
                # at the interpreter, which is gone by then (take_gil, RESET_GIL_DROP_REQUEST). The process ends
                # sooner without memlab, which writes its report for 2 ms there; under load for 10 ms and more,
                # since it stops its threads one by one. Nothing is gained by doing some of it before.
                for _ in range(6):
                    if self.version == "3.10" and outcome.code == -signal.SIGSEGV:
                        outcome = self.run_python(interpreter, "endings.py", str(0.05 * run))
                self.assertEqual((outcome.code, outcome.stdout, outcome.stderr), (0, b"", b""),
                                 outcome.describe())
                self.assertEqual(self.recording().report["missed"], [])

    def test_contention_and_collection(self) -> None:
        for _, interpreter in self.each_interpreter():
            outcome = self.run_python(interpreter, "contention.py", "4", timeout=60,
                                      MEMLAB_PYTHON="verify")
            self.assertEqual((outcome.code, outcome.stdout), (0, b"ended True\n"),
                             outcome.describe())
            report = self.recording().report
            self.assertEqual(report["missed"], [])
            functions = {frame["function"] for frame in report["python_frames"]}
            finalizer = "__del__" if self.version in ("3.9", "3.10") else "Cycle.__del__"  # no qualified names
            self.assertLessEqual({"made_99", finalizer, "work", "<lambda>"}, functions)

    def collected(self, report: dict) -> dict[int, dict]:
        """What the garbage collector freed, by the size of the allocations."""
        return {site["requested_bytes"] // site["count"]: site["collected"]
                for site in report["sites"] if "collected" in site}

    def test_what_only_the_garbage_collector_frees(self) -> None:
        """Of the driver, and of PyTorch's cache."""
        kib = 1024
        library = self.layout.program("pytorch_cache").parent / "pytorch" / "libc10_cuda.so"
        for version, interpreter in self.each_interpreter():
            for device, arguments in ((0, ()), (64, (str(library),))):
                with self.subTest(python=version, device=device):
                    outcome = self.run_python(interpreter, "collector.py", *arguments)
                    self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
                    report = self.recording().report
                    self.assertEqual(report["missed"], [])
                    collected = self.collected(report)
                    self.assertEqual({size // kib: found["count"] for size, found in collected.items()},
                                     {4096: 8, 8: 3, 16: 3, 24: 3, 32: 50, 40: 3})
                    for size, found in collected.items():
                        self.assertEqual(found["bytes"], size * found["count"])
                        at_peak = 8 if size == 4096 * kib else 0
                        self.assertEqual((found["at_peak_count"], found["at_peak_bytes"]),
                                         (at_peak, at_peak * size))
                    peak = next(each for each in report["devices"] if each["index"] == device)
                    self.assertEqual(peak["curves"]["allocated"]["peak_bytes"], 40 << 20)
                    counts = {site["requested_bytes"] // site["count"] // kib: site["count"]
                              for site in report["sites"] if site["device"] == device}
                    self.assertEqual({size: counts[size] for size in (8192, 64, 72, 80, 88)},
                                     {8192: 1, 64: 3, 72: 3, 80: 3, 88: 2})

    def nn_modules(self, interpreter: str, stand_in: str, *arguments: str, **settings: str) -> tuple[dict, dict, dict]:
        """The report; of each size the names of its nn.Modules, outermost first: found, and expected."""
        library = self.layout.program("pytorch_cache").parent / "pytorch" / "torch" / "libtorch_cpu.so"
        outcome = self.run_python(interpreter, "nn_modules.py", str(library),
                                  str(PROGRAMS / "stand_ins" / stand_in), *arguments, **settings)
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        report = self.recording().report
        found: dict[int, list] = {}
        for entry in report.get("nn_modules", []):
            names, at = [entry["name"]], entry
            while at["parent"] is not None:
                at = report["nn_modules"][at["parent"]]
                names.insert(0, at["name"])
            for held in entry["sites"]:
                self.assertEqual((held["live_count"], held["live_bytes"]), (held["count"], held["bytes"]))
                self.assertEqual((held["at_peak_count"], held["at_peak_bytes"]), (held["count"], held["bytes"]))
                found.setdefault(held["site"], []).append((held["count"], held["bytes"], names))
        return report, found, {int(size): names for size, names in json.loads(outcome.stdout).items()}

    def test_memory_of_nn_modules(self) -> None:
        """Of the call that allocates it; in backward, of the call whose forward it belongs to."""
        for version, interpreter in self.each_interpreter():
            for depth, stand_in, *watch in (("64", "torch"), ("256", "torch"), ("24", "torch_2_0"),
                                            ("64", "torch", "watch")):
                with self.subTest(python=version, depth=depth, stand_in=stand_in, watch=watch):
                    report, found, expected = self.nn_modules(
                        interpreter, stand_in, *watch, MEMLAB_STACK_DEPTH=depth, PYTHONPATH=str(ROOT / "python"))
                    self.assertEqual(report["missed"], [])
                    wanted: dict[tuple, list[int]] = {}
                    for size, names in expected.items():
                        if names:
                            totals = wanted.setdefault(tuple(names), [0, 0])
                            totals[0] += 1
                            totals[1] += size
                    held: dict[tuple, list[int]] = {}
                    for holdings in found.values():
                        for count, size, names in holdings:
                            totals = held.setdefault(tuple(names), [0, 0])
                            totals[0] += count
                            totals[1] += size
                    self.assertEqual(held, wanted)
                    classes = {entry["name"]: entry["class"] for entry in report["nn_modules"]}
                    self.assertEqual((classes[""], classes["blocks.1"], classes["after"]), ("Model", "Block", "Linear"))
                    # The calls of all are the same: of a call site each has a part.
                    self.assertGreaterEqual(max(map(len, found.values())), 3)

    def run_names(self, interpreter: str, *arguments: str, **settings: str) -> tuple[str, dict]:
        """What the program printed, and the report."""
        library = self.layout.program("pytorch_cache").parent / "pytorch" / "torch" / "libtorch_cpu.so"
        outcome = self.run_python(interpreter, "names.py", str(library), str(PROGRAMS / "stand_ins" / "torch_names"),
                                  *arguments, **settings)
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        return outcome.stdout.decode(), self.recording().report

    def test_names_without_a_call(self) -> None:
        """Of models in the order of their first calls, of one whose function ends, of what is added to one later."""
        startup = str(ROOT / "python" / "memlab" / "startup")
        for version, interpreter in self.each_interpreter():
            plain, report = self.run_names(interpreter, PYTHONPATH=startup, MEMLAB_NAMES="off")
            self.assertEqual({entry["name"] for entry in report["nn_modules"]}, {None})
            self.assertNotIn("labels", report)
            for teacher, *watch in (("Net#2", ), ("teacher", "watch")):
                with self.subTest(python=version, watch=watch):
                    path = ":".join([startup, *[str(ROOT / "python") for _ in watch]])
                    printed, report = self.run_names(interpreter, *watch, PYTHONPATH=path, MEMLAB_NAMES="auto")
                    self.assertEqual((printed, report["missed"]), (plain, []))
                    layers = ("embedding", "layer", "head")
                    names = {(f"{teacher}.extra", "Linear"), ("Net", "Wrapper"), ("Net", "Net"), (teacher, "Net"),
                             ("Critic", "Critic"), ("Critic#2", "Critic"), ("Sampler", "Sampler")}
                    names |= {(f"{model}.{layer}", "Linear") for model in ("Net", teacher) for layer in layers}
                    self.assertEqual({(entry["name"], entry["class"]) for entry in report["nn_modules"]}, names)
                    tied = "{0}.embedding.weight+{0}.head.weight"
                    trained = [tied.format("Net"), "Net.layer.weight"]
                    labels = [*trained, tied.format(teacher), f"{teacher}.layer.weight", f"{teacher}.extra.weight",
                              "Critic.weight", "Critic#2.weight", "Sampler.weight", *[name + ".grad" for name in trained]]
                    labels += [f"Adam.{name}.{state}" for name in trained for state in ("exp_avg", "exp_avg_sq")]
                    self.assertEqual({label["name"] for label in report["labels"]}, set(labels))
                    self.assertEqual({label.get("detail") for label in report["labels"]}, {"float32[128, 128]"})
                    own, at_end = {}, {}
                    for label in report["labels"]:
                        name = label["name"].removeprefix("Adam.").split("+")[0].split(".weight")[0]
                        own[name] = own.get(name, 0) + label["live_bytes"]
                    for entry in report["nn_modules"]:
                        if entry.get("by_label"):
                            held = sum(each["live_bytes"] for each in entry["sites"])
                            at_end[entry["name"]] = at_end.get(entry["name"], 0) + held
                    self.assertEqual(at_end, own)
                    self.assertEqual(own[f"{teacher}.extra"], 64 << 10)
                    self.assertGreaterEqual(own["Net.layer"], 4 * 64 << 10)  # with gradient and Adam's states

    def test_names_of_a_large_model(self) -> None:
        """Each of its tensors has its name, and its shape while there are no more than are kept."""
        count, kept_shapes = 8500, 8192
        kinds = ("Net.layer{}.weight", "Net.layer{}.weight.grad", "Adam.Net.layer{}.weight.exp_avg",
                 "Adam.Net.layer{}.weight.exp_avg_sq")
        wanted = {kind.format(i): f"float32[{i + 1}, 4]" if i < kept_shapes else None for i in range(count) for kind in kinds}
        startup = str(ROOT / "python" / "memlab" / "startup")
        for version, interpreter in self.each_interpreter():
            with self.subTest(python=version):
                outcome = self.run_python(interpreter, "large_model.py", str(PROGRAMS / "stand_ins" / "torch_names"),
                                          str(count), PYTHONPATH=startup, MEMLAB_NAMES="auto")
                self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
                report = self.recording().report
                self.assertEqual({label["name"]: label.get("detail") for label in report["labels"]}, wanted)
                for live in report["largest_live"]:
                    self.assertEqual(live.get("label_detail"), wanted[live["label"]])
                for site in report["sites"]:
                    labels = site.get("labels", [])
                    self.assertEqual(sum(label["live_bytes"] for label in labels), site["live_bytes"])
                    self.assertIn([label["name"] for label in labels[15:]], ([], ["(other names)"]))

    def test_arrays_of_cupy(self) -> None:
        """Of the main thread and of threading's: each block by the line that took it."""
        folder = str(PROGRAMS / "stand_ins" / "cupy")
        for version, interpreter in self.each_interpreter():
            for names in ("auto", "off"):
                with self.subTest(python=version, names=names):
                    outcome = self.run_python(interpreter, "cupy_blocks.py", folder, MEMLAB_NAMES=names,
                                              PYTHONPATH=str(ROOT / "python" / "memlab" / "startup"))
                    self.assertEqual((outcome.code, outcome.stdout, outcome.stderr), (0, b"", b""), outcome.describe())
                    report = self.recording().report
                    self.assertEqual(report["missed"], [])
                    arrays = {}
                    for site in report["sites"]:
                        if site["kind"] == "suballocation":
                            own = [function for function, file, _ in python_stack(report, site["stack"])
                                   if file.endswith("cupy_blocks.py")]
                            arrays[own[1], site["live_bytes"]] = site["requested_bytes"]
                    self.assertEqual(arrays, {("weights", 8192): 8192, ("in_thread", 16384): 16384,
                                              ("in_thread", 0): 4096} if names == "auto" else {})
                    self.assertEqual([device["allocator"] for device in report["devices"] if "allocator" in device],
                                     ["CuPy"] if names == "auto" else [])

    def test_nn_modules_that_are_not_called_as_known(self) -> None:
        for _, interpreter in self.each_interpreter():
            report, found, _ = self.nn_modules(interpreter, "torch_closure")
            self.assertEqual((report["missed"], found), ([], {}))

    def test_nn_modules_only_of_python_frames(self) -> None:
        interpreter = self.interpreters[0][1] if self.interpreters else self.skipTest("no CPython")
        report, found, _ = self.nn_modules(interpreter, "torch", MEMLAB_PYTHON="off")
        self.assertEqual((report["missed"], found), ([], {}))

    def run_backward(self, interpreter: str, variant: str = "torch", **settings: str) -> tuple[dict, dict]:
        """The report, and of each size that backward allocates the function whose frames are to follow."""
        library = self.layout.program("pytorch_cache").parent / "pytorch" / variant / "libtorch_cpu.so"
        if settings.pop("package", ""):
            library = self.pytorch_package("pytorch", f"pytorch/{variant}") / "libtorch_cpu.so"
        outcome = self.run_python(interpreter, "backward.py", str(library), **settings)
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        lines = (line.split() for line in outcome.stdout.decode().splitlines())
        return self.recording().report, {int(size): function for size, function in lines}

    def sites_of_backward(self, report: dict) -> list[tuple[int, int, tuple]]:
        """Count, bytes and Python stack of what was allocated below the engine's evaluate_function()."""
        found = []
        for site in report["sites"]:
            frames = [report["frames"][frame] for frame in report["stacks"][site["stack"]]["frames"]]
            modules = [Path(report["modules"][frame["module"]]["path"]).name for frame in frames if "module" in frame]
            stack = python_stack(report, site["stack"])
            if site["device"] == 64 and site["requested_bytes"] // site["count"] not in (1024, 2048):
                self.assertIn("libtorch_cpu.so", modules)
                found.append((site["count"], site["requested_bytes"], stack))
        return found

    def test_backward_goes_on_as_the_forward(self) -> None:
        for version, interpreter in self.each_interpreter():
            # A stack in the thread's memory, and one that is not; nodes of PyTorch 2.11, and of 2.14.
            for depth, variant in (("64", "torch"), ("256", "torch"), ("64", "torch_2_14")):
                with self.subTest(python=version, depth=depth, variant=variant):
                    report, expected = self.run_backward(interpreter, variant, MEMLAB_STACK_DEPTH=depth)
                    self.assertEqual(report["missed"], [])
                    unnamed = [size for size, function in expected.items() if function == "None"]
                    found_unnamed = [0, 0]
                    for count, size, stack in self.sites_of_backward(report):
                        functions = [function.rsplit(".", 1)[-1] for function, _, _ in stack]
                        if not stack:
                            found_unnamed = [found_unnamed[0] + count, found_unnamed[1] + size]
                            continue
                        wanted = expected.pop(size // count)
                        self.assertIn(count, (1, 3, 20))  # a graph that is kept; many of one line
                        if wanted in ("own_backward", "backward"):
                            self.assertEqual(functions[0], wanted)
                            self.assertNotIn("[forward]", functions)
                            continue
                        if version == "3.9" and "[forward]" not in functions:
                            # It does not tell where on the stack its frames lie: whether those of a thread that
                            # has some run inside of backward is not known.
                            self.assertEqual(functions[0], "backward")
                            continue
                        self.assertEqual(stack[0], ("[forward]", "", 0))
                        self.assertEqual(functions.count("[forward]"), 1)
                        self.assertEqual(functions[1], wanted)
                        self.assertEqual(functions[-1],
                                         "_bootstrap" if "_bootstrap" in functions else "<module>")
                    self.assertEqual(sorted(expected), unnamed)  # each of the others was found
                    self.assertEqual(found_unnamed, [len(unnamed), sum(unnamed)])

    def test_backward_of_a_pytorch_that_is_not_as_known(self) -> None:
        """No line of the forward, said once; the program is none the wiser."""
        interpreter = self.interpreters[0][1] if self.interpreters else self.skipTest("no CPython")
        def recorded(report: dict) -> list[int]:
            sites = [site for site in report["sites"] if site["device"] == 64]
            return [sum(site[key] for site in sites) for key in ("count", "requested_bytes")]

        report, computed = self.run_backward(interpreter)
        everything = recorded(report)
        name = "torch::autograd::"
        for variant, reason in (("torch_2_0", f"{name}get_current_node is not exported"),
                                ("torch_other", "layout unknown"), ("torch_other_edges", "layout unknown"),
                                ("torch_other_pointer", f"{name}get_current_node returns something else"),
                                ("torch_other_pointer_2_14", f"{name}get_current_node returns something else"),
                                ("torch_no_engine", f"{name}Engine::evaluate_function is not exported"),
                                ("torch_no_counter", "at::sequence_number::peek is not exported"),
                                ("torch_bound", "its operators make their backward graph unseen")):
            with self.subTest(variant):
                report, expected = self.run_backward(interpreter, variant, package="yes")
                self.assertEqual(expected, computed)
                self.assertEqual([entry["reason"] for entry in report["missed"]],
                                 [f"PyTorch 2.99.0: forward lines not read: {reason}"])
                self.assertNotIn("[forward]", {frame["function"] for frame in report["python_frames"]})
                self.assertEqual(recorded(report), everything)
            shutil.rmtree(self.work / "site")

    def test_backward_without_lines_of_the_forward(self) -> None:
        interpreter = self.interpreters[0][1] if self.interpreters else self.skipTest("no CPython")
        report, _ = self.run_backward(interpreter, MEMLAB_FORWARD_LINES="off")
        self.assertEqual(report["missed"], [])
        self.assertNotIn("[forward]", {frame["function"] for frame in report["python_frames"]})

    def test_backward_where_python_is_not_read(self) -> None:
        interpreter = self.interpreters[0][1] if self.interpreters else self.skipTest("no CPython")
        for settings in ({"MEMLAB_PYTHON": "off"}, {"MEMLAB_STACK_DEPTH": "0"}, {"MEMLAB_STACK_DEPTH": "3"}):
            with self.subTest(**settings):
                self.assertEqual(self.run_backward(interpreter, **settings)[0]["missed"], [])

    def test_the_garbage_collector_where_python_is_not_read(self) -> None:
        for _, interpreter in list(self.each_interpreter())[:1]:
            outcome = self.run_python(interpreter, "collector.py", MEMLAB_PYTHON="off")
            self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
            self.assertEqual(self.collected(self.recording().report), {})

    def test_a_second_interpreter_is_told_apart(self) -> None:
        for version, interpreter in self.each_interpreter():
            outcome = self.run_python(interpreter, "interpreters.py")
            self.assertEqual(outcome.code, 0, outcome.describe())
            report = self.recording().report
            stacks = {site["requested_bytes"] // site["count"]: python_stack(report, site["stack"])
                      for site in report["sites"]}
            for size in (2000, 4000, 5000):
                self.assertEqual([frame[0] for frame in stacks[size]],
                                 ["allocate", "through", "<module>"])
            # 3.11 and older have no way to ask for the state of another interpreter without the GIL: what runs in
            # it is left out; in 3.9 whose frames they are is not known then. Later its frames are there; those
            # that called into it belong to the first one's state, and are not.
            self.assertEqual([frame[0] for frame in stacks[3000]],
                             [] if version == "3.9" else ["run_in", "<module>"] if version in ("3.10", "3.11") else
                             ["allocate", "outer_sub", "<module>"])

    def test_interpreters_that_run_side_by_side(self) -> None:
        """Each with a GIL of its own, in threads of its own."""
        checked = False
        for version, interpreter in self.each_interpreter():
            if int(version.split(".")[1]) < 13:  # its ctypes is not for such interpreters
                continue
            outcome = self.run_python(interpreter, "interpreters.py", "own", MEMLAB_PYTHON="verify")
            self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
            report = self.recording().report
            self.assertEqual(report["missed"], [])
            found: dict[tuple, int] = {}
            for site in report["sites"]:
                names = tuple(frame[0] for frame in python_stack(report, site["stack"]))
                key = site["requested_bytes"] // site["count"], names
                found[key] = found.get(key, 0) + site["count"]
            main = ("allocate", "through", "<module>")
            thread = ("allocate", "through", "work", "Thread.run", "Thread._bootstrap_inner", "Thread._bootstrap")
            wanted = {(3000, ("allocate", "outer_sub", "<module>")): 3, (9000, thread): 60}
            wanted |= {(size, main): 1 for size in (2000, 4000, 5000)}
            wanted |= {(size, ("allocate", f"outer_of_{size}", "<module>")): 20 for size in (6000, 7000, 8000)}
            found = {(size, tuple(name for name in names if name not in ("Context.run", "run"))): count
                     for (size, names), count in found.items()}
            self.assertEqual(sorted(found.items()), sorted(wanted.items()))
            checked = True
        if not checked:
            self.skipTest(f"no CPython 3.13 or later is installed here {GROUP}")

    def check_switched_stacks(self, library: str) -> None:
        expected = self.work / "expected.json"
        checked = 0
        for _, interpreter in self.each_interpreter():
            if subprocess.run([interpreter, "-c", f"import {library}"], capture_output=True, check=False).returncode:
                continue
            outcome = self.run_python(interpreter, "greenlets.py", library, str(expected), MEMLAB_PYTHON="verify")
            self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
            report = self.recording().report
            self.assertEqual(report["missed"], [])
            self.assertGreaterEqual(self.compare(report, expected), 20)
            checked += 1
        if checked == 0:
            self.skipTest(f"no CPython here has {library} {GROUP}")

    def test_stacks_that_greenlet_switches(self) -> None:
        self.check_switched_stacks("greenlet")

    def test_stacks_that_gevent_switches(self) -> None:
        self.check_switched_stacks("gevent")

    def test_an_unknown_version_is_native_and_said_once(self) -> None:
        others = installed(tuple((3, minor) for minor in (7, 8)))
        if not others:
            self.skipTest("no older CPython is installed here")
        for version, interpreter in others:
            with self.subTest(python=version):
                outcome = self.run_python(interpreter, "contention.py", "1")
                self.assertEqual(outcome.code, 0, outcome.describe())
                report = self.recording().report
                self.assertNotIn("python_frames", report)
                self.assertEqual([entry["count"] for entry in report["missed"]], [1])
                self.assertIn("is not one that memlab was tested with",
                              report["missed"][0]["reason"])

    def stepped_back(self, interpreter: str, *what: str) -> str:
        """What the report says of an interpreter of which one thing is not as memlab knows it."""
        outcome = self.run_python(interpreter, "other_layouts.py", *what)
        self.assertEqual((outcome.code, outcome.stdout, outcome.stderr), (0, b"went on\n", b""), outcome.describe())
        report = self.recording().report
        self.assertEqual(sum(site["count"] for site in report["sites"]), 2)
        if what == ("nothing",):
            self.assertEqual(report["missed"], [])
            self.assertIn("allocate", {frame["function"] for frame in report["python_frames"]})
            return ""
        self.assertNotIn("python_frames", report, what)
        self.assertEqual([entry["count"] for entry in report["missed"]], [1], what)
        reason = report["missed"][0]["reason"]
        self.assertIn("call sites are native only", reason)
        return reason

    def test_an_interpreter_that_is_not_as_known(self) -> None:
        """Each thing that memlab asks before it reads frames, wrong in turn."""
        for version, interpreter in self.each_interpreter():
            with self.subTest(python=version):
                self.stepped_back(interpreter, "nothing")
                for name in ("code", "str", "generator"):
                    self.assertIn("is a build that memlab does not support",
                                  self.stepped_back(interpreter, "type", name))
                for name in ("type", "texts", "table"):
                    self.assertIn("layout is not that of the interpreter's version",
                                  self.stepped_back(interpreter, "code", name))
                minor = int(version.split(".")[1])
                if minor >= 12:  # before, it is made again each time
                    self.assertIn("Python 3.99", self.stepped_back(interpreter, "version"))
                if minor >= 13:
                    self.assertIn("does not say where it has its structures",
                                  self.stepped_back(interpreter, "word", "0"))
                    self.assertIn("another version's", self.stepped_back(interpreter, "word", "1"))
                    self.assertIn("is a free-threaded build", self.stepped_back(interpreter, "word", "2"))
                    owner = {13: "33", 14: "36", 15: "44"}[minor]
                    self.assertIn("has _PyInterpreterFrame.owner at 1099511627776, not at ",
                                  self.stepped_back(interpreter, "word", owner))

    def test_a_build_without_the_gil_is_native_and_said_once(self) -> None:
        builds = free_threaded()
        if not builds:
            self.skipTest("no free-threaded CPython is installed here")
        for version, interpreter in builds:
            with self.subTest(python=version):
                outcome = self.run_python(interpreter, "contention.py", "2")
                self.assertEqual(outcome.code, 0, outcome.describe())
                report = self.recording().report
                self.assertNotIn("python_frames", report)
                self.assertEqual([(entry["count"], "is a free-threaded build" in entry["reason"])
                                  for entry in report["missed"]], [(1, True)])

    def test_an_interpreter_that_is_loaded_late(self) -> None:
        for version, interpreter in self.each_interpreter():
            library = subprocess.run(
                [interpreter, "-c", "import sysconfig; print((sysconfig.get_config_var('LIBDIR') or '')"
                 " + '/' + (sysconfig.get_config_var('INSTSONAME') or ''))"],
                capture_output=True, text=True, check=True).stdout.strip()
            if ".so" not in library or not Path(library).exists():
                continue
            home = subprocess.run([interpreter, "-c", "import sys; print(sys.base_prefix)"],
                                  capture_output=True, text=True, check=True).stdout.strip()
            shutil.rmtree(self.output, ignore_errors=True)
            # 3.12.1 does not survive a second start with ctypes, with or without memlab.
            starts = 1 if version == "3.12" else 2
            outcome = self.under_memlab(self.program("embeds_python", library, str(starts)),
                                        {"PYTHONHOME": home})
            self.assertEqual(outcome.code, 0, outcome.describe())
            report = self.recording().report
            self.assertEqual(report["missed"], [])
            counts = {tuple(frame[::2] for frame in python_stack(report, site["stack"])):
                      (site["count"], site["requested_bytes"]) for site in report["sites"]}
            called = (("inner", 3), ("outer", 5), ("<module>", 6))
            self.assertEqual(counts[called], (1, 2000) if starts == 1 else (2, 5000))
            self.assertEqual(set(counts), {(), called})

    def test_through_code_without_tables(self) -> None:
        callers = {8000: "with_frame_pointer", 8008: "with_room", 8016: "hiding"}
        for _, interpreter in self.each_interpreter():
            outcome = self.run_python(interpreter, "through_code.py")
            self.assertEqual(outcome.code, 0, outcome.describe())
            report = self.recording().report
            self.assertEqual(report["missed"], [])
            self.assertEqual({site["requested_bytes"] for site in report["sites"]}, set(callers))
            for site in report["sites"]:
                size = site["requested_bytes"]
                stack = report["stacks"][site["stack"]]
                self.assertEqual([frame[0] for frame in python_stack(report, site["stack"])],
                                 ["allocate", callers[size], "<module>"])
                self.assertEqual(stack["truncated"], size == 8016)
                # The code itself is a frame: of no module, and not Python.
                native = [report["frames"][frame] for frame in stack["frames"]]
                self.assertTrue(any(frame["module"] == 0 and "python" not in frame
                                    for frame in native), native)

    def test_trampolines_for_perf(self) -> None:
        expected = self.work / "expected.json"
        for version, interpreter in self.each_interpreter():
            if version in ("3.9", "3.10", "3.11"):
                continue  # have none
            outcome = self.run_python(interpreter, "call_sites.py", "plain", str(expected),
                                      PYTHONPERFSUPPORT="1")
            self.assertEqual(outcome.code, 0, outcome.describe())
            self.assertGreaterEqual(self.compare(self.recording().report, expected), 20)

    def test_out_of_memory_names_the_programs_own_lines(self) -> None:
        for _, interpreter in self.each_interpreter():
            outcome = self.run_python(interpreter, "out_of_memory.py", MEMLAB_LIMIT="64MiB")
            self.assertEqual(outcome.code, 0, outcome.describe())
            lines = outcome.stderr.decode().splitlines()
            asked = [line for line in lines if "Asked for by " in line]
            self.assertEqual(len(asked), 1, lines)
            place = f"{PROGRAMS / 'out_of_memory.py'}:"
            self.assertRegex(asked[0], rf"cuMemAlloc_v2 < {place}\d+ in allocate < {place}\d+ in fill "
                                       rf"< {place}\d+ in <module>$")
            self.assertTrue(any(" in 8 allocations: cuMemAlloc_v2 < " in line and "in fill" in line
                                for line in lines), lines)
            self.assertFalse(any("addr2line" in line for line in lines), lines)

    def test_the_summary_names_the_programs_own_line(self) -> None:
        if not self.layout.tool("memlab-report").exists():
            self.skipTest("memlab-report was not built")
        for _, interpreter in self.each_interpreter():
            outcome = self.run_python(interpreter, "call_sites.py", "coroutines",
                                      str(self.work / "expected.json"))
            self.assertEqual(outcome.code, 0, outcome.describe())
            report_path = self.recording().report_path
            text = subprocess.run([str(self.layout.tool("memlab-report")), str(report_path)],
                                  capture_output=True, text=True, check=True,
                                  env=self.layout.environment(memlab=False)).stdout
            self.assertIn("call_sites.py:", text)
            self.assertNotIn("build the program with -g", text)
            self.assertNotIn("asyncio/events.py", text)

    def test_lines_of_the_programs_own_function(self) -> None:
        if not self.layout.tool("memlab-report").exists():
            self.skipTest("memlab-report was not built")
        script = PROGRAMS / "out_of_memory.py"
        allocating = 1 + [line.strip() for line in script.read_text("utf-8").splitlines()].index(
            "while allocate() == 0:")
        for _, interpreter in self.each_interpreter():
            self.run_python(interpreter, "out_of_memory.py", MEMLAB_LIMIT="64MiB")
            text = subprocess.run(
                [str(self.layout.tool("memlab-report")), "lines", "out_of_memory.py:fill",
                 str(self.recording().report_path), "--column", "active", "--column", "count"],
                capture_output=True, text=True, check=True,
                env=self.layout.environment(memlab=False)).stdout
            self.assertIn("## fill", text)
            self.assertRegex(text, rf"(?m)^ +64\.00 MiB +8 +{allocating}      while allocate\(\) == 0:  "
                                   r"<- out of memory$")
            self.assertRegex(text, rf"(?m)^ +{allocating - 1}  def fill\(\):$")
            self.assertRegex(text, rf"(?m)^ +{allocating + 1}          pass$")


if __name__ == "__main__":
    assert Build is not None
    unittest.main()
