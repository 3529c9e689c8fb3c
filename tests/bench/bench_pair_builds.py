"""bench_pair's table with two builds of memlab beside each other.

    bench_pair_builds.py BENCH_PAIR BEFORE_LIBMEMLAB LIBMEMLAB [--pairs N] [--rounds N] [--set NAME=VALUE]...

So many processes of each build are alive at once and take turns, the two of a pair one right after the other, on the
same cores: what the machine does meanwhile, it does to both. Prints, per line of the table, the median over the pairs
in ns for each build, the ratio (mean of the pairs, with a bootstrap 95 % interval) of the medians of the processes'
batches, and the same ratio of their least batches. Two processes of one build differ by up to a fifth: many pairs tell
more than many rounds.
"""

import argparse
import os
import statistics
import subprocess
import tempfile

from bench_steps import cores_of, interval


class Process:
    """Of one build. It measures the table once when it is told to."""

    def __init__(self, bench: str, library: str, settings: dict[str, str]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        # Waiting for their turn is no reason to give the memory back.
        environment = os.environ | {"LD_PRELOAD": library, "MEMLAB_OUTPUT": self.folder.name + "/",
                                    "MEMLAB_TRIM_AFTER": "5min"} | settings
        self.process = subprocess.Popen([bench, "--turns"], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.times: dict[int, list[float]] = {}

    def run_round(self, keep: bool) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line == "end\n":
                return
            if keep:
                index, time = line.split()
                self.times.setdefault(int(index), []).append(float(time))
        raise SystemExit(f"bench_pair_builds.py: a process ended: exit code {self.process.wait()}")

    def end(self) -> None:
        self.process.communicate()
        self.folder.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bench_pair")
    parser.add_argument("before", metavar="BEFORE_LIBMEMLAB")
    parser.add_argument("libmemlab")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an option of memlab")
    options = parser.parse_args()
    settings = dict(each.split("=", 1) for each in options.set)
    names = subprocess.run([options.bench_pair, "--lines"], capture_output=True, text=True, check=True).stdout.splitlines()

    pairs = [[Process(options.bench_pair, library, settings) for library in (options.before, options.libmemlab)]
             for _ in range(options.pairs)]
    for number, pair in enumerate(pairs):
        for process in pair:
            os.sched_setaffinity(process.process.pid, cores_of(number, options.pairs, 8))
    for number in range(options.rounds):
        for pair in pairs:
            for process in pair if number % 2 == 0 else reversed(pair):
                process.run_round(number >= options.rounds // 8)
    for pair in pairs:
        for process in pair:
            process.end()

    print(f"{', '.join(options.set) or 'default':44} {'before':>9} {'now':>9} {'ratio':>6} {'95 % interval':>15} "
          f"{'least':>6} {'95 % interval':>15}")
    for index, name in enumerate(names):
        text = ""
        for of in (statistics.median, min):
            found = [[of(process.times[index]) for process in pair] for pair in pairs]
            ratios = [now / before for before, now in found]
            low, high = interval(ratios)
            if not text:
                text = " ".join(f"{statistics.median(each):9.1f}" for each in zip(*found))
            text += f" {statistics.fmean(ratios):6.3f} {low:6.3f} to {high:5.3f}"
        print(f"{name:44} {text}")


if __name__ == "__main__":
    main()
