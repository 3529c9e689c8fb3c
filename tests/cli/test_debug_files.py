#!/usr/bin/env python3
"""Where memlab-report finds debug information that is not in the program itself: .gnu_debuglink, the tree
of build ids, split DWARF, and servers, which it asks only when it is told to.

A program is made whose function allocates; what must be found is its file and line, which only the debug
information has. Run by ctest with the folder of the programs in MEMLAB_BIN.
"""

import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest

BIN = pathlib.Path(os.environ["MEMLAB_BIN"])
REPORT = BIN / "memlab-report"
REAL = pathlib.Path(os.environ["MEMLAB_SOURCE"]) / "tests/data/h100/sample_cache_lines.json"
SOURCE = """\
int sink;
static inline __attribute__((always_inline)) void inlined(int i) {
    sink += i;  /* line 3 */
}
__attribute__((noinline)) int allocate_here(int i) {
    inlined(i);  /* line 6 */
    return sink;
}
int main(void) { return allocate_here(1) == 0; }
"""


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, **options)


class Server(http.server.ThreadingHTTPServer):
    """Has files by path, and knows what it was asked for."""

    def __init__(self, files):
        self.files = files
        self.asked = []
        super().__init__(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    def end(self):
        self.shutdown()
        self.thread.join()
        self.server_close()

    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        data = self.server.files.get(self.path)
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, *_):
        pass


class DebugFiles(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="memlab-debug.")
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name).resolve()
        self.program = self.folder / "made"
        self.source = SOURCE
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("DEBUGINFOD")}
        self.environment.update(LC_ALL="C.UTF-8", COLUMNS="120", DEBUGINFOD_CACHE_PATH=str(self.folder / "cache"))

    def compile(self, *flags):
        (self.folder / "made.c").write_text(self.source, encoding="ascii")
        # Two steps: split DWARF stays beside the object.
        run("cc", "-O1", "-g", *flags, "-c", "made.c", "-o", "made.o", cwd=self.folder)
        run("cc", "-Wl,--build-id", "made.o", "-o", self.program, cwd=self.folder)
        self.make_report()

    def make_report(self):
        """A recording in which this program allocates in that function."""
        notes = run("readelf", "-n", self.program).stdout
        self.build_id = notes.partition("Build ID: ")[2].split()[0]
        symbols = run("nm", "-S", self.program).stdout.splitlines()
        begin, size = next(line.split()[:2] for line in symbols if line.endswith(" allocate_here"))
        address = int(begin, 16) + int(size, 16) // 2
        report = json.loads(REAL.read_text(encoding="utf-8"))
        report["modules"][1].update(path=str(self.program), build_id=self.build_id)
        for frame in report["frames"]:
            frame.clear()
            frame.update(module=1, address=address)
        self.report = self.folder / "made.json"
        self.report.write_text(json.dumps(report), encoding="utf-8")

    def separate(self, to):
        """Debug information to a file of its own; the program keeps its functions' names."""
        to.parent.mkdir(parents=True, exist_ok=True)
        run("objcopy", "--only-keep-debug", self.program, to)
        run("strip", "--strip-debug", self.program)

    def check_found(self, text, line=3):
        """By the inlined function's line, which only debug information knows."""
        self.assertRegex(text, rf"made\.c:{line}  inlined")

    def check_not_found(self, text):
        self.assertIn("allocate_here", text)  # of the symbol table
        self.assertNotIn("made.c", text)

    def sites(self, *options, prefix=(), code=0, **environment):
        result = subprocess.run([*prefix, REPORT, "sites", *options, self.report], capture_output=True, text=True,
                                env={**self.environment, **environment}, cwd=self.folder, check=False, timeout=60)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout if code == 0 else result.stderr

    def test_a_debug_link(self):
        self.compile()
        self.check_found(self.sites())
        debug = self.folder / ".debug" / "symbols"
        self.separate(debug)
        self.check_not_found(self.sites())
        run("objcopy", f"--add-gnu-debuglink={debug}", self.program)
        self.check_found(self.sites())
        debug.unlink()
        self.check_not_found(self.sites())

    def test_the_tree_of_build_ids(self):
        self.compile()
        tree = self.folder / "tree"
        self.separate(tree / ".build-id" / self.build_id[:2] / (self.build_id[2:] + ".debug"))
        mounted = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                   'mount --bind "$0" /usr/lib/debug && exec "$@"', tree]
        if not os.path.isdir("/usr/lib/debug") or shutil.which("unshare") is None or subprocess.run(
                [*mounted, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("nothing can be put at /usr/lib/debug for this process alone")
        self.check_not_found(self.sites())
        self.check_found(self.sites(prefix=mounted))

    def test_split_dwarf(self):
        self.compile()
        whole = self.names()
        self.assertEqual([name["function"] for name in whole], ["inlined", "allocate_here"])
        for version in ("-gdwarf-5", "-gdwarf-4"):
            with self.subTest(version=version):
                self.compile("-gsplit-dwarf", version)
                self.assertTrue((self.folder / "made.dwo").exists())
                self.assertEqual(self.names(), whole)
                (self.folder / "made.dwo").unlink()
                self.assertIn("allocate_here", self.sites())

    def names(self):
        """All that is known of the place: functions, files and lines, the inlined one first."""
        made = self.folder / "names.json"
        made.unlink(missing_ok=True)
        run(REPORT, "symbolize", self.report, "-o", made, env=self.environment)
        return json.loads(made.read_text(encoding="utf-8"))["frames"][0]["source"]

    def server(self):
        """Has what was taken from the program."""
        self.compile()
        debug = self.folder / "made.debug"
        self.separate(debug)
        server = Server({f"/buildid/{self.build_id}/debuginfo": debug.read_bytes()})
        self.addCleanup(server.end)
        debug.unlink()
        return server

    def test_no_server_is_asked_by_itself(self):
        server = self.server()
        for command in (["sites"], ["summary"], ["tree"], ["leaks"],
                        ["export", "--to", "folded", "-o", self.folder / "folded"],
                        ["check", "--peak-allocated", "1TiB"], ["symbolize", "-o", self.folder / "with.json"]):
            run(REPORT, *command, self.report, env={**self.environment, "DEBUGINFOD_URLS": server.url()}, timeout=60)
        self.assertEqual(server.asked, [])
        self.assertFalse((self.folder / "cache").exists())

    def test_a_server_that_shall_be_asked(self):
        self.need_program()
        server = self.server()
        self.check_not_found(self.sites())
        self.check_found(self.sites("--debuginfod", DEBUGINFOD_URLS=server.url()))
        self.assertEqual(server.asked, [f"/buildid/{self.build_id}/debuginfo"])
        # Once: debuginfod-find keeps what it was given, for whoever asks for it.
        server.files.clear()
        self.check_found(self.sites("--debuginfod", DEBUGINFOD_URLS=server.url()))
        self.assertEqual(len(server.asked), 1)
        self.check_not_found(self.sites(DEBUGINFOD_URLS=server.url()))

    def test_names_for_a_report_that_travels(self):
        self.need_program()
        server = self.server()
        made = self.folder / "with.json"
        subprocess.run([REPORT, "symbolize", "--debuginfod", self.report, "-o", made], check=True, timeout=60,
                       env={**self.environment, "DEBUGINFOD_URLS": server.url()}, stdout=subprocess.DEVNULL)
        self.program.unlink()
        self.report = made
        self.check_found(self.sites())

    def test_every_command_that_looks_names_up_can_ask(self):
        self.need_program()
        for command in ("check", "diff", "export", "inefficiencies", "leaks", "lines", "merge", "oom", "pool", "sites",
                        "summary", "symbolize", "timeline", "tree", "whatif"):
            with self.subTest(command=command):
                self.assertIn("--debuginfod", run(REPORT, command, "--help").stdout)

    def test_a_server_that_has_nothing(self):
        self.need_program()
        server = self.server()
        server.files.clear()
        self.ask_in_vain(server.url(), "the servers of DEBUGINFOD_URLS have nothing about 1 binary")
        self.assertEqual(server.asked, [f"/buildid/{self.build_id}/debuginfo"])

    def test_a_server_that_has_another_build(self):
        self.need_program()
        server = self.server()
        shutil.copy(self.program, self.folder / "kept")
        first = f"/buildid/{self.build_id}/debuginfo"
        self.source = SOURCE.replace("int sink;", "\n\nint sink; int other;")
        self.compile()
        debug = self.folder / "other.debug"
        self.separate(debug)
        server.files = {path: debug.read_bytes() for path in (first, f"/buildid/{self.build_id}/debuginfo")}
        self.check_found(self.sites("--debuginfod", DEBUGINFOD_URLS=server.url()), 5)
        shutil.copy(self.folder / "kept", self.program)
        self.make_report()
        self.ask_in_vain(server.url(), "a file that is not of this build")

    def test_a_server_that_is_not_there(self):
        self.need_program()
        server = self.server()
        server.end()
        self.ask_in_vain(server.url(), "from the servers of DEBUGINFOD_URLS; they were not asked again")

    def test_a_server_that_never_answers_is_waited_for_once(self):
        self.need_program()
        server = self.server()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            report = json.loads(self.report.read_text(encoding="utf-8"))
            # A second binary without debug information: nobody is asked about that one any more.
            second = self.folder / "second"
            run("cc", "-Wl,--build-id", "-s", "-DSECOND", "made.c", "-o", second, cwd=self.folder)
            build_id = run("readelf", "-n", second).stdout.partition("Build ID: ")[2].split()[0]
            report["modules"][0].update(path=str(second), build_id=build_id)
            for frame in report["frames"][1::2]:
                frame["module"] = 0
            self.report.write_text(json.dumps(report), encoding="utf-8")
            self.ask_in_vain(f"http://127.0.0.1:{silent.getsockname()[1]}/", "no answer in time",
                             DEBUGINFOD_TIMEOUT="2", DEBUGINFOD_RETRY_LIMIT="0")
            silent.setblocking(False)
            with silent.accept()[0], self.assertRaises(BlockingIOError):  # the only one that came
                silent.accept()
        self.assertEqual(server.asked, [])

    def ask_in_vain(self, url, note, **environment):
        """One note, no error, and the same names as without asking."""
        asked = subprocess.run([REPORT, "sites", "--debuginfod", self.report], capture_output=True, text=True,
                               env={**self.environment, "DEBUGINFOD_URLS": url, **environment}, check=False, timeout=60)
        self.assertEqual(asked.returncode, 0, asked.stderr)
        self.assertEqual(asked.stdout, self.sites())
        self.assertNotIn("made.c", asked.stdout)
        self.assertIn(note, asked.stderr)
        self.assertEqual(asked.stderr.count("\n"), 1, asked.stderr)
        self.assertTrue(asked.stderr.startswith("memlab-report: --debuginfod: "), asked.stderr)

    def test_what_cannot_be_asked_is_one_line(self):
        self.compile()
        for urls in ({}, {"DEBUGINFOD_URLS": ""}, {"DEBUGINFOD_URLS": "  "}):
            with self.subTest(urls=urls):
                self.assertRegex(self.sites("--debuginfod", code=2, **urls),
                                 r"^memlab-report: --debuginfod: DEBUGINFOD_URLS names no server; .*\n$")
        urls = {"DEBUGINFOD_URLS": "http://127.0.0.1:9/"}
        for both in (("--debuginfod", "--no-symbols"), ("--no-symbols", "--debuginfod")):
            self.assertRegex(self.sites(*both, code=2, **urls),
                             r"^memlab-report: --debuginfod: --no-symbols looks nothing up; .*\n$")
        self.assertRegex(self.sites("--debuginfod", code=2, PATH=str(self.folder), **urls),
                         r"^memlab-report: --debuginfod: needs the program debuginfod-find; .*\n$")

    def need_program(self):
        if not self.has_program():
            self.skipTest("debuginfod-find is not installed")

    def has_program(self):
        return shutil.which("debuginfod-find") is not None


if __name__ == "__main__":
    unittest.main()
