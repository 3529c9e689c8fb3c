#!/usr/bin/env python3
"""How long reading a recording takes: memlab-report summary beside heaptrack_print, in one run.

    against_heaptrack.py [--events N] [--sites S] [--runs R] BIN

BIN is the folder of memlab's programs. heaptrack records heap_workload, which makes N calls of malloc
and free from S call sites; memlab-synth writes a log of N events of as many sites. Then the readers
run in turns, R times each after one run that is not counted; each prints its default report into a
pipe. heaptrack_print reads what heaptrack_interpret made of the raw recording, with the allocation of
each free found and the names looked up, which heaptrack does while it records, in a process of its own.
memlab leaves two files: the report, which it adds up while it records, and the raw log. The report's
summary is what stands beside heaptrack_print, the log's beside heaptrack's two programs from its raw
recording. Events are counted in the recordings, not taken from the command line.

Ends with 77 and one line where heaptrack is not installed; with 1 when a recording does not hold what
it should.
"""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SKIPPED = 77

REPORT = "memlab-report summary of the report"
LOG = "memlab-report summary of the log"
INTERPRETED = "heaptrack_print"
RAW = "heaptrack_interpret, heaptrack_print"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--sites", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("bin", type=pathlib.Path)
    return parser.parse_args()


def interpreter():
    """heaptrack's second half, which its script finds the same way: by the place of the script."""
    return next(pathlib.Path(shutil.which("heaptrack")).resolve().parent.parent.glob(
        "lib*/heaptrack/libexec/heaptrack_interpret"))


def heaptrack_recording(program, arguments, folder):
    """The raw recording with the command that unpacks it; what heaptrack keeps by default, the same
    interpreted; and how many allocations and frees are in it."""
    subprocess.run(["heaptrack", "--raw", "-o", folder / "heap", program, str(arguments.events),
                    str(arguments.sites)], check=True, stdout=subprocess.DEVNULL)
    [raw] = folder.glob("heap.raw.*")
    unpack = f"{ {'.zst': 'zstd', '.gz': 'gzip'}[raw.suffix] } -dc < {raw}"
    plain = folder / "interpreted"
    subprocess.run(f"{unpack} | {interpreter()} > {plain}", shell=True, check=True, stderr=subprocess.DEVNULL)
    with plain.open("rb") as lines:
        events = sum(line[:2] in (b"+ ", b"- ") for line in lines)
    return unpack, plain, events


def memlab_recording(programs, arguments, folder):
    """The log, and how many records are in it: the events, and a few definitions for each site."""
    path = folder / "synthetic.memlog"
    subprocess.run([programs / "memlab-synth", "--events", str(arguments.events), "--sites", str(arguments.sites),
                    "--seed", "1", "-o", path], check=True)
    sound = subprocess.run([programs / "memlab-report", "validate", path], check=True, capture_output=True,
                           text=True).stdout
    return path, int(re.search(r"log with ([0-9,]+) records", sound)[1].replace(",", ""))


def memlab_report(programs, log, folder):
    """What the recorded process leaves at its exit beside the log: the same bytes, made of the log."""
    path = folder / "synthetic.json"
    with path.open("wb") as report:
        subprocess.run([programs / "log_to_report", log], check=True, stdout=report)
    return path


def timed(command):
    """Wall time and CPU time (seconds) and peak memory (MiB) of one run."""
    with tempfile.TemporaryFile() as errors:
        begin = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as child:
            while child.stdout.read(1 << 20):
                pass
            _, status, usage = os.wait4(child.pid, 0)  # its own figures, not those of all children
            wall = time.monotonic() - begin
            child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            errors.seek(0)
            sys.exit(f"{command[0]} ended with {child.returncode}: {errors.read().decode(errors='replace')}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def compare(readers, runs):
    """Prints a row per reader; readers: name, (command, events)."""
    figures = {name: [] for name in readers}
    for turn in range(runs + 1):
        for name, (command, _) in readers.items():
            figure = timed(command)
            if turn > 0:
                figures[name].append(figure)
    print("| | events | wall s | CPU s | ns an event, wall | ns an event, CPU | peak MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    per_event = {}
    for name, (_, events) in readers.items():
        wall, cpu, peak = (statistics.median(column) for column in zip(*figures[name]))
        per_event[name] = wall / events, cpu / events
        print(f"| {name} | {events:,} | {wall:.2f} | {cpu:.2f} | {wall / events * 1e9:.0f} | "
              f"{cpu / events * 1e9:.0f} | {peak:.0f} |")
    print(f"\nan event, memlab's to heaptrack's (medians of {runs}, in turns)")
    for ours, theirs in ((REPORT, INTERPRETED), (LOG, RAW), (LOG, INTERPRETED)):
        wall, cpu = (mine / other for mine, other in zip(per_event[ours], per_event[theirs]))
        print(f"{ours} / {theirs}: wall {wall:.2f}, CPU {cpu:.2f}")


def main():
    arguments = parse_arguments()
    missing = [name for name in ("heaptrack", "heaptrack_print") if shutil.which(name) is None]
    if missing:
        print(f"skipped: {missing[0]} is not installed (Debian, Ubuntu: apt install heaptrack)")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="memlab-bench.") as name:
        folder = pathlib.Path(name)
        unpack, plain, heap_events = heaptrack_recording(arguments.bin / "heap_workload", arguments, folder)
        log, log_events = memlab_recording(arguments.bin, arguments, folder)
        for what, events in (("heaptrack", heap_events), ("memlab", log_events)):
            # A step more than asked for at most, and definitions.
            if not arguments.events <= events <= arguments.events + 20 * arguments.sites:
                print(f"{what}'s recording has {events:,} events where {arguments.events:,} were asked for")
                return 1
        again = folder / "again"
        report = memlab_report(arguments.bin, log, folder)
        compare({REPORT: ([arguments.bin / "memlab-report", "summary", report], log_events),
                 LOG: ([arguments.bin / "memlab-report", "summary", log], log_events),
                 INTERPRETED: (["heaptrack_print", plain], heap_events),
                 RAW: (["sh", "-c", f"{unpack} | {interpreter()} > {again} && heaptrack_print {again}"], heap_events)},
                arguments.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
