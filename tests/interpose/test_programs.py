"""The catalogue's programs: the same output and exit code with and without memlab, and a recording
in which every byte is accounted for.
"""

from __future__ import annotations

import functools
import re
import subprocess
import unittest
from pathlib import Path

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
        if newer := self.lacking():
            self.skipTest(f"made for a newer driver: {', '.join(sorted(newer))}")
        _, _, _, problems = run_case(self.layout, self.case, self.work / "case")
        self.assert_sound(problems)

    def lacking(self) -> set[str]:
        """The functions that the program is linked with and this driver does not have."""
        driver = Path(self.layout.library_path[0]) / "libcuda.so.1"
        program = self.layout.program(self.case.command[0])
        wanted = {name for kind, name in symbols("--undefined-only", program) if kind == "U"}
        return {name for name in wanted if re.match("cu[A-Z]", name)} - {
            name for _, name in symbols("--defined-only", driver)}


@functools.cache
def symbols(which: str, library: Path) -> list[tuple[str, str]]:
    lines = subprocess.run(["nm", "-D", which, str(library)], capture_output=True, text=True, check=False).stdout
    return [(line.split()[-2], line.split()[-1].split("@")[0]) for line in lines.splitlines()]


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: str) -> unittest.TestSuite:
    """unittest's protocol. A static CUDA runtime needs a real driver: those cases are tests/gpu's."""
    del loader, tests, pattern
    return unittest.TestSuite(Programs(case) for case in CASES
                              if case.group == GROUP and not case.static_runtime)
