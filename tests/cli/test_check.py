#!/usr/bin/env python3
"""memlab-report check, validate, recover and symbolize as a user meets them.

Run by ctest with the folder of the programs in MEMLAB_BIN and the source folder in MEMLAB_SOURCE.
"""

import json
import os
import shutil
import stat
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as ET

BIN = os.environ["MEMLAB_BIN"]
SOURCE = os.environ["MEMLAB_SOURCE"]
DATA = os.path.join(SOURCE, "tests/data")
REPORT = os.path.join(BIN, "memlab-report")
SYNTH = os.path.join(BIN, "memlab-synth")
REAL = os.path.join(DATA, "h100/pytorch_without_its_cache.json")
H100 = "NVIDIA H100 80GB HBM3"


class CommandTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="memlab-check.")
        self.addCleanup(self.folder.cleanup)

    def call(self, *arguments, code=0, **environment):
        keep = {key: value for key, value in os.environ.items()
                if not key.startswith(("MEMLAB_", "LC_")) and key not in ("NO_COLOR", "COLUMNS")}
        keep.update({"LANG": "C.UTF-8", "COLUMNS": "80", **environment})
        result = subprocess.run([REPORT, *arguments], cwd=self.folder.name, env=keep,
                                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=60, check=False)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def refused(self, *arguments, says):
        """One clear line on stderr, exit code 2."""
        result = self.call(*arguments, code=2)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("memlab-report: "), result.stderr)
        self.assertIn(says, result.stderr)
        return result

    def path(self, name, content=None):
        path = os.path.join(self.folder.name, name)
        if content is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
        return path

    def text(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def log(self, scenario, name=None):
        path = self.path(name or scenario + ".memlog")
        subprocess.run([SYNTH, scenario, path], check=True)
        return path

    def changed(self, name, edit):
        """A copy of a real report with something changed."""
        with open(REAL, encoding="utf-8") as file:
            report = json.load(file)
        edit(report)
        return self.path(name, json.dumps(report))


class Check(CommandTest):
    def test_kept_exceeded_unknown(self):
        kept = self.call("check", "--peak-allocated", "4 MiB", self.log("cache"))
        self.assertEqual(kept.stderr, "")
        self.assertIn("1 limit is kept\n", kept.stdout)
        self.assertRegex(kept.stdout, r"(?m)^  peak_allocated +4\.00 MiB +3\.81 MiB  ok$")
        self.assertRegex(kept.stdout, r"(?m)^  peak_reserved +- +20\.00 MiB  no limit$")
        exceeded = self.call("check", "--leaks", "0", self.log("leak"), code=1)
        self.assertEqual(exceeded.stderr, "")
        self.assertRegex(exceeded.stdout, r"leaks +0 B +8\.81 MiB  EXCEEDED by 8\.81 MiB")
        self.assertRegex(exceeded.stdout, r"(?m)^ +4\.00 MiB  tests/cli/memlab_synth\.cpp:\d+  ")
        self.assertIn("1 of 1 limits exceeded\n", exceeded.stdout)
        nothing = self.call("check", "--leaks", "1", self.path("leak.memlog"), code=1)
        self.assertRegex(nothing.stdout, r"(?m)^  leaks +1 B +8\.81 MiB  EXCEEDED by 8\.81 MiB$")  # no percentage of a byte
        self.refused("check", "--growth", "0", self.path("cache.memlog"), says="growth: there are no steps")

    def test_exactly_at_the_limit(self):
        with open(REAL, encoding="utf-8") as file:
            peak = json.load(file)["devices"][0]["curves"]["allocated"]["peak_bytes"]
        self.call("check", "--peak-allocated", str(peak), REAL)
        self.call("check", "--peak-allocated", str(peak - 1), REAL, code=1)

    def test_usage(self):
        log = self.log("cache")
        self.refused("check", log, says="there is nothing to check; give a limit")
        self.refused("check", "--leaks", "lots", log, says="--leaks takes a size")
        self.refused("check", "--peak-allocated", "+5%", log, says="needs a baseline")
        self.refused("check", "--update", "--leaks", "0", log, says="--baseline PATH")
        self.refused("check", "--limit", "leeks=0", log, says="METRIC@site:TEXT=LIMIT")
        for part in ("0.2", "1.5", "1.5B", "+0.5", "0.0001kiB"):
            self.refused("check", "--peak-allocated", part, log,
                         says=f'--peak-allocated takes whole bytes, or a size with its unit (0.2GiB), not "{part}"')
        self.refused("check", "--growth", "0.2", log, says="--growth takes whole bytes")
        self.refused("check", "--limit", "leaks=many", log, says="takes a size")
        self.refused("check", "--limit", "peak_reserved@site:x=0", log, says="not measured by site")
        self.refused("check", "--limit", "leeks@site:x=0", log, says="no metric leeks")
        self.refused("check", "--limit", "leaks@thread:x=0", log, says="only site, scope, kind and nn_module")
        self.refused("check", "--limit", "leaks@site:colour=x=0", log, says="takes func=")
        self.refused("check", "--missing-baseline", "maybe", "--leaks", "0", log, says="pass or fail")
        self.refused("check", "--leaks", "0", self.path("gone.json"), says="no such file")
        self.refused("check", "--budget", "gone.toml", log, says="gone.toml: cannot be read")

    def with_host_memory(self, name):
        """Beside what it has (12 B of it pinned), 64 MiB of pinned and 1 MiB of managed memory that stay."""
        def edit(report):
            for kind, count, size in (("pinned", 2, 32 << 20), ("managed", 1, 1 << 20)):
                site = dict(report["sites"][0], id=len(report["sites"]), kind=kind, count=count, bytes=count * size,
                            live_count=count, live_bytes=count * size, peak_bytes=count * size, at_peak_count=0,
                            at_peak_bytes=0)
                report["sites"].append(site)
                totals = report["devices"][0]["kinds"].setdefault(
                    kind, {"count": 0, "bytes": 0, "peak_bytes": 0, "live_count": 0, "live_bytes": 0})
                for member in totals:
                    totals[member] += count if "count" in member else count * size

        return self.changed(name, edit)

    def test_leaks_are_of_every_kind_and_each_may_have_a_limit(self):
        report = self.with_host_memory("host.json")

        def measured(*limits, code):
            result = self.call("check", *limits, "--no-default-suppressions", "--json", report, code=code)
            return [(row["metric"], row["kind"], row["measured"]) for row in
                    json.loads(result.stdout)["processes"][0]["rows"] if row["limit"]]

        before = json.loads(self.call("check", "--leaks", "1TiB", "--no-default-suppressions", "--json",
                                      REAL).stdout)["processes"][0]["rows"]
        everything = next(row["measured"] for row in before if row["metric"] == "leaks")
        pinned = (64 << 20) + 12
        self.assertEqual(measured("--leaks", "0", code=1), [("leaks", None, everything + (65 << 20))])
        self.assertEqual(measured("--leaks", "1GiB", "--leaks", f"pinned={pinned}", code=0),
                         [("leaks", None, everything - 12 + (1 << 20)), ("leaks", "pinned", pinned)])
        self.assertEqual(measured("--leak-count", "pinned=1", "--limit", "leaks@kind:managed=1MiB",
                                  "--peak-allocated", "pinned=65 MiB", "--leaks", "vmm=0", code=1),
                         [("peak_allocated", "pinned", pinned), ("leaks", "vmm", 0), ("leaks", "managed", 1 << 20),
                          ("leak_count", "pinned", 4)])
        self.assertEqual(measured("--limit", "leaks@site:kind=pinned=0", code=1), [("leaks", None, pinned)])
        exceeded = self.call("check", "--leaks", "pinned=1MiB", "--junit", "j.xml", "--sarif", "s.sarif",
                             "--annotations", report, code=1).stdout
        self.assertRegex(exceeded, r"leaks of pinned memory +1\.00 MiB +64\.00 MiB +EXCEEDED")
        for text in (exceeded.partition("::error")[2], self.text("j.xml"), self.text("s.sarif")):
            self.assertIn("leaks of pinned memory", text)
        self.path("kinds.toml", '[limits]\nleaks = ["1 TiB", "pinned=65 MiB"]\n\n[[kind]]\nname = "managed"\n'
                                'leaks = "1 MiB"\n')
        self.call("check", "--budget", "kinds.toml", report)
        self.call("check", "--baseline", "kinds.json", "--update", "--leaks", "pinned=+0", report)
        self.call("check", "--baseline", "kinds.json", "--leaks", "pinned=+0", report)
        self.refused("check", "--leaks", "disk=0", report, says='"disk" is no kind of memory; there are device, ')
        self.refused("check", "--growth", "pinned=0", report, says="--growth takes a size")
        self.path("bad.toml", '[limits]\nleaks = "disk=0"\n')
        self.refused("check", "--budget", "bad.toml", report, says='bad.toml:2:1: leaks: "disk" is no kind of memory')
        self.refused("check", "--limit", "allocations@site:kind=pinned=0", report, says="allocations@kind:pinned")
        # The summary says what leaks lists.
        self.assertRegex(self.call(report).stdout, r"Still allocated at the end: 194\.00 MiB[^K]* 65\.00 MiB of it is not device memory")

    def test_a_recording_without_an_end_does_not_pass_silently(self):
        stopped = {"dropped": 12, "stopped_because": "it reached MEMLAB_LOG_LIMIT (1 MiB)"}
        cases = {
            "cut.json": (lambda r: r["process"].update(ended="cut off"), "was cut off after at least"),
            "killed.json": (lambda r: r["process"].update(ended="cut off", signal="SIGKILL"),
                            "was killed by SIGKILL after"),
            "snapshot.json": (lambda r: r["process"].update(ended="running"), "was running (a snapshot)"),
            "stopped.json": (lambda r: (r["process"].update(ended="cut off"), r["log"].update(stopped)),
                             "stopped at the latest after 950.10 ms (it reached MEMLAB_LOG_LIMIT (1 MiB)) and lacks 12 later events"),
        }
        for name, (edit, says) in cases.items():
            with self.subTest(name=name):
                report = self.changed(name, edit)
                refused = self.refused("check", "--peak-allocated", "1TiB", "--leaks", "1TiB", report, says=says)
                self.assertIn("--allow-unfinished", refused.stderr)
                self.assertNotIn("  ok", refused.stdout)
                allowed = self.call("check", "--peak-allocated", "1TiB", "--allow-unfinished", report)
                self.assertIn("judged by what there is", allowed.stdout)
                self.call("check", "--peak-allocated", "1", report, code=1)
                self.call("check", "--peak-allocated", "+5%", "--baseline", "new.json", "--update", report, code=2)
                self.assertFalse(os.path.exists(self.path("new.json")))
                self.refused("check", "--peak-allocated", "+5%", "--baseline", report, REAL, says="as a baseline")
                self.call("check", "--peak-allocated", "+5%", "--baseline", report, "--allow-unfinished", REAL)
        shown = self.call(self.path("stopped.json")).stdout
        self.assertIn("Still allocated when the recording stopped", shown)
        self.assertIn("lacks 12 later events", " ".join(shown.split()))
        self.assertNotIn("at the end  ", shown)
        # What the process wrote itself at its end is whole, though its log is not.
        whole = self.changed("whole.json", lambda r: r["log"].update(stopped))
        self.call("check", "--peak-allocated", "1TiB", whole)

    def test_a_log_without_an_end_does_not_pass_silently(self):
        with open(REAL.replace(".json", ".memlog"), "rb") as file:
            whole = file.read()
        for part in (3, 10):
            with open(self.path(f"part{part}.memlog"), "wb") as file:
                file.write(whole[:len(whole) * part // 11])
        without_end = "The recording stops without an end (killed, _exit or exec)"
        stopped = ("stopped after 60.00 ms (the event log reached its limit of 65536 bytes (MEMLAB_LOG_LIMIT)) "
                   "and lacks 12 later events", "Still allocated when the recording stopped")
        for log, says, shown in ((self.log("stopped"), *stopped),
                                 (self.log("cut"), "was cut off after at least 50.00 ms", without_end),
                                 (self.path("part3.memlog"), "was cut off after at least", without_end),
                                 (self.path("part10.memlog"), "was cut off after at least", without_end)):
            with self.subTest(log=log):
                limits = ("check", "--peak-allocated", "1TiB", "--leaks", "1TiB")
                refused = self.refused(*limits, log, says=says)
                self.assertIn("--allow-unfinished", refused.stderr)
                self.assertNotIn("  ok", refused.stdout)
                self.assertIn("judged by what there is", self.call(*limits, "--allow-unfinished", log).stdout)
                self.call("check", "--peak-allocated", "1", "--allow-unfinished", log, code=1)
                summary = " ".join(self.call("--no-symbols", log).stdout.split())
                self.assertIn(says, summary)
                self.assertIn(shown, summary)

    def test_what_was_held_when_a_recording_stopped_is_no_leak(self):
        """The program may have freed it later. What it allocated before still exceeds a limit."""
        for log in (self.log("stopped"), self.log("cut")):
            with self.subTest(log=log):
                leaks = ("check", "--leaks", "0", "--leak-count", "0", log)
                self.assertEqual(self.call(*leaks, code=2).stdout.count("UNKNOWN"), 2)
                self.assertEqual(self.call(*leaks, "--allow-unfinished", code=1).stdout.count("EXCEEDED"), 2)
                self.call("check", "--allocations", "0", log, code=1)
        # More frees may be missing; a share may be of another sum.
        lacking = self.changed("unseen.json", lambda r: r["integrity"].update(unmatched_frees=5))
        for limit in ("--leaks", "--fragmentation"):
            self.assertIn("UNKNOWN", self.call("check", limit, "0", lacking, code=2).stdout)
            self.call("check", limit, "0", "--allow", "unseen-frees", lacking, code=1)

    def test_a_recovered_report_knows_that_its_log_stopped(self):
        for command, log in (("recover", self.log("stopped")), ("symbolize", self.log("stopped", "other.memlog"))):
            report = self.path(command + ".json")
            self.call(command, "-o", report, log)
            os.rename(log, log + ".away")
            self.refused("check", "--peak-allocated", "1TiB", report, says="its recording stopped after 60.00 ms")
            self.assertIn("Still allocated when the recording stopped", self.call("leaks", report).stdout)
            lack, = json.loads(self.call("timeline", "--json", report).stdout)["reports"][0]["lacks"]
            self.assertEqual((lack["name"], lack["from_ns"]), ("stopped", 60_000_000))

    def test_what_a_recording_lacks_proves_no_limit(self):
        """Each has a name, by which it may be allowed; what exceeds a limit does so all the more."""
        def missed(**more):
            return [{"reason": "the host was out of memory: an allocation was not recorded", "count": 1,
                     "bytes": 6 << 30, "first_time_ns": 5, **more}]

        def marks(report):
            report["marks"] = [{"type": "mark", "name": f"{chr(97 + i // 26)}{chr(97 + i % 26)}", "thread": 1,
                                "time_ns": i, "devices": []} for i in range(80)]
            report["mark_count"] = 80

        peak, growth = ("--peak-allocated", "1TiB"), ("--growth", "1TiB")
        cases = {
            "missed": (lambda r: r.update(missed=missed(figures="at least")), peak, "an allocation was not recorded"),
            # An older memlab did not say what it means for the figures.
            "missed ": (lambda r: r.update(missed=missed()), peak, "an allocation was not recorded"),
            "unseen-frees": (lambda r: r["integrity"].update(unmatched_frees=5), peak, "5 frees of memory whose"),
            "unseen-frees ": (lambda r: r["integrity"].update(overwritten_allocations=2), peak, "2 allocations ended"),
            "host-memory": (lambda r: r["integrity"].update(incomplete=True), peak, "The host ran out of memory"),
            "started-late": (lambda r: r["process"].update(started_late=True), peak, "earlier allocations are missing"),
            "overflow": (lambda r: r["integrity"].update(overflowed=True), peak, "do not fit into 64 bits"),
            "time-order": (lambda r: r["integrity"].update(earlier_times=3), peak, "3 events with a time before"),
            "steps": (lambda r: r.update(step_kinds_left_out=2), growth, "2 kinds of steps not followed"),
            "steps ": (marks, growth, "kinds of steps may not have been followed"),
        }
        for name, (edit, limit, says) in cases.items():
            name = name.strip()
            with self.subTest(lack=says):
                def with_steps(report, edit=edit):
                    report["steps"] = [{
                        "kind": "mark", "name": "step", "steps": 9, "warm_up_steps": 2, "verdict": "steady",
                        "bytes_per_step": 0.0, "first_bytes": 1, "last_bytes": 1, "min_bytes": 1, "max_bytes": 1,
                        "blocks": {"steps": 1, "min_bytes": [1] * 9, "max_bytes": [1] * 9}, "by_site": False,
                        "growing_sites": [], "growing_site_count": 0, "sites_left_out": 0}]
                    edit(report)

                report = self.changed("lacks.json", with_steps)
                refused = self.refused("check", *limit, report, says=says)
                self.assertIn(f"--allow {name}", refused.stderr)
                self.assertIn("UNKNOWN", refused.stdout)
                allowed = self.call("check", *limit, "--allow", name, report)
                self.assertIn("Judged by what there is.", allowed.stdout)
                if limit == peak:
                    self.call("check", "--peak-allocated", "1", report, code=1)
                    self.refused("check", "--peak-allocated", "+5%", "--baseline", report, REAL, says="as a baseline")
                document = json.loads(self.call("check", *limit, "--json", report, code=2).stdout)
                lack = [each for each in document["processes"][0]["lacks"] if each["name"] == name]
                self.assertEqual(set(lack[0]), {"name", "uncertain", "known", "from_ns", "until_ns", "text"})
                # Every view tells of it.
                for view in ("sites", "tree", "leaks", "pool", "timeline", "summary"):
                    options = () if view in ("pool", "timeline") else ("--no-symbols",)
                    self.assertIn(says, " ".join(self.call(view, *options, report).stdout.split()), view)
                shown = json.loads(self.call("sites", "--json", "--no-symbols", report).stdout)
                self.assertIn(name, [each["name"] for each in shown["reports"][0]["lacks"]])
        # What was recorded, but not served as wished, says nothing against the figures.
        complete = self.changed("complete.json", lambda r: r.update(missed=missed(figures="complete")))
        self.call("check", *peak, complete)
        self.refused("check", *peak, "--allow", "nothing", REAL, says="takes one of started-late, damaged, running")

    def test_a_run_without_a_rank_proves_nothing(self):
        shutil.copytree(os.path.join(DATA, "h200/run_of_four_ranks"), self.path("run"))
        peak = ("check", "--peak-allocated", "1TiB")
        self.call(*peak, "run")
        self.call(*peak, "--baseline", "run", "--peak-allocated", "+1%", "run")
        gone = sorted(name for name in os.listdir(self.path("run"))
                      if name.endswith(".memlog"))[2]
        os.remove(self.path("run/" + gone))
        missing = "but neither its report nor its log is here"
        self.refused(*peak, "run", says=missing)
        self.call(*peak, "--allow", "processes", "run")
        whole = os.path.join(DATA, "h200/run_of_four_ranks")
        self.refused("check", "--baseline", "run", "--peak-allocated", "+1%", whole, says=missing)
        self.assertIn("NOT COMPLETE", self.call("validate", "run", code=2).stdout)
        lacks = json.loads(self.call("--json", "run").stdout)["lacks"]
        self.assertEqual([each["name"] for each in lacks], ["processes"])
        self.assertIn(missing, " ".join(self.call("leaks", "--no-symbols", "run").stdout.split()))
        # Without memlab-run's own file the launcher's word counts.
        for name in os.listdir(self.path("run")):
            if name.startswith("memlab-run."):
                os.remove(self.path("run/" + name))
        self.refused(*peak, "run", says="1 of 4 ranks is missing")
        self.call(*peak, "--allow", "ranks", "run")

    def test_a_log_beside_a_report_that_cannot_be_read(self):
        """No view passes it over, whatever is wrong with it, and it proves no limit."""
        os.mkdir(self.path("run"))
        log, report = self.log("leak", "run/a.memlog"), self.path("run/a.json")
        self.call("recover", log, "-o", report)
        peak = ("check", "--peak-allocated", "1TiB")
        with open(log, "rb") as file:
            whole = file.read()
        self.call(*peak, report)
        no_log = "Its event log, a.memlog, cannot be read: "
        for content, says in ((b"", no_log + "empty"), (b"no log at all", no_log + "is not a memlab event log"),
                              (whole[:8] + b"\x63" + whole[9:], no_log + "an event log of format version 99"),
                              (whole[:16], no_log + "the recording stops"), (None, no_log + "a folder")):
            with self.subTest(says=says):
                os.remove(log)
                if content is None:
                    os.mkdir(log)
                else:
                    with open(log, "wb") as file:
                        file.write(content)
                for given in (report, self.path("run")):
                    if given == report or content is not None:
                        self.refused(*peak, given, says=says)
                    self.call(*peak, "--allow", "event-log", given)
                    self.call("check", "--peak-allocated", "1", given, code=1)
                    self.refused("check", "--baseline", given, "--peak-allocated", "+1%", REAL, says="cannot be read")
                    for view in ("summary", "sites", "leaks", "timeline", "pool", "merge", "trend"):
                        shown = self.call(view, "--json", given).stdout
                        self.assertIn(says, shown, view)
                for view in ("summary", "sites", "tree", "leaks", "timeline", "oom", "ledger"):
                    self.assertIn(says, " ".join(self.call(view, report).stdout.split()), view)
                for needs_log in (("histogram",), ("whatif",), ("inefficiencies",), ("export", "--to", "csv"),
                                  ("export", "--to", "folded", "--at", "1ms"), ("timeline", "--at", "1ms"),
                                  ("timeline", "--by", "category")):
                    self.refused(*needs_log, report, says="a.json: i" + says[1:])
                for of_moments in (("--every", "2"), ("--column", "active")):
                    self.refused("lines", "train.py", report, *of_moments, says="a.json: i" + says[1:])
                for form in ("folded", "openmetrics"):
                    self.assertIn(says, self.call("export", "--to", form, report).stderr)
                page = json.loads(self.call("html", "--json", report).stdout)
                self.assertIn(says, json.dumps(page))
                self.assertIn("event-log: " + says, self.call("validate", report).stdout)
                self.assertIn("a.memlog: NOT SOUND", self.call("validate", "run", code=2).stdout)
        os.rmdir(log)
        # The log of another process takes nothing from the report, and is a recording itself.
        shutil.copy(REAL.replace(".json", ".memlog"), log)
        self.call(*peak, report)
        self.assertEqual(len(json.loads(self.call("--json", "run").stdout)["processes"]), 2)

    def test_one_recording_of_a_folder_does_not_stand_for_all(self):
        os.mkdir(self.path("run"))
        self.log("leak", "run/a.memlog")
        with open(self.path("run/b.memlog"), "wb") as file:
            file.write(b"no log at all")
        for view, code in ((("pool",), 2), (("inefficiencies",), 2), (("diff", REAL), 0), (("timeline",), 0),
                           (("lines", "memlab_synth.cpp"), 2), (("export", "--to", "folded"), 0)):
            result = self.call(*view, "run", code=code)
            self.assertIn("b.memlog", result.stdout + result.stderr, view)
        page = json.loads(self.call("html", "--json", "run", code=2).stdout)
        self.assertEqual(["b.memlog" in lack for lack in page["recordings"][0]["lacks"]], [True])
        sides = json.loads(self.call("diff", "--json", REAL, "run").stdout)
        self.assertEqual([lack["name"] for lack in sides["after"]["lacks"]], ["processes"])

    def test_budget_file(self):
        log = self.log("leak")
        self.path("ci.toml", '[limits]\npeak_allocated = "16 MiB"\n\n'
                             '[[site]]\nmatch = "forward_pass"\nleaks = 0\n')
        result = self.call("check", "--budget", "ci.toml", log, code=1)
        self.assertIn("leaks of site forward_pass", result.stdout)
        self.path("ci.json", '{"limits": {"peak_allocated": "16 MiB"}}')
        self.call("check", "--budget", "ci.json", log)
        self.path("bad.toml", "[limits]\npeak_alocated = 1\n")
        self.refused("check", "--budget", "bad.toml", log, says="bad.toml:2:1: unknown key")

    def test_baseline_is_recorded_compared_and_never_by_a_failing_run(self):
        limits = ("check", "--peak-allocated", "+2%", "--baseline", "base.json")
        missing = self.refused(*limits, REAL, says="base.json has no baseline for " + H100)
        self.assertIn("--update", missing.stderr)
        self.call(*limits, "--missing-baseline", "pass", REAL)
        # One that fails an absolute limit, or cannot be judged, is not recorded.
        self.call(*limits, "--leaks", "0", "--update", REAL, code=1)
        self.call(*limits, "--growth", "0", "--update", REAL, code=2)
        self.assertFalse(os.path.exists(self.path("base.json")))
        self.assertIn("recorded for " + H100, self.call(*limits, "--update", REAL).stdout)
        before = self.text("base.json")
        self.call(*limits, REAL)

        def grow(report):
            curve = report["devices"][0]["curves"]["allocated"]
            curve["peak_bytes"] = curve["peak_bytes"] * 103 // 100

        larger = self.changed("larger.json", grow)
        self.assertIn("EXCEEDED", self.call(*limits, larger, code=1).stdout)
        self.assertEqual(self.text("base.json"), before)
        # Without a relative limit a baseline holds the peak where it was.
        self.call("check", "--baseline", "base.json", REAL)
        self.call("check", "--baseline", "base.json", larger, code=1)
        other = self.changed("other.json", lambda r: r["devices"][0].update(name="Other GPU"))
        self.refused(*limits, other, says="has no baseline for Other GPU")
        self.call(*limits, "--update", other)
        self.call(*limits, REAL)
        self.call(*limits, other)

    def test_baseline_folder_and_report(self):
        self.call("check", "--baseline", "bases/", "--update", REAL)
        self.assertEqual(os.listdir(self.path("bases")), ["nvidia-h100-80gb-hbm3-13000.json"])
        self.call("check", "--baseline", "bases", REAL)
        self.call("check", "--baseline", REAL, "--leaks", "+0", REAL)
        self.refused("check", "--baseline", self.log("cache"), "--update", "--leaks", "+0", REAL,
                     says="holds something else than a baseline")
        shutil.copy(REAL, self.path("mine.json"))
        self.refused("check", "--baseline", "mine.json", "--update", REAL,
                     says="holds something else than a baseline")

    def test_code_made_at_run_time_is_the_same_in_two_runs(self):
        """Allocations of two functions of a JIT compiler, which another run has at other addresses."""
        def edit(report, addresses):
            for address, site in zip(addresses, report["sites"][:2]):
                report["frames"].append({"module": 0, "address": address})
                outer = report["stacks"][site["stack"]]["frames"][-3:]
                report["stacks"].append({"frames": [len(report["frames"]) - 1, *outer], "truncated": False})
                site["stack"] = len(report["stacks"]) - 1

        one, two = (self.changed(name, lambda report, a=addresses: edit(report, a)) for name, addresses in
                    (("1.json", (0x7fd200001234, 0x7fd200005678)), ("2.json", (0x7fc800009abc, 0x7fc800001234))))
        self.assertIn("[jit]", self.call("sites", "--no-symbols", "--top", "100", one).stdout)
        for by in ("stack", "place"):
            compared = json.loads(self.call("diff", "--json", "--no-symbols", "--by", by, one, two).stdout)
            device, = compared["devices"]
            self.assertEqual({total["change"] for total in device["totals"].values()}, {0})
            self.assertEqual(device["sites"], [])
        limits = ("--no-symbols", "--peak-allocated", "+0", "--leaks", "+0", "--allocations", "+0",
                  "--limit", "leaks@site:libcublas=+0")
        self.call("check", *limits, "--baseline", "jit.json", "--update", one)
        for baseline in (one, "jit.json"):
            self.assertIn("4 limits are kept\n", self.call("check", *limits, "--baseline", baseline, two).stdout)

    def test_every_process_of_a_run_is_checked(self):
        os.mkdir(self.path("run"))
        for rank, name in enumerate(("cache", "leak")):
            def ranked(report, rank=rank):
                report["process"]["ranks"] = {"RANK": str(rank)}
                report["process"]["pid"] = 100 + rank
            self.changed(f"run/memlab.{name}.json", ranked)
        with open(self.path("run/memlab.leak.json"), encoding="utf-8") as file:
            report = json.load(file)
        report["devices"][0]["curves"]["allocated"]["peak_bytes"] *= 2
        self.path("run/memlab.leak.json", json.dumps(report))
        result = self.call("check", "--peak-allocated", "200 MiB", "--json", "run", code=1)
        verdicts = {process["name"]: process["rows"][0]["verdict"]
                    for process in json.loads(result.stdout)["processes"]}
        self.assertEqual(verdicts, {"rank 0": "ok", "rank 1": "exceeded"})
        self.path("run/memlab.broken.json", '{"format": "memlab-report", "version": 1}')
        broken = self.refused("check", "--peak-allocated", "2GiB", "run", says="memlab.broken.json")
        self.assertIn("not everything could be checked", broken.stdout)

    def test_healthy_ranks_leak_nothing_and_come_by_rank(self):
        """Without the names of PyTorch's functions: its workspaces are told by their libraries."""
        run = os.path.join(DATA, "h200", "run_of_four_ranks")
        result = self.call("check", "--leaks", "0", "--no-symbols", run)
        ranks = [line.split()[1] for line in result.stdout.splitlines() if line.startswith("rank ")]
        self.assertEqual(ranks, ["0", "1", "2", "3"])
        self.assertEqual(result.stdout.count("  leaks             0 B         0 B  ok\n"), 4, result.stdout)
        leaks = self.call("leaks", "--no-symbols", os.path.join(run, "memlab.python3.12.983.memlog")).stdout
        self.assertIn("65.00 MiB", leaks)
        self.assertIn("not for a tensor", " ".join(leaks.split()))

    def test_a_damaged_log_proves_nothing_kept(self):
        log = self.path("bad.memlog")
        subprocess.run([SYNTH, "--events", "20000", "-o", log], check=True, timeout=60,
                       stdout=subprocess.DEVNULL)
        self.call("check", "--peak-allocated", "1TiB", log)
        with open(log, "r+b") as file:
            file.seek(os.path.getsize(log) // 2)
            file.write(b"\xff" * 64)
        self.call("check", "--peak-allocated", "1", log, code=1)
        self.refused("check", "--peak-allocated", "1TiB", log, says="The event log is damaged at byte")

    def test_what_follows_the_end_of_a_log_proves_nothing_kept(self):
        first, second, both = (self.path(name) for name in ("1.memlog", "2.memlog", "both.memlog"))
        for seed, log in (("1", first), ("2", second)):
            subprocess.run([SYNTH, "--events", "2000", "--seed", seed, "-o", log], check=True, timeout=60,
                           stdout=subprocess.DEVNULL)
        with open(first, "rb") as one, open(second, "rb") as two:
            logs = one.read(), two.read()
        for follows, sound in ((logs[1], False), (b"\0" * 5000, True), (b"\0" * 5000 + b"x", False)):
            with open(both, "wb") as file:
                file.write(logs[0] + follows)
            if sound:  # a file that was made larger before it was written to
                self.call("check", "--peak-allocated", "1TiB", both)
                continue
            self.refused("check", "--peak-allocated", "1TiB", both, says="The event log continues after its end")
            self.call("check", "--peak-allocated", "1", both, code=1)
            self.assertIn("continues after its end", self.call(both).stdout)

    def test_a_log_of_another_version_is_named(self):
        log = self.path("run.memlog")
        subprocess.run([SYNTH, "--events", "2000", "-o", log], check=True, timeout=60, stdout=subprocess.DEVNULL)
        with open(log, "r+b") as file:
            file.seek(8)
            file.write(b"\x63")
        newer = self.changed("newer.json", lambda report: report.update(version=99))
        commands = (("check", "--peak-allocated", "1TiB"), ("summary",), ("sites",), ("tree",), ("nn-modules",), ("leaks",),
                    ("lines", "x.py"), ("html", "-o", "page.html"), ("timeline",), ("histogram",), ("pool",), ("inefficiencies",),
                    ("oom",), ("ledger",), ("whatif",), ("diff", REAL), ("trend",), ("merge",),
                    ("check", "--baseline", REAL), ("symbolize", "-o", "out.json"), ("anonymize", "-o", "out.json"),
                    ("recover", "-o", "out.json"), *(("export", "--to", form, "-o", "out") for form in (
                        "csv", "folded", "openmetrics", "perfetto", "pprof", "pytorch", "speedscope")))
        for command in commands:
            for path, says in ((log, "run.memlog: an event log of format version 99, this memlab reads version 2 and 3; use"),
                               (newer, "newer.json: ")):
                with self.subTest(command=command, path=path):
                    refused = self.refused(*command, path, says=says)
                    if path == newer and command[0] not in ("recover",):
                        self.assertIn("version 99", refused.stderr)
        for path in (log, newer):
            outcome = self.call("validate", path, code=2)
            self.assertEqual(outcome.stdout.count("\n"), 1)
            self.assertIn("version 99", outcome.stdout)
        self.assertFalse({"page.html", "out", "out.json", "out.memlog"} & set(os.listdir(self.folder.name)))
        # Beside what can be read it is named, too, and nothing passes.
        os.mkdir(self.path("runs"))
        shutil.move(log, self.path("runs/run.memlog"))
        self.log("leak", "runs/a.memlog")
        self.refused("check", "--peak-allocated", "1TiB", "runs", says="version 99")
        for command in ((), ("sites",), ("merge",), ("html", "-o", "page.html"), ("trend",),
                        ("export", "--to", "openmetrics", "-o", "out")):
            result = self.call(*command, "runs", code=0 if command[:1] == ("export",) else 2)
            self.assertIn("version 99", result.stdout + result.stderr, command)

    def test_growth_that_a_file_of_suppressions_names(self):
        log = self.path("run.memlog")
        subprocess.run([SYNTH, "--events", "20000", "--sites", "20", "-o", log], check=True, timeout=60,
                       stdout=subprocess.DEVNULL)
        grown = self.call("check", "--growth", "0", log, code=1).stdout
        self.assertRegex(grown, r"growth +0 B per step +3\.72 KiB per step +EXCEEDED")
        self.path("known.supp", "[history]\nreason = bounded by the number of steps\nfunc = Layer0.forward\n")
        kept = self.call("check", "--growth", "0", "--suppressions", "known.supp", "--json", log).stdout
        row, = [row for row in json.loads(kept)["processes"][0]["rows"] if row["metric"] == "growth"]
        self.assertEqual((row["verdict"], row["measured"], row["responsible"]), ("ok", 0, []))
        self.assertIn("without 3.72 KiB per step that may grow (--suppressions)", row["note"])
        # Another place's name changes nothing, nor does what libraries keep.
        self.path("other.supp", "[else]\nreason = because\nfunc = Layer1.forward\n")
        self.call("check", "--growth", "0", "--suppressions", "other.supp", log, code=1)

    def test_outputs(self):
        log = self.log("leak")
        self.path("summary.md", "before\n")
        result = self.call("check", "--leaks", "0", "--growth", "0", "--markdown", "summary.md",
                           "--junit", "junit.xml", "--sarif", "out.sarif", "--annotations", log,
                           code=1)
        self.assertTrue(self.text("summary.md").startswith("before\n### memlab: ❌ 1 of 1 limit"))
        suites = ET.parse(self.path("junit.xml")).getroot()
        self.assertEqual((suites.tag, suites.get("tests"), suites.get("failures"),
                          suites.get("errors")), ("testsuites", "2", "1", "1"))
        self.assertEqual(len(suites.findall("./testsuite/testcase/failure")), 1)
        self.assertEqual(len(suites.findall("./testsuite/testcase/error")), 1)
        case = suites.find("./testsuite/testcase[failure]")
        self.assertEqual(case.get("name"), "leaks on GPU 0")
        properties = {each.get("name").removeprefix("leaks on GPU 0: "): each.get("value")
                      for each in suites.iterfind("./testsuite/properties/property")}
        self.assertEqual((properties["limit"], properties["limited_by"]), ("0 B", "--leaks"))
        self.assertEqual(properties["measured_text"], "8.81 MiB")
        self.assertEqual(round(int(properties["measured"]) / 2**20, 2), 8.81)
        for suite in suites:
            self.assertEqual(int(suite.get("tests")), len(suite.findall("testcase")))
        annotations = [line for line in result.stdout.splitlines() if line.startswith("::")]
        self.assertEqual(len(annotations), 2)
        self.assertRegex(annotations[0], r"^::error file=tests/cli/memlab_synth\.cpp,line=\d+,"
                                         r"title=memlab%3A leaks::leaks on GPU 0: 8\.81 MiB")
        self.check_sarif(json.loads(self.text("out.sarif")))
        # Streams are not renamed onto: /dev/stdout stays what it is.
        on_stdout = self.call("check", "--leaks", "0", "--junit", "/dev/stdout", log, code=1)
        self.assertIn("<testsuites ", on_stdout.stdout)
        self.assertFalse(stat.S_ISREG(os.stat("/dev/null").st_mode))
        self.call("check", "--leaks", "9MiB", "--sarif", "/dev/null", log)
        self.assertFalse(stat.S_ISREG(os.stat("/dev/null").st_mode))
        # What cannot be written is said, and a kept limit alone is no success then.
        self.refused("check", "--leaks", "9MiB", "--junit", "no/such/folder.xml", log,
                     says="no/such/folder.xml: cannot be written")

    def check_sarif(self, sarif):
        """The parts of the SARIF 2.1.0 schema that apply: what is required, and what types are."""
        self.assertEqual(sarif["version"], "2.1.0")
        self.assertEqual(set(sarif), {"$schema", "version", "runs"})
        run, = sarif["runs"]
        rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        self.assertEqual(len(rules), len(set(rules)))
        self.assertEqual(run["tool"]["driver"]["name"], "memlab")
        invocation, = run["invocations"]
        self.assertIs(invocation["executionSuccessful"], False)
        self.assertEqual(len(invocation["toolExecutionNotifications"]), 1)
        result, = run["results"]
        self.assertEqual(rules[result["ruleIndex"]], result["ruleId"])
        self.assertEqual((result["ruleId"], result["level"]), ("memlab/leaks", "error"))
        self.assertIsInstance(result["message"]["text"], str)
        place = result["locations"][0]["physicalLocation"]
        self.assertEqual(place["artifactLocation"],
                         {"uri": "tests/cli/memlab_synth.cpp", "uriBaseId": "%SRCROOT%"})
        self.assertGreaterEqual(place["region"]["startLine"], 1)

    def test_json(self):
        result = self.call("check", "--leaks", "0", "--peak-allocated", "1GiB", "--json",
                           self.log("leak"), code=1)
        outcome = json.loads(result.stdout)
        self.assertEqual((outcome["format"], outcome["version"], outcome["exit_code"],
                          outcome["verdict"]), ("memlab-check", 1, 1, "exceeded"))
        rows = {row["metric"]: row for row in outcome["processes"][0]["rows"]}
        self.assertEqual(rows["leaks"]["allowed"], 0)
        self.assertEqual(rows["leaks"]["verdict"], "exceeded")
        self.assertGreater(rows["leaks"]["measured"], 0)
        self.assertEqual(sum(each["value"] for each in rows["leaks"]["responsible"]),
                         rows["leaks"]["measured"])
        self.assertEqual(rows["peak_reserved"]["verdict"], "no_limit")

    def test_eighty_columns(self):
        text = self.call("check", "--peak-allocated", "1", "--leaks", "0", REAL, code=1,
                         COLUMNS="80").stdout
        self.assertLessEqual(max(map(len, text.splitlines())), 80)


class Validate(CommandTest):
    def test_real_recordings_are_sound(self):
        result = self.call("validate", os.path.join(DATA, "h100"))
        lines = result.stdout.splitlines()
        lacks = [line for line in lines if ": cut-off: " in line]
        self.assertEqual(len(lacks), 1, lacks)
        lines = [line for line in lines if line not in lacks]
        self.assertEqual(len(lines), len(os.listdir(os.path.join(DATA, "h100"))))
        for line in lines:
            self.assertIn(": sound: ", line)
        self.assertGreaterEqual(sum("the same as" in line for line in lines), 8)

    def test_what_is_not_sound(self):
        bad = self.changed("bad.json", lambda r: r["sites"][0].update(count=10**6))
        result = self.call("validate", bad, REAL, code=2)
        lines = result.stdout.splitlines()
        self.assertTrue(lines[0].startswith(bad + ": NOT SOUND: "), lines[0])
        self.assertIn("its sites have", lines[0])
        self.assertTrue(lines[-1].startswith(REAL + ": sound"))
        self.call("validate", "gone.json", code=2)

    def test_figures_that_disagree_are_not_sound(self):
        """Whatever a report says twice, changed in one place."""
        def changed(edit):
            self.changed("bad.json", edit)
            return self.call("validate", "bad.json", code=2).stdout

        def device(report):
            return report["devices"][0]

        def stats(report, name, value):
            device(report)["memory_stats"]["allocated_bytes." + name] += value

        for edit in (
                lambda r: device(r)["curves"]["requested"].update(at_end_bytes=1),
                lambda r: device(r)["at_peak"].update(time_ns=1),
                lambda r: device(r)["kinds"]["device"].update(peak_bytes=1 << 50),
                lambda r: stats(r, "all.current", 512),
                lambda r: stats(r, "small_pool.allocated", 512),
                lambda r: (stats(r, "all.allocated", 512), stats(r, "all.freed", 512)),
                lambda r: r.update(mark_count=5),
                lambda r: r.update(oom_count=1),
                lambda r: r["sites"][0].update(at_peak_count=r["sites"][0]["at_peak_count"] + 1),
                lambda r: r["sites"][0].update(requested_bytes=1 << 50),
                lambda r: r["sites"][0]["lifetime_ns"].update(median=1),
                lambda r: r["process"].update(duration_ns=1)):
            self.assertIn("NOT SOUND", changed(edit))

    def test_what_follows_a_log_is_not_sound(self):
        with open(REAL.replace(".json", ".memlog"), "rb") as file:
            whole = file.read()
        for name, data in (("short", whole[:-1]), ("text", whole + b"text\n"), ("zeros", whole + bytes(9) + b"x")):
            with self.subTest(name=name):
                with open(self.path("bad.memlog"), "wb") as file:
                    file.write(data)
                self.assertIn("is not a record", self.call("validate", "bad.memlog", code=2).stdout)
        with open(self.path("room.memlog"), "wb") as file:
            file.write(whole + bytes(100_000))  # taken from the disk, not used yet
        self.assertIn(": sound: ", self.call("validate", "room.memlog").stdout)

    def test_a_report_that_is_not_its_logs(self):
        def edit(report):
            report["process"]["arguments"].append("--more")

        other = self.changed("other.json", edit)
        result = self.call("validate", REAL.replace(".json", ".memlog"), other, code=2)
        self.assertIn("differs from", result.stdout)
        self.assertIn("/process/arguments", result.stdout)

    def test_an_older_report_may_lack_what_is_newer_only(self):
        log = REAL.replace(".json", ".memlog")
        older = self.changed("older.json", lambda r: r["devices"][0].pop("curves_at_peak"))
        self.assertIn(f"the same as {log}", self.call("validate", log, older).stdout)
        other = self.changed("other.json", lambda r: r["devices"][0]["curves_at_peak"].update(active_bytes=1))
        self.assertIn("/devices/0/curves_at_peak/active_bytes", self.call("validate", log, other, code=2).stdout)
        other = self.changed("other.json", lambda r: r.pop("largest_live"))
        self.assertIn("/largest_live", self.call("validate", log, other, code=2).stdout)

    def test_every_flipped_byte_of_a_log_is_found_or_harmless(self):
        log = self.log("cache")
        with open(log, "rb") as file:
            good = file.read()
        whole = self.call("recover", log, "-o", "good.json")
        self.assertIn("Nothing is lost", whole.stdout)
        reports = set()
        for at in range(64, min(len(good), 640), 48):
            with open(self.path("bad.memlog"), "wb") as file:
                file.write(good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1:])
            result = subprocess.run([REPORT, "validate", self.path("bad.memlog")], timeout=60,
                                    capture_output=True, text=True, check=False)
            self.assertIn(result.returncode, (0, 2))
            reports.add(result.returncode)
        self.assertIn(2, reports)


class Recover(CommandTest):
    def test_every_prefix(self):
        real = REAL.replace(".json", ".memlog")
        with open(real, "rb") as file:
            whole = file.read()
        for size in (len(whole) // 3, len(whole) // 2):
            with open(self.path("cut.memlog"), "wb") as file:
                file.write(whole[:size])
            result = self.call("recover", "cut.memlog", "-o", "cut.json", "--force")
            self.assertRegex(result.stdout, "The log has no end|is lost")
            self.assertIn("Next: memlab-report cut.json", result.stdout)
            self.call("validate", "cut.json", code=0)
            self.call("cut.json")

    def test_never_over_a_file(self):
        log = self.log("leak")
        self.path("taken.json", "mine")
        self.refused("recover", log, "-o", "taken.json", says="taken.json: is there already")
        self.assertEqual(self.text("taken.json"), "mine")
        self.call("recover", log, "-o", "taken.json", "--force")
        self.assertEqual(json.loads(self.text("taken.json"))["format"], "memlab-report")
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["leak.memlog", "taken.json"])

    def test_what_is_no_log(self):
        self.refused("recover", REAL, "-o", "x.json", says="no event log")
        self.refused("recover", self.path("text", "hello"), "-o", "x.json", says="nor an event log")
        self.refused("recover", REAL.replace(".json", ".memlog"), says="--output")
        self.assertFalse(os.path.exists(self.path("x.json")))


class Symbolize(CommandTest):
    def test_the_report_travels(self):
        log = self.log("leak")
        self.call("symbolize", log, "-o", "named.json")
        text = self.text("named.json")
        self.call("symbolize", "named.json", "-o", "again.json")
        self.assertEqual(self.text("again.json"), text)
        import jsonschema
        schema = os.path.join(BIN, "../generated/share/memlab-report-v1.schema.json")
        with open(schema, encoding="utf-8") as file:
            jsonschema.validate(json.loads(text), json.load(file))
        self.call("validate", "named.json", log)
        # Where the binary is another one, or gone, the names are still there.
        self.path("moved.json", text.replace(SYNTH, "/nowhere/app"))
        self.assertNotIn(SYNTH, self.text("moved.json"))
        moved = self.call("moved.json").stdout
        self.assertIn("forward_pass", moved)
        self.assertRegex(moved, r"memlab_synth\.cpp:\d+")
        self.assertNotIn("forward_pass", self.call("--no-symbols", "moved.json").stdout)

    def test_another_build_gives_no_names(self):
        result = self.call("symbolize", self.log("stale"), "-o", "named.json")
        self.assertIn("is not the binary that ran", result.stdout)
        self.assertNotIn('"source"', self.text("named.json"))

    def test_a_folder_is_refused_by_what_to_give(self):
        self.refused("symbolize", DATA, "-o", "x.json",
                     says=DATA + ": a folder; give one file of it, a memlab.*.json or .memlog\n")
        self.refused("recover", DATA, "-o", "x.json",
                     says=DATA + ": a folder; give one event log of it, a memlab.*.memlog\n")

    def test_never_over_a_file(self):
        self.path("taken.json", "mine")
        self.refused("symbolize", REAL, "-o", "taken.json", says="--force")
        self.assertEqual(self.text("taken.json"), "mine")


if __name__ == "__main__":
    unittest.main()
