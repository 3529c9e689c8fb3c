"""The samples on the simulated driver: what each promises to show is in its report."""

from __future__ import annotations

import json

from harness import Found, Outcome, differences, judge_recordings
from sample_checks import OUT_OF_MEMORY, RUNS, SETTINGS, problems_of, problems_of_text
from support import EndToEnd


class Samples(EndToEnd):
    """Runs of the samples, and their reports as people see them."""

    def run_sample(self, name: str, *arguments: str) -> tuple[Outcome, Found]:
        self.output = self.work / "-".join(("out", name, *arguments))
        command = [str(self.layout.tool(f"sample_{name}")), *arguments]
        native = self.without_memlab(command)
        under = self.under_memlab(command, SETTINGS.get(name))
        found, problems = judge_recordings(self.layout, self.output, None)
        said = b"memlab: out of memory" in under.stderr
        self.assertEqual(said, name in OUT_OF_MEMORY)
        self.assert_sound(differences(native, under, may_warn=said) + problems)
        self.assertEqual(native.code, 0, native.describe())
        self.assertEqual(len(found), 1)
        return under, found[0]

    def test_promises(self) -> None:
        for name, arguments in RUNS:
            with self.subTest(name, arguments=arguments):
                outcome, found = self.run_sample(name, *arguments)
                self.assert_sound(problems_of(name, arguments, outcome.stdout.decode(), found.report))

    def test_four_lines_as_people_see_them(self) -> None:
        _, found = self.run_sample("cache_lines")
        self.assert_sound(problems_of_text(self.shown(found)))

    def test_call_sites_have_names_and_lines(self) -> None:
        _, found = self.run_sample("inplace")
        text = self.shown(found)
        self.assertIn("add_out_of_place", text)
        self.assertRegex(text, r"inplace\.cu:\d+")

    def test_summary_for_machines(self) -> None:
        _, found = self.run_sample("inplace")
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), "--json",
                                       str(found.report_path)])
        self.assertEqual(outcome.code, 0, outcome.describe())
        self.assertIsInstance(json.loads(outcome.stdout), dict)

    def test_a_leak_has_a_name_and_a_line(self) -> None:
        _, found = self.run_sample("leak")
        self.assertRegex(self.shown(found), r"400 steps by scope \"step\": growing\n +512 B/step  "
                                            r"\S*leak\.cu:\d+  \S*remember_loss")
