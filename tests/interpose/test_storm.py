"""Everything at once: no event is lost or made up, nothing hangs, and the program never notices.

MEMLAB_TEST_SECONDS is how long the storm lasts (3). The threads of a longer one rest in between, so
that its log stays below MEMLAB_LOG_LIMIT.
"""

from __future__ import annotations

import os
import re
import unittest

from harness import judge_recordings, without_warnings
from support import Build, EndToEnd

SECONDS = int(os.environ.get("MEMLAB_TEST_SECONDS", "3"))
THREADS = 64


class Storm(EndToEnd):
    """tests/programs/storm.cpp and reenter.cpp."""

    def storm(self, settings: dict[str, str] | None = None) -> None:
        pause = 2000 if SECONDS <= 10 else 40000
        outcome = self.under_memlab(
            self.program("storm", str(SECONDS), str(THREADS), str(pause)), settings,
            timeout=SECONDS + 120)
        self.assertEqual(outcome.code, 0, outcome.describe())
        self.assertEqual(without_warnings(outcome.stderr), b"")
        for line in outcome.stderr.splitlines():  # the children that try CUDA are told why it fails
            self.assertIn(b"was forked from", line)
        counts = re.fullmatch(rb"(\d+) allocations, (\d+) frees\n", outcome.stdout)
        assert counts is not None, outcome.describe()
        allocations, frees = (int(count) for count in counts.groups())
        self.assertGreater(allocations, 1000)
        self.assertEqual(allocations, frees)
        # The children's attempts are what is missed.
        found, problems = judge_recordings(self.layout, self.output, None, replay=False)
        self.assert_sound(problems)
        self.assertEqual(len(found), 1)
        device = found[0].audit["kinds"]["device"]
        self.assertEqual((device["allocs"]["count"], device["frees"]["count"]), (allocations, frees))
        self.assertEqual(found[0].audit["ended"], "exit")
        self.assertEqual(found[0].report["log"]["dropped"], 0)

    def test_threads_loading_forks_and_signals(self) -> None:
        self.storm()

    def test_the_same_with_a_thread_of_memlabs_own(self) -> None:
        self.storm({"MEMLAB_TRIM_AFTER": "20ms"})

    @unittest.skipIf(Build.sanitizer == "thread",
                     "ThreadSanitizer keeps a signal until its thread is in the driver, with the driver's lock")
    def test_a_signal_handler_that_allocates_in_the_middle_of_memlab(self) -> None:
        outcome = self.under_memlab(self.program("reenter", "300"))
        self.assertEqual((outcome.code, outcome.stdout), (0, b"done\n"), outcome.describe())
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        audit = found[0].audit
        self.assertEqual((audit["kinds"]["device"]["live"]["count"], audit["missed"]), (0, []))
        # Each block that a handler freed was had again.
        (device,) = found[0].report["devices"]
        self.assertLess(device["curves"]["reserved"]["peak_bytes"], 64 << 20)
