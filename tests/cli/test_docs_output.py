#!/usr/bin/env python3
"""README.md and docs/*.md show what memlab-report prints, of the recording that they name.

A block is checked if it begins with `$ memlab-report` and names a recording of tests/data, or if a comment before it
says what it is of:

    <!-- output: COMMANDS -->     the block is what COMMANDS print; if it begins with `$ `, they go before its commands
    <!-- not checked: REASON -->  it cannot be: what it needs is not in tests/data

Commands run by bash in a folder that has tests/ and samples/ of the source. A line of dots stands for any lines. Run by
ctest, as test_summary.py is; `test_docs_output.py --update` writes what is printed into the pages.
"""

import difflib
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

BIN = os.path.abspath(os.environ.get("MEMLAB_BIN", "build/release/bin"))
SOURCE = os.path.abspath(os.environ.get("MEMLAB_SOURCE", "."))

BLOCK = re.compile(r"^(?:<!-- (?P<what>output|not checked): (?P<text>.*?) -->\n\s*)?"
                   r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.M | re.S)
# Output of memlab-report that no command stands above.
BARE = re.compile(r"(?:GPU \d+: |PyTorch on GPU \d+: |\w+ \(pid \d+\) | *bytes  +share|\d+ processes with CUDA)")


class Shell:
    """A folder to run the commands of a block in."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        for name in ("tests", "samples"):
            os.symlink(os.path.join(SOURCE, name), os.path.join(self.folder.name, name))
        self.where = self.folder.name
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def run(self, command):
        """What it prints on standard output."""
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "80", "LC_ALL": "C.UTF-8",
                       "TERM": "dumb"}
        mark = "<the folder is now>"
        done = subprocess.run(["bash", "-ec", f"{command}\necho; echo '{mark}'; pwd"], cwd=self.where, env=environment,
                              text=True, capture_output=True, timeout=120, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        printed, _, where = done.stdout.rpartition(f"\n{mark}\n")
        self.where = where.strip()
        return printed


def is_dots(line):
    return line.strip() == "..."


def matches(shown, printed):
    """Whether the lines shown are those printed, a line of dots being any of them."""
    pattern = "".join(r"(?:.*\n)*?" if is_dots(line) else re.escape(line.rstrip()) + r"[ ]*\n" for line in shown)
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def updated(shown, printed):
    """The lines shown with what is printed now: between dots as many lines as before."""
    parts, dots = [[]], []
    for line in shown:
        if is_dots(line):
            dots.append(line)
            parts.append([])
        else:
            parts[-1].append(line)
    if not dots:
        return printed
    result, at = list(printed[:len(parts[0])]), len(parts[0])
    for index, part in enumerate(parts[1:], 1):
        result.append(dots[index - 1])
        if not part:
            continue
        begin = len(printed) - len(part)
        if index + 1 < len(parts):  # else it ends the output
            begin = max(range(at, max(at + 1, len(printed) - len(part) + 1)),
                        key=lambda i: difflib.SequenceMatcher(None, part[0], printed[i]).ratio(), default=at)
        result += printed[begin:begin + len(part)]
        at = begin + len(part)
    return result


class Page:
    def __init__(self, path):
        self.path = path
        with open(path, encoding="utf-8") as file:
            self.text = file.read()

    def blocks(self):
        """(match, line number, the commands before it, pieces of a command and what is shown of it) of what is checked;
        pieces is None where a block is not checked and nothing says why."""
        for block in BLOCK.finditer(self.text):
            line = self.text.count("\n", 0, block.start("body")) + 1
            body, what = block["body"], block["what"]
            if what == "not checked":
                continue
            pieces = re.findall(r"^\$ (.*(?:\\\n.*)*)\n((?:(?!\$ ).*\n)*)", body, re.M) if body.startswith("$ ") else []
            prints = any(command.startswith("memlab-report ") and shown.strip() for command, shown in pieces)
            if what == "output":
                yield block, line, block["text"] if pieces else "", pieces or [(None, body)]
            elif prints and "tests/data" in body:
                yield block, line, "", pieces
            elif prints or (not block["language"] and BARE.match(body)):
                yield block, line, "", None


def checked(block, before, pieces):
    """(the block's body with what is printed now, whether it is the same)"""
    with Shell() as shell:
        if before:
            shell.run(before)
        body, same = "", True
        for command, shown in pieces:
            printed = shell.run(command or block["text"]).rstrip("\n").split("\n")
            lines = shown.rstrip("\n").split("\n") if shown.strip() else []
            if command is not None and not lines:  # a command alone
                body += f"$ {command}\n" + shown
                continue
            if not matches(lines, printed):
                same, lines = False, updated(lines, printed)
            body += (f"$ {command}\n" if command is not None else "") + "".join(each.rstrip() + "\n" for each in lines)
    return body, same


def pages():
    return [os.path.join(SOURCE, "README.md"), *sorted(glob.glob(os.path.join(SOURCE, "docs", "*.md")))]


class DocsOutput(unittest.TestCase):
    def test_pages_show_what_is_printed(self):
        count = 0
        for path in pages():
            page = os.path.relpath(path, SOURCE)
            for block, line, before, pieces in Page(path).blocks():
                with self.subTest(f"{page}:{line}"):
                    self.assertIsNotNone(pieces, f"{page}:{line}: output of no recording in tests/data; name one, or say "
                                                 "<!-- not checked: why -->")
                    body, same = checked(block, before, pieces)
                    self.assertTrue(same, f"{page}:{line}: shows something else; test_docs_output.py --update writes:\n"
                                    + "".join(difflib.unified_diff(block["body"].splitlines(True), body.splitlines(True),
                                                                   "shown", "printed")))
                    count += 1
        self.assertGreater(count, 15)

    def test_what_matches(self):
        self.assertTrue(matches(["a", "    ...", "d"], ["a", "b", "c", "d"]))
        self.assertTrue(matches(["a", "..."], ["a"]))
        self.assertFalse(matches(["a", "...", "d"], ["a", "b", "c", "d", "e"]))
        self.assertFalse(matches(["a", "c"], ["a", "b", "c"]))
        self.assertFalse(matches(["a", "b"], ["a", "B"]))

    def test_update(self):
        self.assertEqual(updated(["a 1", "b 1"], ["a 2", "b 2", "c"]), ["a 2", "b 2", "c"])
        self.assertEqual(updated(["a 1", "...", "c 1", "...", "e 1"], ["a 2", "b", "c 2", "d", "e 2"]),
                         ["a 2", "...", "c 2", "...", "e 2"])
        self.assertEqual(updated(["a 1", "..."], ["a 2", "b"]), ["a 2", "..."])


def update():
    for path in pages():
        page = Page(path)
        text, end = "", 0
        for block, line, before, pieces in page.blocks():
            if pieces is None:
                print(f"{os.path.relpath(path, SOURCE)}:{line}: no recording is named")
                continue
            body, same = checked(block, before, pieces)
            if not same:
                print(f"{os.path.relpath(path, SOURCE)}:{line}: updated")
                text += page.text[end:block.start("body")] + body
                end = block.end("body")
        if end:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text + page.text[end:])


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        update()
    else:
        unittest.main()
