#!/usr/bin/env python3
"""docs/ci.md: its recipes are run as they stand there, on the simulated driver.

Run by ctest with the folder of the programs in MEMLAB_BIN, the simulated driver's in MEMLAB_SIMCUDA
and the source folder in MEMLAB_SOURCE.
"""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as ET

BIN = os.environ["MEMLAB_BIN"]
PAGE = os.path.join(os.environ["MEMLAB_SOURCE"], "docs/ci.md")
SAMPLE = os.path.join(BIN, "sample_checkpointing")


def blocks():
    """{name: text} of the blocks of the page that stand behind a "checked" comment."""
    with open(PAGE, encoding="utf-8") as file:
        found = re.findall(r"<!-- checked: ([\w-]+) -->\n```\w*\n(.*?)```", file.read(), re.S)
    return dict(found)


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


class Recipes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="memlab-ci.")
        self.addCleanup(self.folder.cleanup)
        self.blocks = blocks()
        os.mkdir(self.path("ci"))
        self.write("ci/memlab.toml", self.blocks["budget"])
        self.app("checkpointed")

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def app(self, how):
        """./app: a training step that keeps its activations (plain), or makes them anew."""
        self.write("app", f'#!/bin/sh\nexec "{SAMPLE}" {how}\n')
        os.chmod(self.path("app"), 0o755)
        shutil.rmtree(self.path("memlab"), ignore_errors=True)

    def run_all(self, commands):
        """As a CI server does: each in a shell that stops at the first failure. The exit code of the
        last one that ran, and what they printed."""
        keep = {key: value for key, value in os.environ.items() if not key.startswith("MEMLAB_")}
        keep.update(LANG="C.UTF-8", PATH=BIN + os.pathsep + os.environ["PATH"],
                    LD_LIBRARY_PATH=os.environ["MEMLAB_SIMCUDA"],
                    GITHUB_STEP_SUMMARY=self.path("summary.md"))
        printed = ""
        for command in commands:
            result = subprocess.run(["bash", "-e", "-c", command], cwd=self.folder.name, env=keep,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
            printed += result.stdout
            if result.returncode != 0:
                return result.returncode, printed
        return 0, printed

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
