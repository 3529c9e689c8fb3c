"""The host memory that memlab takes: not from the program's malloc."""

from __future__ import annotations

import unittest

from harness import recordings_in, report_against_audit
from support import Build, EndToEnd


class HostMemory(EndToEnd):
    """tests/programs/malloc_lock.cpp."""

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


if __name__ == "__main__":
    unittest.main()
