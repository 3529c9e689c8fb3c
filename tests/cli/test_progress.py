#!/usr/bin/env python3
"""The line that tells how much of a log has been read: on a terminal, after a second, and gone when
reading is over, whatever ends it. And what Ctrl-C leaves of the files that are being written: nothing.

A second passes for memlab-report while it is stopped in the middle of the log, so nothing here depends on
how fast the machine is.

Run by ctest with the folder of the programs in MEMLAB_BIN.
"""

import os
import pathlib
import pty
import re
import signal
import subprocess
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

BIN = pathlib.Path(os.environ["MEMLAB_BIN"])
REPORT = BIN / "memlab-report"
SYNTH = BIN / "memlab-synth"
# A sanitized reader takes as long for these as another one for those.
EVENTS = 600_000 if os.environ.get("MEMLAB_SANITIZER") else 3_000_000
WIPED = "\r\x1b[K"


def on_screen(written):
    """What a terminal shows in the end of what was written to it: lines, and what empties them."""
    lines = []
    for line in written.replace("\r\n", "\n").split("\n"):
        shown = ""
        for part in re.split(r"(\r\x1b\[K)", line):
            shown = "" if part == WIPED else shown + part
        lines.append(shown)
    return "\n".join(lines)


class Running:
    """memlab-report on a terminal of its own, or with standard output or error elsewhere."""

    def __init__(self, test, *arguments, stdout=None, stderr=None, cwd=None, **environment):
        self.test = test
        keep = {key: value for key, value in os.environ.items() if not key.startswith("MEMLAB_")}
        keep.update({"TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})
        self.leader, follower = pty.openpty()
        subprocess.run(["stty", "cols", "80", "rows", "40"], stdin=follower, check=True)
        self.process = subprocess.Popen([REPORT, *arguments], stdin=follower, cwd=cwd,
                                        stdout=follower if stdout is None else stdout,
                                        stderr=follower if stderr is None else stderr, env=keep)
        os.close(follower)
        test.addCleanup(self.end)
        self.written = b""

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        if self.leader >= 0:
            os.close(self.leader)
            self.leader = -1

    def read_some(self):
        """False when nobody can write to the terminal any more."""
        try:
            got = os.read(self.leader, 1 << 16)
        except OSError:
            return False
        self.written += got
        return bool(got)

    def position(self, log):
        """How far it has read the log, which may be open more than once; None while it does not."""
        folder = pathlib.Path(f"/proc/{self.process.pid}")
        found = []
        for file in os.listdir(folder / "fd"):
            try:
                if os.readlink(folder / "fd" / file) == str(log):
                    found.append(int((folder / "fdinfo" / file).read_text(encoding="ascii").split()[1]))
            except FileNotFoundError:
                pass  # closed meanwhile
        return max(found, default=None)

    def stop_in_the_middle(self, log):
        """For more than a second."""
        size = log.stat().st_size
        deadline = time.monotonic() + 60
        # The first look at a file is whether it is a log: a look at a buffer of 64 KiB at most, before the
        # reading that the line is of.
        middle = max(size // 100, 128 << 10)
        self.test.assertLess(middle, size // 2)
        while (self.position(log) or 0) < middle and time.monotonic() < deadline:
            self.test.assertIsNone(self.process.poll(), "it ended before it could be stopped")
            time.sleep(0.001)
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        position = self.position(log)
        self.test.assertTrue(position is not None and position < size, "it had read everything already")
        time.sleep(1.1)
        self.process.send_signal(signal.SIGCONT)

    def rest(self, code=0):
        """All that it wrote to the terminal, when it has ended."""
        while self.read_some():
            pass
        self.test.assertEqual(self.process.wait(60), code)
        return self.written.decode()


class ProgressTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.logs = tempfile.TemporaryDirectory(prefix="memlab-progress.")
        cls.addClassCleanup(cls.logs.cleanup)
        cls.log = pathlib.Path(cls.logs.name).resolve() / "train.memlog"
        subprocess.run([SYNTH, "--events", str(EVENTS), "--sites", "100", "--seed", "1", "-o", cls.log], check=True)
        cls.small = cls.log.with_name("small.memlog")
        subprocess.run([SYNTH, "--events", "1000", "--sites", "10", "--seed", "1", "-o", cls.small], check=True)

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="memlab-progress.")
        self.addCleanup(self.folder.cleanup)

    def test_shown_after_a_second_and_wiped(self):
        def written_by(command):
            running = Running(self, *command, self.log)
            running.stop_in_the_middle(self.log)
            return running.rest()

        commands = (["summary", "--no-symbols"], ["whatif", "--policy", "lower-bound"], ["validate"],
                    ["export", "--to", "csv", "-o", os.path.join(self.folder.name, "out.csv")])
        with ThreadPoolExecutor(len(commands)) as pool:
            screens = [pool.submit(written_by, command) for command in commands]
        for command, screen in zip(commands, screens):
            with self.subTest(command=command[0]):
                written = screen.result()
                lines = re.findall(r"Reading train\.memlog █*░* +(\d+)%", written)
                self.assertTrue(lines, written[:500])
                if command[0] != "export":  # that reads it once more, which a slow machine shows
                    self.assertEqual(lines, sorted(lines, key=int))
                self.assertTrue(written.startswith(WIPED + "Reading"))
                self.assertNotIn("Reading", on_screen(written))
                self.assertNotIn("\x1b", on_screen(re.sub(r"\x1b\[\d*m", "", written)))

    def test_of_two_that_are_read_at_the_same_time_the_larger_one_is_shown(self):
        for two in ((self.log, self.small), (self.small, self.log)):
            running = Running(self, "diff", "--no-symbols", *two)
            running.stop_in_the_middle(self.log)
            written = running.rest()
            self.assertIn("Reading train.memlog", written)
            self.assertNotIn("Reading small.memlog", written)
            self.assertNotIn("Reading", on_screen(written))

    def test_the_result_is_as_without(self):
        running = Running(self, "summary", "--no-symbols", self.log, NO_COLOR="1")
        running.stop_in_the_middle(self.log)
        slow = running.rest()
        self.assertIn("Reading", slow)
        quick = Running(self, "summary", "--no-symbols", self.log, NO_COLOR="1", TERM="dumb").rest()
        self.assertEqual(on_screen(slow), quick.replace("\r\n", "\n"))

    def test_not_for_what_is_quick(self):
        self.assertNotIn("Reading", Running(self, "summary", self.small).rest())

    def test_not_where_nobody_looks_or_a_line_cannot_be_wiped(self):
        with open(os.path.join(self.folder.name, "errors"), "w+b") as errors:
            for how in ({"TERM": "dumb"}, {"stdout": subprocess.PIPE}, {"stderr": errors}):
                with self.subTest(how=how):
                    running = Running(self, "summary", "--json", "--no-symbols", self.log, **how)
                    running.stop_in_the_middle(self.log)
                    if running.process.stdout is not None:
                        self.assertNotIn(b"Reading", running.process.stdout.read())
                    self.assertNotIn("Reading", running.rest())
            errors.seek(0)
            self.assertEqual(errors.read(), b"")

    def test_not_between_the_lines_of_an_export(self):
        running = Running(self, "export", "--to", "csv", self.log)
        while b"Thread,Time," not in running.written and running.read_some():
            pass
        time.sleep(1.1)  # it waits for the terminal
        while len(running.written) < 10_000_000 and running.read_some():
            pass
        lines = running.written.partition(b"Thread,Time,")[2]
        self.assertGreater(len(lines), 9_000_000)
        self.assertEqual(lines.count(b"Reading") + lines.count(b"\x1b"), 0)

    def interrupted(self, *arguments, cwd=None):
        """What is on the terminal when Ctrl-C came while the line was shown."""
        running = Running(self, *arguments, self.log, cwd=cwd)
        running.stop_in_the_middle(self.log)
        while b"Reading" not in running.written and running.read_some():
            pass
        running.process.send_signal(signal.SIGINT)
        return running.rest(code=-signal.SIGINT)

    def test_ctrl_c_leaves_no_line(self):
        written = self.interrupted("summary", "--no-symbols")
        self.assertIn("Reading", written)
        self.assertEqual(on_screen(written), "")

    def test_ctrl_c_leaves_no_half_file(self):
        """Each in a folder of its own, all at once: mostly they are stopped."""
        check = ("check", "--no-symbols", "--peak-allocated", "1TiB")
        there = "there"
        commands = [*(("export", "--no-symbols", "--to", to, "-o", there) for to in ("csv", "perfetto", "folded")),
                    ("recover", "--force", "-o", there), ("symbolize", "--force", "-o", there),
                    ("merge", "--no-symbols", "-o", there, self.small), (*check, "--update", "--baseline", there),
                    (*check, "--markdown", there), (*check, "--junit", there), (*check, "--sarif", there)]
        folders = [pathlib.Path(self.folder.name) / str(number) for number in range(len(commands))]
        for folder in folders:
            folder.mkdir()
            (folder / there).write_text("what was there before", encoding="utf-8")
        with ThreadPoolExecutor(len(commands)) as pool:
            screens = [pool.submit(self.interrupted, *command, cwd=folder)
                       for command, folder in zip(commands, folders)]
        for command, folder, screen in zip(commands, folders, screens):
            with self.subTest(command=command):
                self.assertEqual(on_screen(screen.result()), "")
                self.assertEqual([path.name for path in folder.iterdir()], [there])
                self.assertEqual((folder / there).read_text(encoding="utf-8"), "what was there before")

    def test_an_error_stands_on_a_line_of_its_own(self):
        bad = pathlib.Path(self.folder.name).resolve() / "bad.memlog"
        data = bytearray(self.log.read_bytes())
        data[len(data) // 2] ^= 0xff
        bad.write_bytes(data)
        running = Running(self, "replay", bad)
        running.stop_in_the_middle(bad)
        while running.read_some():
            pass
        running.process.wait(60)
        written = running.written.decode()
        self.assertIn("Reading bad.memlog", written)
        self.assertNotIn("Reading", on_screen(written))
        self.assertRegex(on_screen(written), r"damaged at byte \d+")


if __name__ == "__main__":
    unittest.main()
