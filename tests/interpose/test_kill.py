"""A process that is killed at a random moment leaves a log that is readable and free of
contradictions, and that has every call which had returned.

MEMLAB_TEST_RUNS is how many processes are killed (30).
"""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import time

from harness import judge_recordings
from support import EndToEnd

ROUNDS = int(os.environ.get("MEMLAB_TEST_RUNS", "30"))
THREADS = 3


class Kill(EndToEnd):
    """Three threads allocate and free at full speed while the process is killed."""

    def test_sigkill_at_random_moments(self) -> None:
        random_source = random.Random(7)
        events = []
        for round_number in range(ROUNDS):
            with self.subTest(round=round_number):
                events.append(self.kill_one(round_number, random_source.random() ** 2 * 0.2))
        self.assertGreater(max(events), 100, events)

    def kill_one(self, round_number: int, delay: float) -> int:
        self.output = self.work / f"round{round_number}"
        counts = self.work / f"counts{round_number}"
        environment = self.layout.environment(memlab=True, output=self.output)
        with subprocess.Popen(self.program("confirm", str(counts)), env=environment, cwd=self.cwd,
                              stdout=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdout is not None
            self.assertEqual(process.stdout.readline(), b"ready\n")
            time.sleep(delay)
            os.killpg(process.pid, signal.SIGKILL)
        # A log is replayed now and then only: that takes much longer than the recording did.
        found, problems = judge_recordings(self.layout, self.output, None,
                                           replay=round_number % 10 == 0)
        self.assert_sound(problems)
        self.assertEqual(len(found), 1)
        facts = found[0].audit
        self.assertEqual(facts["ended"], "cut off")
        confirmed = struct.unpack("QQ", counts.read_bytes())
        device = facts["kinds"].get("device", {"allocs": {"count": 0}, "frees": {"count": 0}})
        for counted, recorded in zip(confirmed, (device["allocs"], device["frees"])):
            self.assertGreaterEqual(recorded["count"], counted)
            self.assertLessEqual(recorded["count"], counted + THREADS)
        for path in self.output.iterdir():
            path.unlink()
        return facts["events"]
