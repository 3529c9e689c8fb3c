#!/usr/bin/env python3
"""Whether PyTorch's releases are what memlab relies on: Debian's, which are built for the CPU.

    frameworks.py --build BUILD [--cache FOLDER] [SUITE...]     roots of these suites: trixie and unstable
    frameworks.py --check FOLDER                                a file system that is there, only its files

A root with python3-torch and libtorch-dev is made once for each suite by debootstrap, in the cache, which is outside
the repository. Checked are the functions that PyTorch's libraries export and call through the loader (the table of
interpose/options/pytorch_doors.hpp), the layouts by its headers (layouts.cpp), the Python functions and files that
report/symbols knows by name, and what memlab records of a training under the simulated driver. Prints a table. Exit
code 1 where something is not as expected, 2 where nothing could be checked.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
SUITES = ("trixie", "unstable")
PACKAGES = ("python3-torch", "libtorch-dev", "g++")


class CannotCheck(Exception):
    """Why, in one line."""


@dataclass
class Row:
    what: str
    version: str
    good: bool
    found: str = ""  # where it is not


@dataclass
class Door:
    feature: str
    library: str
    caller: str | None
    symbols: list[str]
    name: str


def read_doors() -> list[Door]:
    """The table of interpose/options/pytorch_doors.hpp."""
    text = (ROOT / "interpose/options/pytorch_doors.hpp").read_text(encoding="utf-8")
    constants = {name: "".join(re.findall(r'"([^"]*)"', value)) for name, value in
                 re.findall(r"inline constexpr const char\* (\w+) =\s*((?:\"[^\"]*\"\s*)+);", text)}
    doors = []
    for entry in re.findall(r"\{PytorchFeature::([^{}]*)\}", text[text.index("pytorch_doors{{"):]):
        feature, library, caller, symbol, older, name = (part.strip() for part in entry.split(","))
        doors.append(Door(feature, library.strip('"'), None if caller == "nullptr" else caller.strip('"'),
                          [constants[each] for each in (symbol, older) if each != "nullptr"], name.strip('"')))
    assert len(doors) == int(re.search(r"std::array<PytorchDoor, (\d+)>", text).group(1)), doors
    return doors


def read_python_names() -> tuple[list[str], list[str], list[str]]:
    """What report/symbols knows of PyTorch's Python: methods of Module, other functions, paths of files or folders."""
    text = "".join((ROOT / "report/symbols" / name).read_text(encoding="utf-8")
                   for name in ("allocator_frames.cpp", "category.cpp"))
    methods = re.findall(r'Where::call_layer, "(\w+)"', text)
    methods += [name.removeprefix("Module.") for name in re.findall(r'is_nn_module_function\(frame, "([\w.]+)"\)', text)]
    functions = [name for name in re.findall(r'has\(frame\.function, "(\w+)"\)', text)
                 if name.startswith("_") and not name.startswith("__")]
    paths = re.findall(r'(?:Where::path, |has\(frame\.file, )"/?(torch/[\w/.]+)"', text)
    assert methods and functions and paths
    return sorted(set(methods)), sorted(set(functions)), sorted(set(paths))


class Files:
    """PyTorch's files in a file system that begins at a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        packages = sorted(folder.glob("usr/lib/python3/dist-packages/torch/version.py"))
        packages += sorted(folder.glob("usr/lib/python3*/*-packages/torch/version.py"))
        if not packages:
            raise CannotCheck(f"no torch/version.py below {folder}/usr/lib")
        self.package = packages[0].parent
        found = re.search(r"__version__ = '([\w.]+)", packages[0].read_text(encoding="utf-8"))
        self.version = found.group(1) if found else "?"

    def library(self, name: str) -> Path | None:
        """Its links are absolute, as seen from inside, or relative."""
        for path in (self.package / "lib" / name, *sorted(self.folder.glob(f"usr/lib/x86_64-linux-gnu/{name}*"))):
            if path.is_file():
                return path
        return None


def exported(library: Path) -> set[str]:
    """The functions that it defines for others."""
    listing = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in listing.stdout.splitlines()}


def called_through_loader(library: Path, symbols: list[str]) -> bool:
    with subprocess.Popen(["readelf", "-rW", str(library)], stdout=subprocess.PIPE, text=True) as listing:
        assert listing.stdout
        return any([symbol in line and ("JUMP_SLO" in line or "GLOB_DAT" in line)
                    for line in listing.stdout for symbol in symbols])


def check_doors(files: Files) -> list[Row]:
    rows = []
    for door in read_doors():
        library = files.library(door.library)
        there = library is not None and bool(exported(library) & set(door.symbols))
        rows.append(Row(f"{door.library} exports {door.name}", files.version, there, "no"))
        caller = files.library(door.caller) if door.caller else None
        if caller is not None:  # there is no libc10_cuda.so in a build for the CPU
            rows.append(Row(f"{door.caller} calls {door.name} through the loader", files.version,
                            called_through_loader(caller, door.symbols), "no"))
    return rows


def check_layouts(files: Files) -> list[Row]:
    """With the root's own compiler and libraries where it has them, which its headers are for."""
    with tempfile.TemporaryDirectory(dir=files.folder / "tmp", prefix="memlab.") as scratch:
        probe = Path(scratch)
        for name in ("interpose/hooks/autograd_nodes.hpp", "profiler/call_site.hpp", "trace/prefetch.hpp"):
            (probe / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, probe / name)
        shutil.copy2(HERE / "layouts.cpp", probe)
        options = ["-std=c++20", "-O0", "-w", "-fno-access-control", "-Wno-invalid-offsetof"]
        compile_it = f"g++ {' '.join(options)} -I . layouts.cpp -o layouts"
        if (files.folder / "usr/bin/g++").exists():
            place = Path("/") / probe.relative_to(files.folder)
            built = in_root(files.folder, f"cd {place}; {compile_it} -ltorch_cpu -lc10; ./layouts")
        else:
            built = subprocess.run(["sh", "-ec", f"{compile_it} -I {files.folder}/usr/include; ./layouts"], cwd=probe,
                                   capture_output=True, text=True, check=False)
        if built.returncode != 0:
            words = [line for line in built.stderr.splitlines() if "error" in line] or [said_last(built)]
            return [Row("layouts.cpp compiles and runs", files.version, False, words[0])]
    rows = []
    for line in built.stdout.splitlines():
        if line.count("\t") != 2:
            continue  # what a library of PyTorch's says when it is loaded
        what, ours, theirs = line.split("\t")
        rows.append(Row(f"{what}: {ours}", files.version, ours == theirs, theirs))
    return rows


def functions_in(path: Path, of_class: str = "") -> set[str]:
    """The names of functions in a Python source, or of the methods of a class and what is assigned in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not of_class and isinstance(node, ast.FunctionDef):
            names.add(node.name)
        if of_class and isinstance(node, ast.ClassDef) and node.name == of_class:
            names |= {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            names |= {f"{part.target.id} = {part.value.id}" for part in node.body
                      if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
                      and isinstance(part.value, ast.Name)}
    return names


def check_python(files: Files) -> list[Row]:
    methods, functions, paths = read_python_names()
    rows = []
    for path in paths:
        there = files.package.parent / path
        rows.append(Row(f"file {path}", files.version, there.exists(), "no such file"))
    source = files.package / "nn/modules/module.py"
    module = functions_in(source, "Module") if source.exists() else set()
    for name in methods:
        rows.append(Row(f"Module.{name}", files.version, name in module, "no such method"))
    rows.append(Row("Module.__call__ is _wrapped_call_impl", files.version,
                    "__call__ = _wrapped_call_impl" in module, "another one"))
    optimizers = sorted((files.package / "optim").glob("*.py"))
    known = set().union(*map(functions_in, optimizers)) if optimizers else set()
    for name in functions:
        rows.append(Row(f"torch/optim: {name}()", files.version, name in known, "no such function"))
    return rows


def check_files(folder: Path) -> list[Row]:
    files = Files(folder)
    return [*check_doors(files), *check_layouts(files), *check_python(files)]


# ---- a root, and a training in it ---------------------------------------------------------------


def said_last(result: subprocess.CompletedProcess) -> str:
    lines = (result.stdout + result.stderr).strip().splitlines()
    return lines[-1] if lines else f"exit code {result.returncode}"


def make_root(cache: Path, suite: str) -> Path:
    made = cache / suite
    mark = cache / f"{suite}.made"
    if mark.exists():
        return made
    if os.getuid() != 0:
        raise CannotCheck("debootstrap and chroot need root's rights")
    if shutil.which("debootstrap") is None:
        raise CannotCheck("debootstrap is not installed")
    shutil.rmtree(made, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    print(f"frameworks: making a root of Debian {suite} with {', '.join(PACKAGES)}: {made}", file=sys.stderr)
    # What they mount goes with them, however they end.
    for command in (["debootstrap", "--variant=minbase", suite, str(made), MIRROR],
                    ["chroot", str(made), "/usr/bin/env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y",
                     "--no-install-recommends", *PACKAGES]):
        result = subprocess.run(["unshare", "--mount", *command], capture_output=True, text=True, check=False,
                                stdin=subprocess.DEVNULL)
        if result.returncode != 0:
            raise CannotCheck(f"{command[0] if command[0] != 'chroot' else 'apt-get'}: {said_last(result)}")
    mark.touch()
    return made


def in_root(root: Path, script: str, timeout: float = 900) -> subprocess.CompletedProcess:
    command = 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/sh -ec "$1"'
    return subprocess.run(["unshare", "--mount", "sh", "-c", command, str(root), script], capture_output=True,
                          text=True, check=False, timeout=timeout, stdin=subprocess.DEVNULL)


def check_run(root: Path, build: Path, cuda_headers: Path) -> list[Row]:
    """A training with this PyTorch, whose CPU tensors are reported as a GPU's, alone and under memlab."""
    version = Files(root).version
    work = root / "opt/memlab"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for path in (build / "lib/libmemlab.so", build / "bin/memlab-run", build / "bin/memlab-report",
                 build / "lib/simcuda/libcuda.so.1", HERE / "tensors.cpp", HERE / "trained_model.py",
                 cuda_headers / "cuda.h"):
        shutil.copy2(path, work)
    (work / "libcuda.so").symlink_to("libcuda.so.1")
    (work / "tests/programs/pytorch").mkdir(parents=True)
    for name in ("c10.hpp", "c10_cuda.cpp"):
        shutil.copy2(ROOT / "tests/programs/pytorch" / name, work / "tests/programs/pytorch")
    built = in_root(root, """cd /opt/memlab
        flags="-std=c++20 -w -O1 -g1 -shared -fPIC -I."
        g++ $flags -o libc10_cuda.so tests/programs/pytorch/c10_cuda.cpp -L. -lc10 -lcuda -Wl,-rpath,/opt/memlab
        g++ $flags -o libtensors.so tensors.cpp ./libc10_cuda.so -L. -ltorch_cpu -lc10 -lcuda -Wl,-rpath,/opt/memlab""")
    if built.returncode != 0:
        words = [line for line in built.stderr.splitlines() if "error" in line] or [said_last(built)]
        return [Row("tensors.cpp compiles", version, False, words[0])]
    command = "python3 trained_model.py ./libtensors.so ./libc10_cuda.so"
    alone = in_root(root, f"cd /opt/memlab; LD_LIBRARY_PATH=. {command}")
    if alone.returncode != 0:
        return [Row("a training alone", version, False, said_last(alone))]
    # Debian's PyTorch brings MPI along, beside which memory is not pooled unless that is said.
    under = in_root(root, "cd /opt/memlab; mkdir out; LD_LIBRARY_PATH=. MEMLAB_OUTPUT=out/ MEMLAB_IPC=off "
                          f"LD_PRELOAD=./libmemlab.so {command}")
    rows = [Row("a training computes the same under memlab", version, under.returncode == 0
                and under.stdout == alone.stdout and under.stderr == alone.stderr, said_last(under))]
    reports = [path for path in (work / "out").glob("*.json") if path.stat().st_size]
    if len(reports) != 1:
        return [*rows, Row("one recording", version, False, f"{len(reports)} recordings")]
    return [*rows, *check_report(json.loads(reports[0].read_text(encoding="utf-8")), json.loads(under.stdout), version)]


def check_report(report: dict, told: dict, version: str) -> list[Row]:
    missed = [entry["reason"] for entry in report["missed"]]
    sites = [site for site in report["sites"] if site["kind"] == "suballocation"]
    rows = [Row("nothing is missed", version, not missed, "; ".join(missed)),
            Row("each block is recorded", version, sum(site["count"] for site in sites) == told["blocks"],
                f"{sum(site['count'] for site in sites)} of {told['blocks']}")]
    peaks = [device["curves"]["allocated"]["peak_bytes"] for device in report["devices"] if device.get("allocator")]
    rows.append(Row("the peak is PyTorch's", version, peaks == [told["peak"]], f"{peaks} for {told['peak']}"))

    def stack(site: dict) -> list[tuple[str, str]]:
        frames = [report["frames"][frame] for frame in report["stacks"][site["stack"]]["frames"]]
        python = [report["python_frames"][frame["python"]] for frame in frames if "python" in frame]
        return [(frame["function"].rsplit(".", 1)[-1], Path(frame["file"]).name) for frame in python]

    stacks = [stack(site) for site in sites]
    forward = [each for each in stacks if "[forward]" not in [name for name, _ in each]
               and ("forward", "trained_model.py") in each]
    rows.append(Row("forward: allocations by line, through _call_impl", version,
                    bool(forward) and all(("_call_impl", "module.py") in each for each in forward),
                    f"{len(forward)} sites"))
    backward = [each for each in stacks if each and each[0][0] == "[forward]"]
    lines = {name for each in backward for name, _ in each}
    rows.append(Row("backward: allocations by the forward's line", version, {"forward", "mse_loss"} <= lines,
                    f"{len(backward)} of {len(stacks)} sites: {', '.join(sorted(lines))}"))
    return rows


# ---- the table ----------------------------------------------------------------------------------


def print_table(rows: list[Row]) -> None:
    width = max(len(row.what) for row in rows)
    for row in rows:
        said = "true" if row.good else f"false ({row.found})"
        print(f"{row.what:{width}}  {row.version:8}  {said}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=Path, metavar="FOLDER")
    parser.add_argument("--build", type=Path)
    parser.add_argument("--cuda-headers", type=Path, default=Path("/usr/local/cuda/include"))
    parser.add_argument("--cache", type=Path,
                        default=Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "memlab/frameworks")
    parser.add_argument("suites", nargs="*", metavar="SUITE")
    arguments = parser.parse_args()
    if arguments.check is None and arguments.build is None:
        parser.error("--build or --check is needed")
    rows: list[Row] = []
    for suite in [None] if arguments.check else arguments.suites or SUITES:
        try:
            if suite is None:
                rows += check_files(arguments.check.resolve())
            else:
                root = make_root(arguments.cache.resolve(), suite)
                rows += check_files(root)
                rows += check_run(root, arguments.build.resolve(), arguments.cuda_headers)
        except CannotCheck as why:
            print(f"frameworks: {suite or arguments.check} cannot be checked: {why}", file=sys.stderr)
    if not rows:
        return 2
    print_table(rows)
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
