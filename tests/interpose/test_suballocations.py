"""What PyTorch's cache tells of its blocks: each is recorded, and the cache's figures are its own to the
byte. tests/programs/pytorch_cache.cpp, over stand-ins for PyTorch's libraries.
"""

from __future__ import annotations

import pickle
import re
import shutil
import sys
from typing import Any

from harness import Found, Outcome, judge_recordings
from support import EndToEnd

TIMED = """
import ctypes, sys

timer, cuda, cache = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[2])
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
cache.torch_allocate.restype = ctypes.c_uint64
blocks = [cache.torch_allocate(0, ctypes.c_uint64(512), False) for _ in range(3)]
for block in blocks[1:]:
    cache.torch_free(0, ctypes.c_uint64(block))
cache.torch_allocate(0, ctypes.c_uint64(512), False)
totals = (ctypes.c_uint64 * 6).in_dll(timer, "hook_timer_totals")
print(list(totals[3:]), totals[0] > 0, totals[1] > 0)
"""
FIRST_OF_PYTORCH = 64  # trace::DeviceInfo::suballocator_index(0, 0)


class PyTorchCache(EndToEnd):
    """One program in several modes, native and under memlab: it prints the same."""

    def record(self, mode: str, folder: str = "pytorch", **settings: str) -> tuple[Found, Outcome]:
        library = self.layout.program("pytorch_cache").parent / folder / "libc10_cuda.so"
        command = self.program("pytorch_cache", str(library), mode)
        self.output = self.work / "-".join(("out", mode, folder, *settings.values()))
        devices = {"SIMCUDA_DEVICES": "2"}
        native = self.without_memlab(command, devices)
        self.assertEqual(native.code, 0, native.describe())
        outcome = self.under_memlab(command, devices | settings)
        self.assertEqual(outcome.code, 0, outcome.describe())
        if mode != "threads":  # which cut the cache in any order
            self.assertEqual(outcome.stdout, native.stdout)
        self.assertIn(b"the profiler was told: yes", outcome.stdout)
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        return found[0], outcome

    def test_the_timer_of_the_benchmarks_counts_what_is_recorded(self) -> None:
        timer = self.layout.root / "lib" / "hook_timer.so"
        if not timer.exists():
            self.skipTest(f"{timer.name} is not built with a sanitizer")
        library = self.layout.program("pytorch_cache").parent / "pytorch" / "libc10_cuda.so"
        for memlab in ([], [str(self.layout.library)]):
            outcome = self.under_memlab([sys.executable, "-c", TIMED, str(timer), str(library)],
                                        {"LD_PRELOAD": ":".join([str(timer), *memlab])})
            self.assertEqual((outcome.code, outcome.stdout), (0, b"[4, 2, 0] True True\n"), outcome.describe())
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        self.assertEqual(sum(site["count"] for site in found[0].report["sites"]
                             if site["device"] == FIRST_OF_PYTORCH), 4)

    def told(self, outcome: Outcome) -> dict[int, list[int]]:
        """By GPU: allocated, its peak, reserved, its peak, blocks, live blocks, segments."""
        lines = re.findall(r"GPU (\d): (.*)", outcome.stdout.decode())
        return {int(gpu): [int(number) for number in re.findall(r"\d+", rest)] for gpu, rest in lines}

    def device(self, found: Found, index: int) -> dict[str, Any]:
        return next(each for each in found.report["devices"] if each["index"] == index)

    def assert_equal_to_the_caches(self, found: Found, outcome: Outcome) -> None:
        self.assertNotEqual(self.told(outcome), {})
        for gpu, (allocated, peak, reserved, reserved_peak, blocks, live, _) in self.told(outcome).items():
            device = self.device(found, FIRST_OF_PYTORCH + gpu)
            self.assertEqual((device["allocator"], device["gpu"]), ("PyTorch", gpu))
            curves = device["curves"]
            self.assertEqual((curves["allocated"]["at_end_bytes"], curves["allocated"]["peak_bytes"]),
                             (allocated, peak))
            self.assertEqual((curves["reserved"]["at_end_bytes"], curves["reserved"]["peak_bytes"]),
                             (reserved, reserved_peak))
            kind = device["kinds"]["suballocation"]
            self.assertEqual((kind["count"], kind["live_count"]), (blocks, live))
            stats = device["memory_stats"]
            self.assertEqual((stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.current"],
                              stats["allocation.all.allocated"]), (peak, reserved, blocks))
            self.assertIsNone(device["fragmentation"]["internal"])
        self.assertEqual(found.report["missed"], [])

    def test_each_block_and_segment(self) -> None:
        for mode in ("train", "expandable", "two_gpus", "threads"):
            with self.subTest(mode):
                self.assert_equal_to_the_caches(*self.record(mode))

    def test_tensors_live_while_their_memory_sleeps(self) -> None:
        """PyTorch's level is as PyTorch says all the time; the GPU's dips and returns."""
        found, outcome = self.record("sleep")
        self.assertIn(b"6 segments", outcome.stdout)
        self.assert_equal_to_the_caches(found, outcome)
        mib = 1 << 20
        integrity = found.report["integrity"]
        self.assertEqual({name: count for name, count in integrity.items() if count}, {})
        of_gpu, of_tensors, reserved = [], [], []
        for mark in found.report["marks"]:
            on = {each["device"]: each for each in mark["devices"]}
            of_gpu.append((mark["name"], on[0]["allocated_bytes"] // mib))
            of_tensors.append(on[FIRST_OF_PYTORCH]["allocated_bytes"])
            reserved.append(on[FIRST_OF_PYTORCH]["reserved_bytes"] // mib)
        # 5 segments of 32 MiB, one of 2, and 3 MiB of a library's.
        awake, asleep = 5 * 32 + 2 + 3, 3
        self.assertEqual(of_gpu, [("awake", awake), ("asleep", asleep), ("awake again", awake)] * 2 +
                         [("used again", awake)])
        tensors = 3 * 32 * mib + 1024
        self.assertEqual(of_tensors, [tensors] * 5 + [tensors - 32 * mib, tensors - 32 * mib])
        self.assertEqual(reserved[-1], awake - 3)
        # What is mapped again is PyTorch's segments again: both levels together count nothing twice.
        steps = next(each for each in found.report["steps"] if each["name"] == "awake")
        self.assertEqual((steps["steps"], steps["blocks"]["min_bytes"][:2]), (2, [3 * mib + tensors] * 2))
        summary = " ".join(self.report_tool(str(found.report_path)).split())
        self.assertNotIn("whose allocation was not seen", summary)

    def test_before_2_3(self) -> None:
        self.assert_equal_to_the_caches(*self.record("train", "pytorch_2_2"))

    def test_segments_from_memlabs_pool(self) -> None:
        self.assert_equal_to_the_caches(*self.record("train", MEMLAB_IPC="off"))

    def test_the_gpu_itself_is_as_ever(self) -> None:
        found, outcome = self.record("train")
        gpu = self.device(found, 0)
        reserved_peak = self.told(outcome)[0][3]
        self.assertNotIn("allocator", gpu)
        self.assertEqual(gpu["curves"]["allocated"]["peak_bytes"], reserved_peak + (3 << 20))
        self.assertNotIn("suballocation", gpu["kinds"])

    def test_a_tensor_has_its_stack(self) -> None:
        found, _ = self.record("train")
        sites = [site for site in found.report["sites"]
                 if site["kind"] == "suballocation" and site["count"] != 0]
        self.assertEqual({site["api"] for site in sites}, {"CUDACachingAllocator::malloc"})
        modules = {found.report["modules"][found.report["frames"][frame]["module"]]["path"]
                   for site in sites for frame in found.report["stacks"][site["stack"]]["frames"]}
        self.assertTrue(any(path.endswith("/pytorch_cache") for path in modules), modules)

    def test_out_of_memory_is_explained_with_the_tensors(self) -> None:
        found, outcome = self.record("out_of_memory")
        text = outcome.stderr.decode()
        self.assertEqual(text.count("out of memory: "), 1, text)
        self.assertRegex(text, r"out of memory: PyTorch's allocation of 512\.00 MiB on GPU 0 ")
        self.assertRegex(text, r"PyTorch's cache holds [\d.]+ GiB: [\d.]+ GiB allocated\.")
        self.assertRegex(text, r"[\d.]+ GiB in \d+ allocations: CUDACachingAllocator::malloc < ")
        summary = self.report_tool(str(found.report_path))
        self.assertIn(" on PyTorch on GPU 0", " ".join(summary.split()))
        self.assertNotIn(f"GPU {FIRST_OF_PYTORCH}", summary)
        last = found.report["ooms"][-1]
        self.assertEqual((last["kind"], last["device"], last["requested_bytes"]),
                         ("suballocation", FIRST_OF_PYTORCH, 512 << 20))
        holders = last["holders"]["sites"]
        self.assertEqual({found.report["sites"][holder["site"]]["kind"] for holder in holders},
                         {"suballocation"})

    def test_steps_and_scopes_count_what_is_in_the_cache_once(self) -> None:
        found, outcome = self.record("steps")
        (scope,) = (each for each in found.report["scopes"] if each["name"] == "step")
        # Each of 5 steps makes a tensor of 1 MiB and frees it, and keeps one of 512 KiB.
        self.assertEqual((scope["entries"], scope["allocated_count"], scope["freed_count"]), (5, 10, 5))
        self.assertEqual(scope["allocated_bytes"], 5 * (3 << 19))
        (steps,) = (each for each in found.report["steps"] if each["name"] == "step")
        (label,) = found.report["labels"]
        self.assertEqual((label["name"], label["live_count"], label["live_bytes"]), ("kept", 5, 5 << 19))
        workspace = 3 << 20
        self.assertEqual(steps["blocks"]["min_bytes"], [workspace + (i << 19) for i in range(1, 6)])

    def step_back(self, moved: str, mode: str = "train") -> Found:
        """A program with a PyTorch whose door has moved: it runs as it does alone, and all else is recorded."""
        library = self.pytorch_package(f"pytorch_other_{moved}") / "libc10_cuda.so"
        command = self.program("pytorch_cache", str(library), mode)
        native = self.without_memlab(command)
        outcome = self.under_memlab(command)
        self.assertEqual((outcome.code, outcome.stdout), (0, native.stdout), outcome.describe())
        (found,), problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        return found

    def test_reports_that_are_not_as_known_are_not_recorded(self) -> None:
        """Said once; the segments are recorded as they are without a door."""
        whys = {"reports": "layout unknown", "totals": "layout unknown", "sums": "layout unknown",
                "devices": "no block is reported", "function": "it does not call c10::reportMemoryUsageToProfiler"}
        segments = self.device(self.record("train")[0], 0)["kinds"]["device"]["count"]
        self.output = self.work / "moved"
        for moved, why in whys.items():
            with self.subTest(moved):
                found = self.step_back(moved)
                line = f"PyTorch 2.99.0: tensors not read: {why}"
                self.assertEqual([entry["reason"] for entry in found.report["missed"]], [line])
                self.assertIn(line, " ".join(self.report_tool(str(found.report_path)).split()))
                self.assertEqual(self.device(found, 0)["kinds"]["device"]["count"], segments)
                recorded = sum(site["count"] for site in found.report["sites"] if site["kind"] == "suballocation")
                # Sums are judged by several reports.
                self.assertLess(recorded, 4, found.report["sites"])
            shutil.rmtree(self.work / "site")
            shutil.rmtree(self.output)

    def test_failures_that_are_not_as_known_are_not_recorded(self) -> None:
        found = self.step_back("failures", "out_of_memory")
        self.assertEqual([entry["reason"] for entry in found.report["missed"]],
                         ["PyTorch 2.99.0: out-of-memory failures not read: layout unknown"])
        self.assertEqual({oom["kind"] for oom in found.report["ooms"]}, {"device"})

    def report_tool(self, *arguments: str) -> str:
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), *arguments])
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        return outcome.stdout.decode("utf-8")

    def test_pages_show_the_tensors_first(self) -> None:
        found, outcome = self.record("train")
        path = str(found.report_path)
        summary = self.report_tool(path)
        self.assertLess(summary.index("PyTorch on GPU 0: "), summary.index("\nGPU 0: "))
        self.assertIn("Fragmentation of PyTorch's cache", summary)
        gpu = summary[summary.index("\nGPU 0: "):]
        self.assertIn("Where it went at the allocated peak", gpu)
        self.assertIn(f"memlab-report --level driver {path}", gpu)
        self.assertNotIn("Who holds it", gpu)
        self.assertIn("Who holds it at the allocated peak", self.report_tool("--level", "driver", path))
        self.assertNotIn("--replace", summary)
        for view in ("sites", "tree", "leaks", "timeline", "pool"):
            with self.subTest(view):
                page = self.report_tool(view, path)
                self.assertLess(page.index("PyTorch on GPU 0"), page.index("\nGPU 0: "))
        self.assertIn("PyTorch's cache", self.report_tool("pool", path))
        blocks = self.told(outcome)[0][4]
        whatif = self.report_tool("whatif", str(found.log))
        self.assertIn(f"{blocks:,} allocations;", whatif)
        self.assertRegex(whatif, r"As recorded: PyTorch's cache reserved 126\.00 MiB at most")
        self.assertRegex(whatif, r"(?m)^> PyTorch")
        self.assertNotIn("\nGPU 0", whatif)

    def test_a_snapshot_for_pytorchs_viewer_has_tensors_in_its_segments(self) -> None:
        found, outcome = self.record("train")
        target = self.work / "snapshot.pickle"
        self.report_tool("export", "--to", "pytorch", "-o", str(target), str(found.log))
        snapshot = pickle.loads(target.read_bytes())
        allocated, _, reserved, _, _, live, segments = self.told(outcome)[0]
        self.assertEqual(len(snapshot["device_traces"]), 1)
        sizes = [(segment["total_size"], segment["allocated_size"]) for segment in snapshot["segments"]]
        self.assertEqual(len(sizes), segments)
        self.assertEqual((sum(size for size, _ in sizes), sum(used for _, used in sizes)),
                         (reserved, allocated))
        states = [block["state"] for segment in snapshot["segments"] for block in segment["blocks"]]
        self.assertEqual(states.count("active_allocated"), live)

    def test_limits_are_of_one_level(self) -> None:
        found, outcome = self.record("train")
        peak = self.told(outcome)[0][3] + (3 << 20)
        path = str(found.report_path)
        self.assertIn(", GPU 0", self.report_tool("check", "--peak-allocated", str(peak), path))
        tensors = self.report_tool("check", "--level", "framework", "--peak-allocated",
                                   str(self.told(outcome)[0][1]), path)
        self.assertIn(", PyTorch on GPU 0", tensors)
        self.assertNotIn(f"GPU {FIRST_OF_PYTORCH}", tensors)
        below = self.without_memlab([str(self.layout.tool("memlab-report")), "check", "--level", "framework",
                                     "--peak-allocated", str(self.told(outcome)[0][1] - 1), path])
        self.assertEqual(below.code, 1, below.describe())

    def test_one_level(self) -> None:
        path = str(self.record("train")[0].report_path)
        for view in ("sites", "tree", "leaks", "timeline", "pool"):
            with self.subTest(view):
                self.assertNotIn("PyTorch on", self.report_tool(view, "--level", "driver", path))
                self.assertNotIn("\nGPU 0: ", "\n" + self.report_tool(view, "--level", "framework", path))
