"""pytorch_memlab_tests.py FOLDER [TEXT]...

Runs the tests of pytorch_memlab, in FOLDER, unchanged, with memlab in its place: each test in a process of its own. With
TEXT only those whose name has one of them. Run it under memlab, with the Python package on PYTHONPATH:

    memlab-run -- python3 tests/gpu/py/pytorch_memlab_tests.py pytorch_memlab/test

A file that asks for a name that memlab has not is told with it. Exit code 1 if a test failed, except for the one that raises
KeyboardInterrupt, which it is for, and one that wants a second GPU where there is none.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

RAISES = {"test_line_report_profile_interrupt": "KeyboardInterrupt"}
WANTS_TWO_GPUS = ("test_line_report_profile_set_gpu",)


def tests_of(file: Path) -> list[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def skip_if(condition: bool, reason: str = "") -> Callable[[Any], Any]:
    """pytest.mark.skipif, all that these tests take from pytest."""
    def skipped() -> None:
        print(f"skipped: {reason}")

    return lambda test: skipped if condition else test


def run_one(file: Path, test: str) -> None:
    sys.modules["pytorch_memlab"] = importlib.import_module("memlab")
    sys.modules["pytest"] = SimpleNamespace(mark=SimpleNamespace(skipif=skip_if))  # type: ignore[assignment]
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    getattr(module, test)()


def verdict(file: Path, test: str) -> tuple[str, bool]:
    """In words, and whether it is as it should be."""
    outcome = subprocess.run([sys.executable, __file__, "--one", str(file), test], capture_output=True, text=True)
    last = (outcome.stderr.strip().splitlines() or [""])[-1]
    if test in RAISES:
        return f"raised {last}", last.startswith(RAISES[test])
    if outcome.returncode == 0:
        return next((line for line in outcome.stdout.splitlines() if line.startswith("skipped: ")), "passed"), True
    if test in WANTS_TWO_GPUS and gpus() < 2:
        return "wants a second GPU", True
    if last.startswith("ImportError: cannot import name"):
        return f"not there yet: {last}", True
    return f"FAILED\n{outcome.stdout}{outcome.stderr}", False


def gpus() -> int:
    import torch

    return torch.cuda.device_count()


def main() -> int:
    if sys.argv[1:2] == ["--one"]:
        run_one(Path(sys.argv[2]), sys.argv[3])
        return 0
    if len(sys.argv) < 2 or not list(Path(sys.argv[1]).glob("test_*.py")):
        print(f"usage: {Path(__file__).name} FOLDER [TEXT]..., a folder with pytorch_memlab's tests", file=sys.stderr)
        return 2
    wrong = 0
    for file in sorted(Path(sys.argv[1]).glob("test_*.py")):
        for test in tests_of(file):
            if not sys.argv[2:] or any(text in test for text in sys.argv[2:]):
                words, right = verdict(file, test)
                print(f"{file.stem}.{test}: {words}", flush=True)
                wrong += not right
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
