"""The report's memory_stats: every key of torch.cuda.memory_stats, and figures that a program's known
calls determine.
"""

from __future__ import annotations

import itertools
import re

from harness import judge_recordings
from support import ROOT, EndToEnd

KEYS = ROOT / "tests" / "data" / "torch_memory_stats_keys.txt"


def keys_of_pytorch() -> list[str]:
    keys = []
    for line in KEYS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            parts = [part.strip("{}").split(",") for part in re.findall(r"\{[^}]*\}|[^.{}]+", line)]
            keys += [".".join(choice) for choice in itertools.product(*parts)]
    return sorted(keys)


class Statistics(EndToEnd):
    """Programs whose every allocation is known."""

    def stats(self, *command: str, **settings: str) -> tuple[dict[str, int], dict]:
        self.output = self.work / "-".join(("out", *command, *settings.values()))
        outcome = self.under_memlab(self.program(*command), settings)
        self.assertEqual(outcome.code, 0, outcome.describe())
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        device = found[0].report["devices"][0]
        return device["memory_stats"], device

    def test_the_keys_are_pytorchs(self) -> None:
        stats, device = self.stats("memory_info")
        self.assertEqual(sorted(stats), keys_of_pytorch())
        self.assertEqual(len(stats), 9 * 3 * 4 + 2 * 4 + 6)
        self.assertLessEqual({"at_peak", "external", "internal"}, set(device["fragmentation"]))

    def test_failures_and_retries_at_the_limit(self) -> None:
        stats, _ = self.stats("limited", "fill", "device", MEMLAB_LIMIT="1GiB",
                              SIMCUDA_CONTEXT_MEMORY="300MiB")
        # Two rounds of 11 pieces of 64 MiB; the second takes what the first gave back.
        self.assertEqual(stats["num_ooms"], 2)
        self.assertEqual(stats["num_alloc_retries"], 0)  # nothing unused would have helped
        self.assertEqual(stats["num_device_alloc"], 11)
        self.assertEqual(stats["allocation.all.allocated"], 22)
        self.assertEqual(stats["allocation.large_pool.peak"], 11)
        self.assertEqual(stats["reserved_bytes.all.peak"], 704 << 20)
        self.assertEqual(stats["max_split_size"], -1)
        self.assertEqual(stats["oversize_allocations.allocated"], 0)

    def test_oversize_by_max_split_size(self) -> None:
        stats, _ = self.stats("limited", "fill", "device", MEMLAB_LIMIT="1GiB",
                              SIMCUDA_CONTEXT_MEMORY="300MiB", MEMLAB_MAX_SPLIT_SIZE_MB="64")
        self.assertEqual(stats["max_split_size"], 64 << 20)
        self.assertEqual(stats["oversize_allocations.allocated"], 22)
        self.assertEqual(stats["oversize_allocations.peak"], 11)
        self.assertEqual(stats["oversize_allocations.current"], 0)
        self.assertEqual(stats["oversize_segments.peak"], 11)
        stats, _ = self.stats("memory_info", MEMLAB_MAX_SPLIT_SIZE_MB="65")
        self.assertEqual(stats["oversize_allocations.allocated"], 0)
