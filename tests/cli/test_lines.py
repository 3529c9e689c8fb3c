#!/usr/bin/env python3
"""memlab-report lines as a user meets it. Run by ctest, as test_summary.py is."""

import json
import os
import re
import unittest

from test_summary import REPORT, SOURCE, ToolTest, line_of


class Lines(ToolTest):
    def test_the_source_is_annotated(self):
        log = self.log("leak")
        text = self.report("lines", "memlab_synth.cpp:load_batch", log, "--sources", SOURCE)
        self.assertTrue(text.startswith("## load_batch  tests/cli/memlab_synth.cpp\n"), text)
        self.assertRegex(text, r"(?m)^    3\.81 MiB    4\.81 MiB    4\.81 MiB +%d      const volatile "
                         % line_of("load_batch"))
        self.assertRegex(text, r"(?m)^ +%d  \[\[gnu::noinline\]\] std::uint64_"
                         % (line_of("load_batch") - 1))
        self.assertNotIn("forward_pass", text)

    def test_without_the_source_the_figures_remain(self):
        text = self.report("lines", "memlab_synth.cpp", self.log("leak"))
        self.assertRegex(text, r"--sources\sDIR\snames\sa\sfolder\sto\slook\sin")
        self.assertRegex(text, r"(?m)^   12\.00 MiB   12\.00 MiB    4\.00 MiB +%d$"
                         % line_of("forward_pass"))

    def test_json(self):
        document = json.loads(self.report("lines", "--json", "memlab_synth.cpp", self.log("leak"),
                                          "--column", "active_bytes.all.peak"))
        self.assertEqual(document["format"], "memlab-lines")
        functions = document["reports"][0]["groups"][0]["functions"]
        self.assertEqual([function["file"] for function in functions],
                         ["tests/cli/memlab_synth.cpp"] * 2)
        self.assertEqual(functions[0]["lines"],
                         [{"line": line_of("load_batch"), "active_bytes.all.peak": 8194560,
                           "ooms": 0}])

    def test_the_line_that_ran_out_of_memory(self):
        text = self.report("lines", "memlab_synth.cpp", self.log("oom"))
        self.assertRegex(text, r"(?m)^ +%d  <- out of memory$" % line_of("forward_pass"))

    def test_far_lines_are_summed_up(self):
        with open(os.path.join(SOURCE, "tests/data/h100/sample_cache_lines.json"), encoding="utf-8") as file:
            report = json.load(file)
        module = self.path("module.py")
        with open(module, "w", encoding="utf-8") as file:
            file.writelines(f"x{number} = {number}\n" for number in range(1, 501))
        report["python_frames"] = [{"function": "", "file": "", "line": 0, "first_line": 0}]
        for line in (200, 400):
            report["python_frames"].append({"function": "<module>", "file": module, "line": line, "first_line": 1})
            stack = report["stacks"][report["sites"][-1]["stack"] if line == 200 else report["sites"][0]["stack"]]
            stack["frames"].append(len(report["frames"]))
            report["frames"].append({"module": 0, "address": 0, "python": len(report["python_frames"]) - 1})
        path = self.path("module.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file)

        def shown(*arguments):
            text = self.report("lines", "module.py", path, "--column", "bytes", *arguments)
            self.assertTrue(text.startswith("## <module>  "), text)
            return [line.split("  ")[-1].strip() for line in text.splitlines() if " x" in line or "without" in line]

        self.assertEqual(shown(), ["x1 = 1", "188 lines without allocations"] +
                         [f"x{n} = {n}" for n in range(190, 211)] + ["179 lines without allocations"] +
                         [f"x{n} = {n}" for n in range(390, 401)])
        self.assertEqual(shown("--context", "0"), ["x1 = 1", "198 lines without allocations", "x200 = 200",
                                                   "199 lines without allocations", "x400 = 400"])
        self.assertEqual(shown("--context", "99"), ["x1 = 1", "99 lines without allocations"] + [f"x{n} = {n}" for n in range(101, 401)])
        self.assertEqual(shown("--context", "999"), [f"x{n} = {n}" for n in range(1, 401)])

    def test_a_place_as_the_tables_name_it(self):
        log = self.log("leak")
        whole = self.report("lines", "memlab_synth.cpp", log)
        self.assertEqual(len(re.findall("^## ", whole, re.M)), 2)
        one = self.report("lines", f"memlab_synth.cpp:{line_of('load_batch')}", log)
        self.assertEqual(one, self.report("lines", "memlab_synth.cpp:load_batch", log))
        self.assertEqual(len(re.findall("^## ", one, re.M)), 1)

    def test_every_problem_is_one_line(self):
        log = self.log("leak")
        for arguments, said in (
                (["memlab_synth.cpp:1", log], "no allocation was made in line 1 of memlab_synth.cpp"),
                (["memlab_synth.cpp:0", log], "no allocation was made in 0 of memlab_synth.cpp"),
                (["nothing.py", log], "no allocation was made in nothing.py"),
                (["memlab_synth.cpp:", log], "SOURCE is a file, or a file and a function (model.py:Net.forward) or a line"),
                (["memlab_synth.cpp", log, "--column", "wrong"], "--column: takes active, "),
                (["memlab_synth.cpp", log, "--every", "2"], "has no "),
                (["memlab_synth.cpp", log, "--every", "0"], "--every: takes a number from 1 on"),
                (["memlab_synth.cpp", log, "--step", "x"], "add --every N"),
                (["memlab_synth.cpp", log, "--device", "3"], "GPU 3 was not used"),
                (["memlab_synth.cpp", self.path("none")], "no such file"),
                (["leak.memlog"], "SOURCE: is missing: memlab-report lines train.py leak.memlog"),
        ):
            result = self.call(REPORT, "lines", *arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertEqual(result.stdout, "", arguments)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn(said, result.stderr)

    def test_steps_of_a_large_recording(self):
        path = self.path("large.memlog")
        self.call(os.path.join(os.environ["MEMLAB_BIN"], "memlab-synth"), "--events", "20000",
                  "--sites", "100", "-o", path)
        text = self.report("lines", "model.py:Layer7.forward", path, "--every", "20")
        self.assertIn("Steps 1 to 20\n", text)
        self.assertIn("Steps 21 to 40\n", text)
        self.assertIn("source not found", text.lower())


if __name__ == "__main__":
    unittest.main()
