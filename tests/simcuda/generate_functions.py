#!/usr/bin/env python3
"""Writes driver_functions.inc from a CUDA toolkit's headers.

usage: generate_functions.py CUDA_INCLUDE_DIR HEADER > driver_functions.inc

HEADER is what tests/support/cuda_header.py wrote, build/<preset>/tests/support/cuda_header.json: every exported
symbol of the driver in every ABI version. cudaTypedefs.h names the CUDA version at which each ABI began. Sorted,
the two lists pair up one to one, which is what cuGetProcAddress needs to know. The result is checked in, so that
the simulated driver is built without Python; a test compares it with the headers in use.
"""
import collections
import json
import pathlib
import re
import sys

VARIANT = r"(_pt(?:sz|ds))?"


def arguments(parameters):
    if parameters == "void":
        return ""
    names = []
    for part in parameters.split(","):
        names.append(re.search(r"(\w+)\s*(?:\[\w*\])?\s*$", part)[1])
    return ", ".join(names)


def main():
    include, header = map(pathlib.Path, sys.argv[1:])
    read = json.loads(header.read_text())
    declared = read["exported"] | read["profiler"]
    versions = collections.defaultdict(set)
    for header in ("cudaTypedefs.h", "cudaProfilerTypedefs.h"):
        for base, version, variant in re.findall(r"PFN_(cu\w+?)_v(\d+)" + VARIANT + r"\)",
                                                 (include / header).read_text()):
            versions[base, variant].add(int(version))
    symbols = collections.defaultdict(list)
    for name in declared:
        base, abi, variant = re.fullmatch(r"(cu\w+?)(_v\d+)?" + VARIANT, name).groups()
        symbols[base, variant or ""].append((int(abi[2:]) if abi else 1, name))
    print("// Made by generate_functions.py from <cuda.h>; not edited by hand.")
    print("// SIMCUDA_FUNCTION(symbol, base, since, flavor, body, (parameters), (arguments))")
    print("// SIMCUDA_BODY(body, (parameters), (arguments)): the symbols less their stream flavor.")
    print("#ifdef SIMCUDA_FUNCTION")
    for (base, variant), names in sorted(symbols.items()):
        since = sorted(versions[base, variant])
        if len(since) != len(names):
            sys.exit(f"{base}{variant}: {len(names)} symbols but versions {since}")
        for version, (_, name) in zip(since, sorted(names)):
            flavor = "per_thread" if variant else "legacy"
            body = re.sub(VARIANT[:-1] + "$", "", name)
            print(f"SIMCUDA_FUNCTION({name}, {base}, {version}, {flavor}, {body},")
            print(f"                 ({declared[name]}), ({arguments(declared[name])}))")
    print("#endif")
    print("#ifdef SIMCUDA_BODY")
    bodies = {re.sub(VARIANT[:-1] + "$", "", name) for name in declared}
    for name in sorted(bodies):
        parameters = declared.get(name) or next(
            declared[name + suffix] for suffix in ("_ptsz", "_ptds") if name + suffix in declared)
        print(f"SIMCUDA_BODY({name}, ({parameters}), ({arguments(parameters)}))")
    print("#endif")
    print('#include "tests/simcuda/later_functions.inc"')


main()
