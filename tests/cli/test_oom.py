#!/usr/bin/env python3
"""memlab-report oom as a user meets it. Run by ctest, as test_summary.py is."""

import json
import os
import unittest

from test_summary import REPORT, SOURCE, ToolTest, line_of

RECORDINGS = os.path.join(SOURCE, "tests", "data", "h100")


class OutOfMemory(ToolTest):
    def test_of_a_real_run(self):
        path = os.path.join(RECORDINGS, "sample_oom_recovery")
        text = self.report("oom", "--no-symbols", path + ".json")
        self.assertTrue(text.startswith("Out of memory 1 of 1  at 119.27 ms · GPU 0 · thread 5976 (main)\n"), text)
        self.assertRegex(text, r"(?m)^  asked for              50\.67 GiB$")
        self.assertRegex(text, r"(?m)^  free on the device     27\.99 GiB  by the driver")
        self.assertRegex(text, r"(?m)^    > sample_oom_recovery\+0x1575$")
        self.assertRegex(text, r"(?m)^     50\.67 GiB  100\.0%       1  sample_oom_recovery\+0x1555$")
        self.assertNotIn("How ", text)
        self.assertEqual(text, self.report("oom", "--no-symbols", path + ".memlog"))
        for line in text.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_holders_have_stacks_when_asked_for(self):
        text = self.report("oom", "--stacks", "1", self.log("oom"))
        self.assertIn("  How 3.81 MiB came about:\n", text)
        self.assertRegex(text, r"(?m)^    > load_batch  tests/cli/memlab_synth\.cpp:%d$"
                         % line_of("load_batch"))
        self.assertRegex(text, r"(?m)^    > forward_pass  tests/cli/memlab_synth\.cpp:%d$"
                         % line_of("forward_pass"))

    def test_the_thread_has_its_name(self):
        text = self.report("oom", self.log("oom"))
        self.assertRegex(text, r"^Out of memory 1 of 1 .* thread 7 \(loader .\[31m\)\n")
        self.assertNotIn("\x1b", text)

    def test_holders_that_a_filter_takes(self):
        log = self.log("oom")
        text = self.report("oom", "--filter", "func=load_batch", "--sort", "count", log)
        self.assertTrue(text.startswith("Holders: only func=load_batch\n\nOut of memory 1 of 1"), text)
        self.assertIn("load_batch", text.split("Held at that moment: 3.81 MiB")[1])
        text = self.report("oom", "--filter", "func=nobody", log)
        self.assertNotIn("Held at that moment", text)
        self.assertIn("Out of memory 1 of 1", text)

    def test_json(self):
        document = json.loads(self.report("oom", "--json", self.log("oom")))
        self.assertEqual(document["format"], "memlab-ooms")
        report, = document["reports"]
        self.assertEqual(report["oom_count"], 1)
        oom, = report["ooms"]
        self.assertEqual(oom["requested_bytes"], 60_000 << 20)
        self.assertEqual((oom["thread"], oom["thread_name"]), (7, "loader \x1b[31m"))
        self.assertEqual(oom["stack"][1]["line"], line_of("forward_pass"))
        self.assertEqual(oom["holders"]["places"][0]["place"]["line"], line_of("load_batch"))

    def test_nothing_failed(self):
        for log in (self.log("leak"), self.log("empty")):
            self.assertEqual(self.report("oom", log), "No allocation failed for lack of memory.\n")
        result = self.call(REPORT, "oom", self.path("none"))
        self.assertEqual((result.returncode, result.stdout), (2, ""))


if __name__ == "__main__":
    unittest.main()
