#!/usr/bin/env python3
"""What memlab-report exports is accepted by the programs and schemas that it is made for: protoc, go tool pprof,
promtool, Prometheus' Python parsers, the schemas of speedscope and SARIF, and Jenkins' rules for JUnit XML. A program
that is not installed is skipped by name.

Run by ctest with the folder of the programs in MEMLAB_BIN and the source folder in MEMLAB_SOURCE.
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import unittest
import xml.etree.ElementTree as ElementTree

import export_formats as formats
import test_export
from test_summary import REPORT, SOURCE

CONSUMERS = os.path.join(SOURCE, "tests/cli/consumers")
WEIGHTS = ("peak", "bytes", "count", "live")


def skip_without(program):
    return unittest.skipUnless(shutil.which(program), program + " is not installed")


def import_or_skip(name):
    """The module of this interpreter, or of the system's: a virtual environment need not have it."""
    try:
        return __import__(name, fromlist=["_"])
    except ImportError:
        system = "/usr/lib/python3/dist-packages"
        if system not in sys.path and os.path.isdir(os.path.join(system, name.split(".")[0])):
            sys.path.append(system)
            try:
                return __import__(name, fromlist=["_"])
            except ImportError:
                pass
        raise unittest.SkipTest("Python's %s is not installed" % name) from None


def schema(name):
    jsonschema = import_or_skip("jsonschema")
    with open(os.path.join(CONSUMERS, name), encoding="utf-8") as file:
        document = json.load(file)
    kind = jsonschema.validators.validator_for(document)
    kind.check_schema(document)
    return kind(document)


class ConsumerTest(test_export.HostileTest):
    """Real recordings, and the same with names that nobody should give."""

    def recordings(self):
        yield from test_export.REPORTS
        for seed in range(10):
            path = self.hostile_report(seed)
            if self.readable(path):
                yield path
        yield self.log("leak")
        yield self.log("empty")
        yield self.log("hostile")


    def decoded(self, message, file, data):
        """What protoc shows of a message, and the names of its fields, each as often as it is there."""
        shown = subprocess.run(["protoc", "--decode", message, "-I", CONSUMERS, file], input=data,
                               capture_output=True, check=False)
        self.assertEqual((shown.returncode, shown.stderr), (0, b""))
        names = re.findall(rb"^ *(\w+)(?: \{|:)", shown.stdout, re.M)
        self.assertFalse([name for name in names if name.isdigit()], "fields that the message has not")
        return shown.stdout, names


class Pprof(ConsumerTest):
    @skip_without("protoc")
    def test_protoc_knows_every_field(self):
        for path in self.recordings():
            with self.subTest(path=path):
                data = self.export("pprof", "--no-symbols", path)
                _, names = self.decoded("perftools.profiles.Profile", "profile.proto", gzip.decompress(data))
                profile = formats.Profile(data)
                self.assertEqual(names.count(b"sample"), len(profile.samples))
                self.assertEqual(names.count(b"string_table"), len(profile.strings))

    @skip_without("go")
    def test_go_tool_pprof_adds_up_the_same(self):
        for path in self.recordings():
            with self.subTest(path=path):
                out = self.path("profile.pb.gz")
                self.export("pprof", "--no-symbols", "-o", out, path)
                with open(out, "rb") as file:
                    total = formats.Profile(file.read()).total("space")
                result = subprocess.run(["go", "tool", "pprof", "-raw", out], capture_output=True,
                                        env={**self.environment, "HOME": self.folder.name}, check=False)
                self.assertEqual(result.returncode, 0, result.stderr)
                samples = result.stdout.split(b"Samples:\n")[1].split(b"Locations\n")[0]
                rows = re.findall(rb"^ *(\d+) +(\d+) +\d+ +\d+ +\d+ +\d+:", samples, re.M)
                self.assertEqual(sum(int(space) for _, space in rows), total)


class Perfetto(ConsumerTest):
    def logs(self):
        yield from test_export.LOGS
        for kind in ("leak", "kernels", "steps", "oom", "hostile", "empty"):
            yield self.log(kind)

    @skip_without("protoc")
    def test_protoc_knows_every_field(self):
        for path in self.logs():
            with self.subTest(path=path):
                data = self.export("perfetto", "--no-symbols", path)
                shown, names = self.decoded("perfetto.protos.Trace", "perfetto_trace.proto", data)
                self.assertFalse(re.findall(rb"^ *(?:type|unit): \d", shown, re.M), "no such value")
                trace = formats.Trace(data)
                self.assertEqual(names.count(b"track_descriptor"), len(trace.tracks))
                self.assertEqual(shown.count(b"type: TYPE_SLICE_BEGIN"),
                                 sum(len(track.slices) for track in trace.tracks))


class Prometheus(ConsumerTest):
    @skip_without("promtool")
    def test_promtool_has_nothing_to_say(self):
        for path in self.recordings():
            with self.subTest(path=path):
                result = subprocess.run(["promtool", "check", "metrics"], capture_output=True, check=False,
                                        input=self.export("openmetrics", path))
                self.assertEqual((result.returncode, result.stdout, result.stderr), (0, b"", b""))

    def test_both_of_prometheus_own_parsers_read_the_same(self):
        parsers = [import_or_skip("prometheus_client.openmetrics.parser"), import_or_skip("prometheus_client.parser")]
        for path in self.recordings():
            with self.subTest(path=path):
                data = self.export("openmetrics", path)
                ours = sorted((name, sorted(labels), value)
                              for (name, labels), value in formats.openmetrics(data).items())
                for parser in parsers:
                    theirs = [(sample.name, sorted((name, self.escaped(value)) for name, value in sample.labels.items()),
                               sample.value)
                              for family in parser.text_string_to_metric_families(data.decode())
                              for sample in family.samples]
                    self.assertEqual(sorted(theirs), ours)

    @staticmethod
    def escaped(value):
        return value.replace("\\", "\\\\").replace('"', '\\"')


class Speedscope(ConsumerTest):
    def test_its_schema(self):
        validator = schema("speedscope-file-format.schema.json")
        for path in self.recordings():
            for by in WEIGHTS:
                with self.subTest(path=path, by=by):
                    validator.validate(json.loads(self.export("speedscope", "--no-symbols", "--by", by, path)))


class CheckReports(ConsumerTest):
    """What memlab-report check writes for CI servers."""

    def check(self, *arguments):
        result = self.call(REPORT, "check", "--no-symbols", "--peak-allocated", "1", "--leaks", "0",
                           "--growth", "0", "--limit", "leaks@site:nobody=0", *arguments)
        self.assertIn(result.returncode, (1, 2), result.stderr)

    def test_sarif_by_its_schema(self):
        validator = schema("sarif-2.1.0.schema.json")
        results = 0
        for path in self.recordings():
            with self.subTest(path=path):
                out = self.path("out.sarif")
                self.check("--sarif", out, path)
                with open(out, encoding="utf-8") as file:
                    document = json.load(file)
                validator.validate(document)
                results += len(document["runs"][0]["results"])
        self.assertGreater(results, 20)

    def test_junit_by_the_rules_of_jenkins(self):
        """Those of junit-10.xsd of Jenkins' xUnit plugin, as far as they concern what is written, and that
        the sums are right."""
        for path in self.recordings():
            with self.subTest(path=path):
                out = self.path("junit.xml")
                self.check("--junit", out, path)
                self.obeys_jenkins(ElementTree.parse(out).getroot())

    def obeys_jenkins(self, root):
        self.assertEqual(root.tag, "testsuites")
        self.assertLessEqual(set(root.attrib), {"name", "time", "tests", "failures", "errors"})
        for suite in root:
            self.assertEqual(suite.tag, "testsuite")
            self.assertLessEqual({"name", "tests", "failures", "errors"}, set(suite.attrib))
            self.assertLessEqual(set(suite.attrib), {"name", "tests", "failures", "errors", "skipped"})
            cases = suite.findall("testcase")
            self.assertEqual([each.tag for each in suite], ["properties"] * (len(suite) - len(cases)) + ["testcase"] * len(cases))
            for each in suite.iterfind("properties/*"):
                self.assertEqual((each.tag, set(each.attrib), len(each)), ("property", {"name", "value"}, 0))
            for case in cases:
                self.assertEqual(set(case.attrib), {"name", "classname"})
                for what in case:
                    self.assertIn(what.tag, ("failure", "error", "skipped", "system-out"))
                    self.assertLessEqual(set(what.attrib), {"message", "type"} if what.tag != "system-out" else set())
                    self.assertEqual(len(what), 0)
            self.assertEqual(int(suite.get("tests")), len(cases))
        for figure, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            self.assertEqual(int(root.get(figure)), len(root.findall(".//" + tag)))
            self.assertEqual(int(root.get(figure)), sum(int(suite.get(figure)) for suite in root))


if __name__ == "__main__":
    unittest.main()
