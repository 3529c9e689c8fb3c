"""A child that uses CUDA after a fork is told why it fails: once, and the parent's report says it too."""

from __future__ import annotations

import json
import unittest

from support import Build, EndToEnd


class Forks(EndToEnd):
    """The catalogue's forks, and what memlab says of them."""

    def said(self, case: str, settings: dict[str, str] | None = None,
             program: str = "forks") -> tuple[list[str], list[dict]]:
        """memlab's lines on stderr, and what the parent's report has in `missed`."""
        outcome = self.under_memlab(self.program(program, *case.split()), settings)
        self.assertEqual(outcome.code, 0, outcome.describe())
        missed = []
        for path in self.output.glob("*.json") if self.output.is_dir() else []:
            missed += json.loads(path.read_text(encoding="utf-8"))["missed"]
        return outcome.stderr.decode("utf-8").splitlines(), missed

    def test_one_child(self) -> None:
        lines, missed = self.said("after-use")
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], r"^memlab: process (\d+) was forked from process (\d+) after CUDA had "
                                   r"started there")
        for remedy in ("'spawn' start method", "fork before the first CUDA call"):
            self.assertIn(remedy, lines[0])
        self.assertEqual([(entry["count"], entry["bytes"]) for entry in missed], [(1, 0)])
        self.assertIn("'spawn' start method", missed[0]["reason"])

    def test_many_children_are_told_once_and_all_counted(self) -> None:
        lines, missed = self.said("after-many-use")
        self.assertEqual(len(lines), 1, lines)
        self.assertEqual([entry["count"] for entry in missed], [6])
        self.assertEqual(len(list(self.output.glob("*.json"))), 1)

    def test_the_runtime_api(self) -> None:
        lines, missed = self.said("", program="runtime_fork")
        self.assertEqual(len(lines), 1, lines)
        self.assertEqual([entry["count"] for entry in missed], [3])

    @unittest.skipIf(Build.sanitizer, "the sanitizer's malloc comes before the program's")
    def test_the_heap_may_be_locked_in_the_child(self) -> None:
        outcome = self.under_memlab(self.program("fork_heap"))
        self.assertEqual((outcome.code, outcome.stdout), (0, b"the child ended with 5\n"),
                         outcome.describe())
        self.assertIn(b"was forked from process", outcome.stderr)

    def test_quiet(self) -> None:
        lines, missed = self.said("after-many-use", {"MEMLAB_VERBOSITY": "quiet"})
        self.assertEqual(lines, [])
        self.assertEqual([entry["count"] for entry in missed], [6])

    def test_without_recording_the_warning_stays(self) -> None:
        lines, missed = self.said("after-many-use", {"MEMLAB_RECORD": "off"})
        self.assertEqual(len(lines), 1, lines)
        self.assertEqual(missed, [])
        self.assert_nothing_written()

    def test_children_without_cuda_hear_nothing(self) -> None:
        for case in ("after-exit", "after-_exit", "many-after", "before", "both"):
            lines, missed = self.said(case)
            self.assertEqual((lines, missed), ([], []), case)
