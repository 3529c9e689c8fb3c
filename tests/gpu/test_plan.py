#!/usr/bin/env python3
"""Processes that share the GPU suite run all of it, each thing once, and what has the GPU for itself after them."""

import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "programs")]
sys.dont_write_bytecode = True

from plan import Plan, Results, passed_in  # noqa: E402  (the path above)
from verdicts import Verdict  # noqa: E402

PARTS = {"programs": ["program: a", "program: memory info", "program: c"], "python": ["numba", "JAX"],
         "conformance": ["conformance_calls_driver", "conformance_driver"],
         "transcripts": ["conformance_calls_driver"], "limits": ["limit: device"], "witness": ["witness: b"]}
ALL = Counter((part, name) for part, names in PARTS.items() for name in names)


def taken(plan, parts=tuple(PARTS)):
    """What a process with that plan runs, as the suite asks: a part may ask twice for a name."""
    return Counter((part, name) for part in parts if plan.begin(part) for name in PARTS[part]
                   if plan.take(name) and plan.take(name))


class PlanTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="memlab-plan.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_one_process_runs_all(self):
        self.assertEqual(taken(Plan()), ALL)

    def test_workers_and_then_what_runs_alone(self):
        workers = [Plan(self.folder), Plan(self.folder)]
        first = taken(workers[0], ("programs", "limits"))
        second = taken(workers[1], tuple(reversed(PARTS)))
        first += taken(workers[0], tuple(PARTS)[1:])
        alone = taken(Plan(alone=True))
        self.assertEqual(alone, Counter({("programs", "program: memory info"): 1, ("limits", "limit: device"): 1,
                                         ("conformance", "conformance_calls_driver"): 1,
                                         ("transcripts", "conformance_calls_driver"): 1}))
        self.assertTrue(first and second)
        self.assertEqual(first + second + alone, ALL)

    def test_what_is_asked_for(self):
        self.assertEqual(taken(Plan(only=("numba", "memory"))),
                         Counter({("programs", "program: memory info"): 1, ("python", "numba"): 1}))

    def test_no_time_left(self):
        plan = Plan(until=0.0, only=("jax",))
        self.assertFalse(taken(plan))
        self.assertEqual(plan.not_begun, ["JAX"])

    def test_again(self):
        results = Results(self.folder / "verdicts.jsonl")
        results.add(Verdict("numba"))
        results.add(Verdict("JAX", skipped="no time was left", begun=False))
        results.add(Verdict("program: a", problems=["wrong"]))
        results.add(Verdict("program: c", skipped="needs 2 GPUs"))
        results.add(Verdict("conformance_calls_driver"))
        results.add(Verdict("conformance_calls_driver", problems=["wrong"]))
        results.add_table("figures")
        with results.path.open("a", encoding="utf-8") as file:
            file.write('{"name": "witness: b", "pro')
        self.assertEqual(results.read()[1], ["figures"])
        self.assertEqual(passed_in(results.path), {"numba"})
        again = taken(Plan(done=passed_in(results.path)))
        self.assertEqual(ALL - again, Counter({("python", "numba"): 1}))


if __name__ == "__main__":
    unittest.main(verbosity=2)
