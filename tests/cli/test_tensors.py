#!/usr/bin/env python3
"""Recordings of PyTorch's tensors, made on a GPU, as a user reads them. Run by ctest, as test_summary.py is."""

import copy
import json
import os
import tempfile
import unittest

from test_summary import REPORT, SOURCE
from test_views import ViewTest, recorded

RECORDINGS = os.path.join(SOURCE, "tests", "data", "h200")
# The reports in which memlab-report symbolize kept the names of PyTorch's functions.
TRAINING = os.path.join(RECORDINGS, "pytorch_tensors_named.json")
FAILURE = os.path.join(RECORDINGS, "pytorch_out_of_memory_named.json")


class Tensors(ViewTest):
    NAMES = ()

    def devices(self, *arguments):
        return json.loads(self.report("--json", *arguments))["reports"][0]["devices"]

    def test_the_readme_shows_this_recording(self):
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
            excerpt = file.read().split("```")[3].strip("\n").splitlines()
        shown = self.report(TRAINING).splitlines()
        self.assertGreater(len(excerpt), 10)
        for line in filter(None, excerpt):
            self.assertIn(line, shown)

    def test_steps_are_of_the_process_at_each_level(self):
        for options in ([], ["--level", "driver"], ["--level", "driver", "--filter", "kind=pinned"], ["--device", "0"]):
            self.assertIn("\nSteps  tensors and other memory\n", self.report(*options, TRAINING), options)

    def test_every_byte_at_the_peak_has_a_category(self):
        tensors = self.devices(TRAINING)[0]
        self.assertIn("PyTorch", self.report(TRAINING).splitlines()[4])
        categories = {name: share["bytes"] for name, share in tensors["categories"].items()}
        with open(TRAINING, encoding="utf-8") as file:
            recorded = {each["index"]: each for each in json.load(file)["devices"]}
        peak = recorded[tensors["index"]]["curves"]["allocated"]["peak_bytes"]
        self.assertEqual(sum(categories.values()), peak)
        self.assertEqual(categories["parameters"], categories["gradients"])
        # Adam: two moments of each parameter, and a step's number of each, of 512 bytes.
        self.assertEqual(categories["optimizer state"], 2 * categories["parameters"] + 36 * 512)

    def test_without_the_names_of_functions_the_pages_say_so(self):
        """The log has Python's frames alone; PyTorch is not where this test runs."""
        log = TRAINING.replace("_named.json", ".memlog")
        for page in ([], ["sites", "--by", "category"], ["timeline", "--by", "category"], ["nn-modules"]):
            log = log if page != ["nn-modules"] else os.path.join(RECORDINGS, "pytorch_nn_modules.memlog")
            self.assertIn("PyTorch's functions have no names here", self.report(*page, "--no-symbols", log))
        for page in ([], ["sites", "--by", "category"]):
            self.assertNotIn("no names here", self.report(*page, TRAINING))

    def test_levels(self):
        self.assertEqual([each["index"] for each in self.devices("--level", "framework", TRAINING)], [64])
        self.assertEqual([each["index"] for each in self.devices("--level", "driver", TRAINING)], [0])

    def test_names_of_a_training(self):
        log = recorded("h200/pytorch_nn_modules.memlog")
        named = log.replace(".memlog", "_named.json")
        self.golden("training_nn_modules", "nn-modules", "--top", "4", named, COLUMNS="100")
        self.golden("training_sites_by_nn_module", "sites", "--by", "nn-module", "--level", "framework", "--top", "8", named,
                    COLUMNS="100")
        self.golden("training_moment_by_nn_module", "timeline", "--at", "backward 2", "--by", "nn-module", "--level",
                    "framework", "--top", "8", "--no-symbols", log, COLUMNS="100")
        self.golden("training_labels", "sites", "--by", "category", "--level", "framework", named, COLUMNS="100")

        gpt2 = recorded("h200/pytorch_gpt2_training_named.json")
        self.golden("gpt2_nn_modules", "nn-modules", "--top", "2", gpt2, COLUMNS="120")
        self.golden("gpt2_nn_modules_narrow", "nn-modules", "--top", "1", gpt2)
        self.assertIn("  workspaces       other\n", self.report("nn-modules", "--width", "140", gpt2))

        at_peak, report = (json.loads(self.report(*page, "--json", log))["reports"][0] for page in (
            ("nn-modules", "--top", "1000"), ("timeline", "--at", "peak", "--by", "nn-module", "--top", "1000")))
        of_page = {each["name"]: each["own_bytes"] for each in at_peak["devices"][0]["nn_modules"] if each["own_bytes"]}
        rows = next(each["sites"] for each in report["at"]["devices"] if each["index"] == 64)
        outside = at_peak["devices"][0]["outside"]["bytes"]
        rows_of = {each["name"]: each for each in at_peak["devices"][0]["nn_modules"]}
        out_proj = rows_of["TransformerEncoder.layers.0.self_attn.out_proj"]
        # A weight of 512 x 512 and a bias of 512, and two states of Adam of each: its calls held nothing.
        self.assertEqual(out_proj["own_bytes"], 3 * (512 * 512 + 512) * 4)
        self.assertNotIn("labels", at_peak["devices"][0]["outside"])
        self.assertEqual(of_page | {"[of no nn.Module]": outside},
                         {each["nn_module"]: each["bytes"] for each in rows})

    def test_what_labels_name_is_the_same_in_each_command(self):
        """Parameters and an optimizer's states, which no call of an nn.Module allocated."""
        path = recorded("h200/pytorch_gpt2_training_named.json")
        page = json.loads(self.report("nn-modules", "--json", path))["reports"][0]["devices"][0]
        own = {each["name"]: each["own_bytes"] for each in page["nn_modules"] if each["own_bytes"]}
        wte = "GPT2LMHeadModel.transformer.wte"
        words, width = 50257, 768
        # A block of PyTorch's for a weight and two states of Adam; of the first of its two names.
        self.assertLess(abs(own[wte] - 3 * words * width * 4), 3 * (1 << 20))
        self.assertEqual(sum(own.values()) + page["outside"]["bytes"], page["peak_bytes"])
        for limit, code in ((own[wte], 0), (own[wte] - 1, 1)):
            result = self.call(REPORT, "check", "--nn-module", wte, "--peak-allocated", str(limit), path)
            self.assertEqual((result.returncode, result.stderr), (code, ""))

        with open(path, encoding="utf-8") as file:
            whole = json.load(file)
        with tempfile.TemporaryDirectory() as folder:
            ranks = []
            for rank in (0, 1):
                report = copy.deepcopy(whole)
                report["process"] |= {"pid": 100 + rank, "ranks": {"RANK": str(rank), "WORLD_SIZE": "2"}}
                if rank == 1:  # without this weight
                    for each in report["nn_modules"]:
                        each["sites"] = [] if each["name"] == wte else each["sites"]
                ranks.append(os.path.join(folder, f"memlab.{rank}.json"))
                with open(ranks[-1], "w", encoding="utf-8") as file:
                    json.dump(report, file)
            difference = json.loads(self.report("diff", "--by", "nn-module", "--json", "--level", "framework", *ranks))
            rows = {row["nn_module"]: (row["before"]["at_peak_bytes"], row["after"]["at_peak_bytes"])
                    for row in difference["devices"][0]["sites"]}
            outside = page["outside"]["bytes"]
            self.assertEqual(rows, {wte: (own[wte], 0), "[of no nn.Module]": (outside, outside + own[wte])})
            merged = json.loads(self.report("merge", "--by", "nn-module", "--json", *ranks))
            bytes_of = {row["name"]: row["bytes"] for row in merged["nn_modules"]}
            self.assertEqual(bytes_of[wte], [own[wte], 0])
            self.assertEqual(bytes_of["GPT2LMHeadModel.transformer.wpe"], 2 * [own["GPT2LMHeadModel.transformer.wpe"]])

    def test_one_failure_is_told_once(self):
        """The cache asks the driver, gives back what it has and asks once more before the tensor's allocation fails."""
        text = self.report("oom", FAILURE)
        self.assertIn("Out of memory 1 of 1", text)
        self.assertIn("PyTorch's cache holds 119.84 GiB: 119.83 GiB allocated", text)
        self.assertIn("    > out_of_memory  /opt/a/pack/tests/gpu/py/pytorch_tensors.py:149", text)
        self.assertIn("c10::impl::wrap_kernel_functor_unboxed_<…>::call", text)
        self.assertLess(max(map(len, text.splitlines())), 200)
        self.assertIn("WrapFunctionIntoFunctor_", self.report("oom", "--templates", FAILURE))
        self.assertIn("Out of memory 1 of 2", self.report("oom", "--level", "driver", FAILURE))
        self.assertIn("Out of memory 1 of 1", self.report("oom", "--level", "framework", FAILURE))
        for level, count in (("all", 1), ("driver", 2), ("framework", 1)):
            self.report("check", "--ooms", str(count), "--level", level, FAILURE)

    def test_the_cache_is_no_leak_but_its_tensors_are(self):
        leaked, segments = 65 << 20, 746 << 20
        scopes = os.path.join(RECORDINGS, "pytorch_scopes.memlog")

        def measured(*arguments, code=1):
            result = self.call(REPORT, "check", "--no-symbols", "--json", *arguments, scopes)
            self.assertEqual((result.returncode, result.stderr), (code, ""))
            return [row["measured"] for process in json.loads(result.stdout)["processes"] for row in process["rows"]
                    if row["metric"] in ("leaks", "leak_count")]
        # What PyTorch itself keeps is not a leak: its workspaces, told without names by their libraries.
        for level in ("all", "framework"):
            self.assertEqual(measured("--leaks", "0", "--level", level, code=0), [0])
        self.assertEqual(measured("--leaks", "0", "--level", "driver"), [segments])
        self.assertEqual(measured("--leak-count", "0", code=0), [0])
        workspaces, tensors = measured("--limit", "leaks@site:cublas=0", "--limit", "leaks@site:c10_cuda=0",
                                       "--no-default-suppressions")
        self.assertEqual(tensors, leaked)
        self.assertEqual(measured("--leaks", "0", "--no-default-suppressions"), [leaked + workspaces])
        text = self.report("leaks", "--no-symbols", scopes)
        self.assertIn("GPU 0: NVIDIA H200\nStill allocated at the end: nothing else\n", text)
        self.assertRegex(text, r"746\.00 MiB +23  cache segments: a framework keeps them")
        self.assertIn("746.00 MiB in 23 allocations", self.report("leaks", "--level", "driver", "--no-symbols", scopes))
        without = os.path.join(SOURCE, "tests", "data", "h100", "pytorch_without_its_cache.json")
        self.assertNotIn("segments", self.report("leaks", "--no-symbols", without))


if __name__ == "__main__":
    unittest.main()
