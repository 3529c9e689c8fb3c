"""MEMLAB_REPORT_ON: reports on request and before a signal ends the program; what the program does
with its signals itself comes first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import unittest
from pathlib import Path
from typing import Any

from support import Build, EndToEnd

BOTH = "SIGUSR1,SIGTERM"


class ReportSignals(EndToEnd):
    def start(self, *arguments: str, on: str = BOTH) -> subprocess.Popen[bytes]:
        environment = self.layout.environment(memlab=True, output=self.output,
                                              settings={"MEMLAB_REPORT_ON": on})
        process = subprocess.Popen(self.program("signalled", *arguments), env=environment, cwd=self.cwd,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, process)
        self.expect(process, b"ready\n")
        return process

    @staticmethod
    def end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.communicate()

    def expect(self, process: subprocess.Popen[bytes], line: bytes) -> None:
        assert process.stdout is not None
        self.assertEqual(process.stdout.readline(), line)

    def ends_by(self, process: subprocess.Popen[bytes], number: int) -> None:
        _, errors = process.communicate(timeout=20)
        self.assertEqual(process.returncode, -number, errors)
        self.assertEqual(errors, b"")

    def report(self, ending: str = "json") -> Path:
        return next(path for path in self.output.glob(f"*[0-9].{ending}")
                    if ending.startswith("SIG") or ".SIG" not in path.name)

    def reports(self) -> list[str]:
        return sorted(path.name for path in self.output.glob("*.json"))

    def wait_for(self, ending: str) -> dict[str, Any]:
        for _ in range(500):
            found = list(self.output.glob(f"*[0-9].{ending}"))
            if found:
                return dict(json.loads(found[0].read_text()))
            time.sleep(0.01)
        self.fail(f"no report {ending}")

    def test_request_and_death(self) -> None:
        process = self.start("plain")
        process.send_signal(signal.SIGUSR1)
        now = self.wait_for("SIGUSR1.json")
        self.assertEqual(now["process"]["ended"], "running")
        self.assertGreaterEqual(now["devices"][0]["curves"]["requested"]["peak_bytes"], 3 << 20)
        (self.report("SIGUSR1.json")).unlink()
        process.send_signal(signal.SIGUSR1)
        again = self.wait_for("SIGUSR1.json")
        self.assertGreaterEqual(again["log"]["events"], now["log"]["events"])
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.ends_by(process, signal.SIGTERM)
        last = json.loads(self.report().read_text())
        self.assertEqual(last["process"]["ended"], "cut off")
        self.assertGreaterEqual(last["log"]["events"], again["log"]["events"])
        self.assertTrue(self.report("memlog").exists())

    def test_signals_that_were_not_named(self) -> None:
        process = self.start("plain", on="SIGUSR1")
        process.send_signal(signal.SIGTERM)
        self.ends_by(process, signal.SIGTERM)
        self.assertEqual(self.reports(), [])

    def test_the_programs_handler_comes_first(self) -> None:
        for when in ("before", "after"):
            with self.subTest(when=when):
                process = self.start(when, str(int(signal.SIGTERM)))
                process.send_signal(signal.SIGTERM)
                self.expect(process, b"handled %d\n" % signal.SIGTERM)
                self.assertEqual(self.reports(), [])

    def test_ignored_signals_stay_ignored(self) -> None:
        process = self.start("ignore", str(int(signal.SIGTERM)))
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        self.assertIsNone(process.poll())
        self.assertEqual(self.reports(), [])

    @unittest.skipIf(Build.sanitizer == "thread",
                     "ThreadSanitizer keeps a signal of the child's until its next call, which ends it")
    def test_children(self) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            with self.subTest(signal=number):
                environment = self.layout.environment(memlab=True, output=self.output,
                                                      settings={"MEMLAB_REPORT_ON": BOTH})
                with subprocess.Popen(self.program("signalled", "fork", str(int(number))), env=environment,
                                      cwd=self.cwd, stdout=subprocess.PIPE) as process:
                    self.expect(process, b"the child ended by %d\n" % number)
                    process.kill()
                self.assertEqual(self.reports(), [])

    def test_exec_resets_them(self) -> None:
        process = self.start("exec")
        while os.readlink(f"/proc/{process.pid}/exe").endswith("signalled"):
            time.sleep(0.01)
        process.send_signal(signal.SIGUSR1)
        self.ends_by(process, signal.SIGUSR1)

    def test_memlab_is_interrupted(self) -> None:
        """The handler runs in threads that are inside memlab most of the time."""
        for round_number in range(10):
            with self.subTest(round=round_number):
                self.output = self.work / f"busy{round_number}"
                process = self.start("busy")
                process.send_signal(signal.SIGUSR1)
                self.wait_for("SIGUSR1.json")
                process.send_signal(signal.SIGTERM)
                self.ends_by(process, signal.SIGTERM)
                # Where the interrupted thread held the recorder's lock there is the log alone.
                self.assertTrue(self.report("memlog").exists())

    def test_unknown_names(self) -> None:
        outcome = self.under_memlab(self.program("malloc_free"), {"MEMLAB_REPORT_ON": "SIGTERM,SIGKILL"})
        self.assertEqual(outcome.code, 0)
        self.assertEqual(outcome.stderr.count(b"\n"), 1, outcome.stderr)
        self.assertIn(b"MEMLAB_REPORT_ON", outcome.stderr)
