#!/usr/bin/env python3
"""What each command of memlab-report takes for a log and for a run of many ranks, beside the summary.

    report_commands.py [--events N] [--sites S] [--ranks R] [--rank-events N] [--runs K] [--check] BIN

BIN is the folder of memlab's programs. memlab-synth writes a log of N events and the logs of R ranks. The
commands run in turns, K times each; a line is the median. Processor time of all threads hardly depends on
what else the host does, and the ratio to the summary's hardly on the host. With --check also ends with 1
when a command takes several times what it should, in time or memory.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

# With the most that each may take: processor time in summaries of the same events, and MiB beside the
# summary's for a million events or a rank. Twice what they do, and more where little is measured.
COMMANDS = (
    (("summary",), 1, 0),
    (("tree",), 2, 1),
    (("leaks",), 3, 1),
    (("timeline",), 6, 1),
    (("pool",), 6, 1),
    (("lines", "model.py"), 8, 1),
    (("inefficiencies",), 8, 2),
    (("whatif", "--policy", "pool"), 5, 16),
    (("whatif",), 20, 20),
)
RUN_COMMANDS = (
    (("summary",), 4, 0.3),
    (("merge",), 4, 0.4),
)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--sites", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--rank-events", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("bin", type=pathlib.Path)
    return parser.parse_args()


def measure(command):
    """Wall and processor time in seconds, and the peak of memory in MiB."""
    started = time.monotonic()
    # A process of its own between: its only child is the command, so the peak of its children is that.
    script = ("import resource, subprocess, sys; code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL); "
              "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
              "print(used.ru_utime + used.ru_stime, used.ru_maxrss); sys.exit(code)")
    output = subprocess.run([sys.executable, "-c", script, *command], check=True, capture_output=True, text=True).stdout
    processor, peak = output.split()
    return time.monotonic() - started, float(processor), int(peak) / 1024


def measure_all(report, commands, files, runs):
    """By command: medians of wall, processor time and peak."""
    figures = {command: [] for command, _, _ in commands}
    for _ in range(runs):
        for command in figures:
            figures[command].append(measure([report, *command, files, "--no-symbols"]))
    return {command: [statistics.median(column) for column in zip(*rows)] for command, rows in figures.items()}


def show(title, figures, unit):
    print(f"\n| {title} | wall | processor | of a summary | peak |")
    print("| --- | --- | --- | --- | --- |")
    for command, (wall, processor, peak) in figures.items():
        print(f"| `{' '.join(command)}` | {wall:.2f} s | {processor:.2f} s | {processor / unit:.1f} | {peak:.0f} MiB |")


def excesses(commands, figures, unit, base, amount):
    """What takes more than it may; `amount`: millions of events, or ranks."""
    for command, most_time, most_memory in commands:
        _, processor, peak = figures[command]
        if processor > most_time * unit:
            yield f"{' '.join(command)} takes {processor / unit:.1f} times a summary; at most {most_time}"
        if peak > base + 8 + most_memory * amount:
            yield f"{' '.join(command)} takes {peak:.0f} MiB; the summary of a log {base:.0f}"


def main():
    arguments = parse_arguments()
    report = arguments.bin / "memlab-report"
    synth = arguments.bin / "memlab-synth"
    with tempfile.TemporaryDirectory(prefix="memlab-bench.") as made:
        folder = pathlib.Path(made)
        (folder / "run").mkdir()
        log = folder / "one.memlog"
        common = ["--sites", str(arguments.sites), "--seed", "1"]
        subprocess.run([synth, "--events", str(arguments.events), *common, "-o", log], check=True)
        subprocess.run([synth, "--ranks", str(arguments.ranks), "--events", str(arguments.rank_events), *common,
                        "-o", folder / "run"], check=True)
        one = measure_all(report, COMMANDS, log, arguments.runs)
        run = measure_all(report, RUN_COMMANDS, folder / "run", arguments.runs)
    _, unit, base = one["summary",]
    of_run = unit * arguments.ranks * arguments.rank_events / arguments.events
    show(f"{arguments.events:,} events", one, unit)
    show(f"{arguments.ranks:,} ranks of {arguments.rank_events:,} events", run, of_run)
    wrong = [*excesses(COMMANDS, one, unit, base, arguments.events / 1e6),
             *excesses(RUN_COMMANDS, run, of_run, base, arguments.ranks)] if arguments.check else []
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
