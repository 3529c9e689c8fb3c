#!/usr/bin/env python3
"""Names and lines, frame by frame, are those of addr2line and llvm-symbolizer: for addresses all over one program that
several compilers built with several options. Functions, files, lines and inlined functions must be equal.

Where the two tools disagree with each other, either answer is accepted. Run by ctest with the folder of the programs in MEMLAB_BIN; compilers and tools that are not there are skipped by
name.
"""

import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["MEMLAB_BIN"])
REPORT = BIN / "memlab-report"
REAL = pathlib.Path(os.environ["MEMLAB_SOURCE"]) / "tests/data/h100/sample_cache_lines.json"

HEADER = r"""
#pragma once
#include <memory>
#include <utility>
#include <vector>
struct Tensor {
    explicit Tensor(int size) : values(std::make_unique<int[]>(static_cast<unsigned>(size))), size(size) {}
    int operator()(int i) const { return values[static_cast<unsigned>(i % size)]; }
    bool operator<(const Tensor& other) const { return size < other.size; }
    explicit operator int() const { return size; }
    std::unique_ptr<int[]> values;
    int size;
};
template <typename T> auto doubled(T value) -> decltype(value + value) {
    volatile T twice = value;
    return twice + twice;
}
int elsewhere(int count);
"""
SOURCE = r"""
#include "made.hpp"
namespace {
int sink;
struct Layer {
    Layer(int in, int out) : weight(in * out), bias(out) {}
    __attribute__((noinline)) int run(int i) const;
    Tensor weight, bias;
};
inline __attribute__((always_inline)) int inner(int i) {
    sink += i;
    return sink * i;
}
inline __attribute__((always_inline)) int middle(int i) {
    return inner(i + 1) +
           inner(i + 2);
}
int Layer::run(int i) const {
    if (i > 3) {
        return weight(i) + middle(i);
    }
    return bias(i) + doubled(i);
}
}  // namespace
template <typename F> __attribute__((noinline)) int each(int count, F visit) {
    int sum = 0;
    for (int i = 0; i < count; ++i) {
        sum += visit(i);
    }
    return sum;
}
__attribute__((noinline)) void (*choose(int which))(int) {
    return which > 0 ? +[](int i) { sink = i; } : +[](int i) { sink = -i; };
}
static int tail(int i) {
    return elsewhere(i - 1);
}
int main(int count, char**) {
    std::vector<Layer> layers;
    for (int i = 0; i < count + 3; ++i) {
        layers.emplace_back(i + 1, 2);
    }
    int sum = each(count, [&](int i) { return layers[static_cast<unsigned>(i)].run(i) + middle(i); });
    choose(count)(sum);
    sum += layers[0].weight < layers[1].weight ? tail(count) : static_cast<int>(layers[0].bias);
    return sum == 12345 ? 1 : 0;
}
"""
ELSEWHERE = r"""
#include "made.hpp"
static int left_over;
__attribute__((noinline)) static int deeper(int i) {
    left_over += i;
    return i > 0 ? doubled(i) + left_over : 0;
}
int elsewhere(int count) {
    Tensor one(count + 2);
    return deeper(count) + one(count);
}
int nobody_calls(int i) {
    return doubled(i) * 7 + elsewhere(i);
}
"""
THOROUGH = "MEMLAB_TEST_THOROUGH" in os.environ
OPTIMIZED = [("-O0",), ("-O1",), ("-O2",), ("-O3",)]
# Combinations of what is tried alone: only thoroughly.
COMBINED = [("-O1", "-gdwarf-5"), ("-O3", "-gdwarf-5"), ("-O0", "-gdwarf-4"), ("-O1", "-gdwarf-4", "-gsplit-dwarf")]
WAYS = {
    "g++": [*((*way, "-gdwarf-5") for way in OPTIMIZED), ("-O2", "-gdwarf-4"), ("-O0", "-gdwarf-4"),
            ("-O2", "-flto"), ("-O2", "-gsplit-dwarf"),
            ("-O1", "-gdwarf-4", "-gsplit-dwarf"), ("-O2", "-gz=zlib"),
            ("-O2", "-ffunction-sections", "-Wl,--gc-sections"), ("-O2", "-g1", "-no-pie")],
    "clang++": [*((*way, "-gdwarf-5") for way in OPTIMIZED), ("-O2", "-gdwarf-4"), ("-O0", "-gdwarf-4"),
                ("-O2", "-flto", "-fuse-ld=lld"), ("-O2", "-gsplit-dwarf"), ("-O1", "-gdwarf-4", "-gsplit-dwarf"),
                ("-O2", "-gz=zlib"), ("-O2", "-ffunction-sections", "-fuse-ld=lld", "-Wl,--gc-sections,--icf=all"),
                ("-O2", "-gline-tables-only"), ("-O2", "-gdwarf-aranges")],
}


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, **options)


def demangler():
    library = ctypes.CDLL("libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_void_p
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    known = {}

    def demangle(name):
        if name not in known:
            status = ctypes.c_int()
            text = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status)) if name[:2] == "_Z" else None
            known[name] = ctypes.string_at(text).decode() if text else name
            libc.free(text)
        return known[name]

    return demangle


class Symbols(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="memlab-symbols.")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name).resolve()
        self.demangle = demangler()
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("DEBUGINFOD")}
        for name, text in {"made.hpp": HEADER, "made.cpp": SOURCE, "elsewhere.cpp": ELSEWHERE}.items():
            (self.folder / name).write_text(text, encoding="ascii")

    def compile(self, compiler, flags):
        """Two files that were compiled each for itself; of a pair of compilers each makes one."""
        program = self.folder / "made"
        compilers = (compiler, compiler) if isinstance(compiler, str) else compiler
        linking = [flag for flag in flags if flag.startswith(("-Wl", "-fuse", "-flto", "-no-pie", "-O"))]
        for name, by in zip(("made", "elsewhere"), compilers):
            run(by, "-std=c++20", "-g", *(flag for flag in flags if not flag.startswith(("-Wl", "-fuse"))),
                "-c", f"{name}.cpp", "-o", f"{name}.o", cwd=self.folder)
        run(compilers[0], *linking, "-Wl,--build-id", "made.o", "elsewhere.o",
            "-o", program, cwd=self.folder)
        return program

    def addresses(self, program):
        """All of the program's own functions, and of the code around them what the linker brought."""
        found = set()
        for line in run("nm", "-S", program).stdout.splitlines():
            parts = line.split()
            if len(parts) == 4 and parts[2] in "tTwW":
                begin, size = int(parts[0], 16), int(parts[1], 16)
                own = any(part in parts[3] for part in ("main", "Layer", "Tensor", "each", "choose", "elsewhere",
                                                        "deeper", "doubled", "nobody", "Lambda", "UlvE", "4tail"))
                found.update(range(begin, begin + size, 2 if own else 7))
        text = next(line.split() for line in run("readelf", "-SW", program).stdout.replace("[ ", "[").splitlines()
                    if " .text " in line)
        begin, size = int(text[3], 16), int(text[5], 16)
        found.update(range(begin, begin + min(size, 4096), 5))
        return sorted(found)

    def ours(self, program, addresses):
        notes = run("readelf", "-n", program).stdout
        report = json.loads(REAL.read_text(encoding="utf-8"))
        report["modules"][1].update(path=str(program), build_id=notes.partition("Build ID: ")[2].split()[0])
        report["frames"] = [{"module": 1, "address": address + 1} for address in addresses]
        (self.folder / "made.json").write_text(json.dumps(report), encoding="utf-8")
        made = self.folder / "named.json"
        made.unlink(missing_ok=True)
        run(REPORT, "symbolize", self.folder / "made.json", "-o", made, env=self.environment)
        frames = json.loads(made.read_text(encoding="utf-8"))["frames"]
        return [[(one["function"], self.place(one["file"], one["line"])) for one in frame.get("source", [])]
                for frame in frames]

    def place(self, file, line):
        """Without a line there is no place, whichever file it would be in."""
        return (os.path.normpath(self.folder / file), line) if file and line else None

    def of_addr2line(self, program, addresses):
        text = run("addr2line", "-a", "-f", "-i", "-e", program, input="\n".join(hex(a) for a in addresses)).stdout
        return self.chains(text)

    def of_llvm(self, program, addresses):
        text = run("llvm-symbolizer", "-a", "--no-demangle", "--inlines", "--output-style=GNU", f"--obj={program}",
                   input="\n".join(hex(a) for a in addresses)).stdout
        return self.chains(text)

    def chains(self, text):
        chains = []
        lines = iter(text.splitlines())
        for line in lines:
            if re.fullmatch(r"0x[0-9a-f]+", line):
                chains.append([])
                continue
            if not line:
                continue
            where = next(lines).partition(" (")[0]
            file, _, number = where.rpartition(":")
            number = int(number) if number.isdigit() else 0
            name = "" if line == "??" else self.demangle(line)
            if name or (file not in ("", "??") and number):
                chains[-1].append((name, self.place("" if file == "??" else file, number)))
        return chains

    @staticmethod
    def same_function(ours, theirs):
        """Where there is no linkage name, ours has the namespaces in front."""
        clean = [re.sub(r"\[clone[^]]*\]|\.(part|isra|constprop|cold|lto_priv|llvm)\.?.*$", "", name).strip()
                 for name in (ours, theirs)]
        return clean[0] == clean[1] or clean[0].endswith("::" + clean[1]) or \
            clean[0].partition("(")[0].endswith(clean[1].partition("(")[0])

    def same(self, ours, theirs):
        return len(ours) == len(theirs) and all(
            one[1] == other[1] and self.same_function(one[0], other[0]) for one, other in zip(ours, theirs))

    def compare(self, program, least=100):
        addresses = self.addresses(program)
        answers = {name: getattr(self, "of_" + name)(program, addresses) for name in self.oracles()}
        with_lines = 0
        wrong = []
        for i, (address, ours) in enumerate(zip(addresses, self.ours(program, addresses))):
            with_lines += bool(ours and ours[0][1])
            if not any(self.same(ours, answer[i]) for answer in answers.values()):
                wrong.append(f"{address:#x}: {ours}\n" + "\n".join(f"  {name}: {answer[i]}"
                                                                    for name, answer in answers.items()))
        if wrong:
            self.fail(f"{len(wrong)} of {len(addresses)} differ:\n" + "\n".join(wrong[:4]))
        self.assertGreater(with_lines, least)

    def oracles(self):
        there = [name for name, tool in {"addr2line": "addr2line", "llvm": "llvm-symbolizer"}.items()
                 if shutil.which(tool)]
        if not there:
            self.skipTest("neither addr2line (binutils) nor llvm-symbolizer (llvm) is here")
        return there

    def ways(self, compiler):
        if shutil.which(compiler) is None:
            self.skipTest(f"no {compiler} here")
        for flags in WAYS[compiler]:
            if flags in COMBINED and not THOROUGH:
                continue
            with self.subTest(compiler=compiler, flags=" ".join(flags)):
                try:
                    program = self.compile(compiler, flags)
                except subprocess.CalledProcessError as error:
                    if "-flto" in flags or "lld" in " ".join(flags):
                        print(f"skipped: {compiler} {' '.join(flags)}: {error.stderr.splitlines()[:1]}")
                        continue
                    raise
                if "-gsplit-dwarf" in flags:
                    self.same_as_whole(compiler, flags, program)
                else:
                    self.compare(program)

    def same_as_whole(self, compiler, flags, program):
        """Of split debug information addr2line knows the lines alone."""
        addresses = self.addresses(program)
        split = self.ours(program, addresses)
        program = self.compile(compiler, [flag for flag in flags if flag != "-gsplit-dwarf"])
        self.assertEqual(self.addresses(program), addresses)
        self.assertEqual(split, self.ours(program, addresses))

    def test_gcc(self):
        self.ways("g++")

    def test_clang(self):
        self.ways("clang++")

    def test_one_of_each(self):
        """.debug_aranges that know half of the program."""
        for compilers in (("g++", "clang++"), ("clang++", "g++")):
            if any(shutil.which(compiler) is None for compiler in compilers):
                self.skipTest("needs g++ and clang++")
            with self.subTest(compilers=compilers):
                self.compare(self.compile(compilers, ("-O1",)))

    def test_a_separate_file(self):
        for compiler in WAYS:
            if shutil.which(compiler) is None:
                continue
            with self.subTest(compiler=compiler):
                program = self.compile(compiler, ("-O2",))
                debug = self.folder / "made.debug"
                debug.unlink(missing_ok=True)
                run("objcopy", "--only-keep-debug", program, debug)
                addresses = self.addresses(program)
                whole = self.ours(program, addresses)
                run("strip", program)
                run("objcopy", f"--add-gnu-debuglink={debug}", program)
                self.assertEqual(self.ours(program, addresses), whole)


if __name__ == "__main__":
    unittest.main()
