#!/usr/bin/env python3
"""memlab-report timeline: the picture, the figures, any stretch, and what was live at a moment.

Run by ctest with the folder of the programs in MEMLAB_BIN and the source folder in MEMLAB_SOURCE.
"""

import csv
import glob
import io
import json
import os
import shutil
import subprocess
import unittest

from test_summary import BIN, REPORT, SOURCE, ToolTest, line_of
from test_views import add_forward

DATA = os.path.join(SOURCE, "tests", "data")
LOGS = sorted(glob.glob(DATA + "/h100/*.memlog") + glob.glob(DATA + "/h200/*.memlog"))
REPORTS = sorted(glob.glob(DATA + "/h100/*.json"))
OF_LOGS = [path for path in REPORTS if os.path.exists(path[:-5] + ".memlog")]


class TimelineTest(ToolTest):
    def timeline(self, *arguments, **environment):
        return self.report("timeline", *arguments, **environment)

    def read(self, *arguments):
        result = self.call(REPORT, "timeline", "--json", "--no-symbols", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        self.assertEqual((document["format"], document["version"]), ("memlab-timeline", 1))
        return document["reports"][0]

    def refused(self, *arguments, says):
        result = self.call(REPORT, "timeline", *arguments)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertRegex(result.stderr, says)
        self.assertEqual(result.stderr.count("\n"), 1)


class Picture(TimelineTest):
    def test_the_seeds_four_lines(self):
        text = self.timeline(self.log("cache"), COLUMNS="60")
        self.assertEqual(text, """\
train (pid 4711)  0 s to 1.000 s
from the event log, in steps of 524.3 us

GPU 0: NVIDIA H100 80GB HBM3
  █ allocated   ░ reserved   1 2 ^ marks
  20.00 MiB ┤    ░░░░░░░░░░░░░░░░░░░░
            │    ░░░░░░░░░░░░░░░░░░░░
            │    ░░░░░░░░░░░░░░░░░░░░
            │    ░░░░░░░░░░░░░░░░░░░░
            │    ░░░░░░░░░░░░░░░░░░░░
            │    ░░░░░░░░░░░░░░░░░░░░
  10.00 MiB ┤    ░░░░░░░░░░░░░░░░░░░░
            │    ░░░░░░░░░░░░░░░░░░░░
            │    ░░░░░░░░░░░░░░░░░░░░
            │    ▂▂▂▂▂▂▂▂▂▂▂░░░░░░░░░
            │    ███████████░░░░░░░░░
            │    ███████████░░░░░░░░░
   0.00 MiB └───────────────────────────────────────────────
             1        2        3         4
             0 s                500.00 ms            1.000 s

                  at start      lowest     highest          at      at end
  allocated            0 B         0 B    3.81 MiB   100.00 ms         0 B
  reserved             0 B         0 B   20.00 MiB   100.00 ms         0 B
  requested            0 B         0 B    3.81 MiB   100.00 ms         0 B
  active               0 B         0 B    3.81 MiB   100.00 ms         0 B

Marks
    1         0 ns  start
    2    200.00 ms  x = tensor
    3    400.00 ms  del x
    4    600.00 ms  empty_cache()
""")

    def test_scopes_are_bars_within_bars(self):
        text = self.timeline("--ascii", self.log("steps"))
        self.assertRegex(text, r"(?m)^ +\[train-+\]$")
        self.assertRegex(text, r"(?m)^ +(\[step-+\] *){4}$")
        self.assertRegex(text, r"(?m)^ +(\[f\.\.\.\]\[\.\.\.\] *){4}$")
        self.assertIn(": freed, in use", text)
        self.assertIn("~ whole GPU", text)

    def test_no_line_is_wider_than_the_terminal(self):
        for log in LOGS + [self.log("steps"), self.log("hostile"), self.log("trouble")]:
            for columns in (70, 80, 120):
                text = self.timeline("--no-symbols", "--at", "peak", log, COLUMNS=str(columns))
                widest = max(len(line) for line in text.splitlines())
                self.assertLessEqual(widest, max(columns, 74), log)
                self.assertNotIn("\x1b", text)

    def test_on_a_terminal_it_has_colour_and_in_a_pipe_none(self):
        log = self.log("cache")
        shown = self.on_terminal(REPORT, "timeline", log)
        self.assertIn("\x1b[36m", shown)
        self.assertNotIn("\x1b", self.on_terminal(REPORT, "timeline", log, NO_COLOR="1"))
        self.assertIn("#", self.timeline("--ascii", log))

    def test_an_empty_recording(self):
        self.assertIn("No GPU memory was allocated.", self.timeline(self.log("empty")))


class Stretches(TimelineTest):
    def test_the_figures_are_the_reports(self):
        for log in LOGS:
            with self.subTest(log=log):
                summary = json.loads(self.report("--json", "--no-symbols", log))["reports"][0]
                for device, timeline in zip(summary["devices"], self.read(log)["devices"]):
                    for curve, figures in device["curves"].items():
                        shown = timeline["curves"][curve]
                        if figures is None:
                            self.assertIsNone(shown)
                            continue
                        self.assertEqual([shown["highest"], shown["at_end"]],
                                         [figures["peak_bytes"], figures["at_end_bytes"]])
                        if figures["peak_bytes"]:
                            self.assertEqual(shown["highest_ns"], figures["peak_time_ns"])

    def test_a_log_and_its_report_agree(self):
        for path in OF_LOGS:
            with self.subTest(path=path):
                of_report, of_log = self.read(path), self.read(path[:-5] + ".memlog")
                for a, b in zip(of_report["devices"], of_log["devices"]):
                    for curve in ("allocated", "reserved", "requested", "active"):
                        self.assertEqual(a["curves"][curve]["highest"], b["curves"][curve]["highest"])
                        self.assertEqual(a["curves"][curve]["at_end"], b["curves"][curve]["at_end"])
                self.assertEqual(of_report["marks"], of_log["marks"])
                self.assertEqual(of_report["ooms"], of_log["ooms"])

    def test_stretches_end_where_the_next_begin(self):
        log = DATA + "/h200/pytorch_transformer.memlog"
        whole = self.read(log)
        times = [whole["to_ns"] * part // 7 for part in range(1, 7)]
        edges = ["0ns"] + ["%dns" % time for time in times] + ["end"]
        parts = [self.read("--from", a, "--until", b, log)["devices"][0] for a, b in zip(edges, edges[1:])]
        for curve in ("requested", "allocated", "active", "reserved"):
            self.assertEqual(max(part["curves"][curve]["highest"] for part in parts),
                             whole["devices"][0]["curves"][curve]["highest"])
            for before, after in zip(parts, parts[1:]):
                self.assertEqual(before["curves"][curve]["at_end"], after["curves"][curve]["at_begin"])
        self.assertLess(parts[0]["bucket_ns"], whole["devices"][0]["bucket_ns"])

    def test_a_short_stretch_shows_single_events(self):
        log = self.log("steps")
        found = self.read("--from", "110ms", "--until", "125ms", log)
        rows = [(row["begin_ns"], row["allocated"]) for row in found["devices"][0]["rows"]]
        tensor, step = 4000256, 8 << 20
        self.assertEqual(rows[0], (110000000, [tensor] * 3))
        self.assertEqual(rows[1][1], [tensor, tensor + step, tensor + step])
        self.assertEqual(found["devices"][0]["curves"]["allocated"]["highest_ns"], 120000000)
        names = [(scope["name"], scope["begin_ns"] // 1000000, scope["end_ns"] // 1000000, scope["depth"])
                 for scope in found["scopes"]]
        self.assertEqual(names, [("train", 20, 900, 0), ("step", 100, 280, 1), ("forward", 110, 190, 2)])

    def test_moments_have_names(self):
        log = self.log("cache")
        found = self.read("--from", "x = tensor", "--until", "del x", log)
        self.assertEqual((found["from_ns"], found["to_ns"]), (200000000, 400000000))
        self.assertEqual([mark["name"] for mark in found["marks"]], ["x = tensor", "del x"])
        self.assertEqual(self.read("--from", "peak", log)["from_ns"], 100000000)
        self.assertEqual(self.read("--from", "0.25s", "--until", "300000us", log)["to_ns"], 300000000)
        self.refused("--from", "12", log, says="--from takes a time with its unit .* not 12")
        self.refused("--from", "2s", log, says="--from must be before --until and before the end")
        self.refused("--until", "nobody", log, says="--until takes a time")

    def test_csv(self):
        for path in (self.log("steps"), DATA + "/h100/pytorch_without_its_cache.json"):
            rows = [row for row in csv.DictReader(io.StringIO(self.timeline("--csv", path))) if not row["memory"]]
            found = self.read(path)["devices"][0]
            self.assertEqual(len(rows), len(found["rows"]))
            for row, wanted in zip(rows, found["rows"]):
                self.assertEqual((row["device"], int(row["begin_ns"])), ("0", wanted["begin_ns"]))
                self.assertLessEqual(int(row["begin_ns"]), int(row["end_ns"]))
                for curve in ("requested", "allocated", "active", "reserved", "device_used"):
                    values = [row[curve + "_" + value] for value in ("min", "max", "last")]
                    self.assertEqual([int(value) for value in values if value], wanted[curve] or [])
        # The curves alone; the page says so too.
        self.refused("--csv", "--json", path, says="--csv excludes --json")
        self.refused("--csv", "--at", "peak", path, says="--at excludes --csv")
        with open(os.path.join(SOURCE, "docs", "over-time.md"), encoding="utf-8") as page:
            self.assertIn("memlab-report timeline FILE [--from MOMENT] [--until MOMENT] [--by category] "
                      "[[--at MOMENT] [--json] | --csv]\n",
                          page.read())


class RandomLogs(TimelineTest):
    def test_any_log_has_a_timeline(self):
        for kind in ("plausible", "wild"):
            for seed in range(1, 9):
                log = self.path("%s%d.memlog" % (kind, seed))
                subprocess.run([os.path.join(BIN, "random_log"), kind, str(seed), "2000", log], check=True)
                if not self.readable(log):
                    continue
                with self.subTest(kind=kind, seed=seed):
                    found = self.read("--at", "peak", log)
                    self.timeline("--no-symbols", "--at", "peak", "--ascii", log)
                    middle = "%dns" % (found["to_ns"] // 2)
                    part = self.read("--from", middle, "--at", middle, log)
                    for device, at in zip(part["devices"], part["at"]["devices"]):
                        self.assertEqual(at["bytes"], device["curves"]["allocated"]["at_begin"])
                    # What they lack is on stderr.
                    table = self.call(REPORT, "timeline", "--csv", log)
                    rows = list(csv.DictReader(io.StringIO(table.stdout)))
                    of_kinds = [row for row in rows if row["memory"]]
                    self.assertEqual(len(rows) - len(of_kinds), sum(len(device["rows"]) for device in found["devices"]))
                    self.assertEqual(len(of_kinds), sum(len(kind["rows"]) for device in found["devices"]
                                                        for kind in device.get("kind_curves", {}).values()))


class MissingEvents(TimelineTest):
    """A log that kept its beginning and its newest part, against one of the same run that has everything."""

    def logs(self):
        whole, ring = self.path("whole.memlog"), self.path("ring.memlog")
        for log, limit in ((whole, "0"), (ring, str(2 << 20))):
            subprocess.run([os.path.join(BIN, "memlab-synth"), "--events", "400000", "--sites", "40", "--seed", "3", "--limit", limit,
                            "-o", log], check=True, timeout=60, stdout=subprocess.DEVNULL)
        return whole, ring

    def test_no_figure_is_beyond_what_is_known(self):
        whole, ring = self.logs()
        end = self.read(whole)["to_ns"]
        found = json.loads(self.timeline("--json", ring))["reports"][0]
        lack, = found["lacks"]
        self.assertEqual(lack["name"], "gap")
        gap_from, gap_to = lack["from_ns"], lack["until_ns"]
        self.assertLess(gap_from, gap_to)
        middle = (gap_from + gap_to) // 2
        bounds = 0
        for begin, last in ((0, end), (0, middle), (middle, end), (gap_from + 1, middle), (middle, middle + end // 5000),
                            (gap_from // 2, gap_from), (gap_to, end)):
            stretch = ("--from", f"{begin}ns", "--until", f"{last}ns")
            for true, here in zip(self.read(*stretch, whole)["devices"], self.read(*stretch, ring)["devices"]):
                self.assertEqual(here["exact"], last <= gap_from or begin >= gap_to)
                for name, curve in true["curves"].items():
                    if curve is None:
                        continue
                    known = here["curves"][name]
                    with self.subTest(stretch=stretch, curve=name):
                        if known.get("highest_at_most"):
                            bounds += 1
                            self.assertGreaterEqual(known["highest"], curve["highest"])
                        else:
                            self.assertEqual(known["highest"], curve["highest"])
                        if known.get("lowest_at_least"):
                            bounds += 1
                            self.assertLessEqual(known["lowest"], curve["lowest"])
                        if (begin, last) == (0, end):
                            self.assertEqual(known["highest_ns"], curve["highest_ns"])
                self.assertTrue(all(a["begin_ns"] < b["begin_ns"] for a, b in zip(here["rows"], here["rows"][1:])))
        self.assertGreater(bounds, 0)
        # What the program marked is known of the gap, too.
        self.assertEqual(self.read(ring)["marks"], self.read(whole)["marks"])
        text = " ".join(self.timeline("--from", f"{middle}ns", "--until", f"{middle + end // 5000}ns", ring).split())
        self.assertIn("at most", text)
        self.assertIn("single events in between are missing", text)
        self.refused("--at", f"{middle}ns", ring, says="is not known: the event log keeps its beginning")

    def test_the_page_has_the_curves_of_the_report(self):
        whole, ring = self.logs()
        pages = [json.loads(self.call(REPORT, "html", "--no-symbols", "--no-source", "--json", log).stdout)
                 for log in (whole, ring)]
        end = pages[0]["recordings"][0]["duration_ns"]
        self.assertEqual(pages[1]["recordings"][0]["lacks"], pages[1]["recordings"][0]["notes"][:1])
        lack, = pages[1]["recordings"][0]["documents"]["leaks"]["lacks"]
        self.assertEqual(lack["name"], "gap")
        lack, = json.loads(self.timeline("--json", ring))["reports"][0]["lacks"]
        for moment in pages[1]["recordings"][0]["moments"]:
            self.assertFalse(lack["from_ns"] < moment < lack["until_ns"], moment)
        for true, curve in zip(*(page["recordings"][0]["curves"] for page in pages)):
            self.assertFalse(curve["exact"])
            if true["kind"] == "device_used":
                continue
            self.assertTrue(true["exact"])
            a, b = true["levels"][0], curve["levels"][0]
            self.assertEqual(max(a["max"]), max(b["max"]))
            self.assertEqual(len(a["max"]), len(b["max"]))
            self.assertTrue(all(x <= y for x, y in zip(a["max"], b["max"])), true["name"])
            self.assertTrue(all(x >= y for x, y in zip(a["min"], b["min"])), true["name"])
            self.assertEqual(end // a["bucket_ns"] + 1, len(a["max"]))

    def test_nothing_is_shown_after_a_recording_stopped(self):
        log = self.path("stopped.memlog")
        subprocess.run([os.path.join(BIN, "memlab-synth"), "stopped", log], check=True)
        found = json.loads(self.timeline("--json", log))["reports"][0]
        lack, = found["lacks"]
        self.assertEqual((lack["name"], lack["from_ns"], lack["until_ns"]), ("stopped", found["to_ns"], None))
        self.assertIn("What the program did after that is not in it", " ".join(self.timeline(log).split()))
        self.refused("--at", f"{found['to_ns'] + 1000000}ns", log, says="is after the recording stopped")
        self.assertIn("\nLive when the recording stopped, ", self.timeline("--at", "end", log))

    def test_scopes_end_at_the_latest_when_a_recording_stopped(self):
        log = self.path("limited.memlog")
        few = ("--events", "12000", "--sites", "100", "--limit", "65536")
        subprocess.run([os.path.join(BIN, "memlab-synth"), *few, "-o", log], capture_output=True, check=False)
        found = json.loads(self.timeline("--json", log))["reports"][0]
        self.assertEqual(max(scope["end_ns"] for scope in found["scopes"]), found["to_ns"])
        self.assertFalse(all(scope["ended"] for scope in found["scopes"]))

    def test_the_end_of_what_can_be_read_is_none_of_the_program(self):
        subprocess.run([os.path.join(BIN, "memlab-synth"), "--events", "40000", "-o", self.path("damaged.memlog")],
                       check=True)
        with open(self.path("damaged.memlog"), "r+b") as file:
            file.seek(os.path.getsize(file.name) * 3 // 4)
            file.write(b"damage")
        self.assertIn("\nLive where the log is damaged, ", self.timeline("--at", "end", self.path("damaged.memlog")))
        for command in (), ("leaks",):
            text = self.report(*command, "--no-symbols", self.path("damaged.memlog"))
            self.assertIn("Still allocated where the log is damaged: ", text)
            self.assertNotRegex(text, "at the end[: ]")


class Moments(TimelineTest):
    def live(self, log, moment):
        at = self.read("--at", moment, log)["at"]
        return at["devices"][0]["bytes"], at["devices"][0]["count"]

    def test_what_was_live_at_any_moment(self):
        log = self.log("steps")
        tensor = 4000256
        self.assertEqual(self.live(log, "0ns"), (0, 0))
        self.assertEqual(self.live(log, "99ms"), (tensor, 1))
        self.assertEqual(self.live(log, "120ms"), (tensor + (8 << 20), 2))
        self.assertEqual(self.live(log, "210ms"), (tensor + (20 << 20), 3))
        # Given back by the program is not live, whether or not it can be used again.
        self.assertEqual(self.live(log, "251ms"), (tensor + (8 << 20), 2))
        self.assertEqual(self.live(log, "end"), (tensor, 1))
        text = self.timeline("--at", "210ms", log)
        self.assertRegex(text, r"Live at 210ms: 23\.81 MiB  3 allocations")
        self.assertRegex(text, r"20\.00 MiB +84\.0%% +2  tests/cli/memlab_synth\.cpp:%d  forward_pass"
                         % line_of("forward_pass"))

    def test_the_attempts_behind_a_failure_are_none_of_their_own(self):
        path = DATA + "/h200/pytorch_out_of_memory.memlog"
        self.assertEqual(len(self.read(path)["ooms"]), 1)
        self.assertGreater(len(self.read("--level", "driver", path)["ooms"]), 1)

    def test_it_is_the_curve_at_every_mark(self):
        for path in REPORTS:
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
            for mark in report["marks"][:3]:
                for device in mark["devices"]:
                    with self.subTest(path=path, mark=mark["name"]):
                        log = path[:-5].removesuffix("_named") + ".memlog"
                        at = self.read("--at", "%dns" % mark["time_ns"], log)["at"]
                        live = {each["index"]: each["bytes"] for each in at["devices"]}
                        self.assertEqual(live[device["device"]], device["allocated_bytes"])

    def test_peak_and_end_of_a_report(self):
        for path in REPORTS:
            found = self.read(path)["devices"]
            for device, timeline in enumerate(found):
                for moment, key in (("peak", "highest"), ("end", "at_end")):
                    with self.subTest(path=path, moment=moment):
                        at = self.read("--at", moment, path)["at"]["devices"][device]
                        self.assertEqual(at["bytes"], timeline["curves"]["allocated"][key])

    def test_the_log_beside_a_report_is_used(self):
        path = DATA + "/h100/pytorch_without_its_cache"
        self.assertEqual(self.read("--at", "300ms", path + ".json")["devices"],
                         self.read("--at", "300ms", path + ".memlog")["devices"])

    def test_figures_of_a_report_alone_hold_together(self):
        for path in sorted(glob.glob(DATA + "/h100/*.json")):
            with self.subTest(path=path):
                alone = self.read(self.without_log(path))["devices"]
                for device, of_log in zip(alone, self.read(path)["devices"]):
                    for curve, figures in device["curves"].items():
                        if figures is None:
                            continue
                        self.assertLessEqual(figures["lowest"], figures["at_begin"])
                        self.assertLessEqual(figures["at_begin"], figures["highest"])
                        for figure in ("lowest", "highest", "at_begin"):
                            self.assertEqual(figures[figure], of_log["curves"][curve][figure], (curve, figure))

    def test_other_moments_need_the_log(self):
        path = self.without_log(DATA + "/h100/pytorch_without_its_cache.json")
        self.refused("--at", "100ms", path, says="give its event log .* unless MEMLAB_KEEP_LOG=off")
        self.refused("--at", "1h", path, says="--at takes a time")
        self.refused("--at", "5s", path, says="--at 5s is after the end of the recording, 950.10 ms")
        self.refused("--filter", "x", path, says="add --at MOMENT")

    def test_a_filter(self):
        text = self.timeline("--at", "210ms", "--filter", "func=load_batch", self.log("steps"))
        self.assertRegex(text, r"Live at 210ms: 3\.81 MiB  1 allocation, func=load_batch")
        self.assertNotIn("forward_pass", text)


class Categories(TimelineTest):
    """Of a recording whose largest site gets a frame of a module's forward."""

    def forward(self):
        name = "pytorch_without_its_cache"
        with open(os.path.join(DATA, "h100", name + ".json"), encoding="utf-8") as file:
            report = json.load(file)
        largest = add_forward(report)
        path = self.path("forward.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file)
        shutil.copy(os.path.join(DATA, "h100", name + ".memlog"), self.path("forward.memlog"))
        return path, largest

    def test_they_add_up_to_the_curve(self):
        path, largest = self.forward()
        for stretch in ((), ("--from", "430ms", "--until", "peak"), ("--from", "0.2s", "--until", "0.5s")):
            device = self.read("--by", "category", path, *stretch)["devices"][0]
            curve = device["curves"]["allocated"]
            shown = device["by_category"]
            highest = max(shown["rows"], key=lambda row: sum(row["bytes"].values()))
            self.assertEqual(sum(highest["bytes"].values()), curve["highest"])
            self.assertEqual(highest["at_ns"], curve["highest_ns"])
            for mine, curves in (("at_begin", "at_begin"), ("at_highest", "highest"), ("at_end", "at_end")):
                self.assertEqual(sum(each[mine] for each in shown["categories"].values()),
                                 curve[curves])
            self.assertEqual({name for name, each in shown["categories"].items() if each["highest"]},
                             {"activations", "other"})
        whole = self.read("--by", "category", path)["devices"][0]
        self.assertEqual(whole["by_category"]["categories"]["activations"]["at_highest"],
                         largest["at_peak_bytes"])
        self.assertNotIn("by_category", self.read(path)["devices"][0])

    def test_csv_has_the_same_rows(self):
        path, _ = self.forward()
        rows = self.read("--by", "category", path)["devices"][0]["by_category"]["rows"]
        table = list(csv.DictReader(io.StringIO(self.timeline("--by", "category", "--csv", "--no-symbols", path))))
        self.assertEqual(len(table), len(rows))
        for line, row in zip(table, rows):
            self.assertEqual([int(line["begin_ns"]), int(line["at_ns"])], [row["begin_ns"], row["at_ns"]])
            self.assertEqual(int(line["allocated"]), sum(row["bytes"].values()))
            self.assertEqual(int(line["allocated_last"]), sum(row["last"].values()))
            self.assertEqual(int(line["optimizer_state"]), row["bytes"]["optimizer state"])
            self.assertEqual(int(line["activations_last"]), row["last"]["activations"])

    def test_the_picture(self):
        path, _ = self.forward()
        text = self.timeline("--by", "category", "--no-symbols", path)
        self.assertIn("  A activations   · other", text)
        self.assertRegex(text, r"(?m)^ +│ +·A+$")
        self.assertRegex(text, r"(?m)^ +164\.19 MiB ┤ +·+$")
        self.assertRegex(text, r"(?m)^  \[allocated\] +0 B  164\.19 MiB  164\.19 MiB   445\.41 ms  129\.00 MiB$")
        for line in text.splitlines():
            self.assertLessEqual(len(line), 80)
        ascii_text = self.timeline("--by", "category", "--no-symbols", "--ascii", path)
        self.assertTrue(ascii_text.isascii())
        self.assertIn("  A activations   . other", ascii_text)

    def test_where_there_are_none(self):
        jax = os.path.join(DATA, "h100", "jax_platform_allocator.memlog")
        text = self.timeline("--by", "category", "--no-symbols", jax)
        self.assertIn("█ allocated", text)
        self.assertIn("Only memory of PyTorch's has categories.", text)
        self.assertIsNone(self.read("--by", "category", jax)["devices"][0]["by_category"])
        unnamed = os.path.join(DATA, "h100", "pytorch_without_its_cache.memlog")
        self.assertIn("have no names here", self.timeline("--by", "category", "--no-symbols", unnamed))

    def test_wrong_usage(self):
        path, _ = self.forward()
        self.refused("--by", "place", path, says="--by: takes category or nn-module, not place")
        os.remove(self.path("forward.memlog"))
        self.refused("--by", "category", path, says="forward.json: a report does not know categories "
                                                    "over time; give its event log")


if __name__ == "__main__":
    unittest.main()
