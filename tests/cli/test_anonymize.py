#!/usr/bin/env python3
"""memlab-report anonymize: what tells where a recording was made is gone from every file, every figure is there. Run by
ctest, as test_summary.py is."""

import json
import os
import re
import shutil
import subprocess
import unittest

from test_summary import REPORT, SOURCE, SYNTH, ToolTest

HOME = "/" + "home/alice"
DATA = os.path.join(SOURCE, "tests", "data")
# What the recordings of tests/data tell of the machines that they were made on.
TELLTALE = re.compile(rb"/opt/|/tmp/|taskset|--nproc|--master-port|epochs|\"vm\"|pack/tests")


def figures(value, path=""):
    """(path, number) of every number in a JSON document, and how long its lists are."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from figures(member, f"{path}.{name}")
    elif isinstance(value, list):
        if not path.endswith(("arguments", "command")):
            yield path, len(value)
            for index, member in enumerate(value):
                yield from figures(member, f"{path}[{index}]")
    elif isinstance(value, (int, float)):
        yield path, value


def varint(number):
    """As logs have it (docs/event-log.md)."""
    more = bytes([number & 127 | (128 if number > 127 else 0)])
    return more + varint(number >> 7) if number > 127 else more


class Anonymize(ToolTest):
    def anonymize(self, *arguments):
        return self.report("anonymize", *arguments)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def assert_clean(self, *names):
        for name in names:
            self.assertEqual(TELLTALE.findall(self.read(name)), [], name)

    def test_every_recording_keeps_its_figures(self):
        for folder in ("h100", "h200"):
            for name in sorted(os.listdir(os.path.join(DATA, folder))):
                stem, ending = os.path.splitext(name)
                path = os.path.join(DATA, folder, name)
                if ending not in (".json", ".memlog"):
                    continue
                with self.subTest(name=name):
                    copy = self.path(f"{folder}-{stem}-{ending[1:]}.json")
                    self.anonymize("--no-symbols", path, "-o", copy)
                    original, anonymous = (json.loads(self.report("--json", "--no-symbols", each))["reports"][0]
                                           for each in (path, copy))
                    self.assertEqual(list(figures(anonymous)), list(figures(original)))
                    files = [copy]
                    log = copy.replace(".json", ".memlog")
                    if ending == ".memlog" or os.path.exists(path.replace(".json", ".memlog")):
                        files.append(log)
                        for view in (["timeline"], ["histogram"], ["sites", "--sort", "count"], ["tree"], ["leaks"]):
                            shown = [list(figures(json.loads(self.report(*view, "--json", "--no-symbols", each))))
                                     for each in (path, log)]
                            self.assertEqual(shown[0], shown[1], view)
                    self.assert_clean(*map(os.path.basename, files))
                    validated = subprocess.run([REPORT, "validate", *files], capture_output=True, text=True, check=False)
                    self.assertEqual(validated.returncode, 0, validated.stdout)

    def test_the_log_is_event_by_event_the_same(self):
        log = os.path.join(DATA, "h200", "pytorch_tensors.memlog")
        copy = self.path("copy.memlog")
        self.assertRegex(self.anonymize(log, "-o", copy), r"copy\.memlog: [\d,]+ records\n")
        for moment in ("end", "peak", "step 3"):
            self.assertEqual(*(list(figures(json.loads(self.report("timeline", "--json", "--no-symbols", "--at", moment,
                                                                   each)))) for each in (log, copy)))
        rows = [self.report("export", "--to", "csv", "--level", "driver", each) for each in (log, copy)]
        self.assertEqual(rows[0], rows[1])
        self.assert_clean("copy.memlog")

    def test_what_readers_need_stays(self):
        named = os.path.join(DATA, "h200", "pytorch_tensors_named.json")
        self.anonymize(named, "-o", self.path("named.json"))
        sites = self.report("sites", self.path("named.json"))
        for text in ("pytorch_tensors.py:51  training", "via AddmmBackward0", "[parameters]"):
            self.assertIn(text, sites)
        # The same lines are the program's own, the same are a package's.
        self.assertEqual(re.sub(r"\S*/", "", sites),
                         re.sub(r"\S*/", "", self.report("sites", named)))
        paths = {module["path"] for module in json.loads(self.read("named.json"))["modules"]}
        self.assertTrue(any(re.fullmatch(r"/\d+/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so", path)
                            for path in paths), paths)

    def test_host_user_and_paths_in_texts(self):
        with open(os.path.join(DATA, "h100", "program_every_kind.json"), encoding="utf-8") as file:
            report = json.load(file)
        process = report["process"]
        process["host"] = "node-17"
        process["executable"] = HOME + "/solver"
        process["arguments"] = [HOME + "/solver", "--token=secret", "input of alice"]
        report["options"]["MEMLAB_OUTPUT"] = "/data/alice/%h/"
        report["missed"] = [{"reason": f'cannot open "{HOME}/lib/liba.so": alice on node-17; /scratch/x has no room',
                             "count": 1, "bytes": 0, "first_time_ns": 0}]
        with open(self.path("memlab.in.json"), "w", encoding="utf-8") as file:
            json.dump(report, file)
        self.anonymize(self.path("memlab.in.json"), "-o", self.path("out.json"))
        text = self.read("out.json").decode()
        for gone in ("alice", "node-17", "secret", "scratch", "/home", "/data"):
            self.assertNotIn(gone, text)
        out = json.loads(text)
        self.assertEqual(out["process"]["host"], "host-1")
        self.assertEqual(out["process"]["arguments"], ["solver"])
        self.assertRegex(out["process"]["executable"], r"^/\d+/solver$")
        self.assertRegex(out["missed"][0]["reason"],
                         r'^cannot open "/\d+/liba.so": user on host-1; /\d+ has no room$')

    def test_a_run(self):
        run = os.path.join(DATA, "h200", "run_of_four_ranks")
        self.anonymize("--no-symbols", run, "-o", self.path("shared/"))
        names = sorted(os.listdir(self.path("shared")))
        self.assertIn("memlab-run.host-1.903.json", names)
        self.assertEqual(len([name for name in names if name.endswith(".memlog")]), 5)
        self.assert_clean(*(os.path.join("shared", name) for name in names))
        for arguments in (["--json"], ["merge", "--json"]):
            self.assertEqual(*(list(figures(json.loads(self.report(*arguments, "--no-symbols", each))))
                               for each in (run, self.path("shared/"))))
        # Nothing is written over.
        again = self.call(REPORT, "anonymize", run, "-o", self.path("shared/"))
        self.assertEqual(again.returncode, 2)
        self.assertIn("exists; name another folder", again.stderr)

    def test_the_page_and_exports(self):
        self.anonymize("--no-symbols", os.path.join(DATA, "h200", "pytorch_scopes.json"), "-o", self.path("memlab.a.json"))
        data = self.report("html", "--json", "memlab.a.json")
        self.assertEqual(TELLTALE.findall(data.encode()), [])
        for form in ("folded", "speedscope", "openmetrics", "csv"):
            text = self.report("export", "--to", form, *(["--level", "driver"] if form == "csv" else []),
                               "memlab.a.json")
            self.assertEqual(TELLTALE.findall(text.encode()), [], form)

    def test_a_log_that_stopped(self):
        """So does its copy, at the same time and for the same reason."""
        with open(os.path.join(DATA, "h100", "cut_off_by_exec.memlog"), "rb") as file:
            log = file.read().rstrip(b"\0")
        reason = b"/home/user/reports: the disk is full"
        # An open block with a log_stopped record (time, reason, events dropped), and one with End behind it.
        fields = varint(2 * 10**9) + varint(len(reason)) + reason + (7).to_bytes(8, "little")
        with open(self.path("memlab.s.memlog"), "wb") as file:
            file.write(log + b"\xb5\0" + bytes(10) + b"\x11" + varint(len(fields)) + fields)
        self.assertIn("records", self.anonymize("memlab.s.memlog", "-o", "copy.memlog"))
        self.anonymize("memlab.s.memlog", "-o", "report.json")
        self.assertTrue(os.path.exists(self.path("report.memlog")))
        lacks = []
        for name in ("memlab.s.memlog", "copy.memlog", "report.json", "report.memlog"):
            lack, = json.loads(self.report("sites", "--json", "--no-symbols", name))["reports"][0]["lacks"]
            lacks.append((lack["name"], lack["from_ns"], lack["text"].replace("/home/user/reports", "/3")))
        self.assertEqual(lacks, [lacks[0]] * 4)
        self.assertEqual(lacks[0][:2], ("stopped", 10**9))
        self.assertIn("/3: the disk is full", lacks[1][2])
        for name in ("copy.memlog", "report.json", "report.memlog"):
            self.assertNotIn(b"reports", self.read(name))
        # One that goes on to the program's end.
        subprocess.run([SYNTH, "stopped", self.path("memlab.t.memlog")], check=True)
        self.anonymize("memlab.t.memlog", "-o", "end.memlog")
        shown = [list(figures(json.loads(self.report("timeline", "--json", each))))
                 for each in ("memlab.t.memlog", "end.memlog")]
        self.assertEqual(shown[0], shown[1])

    def test_a_log_with_a_ring(self):
        """Its copy has the same figures, the same events and the same gap."""
        log = self.path("memlab.r.memlog")
        subprocess.run([SYNTH, "--events", "900000", "--limit", str(3 << 20), "-o", log], check=True,
                       stdout=subprocess.DEVNULL)
        self.anonymize(log, "-o", "alone.memlog")
        self.anonymize("--no-symbols", log, "-o", "report.json")
        self.assertEqual({name for name in os.listdir(self.folder.name) if not name.startswith("memlab.r")},
                         {"alone.memlog", "report.json", "report.memlog"})
        for copy in ("alone.memlog", "report.memlog"):
            for view in (["--json"], ["sites", "--json"], ["timeline", "--json"], ["timeline", "--json", "--at", "peak"],
                         ["whatif", "--json", "--policy", "pool"], ["leaks", "--json"]):
                shown = [json.loads(self.report(*view, "--no-symbols", each)) for each in (log, copy)]
                self.assertEqual(*(list(figures(each)) for each in shown))
            lacks = [json.loads(self.report("sites", "--json", "--no-symbols", each))["reports"][0]["lacks"]
                     for each in (log, copy)]
            self.assertEqual(lacks[0], lacks[1])
            self.assertIn("gap", [lack["name"] for lack in lacks[0]])
            for stretch in ([], ["--until", "1ms"]):
                rows = [self.call(REPORT, "export", "--to", "csv", "--level", "driver", *stretch, each)
                        for each in (log, copy)]
                self.assertEqual(rows[0].stdout, rows[1].stdout)
                self.assertEqual(rows[0].stderr, rows[1].stderr.replace(copy, log))
                self.assertEqual(rows[0].returncode, 0)
            self.assertIn("sound", self.report("validate", copy))

    def test_gpus_are_numbers(self):
        run = os.path.join(DATA, "h200", "run_of_four_ranks")
        self.anonymize("--no-symbols", run, "-o", self.path("shared/"))
        ranks = json.loads(self.report("merge", "--json", "--no-symbols", self.path("shared/")))
        text = json.dumps(ranks)
        for number in range(1, 5):
            self.assertIn(f"GPU-00000000-0000-0000-0000-{number:012}", text)
        for name in os.listdir(self.path("shared")):
            self.assertNotRegex(self.read("shared/" + name), rb"GPU-(?!0{8}-)[0-9a-f]{8}-")

    def test_refusals(self):
        log = os.path.join(DATA, "h100", "cut_off_by_exec.memlog")
        copy = self.path("a.memlog")
        self.anonymize(log, "-o", copy)
        again = self.call(REPORT, "anonymize", log, "-o", copy)
        self.assertEqual(again.returncode, 2)
        self.anonymize(log, "--force", "-o", copy)
        shutil.copy(os.path.join(DATA, "h100", "program_every_kind.json"), self.path("memlab.b.json"))
        alone = self.call(REPORT, "anonymize", self.path("memlab.b.json"), "-o", self.path("b.memlog"))
        self.assertEqual((alone.returncode, alone.stdout), (2, ""))
        self.assertIn("has no event log beside it", alone.stderr)


if __name__ == "__main__":
    unittest.main()
