"""pytest starts itself again under memlab, once, when it has only its command line."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Any, Optional

from . import _library
from ._package import tool_path

pytest: Any = importlib.import_module("pytest")  # types are checked where it is not installed, too
_STARTED = "MEMLAB_PYTEST_STARTED"  # by this module, in the environment: not again


def _refusal() -> Optional[str]:
    """Why this process cannot be replaced."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        if "/libcuda.so" in maps.read():
            return "CUDA is loaded already"
    if threading.active_count() > 1:
        return "threads run already"
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            if int(descriptor) > 2 and os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                return "sockets are open already"
        except OSError:  # the folder's own
            continue
    return None


def ensure_memlab() -> None:
    """Returns in a process under memlab, else replaces the process. No files are written, unless MEMLAB_OUTPUT or
    MEMLAB_FILES says so: what limits need is asked of the recorder.

    UsageError: it is too late for that, or memlab cannot be loaded; says what to do.
    """
    if _library.has("interval_begin"):
        os.environ.pop(_STARTED, None)
        return
    if os.environ.pop(_STARTED, None) is not None:
        raise pytest.UsageError("--memlab: memlab was not loaded into the new process; see memlab-run --doctor")
    reason = _refusal()
    if reason is not None:
        raise pytest.UsageError(f"--memlab: {reason}, so pytest cannot be started again: run memlab-run -- python3 -m pytest")
    os.environ[_STARTED] = "1"
    quiet = []
    if "MEMLAB_OUTPUT" not in os.environ and "MEMLAB_FILES" not in os.environ:
        os.environ["MEMLAB_FILES"] = "off"
        quiet = ["--quiet"]
    command = getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]  # orig_argv: from CPython 3.10 on
    try:
        os.execv(tool_path("memlab-run"), ["memlab-run", *quiet, "--", sys.executable, *command[1:]])
    except OSError as error:
        raise pytest.UsageError(f"--memlab: {tool_path('memlab-run')}: {error.strerror}; install memlab again") from error
