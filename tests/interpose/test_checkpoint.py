"""Stepping aside by the driver's own checkpoint, alone or behind the pool's engine (docs/step-aside.md): all of the GPU's
memory is free meanwhile, whatever becomes of the helper that asks the driver, and what would not come back is refused
before anything is locked.

MEMLAB_TEST_RUNS is how many random runs there are in which helpers and programs are killed (6).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Iterator
from pathlib import Path

from test_step_aside import SOON, StepAside

ROUNDS = int(os.environ.get("MEMLAB_TEST_RUNS", "6"))
CONTEXT = 64  # MiB
ENGINES = ("driver", "both")


def is_helper(process: int, program: int) -> bool:
    """Of this program: it has the same driver's books, and no program's command line."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        shared = [Path(f"/proc/{each}/environ").read_bytes().partition(b"SIMCUDA_SHARED=")[2].partition(b"\0")[0]
                  for each in (process, program)]
    except OSError:
        return False
    return words[-2:] == [b"helper", b""] and shared[0] == shared[1]


class Checkpointed(StepAside):
    """A program on a GPU that NVML tells of and that other processes use."""

    def settings(self, more: dict[str, str] | None = None) -> dict[str, str]:
        libraries = ":".join([*self.layout.library_path, str(self.layout.root / "lib" / "simnvml")])
        return super().settings({"SIMCUDA_SHARED": str(self.work / "shared"), "SIMCUDA_MEMORY": "1GiB",
                                 "SIMCUDA_CONTEXT_MEMORY": f"{CONTEXT}MiB", "SIMNVML_PROCESSES": "self:1",
                                 "LD_LIBRARY_PATH": libraries} | (more or {}))

    def used_by_all(self) -> int:
        """MiB of the GPU, by the simulated driver's books."""
        return int.from_bytes((self.work / "shared").read_bytes()[:8], "little") >> 20

    @staticmethod
    def helpers(process: subprocess.Popen[bytes]) -> list[int]:
        return [int(each.name) for each in Path("/proc").iterdir()
                if each.name.isdigit() and int(each.name) != process.pid and is_helper(int(each.name), process.pid)]

    def kill_helpers(self, process: subprocess.Popen[bytes]) -> int:
        found = self.helpers(process)
        for each in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        return len(found)

    def until_helpers_end(self, helpers: list[int]) -> None:
        for _ in range(100):
            if not any(Path(f"/proc/{each}/exe").exists() for each in helpers):
                return
            time.sleep(0.02)
        self.fail(f"they are there: {helpers}")

    def says_lost(self, process: subprocess.Popen[bytes]) -> None:
        state, text = self.ask(process, "restore")
        self.assertEqual(state, "error", text)
        self.assertIn("this process is lost", text)
        aside = self.asked(process, "status")["step_aside"]
        self.assertTrue(aside["lost"] and aside["by_driver"], aside)
        self.assertEqual(aside["phase"], "asleep")


class Moves(Checkpointed):
    def test_contents_addresses_and_what_is_left(self) -> None:
        for engine in ENGINES:
            with self.subTest(engine), self.aside() as process:
                where, used = self.tell(process, "where"), int(self.tell(process, "used"))
                self.assertGreater(used, CONTEXT + 12)
                for _ in range(3):
                    answer = self.asked(process, "yield", f"engine={engine}")
                    self.assertEqual(answer["bytes"] >> 20, used)
                    self.assertRegex(answer["text"], r"^moved .* of GPU memory to the host in \d+\.\d\d s, .* of it, with "
                                                     r"the context, by the driver's checkpoint$")
                    self.assertEqual((self.tell(process, "used"), self.used_by_all()), ("0", 0))
                    aside = self.asked(process, "status")["step_aside"]
                    self.assertEqual((aside["phase"], aside["by_driver"], aside["away_bytes"]),
                                     ("asleep", True, answer["bytes"]))
                    self.send(process, "check")
                    self.assertTrue(self.says_nothing(process, 0.2))
                    back = self.asked(process, "restore")
                    self.assertEqual(back["bytes"], answer["bytes"], back)
                    self.assertEqual(self.line(process), "intact")
                    self.assertEqual((self.tell(process, "where"), int(self.tell(process, "used"))), (where, used))
                    self.assertNotIn("by_driver", self.asked(process, "status")["step_aside"])
                self.assertEqual(self.ask(process, "restore"), ("error", "nothing of this process is away"))
                self.ends(process)
            self.assertEqual(self.used_by_all(), 0)

    def test_what_does_not_move_otherwise(self) -> None:
        """auto: the pool's engine while that is enough, else the driver's takes the rest."""
        with self.aside() as process:
            self.assertNotIn("checkpoint", self.asked(process, "yield")["text"])
            self.assertEqual(self.tell(process, "used"), str(CONTEXT))
            self.asked(process, "restore")
            self.ends(process)
        with self.aside({"MEMLAB_BACKEND": "classic"}) as process:
            where = self.tell(process, "where")
            self.assertIn("by the driver's checkpoint", self.asked(process, "yield")["text"])
            self.assertEqual(self.tell(process, "used"), "0")
            self.asked(process, "restore")
            self.assertEqual((self.tell(process, "check"), self.tell(process, "where")), ("intact", where))
            self.ends(process)

    def test_many_times_while_threads_work(self) -> None:
        for engine in ENGINES:
            with self.subTest(engine), self.aside() as process:
                self.tell(process, "churn")
                for _ in range(10):
                    self.asked(process, "yield", f"engine={engine}", "timeout=10")
                    count = self.tell(process, "count")
                    time.sleep(0.02)
                    self.assertEqual(self.tell(process, "count"), count)
                    self.asked(process, "restore")
                    time.sleep(0.01)
                self.assertEqual(self.tell(process, "still"), "intact")
                self.assertEqual(self.tell(process, "check"), "intact")
                self.ends(process)

    def test_what_is_answered_while_it_is_away(self) -> None:
        for engine in ENGINES:
            with self.subTest(engine), self.aside() as process:
                waits = self.tell(process, "waits").split()[:3]
                memory = self.tell(process, "memory")
                self.asked(process, "yield", f"engine={engine}")
                self.assertEqual(self.tell(process, "memory"), memory)
                self.assertEqual(self.tell(process, "waits").split()[:3], waits)
                self.assertEqual(self.tell(process, "free"), "done")
                for verb in ("sites", "pool", "nn-modules", "status"):
                    self.asked(process, verb)
                for verb in (("empty-cache",), ("trim",), ("limit", "1GiB")):
                    self.assertIn("restore it first", self.ask(process, *verb)[1])
                self.send(process, "asks")  # attributes wait
                self.assertTrue(self.says_nothing(process, 0.2))
                self.asked(process, "restore")
                self.assertIn("event 0 stream 0", self.line(process))
                access = self.tell(process, "access")
                self.asked(process, "yield", f"engine={engine}")
                self.send(process, "access")
                self.assertTrue(self.says_nothing(process, 0.2))
                self.asked(process, "restore")
                self.assertEqual(self.line(process), access)
                self.assertEqual(self.tell(process, "check"), "intact")
                self.assertEqual(self.tell(process, "more"), "done")
                moved = self.asked(process, "yield", f"engine={engine}")["bytes"]
                self.assertEqual(self.tell(process, "drop"), "done")
                self.asked(process, "restore")
                self.assertEqual(self.tell(process, "more"), "done")
                self.assertLess(self.asked(process, "yield", f"engine={engine}")["bytes"], moved)  # all were freed
                self.asked(process, "restore")
                self.assertEqual(self.tell(process, "check"), "intact")
                self.ends(process)

    def test_what_is_recorded_while_it_is_away(self) -> None:
        """Labels and blocks of an allocator's own, of which the driver is asked otherwise."""
        for engine in ("pool", *ENGINES):
            with self.subTest(engine):
                shutil.rmtree(self.output, ignore_errors=True)
                with self.aside() as process:
                    self.tell(process, "async 3")
                    self.asked(process, "yield", f"engine={engine}")
                    self.assertEqual((self.tell(process, "labels"), self.tell(process, "cuts")), ("0 0", "0 0"))
                    self.asked(process, "restore")
                    self.assertEqual(self.tell(process, "check"), "intact")
                    self.ends(process)
                (path,) = self.output.glob("*.json")
                report = json.loads(path.read_text(encoding="utf-8"))
                self.assertEqual(sorted(label["name"] for label in report["labels"]), ["of the driver", "of the pool"])
                (own,) = (device for device in report["devices"] if device.get("allocator") == "own")
                self.assertEqual(own["kinds"]["suballocation"]["bytes"], 4096 + 8192, own)

    def test_what_is_asked_at_any_moment(self) -> None:
        for engine in ENGINES:
            with self.subTest(engine), self.aside() as process:
                self.tell(process, "polls")
                for _ in range(10):
                    self.tell(process, "pauses")
                    self.ask(process, "yield", f"engine={engine}", "timeout=10")
                    self.ask(process, "restore")
                self.assertEqual(self.tell(process, "polled"), "right")
                self.ends(process)

    def test_by_memlab_ctl(self) -> None:
        folder = self.work / "kept"
        folder.mkdir()
        with self.aside() as process:
            pid = str(process.pid)
            self.assertRegex(self.ctl(pid, "yield", "--engine", "both", "--prepare").stdout,
                             r"^prepared .* of host memory and the driver's helper in ")
            helpers = self.helpers(process)
            self.assertEqual(len(helpers), 1)
            for options in (("--engine", "driver"), ("--engine=both",), ("--engine=both", "--to", f"disk:{folder}")):
                moved = self.ctl(pid, "yield", *options)
                self.assertEqual((moved.returncode, moved.stderr), (0, ""), options)
                self.assertIn("by the driver's checkpoint", moved.stdout)
                self.assertRegex(self.ctl(pid).stdout,
                                 r"aside +asleep, .* MiB away by the driver's checkpoint, 0 threads waiting")
                self.assertRegex(self.ctl(pid, "restore").stdout, "^moved .* back to the GPU")
                self.assertEqual(self.tell(process, "check"), "intact")
            self.assertEqual(self.helpers(process), helpers)  # it stays: each pays the driver's start
            self.assertRegex(self.ctl(pid, "yield", "--engine=driver", "--prepare").stdout,
                             "^prepared the driver's helper in ")
            self.ends(process)

    def test_a_forked_child_has_none_of_it(self) -> None:
        """Its calls reach the driver, and it keeps no helper."""
        with self.aside() as process:
            children = [self.tell(process, "leaves").split()]
            self.asked(process, "yield", "engine=driver")
            helpers = self.helpers(process)
            self.assertEqual(len(helpers), 1)
            self.send(process, "leaves")
            self.assertFalse(self.says_nothing(process, 20))
            children.append(self.line(process).split())
            try:
                self.assertEqual(*[answer for _, answer in children])
                self.asked(process, "restore")
                self.assertEqual(self.tell(process, "check"), "intact")
                self.ends(process)
                self.until_helpers_end(helpers)
            finally:
                for child, _ in children:
                    os.kill(int(child), signal.SIGKILL)

    def test_by_a_signal(self) -> None:
        with self.aside({"MEMLAB_YIELD_ON": "SIGUSR2", "MEMLAB_BACKEND": "classic"}) as process:
            for used in ("0", self.tell(process, "used")):
                process.send_signal(signal.SIGUSR2)
                self.until(process, "asleep" if used == "0" else "running")
                self.assertEqual(self.tell(process, "used"), used)
            self.assertEqual(self.tell(process, "check"), "intact")
            self.ends(process)

    def test_a_handler_of_the_program_brings_it_back(self) -> None:
        with self.aside() as process:
            self.tell(process, "handles")
            self.asked(process, "yield", "engine=driver")
            self.send(process, "check")
            self.assertTrue(self.says_nothing(process, 0.3))
            process.send_signal(signal.SIGUSR1)
            self.assertEqual(self.line(process), "intact")
            self.ends(process)

    def test_waits_while_another_process_has_the_memory(self) -> None:
        for engine in ENGINES:
            with self.subTest(engine), self.aside({"SIMCUDA_MEMORY": "200MiB"}) as process:
                self.asked(process, "yield", f"engine={engine}")
                with self.started({"SIMCUDA_MEMORY": "200MiB"}) as other:  # of asked.cpp
                    self.assertEqual({self.tell(other, "allocate") for _ in range(125)}, {"done"})
                    begin = time.monotonic()
                    self.assertIn("waits for GPU memory", self.asked(process, "restore")["text"])
                    self.assertLess(time.monotonic() - begin, SOON)
                    aside = self.asked(process, "status")["step_aside"]
                    self.assertEqual((aside["phase"], aside["short_of_memory"]), ("moving in", True))
                    self.send(process, "check")
                    self.assertTrue(self.says_nothing(process, 0.3))
                    self.tell(other, "free")
                    self.asked(other, "empty-cache")
                    self.assertEqual(self.line(process), "intact")
                    self.ends(other)
                self.ends(process)

    def test_a_program_that_has_nearly_all_of_the_gpu(self) -> None:
        for engine in ENGINES:
            with self.subTest(engine), self.aside({"SIMCUDA_MEMORY": "86MiB"}) as process:
                self.assertGreater(int(self.tell(process, "used")) * 1.1, 86)
                for _ in range(2):
                    self.asked(process, "yield", f"engine={engine}")
                    self.assertRegex(self.asked(process, "restore")["text"], "^moved ")
                    self.assertEqual(self.tell(process, "check"), "intact")
                self.ends(process)

    def test_what_the_recording_says(self) -> None:
        with self.aside() as process:
            self.asked(process, "yield", "engine=driver")
            gpu = self.asked(process, "status")["gpus"][0]
            self.assertEqual((gpu["reserved_bytes"], gpu["total_bytes"]), (0, gpu["free_bytes"]))
            self.assertGreater(gpu["allocated_bytes"], 12 << 20)
            self.asked(process, "restore")
            gpu = self.asked(process, "status")["gpus"][0]
            self.assertGreaterEqual(gpu["reserved_bytes"], gpu["allocated_bytes"])
            self.asked(process, "yield", "engine=both")
            self.asked(process, "restore")
            self.ends(process)
        path = self.output / f"memlab.steps_aside.{process.pid}.json"
        device = json.loads(path.read_text())["devices"][0]
        self.assertEqual([each["end_ns"] is None for each in device["absences"]], [False, False])
        for each in device["absences"]:
            self.assertGreater(each["bytes"], 12 << 20)


class Refuses(Checkpointed):
    def refused_and_goes_on(self, process: subprocess.Popen[bytes], engine: str, why: str, seconds: float = SOON) -> None:
        begin = time.monotonic()
        self.assertIn(why, self.refused(process, f"engine={engine}"))
        self.assertLess(time.monotonic() - begin, seconds)
        self.assertEqual(self.phase(process), "running")
        self.assertEqual(self.tell(process, "check"), "intact")

    def test_what_would_not_come_back(self) -> None:
        shared = "shared memory or events with other processes"
        for word, why in (("exports", shared), ("events", shared), ("managed", "managed memory")):
            for engine in ENGINES:
                with self.subTest(word), self.aside() as process:
                    self.assertEqual(self.tell(process, word), "done")
                    self.refused_and_goes_on(process, engine, why, 0.5)
                    self.assertEqual(self.helpers(process), [])  # nothing was begun
                    self.ends(process)

    def test_what_comes_while_calls_are_waited_for(self) -> None:
        for engine in ENGINES:
            with self.subTest(engine), self.aside() as process, self.connect(process) as client:
                self.tell(process, "queue")
                client.sendall(f"yield\tengine={engine}\ttimeout=60\n".encode())
                self.until(process, "closing")
                self.assertEqual(self.tell(process, "events"), "done")
                self.tell(process, "open")
                state, answer = self.reply_on(client)
                why = answer if state == "error" else answer["text"]
                self.assertIn("shared memory or events with other processes", why)
                self.assertNotIn("by_driver", self.asked(process, "status")["step_aside"])
                if engine == "both":  # the pool's part is away
                    self.asked(process, "restore")
                self.assertEqual(self.tell(process, "check"), "intact")
                self.ends(process)

    def test_parts(self) -> None:
        with self.aside() as process:
            for words in (("engine=both", "keep=8MiB"), ("engine=driver", "gpu=0"),
                          ("engine=driver", f"to=disk:{self.work}")):
                self.assertIn("go with the pool's engine alone", self.refused(process, *words))
            self.goes_on(process)

    def test_drivers_without_it(self) -> None:
        self.use_driver("12.4")
        with self.aside() as process:
            for engine in ENGINES:
                self.assertRegex(self.refused(process, f"engine={engine}"), "the driver is too old")
            self.ends(process)

    def test_what_the_driver_refuses(self) -> None:
        for function, error, why in (("GetState", 800, "does not let its helper look at it (error 800)"),
                                     ("Lock", 800, "did not lock it (error 800)"),
                                     ("Lock", 801, "does not checkpoint this process"),
                                     ("Lock", 600, "did not end in time"),
                                     ("Checkpoint", 304, "did not checkpoint it (error 304)")):
            faults = {"SIMCUDA_FAIL": f"cuCheckpointProcess{function}:1:{error}"}
            with self.subTest(function=function, error=error), self.aside(faults) as process:
                self.refused_and_goes_on(process, "driver", why)
                self.asked(process, "yield", "engine=driver")
                self.asked(process, "restore")
                self.assertEqual(self.tell(process, "check"), "intact")
                self.ends(process)
            with self.subTest(function=function, error=error, engine="both"), self.aside(faults) as process:
                state, answer = self.ask(process, "yield", "engine=both")
                if function == "GetState":
                    self.assertEqual(state, "error")
                else:  # what the pool has is away already
                    self.assertIn("this stays: all else, since ", answer["text"])
                    self.assertEqual(self.tell(process, "used"), str(CONTEXT))
                    self.asked(process, "restore")
                self.assertEqual(self.tell(process, "check"), "intact")
                self.ends(process)

    def test_what_is_freed_while_the_driver_refuses(self) -> None:
        """The gate is shut by then: the frees are put off, and carried out although it stays."""
        slowly = {"SIMCUDA_FAIL": "cuCheckpointProcessCheckpoint:1:304", "SIMCUDA_CHECKPOINT_MS": "3000"}
        for engine in ENGINES:
            with self.subTest(engine), self.aside(slowly) as process, self.connect(process) as client:
                client.sendall(f"yield\tengine={engine}\n".encode())
                self.until(process, "moving out")
                time.sleep(0.7)  # the pool's part is away, and the driver about to be locked
                self.assertEqual(self.tell(process, "drop"), "done")
                self.assertEqual(self.phase(process), "moving out", "too late for this test")
                self.reply_on(client)
                self.assertLess(self.allocated(process), 2 << 20)
                self.ends(process)

    def allocated(self, process: subprocess.Popen[bytes]) -> int:
        return int(self.asked(process, "status")["gpus"][0]["allocated_bytes"])

    def test_without_nvml(self) -> None:
        with self.aside({"LD_LIBRARY_PATH": ":".join(self.layout.library_path)}) as process:
            self.refused_and_goes_on(process, "driver", "NVML (libnvidia-ml.so.1) does not tell")
            self.ends(process)

    def test_a_call_of_the_driver_that_does_not_return(self) -> None:
        """One that nobody interposes: the lock's own time-out is over, and all goes on."""
        with self.aside() as process:
            self.tell(process, "close")
            self.assertIn("in time", self.refused(process, "engine=driver", "timeout=1"))
            self.tell(process, "open")
            self.goes_on(process)

    @unittest.skipUnless(os.geteuid() == 0, "needs the rights to be another user")
    def test_what_right_is_missing(self) -> None:
        """A process that is not dumpable lets nobody of its user's look at it."""
        nobody = 65534
        script = ("import ctypes, os, sys\nos.setgid(int(sys.argv[2]))\nos.setuid(int(sys.argv[2]))\n"
                  "cuda, libc = ctypes.CDLL('libcuda.so.1'), ctypes.CDLL(None)\n"
                  "assert libc.prctl(4, int(sys.argv[1]), 0, 0, 0) == 0\n"
                  "context, address = ctypes.c_void_p(), ctypes.c_uint64()\n"
                  "assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
                  "assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(address), 5 << 20) == 0\n"
                  "print('ready', flush=True)\nsys.stdin.readline()\n")
        (self.work / "shared").write_bytes(bytes(4096))
        (self.work / "shared").chmod(0o666)
        driver = self.work / "driver"
        shutil.copytree(self.layout.library_path[0], driver)
        libraries = f"{driver}:{self.layout.root / 'lib' / 'simnvml'}"
        for folder in (self.work, self.output, self.cwd, driver):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
        for dumpable in (0, 1):
            command = [sys.executable, "-B", "-c", script, str(dumpable), str(nobody)]
            with self.started({"MEMLAB_YIELD": "on", "LD_LIBRARY_PATH": libraries}, command) as process, \
                    socket.socket(socket.AF_UNIX) as client:
                self.assertEqual(self.line(process), "ready")
                client.settimeout(20)
                client.connect(f"\0memlab-{nobody}-{process.pid}")
                client.sendall(b"yield\tengine=driver\n")
                state, answer = self.reply_on(client)
                self.assertEqual(state, "ok" if dumpable else "error", answer)
                if dumpable:
                    client.sendall(b"restore\n")
                    self.assertEqual(self.reply_on(client)[0], "ok")
                else:
                    self.assertIn("the process is not dumpable", answer)
                self.ends(process)

    def test_a_process_that_adopts_orphans(self) -> None:
        script = ("import ctypes, sys\nassert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0\n"
                  "cuda = ctypes.CDLL('libcuda.so.1')\ncontext, address = ctypes.c_void_p(), ctypes.c_uint64()\n"
                  "assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
                  "assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(address), 5 << 20) == 0\n"
                  "print('ready', flush=True)\nsys.stdin.readline()\n")
        with self.started({"MEMLAB_YIELD": "on"}, [sys.executable, "-B", "-c", script]) as process:
            self.assertEqual(self.line(process), "ready")
            self.assertIn("adopts orphans", self.refused(process, "engine=driver"))
            self.ends(process)


class Helpers(Checkpointed):
    def test_what_the_program_sees_of_it(self) -> None:
        with self.aside() as process:
            descriptors = set(os.listdir(f"/proc/{process.pid}/fd"))
            self.assertEqual(self.tell(process, "children"), f"-1 {errno.ECHILD}")
            self.asked(process, "yield", "engine=driver")
            self.asked(process, "restore")
            self.assertEqual(self.tell(process, "children"), f"-1 {errno.ECHILD}")
            more = set(os.listdir(f"/proc/{process.pid}/fd")) - descriptors
            self.assertEqual({int(each) > 60 for each in more}, {True})  # memlab's, at high numbers
            [helper] = self.helpers(process)
            self.assertEqual(sorted(os.listdir(f"/proc/{helper}/fd"))[:3], ["0", "1", "2"])
            for each in Path(f"/proc/{helper}/fd").iterdir():
                target = os.readlink(each)
                self.assertTrue(target in ("/dev/null", str(self.work / "shared")) or target.startswith(("socket:", "/memfd:")),
                                target)
            self.assertNotEqual(os.getsid(helper), os.getsid(process.pid))
            process.kill()
            process.wait()
            self.until_helpers_end([helper])

    def test_it_is_killed_while_the_program_sleeps(self) -> None:
        for engine in ENGINES:
            with self.subTest(engine), self.aside() as process:
                self.asked(process, "yield", f"engine={engine}")
                self.assertEqual(self.kill_helpers(process), 1)
                self.asked(process, "restore")
                self.assertEqual(self.tell(process, "check"), "intact")
                self.goes_on(process)

    def test_it_is_killed_at_any_moment(self) -> None:
        for seed in range(ROUNDS):
            chance = random.Random(seed)
            slow = {"SIMCUDA_CHECKPOINT_MS": str(chance.randrange(10, 60))}
            with self.subTest(seed=seed), self.aside(slow) as process:
                self.asked(process, "yield", "engine=driver", "prepare")
                if chance.random() < 0.5:
                    self.tell(process, "churn")
                for _ in range(3):
                    killer = threading.Timer(chance.random() / 8, self.kill_helpers, (process,))
                    killer.start()
                    state, answer = self.ask(process, "yield", f"engine={chance.choice(ENGINES)}", "timeout=5")
                    if chance.random() < 0.5:
                        killer.join()
                    if state == "ok":
                        self.assertEqual(self.asked(process, "status")["step_aside"]["phase"], "asleep")
                        self.asked(process, "restore")
                    self.assertEqual(self.phase(process), "running", answer)
                    killer.join()
                self.assertEqual(self.tell(process, "still"), "intact")
                self.assertEqual(self.tell(process, "check"), "intact")
                self.ends(process)

    def test_the_program_is_killed_at_any_moment(self) -> None:
        for seed in range(ROUNDS):
            chance = random.Random(1000 + seed)
            (self.work / "shared").unlink(missing_ok=True)  # a process that is killed keeps what it has in these books
            slow = {"SIMCUDA_CHECKPOINT_MS": str(chance.randrange(5, 40))}
            with self.subTest(seed=seed), self.aside(slow) as process:
                self.asked(process, "yield", "engine=driver", "prepare")
                helpers = self.helpers(process)
                threading.Timer(chance.random() / 8, process.kill).start()
                while process.poll() is None:
                    with contextlib.suppress(OSError, ValueError):
                        self.ask(process, *random.choice([("yield", "engine=driver"), ("yield", "engine=both"), ("restore",)]))
                self.until_helpers_end(helpers)


class Ends(Checkpointed):
    def test_exit_and_signals_while_it_is_away(self) -> None:
        for how in ("exits", "late", "term", "kill"):
            with self.subTest(how), self.aside() as process:
                if how == "late":
                    self.tell(process, "late")
                self.asked(process, "yield", "engine=driver")
                helpers = self.helpers(process)
                begin = time.monotonic()
                if how in ("exits", "late"):
                    self.send(process, "exits")
                else:
                    process.send_signal(signal.SIGTERM if how == "term" else signal.SIGKILL)
                code = process.wait(timeout=30)
                self.assertLess(time.monotonic() - begin, SOON)
                self.assertEqual(code, {"term": -signal.SIGTERM, "kill": -signal.SIGKILL}.get(how, 0))
                self.assertEqual((self.output / f"memlab.steps_aside.{process.pid}.json").exists(), how in ("exits", "late"))
                self.until_helpers_end(helpers)

    def test_what_was_freed_is_no_leak(self) -> None:
        with self.aside() as process:
            self.asked(process, "yield", "engine=driver")
            self.assertEqual(self.tell(process, "drop"), "done")
            self.send(process, "exits")
            self.assertEqual(process.wait(timeout=30), 0)
        (path,) = self.output.glob("*.json")
        (gpu,) = json.loads(path.read_text(encoding="utf-8"))["devices"]
        self.assertEqual(gpu["kinds"]["device"]["live_bytes"], 1 << 20, gpu["kinds"])

    def test_fork_while_it_is_away(self) -> None:
        with self.aside() as process:
            self.asked(process, "yield", "engine=driver")
            self.assertEqual(self.tell(process, "forks"), "the child runs")
            self.asked(process, "restore")
            self.assertEqual(self.tell(process, "check"), "intact")
            self.ends(process)

    def test_a_restore_that_fails(self) -> None:
        with self.aside({"SIMCUDA_FIRST_RESTORE": "1"}) as process:  # somebody else was faster
            self.asked(process, "yield", "engine=driver")
            self.asked(process, "restore")
            self.assertEqual(self.tell(process, "check"), "intact")
            self.goes_on(process)
        for stuck in ("2", "3"):
            with self.subTest(stuck), self.aside({"SIMCUDA_FIRST_RESTORE": stuck}) as process:
                self.asked(process, "yield", "engine=driver")
                for _ in range(2):
                    self.says_lost(process)
                self.assertIn("; lost: the driver could not restore it, end the process",
                              self.ctl(str(process.pid)).stdout)
                process.terminate()
                _, stderr = process.communicate(timeout=10)
                self.assertEqual(process.returncode, -signal.SIGTERM)
                self.assertIn(b"memlab: this process is lost: the driver could not bring its GPU memory back", stderr)


if __name__ == "__main__":
    unittest.main()
