"""CUPTI: the subscription, the names, the audit and the kernels, on the simulated CUPTI (tests/simcupti)."""

from __future__ import annotations

import dataclasses
import json
import shutil
import unittest
from pathlib import Path

from catalogue import CASES
from harness import (Found, Outcome, file_name, judge_recordings, run, run_case,
                     without_warnings)
from support import Build, EndToEnd


def without_explanations(stderr: bytes) -> bytes:
    """stderr less what memlab says of an allocation that is meant to fail."""
    explains = b"memlab: out of memory" in stderr
    return b"" if explains and not without_warnings(stderr) else stderr


class Cupti(EndToEnd):
    """Each run is judged as any other: report and log must say the same, whoever told them."""

    SONAME = "libcupti.so.13"
    VERSION = "CUPTI 13.0.1, "
    DRIVER: dict[str, str] = {}

    def setUp(self) -> None:
        super().setUp()
        self.layout = dataclasses.replace(
            self.layout, extra_environment=self.layout.extra_environment | self.DRIVER)

    def record(self, command: list[str], **settings: str) -> tuple[Outcome, Found]:
        self.output = self.work / f"out{len(list(self.work.iterdir()))}"
        outcome = self.under_memlab(command, settings)
        self.assertEqual((outcome.code, without_explanations(outcome.stderr)), (0, b""),
                         outcome.describe())
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        self.assertEqual(len(found), 1)
        return outcome, found[0]

    def apis(self, found: Found) -> set[str]:
        return {site["api"] for site in found.report["sites"]}

    def coverage(self, found: Found) -> dict:
        return found.report["coverage"]

    # ---- names

    def test_without_cupti_the_driver_function_is_named(self) -> None:
        _, found = self.record(self.program("runtime_api"))
        self.assertIn("cuMemAlloc_v2", self.apis(found))
        self.assertNotIn("cudaMalloc", self.apis(found))
        coverage = self.coverage(found)
        self.assertFalse(coverage["audited"])
        self.assertIn("MEMLAB_AUDIT", coverage["because"])
        self.assertEqual(coverage["cupti"], "")

    def test_with_cupti_the_function_that_was_called_is_named(self) -> None:
        _, found = self.record(self.program("runtime_api"), MEMLAB_CUPTI="on")
        apis = self.apis(found)
        for name in ("cudaMalloc", "cudaMallocPitch", "cudaMalloc3D", "cudaMallocManaged",
                     "cudaMallocAsync"):
            self.assertIn(name, apis)
        self.assertNotIn("cuMemAllocPitch_v2", apis)
        self.assertTrue(self.coverage(found)["cupti"].startswith(self.VERSION))

    def test_a_driver_program_keeps_its_names(self) -> None:
        _, found = self.record(self.program("malloc_free"), MEMLAB_CUPTI="on")
        self.assertEqual({name[:2] for name in self.apis(found)}, {"cu"})
        self.assertNotIn("cudaMalloc", self.apis(found))

    # ---- the audit

    def test_nothing_bypasses_memlab_in_an_ordinary_program(self) -> None:
        for program in ("malloc_free", "kinds", "threads", "runtime_api", "contents"):
            for pool in ("on", "off"):
                _, found = self.record(self.program(program), MEMLAB_AUDIT="on", MEMLAB_POOL=pool)
                coverage = self.coverage(found)
                self.assertEqual((coverage["audited"], coverage["because"]), (True, ""), program)
                self.assertEqual(coverage["bypassed"], [], program)
                self.assertGreater(coverage["driver_count"], 0, program)

    def test_memory_goes_back_without_the_free_that_cupti_crashes_in(self) -> None:
        outcome, _ = self.record(self.program("gives_way", "graph", "launch"), MEMLAB_AUDIT="on")
        self.assertEqual((outcome.code, outcome.stdout), (0, b"launch: 0\n"), outcome.describe())

    @unittest.skipIf(Build.sanitizer in ("address", "thread"), "the sanitizer refuses RTLD_DEEPBIND, which the bypass needs")
    def test_a_bypass_is_found_and_named(self) -> None:
        for asked in ({"MEMLAB_AUDIT": "on"}, {"MEMLAB_CUPTI": "on"}):
            outcome, found = self.record(self.program("bypass", "2"), **asked)
            self.assertEqual(outcome.stdout, b"bypassing: 2\n")
            coverage = self.coverage(found)
            self.assertTrue(coverage["audited"])
            self.assertEqual((coverage["bypassed_count"], coverage["bypassed_bytes"]), (2, 6 << 20))
            self.assertEqual([each["api"] for each in coverage["bypassed"]], ["cuMemAlloc_v2"])
            paths = self.modules_of(found, coverage["bypassed"][0]["stack"])
            self.assertIn("bypassing.so", paths)
            self.assertEqual(found.audit["bypassed"]["bytes"], 6 << 20)
            summary = run([str(self.layout.tool("memlab-report")), str(found.report_path)],
                          self.layout.environment(memlab=False), self.cwd)
            self.assertIn(b"2 allocations of 6.00 MiB bypassed memlab", summary.stdout)

    def modules_of(self, found: Found, stack: int) -> set[str]:
        report = found.report
        frames = [report["frames"][index] for index in report["stacks"][stack]["frames"]]
        return {Path(report["modules"][frame["module"]]["path"]).name for frame in frames}

    @unittest.skipIf(Build.sanitizer in ("address", "thread"), "the sanitizer refuses RTLD_DEEPBIND, which the bypass needs")
    def test_more_bypasses_than_a_buffer_holds(self) -> None:
        _, found = self.record(self.program("bypass", "5000"), MEMLAB_AUDIT="on")
        self.assertEqual(self.coverage(found)["bypassed_count"], 5000)

    @unittest.skipIf(Build.sanitizer, "a sanitizer's runtime must be preloaded first")
    def test_fail_on_bypass(self) -> None:
        tool = str(self.layout.tool("memlab-run"))
        environment = self.layout.environment(memlab=False)
        for program, code, words in (("bypass", 1, b"2 allocations of 6.00 MiB in bypass (pid "),
                                     ("contents", 0, b""), ("no_cuda", 0, b"")):
            outcome = run([tool, "--quiet", "--fail-on-bypass", "-o", f"{self.output}/", "--",
                           *self.program(program)], environment, self.cwd)
            self.assertEqual(outcome.code, code, outcome.describe())
            self.assertIn(words, outcome.stderr)
            self.assertLessEqual(outcome.stderr.count(b"\n"), 1)
        outcome = run([tool, "--quiet", "--fail-on-bypass", "-o", f"{self.output}/", "--",
                       *self.program("contents")], environment | {"SIMCUPTI_FAULT": "subscriber_already"}, self.cwd)
        self.assertEqual(outcome.code, 1, outcome.describe())
        self.assertIn(b"cannot tell whether memory bypassed memlab: contents", outcome.stderr)

    # ---- the subscription

    def test_what_goes_wrong_with_cupti_is_said_and_nothing_else_goes_wrong(self) -> None:
        for fault, words in (("subscriber_already", "Another tool is CUPTI's subscriber"),
                             ("old_version", "is CUPTI of CUDA 11 (API version 18); memlab uses those of"),
                             ("no_activity", "CUPTI could not be used"),
                             ("silent", "CUPTI delivered no record of an allocation")):
            _, found = self.record(self.program("contents"), MEMLAB_CUPTI="on", SIMCUPTI_FAULT=fault)
            coverage = self.coverage(found)
            self.assertFalse(coverage["audited"], fault)
            self.assertIn(words, coverage["because"])
            self.assertEqual(coverage["bypassed"], [])

    @unittest.skipIf(Build.sanitizer in ("address", "thread"), "the sanitizer refuses RTLD_DEEPBIND, which the bypass needs")
    def test_buffers_that_come_at_the_end_are_in_time(self) -> None:
        _, found = self.record(self.program("bypass"), MEMLAB_CUPTI="on", SIMCUPTI_FAULT="late")
        self.assertTrue(self.coverage(found)["audited"])
        self.assertEqual(self.coverage(found)["bypassed_count"], 2)

    def test_auto_leaves_cupti_to_others(self) -> None:
        _, found = self.record(self.program("contents"), MEMLAB_AUDIT="on",
                               CUDA_INJECTION64_PATH="/nonexistent/tool.so")
        self.assertIn("CUDA_INJECTION64_PATH is set", self.coverage(found)["because"])
        kineto = self.work / "libtorch_cpu.so"
        shutil.copy(self.layout.program("libucp.so.0"), kineto)
        preload = f"{self.layout.environment(memlab=True)['LD_PRELOAD']}:{kineto}"
        _, found = self.record(self.program("contents"), MEMLAB_AUDIT="on", LD_PRELOAD=preload)
        self.assertIn("kineto", self.coverage(found)["because"])
        _, found = self.record(self.program("contents"), MEMLAB_CUPTI="on", LD_PRELOAD=preload)
        self.assertTrue(self.coverage(found)["audited"])
        _, found = self.record(self.program("contents"), MEMLAB_CUPTI="off", MEMLAB_KERNELS="on")
        self.assertEqual(self.coverage(found)["because"], "MEMLAB_CUPTI=off.")
        summary = run([str(self.layout.tool("memlab-report")), str(found.report_path)],
                      self.layout.environment(memlab=False), self.cwd)
        self.assertIn(b"MEMLAB_KERNELS=on, but kernels and copies are missing: MEMLAB_CUPTI=off.",
                      b" ".join(summary.stdout.split()))

    def test_memlab_makes_way_for_another_subscriber(self) -> None:
        program = self.program("subscribes_itself", self.SONAME)
        native = self.without_memlab(program)
        self.assertIn(b"subscribe: 0\nenable: 0\nafter: 5\ncalls seen: 10\n", native.stdout)
        for settings in ({}, {"MEMLAB_AUDIT": "on"}, {"MEMLAB_CUPTI": "on"},
                         {"MEMLAB_KERNELS": "on"}):
            outcome, found = self.record(program, **settings)
            self.assertEqual(outcome.stdout, native.stdout)
            coverage = self.coverage(found)
            self.assertFalse(coverage["audited"])
            if settings:
                self.assertIn("Another profiler wants to be CUPTI's only subscriber", coverage["because"])
        # What was named until then stays named.
        _, found = self.record(program, MEMLAB_CUPTI="on")
        self.assertIn("cudaMalloc", self.apis(found))

    def test_another_subscriber_that_allows_for_it_sits_beside(self) -> None:
        if self.SONAME != "libcupti.so.13":
            self.skipTest("since CUPTI 13.3")
        newest = {"SIMCUPTI_SHARED": "130301", "SIMCUDA_DRIVER_VERSION": "13030"}
        beside = self.program("subscribes_itself", self.SONAME, "shared")
        alone = self.program("subscribes_itself", self.SONAME)
        native = self.without_memlab(beside, newest)
        self.assertIn(b"subscribe: 0\nenable: 0\nafter: 5\ncalls seen: 10\n", native.stdout)
        # Its place, this driver, this CUPTI: what is missing makes memlab yield, or not be there.
        for program, settings, audited in ((beside, {}, True), (alone, {}, False),
                                           (beside, {"SIMCUPTI_SHARED": "130300"}, False),
                                           (beside, {"SIMCUDA_DRIVER_VERSION": "13020"}, False)):
            for asked in ({"MEMLAB_CUPTI": "on"}, {"MEMLAB_AUDIT": "on"}, {"MEMLAB_CUPTI": "on", "MEMLAB_KERNELS": "on"}):
                outcome, found = self.record(program, **(newest | settings | asked))
                self.assertEqual(outcome.stdout, native.stdout)
                self.assertEqual(self.coverage(found)["audited"], audited, (program, settings, asked))
        for program in ("kinds", "runtime_api", "contents"):
            _, found = self.record(self.program(program), MEMLAB_CUPTI="on", MEMLAB_KERNELS="on", **newest)
            self.assertTrue(self.coverage(found)["cupti"].startswith("CUPTI 13.3.1, "))
            self.assertEqual((self.coverage(found)["audited"], self.coverage(found)["bypassed"]), (True, []))
        _, found = self.record([str(self.layout.tool("sample_checkpointing")), "plain"], MEMLAB_KERNELS="on", **newest)
        self.assertTrue(found.report["devices"][0]["kernels_at_peak"]["kernels"])

    def test_who_was_there_before_keeps_its_place(self) -> None:
        """A subscriber, and a program that has records without one, on a CUPTI of each kind."""
        newest = {"SIMCUPTI_SHARED": "130301", "SIMCUDA_DRIVER_VERSION": "13030"}
        of_one = [({}, "alone", "first", "Another tool is CUPTI's subscriber"),
                  ({}, "alone", "activities", "The program uses CUPTI's activities itself.")]
        of_several = [(newest, "alone", "first", "Another tool is CUPTI's subscriber"),
                      (newest, "shared", "first", ""),
                      (newest, "alone", "activities", "The program uses CUPTI's activities itself."),
                      (newest, "shared", "attribute", "Another profiler wants to be CUPTI's only subscriber")]
        for driver, kind, when, words in of_one + (of_several if self.SONAME == "libcupti.so.13" else []):
            program = self.program("subscribes_itself", self.SONAME, kind, when)
            native = self.without_memlab(program, driver)
            self.assertIn(b"records: some" if when == "activities" else b"subscribe: 0\nenable: 0\n", native.stdout)
            for asked in ({"MEMLAB_CUPTI": "on"}, {"MEMLAB_AUDIT": "on"}, {"MEMLAB_CUPTI": "on", "MEMLAB_KERNELS": "on"}):
                with self.subTest(several=bool(driver), kind=kind, when=when, asked=asked):
                    outcome, found = self.record(program, **(driver | asked))
                    self.assertEqual(outcome.stdout, native.stdout)
                    self.assertEqual(self.coverage(found)["audited"], not words)
                    self.assertIn(words, self.coverage(found)["because"])

    def test_processes_fork_and_end_as_ever(self) -> None:
        layout = dataclasses.replace(
            self.layout, extra_environment=self.layout.extra_environment |
            {"MEMLAB_CUPTI": "on", "MEMLAB_KERNELS": "on"})
        for case in CASES:
            if case.group not in ("processes", "ends") or case.static_runtime:
                continue
            if case.name == "ends by pthread_exit":
                continue  # CUPTI's own thread keeps the process alive, as a real driver's do
            if case.name == "system and popen" and Build.sanitizer == "thread":
                continue  # a shell crashes under libtsan.so alone
            if case.name == "interrupted: heap" and Build.sanitizer:
                continue  # the sanitizer's heap, which memlab uses there, may be locked for good
            with self.subTest(case.name):
                _, _, _, problems = run_case(layout, case, self.work / file_name(case.name))
                self.assert_sound(problems)

    # ---- work

    def test_kernels_at_the_peak(self) -> None:
        sample = [str(self.layout.tool("sample_checkpointing")), "plain"]
        _, found = self.record(sample, MEMLAB_KERNELS="on")
        device = found.report["devices"][0]
        self.assertGreater(device["work"]["kernel"]["count"], 0)
        self.assertEqual(device["work"]["kernel"]["count"], found.audit["work"]["kernel"])
        moment = device["kernels_at_peak"]
        self.assertEqual(moment["from_ns"], device["at_peak"]["time_ns"])
        names = [kernel["name"] for kernel in moment["kernels"]]
        self.assertTrue(names and all(names), moment)
        shown = run([str(self.layout.tool("memlab-report")), str(found.report_path)],
                    self.layout.environment(memlab=False), self.cwd)
        self.assertIn(b"What ran at that peak", shown.stdout)
        summary = run([str(self.layout.tool("memlab-report")), "--json", str(found.report_path)],
                      self.layout.environment(memlab=False), self.cwd)
        first = json.loads(summary.stdout)["reports"][0]["devices"][0]
        self.assertEqual(first["kernels_at_peak"]["kernels"][0]["name"], names[0])

    def test_without_being_asked_no_work_is_recorded(self) -> None:
        _, found = self.record([str(self.layout.tool("sample_checkpointing")), "plain"], MEMLAB_CUPTI="on")
        self.assertNotIn("work", found.report["devices"][0])


class Cupti12(Cupti):
    """The same with a driver of CUDA 12.4, to which its CUPTI belongs: other records, fewer functions."""

    SONAME = "libcupti.so.12"
    VERSION = "CUPTI 12.4 (API version 22), "
    DRIVER = {"SIMCUDA_DRIVER_VERSION": "12040"}

    @unittest.skip("not of CUPTI's version")
    def test_processes_fork_and_end_as_ever(self) -> None:
        pass

    def test_the_cupti_of_the_programs_runtime_is_first(self) -> None:
        """PyTorch's cu12 wheels on a newer driver: that of the CUDA runtime in the process, not the newest."""
        runtime = self.work / "libcudart.so.12"
        shutil.copy(self.layout.program("libucp.so.0"), runtime)
        preload = f"{self.layout.environment(memlab=True)['LD_PRELOAD']}:{runtime}"
        for driver, others in (("13000", {}), ("13000", {"MEMLAB_KERNELS": "on"}), ("12040", {})):
            _, found = self.record(self.program("contents"), MEMLAB_CUPTI="on", LD_PRELOAD=preload,
                                   SIMCUDA_DRIVER_VERSION=driver, **others)
            self.assertTrue(self.coverage(found)["cupti"].startswith(self.VERSION))
            self.assertTrue(self.coverage(found)["audited"])
