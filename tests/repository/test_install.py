#!/usr/bin/env python3
"""An installation works from wherever it is put, and the archives hold the same.

    test_install.py BUILD [prefix|tgz|deb]

prefix: `cmake --install` into a fresh folder; its memlab-run records a sample on the simulated CUDA
driver from another working directory, its memlab-report reads the result.
tgz, deb: CPack makes the archive; it has the same layout, and the .deb names its dependencies.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

EXPECTED = [
    "bin/memlab-report",
    "bin/memlab-run",
    "include/memlab/memlab.h",
    "lib/libmemlab.so",
    "share/doc/memlab/LICENSE",
    "share/doc/memlab/README.md",
    "share/memlab/memlab-report-v1.schema.json",
    "share/memlab/memlab-run-v1.schema.json",
    "share/memlab/memlab-run-summary-v1.schema.json",
    "share/memlab/memlab-merge-v1.schema.json",
    "share/memlab/memlab-run-diff-v1.schema.json",
]


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


def test_prefix(build, folder):
    prefix = folder / "prefix"
    run("cmake", "--install", build, "--prefix", prefix)
    expect_layout({str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()},
                  "the installation")

    work = folder / "work"
    work.mkdir()
    environment = dict(os.environ, LD_LIBRARY_PATH=str(build / "lib" / "simcuda"))
    environment.pop("LD_PRELOAD", None)
    sample = folder / "app"  # nothing of the build is beside it
    shutil.copy(build / "bin" / "sample_cache_lines", sample)
    run(prefix / "bin" / "memlab-run", "--", sample, cwd=work, env=environment)
    reports = list(work.glob("memlab.app.*.json"))
    expect(len(reports) == 1, f"memlab-run left {[path.name for path in work.iterdir()]}, not one report")
    text = run(prefix / "bin" / "memlab-report", reports[0], cwd=work)
    expect("reserved" in text, f"memlab-report printed no summary:\n{text}")
    expect(str(build) not in text, f"the installed programs still know the build folder:\n{text}")


def test_tgz(build, folder):
    run("cpack", "--config", build / "CPackConfig.cmake", "-G", "TGZ", "-B", folder, cwd=folder)
    archives = list(folder.glob("*.tar.gz"))
    expect(len(archives) == 1, f"cpack left {archives}")
    with tarfile.open(archives[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expect_layout(names, archives[0].name)


def test_deb(build, folder):
    run("cpack", "--config", build / "CPackConfig.cmake", "-G", "DEB", "-B", folder, cwd=folder)
    packages = list(folder.glob("*.deb"))
    expect(len(packages) == 1, f"cpack left {packages}")
    listing = run("dpkg-deb", "--contents", packages[0])
    names = {line.split(" ./usr/")[1] for line in listing.splitlines() if " ./usr/" in line}
    expect_layout(names, packages[0].name)
    for dependency in ("libc6",):
        text = run("dpkg-deb", "--field", packages[0], "Depends")
        expect(dependency in text, f"{packages[0].name} does not depend on {dependency}: {text}")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        {"prefix": test_prefix, "tgz": test_tgz, "deb": test_deb}[sys.argv[2]](build, pathlib.Path(folder))


if __name__ == "__main__":
    main()
