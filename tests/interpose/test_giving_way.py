"""Memory that the program has freed is available to whatever needs device memory next: driver functions that take it
implicitly, contexts, child processes. The programs are in tests/programs/gives_way.cpp; those that need no injected
fault of the simulated driver are in the catalogue.
"""

from __future__ import annotations

import re

from support import ROOT, EndToEnd

ONCE = 1
OUT_OF_MEMORY = 2
# What a program cannot have without more hardware or other processes, or what the simulated driver
# does not have.
ELSEWHERE = {
    "cuGreenCtxStreamCreate", "cuImportExternalMemory", "cuMulticastCreate", "cuMulticastBindMem",
    "cuMulticastBindAddr", "cuTexObjectCreate", "cuSurfObjectCreate", "cuModuleLoad", "cuModuleLoadDataEx",
    "cuModuleLoadFatBinary", "cuModuleGetGlobal", "cuModuleGetGlobal_v2", "cuLibraryLoadFromFile",
    "cuLibraryGetGlobal", "cuLibraryGetManaged",
}
OTHERS = {"cuLaunchKernel", "cuMemPoolCreate"}


class GivingWay(EndToEnd):

    def functions(self) -> set[str]:
        text = (ROOT / "interpose/driver/implicit_functions.inc").read_text(encoding="utf-8")
        # What unloads gives back, and lacks no memory.
        return {name for name in re.findall(r"^MEMLAB_HOOK\((\w+),", text, re.MULTILINE) if "Unload" not in name}

    def test_each_function_that_takes_memory_on_its_own_is_tried_again(self) -> None:
        self.assertEqual(ELSEWHERE - self.functions(), set())
        for function in sorted((self.functions() - ELSEWHERE) | OTHERS):
            with self.subTest(function):
                fault = {"SIMCUDA_FAIL": f"{function}:{ONCE}:{OUT_OF_MEMORY}"}
                native = self.without_memlab(self.program("gives_way", "calls"), fault)
                self.assertEqual(native.code, 3, native.describe())
                outcome = self.under_memlab(self.program("gives_way", "calls"), fault)
                self.assertEqual(outcome.code, 0, outcome.describe())

    def test_where_nothing_is_cached_the_error_is_the_programs(self) -> None:
        fault = {"SIMCUDA_FAIL": f"cuStreamCreateWithPriority:{ONCE}:{OUT_OF_MEMORY}"}
        for settings in ({"MEMLAB_POOL": "off"}, {"MEMLAB_DISABLE": "on"}):
            outcome = self.under_memlab(self.program("gives_way", "calls"), fault | settings)
            self.assertEqual(outcome.code, 3, outcome.describe())

    def test_another_error_is_not_tried_again(self) -> None:
        fault = {"SIMCUDA_FAIL": f"cuStreamCreateWithPriority:{ONCE}:999"}
        outcome = self.under_memlab(self.program("gives_way", "calls"), fault)
        self.assertEqual(outcome.code, 3, outcome.describe())

    def test_a_context(self) -> None:
        device = {"SIMCUDA_MEMORY": "1GiB", "SIMCUDA_CONTEXT_MEMORY": "300MiB"}
        for backend in ("classic", "vmm"):
            outcome = self.under_memlab(self.program("gives_way", "context"),
                                        device | {"MEMLAB_BACKEND": backend})
            self.assertEqual((outcome.code, outcome.stdout), (0, b"context: 0\n"), outcome.describe())

    def test_a_request_that_no_cache_can_serve_costs_none(self) -> None:
        """No memory goes back to the driver."""
        for way in ("impossible", "host"):
            outcome = self.under_memlab(self.program("gives_way", "beside", way),
                                        {"SIMCUDA_STATS": str(self.work / "stats")})
            self.assertEqual(outcome.code, 0, outcome.describe())
            calls = dict(re.findall(r"^calls (cu\w+) (\d+)$", (self.work / "stats").read_text(), re.MULTILINE))
            self.assertEqual((calls.get("cuMemFreeAsync"), calls.get("cuMemFree_v2")), (None, None), way)

    def test_without_stream_ordered_frees_memory_goes_back_all_the_same(self) -> None:
        outcome = self.under_memlab(self.program("gives_way", "graph", "launch"),
                                    {"SIMCUDA_FAIL": "cuStreamCreate:2:2,cuStreamCreate:3:2"})
        self.assertEqual((outcome.code, outcome.stdout), (0, b"launch: 0\n"), outcome.describe())
