#!/usr/bin/env python3
"""Every check of check_tree.py finds the offence it is for, and leaves its innocent neighbour alone."""

import json
import pathlib
import tempfile
import unittest

import check_tree


class CheckTree(unittest.TestCase):
    def findings(self, check, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text if isinstance(text, bytes) else text.encode())
            return list(check(check_tree.Tree(folder)))

    def assert_finds(self, check, files, *names):
        self.assertEqual([finding.split(":")[0] for finding in self.findings(check, files)], list(names))

    def test_machine_paths(self):
        home = "/" + "home/someone/memlab"
        self.assert_finds(check_tree.check_machine_paths, {
            "a.md": "see " + home, "b.memlog": b"\x00\x01" + home.encode(),
            "c.md": "/home/user/app and network/root/x and /usr/bin"}, "a.md", "b.memlog")

    def test_unfinished(self):
        self.assert_finds(check_tree.check_unfinished,
                          {"a.cpp": "// TO" + "DO later", "b.cpp": "// mastodon"}, "a.cpp")

    def test_design_comment(self):
        self.assert_finds(check_tree.check_design_comment,
                          {"a.cpp": "#include <x>\n", "b.hpp": "// What it is.\n", "c.h": "/* C */",
                           "room/b.cpp": '#include "room/b.hpp"\n'}, "a.cpp")

    def test_links(self):
        self.assert_finds(check_tree.check_links, {
            "README.md": "[a](docs/a.md) [b](docs/a.md#second-part) [w](https://example.org)\n"
                         "`[code](nowhere)`\n```\n[fenced](nowhere)\n```\n",
            "docs/a.md": "# A\n## Second part\n[gone](gone.md) [anchor](#third)\n"},
            "docs/a.md", "docs/a.md")

    def test_docs_index(self):
        self.assert_finds(check_tree.check_docs_index, {
            "docs/README.md": "[a](a.md)", "docs/a.md": "", "docs/b.md": ""}, "docs/README.md")

    def test_presets(self):
        presets = {kind: [{"name": name} for name in ("release", "debug", "asan", "ubsan", "tsan", "fuzz")]
                   for kind in ("configurePresets", "buildPresets", "testPresets")}
        for preset in presets["configurePresets"]:
            preset["binaryDir"] = "${sourceDir}/build/${presetName}"
        good = {"CMakePresets.json": json.dumps(presets)}
        self.assert_finds(check_tree.check_presets, good)
        presets["configurePresets"][1]["binaryDir"] = "elsewhere"
        del presets["testPresets"][5]
        bad = {"CMakePresets.json": json.dumps(presets)}
        self.assert_finds(check_tree.check_presets, bad, "CMakePresets.json", "CMakePresets.json")
        self.assert_finds(check_tree.check_presets, {}, "CMakePresets.json")

    def test_directions(self):
        files = {"report/x.hpp": "", "allocator/y.hpp": "",
                 "allocator/a.cpp": '#include "allocator/y.hpp"\n#include "report/x.hpp"\n',
                 "report/whatif/w.cpp": '#include "report/x.hpp"\n#include "allocator/y.hpp"\n'}
        self.assert_finds(check_tree.check_directions, files, "allocator/a.cpp")
        files["interpose/elsewhere/e.cpp"] = ""  # a folder that nobody has thought about
        self.assert_finds(check_tree.check_directions, files, "allocator/a.cpp", "interpose/elsewhere/e.cpp")

    def test_folder_tables(self):
        rows = "| `docs/` | pages |\n| `trace/` | records | `threads/` |\n"
        files = {"docs/architecture.md": rows, "trace/a.hpp": "", "tests/catch.hpp": "",
                 "CONTRIBUTING.md": "| `trace/`, `report/*` | records |\n| `tests/` | `model` |\n",
                 "tests/README.md": "| `unit/<folder>/` |", "tests/unit/trace/t.cpp": ""}
        self.assert_finds(check_tree.check_folder_tables, files)
        files["trace/aggregate/b.hpp"] = files["tests/new/c.cpp"] = ""
        self.assert_finds(check_tree.check_folder_tables, files, "tests/README.md", "docs/architecture.md",
                          "docs/architecture.md", "CONTRIBUTING.md")

    def test_dependencies_of_folders(self):
        files = {"docs/architecture.md": "| `docs/` |\n| `trace/` | records | `model/` |\n", "trace/a.hpp": ""}
        self.assert_finds(check_tree.check_folder_tables, files, "docs/architecture.md")
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "docs/architecture.md")
            page.parent.mkdir()
            page.write_text(files["docs/architecture.md"])
            check_tree.update_folder_tables(check_tree.Tree(folder))
            self.assertEqual(page.read_text(), "| `docs/` |\n| `trace/` | records | `threads/` |\n")
        # What another one brings is not said; folders that know each other say so.
        self.assertEqual(check_tree.dependencies("report/timeline"), "`report/views/`")
        self.assertEqual(check_tree.dependencies("profiler/python"), "`profiler/`")
        self.assertIn("`profiler/python/`", check_tree.dependencies("profiler"))
        self.assertEqual(check_tree.dependencies("threads"), "nothing of ours")

    def test_cycles(self):
        good = {"trace/a.hpp": "", "trace/a.cpp": '#include "trace/a.hpp"\n#include "trace/b.hpp"\n',
                "trace/b.hpp": '#include "trace/c.hpp"\n', "trace/c.hpp": ""}
        self.assert_finds(check_tree.check_cycles, good)
        bad = {**good, "trace/c.cpp": '#include "trace/a.hpp"\n'}  # through a source alone
        self.assert_finds(check_tree.check_cycles, bad, "trace/a")
        named = {f"{module}.hpp": "" for cycle in check_tree.CYCLES[:1] for module in cycle}
        modules = sorted(check_tree.CYCLES[0])
        for module, other in zip(modules, modules[1:] + modules[:1]):
            named[f"{module}.cpp"] = f'#include "{other}.hpp"\n'
        self.assert_finds(check_tree.check_cycles, named)

    def test_version(self):
        build, notes = "project(memlab VERSION 1.2.3 LANGUAGES CXX)\n", "# Changelog\n\n## [Unreleased]\n\n"
        old = "## [1.2.2] - 2026-01-02\n"
        self.assert_finds(check_tree.check_version, {
            "CMakeLists.txt": build, "CHANGELOG.md": notes + "## [1.2.3] - 2026-02-03\n\n" + old})
        for text in (notes + old, notes, notes + "## [1.2.3]\n" + old):
            self.assert_finds(check_tree.check_version, {"CMakeLists.txt": build, "CHANGELOG.md": text}, "CHANGELOG.md")

    def test_folder_sizes(self):
        files = {f"trace/{i}.hpp": "" for i in range(check_tree.MOST_FILES)}
        self.assert_finds(check_tree.check_folder_sizes, files)
        files["trace/more.hpp"] = ""
        self.assert_finds(check_tree.check_folder_sizes, files, "trace")

    def test_source_sizes(self):
        line, excepted = "//\n", "threads/no_cancellation.hpp"
        least, most = check_tree.LEAST_LINES, check_tree.MOST_LINES
        self.assert_finds(check_tree.check_source_sizes, {
            "trace/short.hpp": line * (least - 1), "trace/two.hpp": line * (least - 1), "trace/two.cpp": line,
            "trace/long.cpp": line * (most + 1), "trace/whole.cpp": line * most, "tests/short.hpp": line,
            excepted: line * (least - 1)}, "trace/long.cpp", "trace/short.hpp")
        self.assert_finds(check_tree.check_source_sizes, {excepted: line * most}, excepted)
        # The page, scripts, the build: none is a fragment.
        self.assert_finds(check_tree.check_source_sizes, {
            "report/html/web/src/app.ts": line * (most + 1), "report/html/web/src/style/page.css": line * (most + 1),
            "report/html/web/src/main.ts": line, "report/html/web/test/sample.ts": line * (most + 1),
            "tools/dev": line * (most + 1), "cmake/Package.cmake": line * most, "docs/draw.py": line * (most + 1)},
            "report/html/web/src/app.ts", "report/html/web/src/style/page.css", "tools/dev")

    def test_preload_includes(self):
        self.assert_finds(check_tree.check_preload_includes, {
            "interpose/a.cpp": "#include <iostream>\n", "tools/b.cpp": "#include <iostream>\n"},
            "interpose/a.cpp")

    def test_namespaces(self):
        def source(space, inside="int x;"):
            return f"namespace {space} {{\n{inside}\n}}  // namespace {space}\n"

        self.assert_finds(check_tree.check_namespaces, {
            "report/check/a.hpp": source("memlab::report::check") + source("memlab::trace", "class Aggregator;"),
            "report/check/b.cpp": source("memlab::report::check::inner"),
            "report/summary/a.cpp": source("memlab::report") + source("c10"),
            "interpose/include/memlab/memlab.h": source("memlab"), "tests/a.cpp": source("memlab::test")})
        self.assert_finds(check_tree.check_namespaces, {
            "model/a.hpp": source("memlab::report"),  # another folder's
            "report/summary/a.cpp": source("memlab::report::check"),  # of a folder beside it
            "report/text/a.cpp": source("memlab::text"),  # no folder's
            "trace/a.hpp": source("memlab"),
            "profiler/unwind/a.hpp": source("memlab::profiler"),  # two of one folder
            "profiler/unwind/b.hpp": source("memlab::profiler::unwind"),
        }, "model/a.hpp", "profiler/unwind/b.hpp", "report/summary/a.cpp", "report/text/a.cpp", "trace/a.hpp")

    def test_one_type_a_name(self):
        self.assert_finds(check_tree.check_one_type_a_name, {
            "report/a.hpp": "namespace memlab::report {\nstruct Page {\n};\nclass Reader;\n}  // namespace memlab::report\n",
            "report/b.hpp": "namespace memlab::report {\nclass Page final : Base {\n};\nclass Reader {\n};\n"
                            "}  // namespace memlab::report\n",
            "tools/c.hpp": "namespace memlab::tools {\nclass Page {\n};\n}  // namespace memlab::tools\n",
        }, "report/b.hpp")

    def test_every_check_is_in_the_list(self):
        written = {value for name, value in vars(check_tree).items() if name.startswith("check_")}
        self.assertEqual(written, set(check_tree.CHECKS))


if __name__ == "__main__":
    unittest.main()
