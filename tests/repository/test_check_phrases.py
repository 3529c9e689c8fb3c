#!/usr/bin/env python3
"""Each phrase of check_phrases.py is found where it is planted, however it is broken into lines, and nothing else."""

import pathlib
import tempfile
import unittest

import check_phrases
import check_tree


class CheckPhrases(unittest.TestCase):
    def findings(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return list(check_phrases.check_phrases(check_tree.Tree(folder)))

    def test_planted_phrases(self):
        for text in ("All of it, but for the rest.", "who held it, and what for", "never made less correct",
                     "take beside all allocations", "the more the slower the cores", "A press on it selects",
                     "pales what does not match", "over long life: 3 MiB", "free that first", "24 B (suballocation)",
                     "It still runs, after 3 s", "got it 3 times and gave it back 0 times",
                     "when the time for measuring was over", "the memory that it cuts", "how the pool lay in memory",
                     "waits for ever", "seldom", "as ever", "at the begin", "at its begin", "made anew", "in the place of",
                     "shown all the same", "as can be had", "called in its stead", "looks past every preload",
                     "is no matter to it", "asks in vain", "a copy to give away", "to send the page around",
                     "instead of the usual ones", "what streams took beside it", "whatever --filter takes",
                     "enough, but in pieces", "None of the patterns that are looked for was found",
                     "free, with the cache given back", "if it computes something else",
                     "The first that helps says which part it is", "killed, or left by `_exit`", "every option in force",
                     "deeper, or not to be found", "a path with a blank", "This is no leak", "NVML could not be asked",
                     "blocks lie close together", "a free that promises to wait", "code, loaded when it was asked for",
                     "Exit code: 0 good, 2 wrong usage", "It hands it on"):
            with self.subTest(text=text):
                found = self.findings("docs/a.md", f"# A\n\n{text}\n")
                self.assertEqual(len(found), 1, found)
                self.assertRegex(found[0], r'^docs/a\.md:3: ".+": say ".+"$')

    def test_broken_into_lines(self):
        for name, text in (("a.md", "all of it, but\nfor the rest"),
                           ("a.cpp", "    // all of it, but\n    // for the rest"),
                           ("a.hpp", "/// all of it, but\n/// for the rest"),
                           ("a.cpp", 'text("all of it, but "\n     "for the rest")'),
                           ("a.py", "# all of it, but\n# for the rest"),
                           ("a.md", "> all of it, but\n> for the rest")):
            with self.subTest(text=text):
                self.assertEqual([each.split('"')[0] for each in self.findings(name, text)], [f"{name}:1: "])

    def test_innocent_neighbours(self):
        self.assertEqual(self.findings("a.md", (
            "Wait, but forward is another word. over_long_life is a key. The beginning of it. what forward made.\n"
            "It asks for everything. Nobody presses keys. impression, depress. (suballocation) as a kind's name.\n"
            "It was forever. In place of it. A new one. but\n\nfor a new paragraph\n")), [])


if __name__ == "__main__":
    unittest.main()
