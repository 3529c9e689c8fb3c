"""What stays of contexts that ended: next to no host memory, however many there were."""

from __future__ import annotations

from harness import run
from support import Build, EndToEnd


class Contexts(EndToEnd):
    """tests/programs/ended_contexts.cpp, which tells by how much the heap grew for each."""

    def kept(self, mode: str, count: int) -> None:
        command = self.program("ended_contexts", mode, str(count))
        native = run(command, self.layout.environment(memlab=False), self.cwd, timeout=250)
        outcome = self.under_memlab(command, timeout=250)
        self.assertEqual((native.code, outcome.code), (0, 0), native.describe() + outcome.describe())
        if not Build.sanitizer:  # whose heap tells nothing of itself
            self.assertLess(int(outcome.stdout) - int(native.stdout), 6000)

    def test_created_and_destroyed(self) -> None:
        self.kept("created", 1000)

    def test_reset(self) -> None:
        self.kept("reset", 200)

    def test_beside_a_thread_that_works(self) -> None:
        self.kept("beside", 100)
