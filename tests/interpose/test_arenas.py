"""Allocators of the program's own, told by memlab.h or by NVTX's regions: a level of the recording each, to
the byte. tests/programs/arenas.cpp.
"""

from __future__ import annotations

import re
from typing import Any

from harness import Found, Outcome, judge_recordings
from support import EndToEnd

CURVES = ("allocated", "reserved")


class Arenas(EndToEnd):
    """The program natively and under memlab: it prints the same."""

    def record(self, mode: str, **settings: str) -> tuple[Found, Outcome]:
        command = self.program("arenas", mode)
        self.output = self.work / "-".join(("out", mode, *settings.values()))
        native = self.without_memlab(command)
        self.assertEqual(native.code, 0, native.describe())
        outcome = self.under_memlab(command, settings | {"NVTX_INJECTION64_PATH": str(self.layout.library)})
        self.assertEqual((outcome.code, outcome.stdout), (0, native.stdout), outcome.describe())
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        return found[0], outcome

    def devices(self, found: Found) -> dict[str, dict[str, Any]]:
        """By label."""
        return {f"{each['allocator']} on GPU {each['gpu']}" if "allocator" in each else f"GPU {each['index']}": each
                for each in found.report["devices"]}

    def assert_as_counted(self, found: Found, outcome: Outcome) -> None:
        lines = re.findall(r"(?m)^(.* on GPU 0): (.*)$", outcome.stdout.decode())
        self.assertNotEqual(lines, [])
        for label, rest in lines:
            allocated, peak, reserved, reserved_peak, blocks, live = (int(number) for number in re.findall(r"\d+", rest))
            device = self.devices(found)[label]
            curves = [(device["curves"][name]["at_end_bytes"], device["curves"][name]["peak_bytes"]) for name in CURVES]
            self.assertEqual(curves, [(allocated, peak), (reserved, reserved_peak)], label)
            kind = device["kinds"]["suballocation"]
            self.assertEqual((kind["count"], kind["live_count"]), (blocks, live), label)
        self.assertEqual(found.report["missed"], [])

    def at_mark(self, found: Found, name: str) -> dict[str, tuple[int, int]]:
        (mark,) = (each for each in found.report["marks"] if each["name"] == name)
        labels = {device["index"]: label for label, device in self.devices(found).items()}
        return {labels[each["device"]]: (each["allocated_bytes"], each["reserved_bytes"]) for each in mark["devices"]}

    def test_blocks_and_the_memory_that_holds_them(self) -> None:
        for mode, backend in (("api", "vmm"), ("api", "classic"), ("api_vmm", "classic")):
            with self.subTest(mode, backend=backend):
                found, outcome = self.record(mode, MEMLAB_BACKEND=backend)
                self.assert_as_counted(found, outcome)
                sites = [site for site in found.report["sites"] if site["kind"] == "suballocation" and site["count"]]
                self.assertEqual({site["api"] for site in sites}, {"memlab_suballoc"})

    def test_the_gpu_is_as_without(self) -> None:
        found, _ = self.record("api")
        gpu = self.devices(found)["GPU 0"]
        self.assertEqual(gpu["curves"]["allocated"]["peak_bytes"], 20 << 20)
        self.assertNotIn("suballocation", gpu["kinds"])

    def test_an_arena_in_an_arena_at_the_same_address(self) -> None:
        found, outcome = self.record("nested")
        self.assert_as_counted(found, outcome)
        told = re.search(r"inner at its mark: allocated (\d+)", outcome.stdout.decode())
        at_mark = self.at_mark(found, "three levels")
        self.assertEqual(at_mark["inner on GPU 0"], (int(told[1]), 4 << 20))
        self.assertEqual(at_mark["outer on GPU 0"], (5 << 20, 8 << 20))
        self.assertEqual(at_mark["innermost on GPU 0"], (1000, 64 << 10))
        # A scope counts the inner blocks, and not again what holds them.
        (scope,) = (each for each in found.report["scopes"] if each["name"] == "inner work")
        inner = self.devices(found)["inner on GPU 0"]["kinds"]["suballocation"]
        self.assertEqual(scope["allocated_count"], inner["count"] - 1)
        for name in ("outer", "inner", "innermost"):
            integrity = self.devices(found)[f"{name} on GPU 0"]
            self.assertEqual(integrity["curves"]["reserved"]["at_end_bytes"], (8 << 20) if name == "outer" else 0)

    def test_regions_of_nvtx(self) -> None:
        found, outcome = self.record("nvtx")
        self.assert_as_counted(found, outcome)
        told = re.search(r"at its mark: allocated (\d+)", outcome.stdout.decode())
        self.assertEqual(self.at_mark(found, "regions")["LIB:scratch on GPU 0"], (int(told[1]), 8 << 20))

    def test_a_draft_of_nvtx_is_left_alone(self) -> None:
        _, outcome = self.record("draft")
        self.assertEqual(outcome.stdout, b"refused: yes\n")

    def test_what_cannot_be_recorded_is_refused(self) -> None:
        found, outcome = self.record("refused")
        self.assertEqual(outcome.stdout, b"5 refusals\n")
        labels = set(self.devices(found)) - {"GPU 0"}
        self.assertEqual(len(labels), 14, labels)
        self.assertIn("arena 0 on GPU 0", labels)
        (missed,) = found.report["missed"]
        self.assertEqual((missed["count"], missed["bytes"]), (26, 26 * 512))

    def test_threads(self) -> None:
        found, _ = self.record("threads")
        self.assertEqual(found.report["missed"], [])
        for name in ("even", "odd"):
            device = self.devices(found)[f"{name} on GPU 0"]
            self.assertEqual([device["curves"][curve]["at_end_bytes"] for curve in CURVES], [0, 0])
            self.assertGreater(device["kinds"]["suballocation"]["count"], 400)

    def test_pages_name_the_allocators(self) -> None:
        found, _ = self.record("nested")
        for view in ("summary", "sites", "tree", "leaks", "timeline", "pool"):
            with self.subTest(view):
                page = self.report_tool(view, str(found.report_path))
                self.assertLess(page.index("outer on GPU 0"), page.index("\nGPU 0: "))
                self.assertNotIn("PyTorch", page)
        for target in ("csv", "perfetto", "pytorch"):
            with self.subTest(target):
                self.report_tool("export", "--to", target, "-o", str(self.work / target), str(found.log))
        self.report_tool("whatif", str(found.log))

    def report_tool(self, *arguments: str) -> str:
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), *arguments])
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        return outcome.stdout.decode("utf-8")
