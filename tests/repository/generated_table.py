#!/usr/bin/env python3
"""The tables of a page in docs/ are those that a program of the build prints.

    generated_table.py --check PRINTER PAGE    compares; ends with 1 when they differ
    generated_table.py --update PRINTER PAGE   writes the tables into the page

PRINTER and PAGE are the build's bin/print_option_table and docs/options.md, bin/print_record_table and
docs/event-log.md, bin/print_command_table and docs/memlab-report.md, bin/print_verb_table and docs/live.md, or "bin/print_schema --fields" and
docs/report-format.md. A table stands between two lines of the page, of which the first may say what the program is
given besides: "<!-- table:begin merge -->".
"""

import argparse
import difflib
import pathlib
import re
import shlex
import subprocess
import sys

TABLE = re.compile(r"(<!-- table:begin(.*?) -->\n)(.*?)(<!-- table:end -->)", re.DOTALL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="compare; end with 1 when they differ")
    what.add_argument("--update", action="store_true", help="write the table into the page")
    parser.add_argument("printer", help="a command line")
    parser.add_argument("page", type=pathlib.Path)
    options = parser.parse_args()

    def printed(match):
        command = shlex.split(options.printer + match[2])
        table = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() + "\n"
        if not table.startswith("|"):
            sys.exit(f"{command} printed no table:\n{table}")
        return match[1] + table + match[4]

    text = options.page.read_text()
    wanted, count = TABLE.subn(printed, text)
    if count == 0 or count != text.count("<!-- table:begin"):
        sys.exit(f"{options.page}: needs a line <!-- table:begin --> and one <!-- table:end --> for each table")
    if wanted == text:
        return 0
    if options.update:
        options.page.write_text(wanted)
        return 0
    sys.stdout.writelines(difflib.unified_diff(
        text.splitlines(True), wanted.splitlines(True), str(options.page), "what is printed"))
    print(f"\nrun: python3 tests/repository/generated_table.py --update {shlex.quote(options.printer)} {options.page}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
