#!/usr/bin/env python3
"""cuda12_headers.py FOLDER: puts the headers of CUDA 12.4, CUPTI's included, into FOLDER/include.

They are those of Debian 13's packages libcupti-dev and nvidia-cuda-dev (non-free), from deb.debian.org or the mirror
that DEBIAN_MIRROR names. Of the second package, 900 MB, the first 3 MB are read: headers come first in it. What came
is compared with a known digest, and nothing is downloaded where the folder has it already. Exit code 0, or 2 with one
line.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import BinaryIO

MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
POOL = "pool/non-free/n/nvidia-cuda-toolkit"
PACKAGES = ("libcupti-dev_12.4.127~12.4.1-2_amd64.deb", "nvidia-cuda-dev_12.4.127~12.4.1-2_amd64.deb")
DIGEST = "8887ddc8a15fcb6cc1e779fdb1093d62de097b0fbe7f73d7782a293d95c99c56"


def member(package: BinaryIO, name: str) -> BinaryIO:
    """The package, which is an archive of ar, at the beginning of a member."""
    package.read(8)
    while header := package.read(60):
        if header[:16].decode("ascii").strip() == name:
            return package
        size = int(header[48:58])
        package.read(size + size % 2)
    raise ValueError(f"no {name} in it")


def unpack_headers(url: str, folder: Path) -> None:
    """Reads no further than the headers go."""
    with urllib.request.urlopen(url, timeout=60) as package, \
            lzma.open(member(package, "data.tar.xz")) as data, \
            tarfile.open(fileobj=data, mode="r|") as archive:
        found = False
        for entry in archive:
            name = entry.name.removeprefix("./usr/include/")
            if name == entry.name or not entry.isfile():
                if found and not entry.name.startswith("./usr/include"):
                    return
                continue
            found = True
            if name.endswith(".h"):
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                content = archive.extractfile(entry)
                target.write_bytes(content.read() if content else b"")


def digest_of(folder: Path) -> str:
    """Of all headers in it, names and contents."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.h")):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def main() -> int:
    include = Path(sys.argv[1]) / "include"
    if digest_of(include) == DIGEST:
        return 0
    shutil.rmtree(include, ignore_errors=True)
    for name in PACKAGES:
        url = f"{MIRROR}/{POOL}/{name}"
        try:
            unpack_headers(url, include)
        except (OSError, ValueError, EOFError, lzma.LZMAError, tarfile.TarError) as problem:
            print(f"cuda12_headers.py: {url}: {problem} (DEBIAN_MIRROR names another mirror)", file=sys.stderr)
            return 2
    if digest_of(include) != DIGEST:
        print(f"cuda12_headers.py: {MIRROR} gave other headers than those of CUDA 12.4.1-2 in {include}",
              file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
