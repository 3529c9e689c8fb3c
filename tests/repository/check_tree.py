#!/usr/bin/env python3
"""Checks of the source tree itself: what a compiler and a formatter do not see.

    check_tree.py ROOT
    check_tree.py --update ROOT    writes the dependencies of folders into docs/architecture.md

Prints one line per finding, `file:line: what is wrong`, and ends with 1 when there was any. What is
checked is the list of functions at the end; each has a test in test_check_tree.py that makes it fail.
"""

import fnmatch
import json
import pathlib
import re
import subprocess
import sys

C_FAMILY = {".cpp", ".hpp", ".h", ".c", ".cu", ".cuh", ".S"}


class Tree:
    """The project's files: what git tracks or is about to, or all of a source archive."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        names = self.known_to_git()
        if names is None:
            names = {str(path.relative_to(self.root)) for path in self.root.rglob("*")}
            names = sorted(name for name in names
                           if not name.startswith(("build/", ".git/")) and "__pycache__" not in name)
        self.names = [name for name in names if (self.root / name).is_file()]
        self._texts = {}

    def known_to_git(self):
        """The names, or None where there is no git or no repository."""
        try:
            listing = subprocess.run(
                ["git", "-c", f"safe.directory={self.root}", "-C", str(self.root),
                 "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                capture_output=True, check=False)
        except FileNotFoundError:
            return None
        if listing.returncode != 0:
            return None
        return sorted(set(filter(None, listing.stdout.decode().split("\0"))))

    def text(self, name):
        """The file's text, or None when it is not text."""
        if name not in self._texts:
            data = (self.root / name).read_bytes()
            try:
                self._texts[name] = None if b"\0" in data else data.decode()
            except UnicodeDecodeError:
                self._texts[name] = None
        return self._texts[name]

    def lines(self, names):
        """(name, line number, line) of every text file among the names."""
        for name in names:
            for number, line in enumerate((self.text(name) or "").splitlines(), 1):
                yield name, number, line


def check_machine_paths(tree):
    """A path that exists on one person's machine only. /home/user is an example, not a machine."""
    pattern = re.compile(rb"(?<![\w.}$-])/(?:[h]ome/(?!user\b)|[r]oot/|[w]ork/|[w]orkspace/|[U]sers/)[\w.-]+")
    for name in tree.names:
        data = (tree.root / name).read_bytes()  # recordings too: a log is full of paths
        for number, line in enumerate(data.split(b"\n"), 1):
            found = pattern.search(line)
            if found:
                yield f"{name}:{number}: a path of one machine: {found.group().decode()}"


def check_unfinished(tree):
    """Unfinished work belongs into an issue, not into the tree."""
    pattern = re.compile(r"\b(TO[D]O|FI[X]ME|X[X]X)\b")
    for name, number, line in tree.lines(tree.names):
        found = pattern.search(line)
        if found:
            yield f"{name}:{number}: unfinished: {found.group()}"


def check_design_comment(tree):
    """Every source begins by saying what it is for, or with the header beside it that says it."""
    for name in tree.names:
        path = pathlib.Path(name)
        if path.suffix in C_FAMILY:
            start = (tree.text(name) or "").lstrip()
            own_header = f'#include "{path.parent}/'
            if not start.startswith(("//", "/*", own_header)):
                yield f"{name}:1: does not begin with a comment that says what the file is for"


def anchors(text):
    """The anchors that GitHub gives to a Markdown text's headings."""
    found = set()
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*$", text, re.M):
        plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
        found.add(plain.replace(" ", "-"))
    return found


def check_links(tree):
    """Relative links of the Markdown files lead somewhere, anchors included."""
    for name in tree.names:
        if not name.endswith(".md"):
            continue
        fenced = False
        for number, line in enumerate((tree.text(name) or "").splitlines(), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            if fenced:
                continue
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                there = (tree.root / name).parent / path if path else tree.root / name
                if not there.exists():
                    yield f"{name}:{number}: no such file: {target}"
                elif anchor and there.suffix == ".md" and anchor not in anchors(there.read_text()):
                    yield f"{name}:{number}: no such heading: {target}"


def check_docs_index(tree):
    """docs/README.md names every page beside it."""
    index = tree.text("docs/README.md") if "docs/README.md" in tree.names else ""
    for name in tree.names:
        page = re.fullmatch(r"docs/([^/]+\.md)", name)
        if page and page.group(1) != "README.md" and f"({page.group(1)})" not in (index or ""):
            yield f"docs/README.md:1: does not list {page.group(1)}"


def check_version(tree):
    """The version of CMakeLists.txt, which a build without a git tag has, is that of the newest release notes."""
    if "CMakeLists.txt" not in tree.names or "CHANGELOG.md" not in tree.names:
        return
    version = re.search(r"^project\(memlab VERSION ([\d.]+)", tree.text("CMakeLists.txt"), re.M)
    released = re.search(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", tree.text("CHANGELOG.md"), re.M)
    if version is None or released is None or version.group(1) != released.group(1):
        yield (f"CHANGELOG.md:1: its newest release is {released and released.group(1)}, "
               f"CMakeLists.txt has {version and version.group(1)}")


def check_presets(tree):
    """The six presets exist, build where the documentation says, and can be built and tested."""
    name = "CMakePresets.json"
    if name not in tree.names:
        yield f"{name}:1: is missing"
        return
    presets = json.loads(tree.text(name))
    configure = {preset["name"]: preset for preset in presets.get("configurePresets", [])}
    for wanted in ("release", "debug", "asan", "ubsan", "tsan", "fuzz"):
        for kind in ("configurePresets", "buildPresets", "testPresets"):
            if wanted not in [preset["name"] for preset in presets.get(kind, [])]:
                yield f"{name}:1: {kind} has no '{wanted}'"
        preset = configure.get(wanted, {})
        while "binaryDir" not in preset and preset.get("inherits") in configure:
            preset = configure[preset["inherits"]]
        if preset.get("binaryDir") != "${sourceDir}/build/${presetName}":
            yield f"{name}:1: '{wanted}' does not build into build/{wanted}/"


# What a recording is to a user, and what an analysis of it may know.
READING = ("report", "report/reading", "report/text", "report/symbols", "report/summary")
ANALYSIS = ("trace", "trace/aggregate", "trace/reading", "model", *READING)

# Which folders a folder may include from, besides itself; dependencies point one way.
MAY_INCLUDE = {
    "threads": (),
    "trace": ("threads",),
    "trace/aggregate": ("trace",),
    "trace/reading": ("trace",),
    "model": ("trace", "trace/aggregate"),
    "model/live": ("model",),
    "allocator": ("threads",),
    "profiler/unwind": (),
    # The recorder's tables of stacks, which these fill, lie in profiler/ itself.
    "profiler/python": ("threads", "trace", "profiler", "profiler/unwind"),
    "profiler/cupti": ("threads", "trace", "profiler"),
    "profiler": ("threads", "trace", "trace/aggregate", "profiler/unwind", "profiler/python"),
    "interpose/include/memlab": (),
    "interpose/options": ("allocator", "model"),
    "interpose/driver": ("threads", "allocator", "trace", "profiler", "profiler/unwind", "interpose/options"),
    "interpose/memory": ("threads", "allocator", "trace", "model", "profiler", "profiler/unwind", "profiler/cupti",
                         "interpose/options", "interpose/control", "interpose/driver"),
    "interpose/ledger": ("threads", "trace", "profiler", "interpose/options", "interpose/driver", "interpose/memory"),
    "interpose/moving": ("threads", "trace", "model", "profiler", "interpose/options", "interpose/driver",
                         "interpose/memory", "interpose/ledger"),
    "interpose/sharing": ("threads", "trace", "profiler", "interpose/driver", "interpose/memory"),
    "interpose/control": ("threads", "trace", "model", "profiler", "interpose/driver"),
    "interpose/answers": ("trace", "model", "model/live", "profiler", "interpose/control", "interpose/driver",
                          "interpose/memory", "interpose/moving", "interpose/process"),
    "interpose/process": ("threads", "trace", "model", "profiler", "profiler/unwind", "profiler/cupti",
                          "interpose/options", "interpose/control", "interpose/driver", "interpose/memory",
                          "interpose/ledger", "interpose/moving", "interpose/sharing"),
    "interpose/hooks": ("threads", "trace", "model", "profiler", "profiler/unwind", "interpose/include/memlab",
                        "interpose/driver", "interpose/memory", "interpose/ledger", "interpose/moving",
                        "interpose/sharing", "interpose/process"),
    "report/text": ("model",),
    "report": ("trace", "trace/aggregate", "model", "report/text"),
    "report/reading": ("trace", "trace/aggregate", "trace/reading", "model", "report", "report/text"),
    "report/schema": ("trace/aggregate", "model", "model/live", "report/reading", "report/runs", "report/summary"),
    "report/symbols": ("model", "report", "report/reading", "report/text"),
    "report/summary": ("trace", "trace/aggregate", "model", "report", "report/text", "report/symbols"),
    "report/anonymize": ("trace", "trace/aggregate", "model", "report", "report/reading", "report/symbols", "report/text"),
    "report/views": ANALYSIS,
    "report/exports": (*ANALYSIS, "report/views", "report/runs"),
    "report/lines": ANALYSIS,
    "report/histogram": ANALYSIS,
    "report/whatif": ("allocator", *ANALYSIS),
    "report/runs": (*ANALYSIS, "report/views"),
    "report/timeline": (*ANALYSIS, "report/views"),
    "report/pool_view": (*ANALYSIS, "report/views"),
    "report/inefficiencies": (*ANALYSIS, "report/views", "report/pool_view", "report/whatif"),
    "report/html": (*ANALYSIS, "report/views", "report/exports", "report/inefficiencies", "report/lines",
                    "report/pool_view", "report/runs", "report/timeline", "report/whatif"),
    "report/check": (*ANALYSIS, "report/views", "report/runs"),
    "tools": ("interpose/options", "report/text"),
    "tools/report": ("model", "interpose/options", *READING, "report/anonymize", "report/check", "report/exports",
                     "report/histogram", "report/html", "report/inefficiencies", "report/lines",
                     "report/pool_view", "report/runs",
                     "report/timeline", "report/views", "report/whatif", "tools", "tools/follow"),
    # Which Pythons the recorder reads is written down there.
    "tools/dev.d/frameworks": ("interpose/hooks",),
    "tools/doctor": ("interpose/options", "profiler/python", "report", "report/text", "tools"),
    "tools/live": ("model", "model/live", "interpose/control", "interpose/options", "report/reading", "report/text",
                   "report/symbols", "report/summary", "tools", "tools/doctor"),
    "tools/control": ("model", "interpose/control", "report/symbols", "report/summary", "report/text", "tools",
                      "tools/live"),
    "tools/top": ("model", "model/live", "report/text", "report/symbols", "report/summary", "report/anonymize",
                  "report/runs", "tools", "tools/live"),
    "tools/follow": ("report/reading", "report/runs", "report/text", "tools", "tools/live"),
    "tools/run": ("model", "interpose/options", *READING, "tools", "tools/doctor"),
}

# Modules (a header and its source) that include each other anyway, and why.
CYCLES = [
    # A context has a pool and a backend, which ask the memory that has the contexts.
    {"interpose/memory/context_registry", "interpose/memory/cuda_backend", "interpose/memory/memory"},
    # What a program says before the session starts waits for it.
    {"interpose/process/annotations", "interpose/process/session"},
    # An unloaded library takes its tables and rules along.
    {"profiler/unwind/modules", "profiler/unwind/unloads"},
]

# Folders whose namespace is not made of their path: memlab.h is the programs' own interface.
OWN_NAMESPACES = {"interpose/include/memlab"}

# More than this nobody looks through.
MOST_FILES = 40

# A source shorter than this explains less than it costs to open, a longer one holds more than one idea.
LEAST_LINES = 30
MOST_LINES = 500

# What is written by hand in a product's folder and is not one of its sources: the page, scripts, the build. What the
# page is tested by is no product, what npm writes is not by hand.
PRODUCT_TEXTS = {".ts", ".css", ".html", ".py", ".sh", ".cmake", ".txt", ".json", ".yml", ""}
NOT_PRODUCT = ("report/html/web/test/", "report/html/web/package-lock.json")

# Sources beyond these bounds anyway, and why.
SIZE_EXCEPTIONS = {
    "a definition that has to stand before an include": [
        "interpose/driver/cuda_abi.hpp"],
    "assembly, or what the linker must be able to leave out": [
        "interpose/hooks/vfork_stub.S", "report/html/page_asset.S", "tools/no_loader.cpp"],
    "one word of several modules that share no other header": [
        "profiler/call_site.hpp", "profiler/cupti/current_call.hpp", "profiler/lock_until.hpp",
        "profiler/word_mix.hpp", "report/device_allocations.hpp",
        "tools/report/view_options.hpp", "model/bounded_sum.hpp",
        "model/rank_variables.hpp", "threads/no_cancellation.hpp"],
    "the face of two sources, one for text and one for JSON": [
        "report/whatif/render.hpp"],
}


def product_includes(tree):
    """(name, line number, included name) for the product's own files that include each other."""
    known = set(tree.names)
    for name in tree.names:
        if str(pathlib.PurePath(name).parent) in MAY_INCLUDE:
            for _, number, line in tree.lines([name]):
                include = re.match(r'\s*#\s*include\s+"([^"]+/[^"]+)"', line)
                if include and include.group(1) in known:
                    yield name, number, include.group(1)


def check_directions(tree):
    """A folder includes only what it may know."""
    for name, number, included in product_includes(tree):
        folder, other = (str(pathlib.PurePath(each).parent) for each in (name, included))
        if other != folder and other not in MAY_INCLUDE[folder]:
            yield f"{name}:{number}: {folder}/ must not know {included}"
    product = {folder.split("/")[0] for folder in MAY_INCLUDE}
    for name in tree.names:
        path = pathlib.PurePath(name)
        if path.suffix in C_FAMILY and path.parts[0] in product and str(path.parent) not in MAY_INCLUDE:
            yield f"{name}:1: MAY_INCLUDE does not say what this folder may know"


def cycles(edges):
    """The sets of nodes that reach each other (Tarjan), without those of one."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = set(stack[stack.index(node):])
            del stack[stack.index(node):]
            if len(component) > 1:
                found.append(component)

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def behind(folder, without):
    """What a folder reaches by includes that do not lead through `without`."""
    found, left = set(), [folder]
    while left:
        for other in MAY_INCLUDE[left.pop()]:
            if other != without and other not in found:
                found.add(other)
                left.append(other)
    return found


def dependencies(folder):
    """Of what a folder may include, what it does not get through another: a cell of docs/architecture.md."""
    through = set().union(*(behind(other, folder) - {other} for other in MAY_INCLUDE[folder]))
    direct = [other for other in MAY_INCLUDE[folder] if other not in through]
    return ", ".join(f"`{other}/`" for other in direct) or "nothing of ours"


FOLDER_ROW = re.compile(r"^(\| ((?:`[^`]+/`(?:, )?)+) \| .* \|)(.*)\|$")


def architecture_lines(tree):
    """(line number, line, what it should be, its folders) of docs/architecture.md."""
    for number, line in enumerate(tree.text("docs/architecture.md").splitlines(), 1):
        row = FOLDER_ROW.match(line)
        folders = [] if row is None else re.findall(r"`([^`]+)/`", row.group(2))
        told = sorted({dependencies(folder) for folder in folders if folder in MAY_INCLUDE})
        yield number, line, line if not told else f"{row.group(1)} {'; '.join(told)} |", folders


def update_folder_tables(tree):
    """Writes the dependencies of MAY_INCLUDE into docs/architecture.md."""
    lines = [wanted for _, _, wanted, _ in architecture_lines(tree)]
    (tree.root / "docs/architecture.md").write_text("\n".join(lines) + "\n")


def check_folder_tables(tree):
    """Pages name every folder: docs/architecture.md the product's, with what MAY_INCLUDE has of them, tests/README.md
    those of the tests, CONTRIBUTING.md each that MAY_INCLUDE has, alone or by a pattern."""
    folders, product = {}, set()
    for name in tree.names:
        folder = pathlib.PurePath(name).parent
        if folder.parts[:1] == ("tests",):
            if len(folder.parts) > 1:
                folders[f"{folder.parts[1]}/"] = "tests/README.md"
        elif folder.parts:
            folders[f"{folder}/"] = "docs/architecture.md"
            product |= {str(folder)} & set(MAY_INCLUDE)
    for folder, page in sorted(folders.items()):
        if page in tree.names and not re.search(rf"`{re.escape(folder)}[`<]", tree.text(page)):
            yield f"{page}:1: does not name the folder {folder}"
    if "docs/architecture.md" in tree.names:
        told = set()
        for number, line, wanted, row in architecture_lines(tree):
            told |= set(row)
            if line != wanted:
                yield (f"docs/architecture.md:{number}: depends on, by MAY_INCLUDE: {wanted.split(' | ')[-1][:-2]} "
                       "(check_tree.py --update ROOT writes it)")
        for folder in sorted(product - told):
            yield f"docs/architecture.md:1: its table has no row for {folder}/"
    if "CONTRIBUTING.md" in tree.names:
        rows = re.findall(r"^\| (`[^|]*`)[^|]*\|", tree.text("CONTRIBUTING.md"), re.M)
        patterns = re.findall(r"`([^`]+?)/?`", " ".join(rows))
        for folder in sorted(product):
            if not any(fnmatch.fnmatchcase(folder, pattern) for pattern in patterns):
                yield f"CONTRIBUTING.md:1: its table of folders does not have {folder}"


def check_cycles(tree):
    """No modules include each other, sources taken into account, except those that are named."""
    edges = {}
    for name, _, included in product_includes(tree):
        module, other = (each.rsplit(".", 1)[0] for each in (name, included))
        if module != other:
            edges.setdefault(module, set()).add(other)
    for cycle in cycles(edges):
        if cycle not in CYCLES:
            yield f"{sorted(cycle)[0]}:1: these include each other: {', '.join(sorted(cycle))}"


def check_folder_sizes(tree):
    """A folder of the product has no more files than one looks through."""
    counts = {}
    for name in tree.names:
        folder = str(pathlib.PurePath(name).parent)
        if folder in MAY_INCLUDE:
            counts[folder] = counts.get(folder, 0) + 1
    for folder, count in sorted(counts.items()):
        if count > MOST_FILES:
            yield f"{folder}:1: has {count} files, more than {MOST_FILES}"


def check_source_sizes(tree):
    """The product's sources are neither fragments nor more than one reads at once. A header and its source count
    together against the lower bound, each alone against the upper one, which the product's other texts have too."""
    product = {folder.split("/")[0] for folder in MAY_INCLUDE} | {"cmake", ".ci"}
    lengths, modules = {}, {}
    for name in tree.names:
        path = pathlib.PurePath(name)
        source = str(path.parent) in MAY_INCLUDE and path.suffix in C_FAMILY | {".inc"}
        other = path.suffix in PRODUCT_TEXTS and path.parts[0] in product and not name.startswith(NOT_PRODUCT)
        if source or other:
            lengths[name] = len((tree.text(name) or "").splitlines())
        if source:
            module = str(path.with_suffix(""))
            modules[module] = modules.get(module, 0) + lengths[name]
    excepted = {name for names in SIZE_EXCEPTIONS.values() for name in names}
    for name, length in lengths.items():
        long = length > MOST_LINES
        short = modules.get(str(pathlib.PurePath(name).with_suffix("")), LEAST_LINES) < LEAST_LINES
        if (long or short) and name not in excepted:
            yield f"{name}:1: has {length} lines, {f'more than {MOST_LINES}' if long else f'fewer than {LEAST_LINES}'}"
        elif name in excepted and not long and not short:
            yield f"{name}:1: has {length} lines and needs no exception (SIZE_EXCEPTIONS)"


def check_preload_includes(tree):
    """What lives inside other people's programs stays clear of the C++ library's heavy parts."""
    pattern = re.compile(r"\s*#\s*include\s+<(iostream|regex|filesystem|locale|thread|future)>")
    inside = ("threads/", "trace/", "model/", "allocator/", "profiler/", "interpose/")
    for name in tree.names:
        if pathlib.Path(name).suffix in C_FAMILY and name.startswith(inside):
            for _, number, line in tree.lines([name]):
                found = pattern.match(line)
                if found:
                    yield f"{name}:{number}: <{found.group(1)}> must not be part of the preload library"


def opened_namespaces(text):
    """(line number, namespace) of the named namespaces that a source opens at its outermost level and defines
    something in: not those in which it only declares what others define."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        opened = re.match(r"(?:inline )?namespace ([\w:]+) \{$", line)
        if opened:
            end = next((at for at in range(number, len(lines)) if lines[at].startswith("}")), len(lines))
            declares = re.compile(r"(?:(?:struct|class|enum class|enum) \w+(?: : [\w:]+)?;)?$")
            if not all(declares.match(inner) for inner in lines[number:end]):
                yield number, opened.group(1)


def check_namespaces(tree):
    """What a folder defines is in memlab:: and the folder's path, or a leading part of that path, the same for all its
    files. Namespaces within are not another folder's."""
    rooms = {"memlab::" + folder.replace("/", "::"): folder for folder in MAY_INCLUDE}
    rooms.update({f"memlab::{folder.split('/')[0]}": folder.split("/")[0] for folder in MAY_INCLUDE})
    first = {}
    for name in tree.names:
        folder = str(pathlib.PurePath(name).parent)
        if folder not in MAY_INCLUDE or folder in OWN_NAMESPACES or pathlib.PurePath(name).suffix not in C_FAMILY:
            continue
        for number, space in opened_namespaces(tree.text(name) or ""):
            parts = space.split("::")
            if parts[0] != "memlab":
                continue
            known = ["::".join(parts[:count]) for count in range(len(parts), 0, -1)]
            room = next((each for each in known if each in rooms), "memlab")
            if room == "memlab" or not f"{folder}/".startswith(f"{rooms[room]}/"):
                yield f"{name}:{number}: namespace {space} is not the folder's"
            elif first.setdefault(folder, room) != room:
                yield f"{name}:{number}: namespace {space}, other files of the folder have {first[folder]}"


def check_one_type_a_name(tree):
    """Two types of one name in one program are undefined behaviour, which neither compiler nor linker tells of."""
    opens = re.compile(r"namespace ([\w:]+)? ?\{")
    defines = re.compile(r"(?:struct|class|enum class) (\w+)(?: final)?(?: :.*)? \{")
    found = {}
    for name in tree.names:
        if not name.endswith(".hpp") or name.startswith("tests/"):
            continue
        spaces = []
        for _, number, line in tree.lines([name]):
            if opened := opens.match(line):
                spaces.append(opened.group(1) or "")
            elif line.startswith("}  // namespace") and spaces:
                spaces.pop()
            elif defined := defines.match(line):
                full = "::".join([*spaces, defined.group(1)])
                if full in found:
                    yield f"{name}:{number}: {full} is another type in {found[full]}"
                found.setdefault(full, name)


CHECKS = [
    check_machine_paths,
    check_unfinished,
    check_design_comment,
    check_links,
    check_docs_index,
    check_version,
    check_presets,
    check_directions,
    check_folder_tables,
    check_cycles,
    check_folder_sizes,
    check_source_sizes,
    check_preload_includes,
    check_namespaces,
    check_one_type_a_name,
]


def main():
    if len(sys.argv) < 2 or sys.argv[1:-1] not in ([], ["--update"]):
        sys.exit("usage: check_tree.py [--update] ROOT")
    tree = Tree(sys.argv[-1])
    if sys.argv[1:-1]:
        update_folder_tables(tree)
        tree = Tree(sys.argv[-1])
    findings = [finding for check in CHECKS for finding in check(tree)]
    print("\n".join(findings) if findings else f"tree: {len(tree.names)} files, nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
