#!/usr/bin/env python3
"""memlab-report completion, memlab-run and memlab-ctl --completion: scripts that the shells accept and that offer what --help lists,
and man pages. Run by ctest, as test_summary.py is."""

import os
import re
import shutil
import subprocess
import unittest

from test_summary import BIN, REPORT, RUN, ToolTest


CTL = os.path.join(BIN, "memlab-ctl")


class Completion(ToolTest):
    def script(self, kind):
        return self.report("completion", kind)

    def commands(self):
        listed = re.findall(r"(?m)^  ([a-z][a-z-]*) {2,}\S", self.report("--help").split("Commands")[1])
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

    def run_script(self, kind):
        result = self.call(RUN, "--completion", kind)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def run_options(self):
        found = set(re.findall(r"(?m)^  (?:-\w, ?)?(--[a-z][a-z-]*)", self.call(RUN, "--help").stdout))
        self.assertGreater(len(found), 10)
        return found

    def complete_run_in_bash(self, *words):
        script = self.run_script("bash") + """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _memlab_run; printf '%s\n' "${COMPREPLY[@]}"
"""
        result = self.call("bash", "-c", script, "bash", "memlab-run", *words)
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def test_bash_completes_options_of_memlab_run_and_the_command(self):
        self.assertEqual(self.run_options() - set(self.complete_run_in_bash("--")), set())
        self.assertEqual(self.complete_run_in_bash("--quiet", "--outp"), ["--output"])
        for before in (["--"], ["--quiet"], ["-o", "reports/", "--"], ["--option", "POOL", "=", "off"],
                       ["--option", "--"]):
            self.assertIn("bash", self.complete_run_in_bash(*before, "bas"), before)
        # What follows the command is the command's own.
        for before in (["bash"], ["--", "bash"], ["--"]):
            self.assertEqual(self.complete_run_in_bash(*before, "--qui"), [], before)

    def test_other_shells_accept_the_script_of_memlab_run(self):
        for shell, check, prefix in (("zsh", ("-n",), ""), ("fish", ("--no-execute",), "-l ")):
            script = self.path("script." + shell)
            text = self.run_script(shell)
            with open(script, "w", encoding="utf-8") as file:
                file.write(text)
            for option in self.run_options():
                self.assertIn(prefix + (option[2:] if prefix else option), text)
            if shutil.which(shell) is not None:
                result = self.call(shell, *check, script)
                self.assertEqual((result.returncode, result.stderr), (0, ""), shell)

    def test_the_man_page_of_memlab_run_has_every_option(self):
        page = self.run_script("man")
        plain = page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\fI", "")
        for option in self.run_options():
            self.assertIn("\n" + option, plain.replace("\n-o, ", "\n").replace("\n-h, ", "\n"))
        variables = re.findall(r"(?m)^  (MEMLAB_\w+)=", self.call(RUN, "--help-options").stdout)
        self.assertGreater(len(variables), 20)
        self.assertEqual(re.findall(r"(?m)^(MEMLAB_\w+)=", plain), variables)
        self.assert_formats(page)

    def assert_formats(self, page):
        if shutil.which("groff") is not None:
            result = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-z"], input=page, text=True,
                                    capture_output=True, check=False, timeout=60)
            self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_the_man_page_has_every_option(self):
        page = self.script("man")
        plain = page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
        for command in self.commands():
            self.assertIn(f".SS \"memlab-report {command} ", plain)
            for option in self.options(command):
                self.assertIn(option, plain)
        self.assert_formats(page)

    def ctl_script(self, kind):
        result = self.call(CTL, "--completion", kind)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def ctl_verbs(self):
        listed = self.call(CTL, "--help").stdout.split("Verbs:")[1]
        verbs = re.findall(r"(?m)^  ([a-z][a-z-]*)", listed)
        self.assertGreater(len(verbs), 10)
        self.assertLessEqual(max(len(line) for line in listed.splitlines()), 80)
        return verbs

    def complete_ctl_in_bash(self, *words):
        script = self.ctl_script("bash") + """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _memlab_ctl; printf '%s\n' "${COMPREPLY[@]}"
"""
        result = self.call("bash", "-c", script, "bash", "memlab-ctl", *words)
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def test_bash_completes_verbs_and_their_words(self):
        self.assertEqual(set(self.ctl_verbs()) - set(self.complete_ctl_in_bash("4711", "")), set())
        self.assertEqual(self.complete_ctl_in_bash("--js"), ["--json"])
        self.assertEqual(self.complete_ctl_in_bash("4711", "snap"), ["snapshot"])
        self.assertEqual(self.complete_ctl_in_bash("4711", "hold-on-oom", "o"), ["on", "off"])
        self.assertEqual(self.complete_ctl_in_bash("sites", "20", "since"), ["since-mark"])

    def test_other_shells_accept_the_script_of_memlab_ctl(self):
        for shell, check in (("zsh", ("-n",)), ("fish", ("--no-execute",))):
            script = self.path("script." + shell)
            text = self.ctl_script(shell)
            with open(script, "w", encoding="utf-8") as file:
                file.write(text)
            for verb in self.ctl_verbs():
                self.assertIn(verb, text)
            if shutil.which(shell) is not None:
                result = self.call(shell, *check, script)
                self.assertEqual((result.returncode, result.stderr), (0, ""), shell)

    def test_the_man_page_of_memlab_ctl_has_every_verb(self):
        page = self.ctl_script("man")
        plain = page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\fI", "")
        for verb in self.ctl_verbs():
            self.assertRegex(plain, rf"(?m)^{verb}( |$)")
        self.assert_formats(page)

    def test_another_shell_is_refused(self):
        result = self.call(REPORT, "completion", "tcsh")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("takes bash, zsh, fish or man, not tcsh", result.stderr)
        result = self.call(RUN, "--completion", "tcsh")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(result.stderr, "memlab-run: --completion takes bash, zsh, fish or man, not tcsh\n")
        result = self.call(CTL, "--completion", "tcsh")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(result.stderr, "memlab-ctl: --completion takes bash, zsh, fish or man, not tcsh\n")


if __name__ == "__main__":
    unittest.main()
