#!/usr/bin/env python3
"""What memlab-top costs beside many processes, on the simulated driver: the time of a processor that it takes, and that
those take which it asks.

    bench_top.py BUILD [--processes N] [--seconds N] [ARGUMENT...]

BUILD is a build folder; ARGUMENTs are memlab-top's. With a screen of 120 columns and 50 rows, one sample a second. The
times are the kernel's, of all threads, in nanoseconds.
"""

import argparse
import fcntl
import os
import pathlib
import pty
import signal
import struct
import subprocess
import tempfile
import termios
import threading
import time


def processor_seconds(pid):
    total = 0
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((thread / "schedstat").read_text(encoding="ascii").split()[0])
        except OSError:  # it has ended
            continue
    return total / 1e9


def children_of(pid):
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]) == pid:
                found.append(int(folder.name))
        except (OSError, IndexError):
            continue
    return found


def drain(descriptor):
    try:
        while os.read(descriptor, 65536):
            pass
    except OSError:
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--processes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30)
    arguments, of_top = parser.parse_known_args()
    build = arguments.build.resolve()
    with tempfile.TemporaryDirectory(prefix="memlab-bench.") as folder:
        base = {**os.environ, "XDG_RUNTIME_DIR": folder}
        environment = {**base, "LD_PRELOAD": f"{build}/lib/libmemlab.so", "LD_LIBRARY_PATH": f"{build}/lib/simcuda",
                       "MEMLAB_OUTPUT": f"{folder}/"}
        programs = [subprocess.Popen([build / "bin/programs/asked"], env=environment, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                    for _ in range(arguments.processes)]
        try:
            for program in programs:
                program.stdout.readline()
            leader, follower = pty.openpty()
            fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
            threading.Thread(target=drain, args=(leader,), daemon=True).start()
            listed = ",".join(f"{program.pid}:700" for program in programs)
            top = subprocess.Popen([build / "bin/memlab-top", *of_top], stdin=follower, stdout=follower,
                                   stderr=follower, start_new_session=True,
                                   env={**base, "LD_LIBRARY_PATH": f"{build}/lib/simnvml", "SIMNVML_PROCESSES": listed,
                                        "TERM": "xterm-256color"})
            time.sleep(5)  # it has found them
            watched = {"memlab-top": [top.pid], "its process that asks NVML": children_of(top.pid),
                       f"the {arguments.processes} processes together": [program.pid for program in programs]}
            before = {name: sum(map(processor_seconds, pids)) for name, pids in watched.items()}
            begin = time.monotonic()
            time.sleep(arguments.seconds)
            seconds = time.monotonic() - begin
            for name, pids in watched.items():
                used = sum(map(processor_seconds, pids)) - before[name]
                print(f"{name}: {100 * used / seconds:.2f} % of a processor")
            top.send_signal(signal.SIGTERM)
            top.wait()
        finally:
            for program in programs:
                program.kill()
                program.communicate()


if __name__ == "__main__":
    main()
