"""The samples on the simulated driver: what each promises to show is in its report."""

from __future__ import annotations

import json
import re

from harness import Found, Outcome, differences, judge_recordings
from support import EndToEnd

MIB = 1 << 20


class Samples(EndToEnd):
    """One test per sample."""

    def run_sample(self, name: str, *arguments: str) -> tuple[Outcome, Found]:
        command = [str(self.layout.tool(f"sample_{name}")), *arguments]
        native, under = self.without_memlab(command), self.under_memlab(command)
        found, problems = judge_recordings(self.layout, self.output, None)
        problems = differences(native, under, may_warn=False) + problems
        self.assert_sound(problems)
        self.assertEqual(native.code, 0, native.describe())
        self.assertEqual(len(found), 1)
        return under, found[0]

    def test_cache_lines(self) -> None:
        _, found = self.run_sample("cache_lines")
        lines = [(mark["name"], mark["devices"][0]["allocated_bytes"], mark["devices"][0]["reserved_bytes"])
                 for mark in found.report["marks"]]
        tensor = 4_000_256  # 4,000,000 rounded up to a multiple of 512
        self.assertEqual(lines, [("start", 0, 0), ("after tensor", tensor, 20 * MIB),
                                 ("after del", 0, 20 * MIB), ("after empty_cache", 0, 0)])
        self.assertEqual(f"{tensor / MIB:.2f}", "3.81")

    def test_cache_lines_as_people_see_them(self) -> None:
        _, found = self.run_sample("cache_lines")
        shown = self.without_memlab([str(self.layout.tool("memlab-report")), str(found.report_path)])
        self.assertEqual(shown.code, 0, shown.describe())
        text = shown.stdout.decode("utf-8")
        for name, allocated, reserved in (("start", "0", "0"), ("after tensor", "3.81", "20.00"),
                                          ("after del", "0", "20.00"), ("after empty_cache", "0", "0")):
            pattern = rf"{name}\D+{re.escape(allocated)}\b.*\b{re.escape(reserved)}\b"
            self.assertRegex(text, pattern)

    def test_inplace(self) -> None:
        _, found = self.run_sample("inplace")
        sites = sorted((site["count"], site["requested_bytes"]) for site in found.report["sites"])
        self.assertEqual(sites, [(1, 8_000_000), (8, 64_000_000)])
        curves = found.report["devices"][0]["curves"]
        self.assertEqual(curves["requested"]["peak_bytes"], 16_000_000)
        marks = {mark["name"]: mark["devices"][0] for mark in found.report["marks"]}
        self.assertEqual(marks["in place"]["requested_bytes"], 8_000_000)

    def test_checkpointing(self) -> None:
        figures = {}
        for mode in ("plain", "checkpointed"):
            self.output = self.work / mode
            outcome, found = self.run_sample("checkpointing", mode)
            said = re.search(rb"(\d+) allocations, at most (\d+) tensors of (\d+) bytes", outcome.stdout)
            self.assertIsNotNone(said, outcome.describe())
            allocations, tensors, size = (int(number) for number in said.groups())
            device = found.report["devices"][0]
            self.assertEqual(device["kinds"]["device"]["count"], allocations)
            self.assertEqual(device["curves"]["requested"]["peak_bytes"], tensors * size)
            figures[mode] = (allocations, tensors)
        self.assertGreater(figures["checkpointed"][0], figures["plain"][0])
        self.assertLess(figures["checkpointed"][1], figures["plain"][1])

    def test_oom_recovery(self) -> None:
        outcome, found = self.run_sample("oom_recovery")
        self.assertEqual(outcome.stdout, b"batch 64: out of memory\nbatch 32: done\n")
        self.assertEqual(found.report["oom_count"], 1)
        oom = found.report["ooms"][0]
        self.assertEqual(oom["error"], 2)
        self.assertEqual(oom["holders"]["bytes"], oom["current"]["allocated_bytes"])
        self.assertEqual(len(oom["holders"]["sites"]), 1)
        self.assertEqual(found.report["devices"][0]["live"]["bytes"], 0)

    def test_report_says_where(self) -> None:
        """file:line and function of a call site, from debug information, after the program ended."""
        _, found = self.run_sample("inplace")
        shown = self.without_memlab([str(self.layout.tool("memlab-report")), str(found.report_path)])
        text = shown.stdout.decode("utf-8")
        self.assertIn("add_out_of_place", text)
        self.assertRegex(text, r"inplace\.cu:\d+")
        machine = self.without_memlab([str(self.layout.tool("memlab-report")), "--json",
                                       str(found.report_path)])
        self.assertEqual(machine.code, 0, machine.describe())
        self.assertIsInstance(json.loads(machine.stdout), dict)
