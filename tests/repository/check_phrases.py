#!/usr/bin/env python3
"""Texts, comments and names say what the field says: phrases that it does not use, and what to say instead.

    check_phrases.py ROOT

Prints one line per finding, `file:line: "phrase": say "other phrase"`, and ends with 1 when there was any. A phrase is
found across line breaks, comment marks and the pieces of a string literal.
"""

import re
import sys

import check_tree

# A phrase, a regular expression in lower case in which a blank is any gap between two words, and what to say instead.
PHRASES = [
    (r"but for", "except, except for"),
    (r"and what for|what for,", "by category; and why"),
    (r"made less correct", "memlab never changes what your program computes"),
    (r"beside all allocations", "memory CUDA itself uses; beyond allocations"),
    (r"the more the (?:slower|faster|larger|smaller)", "say the two cases"),
    (r"(?:a|by|each|every) press(?:es)?(?! of)|press an? (?:area|row|place|scope|mark)", "click"),
    (r"pales (?:what|all|the|it)", "dims"),
    (r"over long life", "held longer than needed"),
    (r"free that first", "free the old one first"),
    (r"\d+(?:\.\d+)? (?:[kmgt]i)?b \(suballocation\)", "(tensor), (block)"),
    (r"still runs, after", "still running after"),
    (r"and gave it back", "grew 16 times, shrank 0 times"),
    (r"time for measuring", "not measured (time budget used up)"),
    (r"memory that (?:it|they) cuts?|segments that (?:it|they) cuts?", "held by PyTorch's cache"),
    (r"lay in memory", "the layout of"),
    (r"for ever", "forever"),
    (r"seldom", "rarely"),
    (r"as ever", "as always"),
    (r"(?:the|its|their|each) begin", "the start, the beginning"),
    (r"anew", "again"),
    (r"in the place of", "in place of, instead of"),
    (r"all the same", "anyway, still"),
    (r"(?:can|cannot|to) be had", "is available"),
    (r"in (?:its|their|his) stead", "instead of it"),
    (r"looks? past (?:every|all|a|the|memlab)", "bypasses"),
    (r"no matter (?:to|for)", "does not affect"),
    (r"in vain", "without success"),
    (r"which (?:nvml|nobody|nothing|the driver|no call) tells of", "reported by"),
    (r"(?:to and fro|hither|thither|thence|whence|heretofore|hereafter|nought|naught|whilst|amongst|oftentimes)",
     "a word of today"),
    (r"not looked at", "ignored"),
    (r"no word on", "no message on"),
    (r"was spent", "used up, exhausted"),
    (r"(?:to )?give (?:it|them) away|to give away", "to share it; a copy to share"),
    (r"send the page around", "share the page"),
    (r"the usual ones", "the default ones"),
    (r"(?:take|takes|took|taken) beside (?:it|them|that|this)", "took in addition"),
    (r"but in pieces", "but fragmented"),
    (r"(?:patterns|what) that (?:are|is) looked for was found", "no findings; looked for"),
    (r"with the cache given back", "after releasing the cache"),
    (r"whatever --filter takes", "whatever --filter selects"),
    (r"computes something else", "gives different results"),
    (r"(?:says|shows) which part it is", "shows which part is responsible"),
    (r"left by `?_exit", "ended by _exit"),
    (r"in force", "in effect, that applies"),
    (r"not to be found", "not found"),
    (r"a (?:path|folder|name) with a blank", "with a space"),
    (r"(?:is|are) no (?:gpus?|leaks?|allocations?)", "is not a GPU, a leak, an allocation"),
    (r"(?:cannot|could not) be asked", "cannot be queried"),
    (r"lie close together", "are packed"),
    (r"promises? to wait", "has to wait"),
    (r"loaded when it was asked for", "loaded lazily"),
    (r"code: 0 good|codes: 0 good", "0 success"),
    (r"hand(?:s|ed)? (?:it|them) on", "passes it on"),
]

# What is not ours to word: recordings, licences, what npm writes; and this list with its test.
NOT_OURS = ("tests/data/", "LICENSE", "report/html/web/package-lock.json", "tests/repository/check_phrases.py",
            "tests/repository/test_check_phrases.py")

# Between two words of a phrase: blanks, a line break with its comment mark, the seam of two string literals.
GAP = r"(?:[ \t]*\"?[ \t]*\n[ \t]*(?://[/!]?|\*|#|>)?[ \t]*\"?[ \t]*|[ \t]+)"

PATTERNS = [(re.compile(rf"(?<![\w-])(?:{phrase.replace(' ', GAP)})(?!\w)", re.IGNORECASE), instead)
            for phrase, instead in PHRASES]
# Of a text in which each gap is one blank: whether to look closer.
ANY = re.compile("|".join(phrase for phrase, _ in PHRASES))
GAPS = re.compile(GAP)


def check_phrases(tree):
    """No text has a phrase of the list."""
    for name in tree.names:
        text = None if name.startswith(NOT_OURS) else tree.text(name)
        if text is None or not ANY.search(GAPS.sub(" ", text.lower())):
            continue
        for pattern, instead in PATTERNS:
            for found in pattern.finditer(text):
                line = text.count("\n", 0, found.start()) + 1
                yield f"{name}:{line}: \"{' '.join(found.group().split())}\": say \"{instead}\""


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_phrases.py ROOT")
    tree = check_tree.Tree(sys.argv[1])
    findings = sorted(check_phrases(tree))
    print("\n".join(findings) if findings else f"phrases: {len(tree.names)} files, nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
