"""MEMLAB_LIMIT: the program sees a smaller GPU, whatever kind of memory it takes. On the simulated
driver, where a context takes 300 MiB and the device has 8 GiB.
"""

from __future__ import annotations

import sys

from harness import Outcome, judge_recordings
from support import EndToEnd

MIB = 1 << 20
CONTEXT = 300
DEVICE = {"SIMCUDA_CONTEXT_MEMORY": f"{CONTEXT}MiB", "SIMCUDA_MEMORY": "8GiB"}
LIMIT = 1024
PIECES = (LIMIT - CONTEXT) // 64


class Limit(EndToEnd):
    """One program, tests/programs/limited.cpp, under several limits."""

    def run_limited(self, *arguments: str, limit: str = f"{LIMIT}MiB", **settings: str) -> Outcome:
        outcome = self.under_memlab(self.program("limited", *arguments),
                                    DEVICE | {"MEMLAB_LIMIT": limit} | settings)
        self.assertEqual(outcome.code, 0, outcome.describe())
        return outcome

    def lines(self, *arguments: str, **settings: str) -> list[str]:
        return self.run_limited(*arguments, **settings).stdout.decode().splitlines()

    def info(self, limit: str, *arguments: str, **settings: str) -> str:
        first, second = self.lines("info", *arguments, limit=limit, **settings)
        self.assertEqual(second, "all of it is free again: yes")
        return first

    def test_the_device_looks_smaller(self) -> None:
        seen = f"free {(LIMIT - CONTEXT) * MIB} total {LIMIT * MIB} device {LIMIT * MIB}"
        for limit in ("1GiB", "1024 MiB", "1GiB,device=0", "1GiB,device=GPU-73696d63",
                      "8GiB; 1GiB , device=GPU-73696d63-7564-6100-0000-000000000000"):
            with self.subTest(limit):
                self.assertEqual(self.info(limit), seen)

    def test_a_limit_that_leaves_all_changes_nothing(self) -> None:
        seen = f"free {(8192 - CONTEXT) * MIB} total {8192 * MIB} device {8192 * MIB}"
        for limit in ("0", "8GiB", "9GiB", "1GiB;0,device=0"):
            with self.subTest(limit):
                self.assertEqual(self.info(limit), seen)

    def test_below_what_is_used_nothing_is_free(self) -> None:
        outcome = self.under_memlab(self.program("limited", "info"),
                                    DEVICE | {"MEMLAB_LIMIT": "200MiB"})
        self.assertEqual(outcome.code, 3, outcome.describe())  # its allocation failed
        self.assertIn(f"free 0 total {200 * MIB} ".encode(), outcome.stdout)

    def test_each_device_has_its_own(self) -> None:
        two = {"SIMCUDA_DEVICES": "2"}
        limit = "1GiB,device=1;2GiB,device=GPU-73696d63-7564-6100-0000-000000000000"
        self.assertIn(f"total {2 << 30} device {2 << 30}", self.info(limit, "0", **two))
        self.assertIn(f"total {1 << 30} device {1 << 30}", self.info(limit, "1", **two))
        self.assertIn(f"total {8 << 30} device {8 << 30}", self.info("1GiB,device=1", "0", **two))

    def test_advice_says_what_a_setting_refuses_instead(self) -> None:
        """Blocks of 3 MiB in whole pages do not all fit; in segments they do, and what follows does not."""
        script = ("import ctypes\ncuda = ctypes.CDLL('libcuda.so.1')\ncontext = ctypes.c_void_p()\n"
                  "assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
                  "assert cuda.cuCtxSetCurrent(context) == 0\n"
                  "def allocate(mebibytes):\n    address = ctypes.c_uint64()\n"
                  "    cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mebibytes << 20))\n    return address\n"
                  "blocks = [allocate(3) for _ in range(200)]\n"
                  "for block in blocks[::2]:\n    block.value and cuda.cuMemFree_v2(block)\n"
                  "for _ in range(40):\n    allocate(5)\n")
        outcome = self.under_memlab([sys.executable, "-B", "-c", script], {"MEMLAB_LIMIT": "700MiB"})
        self.assertEqual(outcome.code, 0, outcome.describe())
        (log,) = self.output.glob("*.memlog")
        said = {command: " ".join(self.without_memlab([str(self.layout.tool("memlab-report")), command, "--no-symbols", str(log)])
                                  .stdout.decode().split()) for command in ("oom", "whatif")}
        self.assertRegex(said["oom"], "MEMLAB_BACKEND=classic serves it within the same 700.00 MiB, but then not 5.00 MiB at "
                                      r"[0-9.]+ m?s, which the recording served\.")
        self.assertRegex(said["whatif"], "does not serve any of the [0-9]+ allocations that failed: what does is out of memory "
                                         "where the recording was not")

    def test_every_kind_ends_at_the_limit(self) -> None:
        full = f"{PIECES} pieces, then 2"
        for kind in ("device", "pitch", "vmm", "array", "async", "pool"):
            for settings in ({}, {"MEMLAB_POOL": "off"}, {"MEMLAB_BACKEND": "classic"}):
                with self.subTest(kind, **settings):
                    self.assertEqual(self.lines("fill", kind, **settings), [full, full])

    def test_managed_memory_is_not_refused(self) -> None:
        self.assertEqual(self.lines("fill", "managed"), ["64 pieces, then 0"] * 2)

    def test_threads_do_not_pass_it_together(self) -> None:
        for pool in ("on", "off"):
            expected = (LIMIT - CONTEXT) // (20 if pool == "on" else 2) * (10 if pool == "on" else 1)
            with self.subTest(pool=pool):
                lines = self.lines("threads", MEMLAB_POOL=pool, MEMLAB_BACKEND="classic")
                self.assertEqual(lines, [f"{expected} pieces"])
        with self.subTest(backend="vmm"):
            self.assertEqual(self.lines("threads", MEMLAB_BACKEND="vmm"),
                             [f"{(LIMIT - CONTEXT) // 2} pieces"])

    def test_a_stream_ordered_pool_reuses_what_it_holds(self) -> None:
        self.assertEqual(self.lines("reuse"), ["100 rounds"])

    def test_a_capture_answers_before_the_limit(self) -> None:
        native = self.without_memlab(self.program("limited", "capture"))
        self.assertEqual(self.run_limited("capture").stdout, native.stdout)

    def test_memory_of_another_device(self) -> None:
        lines = self.lines("other", limit="1GiB,device=1", SIMCUDA_DEVICES="2")
        self.assertEqual(lines, ["without a context there: 0", "with one: 2",
                                 "the current context is as it was: yes"])
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        reasons = [missed["reason"] for missed in found[0].report["missed"]]
        self.assertEqual(len(reasons), 1)
        self.assertIn("MEMLAB_LIMIT was not applied", reasons[0])

    def test_what_it_does_not_understand_it_says(self) -> None:
        for limit in ("much", "1.5XiB", "1GiB,gpu=0", "1GiB,device=", "1GiB,device=-1", "1GiB;2GiB",
                      "1GiB,device=GPU-xyz", "1GiB;"):
            with self.subTest(limit):
                outcome = self.run_limited("info", limit=limit)
                self.assertIn(f"MEMLAB_LIMIT={limit} is not understood (takes size".encode(), outcome.stderr)
                self.assertIn(f"total {8 << 30}".encode(), outcome.stdout)

    def test_a_limit_for_no_device_is_said(self) -> None:
        for limit in ("1GiB,device=7", "1GiB,device=GPU-ffff", "9GiB"):
            with self.subTest(limit):
                self.assertIn(b"MEMLAB_LIMIT has no effect",
                              self.run_limited("info", limit=limit).stderr)
