"""The control channel: what a running program answers, whom it answers, and that nothing that a peer does holds it up.

MEMLAB_TEST_RUNS is how many processes of either side are killed (30).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support import ROOT, Build, EndToEnd

try:
    import jsonschema
except ImportError:
    jsonschema = None

ROUNDS = int(os.environ.get("MEMLAB_TEST_RUNS", "30"))
ROOT_ONLY = unittest.skipUnless(os.geteuid() == 0, "needs the rights to be another user")


class Asked(EndToEnd):
    """A running program, asked through sockets of the test's own and by memlab-ctl."""

    def setUp(self) -> None:
        super().setUp()
        self.runtime = self.work / "runtime"
        self.runtime.mkdir(mode=0o700)

    def settings(self, more: dict[str, str] | None = None) -> dict[str, str]:
        return {"XDG_RUNTIME_DIR": str(self.runtime)} | (more or {})

    def trained_nn_modules(self) -> list[str]:
        """nn.Modules of a stand-in for PyTorch: says what they hold, "ready", and waits for a line."""
        library = self.layout.program("pytorch_cache").parent / "pytorch" / "torch" / "libtorch_cpu.so"
        programs = ROOT / "tests" / "programs" / "python"
        then_waits = ("import runpy, sys\nsys.argv.pop(0)\nrunpy.run_path(sys.argv[0])\nprint('ready', flush=True)\n"
                      "sys.stdin.readline()\n")
        return [sys.executable, "-B", "-c", then_waits, str(programs / "nn_modules.py"), str(library),
                str(programs / "stand_ins" / "torch")]

    @contextlib.contextmanager
    def started(self, settings: dict[str, str] | None = None,
                command: list[str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        environment = self.layout.environment(memlab=True, output=self.output, settings=self.settings(settings))
        process = subprocess.Popen(command or self.program("asked"), env=environment, cwd=self.cwd,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True)
        try:
            if command is None:
                self.assertEqual(self.line(process), "ready")
            yield process
        finally:
            process.kill()
            process.communicate()

    @staticmethod
    def line(process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().decode().rstrip("\n")

    def tell(self, process: subprocess.Popen[bytes], word: str) -> str:
        assert process.stdin is not None
        process.stdin.write(word.encode() + b"\n")
        process.stdin.flush()
        return self.line(process)

    def ends(self, process: subprocess.Popen[bytes]) -> None:
        """It has not been harmed by what went before."""
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        self.assertEqual(process.wait(timeout=30), 0)

    def path(self, process: subprocess.Popen[bytes]) -> Path:
        return self.runtime / "memlab" / f"{process.pid}.sock"

    @staticmethod
    def connect(process: subprocess.Popen[bytes]) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(20)
        client.connect(f"\0memlab-{os.geteuid()}-{process.pid}")
        return client

    @staticmethod
    def reply_on(client: socket.socket) -> tuple[str, Any]:
        """("ok", document) or ("error", text); ("end", None) where the connection ends."""
        head = b""
        while not head.endswith(b"\n"):
            part = client.recv(1)
            if not part:
                return "end", None
            head += part
        if head.startswith(b"error "):
            return "error", head[6:-1].decode()
        left = int(head.removeprefix(b"ok "))
        text = b""
        while len(text) < left:
            text += client.recv(left - len(text))
        return "ok", json.loads(text)

    def ask(self, process: subprocess.Popen[bytes], *words: str) -> tuple[str, Any]:
        with self.connect(process) as client:
            client.sendall("\t".join(words).encode() + b"\n")
            return self.reply_on(client)

    def asked(self, process: subprocess.Popen[bytes], *words: str) -> Any:
        state, document = self.ask(process, *words)
        self.assertEqual(state, "ok", document)
        return document

    def ctl(self, *arguments: str, settings: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"} | self.settings(settings)
        return subprocess.run([str(self.layout.tool("memlab-ctl")), *arguments], env=environment, cwd=self.cwd,
                              capture_output=True, text=True, timeout=60, check=False)


class Live(Asked):
    def test_documents_are_what_their_schemas_say(self) -> None:
        try:
            import jsonschema
        except ImportError:
            self.skipTest("needs jsonschema")
        with self.started() as process:
            for words, name in ((("status",), "status"), (("mark", "x"), "action"), (("sites",), "interval"),
                                (("snapshot",), "action"), (("trim",), "action"), (("nn-modules",), "interval")):
                document = self.asked(process, *words)
                schema = json.loads(self.layout.schema(name).read_text())
                schema["additionalProperties"] = False
                errors = [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(document)]
                self.assertEqual(errors, [], words)
            self.ends(process)

    def test_status(self) -> None:
        with self.started() as process:
            status = self.asked(process, "status")
            self.assertEqual((status["pid"], status["recording"], status["pooling"]), (process.pid, True, True))
            self.assertEqual(status["report"], str(self.output / f"memlab.asked.{process.pid}.json"))
            gpu = status["gpus"][0]
            self.assertEqual((gpu["gpu"], gpu["allocated_bytes"], gpu["live_count"]), (0, 3 << 20, 1))
            self.tell(process, "allocate")
            self.tell(process, "free")
            gpu = self.asked(process, "status")["gpus"][0]
            self.assertEqual((gpu["allocated_bytes"], gpu["max_allocated_bytes"], gpu["allocation_count"]),
                             (3 << 20, 4 << 20, 2))
            self.assertEqual(gpu["tensor_bytes"], None)
            self.ends(process)

    def test_sites_now_and_since_a_mark(self) -> None:
        with self.started() as process:
            self.assertEqual(self.ask(process, "sites", "since-mark")[0], "error")
            sites = self.asked(process, "sites")
            self.assertEqual([site["bytes"] for site in sites["sites"]], [3 << 20])
            self.assertEqual(self.asked(process, "mark", "before it")["text"], "marked before it")
            self.assertEqual(self.asked(process, "sites", "since-mark")["sites"], [])
            self.tell(process, "allocate")
            self.tell(process, "allocate")
            grown = self.asked(process, "sites", "5", "since-mark")
            self.assertEqual([(site["bytes"], site["count"]) for site in grown["sites"]], [(2 << 20, 2)])
            self.assertEqual(grown["end_bytes"], 2 << 20)
            both = self.asked(process, "sites", "1")
            self.assertEqual(([site["bytes"] for site in both["sites"]], both["other_bytes"]), ([3 << 20], 2 << 20))
            self.assertEqual(self.asked(process, "status")["latest_mark"], "before it")
            self.ends(process)
        report = json.loads((self.output / f"memlab.asked.{process.pid}.json").read_text())
        self.assertEqual([mark["name"] for mark in report["marks"]], ["before it"])

    def test_nn_modules(self) -> None:
        with self.started({"PYTHONHASHSEED": "0"}, self.trained_nn_modules()) as process:
            expected: dict[str, list[int]] = {}
            for size, names in json.loads(self.line(process)).items():
                if names:
                    held = expected.setdefault(names[-1], [0, 0])
                    held[0] += 1
                    held[1] += int(size)
            self.assertEqual(self.line(process), "ready")
            told = self.asked(process, "nn-modules", "1000")
            self.assertEqual({each["name"]: [each["count"], each["bytes"]] for each in told["nn_modules"]}, expected)
            self.assertEqual(told["sites"], [])
            first = self.asked(process, "nn-modules", "1")["nn_modules"]
            self.assertEqual(first, told["nn_modules"][:1])
            shown = self.ctl(str(process.pid), "nn-modules")
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))
            self.assertIn(f"  {first[0]['name']}  {first[0]['class']}\n", shown.stdout)
            self.ends(process)

    def test_actions(self) -> None:
        with self.started() as process:
            snapshot = self.asked(process, "snapshot", "now")
            self.assertEqual(snapshot["path"], str(self.output / f"memlab.asked.{process.pid}.now.json"))
            self.assertEqual(json.loads(Path(snapshot["path"]).read_text())["devices"][0]["index"], 0)
            self.assertEqual(self.ask(process, "snapshot", "../x")[0], "error")
            self.tell(process, "allocate")
            self.tell(process, "free")
            self.assertGreater(self.asked(process, "empty-cache")["bytes"], 0)
            self.assertEqual(self.asked(process, "status")["gpus"][0]["cached_bytes"] // (1 << 20), 1)
            self.assertEqual(self.asked(process, "trim", "1GiB")["bytes"], 0)
            self.assertEqual(self.tell(process, "large"), "got 0")
            self.asked(process, "empty-cache")  # as long as it is cached it serves the next one
            self.asked(process, "limit", "8MiB")
            self.assertEqual(self.asked(process, "status")["gpus"][0]["limit_bytes"], 8 << 20)
            self.assertEqual(self.tell(process, "large"), "got 2")
            self.asked(process, "limit", "0", "none")
            self.assertEqual(self.tell(process, "large"), "got 0")
            self.assertEqual(self.asked(process, "status")["gpus"][0]["limit_bytes"], None)
            self.assertEqual(self.ask(process, "limit", "7", "1GiB")[1], "the process has no GPU 7")
            self.assertEqual(self.ask(process, "record", "off")[0], "error")
            self.assertEqual(self.asked(process, "record", "on")["text"], "events are recorded")
            self.ends(process)

    def test_stacks_of_another_depth(self) -> None:
        with self.started() as process:
            self.tell(process, "allocate")
            for depth in (0, 2, 64):
                self.asked(process, "stacks", str(depth))
                self.assertEqual(self.asked(process, "status")["stack_depth"], depth)
                self.asked(process, "mark", "here")
                self.tell(process, "allocate")
                site = self.asked(process, "sites", "since-mark")["sites"][0]
                if depth == 64:
                    self.assertGreater(len(site["frames"]), 2)
                else:
                    self.assertEqual(len(site["frames"]), depth)
            self.assertEqual(self.ask(process, "stacks", "257")[0], "error")
            self.ends(process)

    def test_where_the_sockets_are(self) -> None:
        with self.started() as process:
            self.assertTrue(self.path(process).is_socket())
            self.assertEqual(os.stat(self.path(process)).st_mode & 0o777, 0o600)
            self.assertEqual(os.stat(self.path(process).parent).st_mode & 0o777, 0o700)
            self.ends(process)
            self.assertEqual(list(self.path(process).parent.iterdir()), [])
            with self.assertRaises(ConnectionRefusedError):
                self.connect(process)

    def test_a_folder_that_is_not_the_users_alone(self) -> None:
        folder = self.runtime / "memlab"
        elsewhere = self.work / "elsewhere"
        elsewhere.mkdir(mode=0o700)
        for make in (lambda: folder.mkdir(mode=0o755), lambda: folder.symlink_to(elsewhere)):
            make()
            with self.started() as process:
                self.assertEqual((list(folder.iterdir()), list(elsewhere.iterdir())), ([], []))
                self.assertEqual(self.asked(process, "status")["pid"], process.pid)
            if folder.is_symlink():
                folder.unlink()
            else:
                folder.rmdir()

    def test_off_has_no_socket(self) -> None:
        with self.started({"MEMLAB_LIVE": "off"}) as process:
            self.assertFalse(self.path(process).exists())
            with self.assertRaises(ConnectionRefusedError):
                self.connect(process)
            self.ends(process)

    def test_children_do_not_answer_for_their_parent(self) -> None:
        with self.started() as process, self.connect(process) as client:
            client.sendall(b"status\n")
            self.assertEqual(self.reply_on(client)[0], "ok")
            self.assertEqual(self.tell(process, "forks"), "the child has 0")
            client.sendall(b"status\n")
            self.assertEqual(self.reply_on(client)[1]["pid"], process.pid)
            self.ends(process)

    def test_the_pool_is_as_memlab_report_shows_it(self) -> None:
        with self.started({"MEMLAB_BACKEND": "classic"}) as process:
            for _ in range(30):
                self.tell(process, "allocate")
            document = self.asked(process, "pool")
            if jsonschema is not None:
                jsonschema.Draft7Validator(json.loads(self.layout.schema("live-pool").read_text())).validate(document)
            (gpu,) = document["gpus"]
            segments = gpu["segments"]
            self.assertEqual(gpu["active_bytes"], 33 << 20)
            self.assertEqual(gpu["reserved_bytes"], sum(each["bytes"] for each in segments) + gpu["empty_bytes"])
            self.assertEqual(gpu["segment_count"], len(segments) + gpu["empty_count"])
            for each in segments:
                self.assertEqual(len(each["picture"]), 64)
                self.assertAlmostEqual(each["picture"].count("#") / 64, each["active_bytes"] / each["bytes"], delta=0.1)
            (first,) = self.asked(process, "pool", "1")["gpus"]
            self.assertEqual((first["segments"], first["reserved_bytes"]), (segments[:1], gpu["reserved_bytes"]))
            self.assertEqual(self.ask(process, "pool", "x"), ("error", "pool takes a number of segments"))
            text = self.ctl(str(process.pid), "pool").stdout
            self.assertRegex(text, r"GPU 0  .* reserved in \d+ segments?, 33\.00 MiB of it active")
            self.assertIn("█", text)
            self.ends(process)
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), "pool", "--json",
                                       str(self.output / f"memlab.asked.{process.pid}.memlog")])
        end = json.loads(outcome.stdout)["reports"][0]["devices"][0]["moments"][-1]
        self.assertEqual(end["what"], "end")
        told = [(each["size"], sum(block["size"] for block in each["blocks"]), len(each["blocks"]))
                for each in end["segments"] if each["blocks"]]
        self.assertEqual(sorted(told), sorted((each["bytes"], each["active_bytes"], each["block_count"])
                                              for each in segments))

    def test_a_program_without_cuda_does_not_answer(self) -> None:
        with self.started() as process:
            self.tell_only(process, "execs")
            deadline = time.monotonic() + 10
            while self.answers(process) and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertFalse(self.answers(process))
            self.assertTrue(self.path(process).exists())
            result = self.ctl(str(process.pid), "status")
            self.assertEqual(result.returncode, 2)
            self.assertFalse(self.path(process).exists(), "whoever finds that nobody listens removes the file")

    def tell_only(self, process: subprocess.Popen[bytes], word: str) -> None:
        assert process.stdin is not None
        process.stdin.write(word.encode() + b"\n")
        process.stdin.flush()

    def answers(self, process: subprocess.Popen[bytes]) -> bool:
        try:
            return self.ask(process, "status")[0] == "ok"
        except (ConnectionError, FileNotFoundError):
            return False
        except OSError:
            return True  # it is only slow

    def test_a_program_that_closes_all_sockets(self) -> None:
        with self.started() as process, self.connect(process) as client:
            client.sendall(b"status\n")
            self.assertEqual(self.reply_on(client)[0], "ok")
            self.tell(process, "takes")
            with contextlib.suppress(OSError):
                client.sendall(b"status\n" * 10)
            for _ in range(3):
                with contextlib.suppress(OSError):
                    self.ask(process, "status")
            self.assertEqual(self.tell(process, "intact"), "intact")
            deadline = time.monotonic() + 20
            while not self.answers(process):
                self.assertLess(time.monotonic(), deadline, "it listens again")
                time.sleep(0.05)
            self.assertEqual(self.tell(process, "intact"), "intact")
            self.ends(process)

    def test_nothing_happens_while_nobody_asks(self) -> None:
        if Build.sanitizer == "thread":
            self.skipTest("a thread of ThreadSanitizer's own wakes up")
        with self.started({"MEMLAB_LEDGER": "off"}) as process:
            self.asked(process, "status")
            # Beside other work a thread comes late to its last work.
            for _ in range(5):
                before = self.switches(process)
                time.sleep(1.5)
                after = self.switches(process)
                if after == before:
                    break
            self.assertEqual(after, before)

    @staticmethod
    def switches(process: subprocess.Popen[bytes]) -> dict[str, str]:
        """How often each thread ran."""
        threads = Path(f"/proc/{process.pid}/task")
        return {thread.name: " ".join(re.findall(r"ctxt_switches:\s+(\d+)", (thread / "status").read_text()))
                for thread in threads.iterdir()}


class Peers(Asked):
    """Those that do not behave; the program goes on all the while."""

    @contextlib.contextmanager
    def busy(self) -> Iterator[subprocess.Popen[bytes]]:
        with self.started({"MEMLAB_LOG_LIMIT": "4MiB"}) as process:
            self.tell(process, "churn")
            yield process
            before = int(self.tell(process, "count"))
            time.sleep(0.3)
            self.assertGreater(int(self.tell(process, "count")), before + 10, "it stands still")
            self.assertEqual(self.asked(process, "status")["pid"], process.pid)
            self.tell_exit(process)

    def tell_exit(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        process.stdin.write(b"exits\n")
        process.stdin.flush()
        self.assertEqual(process.wait(timeout=30), 0)

    def test_one_that_takes_no_reply(self) -> None:
        with self.busy() as process, self.connect(process) as client:
            with contextlib.suppress(TimeoutError):
                client.settimeout(1)
                while True:
                    client.sendall(b"status\n" * 100)
            began = time.monotonic()
            self.assertEqual(self.asked(process, "status")["pid"], process.pid)
            self.assertLess(time.monotonic() - began, 3)
            # Dropped after five seconds: what is read then ends in the middle.
            time.sleep(6)
            client.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                while client.recv(1 << 20):
                    pass

    def test_one_that_is_stopped(self) -> None:
        asks = ("import socket, sys\nc = socket.socket(socket.AF_UNIX)\nc.connect(sys.argv[1])\n"
                "print('on', flush=True)\nwhile True:\n    c.sendall(b'status\\n')\n    c.recv(100)\n")
        with self.busy() as process:
            peers = [subprocess.Popen(["python3", "-c", asks, str(self.path(process))], stdout=subprocess.PIPE)
                     for _ in range(3)]
            try:
                for peer in peers:
                    self.line(peer)
                    os.kill(peer.pid, signal.SIGSTOP)
                self.assertEqual(self.asked(process, "sites")["gpus"][0]["gpu"], 0)
            finally:
                for peer in peers:
                    peer.kill()
                    peer.communicate()

    def test_one_that_sends_anything(self) -> None:
        source = random.Random(11)
        with self.busy() as process:
            for _ in range(50):
                with self.connect(process) as client, contextlib.suppress(OSError):
                    client.sendall(source.randbytes(source.randrange(1, 9000)) + b"\n")
                    self.assertIn(self.reply_on(client)[0], ("error", "end"))
            with self.connect(process) as client, contextlib.suppress(OSError):
                client.sendall(b"x" * (1 << 20))
                self.assertEqual(self.reply_on(client), ("error", "a request has at most 4096 bytes"))
            for line in (b"\n", b"status\textra\n", b"nothing\n", b"sites\t1\t2\t3\n", b"mark\n", b"mark\t\x00\n"):
                with self.connect(process) as client:
                    client.sendall(line)
                    self.assertEqual(self.reply_on(client)[0], "error", line)

    def test_requests_one_after_another(self) -> None:
        with self.busy() as process, self.connect(process) as client:
            client.sendall(b"status\nnothing\nsta")
            self.assertEqual(self.reply_on(client)[0], "ok")
            self.assertEqual(self.reply_on(client)[0], "error")
            client.sendall(b"tus\n" + b"status\n" * 300)
            for _ in range(301):
                self.assertEqual(self.reply_on(client)[0], "ok")

    def test_too_many(self) -> None:
        with self.busy() as process, contextlib.ExitStack() as stack:
            clients = [stack.enter_context(self.connect(process)) for _ in range(16)]
            for client in clients:
                client.sendall(b"status\n")
                self.assertEqual(self.reply_on(client)[0], "ok")
            for _ in range(30):
                with self.connect(process) as client:
                    self.assertIn("16 others are connected", self.reply_on(client)[1])
            clients[3].close()
            deadline = time.monotonic() + 5
            while self.ask_or_none(process) != "ok" and time.monotonic() < deadline:
                time.sleep(0.01)
            for client in clients:
                client.close()
            time.sleep(0.1)

    def ask_or_none(self, process: subprocess.Popen[bytes]) -> str:
        with contextlib.suppress(OSError):
            return self.ask(process, "status")[0]
        return "none"

    @ROOT_ONLY
    def test_another_user(self) -> None:
        asks = ("import os, socket, sys\nos.setgid(4711)\nos.setuid(4711)\nc = socket.socket(socket.AF_UNIX)\n"
                "c.connect('\\0' + sys.argv[1])\nprint(c.recv(1000).decode(), end='')\n")
        with self.busy() as process:
            told = subprocess.run(["python3", "-c", asks, f"memlab-0-{process.pid}"], capture_output=True, text=True,
                                  timeout=20, check=False)
            self.assertEqual(told.stdout, "error this process belongs to user 0: only they and root can ask it\n",
                             told.stderr)

    def test_kills_of_either_side(self) -> None:
        source = random.Random(5)
        asks = ("import socket, sys\nc = socket.socket(socket.AF_UNIX)\nc.connect(sys.argv[1])\n"
                "print('on', flush=True)\nwhile True:\n    c.sendall(b'sites\\nsnapshot\\npool\\n')\n    c.recv(500)\n")
        for number in range(ROUNDS):
            with self.subTest(round=number), self.started({"MEMLAB_LOG_LIMIT": "4MiB"}) as process:
                self.tell(process, "churn")
                path = self.path(process)
                peer = subprocess.Popen(["python3", "-c", asks, str(path)], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
                try:
                    self.line(peer)
                    time.sleep(source.random() * 0.05)
                    if number % 2 == 0:
                        peer.kill()
                        peer.wait()
                        self.assertEqual(self.asked(process, "status")["pid"], process.pid)
                        self.tell_exit(process)
                        self.assertFalse(path.exists())
                    else:
                        process.kill()
                        process.wait()
                        self.assertEqual(peer.wait(timeout=20), 1)  # its connection ended
                        self.assertEqual(self.ctl(str(process.pid), "status").returncode, 2)
                        self.assertNotIn(str(process.pid), self.ctl().stdout.split())
                        self.assertFalse(path.exists(), "the stale file is removed by whoever looks")
                finally:
                    peer.kill()
                    peer.communicate()


class Holds(Asked):
    """A thread whose allocation fails waits until it is released."""

    def waits(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            hold = self.asked(process, "status")["hold_on_oom"]
            if hold["waiting"]:
                return dict(hold)
            time.sleep(0.01)
        self.fail("no thread waits")

    def test_from_the_start_and_released(self) -> None:
        with self.started({"MEMLAB_HOLD_ON_OOM": "on"}) as process:
            self.tell(process, "full_there")
            hold = self.waits(process)
            self.assertEqual((hold["timeout_s"], hold["waiting"], hold["requested_bytes"], hold["gpu"]),
                             (600, 1, 1 << 50, 0))
            # The others go on, and the process can be looked at.
            self.assertEqual(self.tell(process, "allocate"), "done")
            self.assertEqual(self.asked(process, "sites")["end_bytes"], 4 << 20)
            self.assertEqual(self.asked(process, "release")["text"], "released 1 thread")
            self.assertEqual(self.line(process), "got 2")
            self.assertEqual(self.asked(process, "status")["hold_on_oom"]["waiting"], 0)
            self.assertEqual(self.ask(process, "release")[0], "error")
            assert process.stderr is not None
            self.ends(process)
            said = process.stderr.read().decode()
            self.assertIn(f"process {process.pid} is out of memory (1024.00 TiB on GPU 0) and waits, for 600 s at most: "
                          f"look with `memlab-ctl {process.pid} sites`, go on with `memlab-ctl {process.pid} release`",
                          said)

    def test_its_time_is_over(self) -> None:
        with self.started() as process:
            self.assertEqual(self.tell(process, "full"), "got 2")
            self.asked(process, "hold-on-oom", "on", "1")
            began = time.monotonic()
            self.assertEqual(self.tell(process, "full"), "got 2")
            self.assertGreater(time.monotonic() - began, 0.9)
            self.asked(process, "hold-on-oom", "off")
            began = time.monotonic()
            self.assertEqual(self.tell(process, "full"), "got 2")
            self.assertLess(time.monotonic() - began, 0.9)
            self.assertEqual(self.ask(process, "hold-on-oom", "on", "0")[0], "error")
            self.ends(process)

    def test_pytorch_waits_at_its_own_report(self) -> None:
        library = self.layout.program("pytorch_cache").parent / "pytorch" / "libc10_cuda.so"
        command = self.program("pytorch_cache", str(library), "out_of_memory")
        with self.started({"MEMLAB_HOLD_ON_OOM": "on", "SIMCUDA_DEVICES": "2"}, command) as process:
            deadline = time.monotonic() + 20
            while not self.path(process).exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            hold = self.waits(process)
            self.assertEqual((hold["requested_bytes"], hold["gpu"]), (512 << 20, 0))
            status = self.asked(process, "status")
            # The driver's failures before it made nobody wait.
            self.assertGreater(status["oom_count"], 1)
            self.assertGreater(status["gpus"][0]["tensor_bytes"], 0)
            self.assertEqual(status["gpus"][0]["tensor_bytes"] % (512 << 20), 0)
            self.assertEqual(self.asked(process, "sites")["sites"][0]["allocator"], "PyTorch")
            self.asked(process, "release")
            output, errors = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 0, errors)
            self.assertIn(b"out of memory after some tensors: yes", output)
            self.assertEqual(errors.count(b" and waits, for 600 s at most"), 1)

    def test_pytorch_waits_once_where_nothing_is_recorded(self) -> None:
        library = self.layout.program("pytorch_cache").parent / "pytorch" / "libc10_cuda.so"
        outcome = self.under_memlab(self.program("pytorch_cache", str(library), "out_of_memory"),
                                    {"MEMLAB_RECORD": "off", "MEMLAB_HOLD_ON_OOM": "1", "SIMCUDA_DEVICES": "2"})
        self.assertEqual(outcome.code, 0, outcome.describe())
        self.assertEqual(outcome.stderr.count(b" is out of memory (512.00 MiB on GPU 0) and waits"), 1,
                         outcome.describe())
        self.assertEqual(outcome.stderr.count(b" and waits"), 1)

    def test_by_memlab_run(self) -> None:
        run = [str(self.layout.tool("memlab-run")), "--library", str(self.layout.library), "--no-report"]
        environment = self.layout.environment(memlab=False, output=None)
        began = time.monotonic()
        done = subprocess.run([*run, "--hold-on-oom=1", "--", *self.program("asked")], env=environment, cwd=self.cwd,
                              input=b"full\nexits\n", capture_output=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, b"ready\ngot 2\n"), done.stderr)
        self.assertGreater(time.monotonic() - began, 0.9)
        self.assertIn(b" and waits, for 1 s at most", done.stderr)
        wrong = subprocess.run([*run, "--hold-on-oom=soon", "--", "true"], env=environment, cwd=self.cwd,
                               capture_output=True, timeout=60, check=False)
        self.assertEqual((wrong.returncode, wrong.stderr.count(b"\n")), (2, 1), wrong.stderr)

    def test_killed_while_it_waits(self) -> None:
        with self.started({"MEMLAB_HOLD_ON_OOM": "300"}) as process:
            self.tell(process, "full_there")
            self.assertEqual(self.waits(process)["timeout_s"], 300)
            process.terminate()
            self.assertEqual(process.wait(timeout=20), -signal.SIGTERM)


class Client(Asked):
    """memlab-ctl."""

    def test_the_only_one_and_a_list(self) -> None:
        none = self.ctl("status", settings={"XDG_RUNTIME_DIR": "/nonexistent"})
        if none.returncode == 2 and "no program of yours" in none.stderr:
            self.assertEqual(none.stdout, "")
        with self.started() as first:
            shown = self.ctl(str(first.pid))
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))
            self.assertIn(f"process {first.pid}", shown.stdout)
            self.assertRegex(shown.stdout, r"allocated +3\.00 MiB +3\.00 MiB")
            with self.started() as second:
                several = self.ctl("status")
                self.assertEqual(several.returncode, 2)
                self.assertEqual(several.stderr,
                                 "memlab-ctl: several programs run under memlab: name one by its process id\n")
                for process in (first, second):
                    self.assertRegex(several.stdout, rf"(?m)^ +{process.pid} +0 +3\.00 MiB  .*asked$")
                listed = json.loads(self.ctl("--json").stdout)
                self.assertLessEqual({first.pid, second.pid}, {each["pid"] for each in listed["processes"]})
                run = self.ctl(f"{self.output}/", "mark", "both")
                self.assertEqual((run.returncode, run.stdout.count("marked both")), (0, 2), run.stderr)

    def test_sites_have_lines(self) -> None:
        with self.started() as process:
            shown = self.ctl(str(process.pid), "sites")
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))
            self.assertRegex(shown.stdout, r"3\.00 MiB +100\.0% +1 +0  .*asked\.cpp:\d+  main")
            document = json.loads(self.ctl("--json", str(process.pid), "sites", "3").stdout)
            self.assertEqual(document["format"], "memlab-interval")
            self.assertEqual(self.ctl(str(process.pid), "nn-modules").returncode, 0)
            self.assertEqual(self.ctl(str(process.pid), "stacks", "8").stdout,
                             "call stacks have at most 8 frames from now on\n")

    def test_trouble_is_one_line(self) -> None:
        with self.started() as process:
            for arguments, said in (
                    ((str(process.pid), "bogus"), "bogus: neither a verb nor a process"),
                    ((str(process.pid), "mark"), "mark takes NAME"),
                    ((str(process.pid), "stacks", "many"), "stacks takes a number of frames"),
                    (("4194303", "status"), "there is no process 4194303"),
                    ((str(os.getpid()), "status"), "does not answer: it was started without memlab"),
                    ((f"{self.work}/none/", "status"), "no such folder"),
                    ((f"{self.work}/", "status"), "no running process records into"),
                    (("--wrong",), "--help shows the usage")):
                result = self.ctl(*arguments)
                self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1), arguments)
                self.assertIn(said, result.stderr)

    def test_a_stopped_process(self) -> None:
        with self.started() as process:
            os.kill(process.pid, signal.SIGSTOP)
            began = time.monotonic()
            listed = self.ctl()
            self.assertIn("(does not answer)", listed.stdout)
            self.assertLess(time.monotonic() - began, 15)
            os.kill(process.pid, signal.SIGCONT)
            self.ends(process)

    @ROOT_ONLY
    def test_another_users_process(self) -> None:
        with self.started() as process:
            result = subprocess.run(["setpriv", "--reuid=4711", "--regid=4711", "--clear-groups",
                                     str(self.layout.tool("memlab-ctl")), str(process.pid), "status"],
                                    env={"PATH": "/usr/bin:/bin"}, cwd="/", capture_output=True, text=True, timeout=60,
                                    check=False)
            if "failed to execute" in result.stderr:
                self.skipTest("that user cannot reach the build")
            self.assertEqual(result.returncode, 2)
            self.assertEqual(result.stderr, f"memlab-ctl: process {process.pid} belongs to user root (0): only they and "
                                            "root can ask it\n")


class Container(Asked):
    """A process with files, process ids and, if so, a network of its own."""

    @contextlib.contextmanager
    def contained(self, *namespaces: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
        inside = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private", *namespaces]
        if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no namespaces can be made here")
        script = 'mount -t tmpfs none /tmp && exec "$@"'
        command = [*inside, "sh", "-c", script, "sh", *self.program("asked")]
        with self.started({"XDG_RUNTIME_DIR": "", "MEMLAB_FILES": "off"}, command) as outer:
            self.assertEqual(self.line(outer), "ready")
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            try:
                yield outer, int(children[0])
            finally:
                os.kill(int(children[0]), signal.SIGKILL)

    @ROOT_ONLY
    def test_is_asked_by_its_id_outside(self) -> None:
        for namespaces in ((), ("--net",)):
            with self.subTest(namespaces), self.contained(*namespaces) as (_, process):
                self.assertIn(str(process), self.ctl().stdout.split())
                shown = self.ctl(str(process), "sites")
                self.assertEqual((shown.returncode, shown.stderr), (0, ""))
                self.assertIn("3.00 MiB", shown.stdout)
                status = json.loads(self.ctl("--json", str(process)).stdout)
                self.assertEqual(status["pid"], 1)  # as it sees itself


class Fake(Asked):
    """Somebody else who listens in a process's place."""

    def test_another_listener_is_not_believed(self) -> None:
        with socket.socket(socket.AF_UNIX) as fake:
            sleeper = subprocess.Popen(["sleep", "60"])
            try:
                fake.bind(f"\0memlab-{os.geteuid()}-{sleeper.pid}")
                fake.listen(5)
                result = self.ctl(str(sleeper.pid), "status")
                self.assertEqual(result.returncode, 2)
                self.assertIn("does not answer", result.stderr)
            finally:
                sleeper.kill()
                sleeper.wait()
