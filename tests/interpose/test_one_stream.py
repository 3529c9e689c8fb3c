"""Memory that is used again at once while all work goes to one stream, and what happens when another
begins. On the simulated driver, which ends a program with code 86 when two accesses to one address are
unordered; a library that leaves the order out shows that it would.
"""

from __future__ import annotations

import unittest

from harness import judge_recordings, run
from support import Build, EndToEnd

ON = {"MEMLAB_FREE_SYNC": "never", "MEMLAB_VERBOSITY": "debug"}

# Which reuses of memory with work still on it get it at once; whether the driver was asked about a
# fence; whether the device was made to wait; what memlab says of the streams at the end.
SCENARIOS = {
    "one": ("yes yes yes", "no", "no", "all work went to one stream"),
    "legacy": ("yes yes", "no", "no", "all work went to one stream"),
    "graph": ("yes yes", "no", "no", "all work went to one stream"),
    "second": ("yes no", "yes", "yes", "work on a second stream"),
    "legacy_after_another": ("yes", "no", "yes", "work on a second stream"),
    "copy": ("yes", "no", "yes", "work on a second stream"),
    "config": ("yes yes", "no", "yes", "work on a second stream"),
    "early": ("yes yes", "no", "no", "all work went to one stream"),
    "graph_in_another": ("yes", "no", "yes", "work on a second stream"),
    "destroyed": ("yes", "no", "yes", "work on a second stream"),
    "thread_streams": ("yes yes", "no", "yes", "work on a second stream"),
    "capture": ("yes", "no", "yes", "a stream capture"),
    "unknown_function": ("yes", "no", "yes", "a driver function that memlab does not know"),
    "second_context": ("yes", "no", "yes", "a second context"),
    "context_again": ("yes no", "yes", "no", "a context that ended"),
}
# There is no second stream, or the memory's new context is made to wait as every peer is.
HARMLESS = ("one", "legacy", "graph", "context_again", "early", "second_context")


class OneStream(EndToEnd):
    """One program, tests/programs/one_stream.cpp."""

    def outcome(self, *arguments: str, **settings: str):
        return self.under_memlab(self.program("one_stream", *arguments), ON | settings)

    def test_what_is_used_again_and_what_it_takes(self) -> None:
        for backend in ("classic", "vmm"):
            for scenario, (again, asked, waits, said) in SCENARIOS.items():
                with self.subTest(scenario=scenario, backend=backend):
                    outcome = self.outcome(scenario, MEMLAB_BACKEND=backend)
                    self.assertEqual(outcome.code, 0, outcome.describe())
                    expected = [*(f"same address: {each}" for each in again.split()),
                                f"asked: {asked}, device waits: {waits}"]
                    self.assertEqual(outcome.stdout.decode().splitlines(), expected, outcome.describe())
                    self.assertIn(f"one stream: {said}\n", outcome.stderr.decode())

    @unittest.skipIf(Build.sanitizer, "that library is built without sanitizers only")
    def test_control_without_the_order_each_second_stream_is_caught(self) -> None:
        library = str(self.layout.library.with_name("libmemlab_unordered.so"))
        for scenario in SCENARIOS:
            with self.subTest(scenario=scenario):
                outcome = self.outcome(scenario, LD_PRELOAD=library)
                self.assertEqual(outcome.code, 0 if scenario in HARMLESS else 86, outcome.describe())

    def test_a_device_wait_that_fails_is_no_licence_to_begin(self) -> None:
        outcome = self.outcome("second", SIMCUDA_FAIL="cuCtxWaitEvent:1:999")
        self.assertEqual(outcome.code, 0, outcome.describe())

    def test_a_driver_without_context_events_synchronizes(self) -> None:
        outcome = self.outcome("second", SIMCUDA_DRIVER_VERSION="12040")
        self.assertEqual(outcome.code, 0, outcome.describe())

    def test_off_it_changes_nothing(self) -> None:
        for settings in ({"MEMLAB_ONE_STREAM": "off"}, {"MEMLAB_WORK_CLOCK": "off"}):
            outcome = self.outcome("one", **settings)
            self.assertEqual(outcome.code, 0, outcome.describe())
            self.assertEqual(outcome.stdout.decode().splitlines()[:3], ["same address: no"] * 3)
            self.assertIn("one stream: not known\n", outcome.stderr.decode())

    def test_a_free_that_promises_waits_all_the_same(self) -> None:
        for sync in ("auto", "always"):
            outcome = self.under_memlab(self.program("fences", "reuse", "1048576"),
                                        ON | {"MEMLAB_FREE_SYNC": sync})
            self.assertEqual(outcome.code, 0, outcome.describe())
            self.assertTrue(outcome.stdout.startswith(b"free: the host waited\n"), outcome.describe())

    def test_auto_knows_who_does_not_rely_on_the_wait(self) -> None:
        library = self.layout.program("fences").parent / "libc10_cuda.so"
        outcome = self.under_memlab(self.program("fences", "reuse", "1048576", str(library)),
                                    ON | {"MEMLAB_FREE_SYNC": "auto"})
        self.assertEqual(outcome.code, 0, outcome.describe())
        self.assertEqual(outcome.stdout.decode().splitlines(), [
            "free: the host went on", "same address: yes",
            "context events recorded: yes, waited for on the device: yes"])

    def test_threads_that_leave_the_stream_one_after_the_other(self) -> None:
        for seed in range(12):
            for backend in ("classic", "vmm"):
                outcome = self.outcome("threads", str(seed), MEMLAB_BACKEND=backend)
                self.assertEqual(outcome.code, 0, outcome.describe())
                self.assertIn("one stream: work on a second stream\n", outcome.stderr.decode())

    @unittest.skipIf(Build.sanitizer, "that library is built without sanitizers only")
    def test_control_without_the_order_threads_are_caught(self) -> None:
        library = str(self.layout.library.with_name("libmemlab_unordered.so"))
        codes = [self.outcome("threads", str(seed), LD_PRELOAD=library).code for seed in range(4)]
        self.assertIn(86, codes)

    def test_the_recording_is_the_whole_truth(self) -> None:
        for arguments in (("one",), ("second",), ("destroyed",), ("threads", "5")):
            outcome = self.outcome(*arguments)
            self.assertEqual(outcome.code, 0, outcome.describe())
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assertEqual((len(found), problems), (4, []))

    def test_nothing_is_kept_back_on_one_stream(self) -> None:
        for known in ("on", "off"):
            outcome = self.outcome("one", MEMLAB_ONE_STREAM=known, MEMLAB_OUTPUT=f"{self.output}/{known}/")
            found, problems = judge_recordings(self.layout, self.output / known, None)
            self.assertEqual((outcome.code, problems), (0, []), outcome.describe())
            curves = found[0].report["devices"][0]["curves"]
            allocated, active = (curves[name]["peak_bytes"] for name in ("allocated", "active"))
            self.assertEqual(active == allocated, known == "on", outcome.describe())

    def test_work_that_waits_for_a_second_stream_is_not_waited_for(self) -> None:
        for way in ("free", "one"):
            outcome = self.under_memlab(self.program("spin", way), ON)
            self.assertEqual(outcome.code, 0, outcome.describe())

    def test_captures_are_as_they_were(self) -> None:
        for mode in ("relaxed", "global", "thread_local"):
            command = self.program("captures", mode)
            native = self.without_memlab(command)
            under = self.under_memlab(command, ON | {"MEMLAB_VERBOSITY": "warnings"})
            self.assertEqual((under.code, under.stdout), (native.code, native.stdout), under.describe())

    def test_two_gpus(self) -> None:
        settings = {"SIMCUDA_DEVICES": "2"}
        environment = self.layout.environment(memlab=False, settings=settings)
        native = run(self.program("two_gpus"), environment, self.cwd)
        for backend in ("classic", "vmm"):
            under = self.under_memlab(self.program("two_gpus"), ON | settings | {
                "MEMLAB_BACKEND": backend, "MEMLAB_VERBOSITY": "warnings"})
            self.assertEqual((under.code, under.stdout), (0, native.stdout), under.describe())
            under = self.under_memlab(self.program("two_gpus", "unordered"), ON | settings | {"MEMLAB_BACKEND": backend})
            self.assertEqual(under.code, 0, under.describe())
            self.assertIn(b"reused memory of a peer: 0 of 80 wrong", under.stdout)
