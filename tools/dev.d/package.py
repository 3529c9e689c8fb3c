#!/usr/bin/env python3
"""Makes the archives that memlab is installed from, out of one build.

    package.py --build BUILD --output FOLDER

memlab-VERSION-linux-x86_64.tar.gz        unpack anywhere and run
memlab_VERSION_amd64.deb                  Debian, Ubuntu
memlab-VERSION-py3-none-manylinux_2_28_x86_64.whl
memlab-VERSION-linux-x86_64-debug.tar.gz  the debug information, by build id
memlab-VERSION.spdx.json                  what is inside (SPDX 2.3)
SHA256SUMS

What is in them is `cmake --install`'s (cmake/MemlabPackage.cmake), stripped. The same build gives the same bytes:
names are sorted, owners are root, times are SOURCE_DATE_EPOCH (or that of the last commit). Python's standard library
and binutils are all it needs.
"""

import argparse
import base64
import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTALLED_PYTHON = "share/memlab/python/"
SUMMARY = "GPU memory profiler and caching allocator for unmodified CUDA programs"
DESCRIPTION = """Preload libmemlab.so into any CUDA program to serve its GPU memory from a
caching pool and to record every allocation with its call site; memlab-report
shows the peaks, the timeline, the fragmentation, what holds the memory and
what was never freed."""
# The oldest glibc (cmake/glibc-2.28.abi).
GLIBC = "2.28"

# What the programs contain beside memlab: name, the Debian or Ubuntu packages that it may come from, licence.
TOOLS_CONTAIN = [
    ("glibc", ["libc6-dev"], "LGPL-2.1-or-later"),
    ("elfutils", ["libdw-dev"], "LGPL-3.0-or-later OR GPL-2.0-or-later"),
    ("zlib", ["zlib1g-dev"], "Zlib"),
    ("bzip2", ["libbz2-dev"], "bzip2-1.0.6"),
    ("xz", ["liblzma-dev"], "LicenseRef-public-domain"),
    ("zstd", ["libzstd-dev"], "BSD-3-Clause"),
    ("spdlog", ["libspdlog-dev"], "MIT"),
    ("fmt", ["libfmt-dev"], "MIT"),
    ("nlohmann-json", ["nlohmann-json3-dev"], "MIT"),
    ("CLI11", ["libcli11-dev"], "BSD-3-Clause"),
    ("toml++", ["libtomlplusplus-dev"], "MIT"),
    ("ncurses", ["libncurses-dev"], "X11-distribute-modifications-variant"),
]
ALL_CONTAIN = [("libstdc++", [f"libstdc++-{version}-dev" for version in range(30, 11, -1)],
                "GPL-3.0-or-later WITH GCC-exception-3.1")]


def fail(message):
    print(f"package: {message}", file=sys.stderr)
    sys.exit(2)


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        fail(f"{' '.join(map(str, command))}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def version_of(build):
    """That of the git tag, or of CMakeLists.txt (cmake/MemlabVersion.cmake)."""
    source = build / "generated" / "own_version.cpp"
    found = re.search(r'own_version = "([\w.+]+)"', source.read_text(encoding="utf-8"))
    return found.group(1) if found else fail(f"{source} has no version")


def source_date():
    """Seconds since 1970."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        if not os.environ["SOURCE_DATE_EPOCH"].isdigit():
            fail("SOURCE_DATE_EPOCH is not a number of seconds")
        return int(os.environ["SOURCE_DATE_EPOCH"])
    result = subprocess.run(["git", "-C", ROOT, "-c", f"safe.directory={ROOT}", "log", "-1", "--format=%ct"],
                            capture_output=True, text=True, check=False)
    if result.returncode == 0 and result.stdout.strip():
        return int(result.stdout)
    return int((ROOT / "CHANGELOG.md").stat().st_mtime)  # of a source archive


class Tree:
    """Files by path: bytes and whether they are executable."""

    def __init__(self):
        self.files = {}

    def add(self, path, data, executable=False):
        self.files[path] = (data if isinstance(data, bytes) else data.encode("utf-8"), executable)

    def add_folder(self, folder, prefix=""):
        for path in sorted(folder.rglob("*")):
            if path.is_symlink() or not path.is_dir():
                self.add(prefix + path.relative_to(folder).as_posix(), path.read_bytes(),
                         bool(path.stat().st_mode & 0o100))

    def __iter__(self):
        return iter(sorted((path, *entry) for path, entry in self.files.items()))


def tar_gz(tree, date, prefix="", level=9):
    """The bytes of a .tar.gz, with the folders above the files."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as archive:
        folders = set()

        def entry(path, mode, kind, data=None):
            info = tarfile.TarInfo(prefix + path)
            info.mode, info.type, info.mtime, info.uname, info.gname = mode, kind, date, "root", "root"
            info.size = len(data or b"")
            archive.addfile(info, io.BytesIO(data or b""))

        for path, data, executable in tree:
            for folder in reversed(pathlib.PurePosixPath(path).parents):
                if str(folder) not in folders and (str(folder) != "." or prefix == "./"):
                    folders.add(str(folder))
                    entry("" if str(folder) == "." else str(folder), 0o755, tarfile.DIRTYPE)
            entry(path, 0o755 if executable else 0o644, tarfile.REGTYPE, data)
    return gzip.compress(plain.getvalue(), level, mtime=0)


def debian_package(version, tree, date):
    """The bytes of a .deb: an ar archive of three members."""
    data = Tree()
    for path, content, executable in tree:
        # As Debian has them: man pages compressed, zsh's functions of packages in a folder of their own.
        if path.startswith("share/man/"):
            path, content = f"{path}.gz", gzip.compress(content, 9, mtime=0)
        data.add("usr/" + path.replace("zsh/site-functions", "zsh/vendor-completions"), content, executable)
    data.add("usr/share/doc/memlab/copyright",
             "memlab is licensed under the Apache License 2.0 (LICENSE beside this file). The licences of what its\n"
             "programs contain are in licenses/ beside this file.\n")
    sums = Tree()
    sums.add("control", "\n".join([
        "Package: memlab", f"Version: {version}", "Section: devel", "Priority: optional", "Architecture: amd64",
        "Maintainer: the memlab maintainers <memlab@localhost>",
        f"Installed-Size: {sum(len(content) + 1023 for _, content, _ in data) // 1024}",
        f"Depends: libc6 (>= {GLIBC})", f"Description: {SUMMARY}",
        *(f" {line}" for line in DESCRIPTION.splitlines()), ""]))
    sums.add("md5sums", "".join(f"{hashlib.md5(content).hexdigest()}  {path}\n" for path, content, _ in data))
    # The loader's cache learns of the library in /usr/lib, and forgets it.
    sums.add("triggers", "activate-noawait ldconfig\n")
    # What Python has compiled beside the modules is in no list of files.
    sums.add("prerm", "#!/bin/sh\nset -e\nfind /usr/share/memlab -depth -type d -name __pycache__ -exec rm -rf {} +\n",
             executable=True)
    members = [("debian-binary", b"2.0\n"), ("control.tar.gz", tar_gz(sums, date, "./")),
               ("data.tar.gz", tar_gz(data, date, "./"))]
    result = b"!<arch>\n"
    for name, content in members:
        result += f"{name:<16}{date:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode("ascii") + content
        result += b"\n" * (len(content) % 2)
    return result


def wheel(version, tree, date, readme):
    """The bytes of a wheel: the package with the library and the programs inside."""
    files = Tree()
    for path, data, _ in tree:
        if path.startswith(INSTALLED_PYTHON):
            files.add(path.removeprefix(INSTALLED_PYTHON), data)
    # What begins with each Python program of the environment; .start takes the place of .pth from CPython 3.15 on.
    startup = files.files["memlab/startup/_memlab_names.py"][0]
    files.add("_memlab_names.py", startup)
    files.add("memlab.pth", 'import os; ("MEMLAB_NAMES" in os.environ or "libmemlab.so" in os.environ.get("LD_PRELOAD", "")) '
                            'and __import__("_memlab_names").start()\n')
    files.add("memlab.start", "_memlab_names:start\n")
    for path, data, executable in tree:
        if path.startswith(INSTALLED_PYTHON):
            continue
        if path.startswith(("bin/", "lib/", "include/", "share/memlab/")):
            files.add(f"memlab/{path}", data, executable)
        elif path.startswith("share/") and not path.startswith("share/doc/"):
            # Below the environment's folder or ~/.local, where shells and man look.
            files.add(f"memlab-{version}.data/data/{path}", data)
    info = f"memlab-{version}.dist-info"
    for path, data, _ in tree:
        if path == "share/doc/memlab/LICENSE" or path.startswith("share/doc/memlab/licenses/"):
            files.add(f"{info}/licenses/{path.rpartition('/')[2]}", data)
    files.add(f"{info}/METADATA", "\n".join([
        "Metadata-Version: 2.1", "Name: memlab", f"Version: {version}", f"Summary: {SUMMARY}",
        "License: Apache-2.0", "Requires-Python: >=3.7", "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: Python :: 3", "Description-Content-Type: text/markdown", "", readme]))
    files.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: memlab\nRoot-Is-Purelib: false\n"
                               f"Tag: py3-none-manylinux_{GLIBC.replace('.', '_')}_x86_64\n")
    files.add(f"{info}/entry_points.txt", "[console_scripts]\nmemlab-run = memlab.__main__:run\n"
                                          "memlab-ctl = memlab.__main__:ctl\n"
                                          "memlab-top = memlab.__main__:top\n"
                                          "memlab-report = memlab.__main__:report\n"
                                          "[pytest11]\nmemlab = memlab.pytest_plugin\n")
    record = ""
    for path, data, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode("ascii")
        record += f"{path},sha256={digest},{len(data)}\n"
    files.add(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")

    result = io.BytesIO()
    earliest = 315532800  # 1980: a ZIP file has no earlier time
    time = datetime.datetime.fromtimestamp(max(date, earliest), datetime.timezone.utc).timetuple()[:6]
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        # The metadata comes last, as the format advises.
        for path, data, executable in sorted(files, key=lambda file: (file[0].startswith(info), file[0])):
            entry = zipfile.ZipInfo(path, time)
            entry.create_system = 3  # Unix: pip takes the mode
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data, compresslevel=9)
    return result.getvalue()


def installed_package(candidates):
    """(name, version) of the first that dpkg has here, or None."""
    for name in candidates:
        result = subprocess.run(["dpkg-query", "--show", "--showformat=${Version} ${db:Status-Status}", name],
                                capture_output=True, text=True, check=False) if shutil.which("dpkg-query") else None
        if result is not None and result.returncode == 0 and result.stdout.endswith(" installed"):
            return name, result.stdout.split()[0]
    return None


def components():
    """(name, version or None, licence, licence text or None) of what is inside beside memlab."""
    for name, packages, licence in [*ALL_CONTAIN, *TOOLS_CONTAIN]:
        found = installed_package(packages)
        text = None
        if found:
            copyright_file = pathlib.Path("/usr/share/doc", found[0], "copyright")
            text = copyright_file.read_bytes() if copyright_file.exists() else None
        yield name, found[1] if found else None, licence, text


def bill_of_materials(version, tree, date, parts):
    """SPDX 2.3 as JSON."""
    identifier = "SPDXRef-Package-memlab"
    packages = [{"SPDXID": identifier, "name": "memlab", "versionInfo": version, "downloadLocation": "NOASSERTION",
                 "filesAnalyzed": False, "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0",
                 "copyrightText": "NOASSERTION", "primaryPackagePurpose": "APPLICATION"}]
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                  "relatedSpdxElement": identifier}]
    for name, known, licence, _ in parts:
        part = f"SPDXRef-Package-{re.sub('[^A-Za-z0-9.-]', '-', name)}"
        packages.append({"SPDXID": part, "name": name, "versionInfo": known or "NOASSERTION",
                         "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": licence,
                         "licenseDeclared": licence, "copyrightText": "NOASSERTION"})
        relations.append({"spdxElementId": identifier, "relationshipType": "STATIC_LINK", "relatedSpdxElement": part})
    files = []
    for number, (path, data, _) in enumerate(tree):
        if path.startswith(("bin/", "lib/")):
            files.append({"SPDXID": f"SPDXRef-File-{number}", "fileName": f"./{path}", "checksums": [
                {"algorithm": "SHA1", "checksumValue": hashlib.sha1(data).hexdigest()},
                {"algorithm": "SHA256", "checksumValue": hashlib.sha256(data).hexdigest()}],
                "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION"})
            relations.append({"spdxElementId": identifier, "relationshipType": "CONTAINS",
                              "relatedSpdxElement": files[-1]["SPDXID"]})
    digest = hashlib.sha256("".join(file["checksums"][1]["checksumValue"] for file in files).encode()).hexdigest()
    created = datetime.datetime.fromtimestamp(date, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
                "name": f"memlab-{version}", "documentNamespace": f"https://spdx.org/spdxdocs/memlab-{version}-{digest}",
                "creationInfo": {"created": created, "creators": ["Tool: memlab-package"]},
                "hasExtractedLicensingInfos": [{
                    "licenseId": "LicenseRef-public-domain",
                    "extractedText": "liblzma is in the public domain."}],
                "packages": packages, "files": files, "relationships": relations}
    return json.dumps(document, indent=2, sort_keys=True).encode("utf-8") + b"\n"


def separate_debug_information(installed, debug):
    """Strips the programs and puts what they lose into debug/, where debuggers look for a build id."""
    for name, how in (("lib/libmemlab.so", "--strip-unneeded"), ("bin/memlab-run", "--strip-all"),
                      ("bin/memlab-ctl", "--strip-all"), ("bin/memlab-top", "--strip-all"),
                      ("bin/memlab-report", "--strip-all")):
        file = installed / name
        if not file.exists():
            fail(f"this build has no {name}: it was configured without the tools or with a sanitizer")
        notes = re.search(r"Build ID: ([0-9a-f]+)", run("readelf", "-n", file))
        if notes is None:
            fail(f"{name} has no build id")
        kept = debug / ".build-id" / notes.group(1)[:2] / f"{notes.group(1)[2:]}.debug"
        kept.parent.mkdir(parents=True, exist_ok=True)
        run("objcopy", "--only-keep-debug", "--compress-debug-sections", file, kept)
        kept.chmod(0o644)
        run("strip", how, "--remove-section=.comment", file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    build, output = arguments.build.resolve(), arguments.output.resolve()
    version, date = version_of(build), source_date()

    with tempfile.TemporaryDirectory(prefix="memlab-package.") as folder:
        installed, debug = pathlib.Path(folder, "installed"), pathlib.Path(folder, "debug")
        run("cmake", "--install", build, "--prefix", installed)
        separate_debug_information(installed, debug)
        tree, symbols = Tree(), Tree()
        tree.add_folder(installed)
        package = f"{INSTALLED_PYTHON}memlab/_package.py"
        tree.add(package, tree.files[package][0].decode("utf-8").replace("@VERSION@", version))
        symbols.add_folder(debug, "lib/debug/")
    parts = list(components())
    for name, _, _, text in parts:
        if text is not None:
            tree.add(f"share/doc/memlab/licenses/{name}", text)

    name = f"memlab-{version}-linux-x86_64"
    readme = tree.files["share/doc/memlab/README.md"][0].decode("utf-8")
    made = {
        f"{name}.tar.gz": tar_gz(tree, date, f"{name}/"),
        f"{name}-debug.tar.gz": tar_gz(symbols, date, f"{name}-debug/", 1),  # compressed already
        f"memlab_{version}_amd64.deb": debian_package(version, tree, date),
        f"memlab-{version}-py3-none-manylinux_{GLIBC.replace('.', '_')}_x86_64.whl": wheel(version, tree, date, readme),
        f"memlab-{version}.spdx.json": bill_of_materials(version, tree, date, parts),
    }
    made["SHA256SUMS"] = "".join(f"{hashlib.sha256(data).hexdigest()}  {file}\n"
                                 for file, data in sorted(made.items())).encode("ascii")
    output.mkdir(parents=True, exist_ok=True)
    for file, data in made.items():
        (output / file).write_bytes(data)
        print(f"{len(data):>9}  {output / file}")


if __name__ == "__main__":
    main()
