"""Memory that the program has freed is available to whatever needs device memory next: driver functions that take it
implicitly, contexts, child processes. The programs are in tests/programs/gives_way.cpp; those that need no injected
fault of the simulated driver are in the catalogue.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from support import Build, EndToEnd

ONCE = 1
OUT_OF_MEMORY = 2
# What a program cannot have without more hardware or other processes, or what the simulated driver
# does not have.
ELSEWHERE = {
    "cuGreenCtxStreamCreate", "cuImportExternalMemory", "cuMulticastCreate", "cuMulticastBindMem",
    "cuMulticastBindAddr", "cuMulticastBindMem_v2", "cuMulticastBindAddr_v2", "cuTexObjectCreate",
    "cuSurfObjectCreate", "cuModuleLoad", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuModuleGetGlobal",
    "cuModuleGetGlobal_v2", "cuLibraryLoadFromFile", "cuLibraryGetGlobal", "cuLibraryGetManaged",
}
OTHERS = {"cuLaunchKernel", "cuMemPoolCreate"}


class GivingWay(EndToEnd):

    def functions(self) -> set[str]:
        listed = self.without_memlab(self.program("gives_way", "functions")).stdout.decode().split()
        # What unloads gives back, and lacks no memory.
        return {name for name in listed if "Unload" not in name}

    def test_each_function_that_takes_memory_on_its_own_is_tried_again(self) -> None:
        functions = self.functions()
        self.assertEqual(ELSEWHERE - functions, set())
        for function in sorted((functions - ELSEWHERE) | OTHERS):
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


class Neighbour:
    """tests/programs/neighbours.cpp, which does what it is told."""

    def __init__(self, test: EndToEnd, memlab: bool, settings: dict[str, str]) -> None:
        environment = test.layout.environment(memlab=memlab, settings=settings, output=test.output)
        self.process = subprocess.Popen(test.program("neighbours"), env=environment, cwd=test.cwd, text=True,
                                        bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        test.addCleanup(self.end)
        self.read()

    def end(self) -> None:
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def do(self, what: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        return self.read()

    def number(self, what: str) -> int:
        return int(self.do(what).split()[1])

    def take(self, what: str) -> tuple[int, float]:
        """The driver's answer and how long it took, in ms."""
        words = self.do(what).split()
        return int(words[1]), float(words[3])


class Neighbours(EndToEnd):
    """Processes that share a GPU: what one of them frees is there for the others."""

    def neighbour(self, memlab: bool = True, **settings: str) -> Neighbour:
        return Neighbour(self, memlab, {"SIMCUDA_SHARED": str(self.work / "shared"), "SIMCUDA_MEMORY": "1GiB",
                                        "MEMLAB_TRIM_AFTER": "500ms"} | settings)

    def replay(self, log: Path) -> str:
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), "replay", str(log)])
        return outcome.stdout.decode()

    def answers_within(self, milliseconds: float) -> float:
        """A build with a sanitizer, on a machine that does other things as well, takes longer."""
        return milliseconds * (5 if Build.sanitizer else 1)

    def takes_in_time(self, one: Neighbour, what: str) -> bool:
        """Takes it. A machine that is busy with others may not let the one asked run in time: then once more."""
        result, milliseconds = one.take(what)
        if result != 0:
            time.sleep(0.3)
            self.assertEqual(one.take(what)[0], 0)
            return False
        return milliseconds <= self.answers_within(150)

    def test_who_asks_has_it_at_once_however_often(self) -> None:
        for backend in ("classic", "vmm"):
            with self.subTest(backend):
                # What goes back by time would take five minutes.
                first, second = (self.neighbour(MEMLAB_TRIM_AFTER="5min", MEMLAB_BACKEND=backend) for _ in "12")
                late = 0
                for _ in range(8):
                    for one in (first, second):
                        late += not self.takes_in_time(one, "take 60")
                        one.do("give")
                self.assertLessEqual(late, 2)
                self.takes_in_time(first, "take 60")
                self.assertEqual(second.take("take 60")[0], OUT_OF_MEMORY)
                first.do("give")
                self.takes_in_time(second, "array 60")
                for each in (first, second):
                    each.end()

    def test_a_context_asks_as_well(self) -> None:
        settings = {"SIMCUDA_CONTEXT_MEMORY": "100MiB", "MEMLAB_TRIM_AFTER": "5min"}
        first, second = self.neighbour(**settings), self.neighbour(**settings)
        self.assertEqual(first.take("take 75")[0], 0)
        first.do("give")
        self.assertEqual(second.take("context")[0], 0)

    def test_without_memlab_it_is_there_within_a_second_whatever_happened_before(self) -> None:
        first, second = self.neighbour(), self.neighbour(memlab=False)
        for _ in range(4):
            self.assertEqual(first.take("take 60")[0], 0)
            first.do("give")
            time.sleep(self.answers_within(1000) / 1000)
            self.assertEqual(second.take("take 60")[0], 0)
            second.do("give")

    def test_who_asks_in_vain_is_told_soon(self) -> None:
        first, second = self.neighbour(), self.neighbour()
        self.assertEqual(first.take("take 60")[0], 0)
        for _ in range(3):
            result, milliseconds = second.take("take 60")
            self.assertEqual(result, OUT_OF_MEMORY)
            self.assertLess(milliseconds, self.answers_within(300))

    def test_a_capture_keeps_nothing_from_others(self) -> None:
        first, second = self.neighbour(MEMLAB_TRIM_AFTER="5min"), self.neighbour()
        self.assertEqual(first.take("take 60")[0], 0)
        first.do("give")
        first.do("capture")
        self.assertEqual(second.take("take 60")[0], 0)
        self.assertEqual(first.do("end"), "captured: 0\n")

    def test_where_nothing_is_cached_nothing_wakes(self) -> None:
        one = self.neighbour()
        for _ in range(2):
            self.assertEqual(one.take("take 10")[0], 0)
            one.do("give")
            time.sleep(2)
            self.assertLess(one.number("used"), 1 << 20)
            before = one.number("wakes")
            time.sleep(2)
            self.assertEqual(one.number("wakes"), before)

    def test_what_went_back_by_time_is_replayed_by_the_rule_it_was_recorded_with(self) -> None:
        for backoff in ("off", "on"):
            self.output = self.work / backoff
            one = self.neighbour(MEMLAB_TRIM_AFTER="20ms", MEMLAB_TRIM_BACKOFF=backoff)
            for _ in range(5):
                one.take("take 60")
                one.do("give")
                time.sleep(0.1)
            one.end()
            [log] = self.output.glob("*.memlog")
            self.assertTrue(self.replay(log).startswith("equal: "))
            # Before there was the option its rule was always in effect. An open block has no checksum.
            content = bytearray(log.read_bytes().replace(b"MEMLAB_TRIM_BACKOFF", b"Memlab_Trim_Backoff"))
            self.assertEqual(content[32], 0xb5)
            content[33] = 0
            log.write_bytes(content)
            self.assertTrue(self.replay(log).startswith("equal: " if backoff == "on" else "differs: "))
