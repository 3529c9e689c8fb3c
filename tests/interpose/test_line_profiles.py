"""pytorch_memlab's names in the Python package: figures by line, and the reporter. Each CPython that is here runs
tests/programs/python/line_profiles.py with a stand-in for PyTorch, whose cache has figures of its own.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from typing import Any

from support import EndToEnd
from test_python import PROGRAMS, installed
from test_python_api import MIB, OLDER, READ, forget_package, make_package

PROGRAM = PROGRAMS / "line_profiles.py"


class LineProfiles(EndToEnd):
    interpreters: list[tuple[str, str]] = []

    @classmethod
    def setUpClass(cls) -> None:
        cls.interpreters = installed(READ)

    def setUp(self) -> None:
        super().setUp()
        self.site = self.work / "site"
        make_package(self.layout, self.site)

    def outcome(self, interpreter: str, mode: str, memlab: bool = True) -> Any:
        start = self.under_memlab if memlab else self.without_memlab
        library = self.layout.program("pytorch_cache").parent / "pytorch" / "libc10_cuda.so"
        path = ":".join(map(str, (self.site, PROGRAMS / "stand_ins" / "torch_cuda")))
        outcome = start([interpreter, "-B", str(PROGRAM), mode],
                        {"PYTHONPATH": path, "LIBC10_CUDA": str(library), "SIMCUDA_DEVICES": "2"})
        self.assertEqual(outcome.code, 0, outcome.describe())
        return outcome

    def answers(self, mode: str) -> list[tuple[Any, str]]:
        """Of each interpreter: what it prints as JSON, and the rest."""
        answers = []
        for _, interpreter in self.interpreters:
            outcome = self.outcome(interpreter, mode)
            self.assertEqual(outcome.stderr, b"", outcome.describe())
            text = outcome.stdout.decode()
            answer = next(line for line in text.splitlines() if line.startswith(("{", "[")))
            answers.append((json.loads(answer), text.replace(answer, "")))
        return answers

    def columns(self, rows: dict, *columns: int) -> list:
        """Of each line in order, in MiB where it is bytes."""
        return [[row[column] // MIB if column != 6 else row[column] for column in columns]
                for _, row in sorted(rows.items(), key=lambda item: int(item[0]))]

    def test_figures_are_the_caches_own_at_each_lines_end(self) -> None:
        for answer, _ in self.answers("lines"):
            work = answer["lines"]["work"]
            seen = answer["seen"]
            at_end = [work[str(line)] for line in (1, 2, 4, 5, 6, 7)]
            # The line of the loop's body ran twice: what is shown is the most.
            seen[2:4] = [[max(pair) for pair in zip(*seen[2:4])]]
            self.assertEqual([[row[0], row[1], row[7]] for row in at_end], seen)
            self.assertEqual(self.columns(work, 2, 3, 4, 5, 6),
                             [[0, 0, 0, 0, 0], [3, 3, 3, 3, 0], [10, 10, 7, 0, 2], [7, 7, 0, 0, 0], [8, 8, 4, 3, 1],
                              [7, 7, 0, -3, 1], [12, 12, 8, 0, 1], [4, 4, 0, 0, 0]])
            self.assertEqual(self.columns(answer["lines"]["inner"], 0, 2, 4, 5, 6), [[4, 4, 0, 0, 0], [4, 12, 8, 0, 1]])
            text = answer["text"]
            self.assertEqual(re.findall(r"^## (.*)$", text, re.M), ["work", "inner"])
            self.assertIn("\n\nactive_bytes reserved_bytes line  code\n         all            all\n        peak           peak\n"
                          "       0.00B          0.00B", text)
            self.assertIn('<h3><span style="font-family:monospace">work</span></h3>', answer["html"])
            self.assertEqual(answer["html"].count("<tr>"), 2 + 8 + 2)

    def test_kinds_of_functions(self) -> None:
        for answer, _ in self.answers("kinds"):
            self.assertEqual(set(answer), {"forward", "generator", "waits", "raises", "recursive", "nested"})
            self.assertEqual(self.columns(answer["forward"], 0, 4), [[0, 0], [2, 2], [2, 0]])
            # What the caller allocates while it is suspended is of none of its lines.
            self.assertEqual(max(made for (made,) in self.columns(answer["generator"], 4)), 2)
            self.assertEqual(self.columns(answer["waits"], 4, 5, 6), [[0, 0, 0], [2, 2, 0], [0, 0, 0], [0, -2, 1], [0, 0, 0]])
            self.assertEqual(self.columns(answer["raises"], 4), [[0], [3], [0]])
            self.assertEqual(self.columns(answer["recursive"], 0, 4), [[2, 0], [3, 1], [3, 0], [2, 2], [3, 0]])
            self.assertEqual(self.columns(answer["nested"], 4), [[0], [1]])

    def test_another_gpu_within_a_function(self) -> None:
        for answer, text in self.answers("gpus"):
            self.assertEqual(self.columns(answer["two_gpus"], 0, 4),
                             [[0, 0], [3, 3], [0, 0], [2, 2], [3, 0], [7, 4], [0, 0]])
            self.assertIn("## two_gpus\n", text)  # printed at the end

    def test_a_forked_child_goes_on(self) -> None:
        for answer, _ in self.answers("forks"):
            self.assertEqual((self.columns(answer["inner"], 4), answer["child"]), ([[0], [8]], 7))

    def test_beside_another_trace_function(self) -> None:
        for answer, _ in self.answers("traced"):
            self.assertEqual(self.columns(answer["inner"], 0, 2, 4), [[0, 0, 0], [0, 8, 8]])
            self.assertEqual(answer["others"], ["call", "line", "return"] * 3)

    def test_every_so_many_calls(self) -> None:
        for answer, _ in self.answers("every"):
            self.assertEqual(re.findall(r"## every\.<locals>\.(\w+)", answer["text"]), ["counted", "counted", "yields"])
            self.assertEqual(self.columns(answer["own"]["counted"], 4, 6), [[0, 0], [1, 1]])

    def test_what_is_shown_and_refused(self) -> None:
        for answer, _ in self.answers("chosen"):
            self.assertEqual(answer["none"], ["No data collected\n", "<p>No data collected</p>"])
            self.assertEqual([answer[by] for by in ("by_name", "by_function", "by_list")], [["work"], ["inner"], ["inner", "work"]])
            self.assertTrue(answer["stream"].startswith("## inner\n\nallocation line  code\n       all\n      peak\n"))
            self.assertEqual(answer["cleared"], "No data collected\n")
            column, parts, function, gpu, model, interval = answer["refused"]
            self.assertTrue(column.startswith("ValueError: there is no column 'no.such.column'; there are: {active,active_b"))
            self.assertIn("}.{all,large_pool,small_pool}.{allocated,current,freed,peak}, line_bytes.all.made", column)
            self.assertIn("three parts", parts)
            self.assertEqual(function, "ValueError: absent is not profiled; these functions are: work, inner")
            self.assertTrue(gpu.startswith("TypeError: a GPU is given by its number"))
            self.assertTrue(model.startswith("TypeError: memlab.MemReporter takes a torch.nn.Module"))
            self.assertTrue(interval.startswith("ValueError: profile_every prints after 1 call or more"))

    def test_tensors_by_name(self) -> None:
        for answer, _ in self.answers("reporter"):
            line, rule = "{:<40s}{:>20s}{:>10s}", "-" * 79
            model = [line.format("weight", "(1024, 1024)", "4.00M"), line.format("bias", "(1024,)", "4.00K"),
                     line.format("mask", "(7,)", "512.00B")]
            self.assertEqual(answer["first"].splitlines(),
                             [line.format("Element type", "Size", "Used MEM"), rule, "Storage on cuda:0", *model, rule,
                              "Total Tensors: 1049607 \tUsed Memory: 4.00M", "The allocated memory on cuda:0: 4.00M", rule])
            model.insert(1, line.format("weight.grad", "(1024, 1024)", "4.00M"))
            more = [line.format("Tensor0", "(512,)", "0.00B"), line.format("Adam.weight.exp_avg", "(1024, 1024)", "4.00M")]
            self.assertEqual(answer["plain"].splitlines()[3:9], [*model, *more])
            self.assertIn(line.format("Tensor0(->weight)", "(512,)", "0.00B"), answer["verbose"])
            held = answer["held"].splitlines()
            self.assertIn("Held by C++ alone: 2.00M", held)
            self.assertRegex(held[held.index("Held by C++ alone: 2.00M") + 1], r"^__init__\.py:\d+ (UntypedStorage\.)?__init__ .* 2\.00M$")
            self.assertRegex(answer["held"], r"SparseTensor\d\.indices +\(2, 8\) +512\.00B\nSparseTensor\d\.values +\(8,\) +0\.00B")
            self.assertEqual([line for line in answer["other"].splitlines() if line.startswith("Storage")], ["Storage on cuda:1"])

    def test_without_memlab(self) -> None:
        for _, interpreter in self.interpreters + installed(OLDER):
            with self.subTest(interpreter):
                outcome = self.outcome(interpreter, "nothing", memlab=False)
                self.assertEqual(json.loads(outcome.stdout), ["No data collected\n", 2])
                self.assertEqual(outcome.stderr.decode().count("NotRecordedWarning"), 1, outcome.describe())

    def test_names_and_parameters_are_pytorch_memlabs(self) -> None:
        """As its documentation and source have them, version 0.3."""
        sys.path.insert(0, str(self.site))
        self.addCleanup(forget_package, self.site)
        memlab = importlib.import_module("memlab")
        wanted = {"LineProfiler": "*functions target_gpu=0", "LineProfiler.add_function": "self func", "LineProfiler.enable": "self",
                  "LineProfiler.disable": "self", "LineProfiler.clear": "self", "LineProfiler.display": "self func=None columns",
                  "LineProfiler.print_stats": "self func=None columns stream", "profile": "func columns",
                  "profile_every": "output_interval=1 enable=True columns", "set_target_gpu": "gpu_id",
                  "clear_global_line_profiler": "", "MemReporter": "model=None pre_collect=False",
                  "MemReporter.add_optimizer": "self optimizer", "MemReporter.report": "self verbose=False device=None"}
        default = ("active_bytes.all.peak", "reserved_bytes.all.peak")
        for name, parameters in wanted.items():
            found: Any = memlab
            for part in name.split("."):
                found = getattr(found, part)
            shown = []
            for parameter in inspect.signature(found).parameters.values():
                star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
                has_default = parameter.default is not parameter.empty and parameter.name not in ("columns", "stream")
                shown.append(f"{star}{parameter.name}" + (f"={parameter.default}" if has_default else ""))
                if parameter.name == "columns":
                    self.assertEqual(parameter.default, default)
            self.assertEqual(" ".join(shown), parameters, name)
        for name in ("__enter__", "__exit__"):
            self.assertTrue(callable(getattr(memlab.LineProfiler, name)))
