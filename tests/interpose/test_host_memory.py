"""The host memory that memlab takes: not from the program's malloc, and within bounds however many call
stacks there are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest

from harness import recordings_in, report_against_audit, report_against_log
from support import Build, EndToEnd

MIB = 1 << 20


# A process's peak counts the memory of the one that started it, until it is another program: a small one
# has to. Writes the figures to the last line of standard output.
MEASURE = """
import json, os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], json.loads(sys.argv[1]))
_, status, usage = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10, usage.ru_utime + usage.ru_stime)
"""


class Measured:
    """A command that ended: what it printed, its peak of resident memory, its processor time."""

    def __init__(self, command: list[str], environment: dict[str, str], cwd: os.PathLike[str]) -> None:
        said = subprocess.run([sys.executable, "-I", "-c", MEASURE, json.dumps(environment), *command],
                              cwd=cwd, stdout=subprocess.PIPE, check=True).stdout
        self.stdout, _, figures = said.rstrip(b"\n").rpartition(b"\n")
        code, peak_bytes, seconds = figures.split()
        self.code, self.peak_bytes, self.seconds = int(code), int(peak_bytes), float(seconds)


class HostMemory(EndToEnd):
    """tests/programs/malloc_lock.cpp and many_stacks.cpp."""

    @unittest.skipIf(Build.sanitizer, "a sanitizer has its own malloc, and all memory comes from it")
    def test_a_malloc_that_calls_cuda_under_its_lock(self) -> None:
        for backend in ("vmm", "classic"):
            self.output = self.work / backend
            outcome = self.under_memlab(self.program("malloc_lock"), {"MEMLAB_BACKEND": backend})
            self.assertEqual((outcome.code, outcome.stdout, outcome.stderr), (0, b"done\n", b""),
                             outcome.describe())
        found, problems = recordings_in(self.layout, self.output)
        self.assert_sound(problems + report_against_audit(found[0]))
        device = found[0].audit["kinds"]["device"]
        self.assertEqual({name: device[name]["count"] for name in ("allocs", "frees", "live")},
                         {"allocs": 10_000, "frees": 10_000, "live": 0})

    @unittest.skipIf(Build.sanitizer, "a sanitizer's own memory is a multiple of this")
    def test_a_million_call_stacks(self) -> None:
        """Five times as many as MEMLAB_MAX_STACKS keeps by default."""
        stacks = 1_000_000
        command = self.program("many_stacks", str(stacks))
        native = Measured(command, self.layout.environment(memlab=False), self.cwd)
        under = Measured(command, self.layout.environment(memlab=True, output=self.output), self.cwd)
        self.assertEqual((native.code, under.code, native.stdout), (0, 0, under.stdout))
        print(f"{(under.peak_bytes - native.peak_bytes) / MIB:.0f} MiB of host memory")
        self.assertLessEqual(under.peak_bytes - native.peak_bytes, 256 * MIB)

        found, problems = recordings_in(self.layout, self.output)
        self.assert_sound(problems + report_against_audit(found[0]) + report_against_log(self.layout, found[0]))
        device = found[0].audit["kinds"]["device"]
        self.assertEqual({name: (device[name]["count"], device[name]["requested"])
                          for name in ("allocs", "frees", "live")},
                         {"allocs": (stacks, stacks * 4096), "frees": (stacks - 100, (stacks - 100) * 4096),
                          "live": (100, 100 * 4096)})
        (missed,) = found[0].report["missed"]
        self.assertIn("more than 200000 different call stacks (MEMLAB_MAX_STACKS)", missed["reason"])
        self.assertGreater(len(found[0].report["sites"]), 200_000)

        for recording in (found[0].report_path, found[0].log):
            read = Measured([str(self.layout.tool("memlab-report")), str(recording)],
                            self.layout.environment(memlab=False), self.cwd)
            self.assertEqual(read.code, 0)
            print(f"{recording.suffix}: read in {read.peak_bytes / MIB:.0f} MiB and "
                  f"{read.seconds / under.seconds:.1f} times the program's time")
            self.assertLessEqual(read.peak_bytes, 500 * MIB)
            self.assertLess(read.seconds, 5 * under.seconds)


if __name__ == "__main__":
    unittest.main()
