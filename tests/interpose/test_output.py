"""Where reports go and what the options change, end to end."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import socket
import stat
import struct
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from catalogue import CASES
from harness import audit, judge_recordings, run, without_warnings
from support import Build, EndToEnd

MALLOC_FREE = next(case for case in CASES if case.command == ("malloc_free",))


class Output(EndToEnd):
    """Names, folders, and what happens when nothing can be written."""

    def files(self, folder=None) -> list[str]:
        folder = folder or self.output
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def malloc_free(self, settings: dict[str, str] | None = None, to_output: bool = True):
        outcome = self.under_memlab(self.program("malloc_free"), settings, to_output)
        self.assertEqual(outcome.code, 0, outcome.describe())
        self.assertEqual(outcome.stdout, b"101 allocations, 51 frees\n")
        return outcome

    def test_default_is_the_working_directory(self) -> None:
        self.malloc_free(to_output=False)
        names = self.files(self.cwd)
        self.assertEqual(len(names), 2, names)
        self.assertRegex(names[0], r"^memlab\.malloc_free\.\d+\.json$")
        self.assertRegex(names[1], r"^memlab\.malloc_free\.\d+\.memlog$")

    def test_no_files(self) -> None:
        outcome = self.malloc_free({"MEMLAB_FILES": "off"})
        self.assertEqual(outcome.stderr, b"", outcome.describe())
        self.malloc_free({"MEMLAB_FILES": "off"}, to_output=False)
        self.assert_nothing_written()

    def test_pattern(self) -> None:
        pattern = f"{self.output}/deep/er/%e-%p-%h-%r-100%%.json"
        self.malloc_free({"MEMLAB_OUTPUT": pattern, "RANK": "3"})
        (report,) = [name for name in self.files(self.output / "deep" / "er") if name.endswith(".json")]
        host = re.escape(socket.gethostname())
        self.assertRegex(report, rf"^malloc_free-\d+-{host}-3-100%\.json$")

    def test_two_runs_into_one_name(self) -> None:
        settings = {"MEMLAB_OUTPUT": f"{self.output}/same.json"}
        self.malloc_free(settings)
        self.malloc_free(settings)
        found, problems = judge_recordings(self.layout, self.output, MALLOC_FREE.recordings * 2)
        self.assert_sound(problems)
        self.assertEqual(len({one.report["process"]["pid"] for one in found}), 2)

    def test_cannot_be_written(self) -> None:
        elsewhere = self.work / "elsewhere"
        elsewhere.mkdir()
        outcome = self.malloc_free({"MEMLAB_OUTPUT": "/proc/no/such/x.json", "TMPDIR": str(elsewhere)})
        lines = outcome.stderr.decode("utf-8").splitlines()
        self.assertTrue(lines and all(line.startswith("memlab:") for line in lines), lines)
        self.assertIn("/proc/no", lines[0])
        self.assertIn(str(elsewhere), lines[0])
        _, problems = judge_recordings(self.layout, elsewhere, MALLOC_FREE.recordings)
        self.assert_sound(problems)
        for path in elsewhere.iterdir():  # the folder may be everybody's
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600, path)

    def test_files_are_as_readable_as_the_user_wants(self) -> None:
        """Where the place is the user's choice."""
        mask = os.umask(0o022)
        self.addCleanup(os.umask, mask)
        self.malloc_free()
        for path in self.output.iterdir():
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o644, path)

    def test_files_in_a_folder_of_everybodys_are_the_users(self) -> None:
        mask = os.umask(0o022)
        self.addCleanup(os.umask, mask)
        self.output.mkdir()
        self.output.chmod(0o1777)
        self.malloc_free()
        paths = list(self.output.iterdir())
        self.assertEqual(len(paths), 2)
        for path in paths:
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600, path)

    def test_arguments_off(self) -> None:
        """Neither log nor report say what the program was started with."""
        for settings, kept in (({}, True), ({"MEMLAB_ARGUMENTS": "off"}, False)):
            self.output = self.work / str(kept)
            command = self.program("ways_to_end", "return")
            self.assertEqual(self.under_memlab(command, settings).code, 7)
            (written,) = self.output.glob("*.json")
            (log,) = self.output.glob("*.memlog")
            report = json.loads(written.read_text(encoding="utf-8"))
            self.assertEqual(report["process"]["arguments"], command if kept else command[:1])
            self.assertEqual(b"\x06return" in log.read_bytes(), kept)

    def test_killed_after_the_log_stopped(self) -> None:
        """What is left of the process says that its log ends early, why, and how much is missing."""
        counts = self.work / "counts"
        with subprocess.Popen(self.program("confirm", str(counts)), cwd=self.cwd,
                              env=self.layout.environment(memlab=True, output=self.output,
                                                          settings={"MEMLAB_LOG_LIMIT": "64KiB"}),
                              stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            while sum(struct.unpack("QQ", counts.read_bytes())) < 200_000:
                time.sleep(0.01)
            process.kill()
        (log,) = self.output.iterdir()
        self.assertLessEqual(log.stat().st_size, 64 << 10)
        facts, problems = audit(self.layout, log)
        self.assert_sound(problems)
        self.assertEqual(facts["ended"], "cut off")
        self.assertIn("(MEMLAB_LOG_LIMIT)", facts["log_stopped"])
        calls = sum(struct.unpack("QQ", counts.read_bytes()))
        self.assertGreaterEqual(facts["events"] + facts["dropped"], calls)

    def test_views_of_a_log_with_a_ring_say_what_they_have(self) -> None:
        views = (["timeline"], ["timeline", "--json"], ["pool"], ["pool", "--json"], ["lines", "confirm.cpp"],
                 ["whatif", "--policy", "pool"], ["inefficiencies"], ["export", "--to", "csv", "-o", str(self.work / "out.csv")],
                 ["export", "--to", "perfetto", "-o", str(self.work / "out.pftrace")])
        for limit, events, has_gap in (("8MiB", 4_000_000, True), ("64MiB", 20_000, False)):
            output, counts = self.work / limit, self.work / f"counts{limit}"
            with subprocess.Popen(self.program("confirm", str(counts)), cwd=self.cwd,
                                  env=self.layout.environment(memlab=True, output=output,
                                                              settings={"MEMLAB_LOG_LIMIT": limit}),
                                  stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                process.stdout.readline()
                while sum(struct.unpack("QQ", counts.read_bytes())) < events:
                    time.sleep(0.01)
                process.kill()
            (log,) = output.iterdir()
            for view in views:
                outcome = run([str(self.layout.tool("memlab-report")), *view, str(log)],
                              self.layout.environment(memlab=False), self.work)
                self.assertEqual(outcome.code, 0, outcome.describe())
                self.assertEqual(b"MEMLAB_LOG_LIMIT" in outcome.stdout + outcome.stderr, has_gap, outcome.describe())
            copy = self.work / f"copy{limit}.memlog"
            outcome = run([str(self.layout.tool("memlab-report")), "anonymize", str(log), "-o", str(copy)],
                          self.layout.environment(memlab=False), self.work)
            self.assertEqual(outcome.code, 0, outcome.describe())
            sums = [run([str(self.layout.tool("memlab-report")), "export", "--to", "csv", "--level", "driver", str(each)],
                        self.layout.environment(memlab=False), self.work).stdout for each in (log, copy)]
            self.assertEqual(sums[0], sums[1])
            self.assertEqual([audit(self.layout, each)[0]["events"] for each in (log, copy)],
                             [audit(self.layout, log)[0]["events"]] * 2)
            for target in ("csv", "perfetto", "pytorch"):  # before the gap nothing is missing except the end
                outcome = run([str(self.layout.tool("memlab-report")), "export", "--to", target, "--until", "1ms",
                               "-o", str(self.work / target), str(log)], self.layout.environment(memlab=False), self.work)
                self.assertEqual(outcome.code, 0, outcome.describe())
                self.assertNotIn(b"keeps its beginning", outcome.stderr)
                # Under load the log may end before its first checkpoint is complete.
                self.assertRegex(outcome.stderr, b"without an end|recording stopped after")

    def test_where_a_thread_writes_the_log(self) -> None:
        """On a file system whose pages may not be mapped safely: the same recording, and no write for
        each event."""
        script = self.work / "on_ramfs.sh"
        script.write_text('mount -t ramfs memlab "$1" || exit 77\n'
                          'disk=$1; kept=$2; shift 2\n"$@"; code=$?\n'
                          'cp -r "$disk" "$kept"; exit $code\n', encoding="utf-8")
        if shutil.which("unshare") is None:
            self.skipTest("there is no unshare here to mount with")
        for case in (MALLOC_FREE, next(case for case in CASES if case.command == ("threads",))):
            disk, kept = self.work / f"disk{case.command[0]}", self.work / f"kept{case.command[0]}"
            disk.mkdir()
            environment = self.layout.environment(memlab=True, output=disk)
            preload = environment.pop("LD_PRELOAD")
            outcome = run(["unshare", "-rm", "sh", str(script), str(disk), str(kept), "env",
                           f"LD_PRELOAD={preload}", *self.program(*case.command)],
                          environment, self.cwd)
            if outcome.code in (1, 77) and not outcome.stdout:
                self.skipTest(f"mounting is not permitted here: {outcome.stderr!r}")
            self.assertEqual((outcome.code, outcome.stderr), (case.code, b""), outcome.describe())
            _, problems = judge_recordings(self.layout, kept, case.recordings)
            self.assert_sound(problems)

    def test_a_handler_that_exits_leaves_a_log(self) -> None:
        """Whatever it interrupted: a report, or a log without one."""
        outcome = self.under_memlab(self.program("interrupted", "exit", "10"))
        self.assertEqual(outcome.code, 0, outcome.describe())
        logs = list(self.output.glob("*.memlog"))
        self.assertEqual(len(logs), 10)
        for log in logs:
            facts, problems = audit(self.layout, log)
            self.assert_sound(problems)
            if log.with_suffix(".json").exists():
                self.assertEqual(facts["ended"], "exit")

    def test_a_handler_that_exits_from_a_wait_leaves_a_report(self) -> None:
        """Most handlers come while their program waits: nothing is in the way of a report."""
        outcome = self.under_memlab(self.program("interrupted", "waiting", "3"))
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        self.assertEqual(len(list(self.output.glob("*.json"))), 3)

    def test_nvtx_without_the_preload(self) -> None:
        """NVTX loads the library by itself where LD_PRELOAD is gone: it records nothing, as nothing of
        CUDA comes by."""
        command = self.program("nvtx_ranges")
        environment = self.layout.environment(memlab=False, settings={
            "NVTX_INJECTION64_PATH": str(self.layout.library), "MEMLAB_OUTPUT": f"{self.output}/"})
        outcome = run(command, environment, self.cwd)
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        self.assertEqual(outcome.stdout, self.without_memlab(command).stdout)
        self.assert_nothing_written()

    def test_keep_log_off(self) -> None:
        self.malloc_free({"MEMLAB_KEEP_LOG": "0"})
        self.assertEqual([name.rsplit(".", 1)[1] for name in self.files()], ["json"])

    def test_keep_log_off_keeps_it_after_a_kill(self) -> None:
        self.under_memlab(self.program("ways_to_end", "sigkill"), {"MEMLAB_KEEP_LOG": "0"})
        self.assertEqual([name.rsplit(".", 1)[1] for name in self.files()], ["memlog"])

    def test_off(self) -> None:
        for settings in ({"MEMLAB_DISABLE": "1"}, {"MEMLAB_RECORD": "off"}):
            self.assertEqual(self.malloc_free(settings).stderr, b"")
            self.assertEqual(self.files(), [], settings)

    def test_pool_off(self) -> None:
        self.malloc_free({"MEMLAB_POOL": "off"})
        found, problems = judge_recordings(self.layout, self.output, MALLOC_FREE.recordings)
        self.assert_sound(problems)
        facts = found[0].audit
        self.assertEqual(facts["kinds"]["device"]["by_pool"]["count"], 0)
        self.assertEqual(facts["segments"]["allocs"]["count"], 0)

    def test_pool_on_is_what_serves(self) -> None:
        self.malloc_free()
        found, problems = judge_recordings(self.layout, self.output, MALLOC_FREE.recordings)
        self.assert_sound(problems)
        facts = found[0].audit
        self.assertEqual(facts["kinds"]["device"]["by_pool"]["count"], 101)
        self.assertLess(facts["segments"]["allocs"]["count"], 10)

    def test_log_limit(self) -> None:
        self.malloc_free({"MEMLAB_LOG_LIMIT": "2048"})
        (name,) = [name for name in self.files() if name.endswith(".json")]
        report = json.loads((self.output / name).read_text(encoding="utf-8"))
        self.assertEqual(report["devices"][0]["kinds"]["device"]["count"], 101)
        self.assertGreater(report["log"]["dropped"], 0)
        self.assertNotEqual(report["log"]["stopped_because"], "")
        (log,) = [name for name in self.files() if name.endswith(".memlog")]
        self.assertLessEqual((self.output / log).stat().st_size, 2048)
        facts, problems = audit(self.layout, self.output / log)
        self.assert_sound(problems)
        self.assertEqual(report["log"]["events"], facts["events"] + report["log"]["dropped"])

    def test_file_size_limit_set_meanwhile(self) -> None:
        """RLIMIT_FSIZE below what the log has already: no signal ends the program, the report that
        cannot be written is told of, and the log has everything."""
        with subprocess.Popen(self.program("idle", "400"), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, cwd=self.cwd,
                              env=self.layout.environment(memlab=True, output=self.output)) as process:
            assert process.stdout is not None
            process.stdout.readline()
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (100, 100))
            _, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, stderr)
        self.assertEqual(without_warnings(stderr), b"")
        self.assertIn(b"the event log", stderr)
        self.assertEqual(list(self.output.glob("*.json")), [])
        (log,) = self.output.glob("*.memlog")
        facts, problems = audit(self.layout, log)
        self.assert_sound(problems)
        self.assertEqual(facts["kinds"]["device"]["allocs"]["count"], 2)

    def test_full_disk(self) -> None:
        """A log that fills its disk: no SIGBUS ends the program, the log says how much is missing, and
        nobody is told that it has everything."""
        disk, kept, script = self.work / "disk", self.work / "kept", self.work / "on_disk.sh"
        script.write_text('mount -t tmpfs -o size=128k memlab "$1" || exit 77\n'
                          'disk=$1; kept=$2; shift 2\n"$@"; code=$?\n'
                          'cp -r "$disk" "$kept"; exit $code\n', encoding="utf-8")
        disk.mkdir()
        if shutil.which("unshare") is None:
            self.skipTest("there is no unshare here to mount a small disk with")
        elsewhere = self.work / "elsewhere"
        elsewhere.mkdir()
        environment = self.layout.environment(memlab=True, output=disk,
                                              settings={"TMPDIR": str(elsewhere)})
        preload = environment.pop("LD_PRELOAD")
        outcome = run(["unshare", "-rm", "sh", str(script), str(disk), str(kept), "env",
                       f"LD_PRELOAD={preload}", *self.program("storm", "8" if Build.sanitizer == "thread" else "1", "4", "200")],
                      environment, self.cwd)
        if outcome.code in (1, 77) and not outcome.stdout:
            self.skipTest(f"mounting a small disk is not permitted here: {outcome.stderr!r}")
        self.assertEqual(outcome.code, 0, outcome.describe())
        self.assertIn(b"could not grow beyond", outcome.stderr)
        self.assertIn(b" holds what came before it stopped: memlab-report reads it", outcome.stderr)
        (written,) = elsewhere.iterdir()
        self.assertIn(f"No space left on device; it is {written} instead", outcome.stderr.decode("utf-8"))
        self.assertEqual(stat.S_IMODE(written.stat().st_mode), 0o600)
        report = json.loads(written.read_text(encoding="utf-8"))
        (log,) = kept.iterdir()
        facts, problems = audit(self.layout, log)
        self.assert_sound(problems)
        self.assertGreater(facts["dropped"], 0)
        self.assertEqual(report["log"]["dropped"], facts["dropped"])
        self.assertEqual(report["log"]["stopped_because"], facts["log_stopped"])
        self.assertEqual(facts["ended"], "exit")
        # An alloc is one event and a free is one or two, so events are no count of calls.
        allocs, frees = (int(word) for word in outcome.stdout.split() if word.isdigit())
        self.assertLess(facts["kinds"]["device"]["allocs"]["count"], allocs)
        self.assertGreaterEqual(facts["events"] + facts["dropped"], allocs + frees)

    def test_log_that_is_removed_or_renamed_meanwhile(self) -> None:
        """What happens to the log's name is nothing to the program, nor to its report."""
        for change in (lambda log: log.unlink(), lambda log: log.rename(log.with_suffix(".moved"))):
            with subprocess.Popen(self.program("idle", "400"), stdout=subprocess.PIPE,
                                  env=self.layout.environment(memlab=True, output=self.output),
                                  cwd=self.cwd) as process:
                assert process.stdout is not None
                process.stdout.readline()
                (log,) = self.output.glob("*.memlog")
                change(log)
                process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)
            (written,) = self.output.glob("*.json")
            report = json.loads(written.read_text(encoding="utf-8"))
            self.assertEqual(report["log"]["dropped"], 0)
            for moved in self.output.glob("*.moved"):
                facts, problems = audit(self.layout, moved)
                self.assert_sound(problems)
                self.assertEqual(facts["events"], report["log"]["events"])
            written.unlink()

    def test_no_thread_of_memlabs_own(self) -> None:
        """Where cached memory is kept, nobody is answered and there is no ledger; else one for each, that of the ledger
        as long as NVML can be asked."""
        # Beside the first thread that is made, ThreadSanitizer makes one of its own.
        with_one = 3 if Build.sanitizer == "thread" else 2
        none = {"MEMLAB_LEDGER": "off", "MEMLAB_LIVE": "off"}
        for settings, threads in ((none, 1), (none | {"MEMLAB_TRIM_AFTER": "50ms"}, with_one),
                                  (none | {"MEMLAB_LIVE": "on"}, with_one), ({"MEMLAB_LIVE": "off"}, with_one)):
            with subprocess.Popen(self.program("idle", "300"), stdout=subprocess.PIPE,
                                  env=self.layout.environment(memlab=True, output=self.output,
                                                              settings=settings),
                                  cwd=self.cwd) as process:
                assert process.stdout is not None
                process.stdout.readline()
                names = list(Path(f"/proc/{process.pid}/task").iterdir())
                process.communicate(timeout=60)
            self.assertEqual(len(names), threads, settings)

    def test_stacks_of_memlabs_threads_are_its_own(self) -> None:
        """Where the program's threads get 1 GiB each (ulimit -s), which mlockall would lock: not memlab's."""
        gib = 1 << 30
        if Build.sanitizer or resource.getrlimit(resource.RLIMIT_STACK)[1] not in (resource.RLIM_INFINITY, -1):
            self.skipTest("the limit of the stack cannot be set, or does not tell")
        with subprocess.Popen(["sh", "-c", 'ulimit -s 1048576; exec "$@"', "sh", *self.program("idle", "300")],
                              stdout=subprocess.PIPE, cwd=self.cwd,
                              env=self.layout.environment(memlab=True, output=self.output,
                                                          settings={"MEMLAB_TRIM_AFTER": "50ms"})) as process:
            assert process.stdout is not None
            process.stdout.readline()
            threads = len(list(Path(f"/proc/{process.pid}/task").iterdir()))
            mappings = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8").splitlines()
            process.communicate(timeout=60)
        self.assertGreater(threads, 1)
        sizes = [int(end, 16) - int(begin, 16)
                 for begin, end in (line.split()[0].split("-") for line in mappings if " rw-p " in line)]
        self.assertEqual([size for size in sizes if size > gib // 2], [])

    def test_stack_depth(self) -> None:
        for depth in (0, 2):
            self.output = self.work / f"depth{depth}"
            self.malloc_free({"MEMLAB_STACK_DEPTH": str(depth)})
            found, problems = judge_recordings(self.layout, self.output, MALLOC_FREE.recordings)
            self.assert_sound(problems)
            self.assertEqual(found[0].audit["deepest_stack"], depth)

    def test_stacks_beyond_the_limit_are_folded(self) -> None:
        self.malloc_free({"MEMLAB_MAX_STACKS": "1"})
        expected = tuple(replace(one, missed=1) for one in MALLOC_FREE.recordings)
        found, problems = judge_recordings(self.layout, self.output, expected)
        self.assert_sound(problems)
        report = found[0].report
        self.assertIn("more than 1 different call stacks (MEMLAB_MAX_STACKS)",
                      report["missed"][0]["reason"])
        self.assertGreater(len(report["stacks"]), 2)
        for stack in report["stacks"][2:]:  # the first is none, the second whole
            self.assertTrue(stack["truncated"])
            self.assertLessEqual(len(stack["frames"]), 8)

    def test_wrong_option(self) -> None:
        outcome = self.malloc_free({"MEMLAB_POOL": "perhaps", "MEMLAB_NO_SUCH_THING": "1"})
        text = outcome.stderr.decode("utf-8")
        self.assertIn("MEMLAB_POOL", text)
        self.assertIn("MEMLAB_NO_SUCH_THING", text)
        self.assertEqual(without_warnings(outcome.stderr), b"")
        _, problems = judge_recordings(self.layout, self.output, MALLOC_FREE.recordings)
        self.assert_sound(problems)

    def test_wrong_option_in_a_bystander_is_not_mentioned(self) -> None:
        outcome = self.under_memlab(self.program("no_cuda"), {"MEMLAB_POOL": "perhaps"})
        self.assertEqual((outcome.code, outcome.stderr), (0, b""))
        self.assert_nothing_written()

    def test_quiet(self) -> None:
        outcome = self.malloc_free({"MEMLAB_POOL": "perhaps", "MEMLAB_VERBOSITY": "quiet"})
        self.assertEqual(outcome.stderr, b"")

    def test_ranks_are_in_the_report(self) -> None:
        self.malloc_free({"RANK": "5", "WORLD_SIZE": "8"})
        found, problems = judge_recordings(self.layout, self.output, MALLOC_FREE.recordings)
        self.assert_sound(problems)
        self.assertEqual(found[0].report["process"]["ranks"].get("RANK"), "5")

