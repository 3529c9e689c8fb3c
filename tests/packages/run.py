#!/usr/bin/env python3
"""Installs the packages in root file systems of other distributions and records programs there.

    run.py --build BUILD --packages FOLDER --roots FOLDER

In each root: the archive is unpacked and moved, the .deb installed and removed, the wheel installed
by pip into a fresh environment and removed; each time a program on the simulated driver is recorded and its report
read, from C and from Python, and nothing may be left behind. In a root without any C library the programs read that
recording. And the library is loaded against libraries of glibc 2.28 that have nothing newer.

Roots are made by debootstrap, which needs root's rights and a mirror, and kept in --roots. What cannot be made is
named and skipped. Exit code 1 if something failed, 77 if all was skipped.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# Mirror, components, and debootstrap's script, which is that of all newer releases too.
DEBIAN = ("http://deb.debian.org/debian", "main", "sid")
UBUNTU = ("http://archive.ubuntu.com/ubuntu", "main,universe", "gutsy")
SUITES = [("focal", UBUNTU, "Ubuntu 20.04", "2.31"), ("bullseye", DEBIAN, "Debian 11", "2.31"),
          ("jammy", UBUNTU, "Ubuntu 22.04", "2.35"), ("bookworm", DEBIAN, "Debian 12", "2.36"),
          ("noble", UBUNTU, "Ubuntu 24.04", "2.39"), ("trixie", DEBIAN, "Debian 13", "2.41"),
          ("sid", DEBIAN, "Debian unstable", None)]
# Whose frames memlab reads (docs/stacks.md).
PYTHONS_READ = tuple((3, minor) for minor in range(9, 16))
# The first pip that knows manylinux_2_28 (PEP 600).
PIP_OF_WHEEL = (20, 3)
# What programs and the package manager write while they work.
ALTERED = ("./var/log", "./var/cache", "./var/lib/dpkg", "./var/lib/apt", "./etc/ld.so.cache", "./proc", "./tmp", "./root/.cache",
           "./dev", "./sys")


class Failed(Exception):
    """What did not work, in words."""


def check(condition, words):
    if not condition:
        raise Failed(words)


def run(command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, **options)


class Root:
    """A root file system with programs inside."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, *command, environment=None, code=0, cwd="/tmp"):
        """In the root, with a /proc that goes with the command."""
        variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                     "LC_ALL": "C.UTF-8", **(environment or {})}
        script = ('mount -t proc proc "$0/proc" && root=$0 && where=$1 && shift && '
                  'exec chroot "$root" /usr/bin/env -i -C "$where" "$@"')
        words = [f"{name}={value}" for name, value in variables.items()]
        result = run(["unshare", "--mount", "sh", "-c", script, self.folder, cwd, *words, *command], timeout=300)
        check(result.returncode == code,
              f"{' '.join(map(str, command))}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    def files(self):
        found = set()
        for folder, folders, names in os.walk(self.folder):
            relative = "./" + os.path.relpath(folder, self.folder)
            relative = "." if relative == "./." else relative
            folders[:] = [name for name in folders
                          if f"{relative}/{name}" not in ALTERED and name != "__pycache__"]
            found.update(f"{relative}/{name}" for name in [*folders, *names] if f"{relative}/{name}" not in ALTERED)
        return found


def make_root(roots, suite, archive):
    """The root of a suite, from an earlier run or made now; None and why not."""
    folder = roots / suite
    if (folder / "memlab-ready").exists():
        return folder, ""
    if os.getuid() != 0:
        return None, "needs root's rights for debootstrap and chroot"
    if shutil.which("debootstrap") is None:
        return None, "debootstrap is not installed"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    mirror, components, script = archive
    # What it mounts goes with it, however it ends.
    result = run(["unshare", "--mount", "debootstrap", "--variant=minbase", "--include=python3-venv",
                  f"--components={components}", suite, folder, mirror, script])
    if result.returncode != 0:
        words = (result.stdout + result.stderr).strip().splitlines() or ["no output"]
        return None, f"debootstrap: {words[-1]}"
    (folder / "memlab-ready").touch()
    return folder, ""


def compile_program(build, target):
    """Against the libraries of glibc 2.28, so that it starts in every root."""
    stubs = build / "glibc-2.28"
    result = run(["cc", "-O1", "-g", "-o", target, HERE / "app.c", "-nodefaultlibs", f"-L{stubs}", "-l:libc.so.6",
                  "-l:libdl.so.2", "-lgcc", "-l:libc_nonshared.a"])
    check(result.returncode == 0, f"app.c: {result.stderr}")


def check_recording(root, tool, recording, function):
    """By memlab-report in the root; `function`, a regular expression, is named as a call site."""
    document = json.loads(root.run(*tool, "--json", recording).stdout)
    text = json.dumps(document)
    check("2097152" in text, f"the summary does not have the 2 MiB: {text[:2000]}")
    shown = root.run(*tool, recording).stdout
    check("ended normally" in shown, shown)
    sites = root.run(*tool, "leaks", recording).stdout
    check(re.search(function, sites), f"{function} is not among the call sites:\n{sites}")


def record_all(root, memlab_run, memlab_report, preload, name):
    """A program in C and one in Python by memlab-run, and the first by LD_PRELOAD alone."""
    driver = {"LD_LIBRARY_PATH": "/test"}
    python = tuple(map(int, root.run("python3", "-c", "import sys; print(*sys.version_info[:2])").stdout.split()))
    # Of other versions the interpreter's own functions, or those of its modules, are the call site.
    place = r"app\.py" if python in PYTHONS_READ else r"python3|_ctypes"
    for program, kind, function in ((["/test/app"], "c", r"\bmain\b"), (["python3", "/test/app.py"], "python", place)):
        output = f"/tmp/{name}-{kind}"
        result = root.run(*memlab_run, "-o", f"{output}/", "--", *program, environment=driver)
        check("allocated" in result.stdout, result.stdout + result.stderr)
        recordings = sorted((root.folder / output[1:]).glob("memlab.*.json"))
        recordings = [path for path in recordings if "memlab.run" not in path.name]
        check(len(recordings) == 1, f"not one recording: {recordings}")
        check_recording(root, memlab_report, f"{output}/{recordings[0].name}", function)
    result = root.run("/test/app", cwd="/tmp", environment={
        **driver, "LD_PRELOAD": preload, "MEMLAB_OUTPUT": f"/tmp/{name}-preload/"})
    check(result.stdout == "allocated\n" and result.stderr == "", result.stdout + result.stderr)
    check(len(list((root.folder / f"tmp/{name}-preload").glob("memlab.app.*.json"))) == 1, "no recording by LD_PRELOAD")


def check_for_shells(root, prefix, zsh="site-functions", suffix=""):
    """Completion and man pages below `prefix`: the root's own bash completes with them."""
    for tool, word, whole in (("report", "whati", "whatif"), ("run", "--fail", "--fail-on-bypass")):
        script = (f'. {prefix}/share/bash-completion/completions/memlab-{tool} && COMP_WORDS=(memlab-{tool} {word}) '
                  f'COMP_CWORD=1 && {{ _memlab_{tool}; echo "${{COMPREPLY[@]}}"; }}')
        completed = root.run("bash", "-c", script).stdout.strip()
        check(completed == whole, f"bash completes memlab-{tool} {word} to: {completed}")
        page = root.run("sh", "-c", f"{'zcat' if suffix else 'cat'} {prefix}/share/man/man1/memlab-{tool}.1{suffix}")
        check("SH SYNOPSIS" in page.stdout, f"not a man page: {page.stdout[:500]}")
        for path in (f"zsh/{zsh}/_memlab-{tool}", f"fish/vendor_completions.d/memlab-{tool}.fish"):
            root.run("test", "-s", f"{prefix}/share/{path}")


def test_root(root, build, packages, program):
    """All three packages in one root. Returns what it could not do there."""
    for place in ("test", "packages"):
        shutil.rmtree(root.folder / place, ignore_errors=True)
    for path in (root.folder / "tmp").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    test = root.folder / "test"
    test.mkdir()
    shutil.copy(program, test / "app")
    shutil.copy(HERE / "app.py", test)
    shutil.copy(build / "lib/simcuda/libcuda.so.1", test)
    shutil.copytree(packages, root.folder / "packages")
    before = root.files()

    tar = next(packages.glob("*x86_64.tar.gz")).name
    root.run("tar", "-xzf", f"/packages/{tar}", "-C", "/tmp")
    root.run("mv", f"/tmp/{tar[:-len('.tar.gz')]}", "/tmp/moved")
    record_all(root, ["/tmp/moved/bin/memlab-run"], ["/tmp/moved/bin/memlab-report"], "/tmp/moved/lib/libmemlab.so",
               "tar")
    check_for_shells(root, "/tmp/moved")

    deb = next(packages.glob("*.deb")).name
    root.run("apt-get", "install", "--yes", f"/packages/{deb}")
    record_all(root, ["memlab-run"], ["memlab-report"], "libmemlab.so", "deb")
    check_for_shells(root, "/usr", zsh="vendor-completions", suffix=".gz")
    root.run("apt-get", "purge", "--yes", "memlab")
    after = root.files()
    check(before == after, f"the .deb left {sorted(after - before)[:9]}, took {sorted(before - after)[:9]}")

    root.run("python3", "-m", "venv", "/tmp/environment")
    wheel = next(packages.glob("*.whl")).name
    pip = root.run("/tmp/environment/bin/pip", "--version").stdout.split()[1]
    if tuple(map(int, pip.split(".")[:2])) < PIP_OF_WHEEL:
        return f"except the wheel, which its pip {pip} does not know"
    root.run("/tmp/environment/bin/pip", "install", "--no-index", f"/packages/{wheel}")
    library = root.run("/tmp/environment/bin/python", "-m", "memlab", "preload-path").stdout.strip()
    record_all(root, ["/tmp/environment/bin/memlab-run"], ["/tmp/environment/bin/memlab-report"], library, "wheel")
    check_for_shells(root, "/tmp/environment")
    root.run("/tmp/environment/bin/pip", "uninstall", "--yes", "memlab")
    left = [path for path in (root.folder / "tmp/environment").rglob("*memlab*")]
    check(not left, f"the wheel left {left}")
    return ""


def test_without_libc(packages, recording, folder):
    """The programs where there is nothing else, and beside musl's loader where that is installed."""
    run(["tar", "-xzf", next(packages.glob("*x86_64.tar.gz")), "-C", folder])
    top = next(folder.iterdir()).name
    musl = pathlib.Path("/lib/ld-musl-x86_64.so.1")
    if musl.exists():
        (folder / "lib").mkdir()
        shutil.copy(musl.resolve(), folder / "lib" / musl.name)
    shutil.copy(recording, folder / "recording.json")
    for command in (["memlab-report", "/recording.json"], ["memlab-report", "sites", "/recording.json"],
                    ["memlab-run", "--help"], ["memlab-ctl", "--help"],
                    ["memlab-top", "--once"]):
        result = run(["chroot", folder, f"/{top}/bin/{command[0]}", *command[1:]])
        check(result.returncode == 0 and result.stdout and not result.stderr,
              f"{' '.join(command)}: exit code {result.returncode}\n{result.stderr}")
    return "with musl's loader" if musl.exists() else "without musl's loader, which is not installed here"


def test_symbols(build):
    """Each symbol that the library takes from glibc is in 2.28, in the version that it asks for."""
    wanted = run(["nm", "-D", "--undefined-only", "--with-symbol-versions", build / "lib/libmemlab.so"]).stdout
    wanted = set(re.findall(r"(\S+)@(GLIBC_[\d.]+)", wanted))
    have = set()
    for stub in (build / "glibc-2.28").glob("*.so.*"):
        if stub.suffix not in (".s", ".map"):
            text = run(["nm", "-D", "--defined-only", "--with-symbol-versions", stub]).stdout
            have |= set(re.findall(r"(\S+)@@(GLIBC_[\d.]+)", text))
    check(len(wanted) > 50, f"read only {len(wanted)} symbols of the library")
    check(wanted <= have, f"not in glibc 2.28: {sorted(wanted - have)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--packages", required=True, type=pathlib.Path)
    parser.add_argument("--roots", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    build, packages, roots = arguments.build.resolve(), arguments.packages.resolve(), arguments.roots.resolve()

    failures, done = 0, 0

    def step(name, action):
        nonlocal failures, done
        try:
            note = action()
            done += 1
            print(f"good     {name}{f': {note}' if note else ''}", flush=True)
        except (Failed, subprocess.TimeoutExpired) as problem:
            failures += 1
            print(f"FAILED   {name}: {problem}", flush=True)

    step("symbols of glibc 2.28", lambda: test_symbols(build))
    with tempfile.TemporaryDirectory(prefix="memlab-packages.") as folder:
        program = pathlib.Path(folder, "app")
        compile_program(build, program)
        for suite, archive, title, glibc in SUITES:
            name = f"{title} (glibc {glibc})" if glibc else title
            root, reason = make_root(roots, suite, archive)
            if root is None:
                print(f"skipped  {name}: {reason}", flush=True)
            else:
                step(name, lambda root=root: test_root(Root(root), build, packages, program))
        if os.getuid() != 0:
            print("skipped  no C library: needs root's rights for chroot", flush=True)
        else:
            empty = pathlib.Path(folder, "empty")
            empty.mkdir()
            recording = HERE.parent / "data/h100/sample_cache_lines.json"
            step("no C library", lambda: test_without_libc(packages, recording, empty))
    return 1 if failures else 77 if done <= 1 else 0


if __name__ == "__main__":
    sys.exit(main())
