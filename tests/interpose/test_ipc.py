"""Memory shared with other processes by its handle and the offset in it: the importer sees the exporter's
memory, or the export is refused in plain words; never other memory. Each block says beforehand which.
With importers under memlab and without.
"""

from __future__ import annotations

from catalogue import SHARES_AS_PLAIN_CUDA, SHARES_REFUSED
from support import EndToEnd

SIZES = ("1000", "2000", "100000", "3000000", "30000000")
INVALID_HANDLE = 400
EXACT = [f"{size}: exact" for size in SIZES]


class Ipc(EndToEnd):
    """tests/programs/ipc.cpp, which looks at the memory from both sides."""

    def shared(self, importer: str, settings: dict[str, str] | None = None,
               memlab: bool = True) -> tuple[list[str], list[str], str]:
        """What became of memory from before the first export and from after it, and stderr."""
        command = self.program("ipc", "export", importer, *SIZES)
        outcome = self.under_memlab(command, settings) if memlab else self.without_memlab(command)
        self.assertEqual(outcome.code, 0, outcome.describe())
        lines = outcome.stdout.decode().splitlines()
        middle = lines.index("allocated afterwards")
        return lines[1:middle], lines[middle + 1:], outcome.stderr.decode()

    def test_plain_cuda(self) -> None:
        self.assertEqual(self.shared("plain", memlab=False), (EXACT, EXACT, ""))

    def test_without_the_pool_all_is_exact(self) -> None:
        for importer in ("plain", "preloaded"):
            self.assertEqual(self.shared(importer, {"MEMLAB_POOL": "off"}), (EXACT, EXACT, ""), importer)

    def test_exact_or_refused(self) -> None:
        for importer in ("plain", "preloaded"):
            before, after, stderr = self.shared(importer, {"MEMLAB_BACKEND": "classic"})
            refused = [f"{size}: refused 801" for size in SIZES]
            for line, exact, refusal in zip(before, EXACT, refused):
                self.assertIn(line, (exact, refusal), importer)
            # Bases of segments are exact, other blocks cannot be: there are both among these.
            self.assertIn(EXACT[0], before)
            self.assertIn(refused[1], before)
            self.assertEqual(after, EXACT, importer)
            self.assertEqual(stderr.count("cuIpcGetMemHandle of a block inside a pooled segment"),
                             sum(line in refused for line in before), stderr)

    def test_mapped_memory_is_exact_for_importers_under_memlab(self) -> None:
        self.assertEqual(self.shared("preloaded", {"MEMLAB_BACKEND": "vmm"}), (EXACT, EXACT, ""))

    def test_mapped_memory_is_refused_to_others(self) -> None:
        before, after, _ = self.shared("plain", {"MEMLAB_BACKEND": "vmm"})
        self.assertEqual((before, after), ([f"{size}: refused {INVALID_HANDLE} by the importer" for size in SIZES], EXACT))

    def test_a_handle_of_mapped_memory_is_worth_what_the_drivers_is(self) -> None:
        for way in SHARES_AS_PLAIN_CUDA:
            native = self.without_memlab(self.program("shares", way))
            under = self.under_memlab(self.program("shares", way), {"MEMLAB_BACKEND": "vmm"})
            self.assertEqual((under.code, under.stdout), (0, native.stdout), under.describe())
            self.assertEqual(under.stderr, b"", under.describe())

    def test_memory_that_is_gone_is_refused(self) -> None:
        for way, code in (*SHARES_REFUSED.items(), ("changed", INVALID_HANDLE)):
            under = self.under_memlab(self.program("shares", way), {"MEMLAB_BACKEND": "vmm"})
            self.assertEqual((under.code, under.stdout), (0, b"refused: %d\n" % code), under.describe())

    def test_mapped_memory_is_refused_to_all_where_it_is_not_shared(self) -> None:
        for settings in ({"MEMLAB_IPC": "plain"}, {"SIMCUDA_FAIL": "cuMemCreate:1:800"}):
            before, after, _ = self.shared("preloaded", {"MEMLAB_BACKEND": "vmm"} | settings)
            self.assertEqual((before, after), ([f"{size}: refused 801" for size in SIZES], EXACT), settings)
