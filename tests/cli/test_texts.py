#!/usr/bin/env python3
"""Every view of memlab-report as a reader sees it, where functions have names.

The recordings are of GPUs (tests/data), where there are some with the names that memlab-report symbolize put into
their reports. test_views.py says how the texts of tests/cli/golden are regenerated.
"""

import json
import os
import shutil
import subprocess
import unittest

from test_summary import BIN, REPORT
from test_views import ViewTest, recorded


class Texts(ViewTest):
    NAMES = ()

    def setUp(self):
        super().setUp()
        # The names are in the report, the events in the log: one recording.
        for name, recording in (("training", "pytorch_tensors"), ("out_of_memory", "pytorch_out_of_memory"),
                                ("checkpoint", "pytorch_checkpoint")):
            with open(recorded(f"h200/{recording}_named.json"), encoding="utf-8") as file:
                report = json.load(file)
            # No machine has more names than the report, not even one with the libraries that ran.
            for module in report["modules"]:
                module.update(path="/recorded" + module["path"], build_id="")
            with open(self.path(name + ".json"), "w", encoding="utf-8") as file:
                json.dump(report, file)
            shutil.copy(recorded(f"h200/{recording}.memlog"), self.path(name + ".memlog"))

    def test_who_holds_it(self):
        self.golden("named_summary", "training.json")
        self.golden("named_sites", "sites", "--top", "4", "training.json")
        self.golden("named_categories", "sites", "--by", "category", "training.json")
        self.golden("named_tree", "tree", "--min", "15", "training.json", COLUMNS="100")
        self.golden("named_tree_down", "tree", "--top-down", "--min", "5", "training.json", COLUMNS="100")
        self.golden("named_leaks", "leaks", "--top", "4", "training.json")
        self.golden("named_diff", "diff", "--top", "4", "training.json", "out_of_memory.json", COLUMNS="120")

    def test_when(self):
        self.golden("named_timeline", "timeline", "--at", "step 2", "--top", "4", "training.json")
        self.golden("named_timeline_part", "timeline", "--ascii", "--from", "900ms", "--until", "930ms", "training.json")
        self.golden("named_timeline_categories", "timeline", "--by", "category", "training.json")
        self.golden("named_histogram", "histogram", "--filter", "func=training", "training.json", COLUMNS="100")

    def test_names_of_any_moment(self):
        for moment in ("peak", "step 2"):
            result = self.call(REPORT, "export", "--to", "folded", "--at", moment, "training.json")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(";__libc_start_main;", result.stdout, moment)

    def test_why(self):
        self.golden("named_oom", "oom", "out_of_memory.json", COLUMNS="100")
        self.golden("named_pool", "pool", "--top", "4", "training.json")
        self.golden("named_lines", "lines", "pytorch_tensors.py:training", "training.json")
        self.golden("named_inefficiencies", "inefficiencies", "--top", "2", "training.json", COLUMNS="100")

    def test_lines_of_the_forward_in_what_backward_allocates(self):
        self.golden("named_forward_sites", "sites", "--level", "framework", "--top", "6", "checkpoint.json",
                    COLUMNS="100")
        self.golden("named_forward_tree", "tree", "--level", "framework", "--filter", "func=Layers.forward", "--min", "10",
                    "checkpoint.json", COLUMNS="100")
        self.golden("named_forward_lines", "lines", "backward_lines.py", "--level", "framework", "checkpoint.json")

    def test_metrics(self):
        lines = self.report("export", "--to", "openmetrics", "training.json").splitlines(keepends=True)
        self.same_as_golden("export_openmetrics", "".join(lines[:40]), max(map(len, lines)))

    def test_beside_allocations(self):
        """Python's frames have their names in the log."""
        ledger = recorded("h200/pytorch_scopes.memlog")
        self.golden("ledger", "ledger", "--no-symbols", ledger)
        self.golden("ledger_end", "ledger", "--no-symbols", "--at", "end", ledger)
        # A GPU that another program uses, too, which grew meanwhile.
        self.golden("ledger_shared", "ledger", "--no-symbols",
                    recorded("h200/run_of_four_ranks/memlab.python3.12.985.memlog"))

    def test_scopes(self):
        """NVTX's ranges of real training steps; they are the steps."""
        scopes = recorded("h200/pytorch_scopes.memlog")
        self.golden("scopes_summary", "--no-symbols", "--top", "3", scopes)
        self.golden("scopes_lines", "lines", "nvtx_scopes.py:main", "--every", "6", "--step", "step", "--no-symbols", scopes)
        steps = json.loads(self.report("--json", "--no-symbols", scopes))["reports"][0]["steps"]
        self.assertIn(("step", 12), {(each["name"], each["steps"]) for each in steps})

    def test_an_audit(self):
        """What CUPTI saw of the driver, beside kernels and Python's lines."""
        self.golden("audit_summary", "--no-symbols", recorded("h200/cupy_own_cache.memlog"), COLUMNS="100")
        self.golden("audit_check", "check", "--bypass", "0", "--contexts", "1", "--unexplained", "1%", "--no-symbols",
                    recorded("h200/cupy_own_cache.memlog"))

    def test_a_limit(self):
        """Eight failures: one, and seven that differ in their times alone."""
        failures = recorded("h200/sample_result_cache.json")
        self.golden("oom_limit", "oom", "--no-symbols", failures)
        self.assertEqual(len(json.loads(self.report("oom", "--json", failures))["reports"][0]["ooms"]), 8)

    def test_what_if(self):
        self.golden("whatif", "whatif", "--policy", "pool", "--policy", "pytorch", "--policy", "async",
                    recorded("h100/pytorch_without_its_cache.memlog"))

    def test_limits(self):
        result = self.call(REPORT, "check", "--peak-allocated", "100MiB", "--leaks", "0", "training.json")
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.same_as_golden("named_check", result.stdout)

    def test_runs(self):
        run = recorded("h200/run_of_four_ranks/")
        self.golden("run", "--no-symbols", run)
        self.golden("run_merge", "merge", "--no-symbols", run)


class Widths(ViewTest):
    """A view fits the terminal, whatever the recording has. Commands to copy are never cut, nor are whole call stacks."""

    VIEWS = ("summary", "sites", "tree", "nn-modules", "leaks", "leaks --growth", "timeline --at peak", "histogram", "pool",
             "inefficiencies", "ledger", "whatif", "merge", "trend", "check --leaks 0 --peak-allocated 1MiB")

    def check_widths(self, recording):
        for view in self.VIEWS:
            result = self.call(REPORT, *view.split(), "--width", "80", recording)
            self.assertIn(result.returncode, (0, 1, 2), result.stderr)
            for line in result.stdout.splitlines():
                if not line.startswith("  memlab-report "):
                    self.assertLessEqual(len(line), 80, (view, recording, line))

    def test_random_recordings(self):
        for seed in range(1, 4):
            log = self.path(f"random{seed}.memlog")
            subprocess.run([os.path.join(BIN, "random_log"), "plausible", str(seed), "2000", log], check=True)
            self.check_widths(log)
            self.check_sums(["merge", log], "a rank")
        self.check_sums(["."], "a process")

    def check_sums(self, arguments, whose):
        """Each has two GPUs, whose peaks do not coincide."""
        self.assertIn(f"peaks of what was handed out, summed over the GPUs of {whose}\n", self.call(REPORT, *arguments).stdout)

    def test_real_recordings(self):
        for name in ("h200/sample_result_cache.json", "h100/sample_oom_recovery.json", "h200/pytorch_tensors.memlog"):
            self.check_widths(recorded(name))


if __name__ == "__main__":
    unittest.main()
