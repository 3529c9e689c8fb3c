#!/usr/bin/env python3
"""The documents of several processes against their JSON Schemas. Run by ctest, as test_summary.py is."""

import json
import os
import subprocess
import tempfile
import unittest

from test_summary import BIN, SOURCE, ToolTest

try:
    import jsonschema
except ImportError:
    jsonschema = None

RUN = os.path.join(SOURCE, "tests", "data", "h200", "run_of_four_ranks")
OTHERS = os.path.join(SOURCE, "tests", "data", "h100")


def closed(schema):
    """The same schema, but of documents that have no member beside those that it names."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: closed(each) for name, each in schema.items()}
    return {**out, "additionalProperties": False} if isinstance(out.get("properties"), dict) else out


def schema_path(name):
    return os.path.join(BIN, "..", "generated", "share", f"memlab-{name}-v1.schema.json")


def judge(test, document, name):
    """Valid as it is, and no longer where it lacks a member or has one too many."""
    if jsonschema is None:
        test.skipTest("needs jsonschema")
    with open(schema_path(name), encoding="utf-8") as file:
        schema = json.load(file)
    validator = jsonschema.Draft7Validator(closed(schema))
    test.assertEqual([f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)], [])
    for member in schema["required"]:
        test.assertFalse(validator.is_valid({key: value for key, value in document.items() if key != member}))
        test.assertFalse(validator.is_valid({**document, member: [{"no": "such value"}]}), member)
    extended = {**document, "no member of it": 1}
    test.assertFalse(validator.is_valid(extended))
    test.assertEqual([error.message for error in jsonschema.Draft7Validator(schema).iter_errors(extended)], [])


class Schemas(ToolTest):
    def judge(self, document, name):
        judge(self, document, name)

    def read(self, *arguments):
        return json.loads(self.report(*arguments, "--json", "--no-symbols"))

    def test_a_format_is_one_document(self):
        """What a command prints has a schema of its format's name, or there is none of that name."""
        for command in (("summary",), ("sites",), ("tree",), ("nn-modules",), ("leaks",), ("timeline",), ("histogram",),
                        ("pool",), ("inefficiencies",), ("oom",), ("ledger",), ("check", "--ooms", "0")):
            document = self.read(*command, os.path.join(OTHERS, "sample_cache_lines.memlog"))
            name = document["format"].removeprefix("memlab-")
            if os.path.exists(schema_path(name)):
                self.judge(document, name)

    def test_what_memlab_run_wrote(self):
        with open(os.path.join(RUN, "memlab-run.vm.903.json"), encoding="utf-8") as file:
            self.judge(json.load(file), "run")

    def test_the_summary_of_a_folder(self):
        for folder in (RUN, OTHERS):
            self.judge(self.read("summary", folder), "run-summary")

    def test_a_comparison_of_ranks(self):
        document = self.read("merge", RUN)
        self.assertEqual(len(document["ranks"]), 4)
        self.assertTrue(document["places"])
        self.judge(document, "merge")
        with tempfile.TemporaryDirectory() as run:
            for log in (log for log in os.listdir(RUN) if log.endswith(".memlog")):
                subprocess.run([os.path.join(BIN, "random_log"), "layers", os.path.join(RUN, log),
                                os.path.join(run, log)], check=True)
            document = self.read("merge", run)
            self.assertTrue(document["nn_modules"])
            self.judge(document, "merge")

    def test_a_comparison_of_runs(self):
        for arguments in ((RUN, RUN), (OTHERS, RUN), (RUN, OTHERS, "--top", "2", "--sort", "live"),
                          (OTHERS, RUN, "--device", "0", "--filter", "func=x")):
            self.judge(self.read("diff", *arguments), "run-diff")

    def test_many_runs(self):
        for arguments in ((RUN,), (RUN, OTHERS, "--level", "driver"), (os.path.join(OTHERS, "sample_checkpointing_plain.json"), RUN)):
            document = json.loads(self.report("trend", "--json", *arguments))
            self.assertTrue(document["runs"])
            self.judge(document, "trend")


if __name__ == "__main__":
    unittest.main()
