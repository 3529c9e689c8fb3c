"""Checks interpose/driver/hooked_functions.inc against <cuda.h> and <cudaTypedefs.h>.

For every function family of the table, every version and per-thread-stream variant that the header
declares must be a line of the table, with the CUDA version in which that variant appeared. Every
function that gives work to a device must be hooked, so that the work clock counts it, and every
function of <cuda.h> must be in exactly one of the lists of hooked and of known ones.

What is newer than that <cuda.h> is held against interpose/process/newer_functions.inc: each function that it
names is hooked, in its version, or known, and nothing newer is hooked that it does not name.
"""

import argparse
import json
import re
import sys

SUFFIXES = re.compile(r"^(cu[A-Za-z0-9]+?)(_v\d+)?(_ptsz|_ptds)?$")
# Only reached through cuGetProcAddress with itself as the name; no driver exports it.
NOT_EXPORTED = {"cuGetProcAddress_v2_ptsz"}


def typedef_versions(include):
    """{(base, per_thread): sorted versions} from the PFN_ typedefs."""
    versions = {}
    with open(f"{include}/cudaTypedefs.h", encoding="utf-8") as file:
        for base, version, thread in re.findall(
                r"\(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", file.read()):
            versions.setdefault((base, bool(thread)), set()).add(int(version))
    return {key: sorted(value) for key, value in versions.items()}


# Have a stream, but only ask, configure or mark; memory that they allocate is not of memlab's pool.
NO_WORK = re.compile(
    r"cuStream(Query|Synchronize|Get\w+|Is\w+|Destroy|SetAttribute|CopyAttributes|BeginCapture\w*"
    r"|EndCapture|UpdateCaptureDependencies)|cuEventRecord(WithFlags)?|cuGraphInstantiate\w*"
    r"|cuMemAllocAsync|cuMemAllocFromPoolAsync|cuMemFreeAsync")
COUNTED_ELSEWHERE = {"cuGraphLaunch", "cuGraphUpload"}


def check_work(declared, submitting, table_bases, known):
    """What is wrong with the lists as seen by the work clock."""
    problems = []
    counted = {SUFFIXES.match(name).group(1) for name in submitting} | COUNTED_ELSEWHERE
    for name, parameters in sorted(declared.items()):
        base = SUFFIXES.match(name).group(1)
        works = (re.search(r"\bCUstream\b(?! *\*)", parameters) is not None
                 and not NO_WORK.fullmatch(base)) or re.match(r"cu(Memcpy|Memset|Launch)", base)
        if works and base not in counted:
            problems.append(f"{name} gives work to a device, but the work clock does not count it")
        if not works and base in counted:
            problems.append(f"{name} is counted by the work clock, but gives no work to a device")
        if base in table_bases and base in known:
            problems.append(f"{base} is hooked and in the list of known functions too")
        if base not in table_bases and base not in known:
            problems.append(f"{base} is neither hooked nor known")
    return problems


def check_newer(newer, runtime, used, table, known, headers_version):
    """What is wrong with the lists as seen by what CUDA added after the headers."""
    problems = []
    bases = {symbol: SUFFIXES.match(symbol).group(1) for symbol in newer}
    for symbol, version in sorted(newer.items()):
        if symbol in table and bases[symbol] in known:
            problems.append(f"{symbol} is hooked and in the list of known functions too")
        elif symbol in table:
            if table[symbol][1] != version:
                problems.append(f"{symbol}: {table[symbol][1]} in the table, {version} in the newer functions")
        elif bases[symbol] not in known:
            problems.append(f"{symbol} of CUDA {version} is neither hooked nor known")
    for symbol, (_, version, _) in sorted(table.items()):
        if version > headers_version and newer.get(re.sub(r"_pt[sd][sz]$", "", symbol)) != version:
            problems.append(f"{symbol} of CUDA {version} is hooked, but not in the newer functions")
    for name, symbol in sorted(runtime.items()):
        if symbol not in table:
            problems.append(f"{name} calls {symbol}, which is not hooked")
    for name in sorted(used):
        if not any(name in text for text in used[name]):
            problems.append(f"{name} is said to be used, but memlab does not name it")
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", required=True)
    parser.add_argument("--submitting", required=True)
    parser.add_argument("--implicit", required=True)
    parser.add_argument("--known", required=True)
    parser.add_argument("--newer", required=True)
    parser.add_argument("--cupti", required=True, nargs="+", help="the files that name CUPTI's functions")
    parser.add_argument("--header", required=True, help="what tests/support/cuda_header.py wrote")
    parser.add_argument("--include", required=True)
    arguments = parser.parse_args()
    include = arguments.include.split(";")[0]

    rows = []
    lines = []
    submitting = set()
    for path in (arguments.submitting, arguments.implicit, arguments.table):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        rows += re.findall(r"^MEMLAB_HOOK\((\w+), (\w+), (\d+), ([01])\)$", text, re.M)
        lines += re.findall(r"^MEMLAB_HOOK\(", text, re.M)
        if path == arguments.submitting:
            submitting = {row[0] for row in rows}
    with open(arguments.known, encoding="utf-8") as file:
        known = set(re.findall(r"^MEMLAB_KNOWN\((\w+)\)$", file.read(), re.M))
    problems = []
    if len(rows) != len(lines):
        problems.append(f"{len(lines) - len(rows)} lines are not of the table's form")

    with open(arguments.header, encoding="utf-8") as file:
        header = json.load(file)
    declared = header["exported"] | header["other_names"]
    versions = typedef_versions(include)
    table = {symbol: (base, int(version), thread == "1") for symbol, base, version, thread in rows}
    if len(table) != len(rows):
        problems.append("a symbol stands in two lines")
    with open(arguments.newer, encoding="utf-8") as file:
        text = file.read()
    newer = {symbol: int(version) for symbol, version in re.findall(r"^MEMLAB_NEWER\((\w+), (\d+), \w+\)$", text, re.M)}
    runtime = dict(re.findall(r"^MEMLAB_NEWER_RUNTIME\((\w+), \d+, (\w+),\s+\w+\)$", text, re.M))
    cupti = re.findall(r"^MEMLAB_NEWER_CUPTI\((\w+), \d+, ([01]), \w+\)$", text, re.M)
    if len(newer) + len(runtime) + len(cupti) != len(re.findall(r"^MEMLAB_NEWER", text, re.M)):
        problems.append("lines of the newer functions are not of their form")
    texts = []
    for path in arguments.cupti:
        with open(path, encoding="utf-8") as file:
            texts.append(file.read())
    headers_version = max(version for each in versions.values() for version in each)
    problems += check_newer(newer, runtime, {name: texts for name, used in cupti if used == "1"}, table, known,
                            headers_version)
    # What the headers cannot know is not held against them.
    table = {symbol: row for symbol, row in table.items() if row[1] <= headers_version}
    bases = {base for base, _, _ in table.values()}

    for name in sorted(declared.keys() - NOT_EXPORTED):
        match = SUFFIXES.match(name)
        if match and match.group(1) in bases and name not in table:
            problems.append(f"{name} is declared by <cuda.h> but not in the table")
    for symbol, (base, version, thread) in sorted(table.items()):
        match = SUFFIXES.match(symbol)
        if symbol not in declared:
            problems.append(f"{symbol} is in the table but not declared by <cuda.h>")
        if match.group(1) != base:
            problems.append(f"{symbol}: base {base} is not its family")
        if bool(match.group(3)) != thread:
            problems.append(f"{symbol}: wrong per-thread flag")
        if version not in versions.get((base, thread), []):
            problems.append(f"{symbol}: {version} is none of {versions.get((base, thread))}")
    for base in sorted(bases):
        for thread in (False, True):
            in_table = sorted(v for b, v, t in table.values() if b == base and t == thread)
            if in_table != versions.get((base, thread), []):
                problems.append(f"{base}: versions {in_table} in the table, "
                                f"{versions.get((base, thread), [])} in <cudaTypedefs.h>")

    problems += check_work(declared, submitting, bases, known)

    for problem in problems:
        print(problem)
    print(f"{len(rows)} hooked functions of {len(bases)} families checked")
    return 1 if problems or len(rows) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
