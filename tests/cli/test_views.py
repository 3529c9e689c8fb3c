#!/usr/bin/env python3
"""memlab-report's views of a report: their text, as a reader sees it, and their JSON.

The texts are compared with tests/cli/golden/NAME.txt; MEMLAB_UPDATE_GOLDEN=1 rewrites them, to be
read before they are committed. All come from recordings made on GPUs (tests/data). Names are not
looked up there: the machine of a test may or may not have the libraries that ran.
Run by ctest with the folder of the programs in MEMLAB_BIN and the source folder in MEMLAB_SOURCE.
"""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import unittest

from test_summary import BIN, REPORT, SOURCE, SYNTH, ToolTest

RECORDED = os.path.join(SOURCE, "tests/data")
GOLDEN = os.path.join(SOURCE, "tests/cli/golden")


def recorded(name):
    return os.path.join(RECORDED, name)


def add_forward(report):
    """Gives the largest site of a report without Python a frame of a module's forward; returns that site."""
    report["python_frames"] = [{"function": "", "file": "", "line": 0, "first_line": 0},
                               {"function": "Module._call_impl", "file": "/venv/torch/nn/modules/module.py",
                                "line": 7, "first_line": 1}]
    largest = max(report["sites"], key=lambda site: site["at_peak_bytes"])
    report["stacks"][largest["stack"]]["frames"].append(len(report["frames"]))
    report["frames"].append({"module": 0, "address": 0, "python": 1})
    return largest


class ViewTest(ToolTest):
    maxDiff = None
    NAMES = ("--no-symbols",)  # of goldens

    def golden(self, name, *arguments, **environment):
        """`arguments` print what tests/cli/golden/NAME.txt holds."""
        # By short names, the same wherever the source lies.
        if not os.path.exists(self.path("tests")):
            os.symlink(os.path.join(SOURCE, "tests"), self.path("tests"))
        arguments = [a.replace(SOURCE + "/", "").replace(self.folder.name + "/", "") for a in arguments]
        text = self.report(*arguments, *self.NAMES, **{"COLUMNS": "80", **environment})
        self.same_as_golden(name, text, int(environment.get("COLUMNS", "80")))

    def same_as_golden(self, name, text, width=80):
        path = os.path.join(GOLDEN, name + ".txt")
        if os.environ.get("MEMLAB_UPDATE_GOLDEN") == "1":
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(text, file.read(), name)
        # Commands to copy are never cut.
        lines = [line for line in text.splitlines() if not line.startswith("  memlab-report ")]
        self.assertLessEqual(max(map(len, lines)), width, name)

    def document(self, *arguments):
        return json.loads(self.report(*arguments, "--json"))

    def refused(self, expected, *arguments):
        result = self.call(REPORT, *arguments)
        self.assertEqual((result.returncode, result.stdout), (2, ""), arguments)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(expected, result.stderr)


class NnModules(ViewTest):
    NAMES = ()

    def made(self, named=True):
        """A recording of a training, of whose largest call sites nn.Modules have parts."""
        with open(recorded("h200/pytorch_checkpoint_named.json"), encoding="utf-8") as file:
            report = json.load(file)
        stacks = [(None, 1, "", "Transformer"), (0, 2, "layers.0", "Layer"), (1, 3, "layers.0.linear", "Linear"),
                  (0, 4, "layers.1", "Layer"), (0, 5, "head", None)]
        report["nn_modules"] = [{"parent": parent, "nn_module": number, "name": name if named else None,
                                 "class": class_name if named else None, "sites": []}
                                for parent, number, name, class_name in stacks]
        sites = sorted((site for site in report["sites"] if site["device"] == 64),
                       key=lambda site: site["at_peak_bytes"], reverse=True)[:40]
        for number, of in enumerate(sites):
            shares = ({2: 5, 3: 2, 4: 1}, {0: 8}, {1: 7, 2: 1}, {})[number % 4]
            for stack, eighths in shares.items():
                held = {"count": of["count"], "bytes": of["bytes"], "live_count": 0, "live_bytes": 0,
                        "at_peak_count": 1, "at_peak_bytes": of["at_peak_bytes"] * eighths // 8}
                report["nn_modules"][stack]["sites"].append({"site": of["id"], **held})
        path = self.path("named.json" if named else "unnamed.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file)
        return path, report

    def test_as_people_see_it(self):
        path, _ = self.made()
        self.golden("nn_modules", "nn-modules", path, COLUMNS="100")
        self.golden("nn_modules_top", "nn-modules", "--top", "1", path, COLUMNS="100")
        self.golden("nn_modules_unnamed", "nn-modules", self.made(named=False)[0], COLUMNS="100")

    def test_figures(self):
        path, report = self.made()
        (device,) = self.document("nn-modules", path)["reports"][0]["devices"]
        held = sum(site["at_peak_bytes"] for site in report["sites"] if site["device"] == 64)
        self.assertEqual(device["peak_bytes"], held)
        of = {each["name"]: each for each in device["nn_modules"]}
        self.assertEqual(list(of)[0], "")
        self.assertEqual(of["layers"]["bytes"], of["layers.0"]["bytes"] + of["layers.1"]["bytes"])
        self.assertEqual((of["layers"]["own_bytes"], of["layers"]["class"]), (0, None))
        self.assertEqual(of["layers.0"]["bytes"], of["layers.0"]["own_bytes"] + of["layers.0.linear"]["bytes"])
        inside = sum(each["at_peak_bytes"] for entry in report["nn_modules"] for each in entry["sites"])
        self.assertEqual(of[""]["bytes"], inside)
        self.assertEqual(sum(each["own_bytes"] for each in of.values()), inside)
        self.assertEqual(device["outside"]["bytes"], held - inside)
        for each in [*of.values(), device["outside"]]:
            self.assertEqual(sum(each["categories"].values()), each["bytes"])
        (device,) = self.document("nn-modules", self.made(named=False)[0])["reports"][0]["devices"]
        self.assertEqual((device["nn_modules"], device["unnamed"]["nn_modules"], device["unnamed"]["bytes"]),
                         ([], 5, inside))

    def by_name(self, report, pattern=None):
        """Bytes at the peak by name, of those that the pattern names without the model's name."""
        held = {}
        for entry in report["nn_modules"]:
            if pattern is None or re.match(pattern, entry["name"]):
                held.setdefault(entry["name"] or entry["class"], 0)
                held[entry["name"] or entry["class"]] += sum(each["at_peak_bytes"] for each in entry["sites"])
        return {name: held for name, held in held.items() if held}

    def tensors(self, *arguments):
        """What a view's JSON has of PyTorch's cache."""
        return next(each for each in self.document(*arguments)["reports"][0]["devices"] if each["index"] == 64)

    def test_sites_by_nn_module(self):
        path, report = self.made()
        device = self.tensors("sites", "--by", "nn-module", path)
        rows = {each["nn_module"]: each for each in device["sites"]}
        inside = self.by_name(report)
        outside = rows.pop("[of no nn.Module]")
        self.assertEqual({name: each["at_peak_bytes"] for name, each in rows.items()}, inside)
        self.assertEqual(outside["at_peak_bytes"], device["total"]["at_peak_bytes"] - sum(inside.values()))
        self.assertEqual(rows["layers.0"]["count"], None)  # of the whole run nothing is known by nn.Module
        self.assertIsInstance(device["total"]["count"], int)
        self.assertTrue(all(site < len(report["sites"]) for each in device["sites"] for site in each["sites"]))
        self.golden("sites_by_nn_module", "sites", "--by", "nn-module", "--level", "framework", path, COLUMNS="100")
        unnamed = self.tensors("sites", "--by", "nn-module", self.made(named=False)[0])
        self.assertIn("[nn.Modules without a name]", [each["nn_module"] for each in unnamed["sites"]])
        self.refused("sort by peak or live", "sites", "--by", "nn-module", "--sort", "count", path)

    def test_filter(self):
        path, report = self.made()
        for pattern, of in (("layers.0", r"layers\.0"), ("layers.*", "layers"), ("layers.?", "layers"), ("head", "head"),
                            ("layers.0.linear", r"layers\.0\.linear"), ("module.layers.0", r"layers\.0")):
            expected = sum(self.by_name(report, of).values())
            self.assertGreater(expected, 0)
            for arguments in (("--nn-module", pattern), ("--filter", "nn_module=" + pattern)):
                device = self.tensors("sites", *arguments, path)
                self.assertEqual(device["taken"]["at_peak_bytes"], expected, arguments)
            self.assertEqual(self.tensors("tree", "--nn-module", pattern, path)["nodes"][0]["at_peak_bytes"], expected)
            places = next(each for each in self.document("--nn-module", pattern, "--top", "99", path)["reports"][0]["devices"]
                          if each["index"] == 64)["at_peak"]["places"]
            self.assertEqual(sum(each["bytes"] for each in places), expected)
        none = self.tensors("sites", "--nn-module", "layers", "--nn-module", "head", path)
        self.assertEqual(none["taken"]["at_peak_bytes"], 0)  # all must match
        folded = self.report("export", "--to", "folded", "--level", "framework", "--nn-module", "layers.0", path)
        self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines()),
                         sum(self.by_name(report, r"layers\.0").values()))
        self.refused("not recorded by nn.Module", "histogram", "--filter", "nn_module=x", path)
        self.refused("weigh by peak", "export", "--to", "folded", "--by", "bytes", "--nn-module", "x", path)
        self.refused("takes a text", "sites", "--nn-module", "", path)

    def test_at_a_moment(self):
        path, report = self.made()
        at = self.document("timeline", "--at", "peak", "--by", "nn-module", path)["reports"][0]["at"]
        (device,) = [each for each in at["devices"] if each["index"] == 64]
        self.assertEqual({each["nn_module"]: each["bytes"] for each in device["sites"]
                          if not each["nn_module"].startswith("[")}, self.by_name(report))
        self.refused("add --at", "timeline", "--by", "nn-module", path)

    def test_diff(self):
        path, report = self.made()
        other = json.loads(json.dumps(report).replace('"layers.', '"module.layers.'))
        (linear,) = [each for each in other["nn_modules"] if each["name"] == "module.layers.0.linear"]
        less = sum(each["at_peak_bytes"] for each in linear["sites"])
        linear["sites"] = []
        after = self.path("after.json")
        with open(after, "w", encoding="utf-8") as file:
            json.dump(other, file)
        (device,) = [each for each in json.loads(self.report("diff", "--by", "nn-module", "--json", path, after))["devices"]
                     if each["index"] == 64]
        self.assertEqual({each["nn_module"]: each["change"] for each in device["sites"]},
                         {"layers.0.linear": -less, "[of no nn.Module]": less})
        self.assertIn("By nn.Module", self.report("diff", "--by", "nn-module", path, after))
        for folder, of in (("before", report), ("then", other)):  # runs
            os.mkdir(self.path(folder))
            for pid in (1, 2):
                one = {**of, "process": {**of["process"], "pid": pid}}
                with open(self.path(f"{folder}/memlab.python3.{pid}.json"), "w", encoding="utf-8") as file:
                    json.dump(one, file)
        run = json.loads(self.report("diff", "--by", "nn-module", "--json", self.path("before"), self.path("then")))
        self.assertEqual({each["nn_module"]: each["change"] for each in run["call_sites"]["sites"]},
                         {"layers.0.linear": -2 * less, "[of no nn.Module]": 2 * less})
        rows = list(csv.DictReader(io.StringIO(self.report("diff", "--by", "nn-module", "--csv", path, after))))
        self.assertIn("layers.0.linear", [each["nn_module"] for each in rows])

    def test_check(self):
        path, report = self.made()
        held = sum(self.by_name(report, "layers").values())
        for limit, code in ((held, 0), (held - 1, 1)):
            result = self.call(REPORT, "check", "--nn-module", "layers.*", "--peak-allocated", str(limit), "--json", path)
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            (row,) = [row for row in json.loads(result.stdout)["processes"][0]["rows"] if row["limit"]]
            self.assertEqual((row["measured"], row["nn_module"]), (held, "layers.*"))
            same = self.call(REPORT, "check", "--limit", f"peak_allocated@nn_module:layers.*={limit}", path)
            self.assertEqual(same.returncode, code)
            budget = self.path("budget.toml")
            with open(budget, "w", encoding="utf-8") as file:
                file.write(f'[[nn_module]]\nname = "layers.*"\npeak_allocated = {limit}\n')
            self.assertEqual(self.call(REPORT, "check", "--budget", budget, path).returncode, code)
        self.assertEqual(self.call(REPORT, "check", "--nn-module", "layers", "--leaks", "0", path).returncode, 0)
        self.refused("leave it or --nn-module out", "check", "--nn-module", "layers", "--growth", "0", path)
        self.refused("limits that are options", "check", "--nn-module", "layers", path)
        self.assertIn("no nn.Module is named", self.call(REPORT, "check", "--nn-module", "decoder", "--leaks", "0",
                                                         path).stderr)

    def test_leaks(self):
        path, report = self.made()
        live = {}
        for entry in report["nn_modules"]:
            for number, part in enumerate(entry["sites"]):
                part["live_count"], part["live_bytes"] = part["at_peak_count"], part["at_peak_bytes"] // 2
                site = report["sites"][part["site"]]
                site["live_count"] += part["live_count"]
                site["live_bytes"] += part["live_bytes"]
                live[entry["name"]] = live.get(entry["name"], 0) + part["live_bytes"]
        for device in report["devices"]:
            if device["index"] == 64:
                device["live"]["sites"] = [{"site": site["id"], "count": site["live_count"], "bytes": site["live_bytes"]}
                                           for site in report["sites"] if site["device"] == 64 and site["live_count"]]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file)
        for pattern, names in (("layers", [name for name in live if name.startswith("layers")]),
                               ("layers.0", ["layers.0", "layers.0.linear"]), ("head", ["head"]), ("*.1", ["layers.1"]),
                               ("decoder", [])):
            leaks = self.tensors("leaks", "--no-default-suppressions", "--nn-module", pattern, "--top", "99", path)
            expected = sum(live[name] for name in names)
            self.assertEqual(leaks["leaked"]["live_bytes"], expected)
            self.assertEqual(sum(place["live_bytes"] for place in leaks["places"]), expected)
            text = self.report("leaks", "--no-default-suppressions", "--no-symbols", "--level", "framework",
                               "--nn-module", pattern, path)
            self.assertNotIn(" made ", text)  # in the run: not known by nn.Module
            self.assertEqual("nothing" in text, expected == 0)
        self.assertIn(" made ", self.report("leaks", "--no-symbols", "--level", "framework", path))

    def test_baseline(self):
        path, report = self.made()
        limits = ("--baseline", self.path("base.json"), "--nn-module", "layers.*", "--peak-allocated", "+10%")
        result = self.call(REPORT, "check", *limits, "--update", path)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        with open(self.path("base.json"), encoding="utf-8") as file:
            figures = [each for entry in json.load(file)["entries"] for each in entry["figures"] if "nn_module" in each]
        held = sum(self.by_name(report, "layers").values())
        self.assertEqual([(each["nn_module"], each["metric"], each["value"]) for each in figures if each["value"]],
                         [("layers.*", "peak_allocated", held)])
        self.assertEqual(self.call(REPORT, "check", *limits, path).returncode, 0)
        # The nn.Modules take more of the same memory: the process has not grown, they have.
        (layer,) = [each for each in report["nn_modules"] if each["name"] == "layers.1"]
        (head,) = [each for each in report["nn_modules"] if each["name"] == ""]
        layer["sites"] += [{**part, "at_peak_bytes": part["at_peak_bytes"]} for part in head["sites"]]
        head["sites"] = []
        grown = self.path("grown.json")
        with open(grown, "w", encoding="utf-8") as file:
            json.dump(report, file)
        more = sum(self.by_name(report, "layers").values())
        self.assertGreater(more, held * 1.1)
        result = self.call(REPORT, "check", *limits, "--json", grown)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        (row,) = [row for row in json.loads(result.stdout)["processes"][0]["rows"] if row["measured"] == more]
        self.assertEqual((row["nn_module"], row["metric"]), ("layers.*", "peak_allocated"))
        self.assertEqual(self.call(REPORT, "check", *limits[:2], "--peak-allocated", "+10%", grown).returncode, 0)
        other = self.call(REPORT, "check", *limits[:2], "--nn-module", "head", "--peak-allocated", "+10%", grown)
        self.assertEqual(other.returncode, 2)
        self.assertIn("has no peak_allocated of nn_module head", other.stderr)

    def test_summary_says_where_to_look(self):
        path, report = self.made()
        shown = self.report(path)
        self.assertIn("memlab-report nn-modules", shown)
        self.assertRegex(shown, r"(?s)By nn.Module, at the allocated peak.*layers.0.linear\n")
        (device,) = [each for each in self.document(path)["reports"][0]["devices"] if each["index"] == 64]
        self.assertEqual({each["name"]: each["bytes"] for each in device["nn_modules"]}, self.by_name(report))
        self.assertNotIn("memlab-report nn-modules", self.report(recorded("h200/pytorch_checkpoint_named.json")))

    def test_of_other_programs(self):
        text = self.report("nn-modules", recorded("h100/jax_platform_allocator.json"))
        self.assertIn("No call of a PyTorch nn.Module", text)
        self.refused("takes a whole number", "nn-modules", "--top", "x", self.made()[0])


class Summary(ViewTest):
    def test_as_people_see_it(self):
        self.golden("summary_narrow", recorded("h100/pytorch_without_its_cache.json"))
        self.golden("summary_wide", "summary", recorded("h100/jax_platform_allocator.json"),
                    COLUMNS="120")
        self.golden("summary_scopes", recorded("h200/sample_leak.memlog"))
        self.golden("summary_kernels", recorded("h200/sample_checkpointing_kernels.json"))
        self.golden("summary_limit", recorded("h200/sample_result_cache.json"))
        self.golden("summary_driver_pool", recorded("h200/jax_driver_pool.memlog"), COLUMNS="100")

    def test_the_waterfall_adds_up(self):
        for name in ("jax_platform_allocator", "program_every_kind", "sample_oom_recovery"):
            document = self.document(recorded("h100/" + name + ".json"))
            device = document["reports"][0]["devices"][0]
            fall = device["waterfall"]
            self.assertEqual(fall["device_used_bytes"] - fall["remainder_bytes"],
                             fall["reserved_bytes"])
            self.assertEqual(fall["reserved_bytes"] - fall["cached_bytes"] - fall["pending_bytes"] -
                             fall["rounding_bytes"], fall["requested_bytes"])
            self.assertEqual(fall["allocated_bytes"],
                             device["curves"]["allocated"]["peak_bytes"])
            self.assertLessEqual(sum(fall["outside_pool_bytes"].values()), fall["allocated_bytes"])

    def test_a_filter_narrows_the_tables_of_places(self):
        jax = recorded("h100/jax_platform_allocator.json")
        text = self.report("--filter", "kind=vmm", "--no-symbols", jax)
        self.assertIn("Places: only kind=vmm\n", text)
        self.assertRegex(text, r"(?m)^ +114\.00 MiB +64\.0% +7  xla_cuda_plugin")
        self.assertNotIn("libcublas.so.13+", text)
        self.assertIn("Still allocated at the end: 64.18 MiB", text)
        device = self.document("--filter", "module=libcublas", jax)["reports"][0]["devices"][0]
        whole = self.document(jax)["reports"][0]["devices"][0]
        with open(jax, encoding="utf-8") as file:
            report = json.load(file)

        def through_cublas(site):
            frames = report["stacks"][report["sites"][site]["stack"]]["frames"]
            return any("libcublas" in report["modules"][report["frames"][f]["module"]]["path"]
                       for f in frames)

        for when in ("at_peak", "live"):
            self.assertEqual(device[when]["bytes"], whole[when]["bytes"])
            held = sum(share["bytes"] for share in report["devices"][0][when]["sites"]
                       if through_cublas(share["site"]))
            self.assertGreater(held, 64 << 20)
            self.assertEqual(sum(place["bytes"] for place in device[when]["places"]), held)

    def test_a_part_of_a_run(self):
        run = self.path("run")
        os.mkdir(run)
        os.symlink(recorded("h100/jax_platform_allocator.json"), os.path.join(run, "memlab.a.json"))
        self.assertIn("Places: only kind=vmm", self.report("--filter", "kind=vmm", run))
        result = self.call(REPORT, "--device", "5", run)
        self.assertEqual(result.returncode, 2)
        self.assertIn("GPU 5 was not used", result.stderr)

    def test_no_sample_no_remainder(self):
        self.assertNotIn("what remains", self.report(self.log("cache")))


class Sites(ViewTest):
    def test_as_people_see_it(self):
        self.golden("sites_narrow", "sites", recorded("h100/jax_platform_allocator.json"))
        self.golden("sites_wide", "sites", "--sort", "count", "--top", "5",
                    recorded("h100/program_every_kind.json"), COLUMNS="120")
        self.golden("sites_filtered", "sites", "--filter", "kind=pinned", "--sort", "live",
                    recorded("h100/jax_platform_allocator.json"))

    def test_by_category(self):
        with open(recorded("h100/pytorch_without_its_cache.json"), encoding="utf-8") as file:
            report = json.load(file)
        largest = add_forward(report)
        path = self.path("forward.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file)
        device = self.document("sites", "--by", "category", path)["reports"][0]["devices"][0]
        rows = {row["category"]: row for row in device["sites"]}
        self.assertEqual(set(rows), {"activations", "other"})
        self.assertEqual(rows["activations"]["at_peak_bytes"], largest["at_peak_bytes"])
        for figure in ("at_peak_bytes", "bytes", "count", "live_bytes", "temporaries"):
            self.assertEqual(sum(row[figure] for row in rows.values()), device["total"][figure], figure)
        self.assertIn("[activations]", self.report("sites", "--no-symbols", path))
        summary = self.report("--no-symbols", path)
        self.assertRegex(summary, r"(?s)By category, at the allocated peak.*activations")
        categories = self.document("--no-symbols", path)["reports"][0]["devices"][0]["categories"]
        self.assertEqual(categories["activations"]["bytes"], rows["activations"]["at_peak_bytes"])
        self.assertNotIn("By category", self.report("--no-symbols", recorded("h100/jax_platform_allocator.json")))
        self.refused("--by: takes place, category or nn-module, not size", "sites", "--by", "size", path)
        by = ("sites", "--by", "category", "--no-symbols")
        self.assertIn("Only memory of PyTorch's has", self.report(*by, recorded("h100/jax_platform_allocator.json")))
        self.assertIn("have no names here", self.report(*by, recorded("h100/pytorch_without_its_cache.json")))

    def test_a_pattern_takes_no_file_name(self):
        log = self.log("leak")
        self.assertIn("forward_pass", self.report("sites", "--filter", "forward_pass", log))
        self.assertIn("no call site matches",
                      self.report("sites", "--filter", "forward_pass", "--filter", "x y", log))

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

    def test_figures_of_millions_stay_apart(self):
        with open(recorded("h100/jax_platform_allocator.json"), encoding="utf-8") as file:
            report = json.load(file)
        for site in report["sites"]:
            site["count"] = site["temporaries"] = 4_444_444
        path = self.path("millions.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file)
        rows = re.findall(r"^ .*%.*$", self.report("sites", path, COLUMNS="80"), re.MULTILINE)
        self.assertTrue(rows)
        for row in rows:
            count, temporaries = re.findall(r" (\d+,\d{3},\d{3})\b", row)
            self.assertEqual(count, temporaries)

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
        self.refused("FILE is required", "check", "--leaks", "0")
        self.refused("takes peak, bytes, count, live or temporaries, not size", "sites", "--sort",
                     "size", "x.json")
        self.refused("takes func=, file=, module=, scope=, kind= or nn_module=, not function=", "sites",
                     "--filter", "function=x", "x.json")
        self.refused("missing.json: no such file", "sites", "missing.json")
        self.refused("--top: takes a whole number up to 999999999, not 4294967296", "sites", "--top", "4294967296",
                     "x.json")
        self.refused("--top: takes a whole number, not -1", "sites", "--top", "-1", "x.json")


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
        for command in ("sites", "tree", "diff", "leaks"):
            text = self.report(command, "--help")
            self.assertIn("Examples:", text)


class Skip(ViewTest):
    """--skip: a site is the line that a user would name."""

    def recording(self):
        """A report of two sites: a wrapper of the program's own, called from two lines."""
        frames = [{"function": "DeviceBuffer::DeviceBuffer(unsigned long)", "file": "/src/buffer.hpp", "line": 9},
                  {"function": "Trainer::step(DeviceBuffer&)", "file": "/src/trainer.cpp", "line": 40},
                  {"function": "std::vector<DeviceBuffer>::vector(int)", "file": "/src/vector", "line": 7},
                  {"function": "main", "file": "/src/main.cpp", "line": 5}]
        with open(recorded("h100/sample_checkpointing_plain.json"), encoding="utf-8") as file:
            report = json.load(file)
        first = len(report["frames"])
        module = [m["path"].endswith("/sample_checkpointing") for m in report["modules"]].index(True)
        for number, frame in enumerate(frames):
            source = [{**frame, "inlined": False}]
            report["frames"].append({"module": module, "address": 16 * number, "source": source})
        for number, stack in enumerate(report["stacks"][1:]):
            stack["frames"] = [first, first + 1 if number % 2 else first + 2, first + 3]
        path = self.path("wrapped.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file)
        return path

    def places(self, *arguments):
        device = self.document("sites", *arguments)["reports"][0]["devices"][0]
        return {row["place"]["function"] for row in device["sites"]}

    def test_a_wrapper_is_passed_over(self):
        path = self.recording()
        for arguments, expected in (
                ((), {"DeviceBuffer::DeviceBuffer"}),
                (("--skip", "DeviceBuffer"), {"Trainer::step", "main"}),
                (("--skip", "buffer.hpp", "--skip", "func=*step"), {"main"}),
                (("--skip", "DeviceBuffer", "--no-default-skip"),
                 {"Trainer::step", "std::vector<DeviceBuffer>::vector"}),
                (("--skip", "*"), {"DeviceBuffer::DeviceBuffer"})):
            self.assertEqual(self.places(*arguments, path), expected, arguments)

    def test_in_text(self):
        path = self.recording()
        self.assertIn("buffer.hpp:9", self.report("sites", path))
        for command in ("summary", "sites", "tree", "leaks"):
            text = self.report(command, "--skip", "DeviceBuffer", path)
            self.assertNotIn("buffer.hpp:9", text, command)
        self.assertIn("trainer.cpp:40", self.report("summary", "--skip", "DeviceBuffer", path))

    def test_the_tree_leaves_it_out(self):
        path = self.recording()
        tree = self.report("tree", path)
        self.assertIn("DeviceBuffer::DeviceBuffer", tree)
        self.assertNotIn("vector:7", tree)
        tree = self.report("tree", "--top-down", "--skip", "Trainer", path)
        self.assertNotIn("trainer.cpp:40", tree)
        self.assertIn("trainer.cpp:40", self.report("tree", "--skip", "Trainer", "--all-frames", path))
        self.assertIn("vector:7", self.report("tree", "--no-default-skip", path))

    def test_a_wrapper_that_many_call_is_proposed(self):
        def report_of(callers):
            with open(recorded("h100/sample_checkpointing_plain.json"), encoding="utf-8") as file:
                report = json.load(file)
            first = len(report["frames"])
            module = [m["path"].endswith("/sample_checkpointing") for m in report["modules"]].index(True)
            frames = [{"function": "Buffer::Buffer(unsigned long)", "file": "/src/buffer.hpp", "line": 9}]
            frames += [{"function": f"layer_{n}(int)", "file": "/src/net.cpp", "line": 40 + n} for n in range(callers)]
            for number, frame in enumerate(frames):
                report["frames"].append({"module": module, "address": 16 * number,
                                         "source": [{**frame, "inlined": False}]})
            site = max(report["sites"], key=lambda one: one["at_peak_bytes"])
            report["sites"] = []
            for number in range(6):
                report["stacks"].append({"frames": [first, first + 1 + number % callers], "truncated": False})
                report["sites"].append({**site, "stack": len(report["stacks"]) - 1})
            path = self.path(f"wrapped_{callers}.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(report, file)
            return path

        proposed = "--skip func=Buffer::Buffer shows its 3 callers"
        path = report_of(3)
        self.assertIn(proposed, " ".join(self.report("sites", path).split()))
        skipped = self.report("sites", "--skip", "func=Buffer::Buffer", path)
        self.assertNotIn("Buffer::Buffer", skipped)
        self.assertEqual(len(re.findall(r"net\.cpp:4\d", skipped)), 3)
        # One caller would stand for all of it again.
        self.assertNotIn("--skip", self.report("sites", report_of(1)))

    def test_a_log(self):
        log = self.path("run.memlog")
        self.call(SYNTH, "--events", "2000", "--sites", "20", "--seed", "1", "-o", log)
        self.assertIn(".forward", self.report("sites", log))
        self.assertNotIn(".forward", self.report("sites", "--skip", "func=*.forward", log))
        # It is all that this stack has.
        log = self.log("leak")
        self.assertEqual(self.report("sites", "--skip", "forward_pass", log), self.report("sites", log))

    def test_wrong_usage(self):
        for command in ("summary", "sites", "tree", "leaks", "oom", "inefficiencies", "pool", "check", "merge",
                        "timeline"):
            self.refused("--skip: takes a text to look for, not nothing", command, "--skip", "", "x.json")
            self.refused("--skip: takes func=, file= or module=, not kind=", command, "--skip", "kind=vmm",
                         "x.json")
        self.refused("takes a text to look for", "diff", "--skip", "", "a.json", "b.json")
        self.refused("takes a text to look for", "whatif", "--skip", "", "a.memlog")
        self.refused("--skip is for the places that --at lists", "timeline", "--skip", "x", "x.json")
        self.refused("--skip has no meaning for folded", "export", "--to", "folded", "--skip", "x", "x.json")


class Diff(ViewTest):
    PLAIN = recorded("h100/sample_checkpointing_plain.json")
    CHECKPOINTED = recorded("h100/sample_checkpointing_checkpointed.json")

    def test_as_people_see_it(self):
        self.golden("diff_narrow", "diff", self.PLAIN, self.CHECKPOINTED)
        self.golden("diff_wide", "diff", "--sort", "count", self.PLAIN, self.CHECKPOINTED,
                    COLUMNS="120")
        self.golden("diff_others", "diff", "--top", "4", "--ascii",
                    recorded("h100/pytorch_own_cache.json"),
                    recorded("h100/pytorch_without_its_cache.json"))
        self.golden("diff_nothing", "diff", self.PLAIN, self.PLAIN)

    def test_figures_are_those_of_the_reports(self):
        document = self.document("diff", self.PLAIN, self.CHECKPOINTED)
        self.assertEqual((document["format"], document["version"]), ("memlab-diff", 1))
        device = document["devices"][0]
        for name, totals in (("allocated_peak_bytes", (74159616, 36720640)),
                             ("reserved_peak_bytes", (83886080, 41943040)),
                             ("allocations", (34, 46))):
            self.assertEqual(device["totals"][name], {"before": totals[0], "after": totals[1],
                                                      "change": totals[1] - totals[0]})
        self.assertEqual(sum(site["change"] for site in device["sites"]), 36720640 - 74159616)
        new = [site for site in device["sites"] if site["share"] is None]
        self.assertEqual([site["before"]["count"] for site in new], [0])

    def test_the_other_way_round_is_the_same_with_the_other_sign(self):
        there = self.document("diff", self.PLAIN, self.CHECKPOINTED)["devices"][0]["sites"]
        back = self.document("diff", self.CHECKPOINTED, self.PLAIN)["devices"][0]["sites"]
        self.assertEqual([s["change"] for s in there], [-s["change"] for s in back])

    def test_markdown_csv_and_exit_code(self):
        text = self.report("diff", "--markdown", self.PLAIN, self.CHECKPOINTED)
        self.assertTrue(text.startswith("### memlab: sample"), text)
        self.assertIn("| allocated, peak | 70.72 MiB | 35.02 MiB | -35.70 MiB | -50.5% |", text)
        for line in text.splitlines():
            if line.startswith("|"):
                self.assertIn(line.count("|"), (6,), line)
        rows = list(csv.DictReader(io.StringIO(
            self.report("diff", "--csv", self.PLAIN, self.CHECKPOINTED))))
        document = self.document("diff", self.PLAIN, self.CHECKPOINTED)
        sites = document["devices"][0]["sites"]
        self.assertEqual(len(rows), len(sites))
        for row, site in zip(rows, sites):
            self.assertEqual(int(row["at_peak_bytes_before"]), site["before"]["at_peak_bytes"])
            self.assertEqual(int(row["count_after"]), site["after"]["count"])
        for before, after, code in ((self.PLAIN, self.CHECKPOINTED, 0),
                                    (self.CHECKPOINTED, self.PLAIN, 1), (self.PLAIN, self.PLAIN, 0)):
            self.assertEqual(self.call(REPORT, "diff", "--exit-code", before, after).returncode, code)
        self.refused("excludes", "diff", "--csv", "--markdown", self.PLAIN, self.PLAIN)

    def test_a_log_and_its_report_do_not_differ(self):
        text = self.report("diff", self.PLAIN, self.PLAIN.replace(".json", ".memlog"))
        self.assertIn("nothing changed", text)
        same = "Both are the same recording (pid "
        self.assertIn(same, text)
        other_path = os.path.join(recorded("h100"), ".", os.path.basename(self.PLAIN))
        self.assertIn(same, self.report("diff", self.PLAIN, other_path))
        self.assertIn(same, self.report("diff", "--json", self.PLAIN, self.PLAIN))
        self.assertNotIn(same, self.report("diff", self.PLAIN, self.CHECKPOINTED))

    def test_wrong_usage(self):
        self.refused("AFTER is required", "diff", self.PLAIN)
        self.refused("missing.json: no such file", "diff", self.PLAIN, "missing.json")
        self.refused("missing.json: no such file", "diff", "missing.json", self.PLAIN)
        self.refused("missing.json: no such file", "diff", "missing.json", "too.json")
        self.refused("takes stack, place or nn-module, not line", "diff", "--by", "line", "a", "b")
        self.refused("GPU 3 was used by neither", "diff", "--device", "3", self.PLAIN, self.PLAIN)
        self.refused("processes; name the report of one of them", "diff", recorded("h100"),
                     self.PLAIN)


class RunDiff(ViewTest):
    """Folders of several processes, put together from recordings of GPUs."""

    def setUp(self):
        super().setUp()
        self.folders = [self.run_of("before", "sample_checkpointing_plain", "pytorch_own_cache",
                                    "cupy_without_its_cache"),
                        self.run_of("after", "sample_checkpointing_checkpointed",
                                    "pytorch_without_its_cache", "sample_oom_recovery")]

    def run_of(self, folder, *names):
        os.mkdir(self.path(folder))
        for name in names:
            shutil.copy(recorded("h100/" + name + ".json"), self.path(folder))
        return folder + "/"

    def test_as_people_see_it(self):
        self.golden("diff_runs", "diff", "--top", "3", *self.folders)
        self.golden("diff_runs_wide", "diff", "--sort", "bytes", "--by", "place", "--top", "2",
                    "--filter", "module=torch", "--ascii", *self.folders, COLUMNS="120")

    def test_figures_are_those_of_the_reports(self):
        document = self.document("diff", *self.folders)
        self.assertEqual((document["format"], document["version"]), ("memlab-run-diff", 1))
        peaks = []
        for side in ("before", "after"):
            processes = [p[side] for p in document["processes"] if p[side] is not None]
            self.assertEqual(len(processes), document["totals"]["processes"][side])
            peaks.append(sum(p["allocated_peak_bytes"] for p in processes))
            of_files = [json.loads(self.report("--json", p["file"])) for p in processes]
            self.assertEqual(peaks[-1], sum(
                curve["peak_bytes"] for found in of_files for device in found["reports"][0]["devices"]
                for curve in [device["curves"]["allocated"]]))
        total = document["totals"]["allocated_peak_bytes"]
        self.assertEqual(total, {"before": peaks[0], "after": peaks[1],
                                 "change": peaks[1] - peaks[0]})
        self.assertEqual(document["paired_by"], "program")
        added = [p["after"]["executable"] for p in document["processes"] if p["before"] is None]
        self.assertEqual([os.path.basename(name) for name in added], ["sample_oom_recovery"])
        # The sites are those of the pairs, as each pair alone has them.
        alone = [self.document("diff", p["before"]["file"], p["after"]["file"])["devices"][0]
                 for p in document["processes"] if p["before"] and p["after"]]
        for side in ("before", "after"):
            self.assertEqual(document["call_sites"][side]["bytes"],
                             sum(device[side]["bytes"] for device in alone))

    def test_one_pair_is_a_comparison_of_two(self):
        files = [self.folders[0] + "sample_checkpointing_plain.json",
                 self.folders[1] + "sample_checkpointing_checkpointed.json"]
        alone = self.report("diff", *files)
        self.assertEqual(self.report("diff", "--process", "sample_checkpointing", *self.folders),
                         alone)
        pid = str(self.document("diff", *files)["after"]["pid"])
        self.assertEqual(self.report("diff", "--process", pid, *self.folders), alone)

    def test_a_folder_of_one_process_is_its_report(self):
        one = self.run_of("one", "sample_checkpointing_plain")
        other = self.run_of("other", "sample_checkpointing_checkpointed")
        self.assertEqual(self.document("diff", one, other)["format"], "memlab-diff")
        self.assertEqual(self.document("diff", one, self.folders[1])["format"], "memlab-run-diff")
        self.assertEqual(self.document("diff", one, other + "sample_checkpointing_checkpointed.json"),
                         self.document("diff", one, other))

    def test_what_cannot_be_read_is_said(self):
        with open(self.path("after/memlab.x.1.memlog"), "wb"):
            pass
        result = self.call(REPORT, "diff", *self.folders)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"^memlab-report: after/memlab.x.1.memlog: empty; .*\n$")
        self.assertIn("By process", result.stdout)
        document = json.loads(self.call(REPORT, "diff", "--json", *self.folders).stdout)
        self.assertEqual([e["file"] for e in document["after"]["errors"]],
                         ["after/memlab.x.1.memlog"])

    def test_wrong_usage(self):
        before, after = self.folders
        os.mkdir(self.path("empty"))
        for expected, *arguments in (
                ("or compare it with the folder of another run", before, self.PLAIN),
                ("or compare it with the folder of another run", self.PLAIN, after),
                ("--rank selects processes of two folders", "--rank", "1", self.PLAIN,
                 self.PLAIN),
                ("--process selects processes", "--process", "x", before, self.PLAIN),
                ("not both runs have ranks; --process names", "--rank", "1", before, after),
                ("process nobody is in neither run", "--process", "nobody", before, after),
                ("is in AFTER alone; memlab-report after/sample_oom_recovery.json shows it",
                 "--process", "sample_oom_recovery", before, after),
                ("--rank excludes --process", "--rank", "1", "--process", "2", before, after),
                ("takes a whole number, not -1", "--rank", "-1", before, after),
                ("takes a name or a process id", "--process", "", before, after),
                ("GPU 3 was used by neither", "--device", "3", before, after),
                ("empty/: holds no report", before, "empty/")):
            self.refused(expected, "diff", *arguments)

    PLAIN = recorded("h100/sample_checkpointing_plain.json")


class Leaks(ViewTest):
    def test_as_people_see_it(self):
        jax = recorded("h100/jax_platform_allocator.json")
        self.golden("leaks_suppressed", "leaks", jax)
        self.golden("leaks_show_suppressed", "leaks", "--show-suppressed", jax)
        self.golden("leaks_all", "leaks", "--no-default-suppressions",
                    recorded("h100/pytorch_without_its_cache.json"))
        self.golden("leaks_framework", "leaks", recorded("h100/pytorch_own_cache.json"),
                    COLUMNS="120")
        self.golden("leaks_none", "leaks", recorded("h100/cupy_without_its_cache.json"))
        self.golden("leaks_growth", "leaks", "--growth", recorded("h200/sample_leak.memlog"))

    def test_a_suppression_file(self):
        path = self.path("known.supp")
        with open(path, "w", encoding="utf-8") as file:
            file.write("[what cuBLAS keeps]\nreason = known\nmodule = libcublas.so*\n")
        jax = recorded("h100/jax_platform_allocator.json")
        document = self.document("leaks", "--no-default-suppressions", "--suppressions", path, jax)
        self.assertEqual(document["format"], "memlab-leaks")
        device = document["reports"][0]["devices"][0]
        self.assertEqual([(s["name"], s["reason"], s["count"]) for s in device["suppressions"]],
                         [("what cuBLAS keeps", "known", 3)])
        everything = self.document("leaks", "--no-default-suppressions", jax)
        whole = everything["reports"][0]["devices"][0]["leaked"]["live_bytes"]
        self.assertEqual(device["leaked"]["live_bytes"] + device["suppressions"][0]["bytes"], whole)

    def test_generated_suppressions_suppress(self):
        jax = recorded("h100/jax_platform_allocator.json")
        path = self.path("all.supp")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.report("leaks", "--no-default-suppressions", "--generate-suppressions",
                                   jax))
        text = self.report("leaks", "--no-default-suppressions", "--suppressions", path, jax)
        self.assertIn("nothing else", text)

    def test_generated_suppressions_send_a_terminal_nothing(self):
        """Controls of a name become wildcards, which match it."""
        with open(recorded("h100/jax_platform_allocator.json"), encoding="utf-8") as file:
            report = json.load(file)
        report["modules"].append({"path": "/p/\u202elib\u009b31m.so", "build_id": ""})
        for frame in report["frames"]:
            frame.update(module=len(report["modules"]) - 1)
        path = self.path("names.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file)
        text = self.report("leaks", "--no-default-suppressions", "--no-symbols", "--generate-suppressions", path)
        self.assertIn("module = *lib*31m.so\n", text)
        self.assertNotRegex(text, "[\u0080-\u009f\u202a-\u202e]")
        with open(self.path("all.supp"), "w", encoding="utf-8") as file:
            file.write(text)
        self.assertIn("nothing else", self.report("leaks", "--no-default-suppressions", "--suppressions",
                                                  self.path("all.supp"), path))

    def test_wrong_suppressions_are_one_line(self):
        jax = recorded("h100/jax_platform_allocator.json")
        for content, expected in (
                ("module = x\n", "line 1: is before the first [NAME]"),
                ("[a]\nreason = b\n", "line 1: [a] matches everything"),
                ("[a]\nmodule = b\n", "line 1: [a] has no reason"),
                ("[a]\nmodules = b\n", "line 2: takes reason, func, file, module, kind or api"),
                ("[a]\nmodule = b\nmodule = c\n", "line 3: has module twice"),
                ("[a\n", "line 1: a name ends with ]"),
                ("[a]\nwhat is this\n", "line 2: is neither [NAME] nor KEY = TEXT")):
            path = self.path("bad.supp")
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
            self.refused(path + ": " + expected, "leaks", "--suppressions", path, jax)
        self.refused("no.supp: ", "leaks", "--suppressions", "no.supp", jax)

    def test_sort(self):
        def places(*arguments):
            document = json.loads(self.report("leaks", "--json", "--no-symbols", "--no-default-suppressions",
                                              *arguments, recorded("h100/pytorch_without_its_cache.json")))
            return [(place["live_bytes"], place["live_count"])
                    for place in document["reports"][0]["devices"][0]["places"]]

        by_bytes = places()
        self.assertEqual(by_bytes, sorted(by_bytes, reverse=True))
        by_count = places("--sort", "count")
        self.assertEqual([count for _, count in by_count], sorted((count for _, count in by_bytes), reverse=True))
        self.assertNotEqual(by_bytes, by_count)
        result = self.call(REPORT, "leaks", "--growth", "--sort", "count", self.log("leak"))
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("--growth excludes --sort", result.stderr)

    def test_growth(self):
        text = self.report("leaks", "--growth", self.log("leak"))
        self.assertIn("No steps are marked and none are found", text)

    def test_growth_of_which_no_sites_are_known(self):
        """Other kinds of steps began first: that no place grows is not known."""
        steps = {"kind": "mark", "name": "step", "steps": 40, "warm_up_steps": 8, "verdict": "growing",
                 "bytes_per_step": 1024.0, "first_bytes": 1, "last_bytes": 40000, "min_bytes": 1, "max_bytes": 40000,
                 "blocks": {"steps": 1, "min_bytes": [1], "max_bytes": [1]}, "growing_sites": [],
                 "growing_site_count": 0, "sites_left_out": 0}
        for by_site, says in ((False, "which places grow is not known"), (True, "no single place grows steadily")):
            with open(recorded("h100/jax_platform_allocator.json"), encoding="utf-8") as file:
                report = json.load(file)
            report["steps"] = [{**steps, "by_site": by_site}]
            with open(self.path("steps.json"), "w", encoding="utf-8") as file:
                json.dump(report, file)
            self.assertIn("by 1.00 KiB/step in all; " + says, self.report("leaks", "--growth", self.path("steps.json")))

    def test_a_few_bytes_of_a_kind_are_told_where_it_is_asked_for(self):
        every = recorded("h100/program_every_kind.json")
        for view in ("sites", "tree"):
            self.assertNotIn("GPU 0: managed memory", self.report(view, "--no-symbols", every))
            text = self.report(view, "--no-symbols", "--filter", "kind=managed", every)
            self.assertRegex(text, r"GPU 0: managed memory  [^\n]*\n[^\n]*\n +19\.53 KiB +100\.0%")


class ManyProcesses(ViewTest):
    RUN = recorded("h200/run_of_four_ranks")

    def test_ranks_at_each_level(self):
        def peak(rank, level):
            name = f"memlab.python3.12.{983 + rank}.memlog"
            summary = self.document("summary", "--no-symbols", "--level", level, os.path.join(self.RUN, name))
            return sum(device["curves"]["allocated"]["peak_bytes"] for device in summary["reports"][0]["devices"])

        usual = self.document("merge", "--no-symbols", self.RUN)
        self.assertEqual(usual["level"], "framework")  # what max_memory_allocated says
        driver = self.document("merge", "--no-symbols", "--level", "driver", self.RUN)
        for document in (usual, driver):
            self.assertEqual([row["allocated_peak_bytes"] for row in document["ranks"]],
                             [peak(rank, document["level"]) for rank in range(4)])
        text = self.report("merge", "--no-symbols", self.RUN)
        table = text[text.index("Where ranks differ"):].split("\n\n")[0].splitlines()[2:]
        where = [line.split(None, 8)[-1] for line in table]
        self.assertGreater(len(where), 2)
        self.assertEqual(len(where), len(set(where)), where)  # no two rows read alike
        self.refused("--level: takes driver or framework, not all", "merge", "--level", "all", self.RUN)

    def layered(self):
        """The run, as if calls of a network's nn.Modules had made its allocations."""
        os.mkdir(self.path("layers"))
        for log in sorted(os.listdir(self.RUN)):
            if log.endswith(".memlog"):
                to = os.path.join(self.path("layers"), log)
                subprocess.run([os.path.join(BIN, "random_log"), "layers", os.path.join(self.RUN, log), to], check=True)
        return self.path("layers")

    def test_nn_modules_of_ranks(self):
        run = self.layered()
        self.golden("merge_nn_modules", "merge", "--by", "nn-module", run, COLUMNS="100")
        self.golden("merge_nn_modules_narrow", "merge", "--by", "nn-module", "--top", "3", run)
        for level in ("framework", "driver"):
            document = self.document("merge", "--no-symbols", "--level", level, run)
            held = {}
            for rank in document["ranks"]:
                log = os.path.join(run, os.path.basename(rank["file"]))
                sites = self.document("sites", "--no-symbols", "--by", "nn-module", "--level", level, "--top", "1000", log)
                (report,) = sites["reports"]
                for site in (site for device in report["devices"] for site in device["sites"]):
                    of = held.setdefault(site["nn_module"], {})
                    of[rank["rank"]] = of.get(rank["rank"], 0) + site["at_peak_bytes"]
            wanted = {name: [of.get(rank, 0) for rank in range(4)] for name, of in held.items() if any(of.values())}
            self.assertEqual({each["name"]: each["bytes"] for each in document["nn_modules"]}, wanted)
            self.assertEqual([sum(column) for column in zip(*wanted.values())],
                             [rank["allocated_peak_bytes"] for rank in document["ranks"]])
            differences = [each["difference_bytes"] for each in document["nn_modules"]]
            self.assertEqual(differences, [max(each["bytes"]) - min(each["bytes"]) for each in document["nn_modules"]])
            self.assertEqual(differences, sorted(differences, reverse=True))
        self.assertEqual(self.document("merge", "--no-symbols", self.RUN)["nn_modules"], [])
        text = self.report("merge", "--no-symbols", "--by", "nn-module", self.RUN)
        self.assertIn("No call of a PyTorch nn.Module was recorded", text)
        self.refused("--by: ", "merge", "--by", "stack", self.RUN)

    def test_a_limit_of_the_imbalance(self):
        limit = ("check", "--no-symbols", "--json", self.RUN, "--rank-imbalance")
        ratio = self.document("merge", "--no-symbols", self.RUN)["imbalance"]["allocated"]["ratio"]
        for percent, code in ((100 * (ratio - 1) + 0.1, 0), (100 * (ratio - 1) - 0.1, 1)):
            self.assertEqual(self.call(REPORT, *limit, f"{percent:.2f}%").returncode, code, percent)
        text = self.call(REPORT, "check", "--no-symbols", self.RUN, "--rank-imbalance", "5%").stdout
        self.assertRegex(text, r"(?m)^  rank_imbalance +5\.0% +12\.56%  EXCEEDED by 7\.56 percentage points$")
        self.refused_check("there are no two ranks", recorded("h200/pytorch_scopes.memlog"), "10%")
        self.refused_check("is above a baseline, which has no figure of a run", self.RUN, "+10%", "--baseline",
                           self.path("none"), "--missing-baseline", "pass")

    def refused_check(self, expected, recording, limit, *more):
        result = self.call(REPORT, "check", "--no-symbols", recording, "--rank-imbalance", limit, *more)
        self.assertEqual(result.returncode, 2)
        self.assertIn(expected, result.stderr)

    def test_a_row_for_each_run(self):
        names = [recorded(f"h100/sample_checkpointing_{name}.json") for name in ("plain", "checkpointed")]
        document = self.document("trend", *reversed(names))
        self.assertEqual((document["format"], document["level"]), ("memlab-trend", "driver"))
        self.assertEqual([row["source"] for row in document["runs"]], names)  # by start
        before, after = (row["allocated_peak_bytes"] for row in document["runs"])
        self.assertEqual([row["change_bytes"] for row in document["runs"]], [None, after - before])
        self.assertIn("-50.5%", self.report("trend", *names))

        runs = self.document("trend", self.RUN, recorded("h200/pytorch_scopes.memlog"))["runs"]
        self.assertEqual([row["processes"] for row in runs], [1, 5])
        self.assertEqual(runs[1]["program"], "ranks_training.py")
        # The largest rank's, at PyTorch's level, since each process has one.
        ranks = self.document("merge", "--no-symbols", self.RUN)["ranks"]
        self.assertEqual(runs[1]["allocated_peak_bytes"], max(row["allocated_peak_bytes"] for row in ranks))

        # One run has one row: a report and its log, another path, a snapshot of it, whatever the order.
        log, report = recorded("h200/sample_leak.memlog"), self.path("report.json")
        self.report("recover", log, "-o", report)
        with open(report, encoding="utf-8") as file:
            snapshot = json.load(file)
        snapshot["process"]["duration_ns"] = snapshot["process"]["recorded_ns"] = 1
        with open(self.path("snapshot.json"), "w", encoding="utf-8") as file:
            json.dump(snapshot, file)
        other = os.path.join(os.path.dirname(log), "..", "h200", "sample_leak.memlog")
        for given, kept in (([log, other, report], log), ([self.path("snapshot.json"), report, log], report)):
            self.assertEqual([row["source"] for row in self.document("trend", *given)["runs"]], [kept])

        result = self.call(REPORT, "trend", names[0], self.path("gone.json"))
        self.assertEqual(result.returncode, 2)
        self.assertIn("1 run", result.stdout)
        self.assertIn("gone.json: ", result.stderr)


if __name__ == "__main__":
    unittest.main()
