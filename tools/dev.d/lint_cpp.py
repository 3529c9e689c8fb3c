#!/usr/bin/env python3
"""Runs clang-tidy on the sources of one build, in parallel and incrementally.

--quick skips the tests and the static analyzer, which takes most of the time, and uses a unity build, so that
the headers of a batch are parsed once.

The compile database is GCC's, so flags unknown to clang are removed from a copy of it, as is -Werror, which
is meant for GCC's warnings. A file that passes is cached by a digest of all that its result depends on (its
text, the text of every project header that it includes, the names of system headers, the flags, the checks,
the version of clang-tidy), and skipped in later runs. Failures are not cached.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GCC_ONLY = ("-Werror", "-fno-gnu-unique", "-Wno-subobject-linkage", "-fno-sanitize-recover=all", "-flto=auto",
            "-fno-fat-lto-objects")
# What threads/mutex.hpp annotates.
CLANG_ONLY = ("-Wthread-safety",)


def database(build):
    """{source: (directory, arguments)} of the project's C++ files, with flags that clang accepts."""
    path = build / "compile_commands.json"
    try:
        entries = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"lint: cannot read {path}: {error}; configure the build first")
    commands = {}
    for entry in entries:
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        inside = ROOT in source.parents and (build not in source.parents or source.parent.name == "Unity")
        if inside and source.suffix in (".cpp", ".cxx") and source not in commands:
            arguments = [a for a in shlex.split(entry["command"]) if a not in GCC_ONLY and not a.startswith("--param=")]
            while arguments and not arguments[0].endswith(("++", "cc", "g++-12", "g++-13")):
                arguments.pop(0)  # a compiler launcher
            commands[source] = (entry["directory"], [*arguments, *CLANG_ONLY])
    return commands


def dependencies(directory, arguments):
    """All files that the source includes, by the preprocessor; None if it does not compile."""
    command = ["clang++"]
    skip = False
    for argument in arguments[1:]:
        if skip:
            skip = False
        elif argument in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif argument not in ("-c", "-MD", "-MMD"):
            command.append(argument)
    command += ["-M", "-MT", "x", "-Wno-everything"]
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return None
    names = result.stdout.replace("\\\n", " ").split()[1:]
    return sorted({str(pathlib.Path(directory, name).resolve()) for name in names})


def digest(source, directory, arguments, checks):
    names = dependencies(directory, arguments)
    if names is None:
        return None
    state = hashlib.sha256(checks)
    state.update("\0".join([str(source), *arguments, *names]).encode())
    for name in names:
        if name.startswith(str(ROOT) + os.sep):
            state.update(pathlib.Path(name).read_bytes())
    return state.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="no tests, no static analyzer")
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="default: every source of the build")
    options = parser.parse_args()
    build = options.build.resolve()

    commands = database(build)
    sources = sorted(commands)
    if options.quick:
        sources = [source for source in sources if "tests" not in source.relative_to(ROOT).parts]
    if options.files:
        sources = [file.resolve() for file in options.files]
        for source in sources:
            if source not in commands:
                sys.exit(f"lint: {source} is not a C++ source of the build in {build}")

    cache = build / "lint"
    cache.mkdir(exist_ok=True)
    (cache / "compile_commands.json").write_text(json.dumps([
        {"directory": directory, "file": str(source), "arguments": arguments}
        for source, (directory, arguments) in commands.items()]))
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    # The sources of a batch are headers to clang-tidy.
    tidy = ["clang-tidy", "--quiet", "-p", str(cache)]
    if options.quick:
        tidy += ["--checks=-clang-analyzer-*,-bugprone-suspicious-include", f"--header-filter={ROOT}/[a-z].*\\.[ch]pp$"]
    checks = version + (ROOT / ".clang-tidy").read_bytes() + " ".join(tidy).encode()

    def check(source):
        """'' when clean, else what clang-tidy said."""
        directory, arguments = commands[source]
        mark = digest(source, directory, arguments, checks)
        if mark and (cache / mark).exists():
            return "", False
        result = subprocess.run([*tidy, str(source)], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            if mark:
                (cache / mark).touch()
            return "", True
        # Drop the counts of suppressed warnings (of system headers).
        rest = [line for line in result.stderr.splitlines() if not line.endswith("warnings generated.")]
        return "\n".join([result.stdout.rstrip(), *rest]), True

    start = time.monotonic()
    failed, looked = 0, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for source, (text, fresh) in zip(sources, pool.map(check, sources)):
            looked += fresh
            if text:
                failed += 1
                print(f"== {source.relative_to(ROOT)}\n{text}", flush=True)
    print(f"clang-tidy: {len(sources)} files ({looked} new or changed), {failed} with findings, "
          f"{time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
