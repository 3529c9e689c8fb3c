"""Limits of the process's cgroup: as a reason for an out-of-memory, in the ledger and in --doctor. The files are a fake
hierarchy in the test's folder; a private mount namespace lets /proc/self/cgroup and mountinfo lead there."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import unittest

from harness import Outcome, judge_recordings, run
from support import Build, EndToEnd

MIB = 1 << 20
GIB = 1 << 30
# The second allocation, also when memlab tries once more.
FAULTS = "cuMemAlloc:2:2,cuMemAlloc:3:2,cuMemAlloc:4:2"


def may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run(["unshare", "-rm", "sh", "-c", "mount --bind /dev/null /proc/$$/cgroup"], check=False,
                           capture_output=True)
    return tried.returncode == 0


@unittest.skipUnless(may_mount(), "private mount namespaces are not permitted here")
class Cgroups(EndToEnd):
    """tests/programs/out_of_memory.cpp and ledger.cpp in a fake cgroup. GPU 0 of the simulated driver is 0000:01:00.0."""

    def setUp(self) -> None:
        super().setUp()
        self.tree = self.work / "fs"
        self.place("0::/pods/one\n", "/")
        (self.tree / "pods/one").mkdir(parents=True)

    def place(self, cgroup: str, root: str) -> None:
        (self.work / "cgroup").write_text(cgroup, encoding="ascii")
        (self.work / "mountinfo").write_text(
            f"22 1 0:21 / /proc rw - proc proc rw\n30 1 0:27 {root} {self.tree} rw shared:4 - cgroup2 cgroup2 rw\n",
            encoding="ascii")

    def limit(self, group: str, **files: int | str) -> None:
        for name, value in files.items():
            (self.tree / group / f"dmem.{name}").write_text(
                f"drm/0000:02:00.0/vram0 1\ndrm/0000:01:00.0/vram0 {value}\n", encoding="ascii")

    def inside(self, command: list[str]) -> list[str]:
        script = (f"mount --bind {self.work}/cgroup /proc/$$/cgroup && mount --bind {self.work}/mountinfo "
                  f"/proc/$$/mountinfo && exec {shlex.join(command)}")
        return ["unshare", "-rm", "sh", "-c", script]

    def under(self, command: list[str], settings: dict[str, str] | None = None) -> Outcome:
        """Under memlab, except unshare and the shell."""
        environment = self.layout.environment(memlab=True, settings=settings, output=self.output)
        inner = ["env", f"LD_PRELOAD={environment.pop('LD_PRELOAD')}", *command]
        return run(self.inside(inner), environment, self.cwd, 60)

    def report(self) -> dict:
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        self.assertEqual(len(found), 1)
        self.found = found[0]
        return self.found.report

    def page(self, view: str) -> str:
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), view, str(self.found.report_path)])
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        return " ".join(outcome.stdout.decode().split())

    # ---- out of memory --------------------------------------------------------------------------

    def run_out(self, settings: dict[str, str] | None = None) -> dict:
        """The simulated driver fails an allocation of the program; the device has memory."""
        outcome = self.under(self.program("limited_by_group"), (settings or {}) | {"SIMCUDA_FAIL": FAULTS,
                                                                                  "MEMLAB_POOL": "off"})
        self.assertEqual(outcome.code, 0, outcome.describe())
        self.assertEqual(outcome.stdout, b"second: 2\n")
        self.stderr = " ".join(outcome.stderr.decode().replace("memlab:", "").split())
        [oom] = self.report()["ooms"]
        return oom

    def test_the_tightest_limit_is_the_reason(self) -> None:
        self.limit("pods/one", max=4 * GIB, current=512 * MIB)
        self.limit("pods", max=2 * GIB, current=2 * GIB - 100 * MIB)
        self.limit("", capacity=8 * GIB)
        oom = self.run_out()
        self.assertEqual(oom["group_limits"], [{"source": "dmem", "group": "/pods", "limit_bytes": 2 * GIB,
                                                "used_bytes": 2 * GIB - 100 * MIB}])
        said = ("The cgroup /pods may have 2.00 GiB of it (dmem.max), and its processes have 1.90 GiB: 100.00 MiB are "
                "left")
        self.assertIn(said, self.page("oom"))
        self.assertIn(said, self.stderr)
        self.assertIn("by the cgroup's limit: the device itself has that much free.", self.page("oom"))
        self.assertEqual(oom["refused_by"], "cgroup")
        self.assertIn("A limit of 2.39 GiB for the cgroup /pods", self.page("oom"))

    def test_without_a_recording_it_is_said_too(self) -> None:
        self.limit("pods/one", max=GIB, current=GIB)
        outcome = self.under(self.program("limited_by_group"), {"SIMCUDA_FAIL": FAULTS, "MEMLAB_POOL": "off",
                                                               "MEMLAB_RECORD": "off"})
        self.assertIn("The cgroup /pods/one may have 1.00 GiB of it", " ".join(outcome.stderr.decode().split()))

    def test_what_does_not_limit_is_no_reason(self) -> None:
        for max_value in ("max", 7 * GIB, "nonsense", str(1 << 70)):
            with self.subTest(max_value):
                self.limit("pods/one", max=max_value, current=512 * MIB)
                self.run_out()
                self.assertNotIn("by the cgroup's limit", self.stderr)
                for path in self.output.iterdir():
                    path.unlink()

    def test_no_controller_and_no_place(self) -> None:
        for cgroup, root in (("0::/pods/one\n", "/"), ("0::/../elsewhere\n", "/"), ("", "/"), ("3:memory:/a\n", "/"),
                             ("0::/" + "x" * 70000 + "\n", "/"), ("0::/pods/one\n", "/other")):
            with self.subTest(cgroup[:30]):
                self.place(cgroup, root)
                self.assertNotIn("group_limits", self.run_out())
                for path in self.output.iterdir():
                    path.unlink()

    # ---- the ledger ---------------------------------------------------------------------------

    def witness(self, settings: dict[str, str]) -> dict:
        library = self.layout.root / "lib"
        outcome = self.under(self.program("ledger", "waits"), {
            "LD_LIBRARY_PATH": f"{library}/simcuda:{library}/simnvml", "MEMLAB_LEDGER": "on"} | settings)
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        return self.report()["devices"][0]["ledger"]["witnesses"][-1]

    def test_the_ledger_has_the_limits(self) -> None:
        self.limit("pods/one", max=4 * GIB, current=512 * MIB, min=GIB)
        self.limit("", capacity=8 * GIB)
        witness = self.witness({"SIMNVML_PROCESSES": "self:290", "SIMNVML_LIMITS": f"{self.tree}/pods/one:6000:1000:500"})
        self.assertEqual(witness["limits"], [
            {"source": "dmem", "group": "/pods/one", "limit_bytes": 4 * GIB, "used_bytes": 512 * MIB,
             "guaranteed_bytes": GIB, "capacity_bytes": 8 * GIB},
            {"source": "nvml", "group": "/pods/one", "limit_bytes": 6000 * MIB, "used_bytes": 500 * MIB,
             "guaranteed_bytes": 1000 * MIB}])
        page = self.page("ledger")
        self.assertIn("The cgroup /pods/one has 512.00 MiB of this GPU of the 4.00 GiB that it may have (dmem.max), 1.00 GiB "
                      "of it guaranteed.", page)
        self.assertIn("The cgroup /pods/one has 500.00 MiB of this GPU of the 5.86 GiB that it may have (by NVML)", page)

    def test_limits_are_known_without_nvml(self) -> None:
        self.limit("pods/one", max="max", current=512 * MIB)
        witness = self.witness({})
        self.assertEqual((witness["state"], witness["limits"]), ("absent", [
            {"source": "dmem", "group": "/pods/one", "limit_bytes": None, "used_bytes": 512 * MIB}]))
        self.assertIn("has 512.00 MiB of this GPU and no limit (dmem.max).", self.page("ledger"))

    def test_nvml_that_knows_no_limit(self) -> None:
        for limits in ({}, {"SIMNVML_LIMITS": "/sys/fs/cgroup/other:1:1:1"}, {"SIMNVML_LIMITS": f"{self.tree}/pods/one:1"}):
            with self.subTest(str(limits)):
                self.assertNotIn("limits", self.witness({"SIMNVML_PROCESSES": "self:290"} | limits))
                for path in self.output.iterdir():
                    path.unlink()

    @unittest.skipIf(os.readlink("/proc/self/ns/pid") != "pid:[4026531836]", "only there NVML's process ids are /proc's")
    def test_processes_are_told_apart(self) -> None:
        self.place(open("/proc/self/cgroup", encoding="ascii").read(), "/")
        own = subprocess.Popen(["sleep", "60"])
        self.addCleanup(own.wait)
        self.addCleanup(own.kill)
        witness = self.witness({"SIMNVML_PROCESSES": f"self:290,{own.pid}:10,4194000:5"})
        self.assertEqual((witness["group_processes"], witness["group_bytes"]), (1, 10 * MIB))
        self.assertEqual((witness["other_processes"], witness["other_bytes"]), (2, 15 * MIB))
        self.assertNotIn("foreign_processes", witness)
        self.assertIn("Of the others 1 process with 10.00 MiB of this process's cgroup, 1 process with 5.00 MiB of an "
                      "unknown cgroup.", self.page("ledger"))

    # ---- the doctor -----------------------------------------------------------------------------

    @unittest.skipIf(Build.sanitizer, "a sanitizer's runtime must be preloaded first")
    def test_the_doctor_says_what_limits(self) -> None:
        library = self.layout.root / "lib"
        settings = {"LD_LIBRARY_PATH": f"{library}/simcuda:{library}/simnvml", "SIMNVML_PROCESSES": "self:1",
                    "SIMNVML_LIMITS": f"{self.tree}/pods/one:6000:1000:500"}

        def limits(settings: dict[str, str]) -> list[dict]:
            # The doctor starts the library as a child, whose /proc/self is another: all of /proc is the shell's there.
            outcome = run(self.inside_all([str(self.layout.tool("memlab-run")), "--doctor", "--json"]),
                          self.layout.environment(memlab=False, settings=settings), self.cwd)
            self.assertEqual(outcome.code, 0, outcome.describe())
            return [each for each in json.loads(outcome.stdout)["machine"] if each["subject"] == "GPU limit"]

        self.limit("pods/one", max=4 * GIB, current=512 * MIB)
        found = limits(settings)
        self.assertEqual([each["weight"] for each in found], ["note", "note"])
        self.assertEqual(found[0]["fact"], "GPU 0: the cgroup /pods/one may have 4.00 GiB (dmem.max), its processes have "
                                           "512.00 MiB")
        self.assertIn("5.86 GiB (by NVML)", found[1]["fact"])
        self.limit("pods/one", max="max", current=0)
        [none] = limits({})
        self.assertEqual((none["weight"], none["fact"]), ("fine", "none: dmem sets none; NVML cannot tell (needs CUDA 13.4)"))

    def inside_all(self, command: list[str]) -> list[str]:
        """As inside(), for a command's children too: /proc/self leads to files of the test."""
        script = (f"mkdir -p {self.work}/proc/self && ln -sf {command[0]} {self.work}/proc/self/exe && cp {self.work}/cgroup {self.work}/mountinfo {self.work}/proc/self && "
                  f"mount --bind {self.work}/proc /proc && exec {shlex.join(command)}")
        return ["unshare", "-rm", "sh", "-c", script]
