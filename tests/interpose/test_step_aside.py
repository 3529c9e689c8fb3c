"""Yield and restore (docs/step-aside.md): a program's memory leaves the GPU and comes back, whatever the program does
meanwhile, and nothing that keeps it from stepping aside keeps it from going on.

MEMLAB_TEST_RUNS is how many random runs of yields, restores and kills of either side there are (6).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Iterator
from pathlib import Path

from support import Build, ROOT
from test_cgroups import may_mount
from test_live import Asked

ROUNDS = int(os.environ.get("MEMLAB_TEST_RUNS", "6"))
YIELD = {"MEMLAB_YIELD": "on"}
# What gives up memory or is answered without it, is about memory that stays, or takes no address.
ANSWERED = re.compile(r"cuMem(Free|Unmap|AddressFree|AddressReserve|GetAddressRange|Advise|RangeGet|PoolExportPointer)\w*"
                      r"|cuIpcCloseMemHandle|cuPointerGetAttributes?"
                      r"|cuGraph\w*(Kernel|Host|ExternalSemaphores\w*)Node\w*|cuGraph\w*GetParams\w*")
SOON = 10  # seconds: what waits for nothing, on a machine that has much else to do


class StepAside(Asked):
    """A program that can step aside, told what to do by its standard input."""

    @contextlib.contextmanager
    def aside(self, more: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        with self.started(YIELD | (more or {}), self.program("steps_aside")) as process:
            self.assertEqual(self.line(process), "ready")
            yield process

    @staticmethod
    def send(process: subprocess.Popen[bytes], word: str) -> None:
        assert process.stdin is not None
        process.stdin.write(word.encode() + b"\n")
        process.stdin.flush()

    @staticmethod
    def says_nothing(process: subprocess.Popen[bytes], seconds: float) -> bool:
        assert process.stdout is not None
        return not select.select([process.stdout], [], [], seconds)[0]

    def refused(self, process: subprocess.Popen[bytes], *words: str) -> str:
        state, text = self.ask(process, "yield", *words)
        self.assertEqual(state, "error", text)
        return str(text)

    def phase(self, process: subprocess.Popen[bytes]) -> str:
        return str(self.asked(process, "status")["step_aside"]["phase"])

    def until(self, process: subprocess.Popen[bytes], phase: str) -> None:
        for _ in range(1000):
            if self.phase(process) == phase:
                return
            time.sleep(0.02)
        self.fail(f"not {phase}: {self.phase(process)}")

    def goes_on(self, process: subprocess.Popen[bytes]) -> None:
        """After a yield that was refused: the gate is open, everything is as it was, and it can step aside again."""
        self.assertEqual(self.phase(process), "running")
        self.assertEqual(self.tell(process, "check"), "intact")
        self.asked(process, "yield")
        self.asked(process, "restore")
        self.assertEqual(self.tell(process, "check"), "intact")
        self.ends(process)


class Moves(StepAside):
    def test_contents_and_addresses(self) -> None:
        with self.aside() as process:
            before = [self.tell(process, word) for word in ("where", "used")]
            self.assertGreater(int(before[1]), 12)
            answer = self.asked(process, "yield")
            self.assertGreater(answer["bytes"], 12 << 20)
            self.assertRegex(answer["text"], r"^moved .* MiB of GPU memory to the host in \d+\.\d\d s$")
            self.assertEqual(self.tell(process, "used"), "0")
            self.assertEqual(self.phase(process), "asleep")
            self.send(process, "check")
            self.assertTrue(self.says_nothing(process, 0.3))
            self.assertEqual(self.asked(process, "status")["step_aside"]["waiting"], 1)
            back = self.asked(process, "restore")
            self.assertEqual(back["bytes"], answer["bytes"])
            self.assertEqual(self.line(process), "intact")
            self.assertEqual(self.tell(process, "where"), before[0])
            self.assertEqual(self.phase(process), "running")
            self.assertEqual(self.ask(process, "restore"), ("error", "nothing of this process is away"))
            self.ends(process)

    def test_many_times_while_threads_work(self) -> None:
        with self.aside() as process:
            self.tell(process, "churn")
            moved = 0
            for _ in range(10):
                moved += self.asked(process, "yield", "timeout=10")["bytes"]
                count = self.tell(process, "count")
                time.sleep(0.02)
                self.assertEqual(self.tell(process, "count"), count)
                self.asked(process, "restore")
                time.sleep(0.01)
            self.assertGreater(moved, 100 << 20)
            self.assertEqual(self.tell(process, "still"), "intact")
            self.assertEqual(self.tell(process, "check"), "intact")
            self.ends(process)

    def test_what_is_answered_while_it_is_away(self) -> None:
        with self.aside() as process:
            before = self.tell(process, "asks")
            self.asked(process, "yield")
            self.assertEqual(self.tell(process, "asks"), before)
            self.assertEqual(self.tell(process, "free"), "done")
            self.asked(process, "restore")
            self.assertEqual(self.tell(process, "check"), "intact")
            self.assertEqual(self.tell(process, "more"), "done")
            self.assertEqual(self.tell(process, "check"), "intact")
            moved = self.asked(process, "yield")["bytes"]
            self.assertEqual(self.tell(process, "drop"), "done")
            self.assertLess(self.asked(process, "restore")["bytes"], moved)  # what was freed does not come back
            self.assertEqual(self.tell(process, "more"), "done")
            self.assertEqual(self.tell(process, "check"), "intact")
            self.ends(process)

    def test_what_is_asked_when_it_is_back(self) -> None:
        """Access to memory, of which nobody can say anything while it is away."""
        with self.aside() as process:
            before = self.tell(process, "access")
            self.assertEqual(before, "0 3")
            self.asked(process, "yield")
            self.send(process, "access")
            self.assertTrue(self.says_nothing(process, 0.2))
            self.asked(process, "restore")
            self.assertEqual(self.line(process), before)
            self.goes_on(process)

    def test_an_export_waits(self) -> None:
        """Whoever gets the handle may open it at once."""
        with self.aside() as process:
            self.asked(process, "yield")
            self.send(process, "hands")
            self.assertTrue(self.says_nothing(process, 0.2))
            self.asked(process, "restore")
            self.assertEqual(self.line(process), "0")
            self.goes_on(process)

    def test_what_names_memory_waits(self) -> None:
        """Every function of <cuda.h> that gives the driver an address waits, and what takes memory."""
        functions = [name for name in self.naming_memory() if not ANSWERED.fullmatch(name)]
        self.assertGreater(len(functions), 100)
        functions += ["cuGraphClone", "cuGraphAddChildGraphNode", "cuGraphExecChildGraphNodeSetParams",
                      "cuModuleGetFunction", "cuLibraryGetModule", "cuKernelGetFunction", "cuFuncLoad",
                      "cuGreenCtxCreate"]
        with self.aside() as process:
            self.asked(process, "yield")
            for name in functions:
                self.send(process, f"makes {name}")
            waiting = 0
            for _ in range(100):
                waiting = self.asked(process, "status")["step_aside"]["waiting"]
                if waiting == len(functions) or not self.says_nothing(process, 0.1):
                    break
            passed = "" if self.says_nothing(process, 0) else self.line(process)
            self.assertEqual((waiting, passed), (len(functions), ""))
            self.asked(process, "restore")
            self.assertEqual(sorted(self.line(process) for _ in functions), sorted(functions))
            self.assertEqual(self.tell(process, "check"), "intact")
            self.ends(process)

    def naming_memory(self) -> list[str]:
        header = json.loads((self.layout.root / "tests" / "support" / "cuda_header.json").read_text(encoding="utf-8"))
        address = re.compile(r"\bCUdeviceptr(_v1)? \w+|\bCUDA_\w+_NODE_PARAMS\b|\bCUgraphNodeParams\b")
        return sorted(name for name, parameters in header["exported"].items() if address.search(parameters))

    def test_a_context_that_is_made_waits(self) -> None:
        """One that is there already is retained at once."""
        with self.aside({"SIMCUDA_DEVICES": "2"}) as process:
            self.asked(process, "yield")
            self.assertEqual(self.tell(process, "retains 0"), "0")
            self.send(process, "retains 1")
            self.assertTrue(self.says_nothing(process, 0.3))
            self.asked(process, "restore")
            self.assertEqual(self.line(process), "0")
            self.goes_on(process)

    def test_what_is_asked_at_any_moment(self) -> None:
        with self.aside() as process:
            self.tell(process, "polls")
            for _ in range(20):
                self.asked(process, "yield", "timeout=10")
                self.asked(process, "restore")
            self.assertEqual(self.tell(process, "polled"), "right")
            self.goes_on(process)

    def test_calls_that_wait_for_the_device(self) -> None:
        """They leave the driver alone while the device is drained, and are answered at once behind that."""
        with self.aside() as process:
            before = self.tell(process, "waits")
            self.assertTrue(before.startswith("0 0 0 "), before)
            self.tell(process, "close")
            with self.connect(process) as client:
                client.sendall(b"yield\ttimeout=60\n")
                self.until(process, "draining")
                self.send(process, "idle")
                self.assertTrue(self.says_nothing(process, 0.3))
                self.asked(process, "restore")
                self.assertEqual(self.reply_on(client)[0], "error")
            self.assertEqual(self.line(process), "0")
            self.tell(process, "open")
            self.asked(process, "yield")
            calls = [self.tell(process, f"calls {name}") for name in ("cuCtxSynchronize", "cuEventSynchronize")]
            self.assertEqual(self.tell(process, "waits"), before)
            self.assertEqual([self.tell(process, f"calls {name}") for name in ("cuCtxSynchronize",
                                                                               "cuEventSynchronize")], calls)
            self.asked(process, "restore")
            self.assertEqual(self.tell(process, "waits"), before)
            self.goes_on(process)

    def test_what_another_gpu_copies(self) -> None:
        """Access of other devices is as before, also what was granted while the memory was away."""
        for early in (True, False):
            with self.subTest(early=early), self.aside({"SIMCUDA_DEVICES": "2"}) as process:
                if early:
                    self.assertEqual(self.tell(process, "peer"), "intact")
                self.asked(process, "yield")
                self.send(process, "peer")
                self.assertTrue(self.says_nothing(process, 0.2))
                self.asked(process, "restore")
                self.assertEqual(self.line(process), "intact")
                self.asked(process, "yield")
                self.asked(process, "restore")
                self.assertEqual(self.tell(process, "peer"), "intact")
                self.ends(process)

    def test_a_part(self) -> None:
        with self.aside() as process:
            used = int(self.tell(process, "used"))
            self.asked(process, "yield", "keep=8MiB")
            kept = int(self.tell(process, "used"))
            self.assertTrue(0 < kept <= 8 < used, kept)
            self.asked(process, "restore")
            self.assertIn("takes the number", self.refused(process, "gpu=x"))
            self.assertIn("no memory of memlab's pool", self.refused(process, "gpu=3"))
            self.assertIn("engine= takes", self.refused(process, "engine=other"))
            for engine in ("driver", "both"):
                self.assertIn("--keep and --device go with the pool's engine alone",
                              self.refused(process, f"engine={engine}", "keep=8MiB"))
            self.goes_on(process)

    def test_what_stays(self) -> None:
        """By kind, size and place."""
        with self.aside() as process:
            self.assertNotIn("staying", self.asked(process, "status")["step_aside"])
            for size in ("1", "1", "2"):
                self.tell(process, f"async {size}")
            stays = r"async_pool 4\.00 MiB \(4\.00 MiB from .*steps_aside\+0x[0-9a-f]+\)"
            self.assertRegex(self.refused(process), f"stays: {stays}\\.")
            self.assertRegex(self.asked(process, "yield", "engine=pool")["text"], f"; this stays: {stays}$")
            aside = self.asked(process, "status")["step_aside"]
            self.assertEqual(aside["staying_bytes"], 4 << 20)
            (one,) = aside["staying"]
            self.assertEqual((one["kind"], one["gpu"], one["bytes"], one["count"]), ("async_pool", 0, 4 << 20, 3))
            self.assertRegex(self.ctl(str(process.pid)).stdout, r"stays +async_pool 4\.00 MiB of GPU 0 from .*steps_aside")
            self.asked(process, "restore")
            self.assertEqual(self.tell(process, "check"), "intact")
            self.ends(process)

    def test_what_stays_in_python(self) -> None:
        """The largest few places, then a sum."""
        script = self.work / "takes.py"
        sizes = (5, 4, 3, 2, 1)
        script.write_text("import ctypes, sys\ncuda = ctypes.CDLL('libcuda.so.1')\n"
                          "context, address = ctypes.c_void_p(), ctypes.c_uint64()\n"
                          "assert cuda.cuInit(0) == 0\n"
                          "assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
                          "assert cuda.cuCtxSetCurrent(context) == 0\n" +
                          "".join(f"assert cuda.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t({size} << 20), "
                                  "None) == 0\n" for size in sizes) +
                          "print('ready', flush=True)\nsys.stdin.readline()\n")
        with self.started(YIELD, [sys.executable, "-B", str(script)]) as process:
            self.assertEqual(self.line(process), "ready")
            places = ", ".join(f"{size}.00 MiB from {script}:{line} in <module>"
                               for size, line in zip(sizes[:3], (7, 8, 9), strict=True))
            self.assertIn(f": async_pool 15.00 MiB ({places}, 3.00 MiB from 2 other places)", self.refused(process))
            aside = self.asked(process, "status")["step_aside"]
            self.assertEqual([each["bytes"] >> 20 for each in aside["staying"]], list(sizes))
            self.ends(process)

    def test_managed_memory(self) -> None:
        """It goes to the host as far as there is room, and back to where it was to be."""
        with self.aside() as process:
            for word in ("managed 4", "anywhere 3", "managed 2"):
                self.tell(process, word)
            self.assertEqual(self.tell(process, "places"), " 0 -2 0")
            text = self.asked(process, "yield")["text"]
            self.assertIn("; sent 9.00 MiB of managed memory after it", text)
            self.assertEqual(self.tell(process, "places"), " -1 -1 -1")
            self.assertIn("and 6.00 MiB of managed memory", self.asked(process, "restore")["text"])
            self.assertEqual(self.tell(process, "places"), " 0 -1 0")
            self.goes_on(process)
        with self.aside({"SIMCUDA_CONCURRENT_MANAGED": "0"}) as process:
            self.tell(process, "managed 4")
            self.assertNotIn("managed", self.asked(process, "yield")["text"])
            self.assertNotIn("managed", self.asked(process, "restore")["text"])
            self.assertEqual(self.tell(process, "places"), " 0")
            self.goes_on(process)

    def test_to_a_file(self) -> None:
        folder = self.work / "kept"
        folder.mkdir()
        with self.aside() as process:
            answer = self.asked(process, "yield", f"to=disk:{folder}")
            self.assertIn(f"to {folder}", answer["text"])
            self.assertEqual(list(folder.iterdir()), [])
            descriptors = Path(f"/proc/{process.pid}/fd")
            opened = [os.readlink(each) for each in descriptors.iterdir()]
            self.assertTrue(any(str(folder) in each for each in opened), opened)
            self.asked(process, "restore")
            self.assertEqual(self.tell(process, "check"), "intact")
            opened = [os.readlink(each) for each in descriptors.iterdir()]
            self.assertFalse(any(str(folder) in each for each in opened), opened)
            self.assertIn("no file can be made", self.refused(process, "to=disk:/nonexistent"))
            self.goes_on(process)

    def test_a_file_that_cannot_be_read(self) -> None:
        """It waits, as for memory, and says so."""
        with self.aside() as process:
            self.asked(process, "yield", f"to=disk:{self.work}")
            (file,) = [each for each in Path(f"/proc/{process.pid}/fd").iterdir() if str(self.work) in os.readlink(each)
                       and "(deleted)" in os.readlink(each)]
            os.truncate(file, 0)
            with self.connect(process) as client:
                client.sendall(b"restore\n")
                assert process.stderr is not None
                self.assertTrue(select.select([process.stderr], [], [], 40)[0])
                self.assertIn(b"its contents could not be copied (the file could not be read); it tries again",
                              process.stderr.readline())
            self.assertEqual(self.phase(process), "moving in")

    def test_a_file_where_room_is_not_given_in_advance(self) -> None:
        for error in (errno.EOPNOTSUPP, errno.ENOSYS):
            with self.subTest(os.strerror(error)), self.aside() as process:
                self.assertEqual(self.tell(process, f"forbid {error}"), "done")
                self.asked(process, "yield", f"to=disk:{self.work}")
                self.assertEqual(self.tell(process, "used"), "0")
                self.asked(process, "restore")
                self.assertEqual(self.tell(process, "check"), "intact")
                self.goes_on(process)

    def test_by_memlab_ctl(self) -> None:
        folder = self.work / "kept"
        folder.mkdir()
        with self.aside() as process:
            pid = str(process.pid)
            for options in ((), ("--keep", "4MiB"), ("--keep=4MiB", "--device", "0"), ("--to", f"disk:{folder}"),
                            ("keep=4MiB", "--timeout", "5", "--engine=pool")):
                moved = self.ctl(pid, "yield", *options)
                self.assertEqual((moved.returncode, moved.stderr), (0, ""), options)
                self.assertRegex(moved.stdout, "^moved .* of GPU memory to ")
                self.assertEqual(self.tell(process, "used") != "0", any("4MiB" in option for option in options))
                self.assertRegex(self.ctl(pid).stdout, r"aside +asleep, .* MiB away, 0 threads waiting")
                self.assertRegex(self.ctl(pid, "restore").stdout, "^moved .* back to the GPU")
                self.assertEqual(self.tell(process, "check"), "intact")
            self.assertRegex(self.ctl(pid, "yield", "--prepare").stdout, "^prepared ")
            for options in (("--keep",), ("--keep", "x"), ("--to", "somewhere"), ("--nothing",)):
                self.assertEqual(self.ctl(pid, "yield", *options).returncode, 2, options)
            self.ends(process)

    def test_prepared(self) -> None:
        with self.aside() as process:
            self.assertRegex(self.asked(process, "yield", "prepare")["text"], "^prepared .* of host memory")
            self.assertEqual(self.tell(process, "check"), "intact")
            for word in ("more", "free"):  # beyond what was prepared, and within
                self.assertGreater(self.asked(process, "yield")["bytes"], 1 << 20)
                self.assertEqual(self.tell(process, "used"), "0")
                self.assertEqual(self.ask(process, "yield", "prepare")[0], "error")
                self.asked(process, "restore")
                self.assertEqual(self.tell(process, word), "done")
                self.assertEqual(self.tell(process, "check"), "intact")
            self.goes_on(process)

    @unittest.skipIf(Build.sanitizer, "a sanitizer's heap keeps what is freed")
    def test_the_host_memory_is_given_back(self) -> None:
        with self.aside() as process:
            self.asked(process, "yield")
            self.asked(process, "restore")  # what the first time alone takes: stages, threads' stacks
            before = self.host_memory(process)
            for _ in range(3):
                self.asked(process, "yield")
                self.asked(process, "restore")
            self.assertEqual(self.tell(process, "check"), "intact")
            self.assertLess(abs(self.host_memory(process) - before), (1 << 20) + before // 100)
            self.ends(process)

    @staticmethod
    def host_memory(process: subprocess.Popen[bytes]) -> int:
        """The anonymous memory of the process that is resident, in bytes."""
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) << 10

    def test_by_the_program(self) -> None:
        with self.aside() as process:
            self.assertEqual(self.tell(process, "yields"), "0")
            self.assertEqual(self.tell(process, "used"), "0")
            self.assertEqual(self.tell(process, "check"), "intact")  # the first work brings it back
            self.assertEqual(self.tell(process, "yields"), "0")
            self.assertEqual(self.tell(process, "restores"), "0")
            self.assertEqual(self.tell(process, "restores"), "-1")
            self.ends(process)
        with self.started({}, self.program("steps_aside")) as process:
            self.assertEqual(self.line(process), "ready")
            self.assertEqual(self.tell(process, "yields"), "-1")
            self.ends(process)

    def test_by_pythons_courtesy(self) -> None:
        script = ("import ctypes, sys, warnings\nsys.path.insert(0, sys.argv[1])\nimport memlab\n"
                  "warnings.simplefilter('error')\n"
                  "cuda = ctypes.CDLL('libcuda.so.1')\nhost = ctypes.create_string_buffer(b'x' * 5000)\n"
                  "context, address = ctypes.c_void_p(), ctypes.c_uint64()\n"
                  "assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
                  "assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(address), 5000) == 0\n"
                  "assert cuda.cuMemcpyHtoD_v2(address, host, 5000) == 0\n"
                  "used = lambda: cuda.simcuda_used() >> 20\ncuda.simcuda_used.restype = ctypes.c_uint64\n"
                  "def check():\n    back = ctypes.create_string_buffer(5000)\n"
                  "    assert cuda.cuMemcpyDtoH_v2(back, address, 5000) == 0 and back.raw == host.raw[:5000]\n"
                  "courtesy = memlab.Courtesy()\nassert courtesy.yield_memory() and used() == 0, used()\n"
                  "assert courtesy.restore() and used() > 0 and not courtesy.restore()\ncheck()\n"
                  "with memlab.Courtesy():\n    assert used() == 0\ncheck()\n"
                  "with memlab.Courtesy():\n    check()\ncheck()\n")
        command = [sys.executable, "-B", "-c", script, str(ROOT / "python")]
        outcome = self.under_memlab(command, YIELD)
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        outcome = self.under_memlab(command)
        self.assertIn(b"NotMovedWarning: the GPU's memory was not moved: it was started without MEMLAB_YIELD=on",
                      outcome.stderr)
        with_block = "import warnings\nwarnings.simplefilter('always')\nwith memlab.Courtesy():\n    pass\n"
        outcome = self.under_memlab([*command[:-2], script.split("courtesy =")[0] + with_block, command[-1]])
        self.assertRegex(outcome.stderr.decode(), r"<string>:\d+: NotMovedWarning")  # the program's line, not memlab's

    def test_segments_of_pytorchs_cache(self) -> None:
        """They come from the pool then, and the recording knows its tensors as always."""
        held = []
        for settings in ({}, YIELD):
            with self.started(settings | {"PYTHONHASHSEED": "0"}, self.trained_nn_modules()) as process:
                self.line(process)
                self.assertEqual(self.line(process), "ready")
                status = self.asked(process, "status")["gpus"][0]
                held.append((status["tensor_bytes"], status["max_tensor_bytes"]))
                if settings:
                    self.assertGreaterEqual(self.asked(process, "yield")["bytes"], status["tensor_bytes"])
                    self.asked(process, "restore")
                self.ends(process)
        self.assertEqual(held[0], held[1])

    def test_by_a_signal(self) -> None:
        with self.aside({"MEMLAB_YIELD_ON": "SIGUSR2"}) as process:
            for phase in ("asleep", "running", "asleep", "running"):
                process.send_signal(signal.SIGUSR2)
                self.until(process, phase)
            self.assertEqual(self.tell(process, "check"), "intact")
            self.ends(process)

    def test_waits_for_memory(self) -> None:
        with self.aside({"SIMCUDA_FAIL": "cuMemCreate:30:2,cuMemCreate:31:2,cuMemCreate:32:2"}) as process:
            for _ in range(4):
                self.asked(process, "yield")
                self.asked(process, "restore")
                self.assertEqual(self.tell(process, "check"), "intact")
            self.ends(process)

    def test_what_keeps_it_away_is_said_once(self) -> None:
        with self.aside() as process:
            self.asked(process, "yield")
            for nth in range(1, 1000):
                self.tell(process, f"fail cuMemHostAlloc {nth}")
            restoring = threading.Thread(target=self.asked, args=(process, "restore"))
            restoring.start()
            assert process.stderr is not None
            self.assertTrue(select.select([process.stderr], [], [], 30)[0])
            said = process.stderr.readline().decode()
            self.assertEqual(self.phase(process), "moving in")
            self.tell(process, "fail cuMemHostAlloc 0")
            restoring.join()
            self.assertEqual(self.tell(process, "check"), "intact")
            self.ends(process)
            said += process.stderr.read().decode()
            self.assertEqual(said, "memlab: this process waits to come back: its contents could not be copied (no pinned "
                                   "memory for copies (error 999)); it tries again\n")

    def test_waits_while_another_process_has_the_memory(self) -> None:
        shared = {"SIMCUDA_SHARED": str(self.work / "shared"), "SIMCUDA_MEMORY": "100MiB"}
        with self.aside(shared) as process:
            self.asked(process, "yield")
            with self.started(YIELD | shared) as other:  # of asked.cpp
                taken = [self.tell(other, "allocate") for _ in range(90)]
                self.assertEqual(set(taken), {"done"})
                begin = time.monotonic()
                self.assertIn("waits for GPU memory", self.asked(process, "restore")["text"])
                self.assertLess(time.monotonic() - begin, SOON)
                aside = self.asked(process, "status")["step_aside"]
                self.assertEqual((aside["phase"], aside["short_of_memory"]), ("moving in", True))
                self.send(process, "check")
                self.assertTrue(self.says_nothing(process, 0.3))
                self.assertEqual(self.ask(process, "yield")[0], "error")
                self.tell(other, "free")
                self.asked(other, "empty-cache")
                self.assertEqual(self.line(process), "intact")
                self.ends(other)
            self.ends(process)

    def test_a_communicator_with_ranks_elsewhere(self) -> None:
        script = ("import ctypes, sys\nsys.path.insert(0, sys.argv[1])\nimport memlab\n"
                  "cuda, nccl = ctypes.CDLL('libcuda.so.1'), ctypes.CDLL('libnccl.so.2')\n"
                  "context, address = ctypes.c_void_p(), ctypes.c_uint64()\n"
                  "assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
                  "assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(address), 5000) == 0\n"
                  "ranks = int(sys.argv[2])\ncomms = (ctypes.c_void_p * ranks)()\n"
                  "assert nccl.ncclCommInitAll(comms, ranks, None) == 0\n"
                  "for comm in comms[:int(sys.argv[3])]:\n"
                  "    assert nccl.ncclAllReduce(None, None, ctypes.c_size_t(0), 0, 0, ctypes.c_void_p(comm), None) == 0\n"
                  "courtesy = memlab.Courtesy()\nprint(courtesy.yield_memory())\n")
        libraries = ":".join([*self.layout.library_path, str(self.layout.root / "lib" / "simnccl")])
        for ranks, used, away in (("1", "1", b"True"), ("2", "1", b"False")):
            for settings in ({}, {"MEMLAB_LEDGER": "off"}):
                command = [sys.executable, "-B", "-c", script, str(ROOT / "python"), ranks, used]
                outcome = self.under_memlab(command, YIELD | settings | {"LD_LIBRARY_PATH": libraries})
                self.assertEqual((outcome.code, outcome.stdout.strip()), (0, away), outcome.describe())
                self.assertEqual(b"NCCL communicator has ranks in other processes" in outcome.stderr, away == b"False")


class OwnHandles(StepAside):
    """Physical memory that the program creates and maps itself."""

    @contextlib.contextmanager
    def owner(self, more: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        with self.started(YIELD | (more or {}), self.program("own_handles")) as process:
            self.assertEqual(self.line(process), "ready")
            yield process

    def right(self, process: subprocess.Popen[bytes], words: str) -> None:
        self.assertEqual(self.tell(process, words), "right", words)

    def yields(self, process: subprocess.Popen[bytes], *words: str) -> int:
        """How much left; 0 where there is nothing."""
        state, document = self.ask(process, "yield", *words)
        if state == "error":
            self.assertRegex(document, "nothing is left to move|no other can be moved")
            return 0
        return int(document["bytes"])

    def test_the_driver_does_what_the_model_says(self) -> None:
        words = "".join(f"random {seed} 60\ncheck\nanswered {seed} 10\ncheck\n" for seed in range(8)) + "clear\nused\n"
        environment = self.layout.environment(memlab=False, settings={"SIMCUDA_DEVICES": "2"})
        outcome = subprocess.run(self.program("own_handles"), input=words, env=environment, cwd=self.cwd,
                                 capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(outcome.stdout.split(), ["ready", *["right"] * 33, "0"], outcome.stderr)

    def test_against_a_model(self) -> None:
        for seed in range(ROUNDS):
            with self.subTest(seed=seed), self.owner({"SIMCUDA_DEVICES": str(1 + seed % 2)}) as process:
                chance = random.Random(seed)
                moved = 0
                for turn in range(4):
                    self.right(process, f"random {chance.randrange(1 << 30)} {chance.randrange(5, 40)}")
                    used = int(self.tell(process, "used"))
                    keep = ["keep=6MiB"] if chance.random() < 0.3 else []
                    left = self.yields(process, *keep)
                    moved += left
                    self.assertEqual(int(self.tell(process, "used")), used - (left >> 20))
                    self.assertTrue(keep or left >> 20 == used, (left, used))
                    if chance.random() < 0.7:
                        self.right(process, f"answered {chance.randrange(1 << 30)} {chance.randrange(1, 25)}")
                    if left:
                        self.asked(process, "restore")
                    self.right(process, "check")
                self.assertGreater(moved, 0)
                self.right(process, "clear")
                self.assertEqual(self.tell(process, "used"), "0")
                self.ends(process)

    def test_threads_that_go_on_at_random(self) -> None:
        """And kills: nothing else can be lost."""
        for seed in range(ROUNDS):
            with self.subTest(seed=seed), self.owner({"SIMCUDA_DEVICES": str(1 + seed % 2)}) as process:
                chance = random.Random(seed)
                self.right(process, f"churn {seed}")
                for _ in range(chance.randrange(2, 8)):
                    self.ask(process, "yield", "timeout=5", *(["keep=6MiB"] if chance.random() < 0.3 else []))
                    time.sleep(chance.random() / 50)
                    self.ask(process, "restore")
                    time.sleep(chance.random() / 50)
                if chance.random() < 0.2:
                    threading.Timer(chance.random() / 20, process.kill).start()
                    while process.poll() is None:
                        with contextlib.suppress(OSError, ValueError):
                            self.ask(process, random.choice(["yield", "restore"]))
                    continue
                self.right(process, "still")
                self.assertEqual(self.tell(process, "used"), "0")
                self.ends(process)

    def test_what_needs_the_memory_waits(self) -> None:
        with self.owner() as process:
            self.right(process, "random 1 30")
            self.assertGreater(self.yields(process), 0)
            self.send(process, "check")
            self.assertTrue(self.says_nothing(process, 0.2))
            self.asked(process, "restore")
            self.assertEqual(self.line(process), "right")
            self.ends(process)

    def test_a_forked_child_has_none_of_it(self) -> None:
        with self.owner() as process:
            self.right(process, "random 1 30")
            self.right(process, "forks")
            self.assertGreater(self.yields(process), 0)
            self.right(process, "forks")
            self.asked(process, "restore")
            self.right(process, "check")
            self.ends(process)

    def test_what_was_exported_stays(self) -> None:
        for word in ("exports", "range"):
            with self.subTest(word), self.owner() as process:
                self.exported_stays(process, word)

    def exported_stays(self, process: subprocess.Popen[bytes], word: str) -> None:
        self.right(process, "random 1 30")
        everything = self.yields(process)
        self.asked(process, "restore")
        self.right(process, word)
        aside = self.asked(process, "status")["step_aside"]
        self.assertEqual([each["kind"] for each in aside["staying"]], ["vmm"])
        self.assertEqual(self.yields(process, "engine=pool"), everything - aside["staying_bytes"])
        self.asked(process, "restore")
        self.right(process, "check")
        self.right(process, "clear")
        self.assertEqual(self.tell(process, "used"), "0")
        self.ends(process)

    def test_nccls_own_stays(self) -> None:
        script = ("import ctypes, sys\nsys.path.insert(0, sys.argv[1])\nimport memlab\n"
                  "cuda = ctypes.CDLL('libcuda.so.1')\ncontext, address = ctypes.c_void_p(), ctypes.c_uint64()\n"
                  "assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
                  "assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(address), 5000) == 0\n"
                  "used = lambda: cuda.simcuda_used() >> 20\ncuda.simcuda_used.restype = ctypes.c_uint64\n"
                  "library = ctypes.CDLL(sys.argv[2])\nassert library.nccl_allocates(16)\n"
                  "memlab.Courtesy().yield_memory()\nprint(used())\n")
        library = self.layout.program("libnccl-allocates.so")
        other = self.work / "libother.so"
        shutil.copy(library, other)
        for each, left in ((library, "34"), (other, "0")):
            outcome = self.under_memlab([sys.executable, "-B", "-c", script, str(ROOT / "python"), str(each)], YIELD)
            self.assertEqual((outcome.code, outcome.stdout.decode().strip()), (0, left), outcome.describe())

    def test_prepared_and_to_a_file(self) -> None:
        with self.owner() as process:
            self.right(process, "random 1 40")
            size = self.yields(process)
            self.asked(process, "restore")
            self.assertEqual(self.asked(process, "yield", "prepare")["bytes"], size)
            for words in ([], [f"to=disk:{self.work}"]):
                self.assertEqual(self.yields(process, *words), size)
                self.assertEqual(self.tell(process, "used"), "0")
                self.asked(process, "restore")
                self.right(process, "check")
            self.ends(process)

    def test_waits_for_memory_and_failing_calls(self) -> None:
        """Whatever fails, it goes on as before, or comes back whole."""
        for function in ("cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemRelease",
                         "cuMemAddressReserve", "cuMemRetainAllocationHandle", "cuMemcpyDtoHAsync",
                         "cuMemcpyHtoDAsync", "cuMemGetAllocationPropertiesFromHandle"):
            for nth in (1, 2, 3, 5, 8, 13):
                with self.subTest(function=function, nth=nth), self.owner() as process:
                    self.right(process, "random 3 30")
                    self.right(process, f"fail {function} {nth}")
                    state, _ = self.ask(process, "yield")
                    if state == "ok":
                        self.asked(process, "restore")
                    self.assertEqual(self.phase(process), "running")
                    self.right(process, f"fail {function} 0")
                    self.right(process, "check")
                    self.right(process, "clear")
                    self.assertEqual(self.tell(process, "used"), "0")
                    self.ends(process)

    def test_its_contexts_end_meanwhile(self) -> None:
        """A context for the copies is made when it comes back, which may fail at first."""
        for devices in ("1", "2"):
            with self.subTest(devices), self.started(YIELD | {"SIMCUDA_DEVICES": devices},
                                                     self.program("own_handles")) as process:
                self.line(process)
                self.right(process, "random 8 60")
                self.assertGreater(self.yields(process), 0)
                self.right(process, "leaves")
                self.right(process, "fail cuDevicePrimaryCtxRetain 1")
                self.asked(process, "restore")
                self.assertEqual(self.phase(process), "running")
                self.right(process, "returns")
                self.right(process, "check")
                self.right(process, "clear")
                self.ends(process)

    def test_the_recording_is_the_same(self) -> None:
        kinds = []
        for settings in ({}, YIELD):
            with self.started(settings, self.program("own_handles")) as process:
                self.line(process)
                self.right(process, "random 5 60")
                if settings:
                    self.assertGreater(self.yields(process), 0)
                    gpu = self.asked(process, "status")["gpus"][0]
                    self.assertEqual(gpu["reserved_bytes"], 0)
                    self.right(process, "answered 6 10")
                    self.asked(process, "restore")
                else:
                    self.right(process, "answered 6 10")
                self.right(process, "random 7 60")
                self.ends(process)
            path = self.output / f"memlab.own_handles.{process.pid}.json"
            derived = self.without_memlab([str(self.layout.tool("log_to_report")), str(path.with_suffix(".memlog"))])
            self.assertEqual(derived.stdout, path.read_bytes())
            report = json.loads(path.read_text())
            kinds.append(report["devices"][0]["kinds"]["vmm"])
            self.assertEqual(len(report["devices"][0].get("absences", [])), 1 if settings else 0)
        self.assertEqual(kinds[0], kinds[1])


class Recorded(StepAside):
    def test_what_the_recording_says(self) -> None:
        """Nothing is freed: what is reserved dips, and every view says when."""
        with self.aside() as process:
            self.asked(process, "yield", "keep=4MiB")
            self.tell(process, "free")
            gpu = self.asked(process, "status")["gpus"][0]
            self.assertLess(gpu["reserved_bytes"], gpu["allocated_bytes"])
            self.asked(process, "restore")
            gpu = self.asked(process, "status")["gpus"][0]
            self.assertGreaterEqual(gpu["reserved_bytes"], gpu["allocated_bytes"])
            self.asked(process, "yield")
            gpu = self.asked(process, "status")["gpus"][0]
            self.assertEqual((gpu["reserved_bytes"], gpu["total_bytes"]), (0, gpu["free_bytes"]))
            self.ends(process)
        path = self.output / f"memlab.steps_aside.{process.pid}.json"
        device = json.loads(path.read_text())["devices"][0]
        self.assertEqual([each["end_ns"] is None for each in device["absences"]], [False, True])
        for each in device["absences"]:
            self.assertGreater(each["bytes"], 1 << 20)
        curves = device["curves"]
        self.assertEqual((curves["reserved"]["at_end_bytes"], curves["device_used"]["at_end_bytes"]), (0, 0))
        self.assertEqual((device["kinds"]["device"]["count"], device["kinds"]["device"]["live_count"]), (13, 7))
        self.assertGreater(curves["allocated"]["at_end_bytes"], 1 << 20)
        report = str(self.layout.tool("memlab-report"))
        log = path.with_suffix(".memlog")
        derived = self.without_memlab([str(self.layout.tool("log_to_report")), str(log)])
        self.assertEqual(derived.stdout, path.read_bytes())
        for file in (path, log):
            shown = self.without_memlab([report, str(file)]).stdout.decode()
            self.assertIn("Its memory was away from the GPU (memlab-ctl yield) 2 times", shown)
            shown = self.without_memlab([report, "timeline", str(file)]).stdout.decode()
            self.assertRegex(shown, r"MiB of GPU 0 are away \(yield\)\n.*memory of GPU 0 is back \(restore\)")
            leaks = self.without_memlab([report, "leaks", str(file)]).stdout.decode()
            self.assertIn("in 7 allocations", leaks)


class Refuses(StepAside):
    def test_without_the_option_nothing_of_it_runs(self) -> None:
        with self.started({}, self.program("steps_aside")) as process:
            self.assertEqual(self.line(process), "ready")
            self.assertIn("MEMLAB_YIELD=on", self.refused(process))
            self.assertEqual(self.ask(process, "restore")[0], "error")
            self.assertEqual(self.phase(process), "off")
            without = self.threads_at_rest(process)
            self.ends(process)
        with self.aside() as process:
            self.assertEqual(self.phase(process), "running")
            self.assertEqual(self.threads_at_rest(process), without + 1)
            self.ends(process)

    @staticmethod
    def threads_at_rest(process: subprocess.Popen[bytes]) -> int:
        """How many there are once none has started or ended for a second."""
        counts: list[int] = []
        while len(counts) < 10 or len(set(counts[-10:])) != 1:
            counts.append(len(os.listdir(f"/proc/{process.pid}/task")))
            time.sleep(0.1)
        return counts[-1]

    def test_work_that_does_not_end(self) -> None:
        for word in ("close", "queue", "fills"):
            with self.subTest(word), self.aside({"SIMCUDA_QUEUE": "4"}) as process:
                self.tell(process, word)
                begin = time.monotonic()
                self.assertIn("in time", self.refused(process, "timeout=1"))
                self.assertTrue(0.9 < time.monotonic() - begin < SOON)
                self.tell(process, "open")
                self.goes_on(process)

    def test_others_are_answered_meanwhile(self) -> None:
        """However long an order takes; and one to come back ends one to leave."""
        with self.aside() as process:
            self.tell(process, "close")
            with self.connect(process) as client, self.connect(process) as gone:
                client.sendall(b"yield\ttimeout=60\nstatus\n")
                self.until(process, "draining")
                self.assertIn("another order is under way", self.refused(process, "timeout=60"))
                gone.sendall(b"sites\n")
                gone.close()
                self.assertEqual(self.asked(process, "restore")["text"], "called it back before anything was moved")
                self.assertEqual(self.reply_on(client), ("error", "it was called back"))
                self.assertEqual(self.reply_on(client)[1]["step_aside"]["phase"], "running")
            self.tell(process, "open")
            self.goes_on(process)

    def test_a_host_function_that_waits_for_a_thread_at_the_gate(self) -> None:
        with self.aside() as process:
            self.tell(process, "locks")
            self.refused(process, "timeout=1")
            self.assertEqual(self.tell(process, "still"), "intact")
            self.goes_on(process)

    def test_work_that_waits_for_another_process(self) -> None:
        """By an event of that."""
        with self.aside() as other, self.aside() as process:
            handle = self.tell(other, "shares")
            self.assertEqual(self.tell(process, f"awaits {handle}"), "done")
            self.assertIn("in time", self.refused(process, "timeout=1"))
            self.assertIn("in time", self.refused(other, "timeout=1"))
            self.tell(other, "open")
            self.goes_on(process)
            self.goes_on(other)

    def test_a_host_function_that_submits(self) -> None:
        with self.aside() as process:
            self.send(process, "submits")
            self.ask(process, "yield", "timeout=1")
            self.ask(process, "restore")
            self.assertEqual(self.line(process), "done")
            self.goes_on(process)

    def test_mps(self) -> None:
        folder = self.work / "mps"
        folder.mkdir()
        with self.aside({"CUDA_MPS_PIPE_DIRECTORY": str(folder)}) as process:
            self.asked(process, "yield")
            self.asked(process, "restore")
            (folder / "control").touch()
            self.assertEqual(self.refused(process), "the GPU is shared by MPS")
            (folder / "control").unlink()
            self.goes_on(process)

    @contextlib.contextmanager
    def aside_where(self, *mounts: str, command: list[str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """As aside(), in a mount namespace of its own in which these shell commands were run."""
        script = " && ".join([*mounts, f"exec {shlex.join(command or self.program('steps_aside'))}"])
        with self.started(YIELD, ["unshare", "-rm", "sh", "-c", script]) as process:
            self.assertEqual(self.line(process), "ready")
            yield process

    @unittest.skipUnless(may_mount(), "private mount namespaces are not permitted here")
    def test_what_reaches_gpu_memory_on_its_own(self) -> None:
        """RDMA other than NCCL's, GDRCopy, GPUDirect Storage, once their devices are open."""
        devices = self.work / "dev"
        (devices / "infiniband").mkdir(parents=True)
        for name in ("infiniband/uverbs0", "gdrdrv", "nvidia-fs0", "null"):
            (devices / name).touch()
        mount = f"mount --bind {devices} /dev"
        for name, what in (("infiniband/uverbs0", "RDMA"), ("gdrdrv", "GDRCopy"),
                           ("nvidia-fs0", "GPUDirect Storage")):
            with self.subTest(what), self.aside_where(mount) as process:
                self.asked(process, "yield")
                self.asked(process, "restore")
                self.assertEqual(self.tell(process, f"opens /dev/{name}"), "done")
                begin = time.monotonic()
                self.assertEqual(self.refused(process, "timeout=60"),
                                 f"{what} is in use, which reaches GPU memory on its own")
                self.assertLess(time.monotonic() - begin, SOON)
                self.assertEqual(self.tell(process, "check"), "intact")
                self.ends(process)
        nccl = next((self.layout.root / "lib" / "simnccl").glob("libnccl.so*"))
        for preload, away in ((f"{nccl}", True), (f"{nccl}:{self.layout.program('libucp.so.0')}", False)):
            command = ["sh", "-c", f"LD_PRELOAD=$LD_PRELOAD:{preload} exec {self.program('steps_aside')[0]}"]
            with self.subTest(preload), self.aside_where(mount, command=command) as process:
                self.assertEqual(self.tell(process, "opens /dev/infiniband/uverbs0"), "done")
                state, text = self.ask(process, "yield")
                self.assertEqual(state == "ok", away, text)

    @unittest.skipUnless(may_mount(), "private mount namespaces are not permitted here")
    def test_too_little_host_memory(self) -> None:
        """Of the machine, and by memory.max of the process's cgroup."""
        files = self.work / "files"
        group = files / "fs" / "pod"
        group.mkdir(parents=True)
        (files / "meminfo").write_text("MemTotal: 65536000 kB\nMemFree: 900 kB\nMemAvailable:    9000 kB\n")
        (files / "cgroup").write_text("0::/pod\n")
        (files / "mountinfo").write_text(f"30 1 0:27 / {files}/fs rw shared:4 - cgroup2 cgroup2 rw\n")
        (group / "memory.max").write_text(f"{30 << 20}\n")
        (group / "memory.current").write_text(f"{25 << 20}\n")
        in_group = [f"mount --bind {files}/{name} /proc/$$/{name}" for name in ("cgroup", "mountinfo")]
        for mounts, room in (([f"mount --bind {files}/meminfo /proc/meminfo"], "8.79 MiB"), (in_group, "5.00 MiB")):
            with self.subTest(room), self.aside_where(*mounts) as process:
                text = self.refused(process)
                self.assertRegex(text, f"^the host has only {room} of memory available for [0-9.]+ MiB$")
                self.assertIn("not enough memory", self.refused(process, "prepare"))
                disk = self.work / "disk"
                disk.mkdir(exist_ok=True)
                self.asked(process, "yield", f"to=disk:{disk}")
                self.asked(process, "restore")
                self.assertEqual(self.tell(process, "check"), "intact")
                self.ends(process)

    def test_nvshmem(self) -> None:
        """Loaded it is with every PyTorch; its heap is another matter."""
        library = str(self.layout.program("libnvshmem_host.so.3"))
        for status, away in (("0", True), ("1", True), ("2", False), ("4", False)):
            preload = self.layout.environment(memlab=True)["LD_PRELOAD"]
            settings = {"LD_PRELOAD": f"{preload}:{library}", "FAKE_NVSHMEM_STATUS": status, "MEMLAB_BACKEND": "vmm"}
            with self.subTest(status), self.aside(settings) as process:
                state, text = self.ask(process, "yield")
                self.assertEqual(state == "ok", away, text)
                self.assertEqual("NVSHMEM is in use" in str(text), not away)

    def test_a_capture(self) -> None:
        with self.aside() as process:
            self.tell(process, "captures")
            begin = time.monotonic()
            self.assertIn("captured", self.refused(process, "timeout=60"))
            self.assertLess(time.monotonic() - begin, SOON)
            self.tell(process, "captured")
            self.goes_on(process)

    def test_each_failing_call_of_the_driver(self) -> None:
        """On the way out it goes on as if nothing had been; on the way back it still comes back."""
        for function in ("cuCtxRecordEvent", "cuEventCreate", "cuEventQuery", "cuMemGetAddressRange_v2",
                         "cuMemHostAlloc", "cuStreamCreate", "cuMemcpyDtoHAsync", "cuStreamSynchronize", "cuMemUnmap",
                         "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemcpyHtoDAsync"):
            for nth in (1, 2, 3, 5, 8, 13, 21):
                with self.subTest(function=function, nth=nth), self.aside() as process:
                    if self.tell(process, f"fail {function} {nth}") != "done":
                        self.fail("cannot inject")
                    state, _ = self.ask(process, "yield")
                    if state == "ok":
                        self.asked(process, "restore")
                    self.assertEqual(self.phase(process), "running")
                    self.assertEqual(self.tell(process, "check"), "intact")
                    self.ends(process)


class Ends(StepAside):
    def test_exit_and_signals_while_it_is_away(self) -> None:
        for how in ("exits", "term", "kill"):
            with self.subTest(how), self.aside() as process:
                self.asked(process, "yield")
                begin = time.monotonic()
                if how == "exits":
                    self.send(process, "exits")
                else:
                    process.send_signal(signal.SIGTERM if how == "term" else signal.SIGKILL)
                code = process.wait(timeout=30)
                self.assertLess(time.monotonic() - begin, SOON)
                self.assertEqual(code, {"exits": 0, "term": -signal.SIGTERM, "kill": -signal.SIGKILL}[how])

    def test_exit_with_a_thread_at_the_gate(self) -> None:
        with self.aside() as process:
            self.asked(process, "yield")
            self.send(process, "thread")
            while self.asked(process, "status")["step_aside"]["waiting"] != 1:
                pass
            begin = time.monotonic()
            self.send(process, "exits")
            self.assertEqual(process.wait(timeout=30), 0)
            self.assertLess(time.monotonic() - begin, SOON)

    def test_exit_that_waits_for_a_thread_at_the_gate(self) -> None:
        with self.aside() as process:
            self.asked(process, "yield")
            self.send(process, "joins")
            self.assertTrue(self.says_nothing(process, 0.2))
            self.send(process, "exits")
            self.assertFalse(self.says_nothing(process, 40), "both wait for good")
            self.assertEqual(self.line(process), "4")  # CUDA_ERROR_DEINITIALIZED
            self.assertEqual(process.wait(timeout=30), 0)

    @unittest.skipIf(Build.sanitizer, "a forced unwind does not get through a sanitizer's build of the gate")
    def test_a_thread_that_ends_at_the_gate_waits_no_longer(self) -> None:
        for way in ("quit", "cancel"):
            with self.subTest(way=way), self.aside() as process:
                self.asked(process, "yield")
                self.tell(process, "quits")
                self.until_waiting(process, 1)
                self.assertEqual(self.tell(process, way), "ended")
                self.until_waiting(process, 0)
                self.assertEqual(self.phase(process), "asleep")
                self.asked(process, "restore")
                self.goes_on(process)

    def until_waiting(self, process: subprocess.Popen[bytes], threads: int) -> None:
        waiting = -1
        for _ in range(200):
            waiting = self.asked(process, "status")["step_aside"]["waiting"]
            if waiting == threads:
                return
            time.sleep(0.02)
        self.assertEqual(waiting, threads)

    def test_fork_while_it_is_away(self) -> None:
        with self.aside() as process:
            self.asked(process, "yield")
            self.assertEqual(self.tell(process, "forks"), "the child runs")
            self.asked(process, "restore")
            self.assertEqual(self.tell(process, "check"), "intact")
            self.ends(process)

    def test_a_handler_of_the_program_brings_it_back(self) -> None:
        with self.aside() as process:
            self.tell(process, "handles")
            self.asked(process, "yield")
            self.send(process, "check")
            self.assertTrue(self.says_nothing(process, 0.3))
            process.send_signal(signal.SIGUSR1)
            self.assertEqual(self.line(process), "intact")
            self.ends(process)

    def test_a_handler_that_waits_at_the_gate_itself(self) -> None:
        with self.aside() as process:
            self.tell(process, "works")
            self.asked(process, "yield")
            self.send(process, "check")
            self.assertTrue(self.says_nothing(process, 0.3))
            process.send_signal(signal.SIGUSR1)
            self.assertFalse(self.says_nothing(process, 20), "the handler waits for its own return")
            self.assertEqual(self.line(process), "intact")
            self.goes_on(process)


class Storm(StepAside):
    def test_yields_restores_and_kills_at_random(self) -> None:
        for seed in range(ROUNDS):
            with self.subTest(seed=seed), self.aside() as process:
                chance = random.Random(seed)
                if chance.random() < 0.7:
                    self.tell(process, "churn")
                for _ in range(chance.randrange(1, 8)):
                    what = chance.random()
                    if what < 0.45:
                        self.ask(process, "yield", "timeout=5", *(["keep=4MiB"] if chance.random() < 0.3 else []))
                    elif what < 0.9:
                        self.ask(process, "restore")
                    else:  # a client that asks and goes
                        with self.connect(process) as client:
                            client.sendall(b"yield\n" if chance.random() < 0.5 else b"restore\n")
                            time.sleep(chance.random() / 100)
                    time.sleep(chance.random() / 50)
                if chance.random() < 0.3:
                    threading.Timer(chance.random() / 20, process.kill).start()
                    self.ask_until_it_ends(process)
                    continue
                self.wait_until_running(process)
                self.assertEqual(self.tell(process, "still"), "intact")
                self.assertEqual(self.tell(process, "check"), "intact")
                self.ends(process)

    def ask_until_it_ends(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            with contextlib.suppress(OSError, ValueError):
                self.ask(process, random.choice(["yield", "restore"]))

    def wait_until_running(self, process: subprocess.Popen[bytes]) -> None:
        for _ in range(100):
            if self.phase(process) == "running":
                return
            self.ask(process, "restore")
            time.sleep(0.05)
        self.fail("it does not come back")


if __name__ == "__main__":
    unittest.main()
