#!/usr/bin/env python3
"""memlab-report html: the page's data against --json of the other commands, at the same moments. Run by ctest, as
test_summary.py is. The empty page is one of two lines, so that this runs without Node.js."""

import base64
import collections
import glob
import gzip
import json
import os
import re
import shutil
import subprocess
import unittest

from test_summary import BIN, REPORT, SOURCE, SYNTH, ToolTest, line_of

DATA = os.path.join(SOURCE, "tests", "data")
LOGS = sorted(glob.glob(DATA + "/h*/**/*.memlog", recursive=True))
EMPTY = '<!doctype html>\n<script id="memlab-data" type="application/octet-stream">MEMLAB_DATA</script>\n'
NOT_IN_CURVES = ("managed", "pinned", "ipc_import")


class Holders:
    """Who held what at the moments of a recording of a page."""

    def __init__(self, recording):
        self.recording = recording
        self.sites = recording["sites"]
        self.count = len(self.sites["stack"])

    def text(self, number):
        return None if number < 0 else self.recording["strings"][number]

    def kind(self, site):
        return self.text(self.sites["kind"][site])

    def at(self, moment):
        """(site, bytes, blocks) of those that held anything."""
        holders = self.recording["holders"]
        for site in range(self.count):
            held = (0, 0)
            for i in range(holders["start"][site], holders["start"][site + 1]):
                if holders["moment"][i] > moment:
                    break
                held = holders["bytes"][i], holders["blocks"][i]
            if held != (0, 0):
                yield (site, *held)

    def sums(self, moment):
        """Bytes by device and kind."""
        sums = collections.Counter()
        for site, size, _ in self.at(moment):
            sums[self.sites["device"][site], self.kind(site)] += size
        return sums

    def on_curve(self, moment, device):
        return sum(size for (index, kind), size in self.sums(moment).items()
                   if index == device and kind not in NOT_IN_CURVES)


class HtmlTest(ToolTest):
    def setUp(self):
        super().setUp()
        self.empty = self.path("empty.html")
        with open(self.empty, "w", encoding="utf-8") as file:
            file.write(EMPTY)

    def data(self, *arguments):
        return json.loads(self.report("html", "--json", "--no-symbols", *arguments))

    def document(self, command, *arguments):
        return json.loads(self.report(command, "--json", "--no-symbols", *arguments))["reports"][0]

    def refused(self, *arguments, says):
        result = self.call(REPORT, "html", *arguments)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertRegex(result.stderr, says)
        self.assertEqual(result.stderr.count("\n"), 1)


class File(HtmlTest):
    def test_the_page_holds_the_data_and_nothing_else_is_changed(self):
        log = self.log("leak")
        page = self.path("page.html")
        self.assertEqual(self.report("html", "--page", self.empty, "-o", page, log), "")
        with open(page, encoding="utf-8") as file:
            text = file.read()
        before, after = EMPTY.split("MEMLAB_DATA")
        self.assertTrue(text.startswith(before) and text.endswith(after))
        packed = text[len(before):-len(after)]
        self.assertRegex(packed, r"^[A-Za-z0-9+/]+={0,2}$")
        data = json.loads(gzip.decompress(base64.b64decode(packed, validate=True)))
        self.assertEqual(data, json.loads(self.report("html", "--json", log)))
        self.assertEqual(self.report("html", "--page", self.empty, "-o", "-", log), text)

    def test_names_with_markup_stay_data(self):
        page = self.path("page.html")
        log = self.log("leak")
        title = "</script><script>alert(1)</script>"
        self.report("html", "--page", self.empty, "-o", page, "--title", title, log)
        with open(page, encoding="utf-8") as file:
            self.assertEqual(file.read().count("<script"), 1)
        self.assertEqual(self.data("--title", title, log)["title"], title)

    def test_what_is_shown_first(self):
        log = self.log("leak")
        self.assertEqual(self.data("--show", "view=leaks&from=5&to=9", log)["show"], "view=leaks&from=5&to=9")
        self.assertEqual(self.data(log)["show"], "")

    def test_without_a_page(self):
        log = self.log("leak")
        self.refused(log, says="name the file to write: -o page.html")
        self.refused("-o", "page.html", "--page", "missing.html", log,
                     says="missing.html: cannot be read; give the page that report/html/web builds")
        wrong = self.path("wrong.html")
        with open(wrong, "w", encoding="utf-8") as file:
            file.write(2 * EMPTY)
        self.refused("-o", "page.html", "--page", wrong, log, says="wrong.html: is no empty page")
        self.assertFalse(os.path.exists(self.path("page.html")))

    def test_the_built_in_page_or_why_there_is_none(self):
        result = self.call(REPORT, "html", "-o", self.path("page.html"), self.log("leak"))
        if result.returncode == 0:
            with open(self.path("page.html"), encoding="utf-8") as file:
                text = file.read()
            self.assertRegex(text, r'<script id="memlab-data"[^>]*>[A-Za-z0-9+/]+={0,2}</script>')
            self.assertIn("Content-Security-Policy", text)
        else:
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, "^memlab-report: html is not in this build, which was made without Node.js; "
                                            "build with -DMEMLAB_HTML=ON, or install a package of memlab\n$")

    def test_bad_input(self):
        log = self.log("leak")
        page = ("--page", self.empty, "-o", self.path("page.html"))
        self.refused(*page, "missing.memlog", says="missing.memlog: no such file")
        self.refused(*page, log, "missing.memlog", says="missing.memlog: no such file")
        self.refused(*page, self.folder.name + "/nothing/", says="nothing/: no such file")
        self.refused(*page, "--device", "7", log, says="GPU 7 was not used")
        self.refused(*page, "--max-size", "much", log, says="--max-size takes a size like 700KiB, not much")
        self.refused(*page, "--max-size", "9B", log, says="--max-size 9B has no room: the empty page alone takes [0-9]+ bytes")
        self.refused(*page, "--no-source", "--sources", "/src", log, says="--no-source excludes --sources")
        self.refused("--page", self.empty, "-o", "/nowhere/page.html", log, says="/nowhere/page.html: cannot be written")
        empty = self.path("empty")
        os.mkdir(empty)
        self.refused(*page, empty, says="holds no report|nothing of memlab")

    def test_what_others_must_not_see(self):
        log = self.log("leak")
        data = self.data(log)
        self.assertEqual(data["recordings"][0]["command"][-1], "two words")
        text = self.report("html", "--json", "--no-source", log)
        self.assertNotIn("two words", text)
        data = json.loads(text)
        self.assertEqual((data["sources"], data["files"]), (False, []))
        self.assertEqual(data["recordings"][0]["command"], ["train"])

    def test_source_lines_are_those_of_the_frames(self):
        data = json.loads(self.report("html", "--json", "--sources", SOURCE, self.log("leak")))
        recording = data["recordings"][0]
        frames = recording["frames"]
        found = [i for i, function in enumerate(frames["function"])
                 if recording["strings"][function].endswith("forward_pass")]
        line = frames["line"][found[0]]
        self.assertEqual(line, line_of("forward_pass"))
        path = recording["strings"][frames["file"][found[0]]]
        file, = [each for each in data["files"]
                 if each["path"] == path and 0 <= line - each["first_line"] < len(each["lines"])]
        self.assertIn("// line: forward_pass", file["lines"][line - file["first_line"]])


class Figures(HtmlTest):
    def test_every_real_recording_adds_up(self):
        for log in LOGS:
            with self.subTest(log):
                recording, = self.data(log)["recordings"]
                holders = Holders(recording)
                for device in self.document("summary", log)["devices"]:
                    curve = device["curves"]["allocated"]
                    peaks = [mark for mark in recording["marks"]
                             if mark["kind"] == "peak" and mark["at"] == curve["peak_time_ns"]]
                    if curve["peak_bytes"] != 0:
                        self.assertIn(curve["peak_bytes"],
                                      [holders.on_curve(mark["moment"], device["index"]) for mark in peaks])
                    end = len(recording["moments"]) - 1
                    self.assertEqual(recording["moments"][end], recording["duration_ns"])
                    self.assertEqual(holders.on_curve(end, device["index"]), curve["at_end_bytes"])
                    drawn, = [each for each in recording["curves"]
                              if each["device"] == device["index"] and each["kind"] == "allocated"]
                    for level in drawn["levels"]:
                        self.assertEqual(max(level["max"]), curve["peak_bytes"])
                        self.assertEqual(level["last"][-1], curve["at_end_bytes"])

    def test_moments_are_those_of_the_timeline(self):
        for name in ("h100/sample_cache_lines", "h200/pytorch_tensors", "h200/sample_result_cache",
                     "h200/run_of_four_ranks/memlab.python3.12.983"):
            with self.subTest(name):
                self.check_moments(os.path.join(DATA, name + ".memlog"))

    def check_moments(self, log):
        recording, = self.data(log)["recordings"]
        holders = Holders(recording)
        moments = recording["moments"]
        self.assertGreaterEqual(len(moments), 2048)
        marks = [mark["moment"] for mark in recording["marks"] if mark["kind"] in ("mark", "oom")]
        for moment in [*marks[:3], 100, len(moments) // 3, len(moments) - 2]:
            at = self.document("timeline", "--at", f"{moments[moment]}ns", "--top", "1000", log)["at"]
            for device in at["devices"]:
                self.assertEqual(holders.on_curve(moment, device["index"]), device["bytes"], moment)
                blocks = sum(count for site, _, count in holders.at(moment)
                             if holders.sites["device"][site] == device["index"]
                             and holders.kind(site) not in NOT_IN_CURVES)
                self.assertEqual(blocks, device["count"])

    def test_places_at_the_peak_and_at_the_end(self):
        for name in ("h100/sample_cache_lines", "h100/program_every_kind", "h100/pytorch_without_its_cache"):
            log = os.path.join(DATA, name + ".memlog")
            recording, = self.data(log)["recordings"]
            holders = Holders(recording)
            peak = next(mark["moment"] for mark in recording["marks"] if mark["kind"] == "peak")
            device, = self.document("sites", "--top", "1000", log)["devices"]
            for moment, member in ((peak, "at_peak"), (len(recording["moments"]) - 1, "live")):
                expected = collections.Counter()
                for place in device["sites"]:
                    if member == "live" or place["kind"] not in NOT_IN_CURVES:
                        expected[place["kind"]] += place[member + "_bytes"]
                got = {kind: size for (_, kind), size in holders.sums(moment).items()
                       if member == "live" or kind not in NOT_IN_CURVES}
                self.assertEqual(got, {kind: size for kind, size in expected.items() if size})

    def test_the_tree_is_that_of_the_frames_not_skipped(self):
        path = os.path.join(DATA, "h200", "pytorch_out_of_memory_named.json")
        recording, = json.loads(self.report("html", "--json", path))["recordings"]
        tree = json.loads(self.report("tree", "--json", "--top", "100000", "--min", "0", "--sort", "bytes", path))
        expected = collections.Counter()
        chain = []
        for node in [node for device in tree["reports"][0]["devices"] for node in device["nodes"]]:
            chain[node["depth"]:] = [(node["function"], node["file"], node["line"])]
            if node["depth"]:
                expected[tuple(chain[1:])] += node["bytes"]
        frames = recording["frames"]
        holders = Holders(recording)
        got = collections.Counter()
        for site in range(holders.count):
            chain = [(holders.text(frames["function"][frame]), holders.text(frames["file"][frame]),
                      frames["line"][frame] or None)
                     for frame in reversed(recording["sites"]["stack"][site]) if not frames["skipped"][frame]]
            for depth in range(len(chain)):
                got[tuple(chain[:depth + 1])] += recording["sites"]["allocated_bytes"][site]

        def named(counter):
            """Frames without a name differ: tree gives their address, the page a text of it."""
            return {path: size for path, size in counter.items()
                    if all(function and not re.search(r"\+0x[0-9a-f]+$", function) for function, _, _ in path)}
        self.assertTrue(named(expected))
        self.assertEqual(named(got), named(expected))

    def test_documents_are_those_of_the_commands(self):
        for recording in ("h100/sample_oom_recovery", "h200/sample_result_cache", "h200/sample_leak",
                          "h200/pytorch_out_of_memory", "h200/sample_checkpointing_kernels", "h200/pytorch_scopes", "h200/cupy_own_cache"):
            log = os.path.join(DATA, recording + ".memlog")
            documents = self.data(log)["recordings"][0]["documents"]
            for name in ("summary", "leaks", "ledger", "oom", "inefficiencies"):
                top = () if name == "ledger" else ("--top", "50")
                expected = self.document(name, *top, log)
                if name == "summary":  # their names may be most of it, and the page has its own
                    del expected["marks"], expected["labels"]
                self.assertEqual(documents[name], expected, f"{recording} {name}")

    def test_a_report_alone(self):
        path = self.without_log(os.path.join(DATA, "h100", "sample_cache_lines.json"))
        recording, = self.data(path)["recordings"]
        device, = self.document("summary", path)["devices"]
        holders = Holders(recording)
        peak, = [mark for mark in recording["marks"] if mark["kind"] == "peak"]
        self.assertEqual(holders.on_curve(peak["moment"], 0), device["curves"]["allocated"]["peak_bytes"])
        self.assertEqual(recording["maps"], [])
        self.assertRegex(" ".join(recording["notes"]), "Made from a report alone")

    def test_a_large_run_stays_small(self):
        log = self.path("large.memlog")
        result = self.call(SYNTH, "--events", "300000", "--sites", "3000", "-o", log)
        self.assertEqual(result.returncode, 0, result.stderr)
        page = self.path("page.html")
        self.report("html", "--page", self.empty, "-o", page, log)
        self.assertLess(os.path.getsize(page), 5_000_000)
        self.report("html", "--page", self.empty, "-o", self.path("small.html"), "--max-size", "900KB", log)
        self.assertLessEqual(os.path.getsize(self.path("small.html")), 900 << 10)
        self.assertGreater(os.path.getsize(page), 900 << 10)
        recording, = self.data(log)["recordings"]
        rest = [site for site, stack in enumerate(recording["sites"]["stack"]) if not stack]
        self.assertEqual(len(rest), 1)
        peak = next(mark for mark in recording["marks"] if mark["kind"] == "peak")
        device, = self.document("summary", log)["devices"]
        self.assertEqual(Holders(recording).on_curve(peak["moment"], 0), device["curves"]["allocated"]["peak_bytes"])
        self.assertEqual(sum(recording["sites"]["allocations"]), device["kinds"]["device"]["count"])

    def test_names_that_fill_a_page(self):
        log, page = self.path("names.memlog"), self.path("page.html")
        refused = set()
        for what in ("mark", "scope", "label", "function", "module", "nn_module"):
            subprocess.run([os.path.join(BIN, "random_log"), "names", what, "3000", "2000", self.path(what)], check=True)
            os.rename(self.path(what), log)
            result = self.call(REPORT, "html", "--page", self.empty, "--no-symbols", "-o", page, "--max-size", "1100KB", log)
            if result.returncode == 0:
                self.assertEqual(result.stderr, "")
                self.assertLessEqual(os.path.getsize(page), 1100 << 10)
                os.remove(page)
            else:
                refused.add(what)
                self.assertEqual(result.returncode, 2)
                self.assertRegex(result.stderr, r"^memlab-report: --max-size 1100KB: the page takes [0-9.]+ MiB at least, "
                                                r"and is not written; of its data, before they are packed: \w.* MiB, .*; "
                                                r"allow more\n$")
                self.assertFalse(os.path.exists(page))
        self.assertLessEqual({"mark", "scope"}, refused)
        self.assertLessEqual(refused, {"mark", "scope", "nn_module"})

    def test_damaged_logs(self):
        with open(os.path.join(DATA, "h100", "sample_cache_lines.memlog"), "rb") as file:
            whole = file.read()
        for size in range(100, len(whole), len(whole) // 7):
            path = self.path("cut.memlog")
            with open(path, "wb") as file:
                file.write(whole[:size] + b"\xff" * 40)
            result = self.call(REPORT, "html", "--json", "--no-symbols", path)
            if result.returncode != 0:
                self.assertEqual(result.stderr.count("\n"), 1)
                continue
            recording, = json.loads(result.stdout)["recordings"]
            self.assertTrue(recording["notes"])


class Several(HtmlTest):
    def test_two_recordings(self):
        logs = [os.path.join(DATA, "h100", f"sample_checkpointing_{name}.memlog") for name in ("plain", "checkpointed")]
        data = self.data(*logs)
        self.assertEqual(data["mode"], "compare")
        self.assertEqual([recording["path"] for recording in data["recordings"]], logs)
        diff = json.loads(self.report("diff", "--json", "--no-symbols", "--top", "200", *logs))
        self.assertEqual(data["documents"]["diff"], diff)

    def test_a_run_of_ranks_shows_the_outliers(self):
        run = self.path("run")
        os.mkdir(run)
        for name in ("sample_checkpointing_plain", "sample_checkpointing_checkpointed", "sample_oom_recovery",
                     "pytorch_own_cache"):
            for kind in (".json", ".memlog"):
                shutil.copy(os.path.join(DATA, "h100", name + kind), run)
        data = self.data(run)
        self.assertEqual(data["mode"], "run")
        ranks = data["run"]["ranks"]
        self.assertEqual(len(ranks), 4)
        self.assertEqual(len(data["recordings"]), 3)
        shown = [rank["recording"] for rank in ranks if rank["recording"] is not None]
        self.assertEqual(sorted(shown), [0, 1, 2])
        self.assertTrue(any(rank["outlier"] for rank in ranks))
        for rank in ranks:
            self.assertEqual(max(rank["curve"]), rank["peak_bytes"])
            self.assertLessEqual(len(rank["curve"]), 128)
        largest = max(ranks, key=lambda rank: rank["peak_bytes"])
        self.assertEqual(largest["recording"], 0)

    def test_a_run_of_real_ranks(self):
        run = os.path.join(DATA, "h200", "run_of_four_ranks")
        data = self.data(run)
        merged = json.loads(self.report("merge", "--json", "--no-symbols", run))
        ranks = {rank["rank"]: rank for rank in data["run"]["ranks"] if rank["rank"] is not None}
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        for row in merged["ranks"]:
            self.assertEqual(ranks[row["rank"]]["peak_bytes"], row["allocated_peak_bytes"])
        # Of PyTorch's cache 276, 321, 353 and 372 MiB; the median is 337.
        self.assertEqual(merged["level"], "framework")
        self.assertEqual([ranks[number]["outlier"] for number in range(4)],
                         ["18% below the median peak", None, None, "10% above the median peak"])

    def test_a_run_of_one_process_is_its_recording(self):
        run = self.path("run")
        os.mkdir(run)
        shutil.copy(self.log("leak"), run + "/memlab.train.1.memlog")
        data = self.data(run)
        self.assertEqual((data["mode"], len(data["recordings"])), ("single", 1))


if __name__ == "__main__":
    unittest.main()
