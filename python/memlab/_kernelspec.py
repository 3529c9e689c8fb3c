"""python -m memlab kernelspec: a Jupyter kernel of the calling environment that starts under memlab.

It starts `python -m memlab run`, so that it has the memlab that is installed when it starts. JupyterLab and VS Code find it
where Jupyter keeps kernels, beside others; Jupyter itself is not needed to write it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import sys
from typing import Any, Dict, List, NoReturn, Optional

from ._files import replace_file

_PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class _Refused(Exception):
    """What is wrong and what to do, in one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Refused(f"{message}; {self.prog} --help lists the options")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m memlab kernelspec", description="A Jupyter kernel of this environment under memlab.")
    parser.add_argument("action", choices=("install", "remove"))
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--user", action="store_true", help="for your account; by default outside of virtual environments")
    place.add_argument("--sys-prefix", action="store_true", help="into this environment; by default in a virtual environment")
    place.add_argument("--prefix", metavar="DIR", help="into DIR/share/jupyter/kernels")
    parser.add_argument("--name", default="memlab", help="the kernel's name; its folder (default: memlab)")
    parser.add_argument("--display-name", default="Python 3 (memlab)", metavar="TEXT",
                        help="what Jupyter calls it (default: Python 3 (memlab))")
    return parser


def _kernels_folder(arguments: argparse.Namespace) -> str:
    """Where Jupyter looks for kernels."""
    in_environment = sys.prefix != sys.base_prefix or os.environ.get("CONDA_PREFIX") == sys.prefix
    if arguments.prefix:
        data = os.path.join(os.path.abspath(arguments.prefix), "share", "jupyter")
    elif arguments.sys_prefix or (in_environment and not arguments.user):
        data = os.path.join(sys.prefix, "share", "jupyter")
    else:
        home = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
        data = os.environ.get("JUPYTER_DATA_DIR") or os.path.join(home, "jupyter")
    return os.path.join(data, "kernels")


def _document(display_name: str) -> Dict[str, Any]:
    document: Dict[str, Any] = {
        "argv": [sys.executable, "-m", "memlab", "run", "--", sys.executable, "-m", "ipykernel_launcher", "-f",
                 "{connection_file}"],
        "display_name": display_name,
        "language": "python",
        "interrupt_mode": "message",  # a signal would reach the kernel twice: of its group, and by memlab-run
        "metadata": {"debugger": True},
    }
    python_path = os.environ.get("PYTHONPATH", "")
    if _PACKAGE_FOLDER in [os.path.abspath(folder) for folder in python_path.split(os.pathsep) if folder]:  # not installed
        document["env"] = {"PYTHONPATH": python_path}
    return document


def _of_memlab(folder: str) -> Optional[List[str]]:
    """The command of the memlab kernel in this folder; None: there is nothing. _Refused: it is no kernel of memlab's."""
    path = os.path.join(folder, "kernel.json")
    if not os.path.lexists(folder):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            argv = json.load(file)["argv"]
    except (OSError, ValueError, KeyError, TypeError):
        argv = None
    if not isinstance(argv, list) or argv[1:4] != ["-m", "memlab", "run"]:
        raise _Refused(f"{folder} is no kernel of memlab's, and is left alone; choose another --name")
    return argv


def _install(folder: str, display_name: str) -> None:
    if importlib.util.find_spec("ipykernel") is None:
        raise _Refused(f"ipykernel is not installed for {sys.executable}; install it: {sys.executable} -m pip install ipykernel")
    there = _of_memlab(folder)
    if there is not None and there[0] != sys.executable:
        raise _Refused(f"{folder} is the kernel of {there[0]}; choose another --name, or remove that with it")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "kernel.json")
    replace_file(path, json.dumps(_document(display_name), indent=1) + "\n")
    print(f"{display_name}: {path}")


def main(arguments: List[str]) -> int:
    """Exit code 2: nothing was done, and one line says why."""
    try:
        chosen = _parser().parse_args(arguments)
        if re.fullmatch(r"[A-Za-z0-9._-]+", chosen.name) is None:
            raise _Refused(f"--name {chosen.name}: a kernel's name has letters, digits, '.', '_' and '-'; choose such a one")
        folder = os.path.join(_kernels_folder(chosen), chosen.name)
        if chosen.action == "install":
            _install(folder, chosen.display_name)
        elif _of_memlab(folder) is None:
            raise _Refused(f"{folder}: there is no such kernel; jupyter kernelspec list shows all")
        else:
            shutil.rmtree(folder)
            print(f"removed: {folder}")
    except _Refused as refused:
        print(f"memlab: kernelspec: {refused}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"memlab: kernelspec: {error.filename}: {error.strerror}; choose --user or another --prefix", file=sys.stderr)
        return 2
    return 0
