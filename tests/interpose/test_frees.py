"""Frees that plain CUDA serves without holding up anybody: in a stream's order, from callbacks inside
memlab's own calls, on drivers without context events, where contexts end. A hang ends a program with
code 5.
"""

from __future__ import annotations

from catalogue import BESIDE_CAPTURES, FAULTS_TOLD_BY, PRINTED
from harness import Outcome, judge_recordings, run
from support import EndToEnd

OLD_DRIVER = {"SIMCUDA_DRIVER_VERSION": "12040"}


class Frees(EndToEnd):
    """tests/programs/stream_frees.cpp, nested_frees.cpp, free_waits.cpp, peers_end.cpp, capture_storm.cpp,
    endless.cpp, sleeps.cpp, device_printf.cpp."""

    def natively(self, command: list[str], settings: dict[str, str] | None = None) -> Outcome:
        return run(command, self.layout.environment(memlab=False, settings=settings), self.cwd)

    def same(self, *command: str, settings: dict[str, str] | None = None) -> None:
        """Without memlab and with it, its pool in either backend, the program ends in the same way."""
        settings = settings or {}
        native = self.natively(self.program(*command), settings)
        self.assertEqual(native.code, 0, native.describe())
        for more in ({}, {"MEMLAB_FREE_SYNC": "never"}, {"MEMLAB_WORK_CLOCK": "off"}, {"MEMLAB_BACKEND": "classic"}):
            with self.subTest(command=command, **more):
                outcome = self.under_memlab(self.program(*command), settings | more)
                self.assertEqual((outcome.code, outcome.stdout), (0, native.stdout), outcome.describe())

    def test_in_the_order_of_a_stream(self) -> None:
        for mode in ("answer", "beside", "churn"):
            self.same("stream_frees", mode)
            self.same("stream_frees", mode, settings=OLD_DRIVER)

    def test_in_a_callback_inside_a_call_of_memlab(self) -> None:
        for mode in ((), ("many",), ("ends",)):
            self.same("nested_frees", *mode)

    def test_beside_a_capture(self) -> None:
        for mode in BESIDE_CAPTURES:
            self.same("beside_captures", mode)
            self.same("beside_captures", mode, settings=OLD_DRIVER)

    def test_faults_whoever_tells_of_them(self) -> None:
        for mode in FAULTS_TOLD_BY:
            self.same("told_of_faults", mode)

    def test_a_driver_without_context_events(self) -> None:
        for mode in ("allocate", "capture"):
            self.same("free_waits", mode, settings=OLD_DRIVER)
            self.same("free_waits", mode)

    def test_events_that_cannot_be_made(self) -> None:
        self.same("free_waits", "events")

    def test_a_thread_that_is_to_sleep_while_it_waits(self) -> None:
        for mode in ("start", "later", "primary"):
            self.same("sleeps", mode)

    def test_what_kernels_printed(self) -> None:
        """Frees that wait as plain CUDA's do show it as those do, whoever found the kernel complete."""
        waiting = ({}, {"MEMLAB_FREE_SYNC": "always"}, {"MEMLAB_WORK_CLOCK": "off"}, {"MEMLAB_ONE_STREAM": "off"})
        for way in PRINTED:
            command = self.program("device_printf", way)
            native = self.natively(command)
            self.assertEqual((native.code, native.stdout), (0, b"seen\ndone\n"), native.describe())
            for backend in ("vmm", "classic"):
                for settings in waiting:
                    with self.subTest(way=way, backend=backend, **settings):
                        outcome = self.under_memlab(command, settings | {"MEMLAB_BACKEND": backend})
                        self.assertEqual((outcome.code, outcome.stdout), (0, native.stdout), outcome.describe())

    def test_printing_costs_one_call_after_a_launch(self) -> None:
        for settings in ({}, {"MEMLAB_FREE_SYNC": "always"}):
            with self.subTest(**settings):
                outcome = self.under_memlab(self.program("device_printf", "calls"), settings)
                self.assertEqual(outcome.stdout, b"1000 pairs: 0\n10 launches, 100 pairs after each: 10\ndone\n",
                                 outcome.describe())

    def test_a_free_before_the_launch_has_returned(self) -> None:
        for settings in ({}, {"MEMLAB_WORK_CLOCK": "off"}):
            outcome = self.under_memlab(self.program("free_waits", "launch"), settings)
            self.assertEqual((outcome.code, outcome.stdout), (0, b"the kernel was done: 1\ndone\n"), outcome.describe())

    def test_a_jump_out_of_a_free_that_waits(self) -> None:
        """The memory is available again, all is recorded as before, and the report says what happened."""
        for settings in ({}, OLD_DRIVER):
            with self.subTest(**settings):
                self.output = self.work / f"out{len(settings)}"
                outcome = self.under_memlab(self.program("free_waits", "jump"), settings)
                self.assertEqual((outcome.code, outcome.stdout), (0, b"done\n"), outcome.describe())
                found, problems = judge_recordings(self.layout, self.output, None)
                self.assert_sound(problems)
                facts = found[0].audit
                counts = {name: facts["kinds"]["device"][name]["count"] for name in ("allocs", "frees", "live")}
                self.assertEqual(counts, {"allocs": 3, "frees": 3, "live": 0})
                (missed,) = facts["missed"]
                self.assertIn("left a call of memlab by a jump", str(missed))

    def test_captures_begin_beside_threads_that_free(self) -> None:
        """No capture waits forever, nor for much longer than without memlab, counted in the others'
        frees meanwhile: the simulated driver's own lock is not fair, so that is a lot."""
        command = self.program("capture_storm", "8", "100")
        native = self.natively(command)
        self.assertEqual((native.code, native.stdout), (0, b"done\n"), native.describe())
        for settings in ({}, {"MEMLAB_WORK_CLOCK": "off"}, {"MEMLAB_ONE_STREAM": "off"}):
            with self.subTest(**settings):
                outcome = self.under_memlab(command, settings, timeout=120)
                self.assertEqual((outcome.code, outcome.stdout), (0, b"done\n"), outcome.describe())
                meanwhile, bound = (int(one.stderr.split()[0]) for one in (outcome, native))
                print(f"{meanwhile} frees while captures began, {bound} without memlab")
                self.assertLess(meanwhile, 2 * bound + 150_000)

    def test_an_endless_kernel_while_the_trim_thread_gives_memory_back(self) -> None:
        """Also where it waits for the kernel forever, as cuMemFree does: nobody waits for the thread."""
        native = self.natively(self.program("endless", "0"))
        self.assertEqual(native.code, 0, native.describe())
        # The first stream is the program's, the others are for frees in order.
        no_order = ",".join(f"cuStreamCreate:{call}:801" for call in range(2, 40))
        for settings in ({}, {"MEMLAB_BACKEND": "classic"}, {"SIMCUDA_FAIL": no_order}):
            with self.subTest(**settings):
                outcome = self.under_memlab(self.program("endless", "10000"),
                                            settings | {"MEMLAB_TRIM_AFTER": "50ms"})
                self.assertEqual(
                    (outcome.code, outcome.stdout, outcome.stderr),
                    (0, native.stdout, b"launched before memory was given back\n"), outcome.describe())

    def test_contexts_that_end(self) -> None:
        for mode in ("peers", "pending", "capture"):
            self.same("peers_end", mode)
