"""A process that is killed at a random moment leaves a log that is readable and free of
contradictions, up to that moment.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

from harness import judge_recordings
from support import EndToEnd

ROUNDS = 20


class Kill(EndToEnd):
    """Three threads allocate while the process is killed."""

    def test_sigkill_at_random_moments(self) -> None:
        random_source = random.Random(7)
        events = []
        for round_number in range(ROUNDS):
            self.output = self.work / f"round{round_number}"
            environment = self.layout.environment(memlab=True, output=self.output)
            with subprocess.Popen(self.program("churn"), env=environment, cwd=self.cwd,
                                  stdout=subprocess.PIPE, start_new_session=True) as process:
                assert process.stdout is not None
                self.assertEqual(process.stdout.readline(), b"ready\n")
                time.sleep(random_source.random() * 0.1)
                os.killpg(process.pid, signal.SIGKILL)
            found, problems = judge_recordings(self.layout, self.output, None)
            self.assert_sound(problems)
            self.assertEqual(len(found), 1)
            self.assertEqual(found[0].audit["ended"], "cut off")
            events.append(found[0].audit["events"])
        self.assertGreater(max(events), 100, events)
