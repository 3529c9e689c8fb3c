"""Memory that is allocated while a stream captures: by whom, and that graphs take it as any other. On the
simulated driver, whose executable graphs refuse, as an H200's do, to move a copy between mapped memory and
cuMemAlloc's."""

from __future__ import annotations

from support import EndToEnd


class Captures(EndToEnd):
    """tests/programs/graph_updates.cpp and captures.cpp."""

    def test_a_graph_is_updated_to_buffers_however_they_were_allocated(self) -> None:
        native = self.without_memlab(self.program("graph_updates"))
        self.assertEqual(native.code, 0, native.describe())
        self.assertEqual(native.stdout.count(b": 0"), 10, native.describe())
        for settings in ({"MEMLAB_BACKEND": "vmm"}, {"MEMLAB_BACKEND": "classic"}, {"MEMLAB_FREE_SYNC": "never"},
                         {"MEMLAB_WORK_CLOCK": "off"}, {"MEMLAB_FILL": "0xa5"}, {"MEMLAB_POOL": "off"}):
            with self.subTest(**settings):
                outcome = self.under_memlab(self.program("graph_updates"), settings)
                self.assertEqual((outcome.code, outcome.stdout, outcome.stderr), (0, native.stdout, b""),
                                 outcome.describe())

    def test_what_plain_cuda_refuses_is_refused(self) -> None:
        for mode in ("relaxed", "global", "thread_local"):
            for backend in ("classic", "vmm"):
                with self.subTest(mode=mode, backend=backend):
                    command = self.program("captures", mode)
                    native = self.without_memlab(command)
                    outcome = self.under_memlab(command, {"MEMLAB_BACKEND": backend})
                    self.assertEqual((outcome.code, outcome.stdout), (native.code, native.stdout),
                                     outcome.describe())
