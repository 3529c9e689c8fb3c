"""The peaks of tests by GPU model, in a JSON file that is part of the tests' sources (docs/python.md, In tests)."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any, Dict, Optional

from ._files import replace_file

pytest: Any = importlib.import_module("pytest")  # types are checked where it is not installed, too
_FORMAT, _VERSION = "memlab-pytest-baseline", 1


class Baseline:
    """Bytes by GPU model and test. A file that is not there is an empty one.

    UsageError: the file cannot be read, or is of another format.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._peaks: Dict[str, Dict[str, int]] = {}
        try:
            with open(path, encoding="utf-8") as file:
                self._take(json.load(file))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            raise pytest.UsageError(f"{path}: {error}; correct it, or remove it and run with --memlab-update") from error

    def _take(self, document: Any) -> None:
        if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (_FORMAT, _VERSION):
            raise ValueError(f"this is no {_FORMAT} of version {_VERSION}")
        peaks = document.get("peak_bytes")
        if not isinstance(peaks, dict) or not all(
                isinstance(tests, dict) and all(isinstance(peak, int) and peak >= 0 for peak in tests.values())
                for tests in peaks.values()):
            raise ValueError('"peak_bytes" has bytes by GPU model and test')
        self._peaks = peaks

    def get(self, model: str, test: str) -> Optional[int]:
        """None: it has none yet."""
        return self._peaks.get(model, {}).get(test)

    def put(self, model: str, test: str, peak: int) -> None:
        """Kept by write()."""
        self._peaks.setdefault(model, {})[test] = peak

    def write(self) -> None:
        """Replaces the file as a whole. UsageError: it cannot be written."""
        document = {"format": _FORMAT, "version": _VERSION, "peak_bytes": self._peaks}
        try:
            os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
            replace_file(self.path, json.dumps(document, indent=1, sort_keys=True) + "\n")
        except OSError as error:
            raise pytest.UsageError(f"{self.path}: {error.strerror}; the baselines are not written") from error
