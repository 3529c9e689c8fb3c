#!/usr/bin/env python3
"""memlab-report inefficiencies as a user meets it. Run by ctest, as test_summary.py is."""

import json
import os
import shutil
import unittest

from test_summary import REPORT, SOURCE, SYNTH, ToolTest

RECORDINGS = os.path.join(SOURCE, "tests", "data")


class Inefficiencies(ToolTest):
    def test_of_a_real_run(self):
        log = os.path.join(RECORDINGS, "h200", "pytorch_transformer.memlog")
        text = self.report("inefficiencies", log, "--no-symbols")
        self.assertIn("peak: 1.21 GiB allocated, 1.44 GiB reserved", text)
        words = " ".join(text.split())
        self.assertIn("unused reserve: At most 1.44 GiB were reserved, and at most 1.21 GiB allocated. With "
                      "MEMLAB_BACKEND=vmm a replay reserves 1.29 GiB at most.", words)
        # Blocks that waited for the GPU and that kept segments were there when the pool grew: replays
        # in which they do not save nothing. Rounding is below 1 % of what was reserved.
        for pattern in ("late reuse", "fragmentation source", "oversized alignment"):
            self.assertNotIn(pattern, text)
        for line in text.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_what_a_small_program_reserves(self):
        """Less than is told without a replay, and that one shows a setting."""
        log = os.path.join(RECORDINGS, "h100", "sample_cache_lines.memlog")
        words = " ".join(self.report("inefficiencies", log, "--no-symbols").split())
        self.assertIn("unused reserve: At most 20.00 MiB were reserved, 5.2 times the 3.81 MiB that were allocated at most. "
                      "With MEMLAB_BACKEND=vmm a replay reserves 4.00 MiB at most.", words)
        self.assertNotIn("were reserved, 5 times", self.report("summary", log, "--no-symbols"))

    def test_the_model_is_not_held_longer_than_needed(self):
        """Optimizer state and parameters of a training: the categories say what they are."""
        for name in ("pytorch_tensors.memlog", "pytorch_scopes.memlog", "pytorch_transformer.memlog"):
            # Also where the functions have no names, and so the memory no categories.
            text = self.report("inefficiencies", "--no-symbols", os.path.join(RECORDINGS, "h200", name))
            self.assertNotIn("held longer than needed:", text)

    def test_collectives_are_no_steps(self):
        """Of a rank of four: what lives from one all-reduce to the next is no finding."""
        log = os.path.join(RECORDINGS, "h200", "run_of_four_ranks", "memlab.python3.12.983.memlog")
        (report,) = json.loads(self.report("inefficiencies", "--json", "--no-symbols", log))["reports"]
        self.assertIsNone(report["steps"])
        patterns = {finding["pattern"] for device in report["devices"] for finding in device["findings"]}
        self.assertFalse(patterns & {"over_long_life", "leak"}, patterns)

    def large_run(self):
        path = self.path("run.memlog")
        self.assertEqual(self.call(SYNTH, "--events", "60000", "--sites", "40", "--seed", "3",
                                   "-o", path).returncode, 0)
        return path

    def test_what_grows_with_the_steps(self):
        log = self.large_run()
        document = json.loads(self.report("inefficiencies", "--json", "--no-symbols", log))
        self.assertEqual(document["format"], "memlab-inefficiencies")
        (report,) = document["reports"]
        self.assertRegex(report["steps"], r'^(mark|scope|range) ".+"$')
        peak = report["devices"][0]["allocated_peak_bytes"]
        findings = report["devices"][0]["findings"]
        leaks = [each for each in findings if each["pattern"] == "leak"]
        certain = [each for each in leaks if each["confidence"] == "certain"]
        for leak in certain:
            self.assertTrue(leak["saves"]["peak_is_exact"])
            self.assertTrue(0 < leak["saves"]["peak_bytes"] <= min(leak["bytes"], peak))
        # leaks --growth says the same of it, and also of what is too small to be told here.
        growth = json.loads(self.report("leaks", "--growth", "--json", "--no-symbols", log))
        for steps in growth["reports"][0]["steps"]:
            places = [row["place"] for row in steps["growing"]]
            for leak in leaks:
                self.assertEqual(leak["place"] in places, leak["confidence"] == "certain")
            for row in steps["growing"]:
                small = row["bytes_per_step"] * steps["steps"] < peak / 100
                self.assertTrue(small or row["place"] in [leak["place"] for leak in certain], row)

    def test_only_what_is_asked_for(self):
        log = self.large_run()
        nothing = self.report("inefficiencies", log, "--no-symbols", "--pattern", "late_reuse",
                              "--pattern", "unused_allocation")
        self.assertIn("No findings. Looked for: ", nothing)
        self.assertNotIn("leak:", self.report("inefficiencies", log, "--filter", "kind=pinned"))
        with open(self.path("known.supp"), "w", encoding="utf-8") as file:
            file.write("[all]\nreason = on purpose\nkind = device\n")
        self.assertNotIn("leak:", self.report("inefficiencies", log, "--suppressions",
                                              self.path("known.supp")))

    def test_the_log_is_found_beside_the_report(self):
        folder = os.path.join(RECORDINGS, "h100")
        text = self.report("inefficiencies", "--no-symbols",
                           os.path.join(folder, "sample_checkpointing_plain.json"))
        self.assertIn("oversized alignment: saves 2.06 MiB of the peak, 2.9% (certain)", text)
        shutil.copy(os.path.join(folder, "sample_checkpointing_plain.json"), self.path("a.json"))
        result = self.call(REPORT, "inefficiencies", self.path("a.json"))
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("a.json: has sums, not moments; give its event log", result.stderr)

    def test_wrong_usage(self):
        log = self.log("leak")
        for arguments, problem in ((("--pattern", "waste"), "waste"),
                                   (("--step", "epoch"), "has no steps of the name epoch"),
                                   (("--device", "7"), "GPU 7"),
                                   (("--suppressions", "/nowhere"), "/nowhere")):
            with self.subTest(arguments=arguments):
                result = self.call(REPORT, "inefficiencies", log, *arguments)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertIn(problem, result.stderr)

    def test_nothing_allocated(self):
        self.assertIn("No GPU memory was allocated.\n",
                      self.report("inefficiencies", self.log("empty")))


if __name__ == "__main__":
    unittest.main()
