#!/usr/bin/env python3
"""memlab-report's views of a report: their text, as a reader sees it, and their JSON.

The texts are compared with tests/cli/golden/NAME.txt; MEMLAB_UPDATE_GOLDEN=1 writes them anew, to be
read before they are committed. All come from recordings made on GPUs (tests/data). Names are not
looked up there: the machine of a test may or may not have the libraries that ran.
Run by ctest with the folder of the programs in MEMLAB_BIN and the source folder in MEMLAB_SOURCE.
"""

import json
import os
import unittest

from cli_test import REPORT, SOURCE, ToolTest

RECORDED = os.path.join(SOURCE, "tests/data")
GOLDEN = os.path.join(SOURCE, "tests/cli/golden")


def recorded(name):
    return os.path.join(RECORDED, name)


class ViewTest(ToolTest):
    maxDiff = None

    def golden(self, name, *arguments, **environment):
        """`arguments` print what tests/cli/golden/NAME.txt holds."""
        text = self.report(*arguments, "--no-symbols", **{"COLUMNS": "80", **environment})
        text = text.replace(SOURCE + "/", "")
        path = os.path.join(GOLDEN, name + ".txt")
        if os.environ.get("MEMLAB_UPDATE_GOLDEN") == "1":
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(text, file.read(), name)
        width = int(environment.get("COLUMNS", "80"))
        self.assertLessEqual(max(map(len, text.splitlines())), width, name)

    def document(self, *arguments):
        return json.loads(self.report(*arguments, "--json"))

    def refused(self, expected, *arguments):
        result = self.call(REPORT, *arguments)
        self.assertEqual((result.returncode, result.stdout), (2, ""), arguments)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(expected, result.stderr)


class Sites(ViewTest):
    def test_as_people_see_it(self):
        self.golden("sites_narrow", "sites", recorded("h100/jax_platform_allocator.json"))
        self.golden("sites_wide", "sites", "--sort", "count", "--top", "5",
                    recorded("h100/program_every_kind.json"), COLUMNS="120")
        self.golden("sites_filtered", "sites", "--filter", "kind=pinned", "--sort", "live",
                    recorded("h100/jax_platform_allocator.json"))

    def test_figures_are_those_of_the_report(self):
        with open(recorded("h100/jax_platform_allocator.json"), encoding="utf-8") as file:
            report = json.load(file)
        document = self.document("sites", "--top", "2",
                                 recorded("h100/jax_platform_allocator.json"))
        self.assertEqual((document["format"], document["version"]), ("memlab-sites", 1))
        device = document["reports"][0]["devices"][0]
        self.assertEqual(device["total"]["at_peak_bytes"], report["devices"][0]["at_peak"]["bytes"])
        self.assertEqual(device["total"]["count"], sum(s["count"] for s in report["sites"]))
        self.assertEqual(len(device["sites"]), 2)
        for figure in ("at_peak_bytes", "bytes", "count", "live_bytes", "temporaries"):
            parts = sum(s[figure] for s in device["sites"]) + device["others"][figure]
            self.assertEqual(parts, device["total"][figure], figure)
        first = device["sites"][0]
        self.assertEqual(first["bytes"], sum(report["sites"][s]["bytes"] for s in first["sites"]))

    def test_log_and_report_say_the_same(self):
        texts = [self.report("sites", recorded("h100/pytorch_without_its_cache." + end))
                 for end in ("json", "memlog")]
        self.assertEqual(texts[0], texts[1])

    def test_a_run_directory_is_its_processes(self):
        run = self.path("run")
        os.mkdir(run)
        for name in ("jax_platform_allocator.json", "cupy_without_its_cache.memlog"):
            os.symlink(recorded("h100/" + name), os.path.join(run, "memlab." + name))
        text = self.report("sites", run)
        self.assertEqual(text.count("==> "), 2)
        self.assertEqual(len(self.document("sites", run)["reports"]), 2)

    def test_devices(self):
        log = self.log("two_gpus")
        self.assertEqual(self.report("sites", log).count("GPU "), 2)
        self.assertEqual(self.report("sites", "--device", "1", log).count("GPU "), 1)
        result = self.call(REPORT, "sites", "--device", "7", log)
        self.assertEqual(result.returncode, 2)
        self.assertIn("GPU 7 was not used", result.stderr)

    def test_nothing_and_trouble(self):
        self.assertEqual(self.report("sites", self.log("empty")), "No GPU memory was allocated.\n")
        self.assertNotIn("\x1b", self.report("sites", "--color", "never", self.log("trouble")))
        self.assertIn("no call site matches",
                      self.report("sites", "--filter", "no such name", self.log("leak")))

    def test_wrong_usage(self):
        self.refused("FILE is required", "sites")
        self.refused("takes peak, bytes, count, live or temporaries, not size", "sites", "--sort",
                     "size", "x.json")
        self.refused("takes func=, file=, module=, scope= or kind=, not function=", "sites",
                     "--filter", "function=x", "x.json")
        self.refused("missing.json: no such file", "sites", "missing.json")


class Tree(ViewTest):
    def test_as_people_see_it(self):
        plain = recorded("h100/sample_checkpointing_plain.json")
        self.golden("tree_bottom_up", "tree", plain)
        self.golden("tree_top_down", "tree", "--top-down", plain)
        self.golden("tree_all_frames", "tree", "--all-frames", "--ascii", plain)
        self.golden("tree_deep", "tree", "--sort", "bytes", "--min", "3",
                    recorded("h100/jax_platform_allocator.json"))
        self.golden("tree_temporaries", "tree", "--sort", "temporaries", "--min", "10", "--top", "3",
                    recorded("h200/pytorch_transformer.memlog"), COLUMNS="120")

    def test_nodes_add_up(self):
        for direction in ("--bottom-up", "--top-down"):
            document = self.document("tree", direction, "--min", "2", "--top", "3",
                                     recorded("h100/pytorch_without_its_cache.json"))
            self.assertEqual(document["format"], "memlab-tree")
            nodes = document["reports"][0]["devices"][0]["nodes"]
            self.assertIsNone(nodes[0]["parent"])
            for figure in ("at_peak_bytes", "count", "temporaries"):
                below = [0] * len(nodes)
                for node in nodes[1:]:
                    below[node["parent"]] += node[figure]
                for number, node in enumerate(nodes):
                    rest = node["others"][figure] if node["others"] else 0
                    if below[number] + rest != 0:
                        # Stacks may end here that others pass through.
                        self.assertLessEqual(below[number] + rest, node[figure])
            self.assertEqual(sum(n["at_peak_bytes"] for n in nodes if n["parent"] == 0) +
                             (nodes[0]["others"] or {"at_peak_bytes": 0})["at_peak_bytes"],
                             nodes[0]["at_peak_bytes"])

    def test_functions_and_lines(self):
        text = self.report("tree", self.log("leak"))
        self.assertRegex(text, r"12\.00 MiB +75\.9% +2  .*memlab_synth\.cpp:\d+  forward_pass")

    def test_wrong_usage(self):
        self.refused("takes a number of percent from 0 to 100, not much", "tree", "--min", "much",
                     "x.json")
        self.refused("excludes", "tree", "--top-down", "--bottom-up", "x.json")

    def test_help(self):
        for command in ("sites", "tree"):
            text = self.report(command, "--help")
            self.assertIn("Examples:", text)
            self.assertLessEqual(max(map(len, text.splitlines())), 90)


if __name__ == "__main__":
    unittest.main()
