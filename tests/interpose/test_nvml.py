"""What NVML says to the program of memory that the pool holds unused."""

from __future__ import annotations

from harness import Outcome, judge_recordings
from support import EndToEnd

BOTH = ("nvml_free", "nvml_free_linked")


class Nvml(EndToEnd):
    """tests/programs/nvml_free.cpp, which opens NVML, or is linked with it."""

    def settings(self) -> dict[str, str]:
        library = self.layout.root / "lib"
        return {"LD_LIBRARY_PATH": f"{library}/simcuda:{library}/simnvml", "SIMNVML_PROCESSES": "self:used",
                "SIMCUDA_DEVICES": "2"}

    def same(self, command: list[str], **settings: str) -> Outcome:
        native = self.without_memlab(command, self.settings())
        under = self.under_memlab(command, self.settings() | settings)
        self.assertEqual((native.code, native.stderr), (0, b""), native.describe())
        self.assertEqual((under.code, under.stdout, under.stderr), (0, native.stdout, b""), under.describe())
        return native

    def test_what_was_freed_is_free(self) -> None:
        for program in BOTH:
            for settings in ({}, {"MEMLAB_BACKEND": "classic"}, {"MEMLAB_POOL": "off"}, {"MEMLAB_DISABLE": "1"}):
                with self.subTest(program, **settings):
                    native = self.same(self.program(program), **settings)
                    self.assertEqual(native.stdout.count(b": less"), 15)

    def test_another_gpu_is_left_alone(self) -> None:
        for program in BOTH:
            with self.subTest(program):
                outcome = self.under_memlab(self.program(program, "other"), self.settings())
                lines = [line for line in outcome.stdout.decode().splitlines() if line.startswith("the other GPU")]
                self.assertEqual(len(lines), 5)
                self.assertTrue(all(line.endswith("not less") for line in lines), outcome.describe())

    def test_a_global_lookup_finds_it_only_where_it_is(self) -> None:
        for program in BOTH:
            with self.subTest(program):
                self.same(self.program(program, "next"))
        self.assert_nothing_written()

    def test_the_recording_has_the_real_figure(self) -> None:
        outcome = self.under_memlab(self.program("nvml_free", "waits"), self.settings() | {
            "MEMLAB_LEDGER": "on", "SIMCUDA_CONTEXT_MEMORY": "0"})
        self.assertEqual(outcome.code, 0, outcome.describe())
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        ledger = found[0].report["devices"][0]["ledger"]
        self.assertEqual(ledger["witnesses"][-1]["state"], "seen")
        self.assertGreaterEqual(ledger["witnesses"][-1]["own_bytes"], 64 << 20)
