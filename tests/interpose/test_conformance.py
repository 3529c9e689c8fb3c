"""Transcripts of CUDA calls (tests/conformance): the same without memlab and with it, and on the simulated
driver the same as a GPU showed.
"""

from __future__ import annotations

import sys

from support import ROOT, EndToEnd

sys.path.insert(0, str(ROOT / "tests" / "conformance"))

from compare import compare, groups, unlike  # noqa: E402  (the path above)

# Groups whose calls the simulated driver does not model: compared on a GPU only.
ON_A_GPU_ONLY = {"conformance_calls_edges": {"arrays", "batches", "advice", "pages", "mappings",
                                             "tokens", "host_function"}}

RECORDED = ROOT / "tests" / "data" / "h200" / "calls"


class Conformance(EndToEnd):
    """One test a program; its groups are subtests. The static runtime needs a real driver."""

    def check(self, program: str) -> None:
        not_here = ON_A_GPU_ONLY.get(program, set())
        names = [name for name in groups(self.layout, program) if name not in not_here]
        self.assertEqual(set(names), {path.name.split(".")[1] for path in RECORDED.glob(f"{program}.*.txt")} - not_here)
        for name in names:
            with self.subTest(name):
                work = self.work / name
                work.mkdir()
                native, problems = compare(self.layout, program, name, work)
                recorded = (RECORDED / f"{program}.{name}.txt").read_text(encoding="utf-8")
                problems += unlike("the simulated driver", recorded, native.stdout.decode())
                self.assert_sound(problems)

    def test_driver(self) -> None:
        self.check("conformance_calls_driver")

    def test_edges(self) -> None:
        self.check("conformance_calls_edges")

    def test_runtime(self) -> None:
        self.check("conformance_calls_runtime")
