"""MEMLAB_FILL: what memory holds that memlab hands out, on the simulated driver, whose contents move when
the work that writes them completes and which ends a program with code 86 when two accesses to one address
are unordered."""

from __future__ import annotations

from support import EndToEnd

# The byte that the program expects for each value of the option.
FILLS = {"zero": "0x00", "0x00": "0x00", "0xa5": "0xa5", "0xF": "0x0f"}


class FreshMemory(EndToEnd):
    """One program, tests/programs/fresh_memory.cpp."""

    def test_each_kind_of_allocation_holds_it(self) -> None:
        for backend in ("classic", "vmm"):
            for sync in ("auto", "never"):
                for fill, byte in FILLS.items():
                    with self.subTest(backend=backend, sync=sync, fill=fill):
                        outcome = self.under_memlab(
                            self.program("fresh_memory", byte),
                            {"MEMLAB_BACKEND": backend, "MEMLAB_FREE_SYNC": sync, "MEMLAB_FILL": fill})
                        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())

    def test_a_pattern_is_in_memory_that_is_not_pooled(self) -> None:
        outcome = self.under_memlab(self.program("fresh_memory", "0xa5"),
                                    {"MEMLAB_POOL": "off", "MEMLAB_FILL": "0xa5"})
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())

    def test_without_it_memory_holds_what_was_written(self) -> None:
        outcome = self.under_memlab(self.program("fresh_memory", "0x00"))
        self.assertEqual(outcome.code, 1, outcome.describe())
        self.assertIn(b"cuMemAlloc of 100: something else\n", outcome.stdout)

    def test_not_before_the_last_owners_kernel_has_ended(self) -> None:
        """Nor where nothing else would order them, or memory is short and the device waits."""
        for backend in ("classic", "vmm"):
            for limit, again in (("0", b"no"), ("60MiB", b"yes")):
                with self.subTest(backend=backend, limit=limit):
                    outcome = self.under_memlab(
                        self.program("fresh_memory", "0xa5", "behind"),
                        {"MEMLAB_BACKEND": backend, "MEMLAB_FREE_SYNC": "never", "MEMLAB_LIMIT": limit,
                         "MEMLAB_FILL": "0xa5"})
                    self.assertEqual(outcome.code, 0, outcome.describe())
                    self.assertIn(b"same address: " + again, outcome.stdout)

    def test_a_fill_that_fails_is_the_answer_and_costs_no_memory(self) -> None:
        outcome = self.under_memlab(self.program("fresh_memory", "0x00"),
                                    {"MEMLAB_FILL": "zero", "SIMCUDA_FAIL": "cuMemsetD8Async:1:700"})
        self.assertEqual(outcome.code, 3, outcome.describe())
        self.assertIn(b"cuMemAlloc(&address, bytes) returned 700", outcome.stderr)

    def test_the_recording_says_so(self) -> None:
        self.under_memlab(self.program("malloc_free"), {"MEMLAB_FILL": "zero"})
        report, = self.output.glob("*.json")
        self.assertIn('"MEMLAB_FILL":"zero"', report.read_text().replace(" ", ""))

    def test_what_is_no_byte_is_said(self) -> None:
        for text in ("0x", "0x123", "0xg0", "165", "on"):
            with self.subTest(text=text):
                outcome = self.under_memlab(self.program("fresh_memory", "0x00"), {"MEMLAB_FILL": text})
                self.assertIn(f"MEMLAB_FILL={text} is not understood".encode(), outcome.stderr)
