"""The catalogue's programs: the same output and exit code with and without memlab, and a recording
in which every byte is accounted for.
"""

from __future__ import annotations

import unittest

from catalogue import CASES, Case
from harness import run_case
from support import Build, EndToEnd

GROUP = ""
# Programs that libtsan.so, preloaded into them without their having been built for it, breaks
# already without memlab: it waits for the main thread forever, and crashes in a shell's fork.
BEYOND_LIBTSAN = ("ends by pthread_exit", "system and popen")


class Programs(EndToEnd):
    """Filled with one test per case by load_tests."""

    def __init__(self, case: Case) -> None:
        super().__init__("check")
        self.case = case

    def __str__(self) -> str:
        return self.case.name

    def check(self) -> None:
        if Build.sanitizer in ("address", "thread") and "deepbind" in self.case.command:
            self.skipTest("the sanitizer's runtime refuses RTLD_DEEPBIND")
        if Build.sanitizer == "thread" and self.case.name in BEYOND_LIBTSAN:
            self.skipTest("an uninstrumented program does not survive libtsan.so here")
        _, _, _, problems = run_case(self.layout, self.case, self.work / "case")
        self.assert_sound(problems)


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: str) -> unittest.TestSuite:
    """unittest's protocol. A static CUDA runtime needs a real driver: those cases are tests/gpu's."""
    del loader, tests, pattern
    return unittest.TestSuite(Programs(case) for case in CASES
                              if case.group == GROUP and not case.static_runtime)
