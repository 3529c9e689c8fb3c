#!/usr/bin/env python3
"""memlab-report pool as a user meets it. Run by ctest, as test_summary.py is."""

import json
import os
import shutil
import unittest

from test_summary import REPORT, SOURCE, ToolTest

RECORDINGS = os.path.join(SOURCE, "tests", "data")


class Pool(ToolTest):
    def test_of_a_real_run(self):
        log = os.path.join(RECORDINGS, "h200", "pytorch_transformer.memlog")
        text = self.report("pool", log, "--no-symbols", "--top", "3")
        self.assertIn("At the allocated peak  3.338 s", text)
        self.assertRegex(text, r"  1\.30 GiB reserved in 73 segments, 1\.21 GiB of it active")
        self.assertRegex(text, r"\[\d+ segments more\]")
        self.assertIn("[65 empty segments]", text)
        self.assertRegex(text, r"(?m)^  reserved_bytes\.all +\d")
        for line in text.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_memory_that_is_mapped_has_no_segments(self):
        """As the statistics of the pool below count none."""
        text = self.report("pool", os.path.join(RECORDINGS, "h200", "sample_leak.memlog"), "--no-symbols", "--top", "1")
        layout, statistics = text.split("\nStatistics", 1)
        self.assertNotIn("segment", layout)
        self.assertIn("What keeps partly free mapped ranges from being given back:", layout)
        self.assertIn("[1 empty mapped range]", layout)
        self.assertRegex(statistics, r"segment\.all +0")

    def test_a_report_without_its_log_has_the_figures(self):
        shutil.copy(os.path.join(RECORDINGS, "h100", "sample_cache_lines.json"), self.path("a.json"))
        text = self.report("pool", self.path("a.json"))
        self.assertIn("known from the event log alone", text)
        self.assertIn("num_device_alloc", text)
        self.assertNotIn("small_pool", text)
        self.assertIn("small_pool", self.report("pool", "--stats", self.path("a.json")))

    def test_json(self):
        document = json.loads(self.report("pool", "--json", self.log("leak"), self.log("two_gpus")))
        self.assertEqual(document["format"], "memlab-pool")
        first, second = document["reports"]
        self.assertEqual([device["index"] for device in second["devices"]], [0, 1])
        moments = first["devices"][0]["moments"]
        self.assertEqual([moment["what"] for moment in moments], ["peak", "end"])
        self.assertEqual([len(segment["blocks"]) for segment in moments[0]["segments"]], [3])
        self.assertEqual(moments[1]["reserved_bytes"], 20 << 20)

    def test_out_of_memory_is_a_moment(self):
        self.assertIn("When 58.59 GiB did not fit", self.report("pool", self.log("oom")))

    def test_nothing_allocated(self):
        self.assertEqual(self.report("pool", self.log("empty")), "No GPU memory was allocated.\n")
        result = self.call(REPORT, "pool", self.log("leak"), "--device", "7")
        self.assertEqual((result.returncode, result.stdout), (2, ""))


if __name__ == "__main__":
    unittest.main()
