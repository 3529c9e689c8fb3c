#!/usr/bin/env python3
"""docs/ci.md: its recipes are run as they stand there, on the simulated driver."""

import os
import re
import shutil
import unittest
import xml.etree.ElementTree as ET

import recipes
from recipes import BIN

SAMPLE = os.path.join(BIN, "sample_checkpointing")


def github_commands(text):
    """The scripts of a workflow's `run: |` steps, in order."""
    scripts = []
    for indent, body in re.findall(r"^( +)run: \|\n((?:\1  .*\n)+)", text, re.M):
        scripts.append("".join(line[len(indent) + 2:] + "\n" for line in body.splitlines()))
    return scripts


def gitlab_commands(text):
    """The commands of a job's `script:` list."""
    body, = re.findall(r"^  script:\n((?:    - .*\n)+)", text, re.M)
    return [line.strip()[2:] for line in body.splitlines()]


class Recipes(recipes.Recipes):
    def setUp(self):
        super().setUp()
        self.blocks = recipes.blocks("ci.md")
        self.write("ci/memlab.toml", self.blocks["budget"])
        self.app("checkpointed")

    def app(self, how):
        """./app: a training step that keeps its activations (plain), or makes them again."""
        self.write("app", f'#!/bin/sh\nexec "{SAMPLE}" {how}\n', executable=True)
        shutil.rmtree(self.path("memlab"), ignore_errors=True)

    def run_all(self, commands):
        return super().run_all(commands, GITHUB_STEP_SUMMARY=self.path("summary.md"))

    def record(self):
        code, printed = self.run_all([self.blocks["record"]])
        self.assertEqual(code, 0, printed)
        self.assertEqual(len(os.listdir(self.path("ci/memlab-baselines"))), 1)

    def test_github(self):
        commands = github_commands(self.blocks["github"])
        self.assertEqual(len(commands), 2)
        code, printed = self.run_all(commands)
        self.assertEqual(code, 2, printed)  # there is no baseline yet
        self.assertIn("--update", printed)
        self.app("checkpointed")
        self.record()
        self.app("checkpointed")
        code, printed = self.run_all(commands)
        self.assertEqual(code, 0, printed)
        self.app("plain")
        code, printed = self.run_all(commands)
        self.assertEqual(code, 1, printed)
        self.assertRegex(printed, r"(?m)^::error .*title=memlab%3A peak_allocated::")
        self.assertIn("✅", self.read("summary.md"))
        self.assertIn("❌", self.read("summary.md"))
        self.assertEqual(len(ET.parse(self.path("memlab/junit.xml")).findall(".//failure")), 1)
        self.assertIn('"ruleId": "memlab/peak_allocated"', self.read("memlab/memlab.sarif"))

    def test_gitlab(self):
        commands = gitlab_commands(self.blocks["gitlab"])
        self.assertEqual(len(commands), 2)
        self.record()
        for how, expected in (("checkpointed", 0), ("plain", 1)):
            self.app(how)
            code, printed = self.run_all(commands)
            self.assertEqual(code, expected, printed)
        self.assertEqual(len(ET.parse(self.path("memlab/junit.xml")).findall(".//failure")), 1)

    def test_the_reference_is_a_budget(self):
        self.write("ci/memlab.toml", self.blocks["budget-reference"])
        self.write("ci/known.supp", "")
        code, printed = self.run_all([
            "memlab-run -o memlab/ -- ./app",
            "memlab-report check --budget ci/memlab.toml memlab/"])
        # It is of another program: every line is understood, and what is not there is said.
        self.assertEqual(code, 2, printed)
        self.assertNotIn("unknown key", printed)
        self.assertIn('no call stack matches "func=load_batch"', printed)
        self.assertIn('no scope is named "train/step"', printed)


if __name__ == "__main__":
    unittest.main()
