"""What stays of contexts that ended: next to no host memory, however many there were. And what it costs to retain
and release one that does not end: nothing that depends on its memory, and nobody's allocations."""

from __future__ import annotations

from harness import run
from support import Build, EndToEnd


class Retained(EndToEnd):
    """tests/programs/retains.cpp."""

    def same(self, *arguments: str) -> None:
        command = self.program("retains", *arguments)
        native = run(command, self.layout.environment(memlab=False), self.cwd)
        self.assertEqual((native.code, native.stdout), (0, b"done\n"), native.describe())
        for backend in ("vmm", "classic"):
            with self.subTest(backend=backend):
                outcome = self.under_memlab(command, {"MEMLAB_BACKEND": backend})
                self.assertEqual((outcome.code, outcome.stdout), (0, b"done\n"), outcome.describe())

    def test_costs_the_same_beside_many_allocations(self) -> None:
        self.same("cost")

    def test_a_retain_does_not_ask_whether_a_known_context_is_there(self) -> None:
        outcome = self.under_memlab(self.program("retains", "asks"))
        self.assertEqual((outcome.code, outcome.stdout), (0, b"asked whether it is there: 100\ndone\n"),
                         outcome.describe())

    def test_memory_of_a_context_that_is_released_all_the_time(self) -> None:
        self.same("beside", "100")


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
