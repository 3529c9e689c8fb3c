"""The line of every instruction of the standard library, as memlab decodes it and as Python says.

usage: test_line_table.py PROBE_LIBRARY [INTERPRETER...]

Runs itself under each INTERPRETER that is there (names or paths); the one it runs under is always one.
"""

import ctypes
import dis
import os
import shutil
import subprocess
import sys
import sysconfig
import types

MOST_INSTRUCTIONS = 3_000_000 if "MEMLAB_TEST_THOROUGH" in os.environ else 700_000


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def sources():
    for folder, folders, files in os.walk(sysconfig.get_path("stdlib")):
        folders[:] = [name for name in folders if name not in ("site-packages", "dist-packages",
                                                               "bad_coding", "__pycache__")]
        for name in sorted(files):
            if name.endswith(".py"):
                yield os.path.join(folder, name)


def made_up():
    """What the standard library has too little of."""
    for gap in (1, 2, 3, 31, 32, 33, 255, 256, 1000, 32767, 32768, 70000, 200000):
        yield "def f():\n    return (1,\n" + "\n" * gap + "  g())\n" + "\n" * gap + "x = (\n" + "\n" * gap + "f)\n"
    yield "x = [" + "f(a, b),\n" * 1000 + "]"
    yield "x = " + "(" * 20 + " " * 500 + "a +\n" + " " * 700 + "b" + ")" * 20
    yield "async def f():\n async with a() as b, c() as d:\n  async for x in y:\n   yield x\n"
    yield "try:\n f()\nexcept* A:\n g()\nfinally:\n h()\nfor i in x:\n  pass\nelse:\n  match i:\n   case [1, *_]: k()\n"


def lines_of(code):
    """As co_lines(), which 3.9 does not have."""
    starts = list(dis.findlinestarts(code))
    ends = [offset for offset, _ in starts[1:]] + [len(code.co_code)]
    return [(begin, end, line) for (begin, line), end in zip(starts, ends)]


def check(probe):
    checked, wrong, count = 0, 0, 0
    table_format = 0 if sys.version_info < (3, 10) else 1 if sys.version_info < (3, 11) else 2  # LineTable
    texts = [(None, text) for text in made_up()]
    for path, text in texts + [(path, None) for path in sources()]:
        if text is None:
            with open(path, "rb") as file:
                text = file.read()
        try:
            module = compile(text, path or "<made up>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        for code in code_objects(module):
            lines = (ctypes.c_int * (len(code.co_code) // 2))()
            for begin, end, line in code.co_lines() if table_format else lines_of(code):
                for offset in range(begin, end, 2):
                    lines[offset // 2] = line or 0
            table = code.co_linetable if table_format else code.co_lnotab
            at = probe.memlab_first_wrong_line(table, ctypes.c_size_t(len(table)), code.co_firstlineno,
                                               lines, ctypes.c_size_t(len(lines)), table_format)
            if at != -1:
                wrong += 1
                print(f"{path}: {code.co_name}: the instruction at {at} is on line {lines[at // 2]}")
            # A damaged table must not be read beyond its end: sanitizers see it if it is.
            for cut in range(0, len(table), max(1, len(table) // 5)):
                probe.memlab_first_wrong_line(table[:cut], ctypes.c_size_t(cut), code.co_firstlineno, lines,
                                              ctypes.c_size_t(min(len(lines), 50)), table_format)
            checked += len(lines)
            count += 1
        if checked > MOST_INSTRUCTIONS:
            break
    print(f"{sys.version.split()[0]}: {count} code objects, {checked} instructions, {wrong} wrong")
    return 0 if wrong == 0 and checked > 100_000 else 1


def main():
    probe = ctypes.CDLL(sys.argv[1])
    probe.memlab_first_wrong_line.restype = ctypes.c_long
    status = check(probe) if sys.version_info >= (3, 9) else 0
    for name in sys.argv[2:]:
        path = shutil.which(name)
        candidates = [path] if path else []
        if os.sep not in name:
            root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")) + "/versions"
            for version in sorted(os.listdir(root)) if os.path.isdir(root) else []:
                candidates.append(f"{root}/{version}/bin/{name}")
        for candidate in candidates:
            probed = os.path.exists(candidate) and subprocess.run(
                [candidate, "-c", "pass"], capture_output=True, check=False).returncode == 0
            if probed and not os.path.samefile(candidate, sys.executable):
                status |= subprocess.run([candidate, "-B", __file__, sys.argv[1]], check=False).returncode
                break
    return status


if __name__ == "__main__":
    sys.exit(main())
