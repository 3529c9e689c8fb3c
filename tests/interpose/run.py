"""run.py --build DIR [OPTION]... MODULE [GROUP]

Runs one group of the end-to-end tests: the modules test_*.py beside this file. GROUP chooses a group of the catalogue
for test_programs. Options: --library FILE, the libmemlab.so under test; --preload-first LIB and --sanitizer NAME of a
sanitized build; --driver 12.4, on the simulated driver of that version; --thorough, only where MEMLAB_TEST_THOROUGH is
set; --set NAME=VALUE puts a variable into every run's environment. Exit code 0 when all passed, 1 otherwise, 77 when
not run.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import support
from support import Build, Layout


def own_driver(folder: Path, into: Path) -> Path:
    """The simulated driver as a file of its own. Processes ask each other for memory by a page of the driver's file
    (interpose/sharing/memory_requests.hpp): tests that run beside these must not be asked, nor ask."""
    into.mkdir()
    shutil.copy2(folder / "libcuda.so.1", into)
    (into / "libcuda.so").symlink_to("libcuda.so.1")
    return into


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="memlab_driver_") as scratch:
        return run(Path(scratch))


def run(scratch: Path) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--library", type=Path, help="the libmemlab.so under test, if not DIR's own")
    parser.add_argument("--preload-first", action="append", default=[])
    parser.add_argument("--sanitizer", default="")
    parser.add_argument("--driver")
    parser.add_argument("--thorough", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("module")
    parser.add_argument("group", nargs="?")
    arguments = parser.parse_args()

    if arguments.thorough and not os.environ.get("MEMLAB_TEST_THOROUGH"):
        print("not run: MEMLAB_TEST_THOROUGH is not set")
        return 77
    build = arguments.build.resolve()
    extra = {}
    if arguments.sanitizer:
        # Programs leak and die on purpose; what is sanitized here is memlab inside of them.
        extra = {"ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:handle_abort=0:allow_user_segv_handler=1",
                 # At its end a process with threads would sleep for a second, each of 200 children too.
                 # Programs end in handlers of signals, and memlab writes their reports there: with the heap, when
                 # that was not what the signal interrupted.
                 "TSAN_OPTIONS": "handle_segv=0:handle_abort=0:report_bugs=1:die_after_fork=0:atexit_sleep_ms=0:"
                                 "report_signal_unsafe=0",
                 "UBSAN_OPTIONS": "print_stacktrace=1"}
    drivers = [build / "lib" / "simcuda"]
    if arguments.driver:
        drivers.insert(0, drivers[0] / arguments.driver)
        major, minor = arguments.driver.split(".")
        extra["SIMCUDA_DRIVER_VERSION"] = str(int(major) * 1000 + int(minor) * 10)
    drivers.insert(0, own_driver(drivers[0], scratch / "driver"))
    extra |= dict(setting.split("=", 1) for setting in arguments.set)
    Build.layout = Layout(build, [str(folder) for folder in drivers], arguments.preload_first, extra,
                          arguments.library.resolve() if arguments.library else None)
    Build.sanitizer = arguments.sanitizer
    if not Build.layout.library.exists():
        print(f"{Build.layout.library} is missing: build the project first", file=sys.stderr)
        return 2

    module = importlib.import_module(arguments.module)
    if arguments.group:
        module.GROUP = arguments.group
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if result.testsRun == 0:
        print(f"no tests in {arguments.module} {arguments.group or ''}", file=sys.stderr)
        return 1
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    assert support is not None
    sys.exit(main())
