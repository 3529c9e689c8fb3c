#!/usr/bin/env python3
"""memlab-report whatif and replay as a user meets them: command lines, files, exit codes.

Run by ctest with the folder of the programs in MEMLAB_BIN and the source folder in MEMLAB_SOURCE.
"""

import json
import os
import subprocess
import tempfile
import unittest

BIN = os.environ["MEMLAB_BIN"]
DATA = os.path.join(os.environ["MEMLAB_SOURCE"], "tests/data")
REPORT = os.path.join(BIN, "memlab-report")
REAL = os.path.join(DATA, "h100/pytorch_without_its_cache.memlog")


class WhatIfTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="memlab-whatif.")
        self.addCleanup(self.folder.cleanup)

    def call(self, *arguments, code=0, **environment):
        keep = {key: value for key, value in os.environ.items() if not key.startswith("MEMLAB_")}
        keep.update({"LANG": "C.UTF-8", "COLUMNS": "80", **environment})
        result = subprocess.run([REPORT, *arguments], cwd=self.folder.name, env=keep, capture_output=True,
                                text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def refused(self, *arguments):
        """One clear line on stderr, nothing on stdout, exit code 2."""
        result = self.call(*arguments, code=2)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("memlab-report: "), result.stderr)
        return result.stderr

    def path(self, name, content):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def rows(self, *arguments):
        report = json.loads(self.call("whatif", "--json", *arguments).stdout)
        return {row["policy"]: row for row in report["devices"][0]["rows"]}, report["devices"][0]

    def test_a_real_log(self):
        rows, device = self.rows(REAL)
        self.assertEqual(rows["lower-bound"]["reserved_peak_bytes"], device["held_bytes"])
        # Our pool again, with its own options, is what was recorded.
        self.assertEqual(rows["pool"]["reserved_peak_bytes"], device["recorded"]["reserved_peak_bytes"])
        self.assertEqual(rows["pool"]["driver"]["allocs"], device["recorded"]["segment_allocs"])
        for name, row in rows.items():
            self.assertGreaterEqual(row["reserved_peak_bytes"], device["held_bytes"] * 0.999, name)
        text = self.call("whatif", REAL).stdout
        self.assertIn("Choose: ", text)
        self.assertIn("offline packing", text)

    def test_policies_options_and_their_order(self):
        rows, _ = self.rows(REAL, "--policy", "plain", "--policy", "pool:large_rounding=64MiB",
                            "--option", "roundup_power2_divisions=4", "--option", "MEMLAB_FREE_SYNC=never")
        self.assertEqual(list(rows), ["plain", "pool:large_rounding=64MiB",
                                      "pool:roundup_power2_divisions=4,MEMLAB_FREE_SYNC=never"])

    def test_one_gpu_of_two(self):
        log = os.path.join(self.folder.name, "two.memlog")
        subprocess.run([os.path.join(BIN, "memlab-synth"), "two_gpus", log], check=True)
        for arguments, devices in (((), [0, 1]), (("--device", "1"), [1])):
            report = json.loads(self.call("whatif", "--json", "--no-symbols", *arguments, log).stdout)
            self.assertEqual([device["index"] for device in report["devices"]], devices)
        self.assertIn("nothing was allocated on GPU 7; leave --device out",
                      self.refused("whatif", "--device", "7", log))

    def test_options_in_front_of_the_log_leave_it_alone(self):
        rows, _ = self.rows("--policy", "plain", "--option", "large_rounding=64MiB", REAL)
        self.assertEqual(list(rows), ["plain", "pool:large_rounding=64MiB"])

    def test_a_limit_that_is_too_small_names_event_and_site(self):
        rows, device = self.rows(REAL, "--limit", "760MiB")
        self.assertTrue(device["limited"])
        self.assertFalse(rows["plain"]["fits"])
        self.assertGreater(rows["plain"]["failure"]["event"], 0)
        self.assertNotEqual(rows["plain"]["failure"]["place"], "")
        self.assertIsNone(device["choice"]["policy"])
        self.assertIn("out of memory at event", self.call("whatif", REAL, "--limit", "760MiB").stdout)

    def test_our_pool_again_is_the_recording(self):
        for name in ("h100/pytorch_without_its_cache", "h100/cupy_without_its_cache", "h100/cut_off_by_exec",
                     "h100/sample_oom_recovery", "h200/pytorch_transformer"):
            log = os.path.join(DATA, name + ".memlog")
            rows, device = self.rows(log)
            self.assertTrue(device["as_recorded"], name)
            self.assertEqual(rows["pool"]["label"], "memlab pool, as recorded", name)
            self.assertEqual(rows["pool"]["reserved_peak_bytes"],
                             device["recorded"]["reserved_peak_bytes"], name)
            summary = json.loads(self.call("--json", log).stdout)["reports"][0]
            (recorded,) = [each["fragmentation"] for each in summary["devices"] if each["index"] == 0]
            for figure in ("at_peak", "external", "internal"):
                if recorded[figure] is not None:
                    self.assertAlmostEqual(rows["pool"]["fragmentation"][figure], recorded[figure], 6,
                                           f"{name} {figure}")

    def test_what_had_failed_would_fit_or_not(self):
        log = os.path.join(DATA, "h100/sample_oom_recovery.memlog")
        rows, device = self.rows(log)
        self.assertEqual(device["attempts"], 1)
        self.assertEqual({row["attempts_served"] for row in rows.values() if row["kind"] == "allocator"}, {0})
        text = self.call("whatif", log).stdout
        self.assertIn("but none of these serves the allocation that failed", " ".join(text.split()))
        line = next(line for line in text.splitlines() if line.startswith("  PyTorch  "))
        self.assertIn("  no  ", line)
        text = self.call("whatif", "--limit", "120GiB", log).stdout
        self.assertIn("and serves the allocation that failed", " ".join(text.split()))
        self.assertIn("memlab pool, same settings", text)
        line = next(line for line in text.splitlines() if line.startswith("  PyTorch  "))
        self.assertIn("  yes  ", line)
        for line in text.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_rows_that_fail_alike_share_a_paragraph(self):
        text = self.call("whatif", REAL, "--limit", "64MiB").stdout
        self.assertLess(text.count("out of memory at event"), 4, text)

    def test_a_report_or_a_run_names_its_log(self):
        expected = json.loads(self.call("whatif", "--json", REAL).stdout)
        beside = json.loads(self.call("whatif", "--json", REAL.replace(".memlog", ".json")).stdout)
        self.assertEqual(beside, expected)
        with open(REAL, "rb") as file:
            self.path("memlab.python3.12.1.memlog", file.read())
        of_folder = json.loads(self.call("whatif", "--json", ".").stdout)
        self.assertEqual(of_folder["devices"], expected["devices"])
        with open(REAL.replace(".memlog", ".json"), "rb") as file:
            alone = self.path("alone.json", file.read())
        self.assertIn("has sums, not moments; give its event log", self.refused("whatif", alone))

    def test_every_prefix_of_a_log(self):
        with open(REAL, "rb") as file:
            content = file.read()
        for size in (20_000, 40_000, 60_001):
            part = self.path("part.memlog", content[:size])
            self.assertIn("Choose: ", self.call("whatif", part).stdout)
            self.assertTrue(self.call("replay", part).stdout.startswith("equal: "))

    def test_damage_is_said_and_what_is_before_it_used(self):
        with open(os.path.join(DATA, "h100/jax_platform_allocator.memlog"), "rb") as file:
            content = bytearray(file.read())
        content[len(content) // 2] ^= 0xFF
        damaged = self.path("damaged.memlog", content)
        self.assertIn("event log", self.refused("whatif", damaged))

    def test_bad_input(self):
        self.assertIn("not an event log", self.refused("replay", REAL.replace(".memlog", ".json")))
        self.assertIn("without a whole record", self.refused("replay", self.path("nothing.memlog", b"")))
        self.assertIn("missing.memlog", self.refused("whatif", "missing.memlog"))
        self.assertIn("empty.memlog", self.refused("whatif", self.path("empty.memlog", b"")))
        os.mkdir(os.path.join(self.folder.name, "nothing"))
        self.assertIn("holds no report and no event log", self.refused("whatif", "nothing"))
        self.assertIn("no policy jemalloc", self.refused("whatif", REAL, "--policy", "jemalloc"))
        self.assertIn("no option speed", self.refused("whatif", REAL, "--option", "speed=1"))
        self.assertIn("name=value", self.refused("whatif", REAL, "--option", "rounding"))
        self.assertIn("is not an option", self.refused("whatif", REAL, "--option", "MEMLAB_NONE=1"))
        self.assertIn("--limit takes", self.refused("whatif", REAL, "--limit", "much"))
        self.assertIn("whatif --help", self.refused("whatif", REAL, "--no-such-flag"))

    def test_help_names_everything(self):
        text = self.call("whatif", "--help").stdout
        for word in ("--policy", "--option", "--limit", "--json", "pytorch:SETTING:VALUE", "roundup_power2_divisions"):
            self.assertIn(word, text)
        self.assertIn("whatif", self.call("--help").stdout)

    def test_replay_of_real_logs(self):
        logs = [os.path.join(DATA, "h100", name + ".memlog")
                for name in ("pytorch_without_its_cache", "cupy_without_its_cache", "cut_off_by_exec",
                             "sample_oom_recovery", "jax_platform_allocator")]
        logs.append(os.path.join(DATA, "h200/pytorch_transformer.memlog"))
        result = self.call("replay", *logs)
        self.assertEqual(result.stdout.count("equal: "), len(logs))
        self.assertIn("11,603 events, 78 segments, reserved peak 1.44 GiB", result.stdout)
        self.assertIn("5,367 events, 23 segments, reserved peak 184.00 MiB", result.stdout)

    def test_a_replay_that_differs(self):
        # Recorded before the pool told the log that it was asked to empty its cache.
        old = os.path.join(DATA, "h100/sample_cache_lines.memlog")
        result = self.call("replay", old, code=1)
        self.assertIn("differs: event 9 at 0.092890 s: the recording has segment_free", result.stdout)


if __name__ == "__main__":
    unittest.main()
