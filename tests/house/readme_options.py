#!/usr/bin/env python3
"""The README's table of options is the one that the option table prints.

    readme_options.py PRINTER README            compares; ends with 1 when they differ
    readme_options.py --update PRINTER README   writes the table into the README

PRINTER is the build's bin/print_option_table.
"""

import argparse
import difflib
import pathlib
import subprocess
import sys

BEGIN, END = "<!-- options:begin -->\n", "<!-- options:end -->"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true")
    parser.add_argument("printer")
    parser.add_argument("readme", type=pathlib.Path)
    options = parser.parse_args()

    table = subprocess.run([options.printer], capture_output=True, text=True, check=True).stdout.strip() + "\n"
    if not table.startswith("|"):
        sys.exit(f"{options.printer} printed no table:\n{table}")
    text = options.readme.read_text()
    try:
        before, rest = text.split(BEGIN)
        written, after = rest.split(END)
    except ValueError:
        sys.exit(f"{options.readme}: needs the two lines {BEGIN.strip()} and {END}, once each")

    if written == table:
        return 0
    if options.update:
        options.readme.write_text(before + BEGIN + table + END + after)
        return 0
    sys.stdout.writelines(difflib.unified_diff(
        written.splitlines(True), table.splitlines(True), str(options.readme), "the option table"))
    print(f"\nrun: python3 tests/house/readme_options.py --update {options.printer} README.md")
    return 1


if __name__ == "__main__":
    sys.exit(main())
