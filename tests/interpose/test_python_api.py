"""The Python package: its calls in a program under memlab, in one without, and its reading of recordings. Each CPython
that is here runs tests/programs/python/memlab_api.py, with the package as the wheel has it.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import re
import shutil
import subprocess
import sys
import types
import unittest.mock
from pathlib import Path
from typing import Any

from harness import jsonschema, judge_recordings
from support import ROOT, EndToEnd
from test_python import PROGRAMS, installed
from test_statistics import keys_of_pytorch

PROGRAM = PROGRAMS / "memlab_api.py"
MIB = 1 << 20
# Beside those whose frames memlab reads, the package is for older ones.
OLDER = ((3, 7), (3, 8))
READ = tuple((3, minor) for minor in range(9, 16))


def make_package(layout: Any, site: Path) -> None:
    """The package as the wheel has it, of the build's files."""
    package = site / "memlab"
    shutil.copytree(ROOT / "python" / "memlab", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "bin").symlink_to(layout.tool("memlab-report").parent)
    (package / "lib").mkdir()
    (package / "lib" / "libmemlab.so").symlink_to(layout.library)


def forget_package(site: Path) -> None:
    """After this process imported it from there."""
    sys.path.remove(str(site))
    for name in [name for name in sys.modules if name.partition(".")[0] == "memlab"]:
        del sys.modules[name]


class PythonApi(EndToEnd):
    """What a program is answered, and what the report then says."""

    interpreters: list[tuple[str, str]] = []

    @classmethod
    def setUpClass(cls) -> None:
        cls.interpreters = installed(READ)

    def setUp(self) -> None:
        super().setUp()
        self.site = self.work / "site"
        make_package(self.layout, self.site)

    def answer(self, interpreter: str, *arguments: str, memlab: bool = True, options: tuple[str, ...] = (),
               stderr: bytes = b"", **settings: str) -> Any:
        """What the program prints, one value for each line."""
        shutil.rmtree(self.output, ignore_errors=True)
        start = self.under_memlab if memlab else self.without_memlab
        outcome = start([interpreter, "-B", *options, str(PROGRAM), *arguments],
                        {"PYTHONPATH": str(self.site)} | settings)
        self.assertEqual((outcome.code, outcome.stderr), (0, stderr), outcome.describe())
        answers = [json.loads(line) for line in outcome.stdout.splitlines()]
        return answers[0] if len(answers) == 1 else answers

    def report(self) -> dict:
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        self.assertEqual(len(found), 1)
        return found[0].report

    def check_sums(self, figures: dict) -> None:
        """What holds for any interval."""
        self.assertEqual(sum(site[0] for site in figures["sites"]) + figures["other"], figures["bytes"])
        self.assertEqual(figures["begin"] + figures["allocated"], figures["end"] + figures["freed"])
        self.assertEqual(figures["growth"], figures["bytes"] - figures["begin"])
        self.assertFalse(figures["at_least"])

    def test_peaks(self) -> None:
        for _, interpreter in self.interpreters:
            with self.subTest(interpreter):
                answers = self.answer(interpreter, "peaks")
                self.assertEqual(set(answers.pop("before").values()), {None})
                for figures in answers.values():
                    self.check_sums(figures)
                self.assertEqual({name: [figures["begin"] // MIB, figures["bytes"] // MIB, figures["end"] // MIB,
                                         figures["allocations"], figures["frees"]]
                                  for name, figures in answers.items()},
                                 {"unused": [0, 0, 0, 0, 0], "early": [0, 10, 10, 1, 0], "outer": [10, 36, 10, 4, 4],
                                  "inner": [16, 36, 16, 1, 1], "later": [10, 22, 22, 2, 0], "still": [10, 10, 10, 0, 0],
                                  "again": [10, 16, 10, 1, 1]})
                held = {name: [site[:3] for site in figures["sites"]] for name, figures in answers.items()}
                weights, temporary = [10 * MIB, 1, "weights"], [20 * MIB, 1, "temporary"]
                activations = [6 * MIB, 1, "activations"]
                self.assertEqual(held, {"unused": [], "early": [weights], "outer": [temporary, weights, activations],
                                        "inner": [temporary], "later": [[12 * MIB, 2, "activations"], weights],
                                        "still": [weights], "again": [weights, activations]})
                self.assertEqual(answers["outer"]["lines"], [["allocate", 36 * MIB, 3]])
                self.assertEqual(answers["inner"]["other"], 16 * MIB)
                scopes = {scope["name"]: scope for scope in self.report()["scopes"]}
                for name, scope in scopes.items():
                    self.assertEqual((scope["peak_bytes"], scope["peak_growth_bytes"], scope["allocated_bytes"]),
                                     (answers[name]["bytes"], answers[name]["growth"], answers[name]["allocated"]), name)
                self.assertEqual(set(scopes), {"early", "outer", "inner", "later"})

    def test_peaks_of_a_gpu_or_a_kind(self) -> None:
        answers = self.answer(sys.executable, "parts", SIMCUDA_DEVICES="2")
        held = {name: (figures["bytes"], figures["allocations"], [site[:3] for site in figures["sites"]])
                for name, figures in answers["parts"].items()}
        weights, nothing = (10 * MIB, 1, [[10 * MIB, 1, "weights"]]), (0, 0, [])
        self.assertEqual(held, {"first": weights, "all": weights, "second": nothing, "managed": nothing,
                                "pinned": (7 * MIB, 1, [[7 * MIB, 1, "parts"]]), "pinned of second": nothing, "by name": nothing})
        self.assertEqual(answers["moments"], [0, 1, 2])
        self.assertEqual(answers["gpus"], [device["name"] for device in self.report()["devices"]])
        self.assertEqual(answers["refused"], ["TypeError"] * 5 + ["ValueError"] * 2)

    def test_names_and_figures(self) -> None:
        for _, interpreter in self.interpreters:
            with self.subTest(interpreter):
                refused = f"memlab: cannot write the report '{self.cwd}/no/such/folder/now.json': No such file or directory\n"
                answers = self.answer(interpreter, "names", stderr=refused.encode())
                self.assertEqual(answers["before"], [None, None, None, False, None, 0])
                self.assertEqual(answers["returned"], [2, "decorated", "What it returns and takes is its own."])
                self.assertEqual(answers["labels"], [True, True, True, False, True, True])
                self.assertEqual(answers["refused"], ["TypeError"] * 14)
                self.assertEqual(answers["methods"], [["Methods", 1], ["Methods", 2], 3, 4])
                self.assertEqual(answers["watched"], [None, 1, 1])
                known = {key: answers["stats"][key] for key in ("allocated_bytes.all.peak", "allocation.all.current",
                                                                "allocation.all.freed", "num_ooms")}
                self.assertEqual(known, {"allocated_bytes.all.peak": 3 * MIB, "allocation.all.current": 3,
                                         "allocation.all.freed": 0, "num_ooms": 0})
                self.assertLessEqual(set(answers["stats"]), set(keys_of_pytorch()))
                self.assertEqual(answers["same"], [True, True, None])
                self.assertGreater(answers["released"], 0)
                self.assertEqual(answers["snapshot"], str(self.cwd / "now.json"))
                self.assertEqual(json.loads((self.cwd / "now.json").read_bytes())["process"]["ended"], "running")
                self.assertIn("no/such/folder", answers["unwritten"])
                document = json.loads(answers["document"])
                schema = json.loads(self.layout.schema("interval").read_bytes())
                self.assertEqual(set(document), set(schema["required"]))
                report = self.report()
                written = next(self.output.glob("*.json"))
                self.assertEqual(answers["recording"], str(written))
                self.assertEqual(answers["loaded"], [str(written.with_suffix(".memlog")), 3 * MIB, 4])
                self.assertEqual([mark["name"] for mark in report["marks"]], ["not yet", "made"])
                self.assertEqual([(scope["name"], scope["parent"], scope["entries"]) for scope in report["scopes"]],
                                 [("decorated", None, 1), ("decorated", 0, 1), ("decorated", 1, 1), ("raises", None, 1),
                                  ("of a class", None, 2), ("static", None, 2)])
                tensors = {"tensor", "embedding.weight+head.weight", "mask",
                           "teacher.embedding.weight+teacher.head.weight", "teacher.mask"}
                self.assertEqual({label["name"]: label.get("detail") for label in report["labels"]},
                                 {**dict.fromkeys(("array", "ädress", "older", "long")), **dict.fromkeys(tensors, "int64[4, 2]")})
                if jsonschema is not None:
                    jsonschema.validate(document, schema)

    def test_a_forked_child_has_nothing_of_its_parents(self) -> None:
        for _, interpreter in self.interpreters:
            with self.subTest(interpreter):
                child, parent = self.answer(interpreter, "forks", options=("-W", "ignore"))
                self.assertEqual(set(child["inherited"].values()), {None})
                self.assertEqual(child["own"]["bytes"], 0)
                self.assertEqual((parent["bytes"], parent["allocations"]), (16 * MIB, 1))
                report = self.report()
                self.assertEqual([scope["name"] for scope in report["scopes"]], ["parent"])
                # It did not use CUDA: no warning, and none in the report.
                self.assertEqual(report["missed"], [])

    def test_threads_measure_at_once(self) -> None:
        for _, interpreter in self.interpreters:
            with self.subTest(interpreter):
                answers = self.answer(interpreter, "threads")
                self.assertEqual(len(answers), 4)
                for figures in answers:
                    self.check_sums(figures)
                    self.assertEqual(figures["bytes"], 32 * MIB)
                scope, = self.report()["scopes"]
                self.assertEqual((scope["entries"], scope["peak_bytes"]), (4, 32 * MIB))

    def test_only_so_many_at_a_time(self) -> None:
        opened, after = self.answer(sys.executable, "many")
        self.assertEqual(opened, [3 * MIB] * 64 + [None] * 2)
        self.assertEqual(after, 3 * MIB)

    def test_tensors_of_a_cache_and_not_its_segments(self) -> None:
        library = self.layout.program("pytorch_cache").parent / "pytorch" / "libc10_cuda.so"
        first, second = self.answer(sys.executable, "cache", str(library))
        for figures in (first, second):
            self.check_sums(figures)
        self.assertEqual(first["sites"], [[3 * MIB, 1, "layer", 0, "PyTorch"]])
        self.assertEqual(second["sites"], [[10 * MIB, 1, "weights", 0, None], [4 * MIB, 1, "layer", 0, "PyTorch"],
                                           [3 * MIB, 1, "layer", 0, "PyTorch"]])
        scopes = {scope["name"]: scope["peak_bytes"] for scope in self.report()["scopes"]}
        self.assertEqual(scopes, {"first": first["bytes"], "second": second["bytes"]})

    def test_without_recording(self) -> None:
        for settings in ({"MEMLAB_RECORD": "off"}, {"MEMLAB_DISABLE": "1"}):
            answers = self.answer(sys.executable, "forks", options=("-W", "ignore"), **settings)
            self.assertEqual(set(answers[1].values()), {None})

    def test_without_memlab(self) -> None:
        for _, interpreter in self.interpreters + installed(OLDER):
            with self.subTest(interpreter):
                outcome = self.without_memlab([interpreter, "-B", str(PROGRAM), "nothing"], {"PYTHONPATH": str(self.site)})
                self.assertEqual(outcome.code, 0, outcome.describe())
                answers = json.loads(outcome.stdout)
                self.assertEqual(set(answers["peak"].values()), {None})
                self.assertEqual((answers["figures"], answers["watched"]), ([None] * 5, None))
                self.assertEqual((answers["label"], answers["decorated"], answers["refused"]), (False, 2, "TypeError"))
                said = outcome.stderr.decode()
                line = PROGRAM.read_text(encoding="utf-8").split("\n").index("def nothing():") + 3
                self.assertTrue(said.startswith(f"{PROGRAM}:{line}: NotRecordedWarning: "), said)
                self.assertIn("memlab-run -- python3", said)
                self.assertEqual(said.count("Warning"), 1, said)
                for option in ("ignore::UserWarning", "ignore"):
                    self.answer(interpreter, "nothing", memlab=False, options=("-W", option))


class Recordings(EndToEnd):
    """What memlab-report says, as Python's objects. Read by this interpreter."""

    def setUp(self) -> None:
        super().setUp()
        make_package(self.layout, self.work / "site")
        sys.path.insert(0, str(self.work / "site"))
        self.memlab = importlib.import_module("memlab")
        self.addCleanup(self.forget)
        self.log = ROOT / "tests/data/h100/sample_oom_recovery.memlog"
        self.one = self.log.with_suffix(".json")

    def forget(self) -> None:
        forget_package(self.work / "site")

    def printed(self, *arguments: str | Path) -> str:
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), *map(str, arguments)])
        self.assertEqual(outcome.code, 0, outcome.describe())
        return outcome.stdout.decode()

    def test_a_recording(self) -> None:
        recording = self.memlab.load(self.one)
        raw = json.loads(self.one.read_bytes())
        self.assertEqual([device.peak_bytes for device in recording.devices],
                         [device["curves"]["allocated"]["peak_bytes"] for device in raw["devices"]])
        self.assertEqual(recording.devices[0].curves["reserved"].peak_bytes,
                         raw["devices"][0]["curves"]["reserved"]["peak_bytes"])
        self.assertEqual(recording.summary, json.loads(self.printed("--json", self.one))["reports"][0])
        sites = recording.sites()
        self.assertEqual(sum(site.bytes for site in sites), sum(site["bytes"] for site in raw["sites"]))
        self.assertEqual(sum(site.count for site in sites), sum(site["count"] for site in raw["sites"]))
        self.assertEqual(len(recording.sites(top=1)), 1)
        self.assertEqual(recording.lacks, [])
        self.assertIn(str(self.one), repr(recording))

    def test_no_recording(self) -> None:
        with self.assertRaisesRegex(self.memlab.ReportError, "there is no recording: this process does not run under memlab"):
            self.memlab.load(self.memlab.recording())

    def test_events(self) -> None:
        rows = self.printed("export", "--to", "csv", self.log).splitlines()[1:]
        events = list(self.memlab.load(self.one).events())
        self.assertEqual([f"{event.thread},{event.time},{event.action},"
                          f"{'(nil)' if event.address is None else hex(event.address)},{event.bytes},{event.stream}"
                          for event in events], rows)
        few = self.memlab.load(self.log).events()
        self.assertEqual([next(few), next(few)], events[:2])
        few.close()  # ends memlab-report
        alone = self.work / "alone.json"
        shutil.copy(self.one, alone)
        with self.assertRaisesRegex(self.memlab.ReportError, "alone"):
            list(self.memlab.load(alone).events())

    def test_lines(self) -> None:
        recording = self.memlab.load(ROOT / "tests/data/h200/pytorch_scopes.memlog")
        lines = recording.lines("nvtx_scopes.py:main")
        self.assertEqual({line["line"]: line["bytes"] for line in lines},
                         {15: 25190400, 17: 33554432, 32: 16476649472, 35: 6144})
        self.assertEqual({line["function"] for line in lines}, {"main"})

    def test_pandas(self) -> None:
        frames = []
        stand_in = types.ModuleType("pandas")
        stand_in.DataFrame = lambda rows, columns: frames.append((rows, columns)) or "a frame"
        recording = self.memlab.load(self.one)
        with unittest.mock.patch.dict(sys.modules, {"pandas": stand_in}):
            self.assertEqual(recording.to_pandas(), "a frame")
            self.assertEqual(recording.to_pandas("events"), "a frame")
            self.assertRaises(ValueError, recording.to_pandas, "tables")
        for rows, columns in frames:
            self.assertEqual({len(row) for row in rows}, {len(columns)})
        (sites, columns), (events, _) = frames
        self.assertEqual(sites[0][columns.index("bytes")], recording.sites()[0].bytes)
        self.assertEqual(len(events), len(list(recording.events())))

    def test_reports_and_pages(self) -> None:
        self.assertEqual(self.memlab.report("sites", self.one), self.printed("sites", self.one))
        with self.assertRaises(self.memlab.ReportError) as caught:
            self.memlab.report("check", "--peak-allocated", "1", self.one)
        self.assertEqual((caught.exception.code, str(caught.exception)), (1, "1 of 1 limits exceeded"))
        self.assertIn("EXCEEDED by", caught.exception.output)
        for wrong in (lambda: self.memlab.load("no.json"), lambda: self.memlab.report("sites", "no.json"),
                      lambda: self.memlab.report("--no-such-option")):
            with self.assertRaises(self.memlab.ReportError) as caught:
                wrong()
            self.assertEqual(caught.exception.code, 2)
            self.assertEqual(str(caught.exception).count("\n"), 0)
            self.assertTrue(str(caught.exception).startswith("memlab-report: "))
        run = self.work / "run"
        run.mkdir()
        for recording in (self.log, ROOT / "tests/data/h100/sample_cache_lines.memlog"):
            shutil.copy(recording, run)
        with self.assertRaisesRegex(self.memlab.ReportError, "several processes"):
            self.memlab.load(run)
        if "html" in self.memlab.report("--help"):
            page = self.memlab.html(self.one, self.work / "page.html")
            self.assertIn("<html", Path(page).read_text(encoding="utf-8"))

    def test_the_programs_by_the_package(self) -> None:
        environment = self.layout.environment(memlab=False) | {"PYTHONPATH": str(self.work / "site")}
        shown = subprocess.run([sys.executable, "-B", "-m", "memlab", "report", "sites", str(self.one)], env=environment,
                               capture_output=True, text=True, check=True)
        self.assertEqual(shown.stdout, self.printed("sites", self.one))
        path = subprocess.run([sys.executable, "-B", "-m", "memlab", "preload-path"], env=environment, capture_output=True,
                              text=True, check=True)
        self.assertEqual(path.stdout.strip(), self.memlab.preload_path())

    def test_a_package_without_its_programs(self) -> None:
        """As in a source tree. Exit code 2: 1 is that of a limit that `check` finds exceeded."""
        environment = self.layout.environment(memlab=False) | {"PYTHONPATH": str(ROOT / "python")}
        for arguments, says in ((["report", "check", "x"], "memlab-report cannot be run: No such file or directory; install"),
                                (["preload-path"], "libmemlab.so is not there; install"), (["rnu"], "rnu: no command"),
                                (["preload-path", "x"], "takes no arguments")):
            outcome = subprocess.run([sys.executable, "-B", "-m", "memlab", *arguments], env=environment, capture_output=True,
                                     text=True, check=False)
            self.assertEqual((outcome.returncode, outcome.stdout, outcome.stderr.count("\n")), (2, "", 1), outcome.stderr)
            self.assertIn(says, outcome.stderr)

    def test_parts_of_names_that_are_of_wrappers(self) -> None:
        naming = importlib.import_module("memlab._nn_modules")

        def module(parameters: tuple = (), **children: Any) -> Any:
            return types.SimpleNamespace(_modules=children, _parameters=dict.fromkeys(parameters))

        block = module(_checkpoint_wrapped_module=module(linear=module(("weight",))))
        net = module(module=block, head=module(("weight",)))
        of = {"": module(module=module(_orig_mod=net))}
        for qualified in ("module", "module._orig_mod", "module._orig_mod.module", "module._orig_mod.head",
                          "module._orig_mod.module._checkpoint_wrapped_module",
                          "module._orig_mod.module._checkpoint_wrapped_module.linear"):
            above, _, name = qualified.rpartition(".")
            of[qualified] = of[above]._modules[name]
        for prefix in ("Net", ""):
            names = naming._Names(prefix)
            found = [names.of_module(qualified, each) for qualified, each in of.items()]
            self.assertEqual(found, [prefix, prefix, prefix] + [naming.join(prefix, name) for name in (
                "module", "head", "module", "module.linear")])
            self.assertEqual([names.of_tensor(name) for name in (
                "module._orig_mod.head.weight", "module._orig_mod.module._checkpoint_wrapped_module.linear.weight", "of.none")],
                [naming.join(prefix, name) for name in ("head.weight", "module.linear.weight", "of.none")])
        part = types.SimpleNamespace(is_cuda=True, data_ptr=lambda: 4096)
        self.assertEqual(naming.pointer_of(types.SimpleNamespace(_local_tensor=part)), 4096)

        def sparse() -> int:
            raise RuntimeError("no storage")

        self.assertIsNone(naming.pointer_of(types.SimpleNamespace(is_cuda=True, data_ptr=sparse)))
        self.assertIsNone(naming.pointer_of(types.SimpleNamespace(is_cuda=False)))

    def test_names_take_a_share_of_the_time_in_which_the_program_runs(self) -> None:
        auto = importlib.import_module("memlab._auto")
        wall, processors = [100.0], [5.0]
        with unittest.mock.patch.object(auto.time, "perf_counter", lambda: wall[0]), \
                unittest.mock.patch.object(auto.time, "process_time", lambda: processors[0]):
            budget = auto._Budget(0)
            wall[0] += 0.01
            budget.spent(100.0)
            wall[0] += 1000  # while it is stopped, or others have their turn
            processors[0] += 1.9
            self.assertFalse(budget.allows())
            processors[0] += 0.2
            self.assertTrue(budget.allows())
            processors[0] += 1000  # of many threads
            budget = auto._Budget(0)
            budget.spent(wall[0] - 0.01)
            processors[0] += 1000
            wall[0] += 1.9
            self.assertFalse(budget.allows())

    def test_a_step_that_is_not_labelled_costs_next_to_nothing(self) -> None:
        """A step calls into PyTorch only where there is something to name or to label: the first two, then rarely."""
        auto = importlib.import_module("memlab._auto")
        disabled: list[Any] = []
        ended: list[Any] = []

        class Optimizer:
            param_groups: list[dict[str, list[Any]]] = []

        def disable(work: Any) -> Any:
            disabled.append(work)
            return lambda *arguments: (ended.append(work), work(*arguments))

        dynamo = types.SimpleNamespace(disable=disable)
        optimizer = Optimizer()
        with unittest.mock.patch.dict(sys.modules, {"torch._dynamo": dynamo}):
            for _ in range(2):
                auto._after_step(optimizer)
            self.assertEqual(len(ended), 2)
            auto._state.labels._spent = 10  # seconds: for a while nothing more is to be spent
            for _ in range(1000):
                auto._after_step(optimizer)
            self.assertEqual((len(disabled), len(ended)), (1, 2))
            auto._state.labels._spent = 0
            auto._after_step(optimizer)
            self.assertEqual((len(disabled), len(ended)), (1, 3))

    def test_what_a_long_start_leaves_is_not_spent_at_once(self) -> None:
        auto = importlib.import_module("memlab._auto")
        now = 0.0
        clock = types.SimpleNamespace(perf_counter=lambda: now, process_time=lambda: now)
        with unittest.mock.patch.object(auto, "time", clock):
            labels, naming = auto._Budget(0), auto._Budget(0.25)
            now += 1000  # worth five seconds of work
            spells = {}
            for name, budget in (("labels", labels), ("naming", naming)):
                spells[name] = 0
                for _ in range(1000):
                    if budget.allows():
                        begin, now = now, now + 0.01
                        budget.spent(begin)
                        spells[name] += 1
            self.assertEqual(spells["labels"], 1)
            self.assertIn(spells["naming"], range(25, 28))
            now += 2.5  # worth more than a spell
            self.assertTrue(labels.allows())

    def test_the_prototypes_are_those_of_memlab_h(self) -> None:
        header = (ROOT / "interpose/include/memlab/memlab.h").read_text(encoding="utf-8")
        body = re.search(r"struct memlab_device_stats \{(.*?)\n\};", header, re.S).group(1)
        fields = re.findall(r"^    (\w+) (\w+);", body, re.M)
        library = importlib.import_module("memlab._library")
        widths = {"size_t": ctypes.c_size_t, "uint64_t": ctypes.c_uint64, "int": ctypes.c_int, "void": None}
        self.assertEqual([(name, widths[kind]) for kind, name in fields], library.DeviceStats._fields_)
        declared = {}
        for result, name, parameters in re.findall(r"weak\)\) (\w+) memlab_api_(\w+)\(([^)]*)\);", header):
            kinds = [parameter.strip().rsplit(" ", 1)[0] for parameter in parameters.split(",")]
            declared[name] = (widths[result], tuple(
                ctypes.c_char_p if "char*" in kind
                else ctypes.c_void_p if kind.endswith("*") or kind.endswith("pending_call") else widths[kind]
                for kind in kinds if kind != "void" and kind))
        self.assertEqual({name: declared[name] for name in library.FUNCTIONS}, library.FUNCTIONS)
