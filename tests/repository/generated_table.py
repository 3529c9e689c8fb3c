#!/usr/bin/env python3
"""A table of a page in docs/ is the one that a program of the build prints.

    generated_table.py --check PRINTER PAGE    compares; ends with 1 when they differ
    generated_table.py --update PRINTER PAGE   writes the table into the page

PRINTER and PAGE are the build's bin/print_option_table and docs/options.md, bin/print_record_table and
docs/event-log.md, bin/print_command_table and docs/memlab-report.md, or "bin/print_report_schema --fields" and
docs/report-format.md.
"""

import argparse
import difflib
import pathlib
import shlex
import subprocess
import sys

BEGIN, END = "<!-- table:begin -->\n", "<!-- table:end -->"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="compare; end with 1 when they differ")
    what.add_argument("--update", action="store_true", help="write the table into the page")
    parser.add_argument("printer", help="a command line")
    parser.add_argument("page", type=pathlib.Path)
    options = parser.parse_args()

    table = subprocess.run(shlex.split(options.printer), capture_output=True, text=True, check=True).stdout.strip() + "\n"
    if not table.startswith("|"):
        sys.exit(f"{options.printer} printed no table:\n{table}")
    text = options.page.read_text()
    try:
        before, rest = text.split(BEGIN)
        written, after = rest.split(END)
    except ValueError:
        sys.exit(f"{options.page}: needs the two lines {BEGIN.strip()} and {END}, once each")

    if written == table:
        return 0
    if options.update:
        options.page.write_text(before + BEGIN + table + END + after)
        return 0
    sys.stdout.writelines(difflib.unified_diff(
        written.splitlines(True), table.splitlines(True), str(options.page), "what is printed"))
    print(f"\nrun: python3 tests/repository/generated_table.py --update {shlex.quote(options.printer)} {options.page}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
