#!/usr/bin/env python3
"""Every writer of a file, on disks that fail: at any call, with any error, and where the target is no plain file.

Run by ctest with the folder of the programs in MEMLAB_BIN, the source folder in MEMLAB_SOURCE, in FAILING_REPORT
memlab-report with the functions of tests/support/failing_files.cpp, and in FAILING_FILES_LIBRARY these for Python.
"""

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import unittest

from test_summary import SOURCE, SYNTH, ToolTest

LIBRARY = os.environ["FAILING_FILES_LIBRARY"]
REPORT = os.environ["FAILING_REPORT"]
DATA = os.path.join(SOURCE, "tests", "data")
LOG = os.path.join(DATA, "h100", "program_every_kind.memlog")
JSON = os.path.join(DATA, "h100", "program_every_kind.json")
RUN = os.path.join(DATA, "h200", "run_of_four_ranks")
OLD = b"what was there before\n"
FAULTS = [(call, str(number)) for call, number in (
    ("open", errno.EACCES), ("open", errno.EROFS), ("write", errno.ENOSPC), ("write", errno.EIO), ("write", "zero"),
    ("allocate", errno.ENOSPC), ("close", errno.EIO), ("close", errno.ENOSPC), ("rename", errno.EIO), ("rename", errno.EBUSY))]
PASSING = [("write", str(errno.EINTR)), ("write", "part"), ("close", str(errno.EINTR))]
# The interpreter writes again what was written by 0 bytes, and fails where close() was interrupted.
OF_PYTHON = [("write", "zero"), ("close", str(errno.EINTR))]

KERNELSPEC = """
import sys
from memlab import _kernelspec
sys.exit(_kernelspec.main(["install", "--prefix", "out"]))
"""
BASELINE = """
import os, sys
from memlab import _pytest_baseline
baseline = _pytest_baseline.Baseline("out/file.json")
baseline.put("a GPU", "a test", 4711)
try:
    baseline.write()
except _pytest_baseline.pytest.UsageError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
"""


class FilesTest(ToolTest):
    def setUp(self):
        super().setUp()
        self.out = self.path("out")
        os.mkdir(self.out)
        self.environment["PYTHONPATH"] = os.pathsep.join((self.path("stubs"), os.path.join(SOURCE, "python")))
        os.mkdir(self.path("stubs"))
        with open(self.path("stubs/pytest.py"), "w", encoding="utf-8") as stub:
            stub.write("class UsageError(Exception):\n    pass\n")
        with open(self.path("stubs/ipykernel.py"), "w", encoding="utf-8") as stub:
            stub.write("")
        self.environment["PYTHONDONTWRITEBYTECODE"] = "1"

    def files(self):
        """All below out/, links by where they point."""
        found = {}
        for folder, _, names in os.walk(self.out):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.islink(path):
                    found[os.path.relpath(path, self.out)] = os.readlink(path)
                else:
                    with open(path, "rb") as file:
                        found[os.path.relpath(path, self.out)] = file.read()
        return found

    def begin(self, before):
        shutil.rmtree(self.out)
        os.mkdir(self.out)
        for name, content in before.items():
            path = os.path.join(self.out, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)


class FailingFiles(FilesTest):
    def fails_everywhere(self, *command, old=("file",), name="file", content=OLD, python=False):
        """At each call that concerns its files; the first fault that is not reached ends it."""
        before = {each: content for each in old}
        self.begin(before)
        passed = self.call(*command)
        self.assertEqual((passed.returncode, passed.stderr), (0, ""), command)
        written = self.files()
        self.assertNotEqual(written, before)
        reached = set()
        for call, how in FAULTS + PASSING:
            if python and (call, how) in OF_PYTHON:
                continue
            at = 0
            while True:
                self.begin(before)
                told = self.path("told")
                preloaded = {"LD_PRELOAD": LIBRARY} if python else {}
                result = self.call(*command, **preloaded,
                                   FAILING_FILES=f"{call}:{at}:{how}:{self.out}/:{told}")
                with self.subTest(command=command, call=call, at=at, how=how, stderr=result.stderr):
                    self.assertNotIn("Traceback", result.stderr)
                    if not os.path.exists(told):
                        self.assertEqual((result.returncode, self.files()), (0, written))
                        break
                    os.unlink(told)
                    if (call, how) in PASSING:
                        self.assertEqual((result.returncode, result.stderr), (0, ""))
                        self.assertEqual(self.files(), written)
                    elif self.files() == written and result.returncode == 0:
                        self.assertIn(call, ("open", "rename", "allocate"))  # there was another way
                    else:
                        self.assertEqual(result.returncode, 2)
                        self.assertEqual(result.stderr.count("\n"), 1)
                        self.assertIn(name, result.stderr)
                        self.assertRegex(result.stderr, r"; .")
                        left = self.files()
                        if call == "rename" and at == 1:  # of two, which are complete: the first has its name
                            self.assertEqual((left.pop("file.memlog"), left), (written["file.memlog"], {"file.json": content}))
                        else:
                            self.assertEqual(left, before)
                at += 1
                self.assertLess(at, 200)
            reached.update({call} if at > 0 else {})
        self.assertLessEqual({"open", "close"}, reached, command)
        self.assertTrue({"write", "allocate"} & reached, command)  # a log is mapped

    def test_a_page(self):
        self.fails_everywhere(REPORT, "html", "--no-source", "-o", "out/file", LOG)
        self.fails_everywhere(REPORT, "html", "--no-source", "-o", "out/file", LOG, old=())

    def test_exports(self):
        for to in ("folded", "perfetto", "openmetrics"):
            self.fails_everywhere(REPORT, "export", "--no-symbols", "--to", to, "-o", "out/file", LOG)
        self.fails_everywhere(REPORT, "export", "--no-symbols", "--to", "csv", "-o", "out/file.gz", LOG,
                              old=["file.gz"])

    def test_reports(self):
        self.fails_everywhere(REPORT, "recover", "--force", "-o", "out/file", LOG)
        self.fails_everywhere(REPORT, "recover", "-o", "out/file", LOG, old=())
        self.fails_everywhere(REPORT, "symbolize", "--force", "-o", "out/file", JSON)
        self.fails_everywhere(REPORT, "merge", "--no-symbols", "-o", "out/file", RUN)

    def test_anonymous_copies(self):
        ring = self.path("memlab.r.memlog")
        subprocess.run([SYNTH, "--events", "900000", "--limit", str(3 << 20), "-o", ring], check=True, capture_output=True)
        for log in (LOG, ring):
            self.fails_everywhere(REPORT, "anonymize", "--no-symbols", "--force", "-o", "out/file.memlog", log,
                                  old=["file.memlog"])
        self.fails_everywhere(REPORT, "anonymize", "--no-symbols", "-o", "out/file.memlog", LOG, old=())
        self.fails_everywhere(REPORT, "anonymize", "--no-symbols", "--force", "-o", "out/file.json", JSON,
                              old=["file.json", "file.memlog"])

    def test_verdicts(self):
        check = (REPORT, "check", "--peak-allocated", "1TiB")
        self.fails_everywhere(*check, "--junit", "out/file", JSON)
        self.fails_everywhere(*check, "--sarif", "out/file", JSON)
        self.fails_everywhere(*check, "--markdown", "out/file", JSON)
        self.fails_everywhere(*check, "--markdown", "out/file", JSON, old=())

    def test_baselines(self):
        check = (REPORT, "check", "--peak-allocated", "1TiB", "--update", "--baseline", "out/file", JSON)
        self.begin({})
        self.assertEqual(self.call(*check).returncode, 0)
        old = self.files()["file"].replace(b"\"kinds\"", b"\"another\"")
        self.fails_everywhere(*check, content=old)

    def test_of_python(self):
        self.fails_everywhere(sys.executable, "-c", BASELINE, python=True, old=["file.json"], content=json.dumps(
            {"format": "memlab-pytest-baseline", "version": 1, "peak_bytes": {}}).encode())
        kernel = "share/jupyter/kernels/memlab/kernel.json"
        self.fails_everywhere(sys.executable, "-c", KERNELSPEC, python=True, old=[kernel], name="kernel.json", content=json.dumps(
            {"argv": [sys.executable, "-m", "memlab", "run"]}).encode())


class Targets(FilesTest):
    """What -o names is not always a file."""
    WRITERS = (
        (REPORT, "html", "--no-source", LOG),
        (REPORT, "export", "--no-symbols", "--to", "folded", LOG),
        (REPORT, "recover", "--force", LOG),
        (REPORT, "merge", "--no-symbols", RUN),
    )

    def each(self):
        for command in self.WRITERS:
            self.begin({})
            yield (*command, "-o")

    def test_a_folder(self):
        for command in self.each():
            os.mkdir(self.path("out/there"))
            result = self.call(*command, "out/there")
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, r"^memlab-report: out/there: cannot be written \(Is a directory\); .*\n$")
            self.assertEqual(os.listdir(self.out), ["there"])

    def test_links(self):
        for command in self.each():
            os.symlink("file", self.path("out/link"))
            os.symlink("link", self.path("out/first"))
            for _ in range(2):  # it leads to nothing, then to a file
                self.assertEqual(self.call(*command, "out/first").returncode, 0)
                written = self.files()
                self.assertEqual((written["first"], written["link"], sorted(written)),
                                 ("link", "file", ["file", "first", "link"]))
                self.assertGreater(len(written["file"]), 100)
            os.symlink("loop", self.path("out/loop"))
            self.assertRegex(self.call(*command, "out/loop").stderr, "Too many levels of symbolic links|$")

    def test_a_full_device(self):
        for command in self.each():
            result = self.call(*command, "/dev/full")
            self.assertEqual(result.returncode, 2)
            self.assertEqual(result.stderr, "memlab-report: /dev/full: cannot be written (No space left on device); "
                                            "free some space, or give another path\n")

    def test_what_stands_for_a_descriptor(self):
        for command in self.each():
            self.assertEqual(self.call(*command, "out/file").returncode, 0)
            whole = self.files()["file"]
            for name in ("/dev/stdout", "/dev/fd/1", "-"):
                with open(self.path("out/log"), "wb") as out:
                    out.write(OLD)
                with open(self.path("out/log"), "ab") as out:  # as the shell's >>
                    subprocess.run((*command, name), stdout=out, env=self.environment, cwd=self.folder.name, check=True)
                written = self.files()
                self.assertTrue(written["log"].startswith(OLD + whole), written["log"][:100])
                self.assertEqual(sorted(written), ["file", "log"])
            with open("/dev/full", "wb") as full:
                result = subprocess.run((*command, "-"), stdout=full, stderr=subprocess.PIPE, env=self.environment,
                                        cwd=self.folder.name, check=False)
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, rb"^memlab-report: standard output: cannot be written \(No space [^\n]*\n$")

    def test_a_pipe(self):
        for command in self.each():
            os.mkfifo(self.path("out/pipe"))
            got = []
            with open(os.open(self.path("out/pipe"), os.O_RDONLY | os.O_NONBLOCK), "rb") as pipe:
                os.set_blocking(pipe.fileno(), True)
                reader = threading.Thread(target=lambda pipe=pipe: got.append(pipe.read()))
                with open(self.path("out/pipe"), "wb"):  # until the command has it, too
                    reader.start()
                    self.assertEqual(self.call(*command, "out/pipe").returncode, 0)
                reader.join(60)
            self.assertGreater(len(got[0]), 100)
            self.assertEqual(os.listdir(self.out), ["pipe"])

    def test_past_the_limit_for_files(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        for command in self.each():
            self.begin({"file": OLD})
            result = subprocess.run((*command, "out/file"), capture_output=True, text=True, env=self.environment,
                                    cwd=self.folder.name, preexec_fn=limited, check=False)
            self.assertEqual((result.returncode, result.stderr),
                             (2, "memlab-report: out/file: cannot be written (File too large); raise the limit for files "
                                 "(ulimit -f), or give another path\n"))
            self.assertEqual(self.files(), {"file": OLD})
        self.begin({})
        with open(self.path("out/log"), "wb") as out:
            result = subprocess.run((REPORT, LOG), stdout=out, stderr=subprocess.PIPE, env=self.environment,
                                    preexec_fn=limited, check=False)
        self.assertEqual((result.returncode, result.stderr.count(b"\n")), (2, 1), result.stderr)

    def test_what_is_read_may_be_written_over(self):
        copy = shutil.copy(LOG, self.path("out/a.memlog"))
        self.assertEqual(self.call(REPORT, "anonymize", "--no-symbols", "--force", copy, "-o", copy).returncode, 0)
        self.assertIn("sound", self.report("validate", copy))
        self.assertEqual(os.listdir(self.out), ["a.memlog"])

    def test_files_beside_it_are_left_alone(self):
        mine = {name: OLD for name in ("a.memlog.newest", "a.memlog.joined", "a.memlog.tmp")}
        self.begin(mine)
        self.assertEqual(self.call(REPORT, "anonymize", "--no-symbols", LOG, "-o", "out/a.memlog").returncode, 0)
        found = self.files()
        del found["a.memlog"]
        self.assertEqual(found, mine)

    def test_permissions_stay(self):
        for command in self.each():
            self.begin({"file": OLD})
            os.chmod(self.path("out/file"), 0o600)
            self.assertEqual(self.call(*command, "out/file").returncode, 0)
            self.assertEqual(os.stat(self.path("out/file")).st_mode & 0o777, 0o600)


if __name__ == "__main__":
    unittest.main()
