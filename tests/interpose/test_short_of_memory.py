"""The host is out of memory in the middle of a call: the program gets plain CUDA's answers."""

from __future__ import annotations

from harness import run
from support import EndToEnd


class ShortOfMemory(EndToEnd):
    """tests/programs/short_of_memory.cpp, with a library whose nth allocation fails, for each n."""

    def test_each_allocation_fails(self) -> None:
        command = self.program("short_of_memory")
        native = run(command, self.layout.environment(memlab=False), self.cwd)
        self.assertEqual((native.code, native.stdout), (0, b"done\n"), native.describe())
        for settings in ({}, {"MEMLAB_BACKEND": "classic"}, {"MEMLAB_RECORD": "off"}):
            with self.subTest(**settings):
                outcome = self.under_memlab(command, settings, timeout=300)
                self.assertEqual((outcome.code, outcome.stdout), (0, b"done\n"), outcome.describe())
                failures = int(outcome.stderr.split()[-1])
                self.assertGreater(failures, 5)
