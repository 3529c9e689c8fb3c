#!/usr/bin/env python3
"""memlab-report histogram: allocations by size and by lifetime. Run by ctest, as test_summary.py is."""

import glob
import json
import os
import re
import shutil
import subprocess
import unittest

from test_summary import BIN, REPORT, SOURCE
from test_views import ViewTest, recorded

LOGS = sorted(glob.glob(os.path.join(SOURCE, "tests/data/h*/**/*.memlog"), recursive=True))


class Histogram(ViewTest):
    def devices(self, *arguments):
        document = self.document("histogram", *arguments)
        self.assertEqual((document["format"], document["version"], document["errors"]), ("memlab-histogram", 1, []))
        return [device for report in document["reports"] for device in report["devices"]]

    def totals(self, *arguments):
        reports = self.document("sites", *arguments)["reports"]
        return [device["taken"] for report in reports for device in report["devices"]]

    def check(self, *arguments):
        """The rows of each histogram are all that `sites` has, each from one power of two below the next."""
        found, expected = self.devices(*arguments), self.totals(*arguments)
        self.assertEqual(len(found), len(expected))
        for device, total in zip(found, expected):
            self.assertEqual(device["total"], {"count": total["count"], "bytes": total["bytes"]})
            self.assertEqual(device["held"], {"count": total["live_count"], "bytes": total["live_bytes"]})
            for rows, rest in (("sizes", ("size_unknown",)), ("lifetimes", ("held", "end_unknown"))):
                for figure in ("count", "bytes"):
                    self.assertEqual(sum(row[figure] for row in device[rows]) + sum(device[r][figure] for r in rest),
                                     device["total"][figure], (arguments, rows))
                bounds = [(row["from"], row["below"]) for row in device[rows]]
                self.assertEqual(bounds, sorted(bounds))
                for least, below in bounds:
                    self.assertIn(below, (1,) if least == 0 else (2 * least,))
        return found

    def test_as_people_see_it(self):
        self.golden("histogram", "histogram", recorded("h100/pytorch_without_its_cache.memlog"))
        self.golden("histogram_wide", "histogram", "--by", "size", "--ascii", "--filter", "kind=pinned",
                    recorded("h100/jax_platform_allocator.json"), COLUMNS="120")
        self.golden("histogram_framework", "histogram", "--by", "lifetime", recorded("h200/pytorch_tensors.memlog"))

    def test_every_allocation_of_every_recording_is_counted(self):
        for log in LOGS:
            for device in self.check(log):
                self.assertEqual(device["size_unknown"]["count"], 0, log)
        self.check("--filter", "kind=vmm", recorded("h100/jax_platform_allocator.memlog"))
        self.check("--device", "1", self.log("two_gpus"))
        self.check("--level", "driver", recorded("h200/pytorch_tensors.memlog"))

    def test_sizes_and_lifetimes_are_those_of_the_log(self):
        device, = self.devices(self.log("leak"))
        # 4,000,000 bytes are asked for, in a block of 4,000,256.
        self.assertEqual(device["sizes"], [
            {"from": 1 << 20, "below": 1 << 21, "count": 1, "bytes": 1 << 20},
            {"from": 1 << 21, "below": 1 << 22, "count": 1, "bytes": 4_000_256},
            {"from": 1 << 22, "below": 1 << 23, "count": 1, "bytes": 4 << 20},
            {"from": 1 << 23, "below": 1 << 24, "count": 1, "bytes": 8 << 20}])
        # From 20 to 40 ms.
        self.assertEqual(device["lifetimes"], [{"from": 1 << 24, "below": 1 << 25, "count": 1, "bytes": 8 << 20}])
        self.assertEqual(device["held"]["count"], 3)

    def test_a_report_with_its_log_and_the_log_say_the_same(self):
        name = recorded("h100/cupy_without_its_cache")
        self.assertEqual(self.report("histogram", name + ".json"), self.report("histogram", name + ".memlog"))
        run = self.path("run")
        os.mkdir(run)
        for end in (".json", ".memlog"):
            shutil.copy(name + end, os.path.join(run, "memlab.cupy.1" + end))
            shutil.copy(recorded("h100/jax_platform_allocator") + end, os.path.join(run, "memlab.jax.2" + end))
        self.assertEqual(len(self.check(run)), 2)

    def test_one_of_the_two(self):
        log = self.log("leak")
        both, sizes, lifetimes = (self.report("histogram", *by, log)
                                  for by in ((), ("--by", "size"), ("--by", "lifetime")))
        self.assertEqual(sizes + "\n" + re.sub(r"^.*\n\n", "", lifetimes, count=1), both)
        device, = self.devices("--by", "size", log)
        self.assertEqual(set(device), {"index", "name", "total", "sizes", "size_unknown"})

    def test_random_logs(self):
        for kind in ("plausible", "wild"):
            for seed in range(1, 6):
                log = self.path(f"{kind}{seed}.memlog")
                subprocess.run([os.path.join(BIN, "random_log"), kind, str(seed), "2000", log], check=True)
                if self.call(REPORT, "sites", log).returncode != 0:
                    continue
                if kind == "plausible":
                    self.check(log)
                self.devices(log)  # the sums of wild ones saturate
                self.report("histogram", "--ascii", log)

    def test_nothing_and_wrong_usage(self):
        self.assertEqual(self.report("histogram", self.log("empty")), "No GPU memory was allocated.\n")
        leak = self.log("leak")
        self.assertIn("no call site matches", self.report("histogram", "--filter", "no such", leak))
        shutil.copy(recorded("h100/sample_cache_lines.json"), self.path("alone.json"))
        self.refused("alone.json: has sums, not single allocations; give its event log (*.memlog)", "histogram",
                     self.path("alone.json"))
        self.refused("--by: takes size or lifetime, not count", "histogram", "--by", "count", "x.memlog")
        self.refused("GPU 7 was not used", "histogram", "--device", "7", leak)


if __name__ == "__main__":
    unittest.main()
