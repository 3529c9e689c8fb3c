#!/usr/bin/env python3
"""Makes libraries to link against in place of glibc's own, with the symbols and versions of an older glibc.

    make_glibc_stubs.py --compiler CC --abi FILE --output FOLDER

The linker takes the version of each symbol from the library that it finds it in. Against these libraries the result
asks for the versions that FILE names, wherever it is built, and a function that FILE does not name is an undefined
reference. Nothing in them is ever run: each function is one trap instruction.
"""

import argparse
import pathlib
import subprocess
import sys


def read_abi(path):
    """{library: {version: {name: size of a variable, or None}}}"""
    libraries, names = {}, None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if not line.startswith(" "):
            if len(words) != 2:
                sys.exit(f"{path}:{number}: expected a library and a version, not '{line}'")
            names = libraries.setdefault(words[0], {}).setdefault(words[1], {})
        elif names is None:
            sys.exit(f"{path}:{number}: names before the first library")
        else:
            for word in words:
                name, _, size = word.partition("=")
                names[name] = int(size) if size else None
    return libraries


def assembly(versions):
    functions, variables = ["\t.text\n"], ["\t.bss\n"]
    for names in versions.values():
        for name, size in sorted(names.items()):
            if size is None:
                functions.append(f"\t.globl {name}\n\t.type {name}, @function\n{name}: ud2\n")
            else:
                variables.append(f"\t.globl {name}\n\t.type {name}, @object\n\t.size {name}, {size}\n"
                                 f"\t.balign 16\n{name}: .zero {size}\n")
    return "".join([*functions, *variables, '\t.section .note.GNU-stack, "", @progbits\n'])


def version_script(versions):
    return "".join(f"{version} {{ global: {'; '.join(sorted(names))}; }};\n" for version, names in versions.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--abi", required=True, type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for library, versions in read_abi(arguments.abi).items():
        source = arguments.output / f"{library}.s"
        script = arguments.output / f"{library}.map"
        source.write_text(assembly(versions), encoding="utf-8")
        script.write_text(version_script(versions), encoding="utf-8")
        subprocess.run([arguments.compiler, "-shared", "-nostdlib", f"-Wl,-soname,{library}",
                        f"-Wl,--version-script={script}", "-o", arguments.output / library, source], check=True)


if __name__ == "__main__":
    main()
