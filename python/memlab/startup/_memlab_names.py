"""Brings memlab's names into a program that imports PyTorch or CuPy, if it runs under memlab; else does nothing.

Each Python program of an environment with memlab runs start() at its beginning: memlab.pth calls it, and memlab.start from
CPython 3.15 on; in other environments the sitecustomize.py beside this file, which memlab-run puts on PYTHONPATH. So it
does next to nothing until the import, and any trouble costs the names alone.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any, List

_finders: List[Any] = []


class _Finder:
    """Sees an import, and leaves it to the others on sys.meta_path."""

    def __init__(self) -> None:
        self.awaited = ["torch", "cupy"]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "torch" and "torch" in self.awaited:
            self.begin("torch", "_auto")
        # The first module of CuPy's that it imports after the one with its hooks.
        if name.startswith("cupy.") and "cupy" in self.awaited and "cupy.cuda.memory_hook" in sys.modules:
            self.begin("cupy", "_cupy")

    def begin(self, name: str, module: str) -> None:
        """For what the program imports; once."""
        self.awaited.remove(name)
        if not self.awaited and self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            _package(module).start()
        except Exception:
            pass


def start() -> None:
    """Awaits the imports, where MEMLAB_NAMES or LD_PRELOAD say so."""
    names = os.environ.get("MEMLAB_NAMES", "")
    if names == "auto" or (names != "off" and "libmemlab.so" in os.environ.get("LD_PRELOAD", "")):
        if not _finders:
            _finders.append(_Finder())
            sys.meta_path.insert(0, _finders[0])


def _package(module: str) -> ModuleType:
    """A module of the environment's memlab, else of the package that this file belongs to."""
    import importlib.util

    name, found = "memlab", importlib.util.find_spec("memlab")
    if found is None or not os.path.exists(os.path.join(os.path.dirname(found.origin or ""), f"{module}.py")):
        name = "memlab" if found is None else "_memlab"  # the program may have a module of that name
        if name not in sys.modules:
            # In the wheel it is a module beside the package, too.
            folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
            spec = importlib.util.spec_from_file_location(name, os.path.join(folder, "__init__.py"),
                                                          submodule_search_locations=[folder])
            assert spec is not None and spec.loader is not None
            package = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(package)
    return importlib.import_module(f"{name}.{module}")
