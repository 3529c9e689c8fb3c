#!/usr/bin/env python3
"""What <cuda.h> declares, as JSON: read from the header once per build, for the tests that compare memlab and
the simulated driver with it.

    cuda_header.py COMPILER CUDA_INCLUDE_DIR OUT

    exported            {symbol: parameters}: with __CUDA_API_VERSION_INTERNAL <cuda.h> declares each function
                        in every ABI version under the name that the driver exports
    other_names         {symbol: parameters} that it declares only without that macro, for either default stream
    profiler            {symbol: parameters} of <cudaProfiler.h>
    pointer_attributes  the enumerators of CUpointer_attribute

Exit code 1, and no file, if <cuda.h> does not look like one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any


def declared(text: str) -> dict[str, str]:
    """The driver functions that a preprocessed header declares, with their parameters."""
    text = re.sub(r"__attribute__\(\([^)]*\)\)", "", re.sub(r"\s+", " ", text))
    found = re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;]*?)\)\s*;", text)
    return {name: parameters.strip() for name, parameters in found}


def read(compiler: str, include: str) -> dict[str, Any]:
    """All of the above. Throws CalledProcessError if the compiler refuses the header."""
    def preprocessed(header: str, *options: str) -> str:
        return subprocess.run([compiler, "-E", "-P", "-x", "c", *options, "-I", include, "-"],
                              input=f"#include <{header}>\n", capture_output=True, text=True, check=True).stdout

    text = preprocessed("cuda.h", "-D__CUDA_API_VERSION_INTERNAL")
    exported = declared(text)
    others = declared(preprocessed("cuda.h")) | declared(preprocessed("cuda.h", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM"))
    # Includes cuda.h itself.
    profiler = declared(preprocessed("cudaProfiler.h", "-D__CUDA_API_VERSION_INTERNAL"))
    attributes = re.search(r"enum CUpointer_attribute_enum\s*{(.*?)}", text, re.DOTALL)
    return {
        "exported": exported,
        "other_names": {name: others[name] for name in others if name not in exported},
        "profiler": {name: profiler[name] for name in profiler if name not in exported},
        "pointer_attributes": sorted(set(re.findall(r"\bCU_POINTER_ATTRIBUTE_[A-Z0-9_]+\b", attributes[1] if attributes
                                                    else ""))),
    }


def main() -> int:
    compiler, include, out = sys.argv[1:]
    header = read(compiler, include)
    if len(header["exported"]) < 500 or not header["profiler"] or len(header["pointer_attributes"]) < 21:
        print(f"cuda_header.py: {include}/cuda.h declares {len(header['exported'])} functions and "
              f"{len(header['pointer_attributes'])} pointer attributes: it is not read as it should be")
        return 1
    Path(out).write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
