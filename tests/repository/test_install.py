#!/usr/bin/env python3
"""An installation works from wherever it is put, and the archives hold the same.

    test_install.py BUILD [prefix|archives|wheel]

prefix: `cmake --install` into a fresh folder; its memlab-run records a sample on the simulated CUDA
driver from another working directory, its memlab-report reads the result.
archives: what tools/dev package makes has the same layout, is small, is the same each time, and runs from where it
is unpacked; the programs need no library.
wheel: pip installs it into a fresh environment without a network, and removes it without a trace.
What they do on other distributions is tested by tools/dev package --test.
"""

import gzip
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = SOURCE / "tools" / "dev.d" / "package.py"
MEBIBYTE = 1 << 20
SKIPPED = 77  # SKIP_RETURN_CODE

EXPECTED = [
    "bin/memlab-ctl",
    "bin/memlab-report",
    "bin/memlab-run",
    "bin/memlab-top",
    "include/memlab/memlab.h",
    "lib/libmemlab.so",
    "share/doc/memlab/LICENSE",
    "share/doc/memlab/README.md",
    "share/memlab/memlab-report-v1.schema.json",
    "share/memlab/prometheus/alerts.yml",
    "share/memlab/prometheus/dashboard.json",
    "share/memlab/python/memlab/py.typed",
    "share/memlab/python/memlab/startup/sitecustomize.py",
    "share/memlab/memlab-interval-v1.schema.json",
    "share/memlab/memlab-status-v1.schema.json",
    "share/memlab/memlab-action-v1.schema.json",
    "share/memlab/memlab-run-v1.schema.json",
    "share/memlab/memlab-run-summary-v1.schema.json",
    "share/memlab/memlab-merge-v1.schema.json",
    "share/memlab/memlab-live-pool-v1.schema.json",
    "share/memlab/memlab-holders-v1.schema.json",
    "share/memlab/memlab-top-v1.schema.json",
    "share/memlab/memlab-run-diff-v1.schema.json",
    "share/memlab/memlab-trend-v1.schema.json",
]
# What each of them begins with; of each tool.
FOR_SHELLS = {
    "share/bash-completion/completions/memlab-{}": "# bash completion for memlab-{}:",
    "share/zsh/site-functions/_memlab-{}": "#compdef memlab-{}\n",
    "share/fish/vendor_completions.d/memlab-{}.fish": "# fish completion for memlab-{}:",
    "share/man/man1/memlab-{}.1": ".TH MEMLAB\\-{} 1 ",
}


# For pytest --memlab; gpu_memory is that of tests/programs/python.
PYTEST_TESTS = """
import pytest
from gpu_memory import MIB, peak_of

@pytest.mark.limit_gpu_memory("4 MiB")
@pytest.mark.parametrize("size", [4, 5])
def test_of(size):
    peak_of(size * MIB)
"""


def run(*command, **options):
    result = subprocess.run([str(part) for part in command], text=True, capture_output=True, check=False,
                            **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {result.returncode}\n"
                 f"{result.stdout}{result.stderr}")
    return result.stdout


def expect(condition, message):
    if not condition:
        sys.exit(message)


def expect_layout(names, what):
    missing = [name for name in EXPECTED if name not in names]
    expect(not missing, f"{what} lacks {', '.join(missing)}; it has: {', '.join(sorted(names))}")
    alien = [name for name in names if "simcuda" in name or "sample" in name or name.endswith(".a")]
    expect(not alien, f"{what} must not hold {', '.join(alien)}")


def expect_for_shells(share, what, rename=str, read=pathlib.Path.read_text):
    for place, begin in FOR_SHELLS.items():
        for tool in ("run", "ctl", "top", "report"):
            path = share / rename(place.format(tool))
            begin_here = begin.format(tool.upper() if "man1" in place else tool)
            expect(path.is_file() and read(path).startswith(begin_here), f"{what} lacks {path}, or it is another file")


def test_prefix(build, folder):
    prefix = folder / "prefix"
    run("cmake", "--install", build, "--prefix", prefix)
    expect_layout({str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()},
                  "the installation")
    expect_for_shells(prefix, "the installation")
    staged = folder / "staged"
    run("cmake", "--install", build, "--prefix", "/opt/memlab", env=dict(os.environ, DESTDIR=str(staged)))
    expect_for_shells(staged / "opt/memlab", "the installation with DESTDIR")

    expect_recording(build, folder, [prefix / "bin" / "memlab-run"], [prefix / "bin" / "memlab-report"])


def expect_recording(build, folder, memlab_run, memlab_report):
    """They record a sample on the simulated CUDA driver from another working directory and read the result."""
    work = folder / "work"
    work.mkdir()
    environment = dict(os.environ, LD_LIBRARY_PATH=str(build / "lib" / "simcuda"))
    environment.pop("LD_PRELOAD", None)
    sample = folder / "app"  # nothing of the build is beside it
    shutil.copy(build / "bin" / "sample_cache_lines", sample)
    run(*memlab_run, "--", sample, cwd=work, env=environment)
    reports = list(work.glob("memlab.app.*.json"))
    expect(len(reports) == 1, f"memlab-run left {[path.name for path in work.iterdir()]}, not one report")
    text = run(*memlab_report, reports[0], cwd=work)
    expect("reserved" in text, f"memlab-report printed no summary:\n{text}")
    expect(str(build) not in text, f"the installed programs still know the build folder:\n{text}")


def make_packages(build, output):
    run(sys.executable, PACKAGE, "--build", build, "--output", output)
    names = {path.name.partition("-")[0].partition("_")[0] + path.suffix: path for path in output.iterdir()}
    expect(set(names) == {"memlab.gz", "memlab.deb", "memlab.whl", "memlab.json", "SHA256SUMS"}, f"made {names}")
    said = [*(run(build / f"bin/memlab-{tool}", "--version") for tool in ("run", "ctl", "report")),
            run("/lib64/ld-linux-x86-64.so.2", build / "lib/libmemlab.so")]
    versions = {text.split()[1] for text in said}
    expect(len(versions) == 1, f"programs and library have different versions: {versions}")
    version = versions.pop()
    wrong = [path.name for path in names.values()
             if not path.name.startswith((f"memlab-{version}-", f"memlab-{version}.", f"memlab_{version}_", "SHA"))]
    expect(not wrong, f"the version is {version}, but there are {wrong}")
    return {"tar": next(output.glob("*x86_64.tar.gz")), "debug": next(output.glob("*-debug.tar.gz")),
            "deb": next(output.glob("*.deb")), "wheel": next(output.glob("*.whl")),
            "bill": next(output.glob("*.spdx.json")), "sums": output / "SHA256SUMS"}


def test_archives(build, folder):
    made = make_packages(build, folder / "first")
    again = make_packages(build, folder / "second")
    expect(made["sums"].read_bytes() == again["sums"].read_bytes(), "the same build gave other bytes")
    sums = dict(reversed(line.split()) for line in made["sums"].read_text(encoding="ascii").splitlines())
    for path in folder.joinpath("second").iterdir():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        expect(path.name == "SHA256SUMS" or sums.get(path.name) == digest, f"{path.name} is not what SHA256SUMS says")

    with tarfile.open(made["tar"]) as archive:
        members = {name.partition("/")[2] for name in archive.getnames()}
        expect_layout(members, made["tar"].name)
        expect(not any(info.uid or info.gid for info in archive), "the archive has owners of this machine")
        archive.extractall(folder / "unpacked")
    unpacked = next((folder / "unpacked").iterdir())
    expect_for_shells(unpacked, made["tar"].name)
    names = ("memlab-run", "memlab-report", "memlab-ctl", "memlab-top")
    library, tools = unpacked / "lib/libmemlab.so", [unpacked / "bin" / name for name in names]
    # It is loaded into every program: what makes it larger has to be worth that.
    expect(library.stat().st_size <= 2.5 * MEBIBYTE, f"the library has {library.stat().st_size} bytes")
    total = sum(path.stat().st_size for path in [library, *tools])
    print(f"library {library.stat().st_size} bytes, with the tools {total}")
    expect(total <= 21.25 * MEBIBYTE, f"library and tools have {total} bytes")
    for tool in tools:
        expect("NEEDED" not in run("readelf", "-d", tool), f"{tool.name} needs a library")
        expect("INTERP" not in run("readelf", "-lW", tool), f"{tool.name} needs a loader")
    expect_recording(build, folder, [tools[0]], [tools[1]])

    with tarfile.open(made["debug"]) as archive:
        expect(len([name for name in archive.getnames() if name.endswith(".debug")]) == 5,
               f"not one debug file each: {archive.getnames()}")
        archive.extractall(folder)
    build_id = run("readelf", "-n", library).partition("Build ID: ")[2].split()[0]
    debug = next(folder.glob(f"*/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"), None)
    expect(debug is not None, "no debug information by the library's build id")
    expect(".debug_line" in run("readelf", "-SW", debug), "the debug file has no lines")

    bill = json.loads(made["bill"].read_text(encoding="utf-8"))
    inside = {file["fileName"]: file["checksums"][1]["checksumValue"] for file in bill["files"]}
    expect(inside.get("./lib/libmemlab.so") == hashlib.sha256(library.read_bytes()).hexdigest(),
           "the bill of materials is of another library")
    expect({"memlab", "glibc", "elfutils", "libstdc++"} <= {part["name"] for part in bill["packages"]},
           "the bill of materials lacks a part")

    with zipfile.ZipFile(made["wheel"]) as archive:
        expect(archive.testzip() is None, "the wheel is damaged")
        expect(archive.read("memlab/lib/libmemlab.so") == library.read_bytes(), "the wheel has another library")
        expect("memlab/py.typed" in archive.namelist(), "the wheel does not say that it is typed")
    if shutil.which("dpkg-deb"):
        run("dpkg-deb", "--extract", made["deb"], folder / "deb")
        root = folder / "deb" / "usr"
        expect_layout({str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}, made["deb"].name)
        expect_for_shells(
            root, made["deb"].name,
            lambda place: place.replace("site-functions", "vendor-completions") + (".gz" if "/man/" in place else ""),
            lambda path: (gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()))
        expect((root / "lib/libmemlab.so").read_bytes() == library.read_bytes(), "the .deb has another library")
        expect(run("dpkg-deb", "--field", made["deb"], "Depends") == "libc6 (>= 2.28)\n", "the .deb's dependencies")


def expect_pytest_plugin(build, folder, wheel):
    """The wheel brings pytest's plugin in by itself, in an environment that has the system's pytest."""
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import pytest, ensurepip"], capture_output=True, check=False).returncode != 0:
        print("not tested: the plugin of pytest (python3-pytest, python3-venv)")
        return
    environment, work = folder / "with_pytest", folder / "tests"
    run(python, "-m", "venv", "--system-site-packages", environment)
    run(environment / "bin" / "python", "-m", "pip", "install", "--no-index", wheel)
    work.mkdir()
    shutil.copy(SOURCE / "tests" / "programs" / "python" / "gpu_memory.py", work)
    (work / "test_gpu.py").write_text(PYTEST_TESTS, encoding="utf-8")
    variables = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" and not name.startswith("MEMLAB_")}
    variables["LD_LIBRARY_PATH"] = str(build / "lib" / "simcuda")
    done = subprocess.run([environment / "bin" / "python", "-m", "pytest", "--memlab"], cwd=work, env=variables, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, check=False)
    expect(done.returncode == 1 and "1 failed, 1 passed" in done.stdout
           and f"The test needed {5 * MEBIBYTE} bytes of GPU memory" in done.stdout,
           f"pytest --memlab in an environment with the wheel: {done.returncode}\n{done.stdout}{done.stderr}")


def test_wheel(build, folder):
    environment = folder / "environment"
    if subprocess.run([sys.executable, "-m", "venv", environment], capture_output=True, check=False).returncode != 0:
        print("skipped: this Python makes no virtual environment (python3-venv)")
        sys.exit(SKIPPED)
    made = make_packages(build, folder / "made")
    programs = environment / "bin"
    before = {path for path in environment.rglob("*") if "__pycache__" not in path.parts}
    run(programs / "pip", "install", "--no-index", made["wheel"])
    expect_recording(build, folder, [programs / "memlab-run"], [programs / "python", "-m", "memlab", "report"])
    expect_for_shells(environment, made["wheel"].name)
    library = run(programs / "python", "-c", "import memlab; print(memlab.preload_path())").strip()
    expect(pathlib.Path(library).is_file() and str(environment) in library, f"preload_path() is {library}")
    expect(run(programs / "memlab-report", "--version").split()[1] ==
           run(programs / "python", "-c", "import memlab; print(memlab.__version__)").strip(), "versions differ")
    expect(run(programs / "memlab-ctl", "--version").startswith("memlab-ctl "), "the wheel's memlab-ctl")
    recording = next((folder / "work").glob("memlab.app.*.json"))
    peak = run(programs / "python", "-c", f"import memlab; print(memlab.load({str(recording)!r}).devices[0].peak_bytes)")
    recorded = json.loads(recording.read_bytes())["devices"][0]["curves"]["allocated"]["peak_bytes"]
    expect(int(peak) == recorded, f"memlab.load() says {peak}, not {recorded}")
    program = "import memlab; p = memlab.peak(); p.__enter__(); p.__exit__(None, None, None); print(p.bytes)"
    peak = run(programs / "memlab-run", "--", programs / "python", "-c", program, cwd=folder / "work")
    expect(peak.splitlines()[0] == "0", f"memlab.peak() of a program under memlab-run that allocates nothing: {peak}")
    # Its names come in by themselves: by the environment's package, and by memlab-run in one without.
    program = "import sys; print(*[type(each).__name__ for each in sys.meta_path if type(each).__module__ == '_memlab_names'])"
    for python, option, names, expected in ((programs / "python", "-E", "auto", "_Finder"), (sys.executable, "-B", "auto", "_Finder"),
                                            (sys.executable, "-E", "auto", ""), (programs / "python", "-B", "off", "")):
        found = run(programs / "memlab-run", "--", python, option, "-c", program, cwd=folder / "work",
                    env=dict(os.environ, MEMLAB_NAMES=names)).splitlines()[0]
        expect(found == expected, f"{python} {option} with MEMLAB_NAMES={names} awaits PyTorch: {found}")
    expect(run(programs / "python", "-c", program) == "\n", "without memlab the package awaits PyTorch")
    expect_pytest_plugin(build, folder, made["wheel"])
    wrong = subprocess.run([programs / "python", "-m", "memlab", "nonsense"], capture_output=True, check=False)
    expect(wrong.returncode == 2 and wrong.stderr, "python -m memlab took nonsense")
    shutil.copytree(pathlib.Path(library).parents[1], folder / "two words" / "memlab")
    wrong = subprocess.run([programs / "python", "-m", "memlab", "preload-path"], cwd=folder / "two words", text=True,
                           capture_output=True, check=False)
    expect(wrong.returncode == 2 and not wrong.stdout and "cannot contain a path with a space" in wrong.stderr,
           f"preload-path of a folder with a space: {wrong.stdout}{wrong.stderr}")
    run(programs / "pip", "uninstall", "--yes", "memlab")
    after = {path for path in environment.rglob("*") if "__pycache__" not in path.parts}
    # pip removes no folder that was shared with others, as share/man, even if it is empty now.
    left = {path for path in after - before if not path.is_dir() or "share" not in path.parts}
    expect(before <= after and not left, f"uninstalling left {left}, took {before - after}")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        {"prefix": test_prefix, "archives": test_archives, "wheel": test_wheel}[sys.argv[2]](
            build, pathlib.Path(folder))


if __name__ == "__main__":
    main()
