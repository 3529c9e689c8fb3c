#!/usr/bin/env python3
"""memlab-top as a user meets it: once, as JSON, on terminals of any size and kind. Run by ctest, as test_summary.py
is."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from live_peers import GIB, Peers
from test_schemas import judge
from test_summary import BIN, ToolTest

TOP = os.path.join(BIN, "memlab-top")
SIMNVML = os.path.join(os.path.dirname(BIN), "lib", "simnvml")


class Screen:
    """What a terminal would show: the few sequences that ncurses needs of TERM=vt100."""

    SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b[()][A-Z0-9]|\x1b[=>78DEHM]|[\x0e\x0f\x00]")

    def __init__(self, rows, columns):
        self.resize(rows, columns)
        self.state = b""

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0

    def clear(self, row, begin, end):
        self.cells[row][begin:end] = [" "] * (end - begin)

    def escape(self, final, numbers):
        if final in "Hf":
            self.row = min(max((numbers[0] if numbers else 1) or 1, 1), self.rows) - 1
            self.column = min(max(numbers[1] if len(numbers) > 1 else 1, 1), self.columns) - 1
        elif final == "J":
            kind = numbers[0] if numbers else 0
            first = 0 if kind == 2 else self.row + 1
            if kind == 0:
                self.clear(self.row, self.column, self.columns)
            for row in range(first, self.rows):
                self.clear(row, 0, self.columns)
        elif final == "K":
            kind = numbers[0] if numbers else 0
            self.clear(self.row, self.column if kind == 0 else 0, self.columns if kind != 1 else self.column + 1)
        elif final in "ABCD":
            by = (numbers[0] if numbers else 1) or 1
            self.row = min(max(self.row + {"A": -by, "B": by}.get(final, 0), 0), self.rows - 1)
            self.column = min(max(self.column + {"C": by, "D": -by}.get(final, 0), 0), self.columns - 1)

    def feed(self, data):
        text = (self.state + data)
        self.state = b""
        shown = text.decode("utf-8", "ignore")
        at = 0
        while at < len(shown):
            match = self.SEQUENCE.match(shown, at)
            if match:
                if match.group(2) and "?" not in match.group(1):
                    self.escape(match.group(2), [int(number or 0) for number in match.group(1).split(";")]
                                if match.group(1) else [])
                at = match.end()
                continue
            char = shown[at]
            if char == "\x1b":
                self.state = shown[at:].encode()
                return
            at += 1
            if char == "\r":
                self.column = 0
            elif char == "\n":
                self.row = min(self.row + 1, self.rows - 1)
            elif char == "\b":
                self.column = max(self.column - 1, 0)
            elif char >= " ":
                if self.column < self.columns:
                    self.cells[self.row][self.column] = char
                self.column = min(self.column + 1, self.columns)

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cells)


class OnTerminal:
    """memlab-top on a terminal of its own."""

    def __init__(self, environment, *arguments, rows=24, columns=80, term="vt100"):
        self.leader, follower = pty.openpty()
        self.screen = Screen(rows, columns)
        self.raw = b""
        self.set_size(rows, columns, tell=False)
        self.before = termios.tcgetattr(follower)
        self.follower = follower
        self.process = subprocess.Popen([TOP, *arguments], stdin=follower, stdout=follower, stderr=follower,
                                        env={**environment, "TERM": term}, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def set_size(self, rows, columns, tell=True):
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if tell:
            self.screen.resize(rows, columns)

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.leader], [], [], min(left, 0.1))[0]:
                continue
            try:
                data = os.read(self.leader, 65536)
            except OSError:
                return
            self.raw += data
            self.screen.feed(data)

    def wait_for(self, text, patience=15):
        end = time.monotonic() + patience
        while text not in self.screen.text() and time.monotonic() < end:
            self.read(0.1)
        return self.screen.text()

    def keys(self, keys):
        os.write(self.leader, keys.encode())

    def end(self, keys="q"):
        if keys:
            self.keys(keys)
        end = time.monotonic() + 10
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.05)
        code = self.process.poll()
        if code is None:
            self.process.kill()
            self.process.wait()
        self.read(0.1)
        after = termios.tcgetattr(self.follower)
        os.close(self.follower)
        os.close(self.leader)
        return code, after == self.before


class TopTest(ToolTest):
    def setUp(self):
        super().setUp()
        self.peers = Peers(self.folder.name)
        self.addCleanup(self.peers.end)
        self.environment.update(self.peers.environment)
        self.environment.pop("LS_COLORS", None)

    def use_nvml(self, processes, gpus=1):
        self.environment.update(LD_LIBRARY_PATH=SIMNVML, SIMNVML_PROCESSES=processes, SIMNVML_GPUS=str(gpus))

    def top(self, *arguments, **environment):
        result = self.call(TOP, *arguments, **environment)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def on(self, *arguments, rows=24, columns=80, term="vt100", **environment):
        terminal = OnTerminal({**self.environment, **environment}, "--interval", "0.3", *arguments, rows=rows,
                              columns=columns, term=term)
        self.addCleanup(terminal.process.wait)
        self.addCleanup(terminal.process.kill)
        return terminal


class Once(TopTest):
    def test_every_holder_is_shown(self):
        (pid,) = self.peers.start(rank="3")
        other = subprocess.Popen(["sleep", "600"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        self.use_nvml("%d:22000@0,%d:700@1" % (pid, other.pid), gpus=2)
        text = self.top("--once", COLUMNS="100")
        self.assertRegex(text, r"GPU 0 .* 22\.0G/1\.0T")
        self.assertRegex(text, r"(?m)^ *%d root +0 +3 +21\.5G +12\.0G +20\.0G .*python3 train\.py --epochs 3$" % pid)
        self.assertRegex(text, r"(?m)^ *%d root +1 +700M .*sleep 600$" % other.pid)
        self.assertIn("held by process %d" % pid, text)
        self.assertIn("6.0G  /src/train.py:42  forward", text)
        self.assertIn("encoder.layers.0.linear (Linear)", text)

    def test_json_has_the_same(self):
        (pid,) = self.peers.start()
        self.use_nvml("%d:22000" % pid)
        document = json.loads(self.top("--json"))
        (process,) = [each for each in document["processes"] if each["pid"] == pid]
        self.assertTrue(process["under_memlab"])
        self.assertEqual(process["gpus"][0]["used_bytes"], 22000 << 20)
        self.assertEqual(process["gpus"][0]["memlab"]["allocated_bytes"], 12 * GIB)
        self.assertEqual(process["sites"][0]["place"]["line"], 42)
        self.assertEqual(process["nn_modules"][0]["name"], "encoder.layers.0.linear")
        self.assertEqual(document["gpus"][0]["unaccounted_bytes"], 512 << 20)

    def test_documents_are_valid(self):
        """Of processes with and without memlab, one that does not answer, and without NVML."""
        pid, stopped = self.peers.start(2, tensors=8 * GIB, rank="1", steps=20)
        os.kill(stopped, signal.SIGSTOP)
        other = subprocess.Popen(["sleep", "600"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        for nvml in ("", "%d:22000,%d:700" % (pid, other.pid)):
            if nvml:
                self.use_nvml(nvml)
            judge(self, json.loads(self.top("--json")), "top")
            result = self.call(os.path.join(BIN, "memlab-ctl"), "holders", "--json")
            judge(self, json.loads(result.stdout), "holders")

    def test_without_nvml_it_says_so(self):
        (pid,) = self.peers.start()
        text = self.top("--once", COLUMNS="200")
        self.assertIn("NVML says nothing", text)
        self.assertRegex(text, r"(?m)^ *%d root .* 12\.0G +20\.0G" % pid)

    def test_arguments_can_be_left_out(self):
        (pid,) = self.peers.start(arguments=["python3", "train.py", "--key", "secret"])
        self.assertIn("secret", self.top("--once", "--filter", str(pid), COLUMNS="120"))
        self.assertNotIn("secret", self.top("--once", COLUMNS="120", MEMLAB_ARGUMENTS="off"))
        self.assertNotIn("secret", self.top("--json", MEMLAB_ARGUMENTS="off"))

    def test_filter_and_sort(self):
        pids = [self.peers.start(allocated=size * GIB, reserved=size * GIB, arguments=["aaa-%d" % os.getpid()])[0]
                for size in (1, 3, 2)]
        text = self.top("--once", "--filter", "AAA-%d" % os.getpid(), "--sort", "reserved")
        shown = [int(pid) for pid in re.findall(r"(?m)^ *(\d+) root", text)]
        self.assertEqual(shown, [pids[1], pids[2], pids[0]])
        for key in ("tensors", "per-minute", "per-step", "pid", "command"):
            self.assertIn("by " + {"pid": "process id"}.get(key, key.replace("-", " ")), self.top("--once", "--sort", key))

    def test_a_stopped_process_keeps_nobody_waiting(self):
        stopped, running = self.peers.start(2)
        os.kill(stopped, signal.SIGSTOP)
        begin = time.monotonic()
        document = json.loads(self.top("--json"))
        self.assertLess(time.monotonic() - begin, 20)
        by_pid = {each["pid"]: each for each in document["processes"]}
        self.assertIn("does not answer", by_pid[stopped]["problem"])
        self.assertIsNone(by_pid[running]["problem"])

    def test_usage_errors_are_one_line(self):
        for arguments, words in ((["--interval", "0"], "interval"), (["--sort", "x"], "--sort takes used, .*per-minute, "),
                                 (["--once", "x"], "x"), (["--listen", "nowhere:1"], "no numeric address")):
            result = self.call(TOP, *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), arguments)
            self.assertRegex(result.stderr, r"\Amemlab-top: .*%s.*\n\Z" % words)


class Terminal(TopTest):
    def test_a_session_at_80_columns(self):
        (pid,) = self.peers.start()
        self.use_nvml("%d:22000" % pid)
        terminal = self.on("--filter", str(pid), "--color", "never")
        text = terminal.wait_for("held by process")
        self.assertRegex(text, r"(?m)^ *%d root +0 +21\.5G +12\.0G +20\.0G" % pid)
        self.assertIn("6.0G  /src/train.py:42  forward", text)
        self.assertIn("q quit", text)
        terminal.keys("\r")
        self.assertIn("allocated (dark)", terminal.wait_for("allocated (dark)"))
        terminal.keys("2")
        self.assertIn("in 2 other sites", terminal.wait_for("in 2 other sites"))
        terminal.keys("3")
        self.assertIn("train.py:10  main", terminal.wait_for("train.py:10  main"))
        terminal.keys("4")
        self.assertIn("encoder.layers.7.linear", terminal.wait_for("layers.7"))
        terminal.keys("5")
        self.assertIn("cached", terminal.wait_for("cached"))
        terminal.keys("\x1b")
        self.assertIn("held by process", terminal.wait_for("held by process"))
        terminal.keys("?")
        self.assertIn("memlab-top: keys", terminal.wait_for("memlab-top: keys"))
        terminal.keys(" ")
        self.assertEqual(terminal.end(), (0, True))
        self.assertIsNone(re.search(rb"\x1b\[[0-9;]*3[0-9]m", terminal.raw))

    def test_colours_are_those_that_were_asked_for(self):
        self.peers.start()
        color = re.compile(rb"\x1b\[[0-9;]*3[0-9]m")
        for arguments, environment, expected in (((), {}, True), (("--color", "never"), {}, False),
                                                 ((), {"NO_COLOR": "1"}, False)):
            with self.subTest(arguments, **environment):
                terminal = self.on(*arguments, term="xterm-256color", **environment)
                end = time.monotonic() + 15
                while b"COMMAND" not in terminal.raw and time.monotonic() < end:
                    terminal.read(0.1)
                terminal.read(0.5)
                self.assertEqual(terminal.end(), (0, True))
                self.assertEqual(color.search(terminal.raw) is not None, expected)

    def test_a_mark_a_snapshot_and_the_cache(self):
        (pid,) = self.peers.start()
        terminal = self.on("--filter", str(pid))
        terminal.wait_for("held by process")
        terminal.keys("m")
        terminal.wait_for("name of the mark")
        terminal.keys("epoch 1\r")
        self.assertIn("mark\tepoch 1", self.peers.wait_for_asked("mark\tepoch 1"))
        terminal.wait_for("mark is done")
        terminal.keys("n")
        self.assertIn("snapshot", self.peers.wait_for_asked("snapshot"))
        terminal.keys("e")
        self.assertIn("empty-cache", self.peers.wait_for_asked("empty-cache"))
        terminal.keys("y")
        self.assertIn("yield", self.peers.wait_for_asked("yield"))
        terminal.wait_for("yield is done")
        terminal.keys("b")
        self.assertIn("restore", self.peers.wait_for_asked("restore"))
        terminal.wait_for("restore is done")
        terminal.keys("?")
        self.assertIn("y, b ", terminal.wait_for("its memory leaves the GPU"))
        terminal.keys("q")
        terminal.keys("d")
        self.assertIn("since the mark epoch 1", terminal.wait_for("since the mark epoch 1"))
        self.assertEqual(terminal.end(), (0, True))

    def test_samples_and_keys_while_a_process_steps_aside(self):
        (pid,) = self.peers.start(growth=GIB // 4, yields_slowly=True)
        terminal = self.on("--filter", str(pid))
        terminal.wait_for("held by process")
        terminal.keys("y")
        self.peers.wait_for_asked("yield")
        before = terminal.wait_for("asking process")
        for _ in range(3):  # each sample is of a quarter GiB more
            terminal.read(2)
            after = terminal.screen.text()
            self.assertNotEqual(after, before)
            self.assertIn("asking process", after)
            before = after
        terminal.keys("yb")
        self.assertEqual(self.peers.wait_for_asked("restore"), ["yield", "restore"])
        terminal.wait_for("is done")
        terminal.keys("y")
        terminal.read(0.5)
        self.assertEqual(terminal.end(), (0, True))  # with the answer still to come

    def test_it_follows_the_size_of_the_window(self):
        (pid,) = self.peers.start()
        terminal = self.on("--filter", str(pid))
        terminal.wait_for("held by process")
        for rows, columns in ((40, 140), (10, 40), (5, 20), (24, 80)):
            terminal.set_size(rows, columns)
            text = terminal.wait_for(str(pid))
            self.assertIn(str(pid), text, (rows, columns))
        self.assertEqual(terminal.end(), (0, True))

    def test_pausing_keeps_what_is_shown(self):
        (pid,) = self.peers.start(growth=1 << 30)
        terminal = self.on("--filter", str(pid))
        terminal.wait_for("held by process")
        terminal.keys("p")
        first = terminal.wait_for("PAUSED")
        terminal.read(1)
        row = re.compile(r"(?m)^ *%d .*$" % pid)
        self.assertEqual(row.search(terminal.screen.text()).group(), row.search(first).group())
        terminal.keys("p")
        terminal.read(1)
        self.assertNotEqual(row.search(terminal.screen.text()).group(), row.search(first).group())
        self.assertEqual(terminal.end(), (0, True))

    def test_signals_and_the_end_of_the_terminal_end_it(self):
        for ending in (signal.SIGINT, signal.SIGTERM):
            terminal = self.on()
            terminal.wait_for("memlab-top")
            os.kill(terminal.process.pid, ending)
            code, restored = terminal.end("")
            self.assertEqual((code, restored), (0, True), ending)
        terminal = self.on()
        terminal.wait_for("memlab-top")
        os.close(terminal.follower)
        os.close(terminal.leader)
        terminal.process.wait(10)

    def test_where_no_terminal_is_known_it_prints_once(self):
        (pid,) = self.peers.start()
        for term in ("dumb", "no-such-terminal", ""):
            with self.subTest(term):
                terminal = self.on("--filter", str(pid), term=term)
                code, restored = terminal.end("")
                self.assertEqual((code, restored), (0, True), terminal.raw)
                self.assertIn(b"printed once, as text", terminal.raw)
                self.assertIn(b"held by process %d" % pid, terminal.raw)
                self.assertNotIn(b"\x1b[", terminal.raw)

    def test_a_process_that_ends_leaves(self):
        (pid,) = self.peers.start()
        terminal = self.on("--filter", str(pid))
        terminal.wait_for("held by process")
        terminal.keys("\r")
        terminal.wait_for("allocated (dark)")
        self.peers.processes[0].kill()
        self.peers.processes[0].wait()
        self.assertIn("uses no GPU any more", terminal.wait_for("uses no GPU any more"))
        terminal.keys("\x1b")
        self.assertIn("no process passes the filter", terminal.wait_for("no process passes"))
        self.assertEqual(terminal.end(), (0, True))


class Completion(TopTest):
    def test_scripts_offer_what_help_lists(self):
        options = set(re.findall(r"(?m)^  (?:-\w, )?(--[a-z-]+)", self.top("--help")))
        self.assertGreater(len(options), 8)
        script = self.top("--completion", "bash")
        result = self.call("bash", "-c", script + """
COMP_WORDS=(memlab-top --); COMP_CWORD=1; _memlab_top; printf '%s\\n' "${COMPREPLY[@]}"
""")
        self.assertEqual(options - set(result.stdout.split()), set())
        self.assertIn("complete -c memlab-top", self.top("--completion", "fish"))
        self.assertTrue(self.top("--completion", "zsh").startswith("#compdef memlab-top\n"))
        page = self.top("--completion", "man")
        self.assertIn(".TH MEMLAB\\-TOP 1", page)


if __name__ == "__main__":
    unittest.main()
