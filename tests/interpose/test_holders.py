"""Who holds a GPU's memory: memlab-ctl holders and memlab-top beside real programs on the simulated driver."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import unittest
from pathlib import Path
from typing import Any

from test_live import Asked

MIB = 1 << 20


class Holders(Asked):
    def run_tool(self, tool: str, *arguments: str, nvml: str | None = None, **settings: str) -> str:
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "COLUMNS": "120"} | self.settings(settings)
        if nvml is not None:
            environment |= {"LD_LIBRARY_PATH": str(self.layout.root / "lib" / "simnvml"), "SIMNVML_PROCESSES": nvml}
        done = subprocess.run([str(self.layout.tool(tool)), *arguments], env=environment, cwd=self.cwd,
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    @staticmethod
    def of(document: dict[str, Any], pid: int) -> dict[str, Any]:
        (found,) = [process for gpu in document["gpus"] for process in gpu["processes"] if process["pid"] == pid]
        return found

    def test_programs_with_and_without_memlab(self) -> None:
        with contextlib.ExitStack() as stack:
            process = stack.enter_context(self.started())
            other = stack.enter_context(subprocess.Popen(["sleep", "600"]))
            stack.callback(other.kill)
            nvml = f"{process.pid}:500,{other.pid}:2048"
            text = self.run_tool("memlab-ctl", "holders", nvml=nvml)
            self.assertRegex(text, rf"(?m)^ +500\.00 MiB +{process.pid}  \S+/asked$")
            self.assertRegex(text, r"(?m)^ +memlab: allocated 3\.00 MiB .*, reserved 4\.00 MiB, 1 allocation$")
            self.assertRegex(text, r"(?m)^ +3\.00 MiB  tests/programs/asked\.cpp:\d+  main$")
            self.assertRegex(text, rf"(?m)^ +2\.00 GiB +{other.pid}  sleep 600$")
            document = json.loads(self.run_tool("memlab-ctl", "holders", "--json", nvml=nvml))
            mine = self.of(document, process.pid)
            self.assertEqual((mine["bytes"], mine["memlab"]["allocated_bytes"]), (500 * MIB, 3 * MIB))
            self.assertEqual((mine["parent"], mine["parent_gone"], mine["zombie"]), (os.getpid(), False, False))
            self.assertIsNone(self.of(document, other.pid)["memlab"])
            self.ends(process)

    def test_memlab_top_follows_a_program(self) -> None:
        with self.started() as process:
            def allocated() -> int:
                document = json.loads(self.run_tool("memlab-top", "--json"))
                (found,) = [each for each in document["processes"] if each["pid"] == process.pid]
                self.assertIn("asked.cpp", found["sites"][0]["place"]["file"])
                return int(found["gpus"][0]["memlab"]["allocated_bytes"])

            self.assertEqual(allocated(), 3 * MIB)
            self.tell(process, "allocate")
            self.assertEqual(allocated(), 4 * MIB)
            self.ends(process)

    def test_a_zombie_and_a_worker_that_was_left(self) -> None:
        # The shell ends at once: its child is init's then, or another adopter's.
        left = subprocess.run(
            ["sh", "-c", "python3 -c 'import time; time.sleep(600)' --multiprocessing-fork >/dev/null 2>&1 & echo $!"],
            capture_output=True, text=True, check=True)
        worker = int(left.stdout)
        self.addCleanup(os.kill, worker, signal.SIGKILL)
        zombie = os.fork()
        if zombie == 0:
            os._exit(0)
        self.addCleanup(os.waitpid, zombie, 0)
        while not re.search(r"State:\s+Z", Path(f"/proc/{zombie}/status").read_text()):
            time.sleep(0.01)
        document = json.loads(self.run_tool("memlab-ctl", "holders", "--json", nvml=f"{worker}:1,{zombie}:1"))
        self.assertTrue(self.of(document, zombie)["zombie"])
        self.assertIn(f"kill {os.getpid()}", self.of(document, zombie)["advice"][0])
        parent = Path(f"/proc/{self.of(document, worker)['parent']}/comm").read_text().strip()
        if self.of(document, worker)["parent"] == 1 or parent in ("systemd", "init", "tini"):
            self.assertEqual(self.of(document, worker)["advice"], [f"the parent of this worker is gone: kill {worker}"])

    def test_what_nvml_does_not_tell(self) -> None:
        with self.started() as process:
            text = self.run_tool("memlab-ctl", "holders")
            self.assertIn("NVML says nothing", text)
            self.assertIn("asked", text)
            text = self.run_tool("memlab-ctl", "holders", nvml=f"{process.pid}:unknown")
            self.assertIn("This driver does not tell how much each process holds", text)
            self.ends(process)

    def test_an_nvml_that_hangs_keeps_nobody_waiting(self) -> None:
        with self.started() as process:
            begin = time.monotonic()
            text = self.run_tool("memlab-ctl", "holders", nvml=f"{process.pid}:500", SIMNVML_MILLISECONDS="30000")
            self.assertLess(time.monotonic() - begin, 25)
            self.assertIn("NVML does not answer within 5 s", text)
            self.assertIn("asked.cpp", text)
            self.ends(process)

    def test_what_asks_nvml_ends_with_memlab_top(self) -> None:
        environment = self.settings({"LD_LIBRARY_PATH": str(self.layout.root / "lib" / "simnvml"),
                                     "SIMNVML_PROCESSES": "1:1", "PATH": "/usr/bin:/bin"})
        top = subprocess.Popen([str(self.layout.tool("memlab-top")), "--listen", "127.0.0.1:0", "--interval", "0.2"],
                               env=environment, stderr=subprocess.PIPE, text=True)
        assert top.stderr is not None
        top.stderr.readline()

        def children() -> list[int]:
            tasks = Path(f"/proc/{top.pid}/task").glob("*/children")
            return [int(pid) for task in tasks for pid in task.read_text().split()]

        end = time.monotonic() + 10
        while not children() and time.monotonic() < end:
            time.sleep(0.05)
        (child,) = children()
        top.kill()
        top.communicate()
        while Path(f"/proc/{child}").exists() and time.monotonic() < end + 10:
            if re.search(r"State:\s+Z", Path(f"/proc/{child}/status").read_text()):
                return  # nobody waits for it here
            time.sleep(0.05)
        self.assertFalse(Path(f"/proc/{child}").exists())

    def test_programs_do_not_mind_that_memlab_top_is_killed(self) -> None:
        with self.started() as process:
            for _ in range(20):
                top = subprocess.Popen([str(self.layout.tool("memlab-top")), "--listen", "127.0.0.1:0", "--interval",
                                        "0.1"], env=self.settings({"PATH": "/usr/bin:/bin"}), stderr=subprocess.DEVNULL)
                time.sleep(0.05)
                top.kill()
                top.wait()
            self.assertEqual(self.asked(process, "status")["pid"], process.pid)
            self.ends(process)


if __name__ == "__main__":
    unittest.main()
