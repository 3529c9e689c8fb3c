"""Programs whose main thread ends by pthread_exit(): memlab's own threads keep none of them alive."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import unittest

from harness import judge_recordings, recordings_in
from catalogue import Kind, Recording
from support import Build, EndToEnd

OWN_THREADS = {"MEMLAB_TRIM_AFTER": "1s"}


@unittest.skipIf(Build.sanitizer == "thread", "an uninstrumented program does not survive libtsan.so here")
class LastThread(EndToEnd):
    """tests/programs/main_thread_ends.cpp."""

    def test_the_process_ends_with_its_last_thread(self) -> None:
        for way in ("before", "after"):
            with self.subTest(way):
                self.output = self.work / way
                native = self.without_memlab(self.program("main_thread_ends", way))
                self.assertEqual((native.code, native.stdout, native.stderr),
                                 (0, b"the main thread has ended\na handler of exit()\n", b""), native.describe())
                under = self.under_memlab(self.program("main_thread_ends", way), OWN_THREADS, timeout=20)
                self.assertEqual((under.code, under.stdout, under.stderr), (0, native.stdout, b""), under.describe())
                _, problems = judge_recordings(self.layout, self.output, (Recording(Kind(2, 2, 2 << 20)),))
                self.assert_sound(problems)

    def test_a_signal_ends_it_before(self) -> None:
        environment = self.layout.environment(memlab=True, output=self.output, settings=OWN_THREADS)
        with subprocess.Popen(self.program("main_thread_ends", "stays"), env=environment, cwd=self.cwd,
                              stdout=subprocess.PIPE, start_new_session=True) as process:
            try:
                assert process.stdout is not None
                self.assertEqual(process.stdout.readline(), b"the main thread has ended\n")
                time.sleep(0.3)  # the thread that stays keeps the process
                self.assertIsNone(process.poll())
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(timeout=10), -signal.SIGTERM)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        found, problems = recordings_in(self.layout, self.output)
        self.assertEqual((len(found), problems), (1, []))
