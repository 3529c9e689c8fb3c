#!/usr/bin/env python3
"""How recordings reach memlab-report: compressed, through pipes, by globs; and what a mistyped
command line says. Run by ctest, as test_summary.py is."""

import gzip
import json
import os
import shutil
import subprocess
import unittest

from test_summary import REPORT, SOURCE, SYNTH, ToolTest

LOG = os.path.join(SOURCE, "tests", "data", "h100", "sample_checkpointing_plain.memlog")
JSON = LOG.replace(".memlog", ".json")
RUN = os.path.join(SOURCE, "tests", "data", "h200", "run_of_four_ranks")


class Inputs(ToolTest):
    def sites(self, *files, **environment):
        return self.report("sites", "--no-symbols", *files, **environment)

    def write(self, name, content):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def refused(self, says, *arguments, **options):
        result = subprocess.run([REPORT, *arguments], cwd=self.folder.name, env=self.environment,
                                capture_output=True, text=True, timeout=60, check=False,
                                **{"stdin": subprocess.DEVNULL, **options})
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(says, result.stderr)

    def test_compressed_recordings_are_those_that_they_hold(self):
        for recording in (LOG, JSON):
            with open(recording, "rb") as file:
                content = file.read()
            name = os.path.basename(recording)
            packed = self.write(name + ".gz", gzip.compress(content))
            self.assertEqual(self.sites(packed), self.sites(recording))
            # Two members, as of `cat a.gz b.gz`.
            half = len(content) // 2
            packed = self.write("two-" + name + ".gz",
                                gzip.compress(content[:half]) + gzip.compress(content[half:]))
            self.assertEqual(self.sites(packed), self.sites(recording))
        self.assertIn("Choose:", self.report("whatif", "--no-symbols", self.path(
            os.path.basename(LOG) + ".gz")))
        self.assertEqual(os.listdir(self.folder.name).count("memlab-report"), 0)

    def test_what_unpacks_to_far_more_is_refused_early(self):
        """Before it fills the disk: a file may have at most 80 MB here."""
        def bombs():
            yield gzip.compress(b'{"format":"memlab-report","a":[0' + b",0" * (64 << 20), 6)
            yield gzip.compress(gzip.compress(b" " * (128 << 20), 6), 6)
            if shutil.which("zstd") is not None:
                yield subprocess.run(["zstd", "-qc"], input=b" " * (128 << 20), check=True, capture_output=True).stdout

        limits = ["bash", "-c", 'ulimit -f 80000; trap "" XFSZ; exec "$0" "$@"', REPORT]
        for bomb in bombs():
            path = self.write("bomb.json.gz", bomb)
            result = subprocess.run([*limits, path], env=self.environment, capture_output=True, text=True,
                                    timeout=60, check=False)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
            self.assertIn("unpacks to far more than a recording does", result.stderr)
        # A log has zeros where it was reserved and not written.
        with open(LOG, "rb") as file:
            padded = self.write("padded.memlog.gz", gzip.compress(file.read() + bytes(128 << 20), 6))
        self.assertEqual(self.sites(padded), self.sites(LOG))
        thrice = self.write("thrice.gz", gzip.compress(gzip.compress(gzip.compress(b"{}"))))
        self.refused("compressed more than twice", thrice)

    @unittest.skipIf(shutil.which("zstd") is None, "no zstd here")
    def test_zstd(self):
        subprocess.run(["zstd", "-q", LOG, "-o", self.path("run.memlog.zst")], check=True)
        self.assertEqual(self.sites(self.path("run.memlog.zst")), self.sites(LOG))

    def test_a_compressed_log_beside_a_report(self):
        """Is its log, for what needs single events; whether the report is compressed or not."""
        shutil.copy(JSON, self.path("run.json"))
        with open(LOG, "rb") as file:
            self.write("run.memlog.gz", gzip.compress(file.read()))
        with open(JSON, "rb") as file:
            self.write("run.json.gz", gzip.compress(file.read()))
        names = ["run.json", "run.json.gz"]
        if shutil.which("zstd"):
            subprocess.run(["zstd", "-q", LOG, "-o", self.path("zstd.memlog.zst")], check=True)
            shutil.copy(JSON, self.path("zstd.json"))
            names.append("zstd.json")
        for command in (["histogram"], ["timeline", "--at", "150ms"], ["inefficiencies"], ["whatif"],
                        ["export", "--to", "csv"]):
            expected = self.report(*command, LOG)
            for name in names:
                with self.subTest(command=command, name=name):
                    self.assertEqual(self.report(*command, name), expected)
        # Only what needs it unpacks it, and says what is wrong with it.
        self.write("run.memlog.gz", gzip.compress(b"memlab")[:-4])
        self.assertNotIn("run.memlog.gz", self.report("sites", "run.json"))
        result = subprocess.run([REPORT, "histogram", "run.json"], cwd=self.folder.name, env=self.environment,
                                text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("run.json: its event log, run.memlog.gz, cannot be read: damaged", result.stderr)

    def test_a_run_whose_files_are_compressed(self):
        expected = [self.report(command, "--json", RUN) for command in ("summary", "merge")]
        plain = self.report("check", "--peak-allocated", "1TiB", "--allow", "event-log", RUN)
        run = self.path("run")
        shutil.copytree(RUN, run)
        for name in os.listdir(run):
            path = os.path.join(run, name)
            with open(path, "rb") as file, open(path + ".gz", "wb") as packed:
                packed.write(gzip.compress(file.read()))
            if not name.endswith("984.memlog"):  # that one is there both ways
                os.remove(path)
        for command, text in zip(("summary", "merge"), expected):
            found = json.loads(self.report(command, "--json", run).replace(".gz", "").replace(run, RUN))
            self.assertEqual(found, json.loads(text), command)
        self.assertEqual(self.report("check", "--peak-allocated", "1TiB", "--allow", "event-log", run), plain)
        self.assertEqual(self.report("validate", run).count(": sound"), 6)
        self.report("anonymize", run, "-o", self.path("copy"))
        self.assertFalse([name for name in os.listdir(self.path("copy")) if name.endswith(".gz")])

    def test_without_the_program_zstd_it_says_so(self):
        path = self.write("run.memlog.zst", b"\x28\xb5\x2f\xfd" + b"\0" * 20)
        self.environment["PATH"] = self.folder.name
        self.refused("compressed with zstd, and there is no program zstd here", path)

    def test_damaged_compressed_data(self):
        with open(LOG, "rb") as file:
            packed = gzip.compress(file.read())
        self.refused("gzip data ends early or is wrong", self.write("a.gz", packed[:-20]))
        self.refused("gzip data ends early or is wrong",
                     self.write("b.gz", packed[:400] + b"garbage" + packed[407:]))

    def test_standard_input_and_pipes(self):
        narrow = {**self.environment, "COLUMNS": "80"}
        for recording in (LOG, JSON):
            expected = self.sites(recording)
            with open(recording, "rb") as file:
                content = file.read()
            for data in (content, gzip.compress(content)):
                for last in ("-", "/dev/stdin", "<(cat)"):
                    result = subprocess.run(
                        ["bash", "-c", f"'{REPORT}' sites --no-symbols {last}"], input=data,
                        env=narrow, capture_output=True, timeout=60, check=False)
                    self.assertEqual(result.stderr.decode(), "")
                    self.assertEqual(result.stdout.decode(), expected)
            with open(recording, "rb") as file:
                result = subprocess.run([REPORT, "sites", "--no-symbols", "-"], stdin=file,
                                        env=narrow, capture_output=True, timeout=60, check=True)
            self.assertEqual(result.stdout.decode(), expected)
        self.refused("-: empty", "-")

    def test_a_log_is_read_once(self):
        """And its beginning again where steps are looked for, which the program does not mark."""
        log = self.path("memlab.a.memlog")
        subprocess.run([SYNTH, "--events", "300000", "-o", log], check=True, stdout=subprocess.DEVNULL)
        self.report("recover", log, "-o", "memlab.a.json")
        size = {name: os.path.getsize(self.path(name)) for name in ("memlab.a.memlog", "memlab.a.json")}
        for command in (["summary"], ["sites"], ["leaks", "--growth"], ["timeline"], ["histogram"], ["pool"], ["validate"],
                        ["check", "--growth", "1TiB"], ["whatif", "--policy", "lower-bound"], ["oom"],
                        ["timeline", "--at", "20ms"], ["timeline", "--at", "step 3"],
                        ["timeline", "--from", "1ms", "--until", "20ms"], ["export", "--to", "folded", "--at", "20ms"],
                        ["export", "--to", "folded", "--from", "5ms", "--until", "20ms"]):
            for name in size:
                with self.subTest(command=command, name=name), \
                        subprocess.Popen([REPORT, *command, name], cwd=self.folder.name, env=self.environment,
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
                    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
                    try:
                        with open(f"/proc/{process.pid}/io", encoding="ascii") as file:
                            read = int(file.readline().split()[1])
                    except OSError:
                        self.skipTest("the kernel does not count what processes read")
                    log_read = (read - (size[name] if name.endswith(".json") else 0)) / size["memlab.a.memlog"]
                    self.assertLess(log_read, 1.4)

    def test_a_report_that_is_not_there_but_its_log_is(self):
        shutil.copy(LOG, self.path("run.memlog"))
        self.refused("no such file, but its event log is there: give run.memlog", "run.json")

    def test_a_glob_over_a_runs_folder(self):
        shutil.copy(JSON, self.path("memlab.a.1.json"))
        self.write("memlab-run.host.7.json",
                   b'{"format": "memlab-run", "version": 1, "command": ["a"], "host": "host"}')
        files = ["memlab-run.host.7.json", "memlab.a.1.json"]
        self.assertIn("==> memlab.a.1.json <==", self.sites(*files))
        for command in ("sites", "leaks", "tree", "oom"):
            self.report(command, "--no-symbols", *files)

    def test_without_a_file_it_is_the_newest_recording_of_the_folder(self):
        def call(*arguments):
            result = subprocess.run([REPORT, *arguments], cwd=self.folder.name, env=self.environment, text=True,
                                    capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            return result.stdout, result.stderr

        def place(source, name, age):
            shutil.copy(source, self.path(name))
            os.utime(self.path(name), (1e9 - age, 1e9 - age))

        for arguments in ([], ["sites"], ["validate"], ["html", "-o", "page.html"], ["export", "--to", "folded"],
                          ["lines", "train.py"], ["whatif"], ["symbolize", "-o", "named.json"]):
            self.refused("no recording (memlab.*.json, *.memlog) in this folder", *arguments)
        self.refused("no event log (*.memlog) in this folder", "replay")

        place(JSON, "memlab.a.1.json", age=30)
        place(LOG, "memlab.a.1.memlog", age=20)
        place(JSON, "other.json", age=5)  # not by its name
        os.makedirs(self.path("memlab.folder.json"))
        for arguments in (["--no-symbols"], ["sites", "--no-symbols"], ["timeline", "--no-symbols"],
                          ["export", "--to", "folded", "--no-symbols"], ["validate"], ["oom"], ["whatif", "--no-symbols"]):
            printed, said = call(*arguments)
            self.assertEqual(said, "memlab-report: memlab.a.1.json, the newest recording here\n", arguments)
            self.assertEqual(printed, call(*arguments, "memlab.a.1.json")[0])
        self.assertIn("memlab.a.1.memlog, the newest", call("replay")[1])
        place(LOG, "run.memlog.gz", age=10)  # its process is still running, or was killed
        self.assertIn("run.memlog.gz, the newest", call("validate")[1])
        self.assertIn("memlab.a.1.json", call("sites", "--no-symbols", "memlab.a.1.json", "--json")[0])
        self.refused("FILE is required", "check", "--leaks", "0")  # a gate does not guess

        shutil.copytree(RUN, self.path("run"))
        here = [subprocess.run([REPORT, "--no-symbols", *named], cwd=self.path("run"), env=self.environment, text=True,
                               capture_output=True, timeout=60, check=True) for named in ([], ["."])]
        self.assertEqual([each.stderr for each in here], ["memlab-report: this folder's run\n", ""])
        self.assertEqual(here[0].stdout, here[1].stdout)
        self.assertIn("5 processes with CUDA", here[0].stdout)

    def test_lines_are_cut_for_terminals_not_in_pipes(self):
        whole = self.sites(LOG, COLUMNS="")
        narrow = self.sites(LOG, "--width", "80")
        self.assertTrue(all(len(line) <= 80 for line in narrow.splitlines()))
        self.assertEqual(self.sites(LOG, COLUMNS="80"), narrow)
        self.assertEqual(self.sites(LOG, "--width", "80", COLUMNS="200"), narrow)
        self.assertNotIn("…", whole)
        wide = self.on_terminal(REPORT, "diff", "--no-symbols", "--color", "never", LOG, JSON,
                                columns=200, COLUMNS="")
        self.assertIn(LOG, wide)

    def test_did_you_mean(self):
        self.refused("site: no command and no file; did you mean sites?", "site", LOG)
        self.refused("did you mean timeline?", "timelin", LOG)
        self.refused("nothing: no such file", "nothing")
        self.refused("did you mean --sort?", "sites", "--sotr", "live", LOG)
        self.refused("FILE: one is taken here, 2 were given", "timeline", LOG, LOG)


if __name__ == "__main__":
    unittest.main()
