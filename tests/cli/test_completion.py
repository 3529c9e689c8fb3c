#!/usr/bin/env python3
"""memlab-report completion: scripts that the shells accept and that offer what --help lists, and a
man page. Run by ctest, as test_summary.py is."""

import re
import shutil
import subprocess
import unittest

from test_summary import REPORT, ToolTest


class Completion(ToolTest):
    def script(self, kind):
        return self.report("completion", kind)

    def commands(self):
        listed = re.findall(r"(?m)^  ([a-z]+) {2,}\S", self.report("--help").split("Commands")[1])
        return [name for name in listed if name != "completion"]

    def options(self, command):
        return set(re.findall(r"(?m)^  (?:-\w, ?)?(--[a-z][a-z-]*)", self.report(command, "--help")))

    def complete_in_bash(self, *words):
        script = self.script("bash") + """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _memlab_report; printf '%s\\n' "${COMPREPLY[@]}"
"""
        result = self.call("bash", "-c", script, "bash", "memlab-report", *words)
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def test_bash_offers_what_help_lists(self):
        self.assertIn("sites", self.complete_in_bash("si"))
        self.assertEqual(self.complete_in_bash("sites", "--sor"), ["--sort"])
        self.assertIn("--stacks", self.complete_in_bash("--sta"))
        commands = self.commands()
        self.assertGreater(len(commands), 15)
        for command in commands:
            offered = set(self.complete_in_bash(command, "--"))
            self.assertEqual(self.options(command) - offered, set(), command)

    def test_other_shells_accept_their_script(self):
        for shell, check in (("zsh", ("-n",)), ("fish", ("--no-execute",))):
            script = self.path("script." + shell)
            with open(script, "w", encoding="utf-8") as file:
                file.write(self.script(shell))
            if shutil.which(shell) is not None:
                result = self.call(shell, *check, script)
                self.assertEqual((result.returncode, result.stderr), (0, ""), shell)
        self.assertIn("complete -c memlab-report", self.script("fish"))
        self.assertTrue(self.script("zsh").startswith("#compdef memlab-report\n"))

    def test_the_man_page_has_every_option(self):
        page = self.script("man")
        plain = page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
        for command in self.commands():
            self.assertIn(f".SS \"memlab-report {command} ", plain)
            for option in self.options(command):
                self.assertIn(option, plain)
        if shutil.which("groff") is not None:
            result = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-z"], input=page, text=True,
                                    capture_output=True, check=False, timeout=60)
            self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_another_shell_is_refused(self):
        result = self.call(REPORT, "completion", "tcsh")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("takes bash, zsh, fish or man, not tcsh", result.stderr)


if __name__ == "__main__":
    unittest.main()
