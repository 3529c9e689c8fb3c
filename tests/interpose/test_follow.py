"""memlab-report --follow: views of programs while they run, in a pipe and on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support import ROOT, EndToEnd

SEPARATOR = re.compile(r"^--- \d{4}-\d\d-\d\d \d\d:\d\d:\d\d ---\n", re.MULTILINE)
VIEWS = ([], ["sites"], ["timeline"], ["nn-modules"])


class Following:
    """memlab-report, whose output is read while it runs."""

    def __init__(self, command: list[str], environment: dict[str, str], cwd: Path) -> None:
        self.process = subprocess.Popen(command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.text = ""

    def read(self, seconds: float) -> None:
        assert self.process.stdout is not None
        if select.select([self.process.stdout], [], [], seconds)[0]:
            self.text += os.read(self.process.stdout.fileno(), 1 << 16).decode()

    def wait_for(self, pattern: str, patience: float = 20) -> str:
        end = time.monotonic() + patience
        while not re.search(pattern, self.text) and time.monotonic() < end:
            self.read(0.2)
        if not re.search(pattern, self.text):
            raise AssertionError(f"no {pattern} in\n{self.text[-3000:]}")
        return self.text

    def wait_for_lines(self, count: int, patience: float = 60) -> None:
        end = time.monotonic() + patience
        while self.text.count("\n") < count and time.monotonic() < end:
            self.read(0.2)
        if self.text.count("\n") < count:
            raise AssertionError(f"no {count} lines in\n{self.text[-3000:]}")

    def ends(self, patience: float = 20) -> tuple[int, str, str]:
        stdout, stderr = self.process.communicate(timeout=patience)
        self.text += stdout.decode()
        return self.process.returncode, self.text, stderr.decode()


class Follow(EndToEnd):

    def setUp(self) -> None:
        super().setUp()
        self.runtime = self.work / "runtime"
        self.runtime.mkdir(mode=0o700)
        self.tools = self.layout.environment(memlab=False, settings={"XDG_RUNTIME_DIR": str(self.runtime)})

    @contextlib.contextmanager
    def started(self, settings: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """A program that holds 3 MiB, and does what it is told."""
        environment = self.layout.environment(memlab=True, output=self.output, settings={
            "XDG_RUNTIME_DIR": str(self.runtime)} | (settings or {}))
        process = subprocess.Popen(self.program("asked"), env=environment, cwd=self.cwd, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            assert process.stdout is not None
            self.assertEqual(process.stdout.readline(), b"ready\n")
            yield process
        finally:
            process.kill()
            process.communicate()

    def tell(self, process: subprocess.Popen[bytes], word: str) -> str:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(word.encode() + b"\n")
        process.stdin.flush()
        return process.stdout.readline().decode().rstrip("\n")

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        self.assertEqual(process.wait(timeout=30), 0)

    def log_of(self, process: subprocess.Popen[bytes]) -> Path:
        return self.output / f"memlab.asked.{process.pid}.memlog"

    def follow(self, *arguments: str) -> Following:
        command = [str(self.layout.tool("memlab-report")), *arguments, "--follow", "--interval", "0.2"]
        following = Following(command, self.tools, self.cwd)
        self.addCleanup(self.stop, following.process)
        return following

    @staticmethod
    def stop(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.communicate()

    def report(self, *arguments: str) -> tuple[int | None, str, str]:
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), *arguments])
        return outcome.code, outcome.stdout.decode(), outcome.stderr.decode()

    def test_the_last_view_is_that_without_following(self) -> None:
        for view in VIEWS:
            with self.subTest(view=view), self.started() as process:
                log = str(self.log_of(process))
                following = self.follow(*view, log)
                following.wait_for("Taken while the program ran, at 20")
                self.assertNotIn("cut off", following.text)
                for _ in range(3):
                    self.tell(process, "allocate")
                    following.wait_for(SEPARATOR.pattern[1:])
                self.finish(process)
                code, text, errors = following.ends()
                views = SEPARATOR.split(text)
                self.assertGreater(len(views), 2)
                self.assertEqual((code, errors), (0, ""))
                self.assertEqual(views[-1], self.report(*view, log)[1])
                self.assertNotIn("Taken while", views[-1])

    def test_json_is_a_document_a_line(self) -> None:
        with self.started() as process:
            log = str(self.log_of(process))
            following = self.follow("sites", "--json", log)
            following.wait_for_lines(1)
            self.tell(process, "allocate")
            following.wait_for_lines(2)
            self.finish(process)
            code, text, errors = following.ends()
            documents = [json.loads(line) for line in text.splitlines()]
            self.assertEqual((code, errors), (0, ""))
            self.assertGreater(len(documents), 2)
            self.assertEqual([lack["name"] for lack in documents[0]["reports"][0]["lacks"]], ["running"])
            self.assertEqual(documents[-1], json.loads(self.report("sites", "--json", log)[1]))

    def test_nothing_is_printed_while_nothing_changes(self) -> None:
        with self.started() as process:
            time.sleep(1)  # until its last record
            following = self.follow("sites", str(self.log_of(process)))
            following.wait_for("Taken while")
            before = following.text
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                following.read(0.2)
            self.assertEqual(following.text, before)

    def test_a_killed_process_is_said_to_be_gone(self) -> None:
        for view in VIEWS:
            with self.subTest(view=view), self.started() as process:
                log = str(self.log_of(process))
                following = self.follow(*view, log)
                following.wait_for("Taken while")
                self.tell(process, "allocate")
                process.kill()
                process.wait()
                code, text, errors = following.ends()
                self.assertEqual(code, 0)
                self.assertIn(f"process {process.pid} is gone without an end of its recording", errors)
                self.assertEqual(len(errors.splitlines()), 1)
                self.assertEqual(SEPARATOR.split(text)[-1], self.report(*view, log)[1])
                self.assertIn("The recording stops without an end", text)

    def test_a_process_id_leads_to_its_log(self) -> None:
        with self.started() as process:
            following = self.follow("sites", str(process.pid))
            following.wait_for("Taken while")
            self.finish(process)
            code, text, errors = following.ends()
            self.assertEqual((code, errors), (0, ""))
            self.assertEqual(SEPARATOR.split(text)[-1], self.report("sites", str(self.log_of(process)))[1])
        code, text, errors = self.follow(str(process.pid)).ends()
        self.assertEqual((code, text), (2, ""))
        self.assertIn(str(process.pid), errors)
        self.assertEqual(len(errors.splitlines()), 1)

    def test_a_process_without_a_log_is_named_with_what_can_be_had(self) -> None:
        with self.started({"MEMLAB_RECORD": "off"}) as process:
            code, text, errors = self.follow(str(process.pid)).ends()
            self.assertEqual((code, text), (2, ""))
            self.assertIn("writes no event log", errors)
            self.assertIn("memlab-top", errors)
            self.assertEqual(len(errors.splitlines()), 1)

    def test_a_log_that_its_process_removes_at_its_end_was_read(self) -> None:
        with self.started({"MEMLAB_KEEP_LOG": "off"}) as process:
            following = self.follow("sites", str(self.log_of(process)))
            following.wait_for("Taken while")
            self.tell(process, "allocate")
            self.finish(process)
            code, text, errors = following.ends()
            self.assertEqual((code, errors), (0, ""))
            report = str(self.log_of(process).with_suffix(".json"))
            self.assertEqual(SEPARATOR.split(text)[-1], self.report("sites", report)[1])

    def test_a_ring_that_overtakes_is_gone_on_from_its_checkpoint(self) -> None:
        """Between two looks the program overwrites more than the whole ring."""
        with self.started({"MEMLAB_LOG_LIMIT": "2097152", "MEMLAB_STACK_DEPTH": "1"}) as process:
            log = str(self.log_of(process))
            followers = [self.follow(*view, log, "--json") for view in VIEWS[:3]]
            for following in followers:
                following.wait_for_lines(1)
                os.kill(following.process.pid, signal.SIGSTOP)
            self.tell(process, "churn")
            end = time.monotonic() + 30
            while time.monotonic() < end:
                time.sleep(0.3)
                if int(self.tell(process, "count")) > 2_000_000:
                    break
            for following in followers:
                os.kill(following.process.pid, signal.SIGCONT)
                self.assertIn('"gap"', following.wait_for('"gap"'))
            self.finish(process)
            for view, following in zip(VIEWS[:3], followers, strict=True):
                code, text, errors = following.ends()
                self.assertEqual((code, errors), (0, ""))
                self.assertEqual(json.loads(text.splitlines()[-1]), json.loads(self.report(*view, log, "--json")[1]))

    def test_a_run_takes_in_processes_that_appear(self) -> None:
        self.output.mkdir()
        for view in ([], ["sites"]):
            with self.subTest(view=view):
                following = self.follow(*view, str(self.output))
                assert following.process.stderr is not None
                self.assertIn(b"no recording yet; waiting", following.process.stderr.readline())
                with self.started() as first:
                    following.wait_for("Taken while")
                    with self.started() as second:
                        following.wait_for(str(second.pid))
                        self.tell(second, "allocate")
                        self.finish(second)
                    following.wait_for(f"{second.pid}.*" + (r"\bended\n" if not view else
                                                           r"[^!]*" + SEPARATOR.pattern[1:]))
                    self.finish(first)
                    code, text, errors = following.ends()
                    self.assertEqual((code, errors), (0, ""))
                    self.assertEqual(SEPARATOR.split(text)[-1], self.report(*view, str(self.output))[1])
                for file in self.output.iterdir():
                    file.unlink()

    def one_line(self, following: Following, what: str) -> None:
        code, _, errors = following.ends()
        self.assertEqual(code, 2, errors)
        self.assertIn(what, errors)
        self.assertEqual(len(errors.splitlines()), 1)

    def test_what_cannot_be_followed_is_said_in_one_line(self) -> None:
        with self.started() as process:
            self.finish(process)
            log = self.log_of(process)
        report = log.with_suffix(".json")
        self.one_line(self.follow(str(report)), f"a report, which does not grow; follow its event log, {log}")
        self.one_line(self.follow(str(self.output / "none.memlog")), "no such file")
        self.one_line(self.follow("/dev/zero"), "only a file can be followed")
        old = self.output / "old.memlog"
        old.write_bytes(b"MEMLABEV\1" + bytes(100))
        self.one_line(self.follow(str(old)), "format version 1")
        text = self.output / "text.memlog"
        text.write_text("no log at all\n")
        self.one_line(self.follow(str(text)), "not an event log")
        self.one_line(self.follow("timeline", str(log), "--at", "peak"), "--at needs the whole recording")
        self.one_line(self.follow("timeline", str(log), "--from", "peak"), "--from with --follow takes a time")
        code, _, errors = self.report("--interval", "2", str(log))
        self.assertEqual(code, 2)
        self.assertIn("--follow", errors)

    def test_a_log_that_is_taken_away_is_said_in_one_line(self) -> None:
        def cut(log: Path) -> None:
            os.truncate(log, 200)

        def replace(log: Path) -> None:
            shutil.copy2(log, log.with_suffix(".copy"))
            os.replace(log.with_suffix(".copy"), log)

        for change, what in ((cut, "was cut short"), (Path.unlink, "was removed or replaced"),
                             (replace, "was removed or replaced")):
            with self.subTest(what=what), self.started() as process:
                following = self.follow("sites", str(self.log_of(process)))
                following.wait_for("Taken while")
                process.send_signal(signal.SIGSTOP)  # a mapped log that is cut would end it
                change(self.log_of(process))
                self.one_line(following, what)

    @unittest.skipUnless(os.geteuid() == 0, "needs the rights to make namespaces")
    def test_at_each_step_the_figures_are_those_of_reading_all(self) -> None:
        """Logs that grow by any bytes, as if a process of another host wrote them."""
        told = {"lacks", "ended", "ended_text", "warnings"}  # that it runs

        def figures(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: figures(each) for name, each in value.items() if name not in told}
            return [figures(each) for each in value] if isinstance(value, list) else value

        log = self.work / "memlab.grown.1.memlog"
        for name in ("pytorch_nn_modules", "sample_leak"):
            recorded = (ROOT / "tests" / "data" / "h200" / f"{name}.memlog").read_bytes()
            ends = [len(recorded) * part // 9 + part for part in (1, 3, 4, 8)]
            for view in VIEWS:
                with self.subTest(name=name, view=view):
                    log.write_bytes(recorded[:ends[0]])
                    command = ["unshare", "-u", "sh", "-c", 'hostname elsewhere && exec "$0" "$@"',
                               str(self.layout.tool("memlab-report")), *view, str(log), "--json", "--no-symbols",
                               "--follow", "--interval", "0.1"]
                    following = Following(command, self.tools, self.cwd)
                    self.addCleanup(self.stop, following.process)
                    for step, end in enumerate(ends):
                        with log.open("ab") as file:
                            file.write(recorded[log.stat().st_size:end])
                        following.wait_for_lines(step + 1)
                        shown = json.loads(following.text.splitlines()[step])
                        whole = json.loads(self.report(*view, str(log), "--json", "--no-symbols")[1])
                        self.assertEqual(figures(shown), figures(whole))

    @unittest.skipUnless(os.geteuid() == 0, "needs the rights to make namespaces")
    def test_a_process_with_other_folders_is_followed_through_its_root(self) -> None:
        inner = self.work / "inner"
        inner.mkdir()
        environment = self.layout.environment(memlab=True, output=inner, settings={
            "XDG_RUNTIME_DIR": str(self.runtime)})
        preload = environment.pop("LD_PRELOAD")
        script = f"mount -t tmpfs none {inner} && LD_PRELOAD={preload} exec {self.program('asked')[0]}"
        process = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", script], env=environment,
                                   cwd=self.cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                self.skipTest("no mount namespaces here")
            self.assertEqual(list(inner.iterdir()), [])
            following = self.follow("sites", str(process.pid))
            following.wait_for("Taken while")
            self.tell(process, "allocate")
            following.wait_for(SEPARATOR.pattern[1:])
            self.finish(process)
            code, text, errors = following.ends()
            self.assertEqual((code, errors), (0, ""))
            self.assertNotIn("Taken while", SEPARATOR.split(text)[-1])
        finally:
            process.kill()
            process.communicate()

    def on_terminal(self, *arguments: str, rows: int = 24) -> tuple[int, subprocess.Popen[bytes]]:
        leader, follower = pty.openpty()
        fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
        command = [str(self.layout.tool("memlab-report")), *arguments, "--follow", "--interval", "0.2"]
        process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower,
                                   env=self.tools | {"TERM": "xterm"}, start_new_session=True,
                                   preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(follower)
        self.addCleanup(os.close, leader)
        self.addCleanup(self.stop, process)
        return leader, process

    @staticmethod
    def seen(leader: int, pattern: bytes, patience: float = 20) -> bytes:
        data = b""
        end = time.monotonic() + patience
        while not re.search(pattern, data, re.DOTALL) and time.monotonic() < end:
            if select.select([leader], [], [], 0.2)[0]:
                try:
                    data += os.read(leader, 1 << 16)
                except OSError:
                    break
        if not re.search(pattern, data, re.DOTALL):
            raise AssertionError(f"no {pattern!r} in {data[-2000:]!r}")
        return data

    def test_on_a_terminal_it_is_drawn_in_place_and_q_ends(self) -> None:
        with self.started() as process:
            leader, report = self.on_terminal("sites", str(self.log_of(process)))
            first = self.seen(leader, rb"Taken while.*q ends")
            self.assertTrue(first.startswith(b"\x1b[?1049h"))
            self.seen(leader, rb"\x1b\[H.*q ends")  # the time goes on, though nothing changed
            self.tell(process, "allocate")
            self.seen(leader, rb"4\.00 MiB")
            os.write(leader, b"q")
            rest = self.seen(leader, rb"\x1b\[\?1049l.*4\.00 MiB")
            self.assertIn(b"\x1b[?25h", rest)
            self.assertEqual(report.wait(timeout=20), 0)

    def test_on_a_terminal_ctrl_c_a_new_size_and_the_end_are_heard(self) -> None:
        with self.started() as process:
            leader, report = self.on_terminal(str(self.log_of(process)), rows=10)
            self.seen(leader, rb"lines 1 to 9 of \d+")
            os.write(leader, b"\x1b[B\x1b[B")
            self.seen(leader, rb"lines 3 to 11 of \d+")
            fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 7, 60, 0, 0))
            self.seen(leader, rb"lines 3 to 8 of \d+")
            os.write(leader, b"\x03")
            self.seen(leader, rb"\x1b\[\?1049l")
            self.assertEqual(report.wait(timeout=20), 0)
            leader, report = self.on_terminal("sites", str(self.log_of(process)))
            self.seen(leader, rb"Taken while")
            self.finish(process)
            text = self.seen(leader, rb"\x1b\[\?1049l.*MiB").split(b"\x1b[?1049l")[1]
            self.assertEqual(report.wait(timeout=20), 0)
            self.assertNotIn(b"Taken while", text)

    def test_views_and_pages_of_a_running_program_say_when_they_were_taken(self) -> None:
        taken = r"Taken while the program ran, at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, [\d.]+ [mu]?s after its start"
        with self.started() as process:
            log = str(self.log_of(process))
            outcome = self.under_memlab_ctl(str(process.pid), "snapshot", "now")
            self.assertIn("now.json", outcome)
            for file in (log, log.replace(".memlog", ".now.json")):
                of_logs = [["histogram"], ["validate"]] if file == log else []
                for view in (*VIEWS, ["tree"], ["leaks"], ["pool"], ["oom"], ["html", "--json"], *of_logs):
                    with self.subTest(file=file, view=view):
                        _, text, _ = self.report(*view, file)
                        self.assertRegex(" ".join(text.split()), taken)
                        self.assertNotRegex(text, "cut off|stops without an end")

            snapshot = log.replace(".memlog", ".now.json")
            for file, sentence, column in ((log, "now", "now"), (snapshot, "at the snapshot", "at snapshot")):
                with self.subTest(file=file):
                    self.assertIn(f'"last_moment":"{sentence}"', self.report("html", "--json", file)[1])
                    self.assertIn(f"Still allocated {sentence}", self.report(file)[1])
                    for view in (["sites"], ["tree", "--sort", "live"]):
                        self.assertIn(f" {column} ", self.report(*view, file)[1])
            code, text, _ = self.report("recover", log, "-o", str(self.work / "recovered.json"))
            self.assertEqual(code, 0)
            self.assertIn("still runs and writes the log", text)

    def under_memlab_ctl(self, *arguments: str) -> str:
        command = [str(self.layout.tool("memlab-ctl")), *arguments]
        done = subprocess.run(command, env=self.tools, cwd=self.cwd, capture_output=True, text=True, timeout=30,
                              check=True)
        return done.stdout
