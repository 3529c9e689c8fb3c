"""python -m memlab run|ctl|top|report ARGUMENTS...: memlab-run, memlab-ctl, memlab-top and memlab-report where the
commands are not on PATH; and what belongs to an environment of Python's: a kernel for Jupyter."""

from __future__ import annotations

import os
import sys
from typing import List, NoReturn

from . import _kernelspec
from ._package import __version__, preload_path, tool_path

USAGE = """python -m memlab run -- COMMAND...       as memlab-run: record a program
python -m memlab ctl PID status          as memlab-ctl: ask a running program
python -m memlab top                     as memlab-top: who holds the memory of the GPUs
python -m memlab report FILE...          as memlab-report: read a recording
python -m memlab kernelspec install      a Jupyter kernel of this environment under memlab; --help
python -m memlab preload-path            the path of libmemlab.so, for LD_PRELOAD
python -m memlab --version               the version"""


def _fail(message: str) -> int:
    """The exit code. Not 1, which is what a limit of `memlab-report check` ends with."""
    print(f"memlab: {message}", file=sys.stderr)
    return 2


def _become(tool: str, arguments: List[str]) -> NoReturn:
    path = tool_path(tool)
    try:
        os.execv(path, [tool, *arguments])
    except OSError as error:
        sys.exit(_fail(f"{path} cannot be run: {error.strerror}; install memlab again, on x86-64 Linux"))


def run() -> NoReturn:
    """The command memlab-run."""
    _become("memlab-run", sys.argv[1:])


def ctl() -> NoReturn:
    """The command memlab-ctl."""
    _become("memlab-ctl", sys.argv[1:])


def top() -> NoReturn:
    """The command memlab-top."""
    _become("memlab-top", sys.argv[1:])


def report() -> NoReturn:
    """The command memlab-report."""
    _become("memlab-report", sys.argv[1:])


def main() -> int:
    """python -m memlab."""
    command, arguments = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("", [])
    if command in ("run", "ctl", "top", "report"):
        _become(f"memlab-{command}", arguments)
    if command == "kernelspec":
        return _kernelspec.main(arguments)
    if command == "preload-path":
        return _print_preload_path(arguments)
    if command in ("-h", "--help"):
        print(USAGE)
        return 0
    if command == "--version":
        print(f"memlab {__version__}")
        return 0
    if command:
        return _fail(f"{command}: no command; python -m memlab --help lists those that there are")
    print(USAGE, file=sys.stderr)
    return 2


def _print_preload_path(arguments: List[str]) -> int:
    path = preload_path()
    if arguments:
        return _fail("preload-path takes no arguments")
    if not os.path.exists(path):
        return _fail(f"{path} is not there; install memlab again, on x86-64 Linux")
    if any(character in path for character in " :\t\n"):
        return _fail(f"LD_PRELOAD cannot contain a path with a space or a colon: {path}; install memlab elsewhere, or make a "
                     "link to it (ln -s) and preload that")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
