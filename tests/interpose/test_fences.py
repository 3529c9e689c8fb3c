"""Frees while the GPU is at work: when the host waits, when memory comes back, and that no reuse runs
ahead of the work that still uses it. On the simulated driver, which ends a program with code 86 when
two accesses to one address are unordered; the control shows that it would.
"""

from __future__ import annotations

import unittest

from harness import run
from support import Build, EndToEnd

SMALL = str(1 << 20)
# Two of them do not fit: the second allocation must take what the first one gave back.
LARGE = str(100 << 20)
TIGHT = {"SIMCUDA_MEMORY": "150MiB"}


class Fences(EndToEnd):
    """One program, tests/programs/fences.cpp, under each MEMLAB_FREE_SYNC, as if it had several streams:
    those that have one are in test_one_stream.py."""

    def outcome(self, *arguments: str, **settings: str):
        return self.under_memlab(self.program("fences", *arguments), {"MEMLAB_ONE_STREAM": "off"} | settings)

    def lines(self, *arguments: str, **settings: str) -> list[str]:
        outcome = self.outcome(*arguments, **settings)
        self.assertEqual(outcome.code, 0, outcome.describe())
        return outcome.stdout.decode().splitlines()

    def test_plain_cuda_waits(self) -> None:
        outcome = self.without_memlab(self.program("fences", "reuse", SMALL))
        self.assertEqual(outcome.code, 0, outcome.describe())
        self.assertIn(b"free: the host waited", outcome.stdout)

    def test_auto_and_always_wait_as_plain_cuda_does(self) -> None:
        for sync in ("auto", "always"):
            lines = self.lines("reuse", SMALL, MEMLAB_FREE_SYNC=sync)
            self.assertEqual(lines[:2], ["free: the host waited", "same address: yes"], sync)

    def test_auto_knows_who_does_not_rely_on_the_wait(self) -> None:
        folder = self.layout.program("fences").parent
        for library, sync, host in (("libc10_cuda.so", "auto", "went on"),
                                    ("libnot_c10_cuda.so", "auto", "waited"),
                                    ("libc10_cuda.so", "always", "waited")):
            lines = self.lines("reuse", SMALL, str(folder / library), MEMLAB_FREE_SYNC=sync)
            self.assertEqual(lines[0], f"free: the host {host}", (library, sync))

    def test_never_does_not_wait_and_reuses_nothing_in_use(self) -> None:
        lines = self.lines("reuse", SMALL, MEMLAB_FREE_SYNC="never")
        self.assertEqual(lines[:2], ["free: the host went on", "same address: no"])

    def test_never_orders_the_device_where_memory_is_short(self) -> None:
        lines = self.lines("reuse", LARGE, MEMLAB_FREE_SYNC="never", **TIGHT)
        self.assertEqual(lines, ["free: the host went on", "same address: yes",
                                 "context events recorded: yes, waited for on the device: yes"])

    def test_idle_gpu(self) -> None:
        for sync in ("auto", "always"):
            lines = self.lines("idle", SMALL, MEMLAB_FREE_SYNC=sync)
            self.assertEqual(lines[:2], ["free: the host went on", "same address: yes"], sync)
        # Does not ask whether the device is idle while another block will do.
        lines = self.lines("idle", SMALL, MEMLAB_FREE_SYNC="never")
        self.assertEqual(lines[0], "free: the host went on")

    def test_a_driver_without_context_events_synchronizes(self) -> None:
        for sync in ("auto", "never"):
            lines = self.lines("reuse", SMALL, MEMLAB_FREE_SYNC=sync, SIMCUDA_DRIVER_VERSION="12040")
            self.assertEqual(lines[:2], ["free: the host waited", "same address: yes"], sync)

    def test_a_device_wait_that_fails_is_no_licence_to_reuse(self) -> None:
        lines = self.lines("reuse", LARGE, MEMLAB_FREE_SYNC="never",
                           SIMCUDA_FAIL="cuCtxWaitEvent:1:999", **TIGHT)
        self.assertEqual(lines[:2], ["free: the host went on", "same address: yes"])

    def test_work_that_waits_for_later_work_is_not_waited_for(self) -> None:
        outcome = self.under_memlab(self.program("spin", "free"), {"MEMLAB_FREE_SYNC": "never"})
        self.assertEqual(outcome.code, 0, outcome.describe())

    def test_control_a_wait_for_it_is_noticed(self) -> None:
        outcome = self.under_memlab(self.program("spin", "free", "1"), {"MEMLAB_FREE_SYNC": "always"})
        self.assertEqual(outcome.code, 5, outcome.describe())

    def test_work_of_a_peer_is_fenced_too(self) -> None:
        for sync, backend in (("auto", "classic"), ("always", "classic"), ("never", "classic"), ("never", "vmm")):
            outcome = self.under_memlab(self.program("two_gpus", "unordered"), {
                "SIMCUDA_DEVICES": "2", "MEMLAB_FREE_SYNC": sync, "MEMLAB_BACKEND": backend})
            self.assertEqual(outcome.code, 0, outcome.describe())
            self.assertIn(b"reused memory of a peer: 0 of 80 wrong", outcome.stdout)

    def test_peer_access_that_is_enabled_already_counts(self) -> None:
        # Pages are given to peers as they are mapped.
        already = ",".join(f"cuCtxEnablePeerAccess:{number}:704" for number in range(1, 5))
        given = []
        for fail in ("", already):
            statistics = self.cwd / "calls.txt"
            outcome = self.under_memlab(self.program("two_gpus", "unordered"), {
                "SIMCUDA_DEVICES": "2", "MEMLAB_BACKEND": "vmm", "SIMCUDA_FAIL": fail,
                "SIMCUDA_STATS": str(statistics)})
            self.assertEqual(outcome.code, 0, outcome.describe())
            given += [line for line in statistics.read_text(encoding="utf-8").splitlines()
                      if line.startswith("calls cuMemSetAccess")]
        self.assertEqual(given[0], given[1])

    def test_two_gpus_on_pages_of_its_own(self) -> None:
        settings = {"SIMCUDA_DEVICES": "2"}
        native = run(self.program("two_gpus"), self.layout.environment(memlab=False, settings=settings), self.cwd)
        under = self.under_memlab(self.program("two_gpus"), settings | {"MEMLAB_BACKEND": "vmm"})
        self.assertEqual((under.code, under.stdout, under.stderr), (0, native.stdout, b""), under.describe())

    def test_control_plain_cuda_does_not_wait_for_a_peer(self) -> None:
        environment = self.layout.environment(memlab=False, settings={"SIMCUDA_DEVICES": "2"})
        outcome = run(self.program("two_gpus", "unordered"), environment, self.cwd)
        self.assertEqual(outcome.code, 86, outcome.describe())

    def overwrites_nothing(self, *command: str, **settings: str) -> None:
        """What plain CUDA overwrites, which the control shows, memlab does not."""
        control = run(self.program(*command), self.layout.environment(memlab=False, settings=settings), self.cwd)
        self.assertEqual(control.code, 86, control.describe())
        for more in ({}, {"MEMLAB_FREE_SYNC": "never"}, {"MEMLAB_BACKEND": "vmm"}, {"MEMLAB_BACKEND": "classic"},
                     {"MEMLAB_WORK_CLOCK": "off"}):
            with self.subTest(command=command, **more):
                outcome = self.under_memlab(self.program(*command), settings | more)
                self.assertEqual((outcome.code, outcome.stdout[:3]), (0, b"OK:"), outcome.describe())

    def test_graphs_that_copy_across_contexts(self) -> None:
        self.overwrites_nothing("graph_copies", "unordered")
        for sync in ("always", "never"):
            outcome = self.under_memlab(self.program("graph_copies", "stream"), {"MEMLAB_FREE_SYNC": sync})
            self.assertEqual(outcome.code, 0, outcome.describe())

    def test_peers_by_memory_of_another_process(self) -> None:
        for mode in ("unordered", "late"):
            self.overwrites_nothing("ipc_peers", mode, SIMCUDA_DEVICES="2")
        for mode in ("unordered", "late", "opened"):
            self.overwrites_nothing("ipc_peers", mode, SIMCUDA_DEVICES="2", SIMCUDA_IPC_ENABLES_PEERS="1")

    @unittest.skipIf(Build.sanitizer, "that library is built without sanitizers only")
    def test_control_without_peers_each_is_caught(self) -> None:
        library = str(self.layout.library.with_name("libmemlab_peerless.so"))
        for command in (("graph_copies", "stream"), ("graph_copies", "unordered"), ("ipc_peers", "stream"),
                        ("ipc_peers", "unordered"), ("ipc_peers", "late")):
            with self.subTest(command=command):
                outcome = self.under_memlab(self.program(*command), {"SIMCUDA_DEVICES": "2", "LD_PRELOAD": library})
                self.assertEqual(outcome.code, 86, outcome.describe())

    def test_control_unordered_use_is_caught(self) -> None:
        outcome = self.outcome("misuse", SMALL, MEMLAB_FREE_SYNC="never")
        self.assertEqual(outcome.code, 86, outcome.describe())

    def records(self, *arguments: str, **settings: str) -> list[int]:
        """Calls of cuCtxRecordEvent in each phase of tests/programs/work_clock.cpp."""
        outcome = self.under_memlab(self.program("work_clock", *arguments), settings)
        self.assertEqual(outcome.code, 0, outcome.describe())
        return [int(line.rsplit(" ", 1)[1]) for line in outcome.stdout.decode().splitlines()]

    def test_an_idle_gpu_costs_no_record_and_frees_share_one(self) -> None:
        for sync in ("auto", "never"):
            idle, shared, idle_again, busy = self.records(MEMLAB_FREE_SYNC=sync)
            self.assertEqual((idle, shared, idle_again, busy), (0, 1, 0, 5), sync)

    def test_without_the_work_clock_every_free_is_fenced(self) -> None:
        self.assertEqual(self.records(MEMLAB_WORK_CLOCK="off"), [10, 3, 10, 5])

    def test_an_unknown_driver_function_costs_the_work_clock(self) -> None:
        self.assertEqual(self.records("late"), [10, 3, 10, 5])

    def test_a_private_table_of_the_driver_costs_the_work_clock(self) -> None:
        self.assertEqual(self.records("table"), [10, 3, 10, 5])
        libraries = self.layout.program("fences").parent
        self.assertEqual(self.records("table", str(libraries / "libnot_c10_cuda.so")), [10, 3, 10, 5])
        # Whose work was seen to pass the hooks, or who submits none, whatever tables it takes.
        for library in ("libcudnn_graph.so", "libnvidia-ml.so"):
            self.assertEqual(self.records("table", str(libraries / library)), [0, 1, 0, 5], library)
