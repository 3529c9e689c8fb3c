"""Where memlab finds less than it needs, or nothing of what it is for: containers, other libcs, programs that load no
libraries. Each program does what it does without memlab.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import unittest
from pathlib import Path

from harness import Outcome, judge_recordings, recordings_in, without_warnings
from support import Build, EndToEnd
from test_output import MALLOC_FREE

PRINTS = """
#include <stdio.h>
int main(int count, char** words) {
    for (int i = 1; i < count; ++i)
        puts(words[i]);
    return 7;
}
"""

OVERRUNS = """
#include <stdio.h>
#include <stdlib.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void**, int), cuCtxSetCurrent(void*);
int cuMemAlloc_v2(unsigned long long*, size_t), cuMemFree_v2(unsigned long long);
int main(int count, char** words) {
    void* context;
    unsigned long long address;
    char* text = malloc(10);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuMemAlloc_v2(&address, 10000) || cuMemFree_v2(address))
        return 3;
    puts("done");
    fflush(stdout);
    text[count > 1 ? 10 : 9] = words[0][0];
    free(text);
    return 0;
}
"""

# Starts a program and a child that outlives it, and never waits for what it inherits.
PID_1_THAT_DOES_NOT_REAP = """
import os, subprocess, sys, time
shell = subprocess.Popen(["sh", "-c", '"$@" & "$@" & exec "$@"', "sh", *sys.argv[1:]])
time.sleep(0.2)
code = shell.wait()
deadline = time.time() + 30
while time.time() < deadline:
    alive = [name for name in os.listdir("/proc") if name.isdigit() and int(name) > 1
             and open(f"/proc/{name}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"]
    if not alive:
        break
    time.sleep(0.05)
print("zombies and all:", code)
"""


def loaders_lines(stderr: bytes) -> list[bytes]:
    return [line for line in stderr.splitlines() if line.startswith(b"ERROR: ld.so: object ")]


@unittest.skipIf(Build.sanitizer, "a sanitizer's runtime must be preloaded first")
class Surroundings(EndToEnd):
    """Programs that memlab is not for, and places where it can do little."""

    def compiled(self, *options: str, compiler: str = "cc", source: str = PRINTS, driver: bool = False) -> str:
        if driver:
            options += (f"-L{self.layout.library_path[0]}", "-l:libcuda.so.1")
        if shutil.which(compiler) is None:
            self.skipTest(f"there is no {compiler} here")
        path = str(self.work / "prints")
        built = subprocess.run([compiler, "-x", "c", "-", "-o", path, *options], input=source, text=True,
                               capture_output=True, check=False)
        if built.returncode != 0:
            self.skipTest(f"{compiler} {' '.join(options)} does not work here: {built.stderr.splitlines()[-1]}")
        return path

    def unchanged(self, command: list[str], settings: dict[str, str] | None = None) -> Outcome:
        """Runs it both ways. What the loader says of a preload that it leaves out is its own."""
        native = self.without_memlab(command)
        under = self.under_memlab(command, settings)
        own = b"".join(line + b"\n" for line in under.stderr.splitlines()
                       if line not in loaders_lines(under.stderr))
        self.assertEqual((native.code, native.stdout, native.stderr), (under.code, under.stdout, own))
        self.assert_nothing_written()
        return under

    def test_a_preload_that_is_not_there(self) -> None:
        for command in (["sh", "-c", "echo one; ls / | wc -l; exit 3"], self.program("malloc_free")):
            under = self.unchanged(command, {"LD_PRELOAD": "/not/mounted/libmemlab.so"})
            self.assertGreaterEqual(len(loaders_lines(under.stderr)), 1)
            self.assertIn(b": ignored.", under.stderr)

    def test_a_preload_that_cannot_be_read(self) -> None:
        # (Of one that is cut off the loader maps what is not there, and ends by SIGBUS.)
        for text in (b"", b"no library", b"\x7fELF" + bytes(4096)):
            broken = self.work / "libmemlab.so"
            broken.write_bytes(text)
            self.unchanged(self.program("malloc_free"), {"LD_PRELOAD": str(broken)})

    def test_another_libc(self) -> None:
        program = self.compiled(compiler="musl-gcc")
        under = self.unchanged([program, "musl"])
        self.assertEqual((under.code, under.stdout, under.stderr), (7, b"musl\n", b""))
        self.unchanged(["sh", "-c", f"{program} child of a shell; {program} again"])
        # A musl program that starts one of glibc: that one is recorded.
        self.under_memlab(["sh", "-c", f"{program}; exec {self.layout.program('malloc_free')}"])
        self.assertEqual(len(recordings_in(self.layout, self.output)[0]), 1)

    def test_a_static_program(self) -> None:
        program = self.compiled("-static")
        self.assertEqual(self.unchanged([program, "static"]).stderr, b"")

    def test_a_set_user_id_program(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("only root can give a file to another user")
        program = Path(self.compiled())
        os.chown(program, 65534, 65534)
        self.work.chmod(0o755)
        program.chmod(0o6755)
        under = self.unchanged([str(program), "privileged"])
        self.assertEqual((under.code, under.stdout), (7, b"privileged\n"))

    def test_a_program_built_with_thread_sanitizer(self) -> None:
        """What it finds is the program's: memlab's memory passes between threads without a lock."""
        program = self.program("peers_end_tsan", "reused")
        if not Path(program[0]).exists():
            self.skipTest("it is built with GCC only")
        native = self.without_memlab(program)
        if native.code != 0:
            self.skipTest(f"ThreadSanitizer does not work here: {native.describe()}")
        under = self.under_memlab(program)
        self.assertEqual((under.code, under.stdout, under.stderr), (0, native.stdout, b""), under.describe())

    def test_memlab_run_of_a_program_built_with_address_sanitizer(self) -> None:
        """GCC's runtime, and Clang's where it is shared, ends a program that has another library before it."""
        memlab_run = self.layout.tool("memlab-run")
        if not memlab_run.exists():
            self.skipTest("memlab-run is not built")
        program = self.compiled("-fsanitize=address", source=OVERRUNS, driver=True)
        own = {"ASAN_OPTIONS": "exitcode=99:detect_leaks=0"}
        native = self.without_memlab([program], own)
        if native.code != 0:
            self.skipTest(f"AddressSanitizer does not work here: {native.describe()}")
        for settings in ({}, own):
            for arguments, code in (([], 0), (["overrun"], settings and 99 or 1)):
                with self.subTest(settings=settings, arguments=arguments):
                    shutil.rmtree(self.output, ignore_errors=True)
                    under = self.without_memlab([str(memlab_run), "--no-report", "-o", f"{self.output}/", "--", program,
                                                 *arguments], settings)
                    self.assertEqual((under.code, under.stdout), (code, native.stdout), under.describe())
                    self.assertEqual(b"heap-buffer-overflow" in under.stderr, bool(arguments), under.describe())
                    if not arguments:
                        found, problems = recordings_in(self.layout, self.output)
                        found = [each for each in found if each.log is not None]
                        self.assertEqual((len(found), problems), (1, []))
                        self.assertEqual(found[0].report["devices"][0]["kinds"]["device"]["count"], 1)

    def test_the_doctor_sees_address_sanitizer(self) -> None:
        memlab_run = self.layout.tool("memlab-run")
        if not memlab_run.exists():
            self.skipTest("memlab-run is not built")
        program = self.compiled("-fsanitize=address", source=OVERRUNS, driver=True)
        outcome = self.without_memlab([str(memlab_run), "--doctor", "--json", "--", program],
                                      {"ASAN_OPTIONS": "halt_on_error=1"})
        found = [each for each in json.loads(outcome.stdout)["command"] if each["subject"] == "AddressSanitizer"]
        self.assertEqual(len(found), 1, outcome.describe())
        self.assertIn("libasan.so", found[0]["fact"])
        self.assertIn("ASAN_OPTIONS=halt_on_error=1:verify_asan_link_order=0", found[0]["advice"])

    def test_memlab_run_of_programs_that_it_cannot_record(self) -> None:
        memlab_run = self.layout.tool("memlab-run")
        if not memlab_run.exists():
            self.skipTest("memlab-run is not built")
        for options, compiler in ((("-static",), "cc"), ((), "musl-gcc")):
            with self.subTest(compiler=compiler):
                program = self.compiled(*options, compiler=compiler)
                outcome = self.without_memlab([str(memlab_run), "--", program, "one"])
                self.assertEqual((outcome.code, outcome.stdout), (7, b"one\n"), outcome.describe())
                self.assertIn(b"no process of this run used CUDA", outcome.stderr)


@unittest.skipIf(Build.sanitizer, "a sanitizer's runtime must be preloaded first")
class Namespaces(EndToEnd):
    """Containers, as unshare makes them."""

    def unshared(self, *options: str) -> list[str]:
        """The command that makes namespaces; as root in them, whoever we are."""
        if shutil.which("unshare") is None:
            self.skipTest("there is no unshare here")
        prefix = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), *options]
        probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
        if probe.returncode != 0:
            self.skipTest(f"{' '.join(prefix)}: {probe.stderr.decode().strip()}")
        return prefix

    def read_only(self, script: str) -> list[str]:
        """`script` runs its arguments where the root is read-only."""
        return [*self.unshared("--mount"), "sh", "-c",
                f"mount --bind / / && mount -o remount,bind,ro / && {script} && exec \"$@\"", "sh"]

    def both_ways(self, prefix: list[str], program: list[str], settings: dict[str, str] | None = None) -> Outcome:
        """The program in there with and without memlab; what memlab says is left to the test."""
        native = self.without_memlab([*prefix, *program])
        if native.code != 0:
            self.skipTest(f"{' '.join(prefix)} does not work here: {native.describe()}")
        under = self.under_memlab([*prefix, *program], settings)
        self.assertEqual((native.code, native.stdout, native.stderr),
                         (under.code, under.stdout, without_warnings(under.stderr)))
        return under

    def test_namespaces_of_each_kind(self) -> None:
        for options in (["--user"], ["--user", "--map-root-user"], ["--net"], ["--uts"], ["--ipc"],
                        ["--pid", "--fork"], ["--pid", "--fork", "--mount-proc"],
                        ["--user", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--ipc"]):
            with self.subTest(options):
                shutil.rmtree(self.output, ignore_errors=True)
                if "--user" in options and os.geteuid() == 0:
                    self.work.chmod(0o755)
                under = self.both_ways(self.unshared(*options), self.program("malloc_free"))
                self.assertEqual(under.stderr, b"")
                _, problems = judge_recordings(self.layout, self.output, MALLOC_FREE.recordings)
                self.assert_sound(problems)

    def test_a_read_only_root(self) -> None:
        # Nothing is kept, one line says so, and the program does not notice.
        under = self.both_ways(self.read_only("true"), self.program("malloc_free"))
        lines = under.stderr.splitlines()
        self.assertEqual(len(lines), 1, under.describe())
        self.assertIn(b"Read-only file system", lines[0])
        self.assertIn(b"nothing will be written (set MEMLAB_OUTPUT", lines[0])
        self.assert_nothing_written()

    def test_a_read_only_root_with_a_folder_for_temporary_files(self) -> None:
        scratch = self.work / "scratch"
        scratch.mkdir()
        program = self.program("malloc_free")
        prefix = self.read_only(f"mount -t tmpfs none {scratch}")
        list_it = f"\"$@\" && ls {scratch}"
        under = self.under_memlab([*prefix, "sh", "-c", list_it, "sh", *program],
                                  {"TMPDIR": str(scratch)})
        self.assertEqual(under.code, 0, under.describe())
        self.assertRegex(under.stdout.decode(), r"memlab\.malloc_free\.\d+\.json\nmemlab\.malloc_free\.\d+\.memlog\n")
        self.assertIn(f"writing {scratch}/memlab.".encode(), under.stderr)

    def test_no_folder_that_can_be_written(self) -> None:
        program = self.program("malloc_free")
        native = self.without_memlab(program)
        under = self.under_memlab(program, {"MEMLAB_OUTPUT": "/proc/memlab/", "TMPDIR": "/proc/none"})
        self.assertEqual((native.code, native.stdout), (under.code, under.stdout))
        self.assertEqual(len(under.stderr.splitlines()), 1)
        self.assertIn(b"nothing will be written", under.stderr)
        self.assert_nothing_written()

    def test_without_proc(self) -> None:
        prefix = [*self.unshared("--mount"), "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"]
        under = self.both_ways(prefix, self.program("malloc_free"))
        self.assertEqual(under.stderr, b"")
        self.assertEqual(len(list(self.output.glob("*.json"))), 1)

    def test_pid_1_that_does_not_reap(self) -> None:
        prefix = self.unshared("--pid", "--fork", "--mount-proc")
        under = self.under_memlab([*prefix, "python3", "-c", PID_1_THAT_DOES_NOT_REAP,
                                   *self.program("malloc_free")])
        self.assertEqual((under.code, under.stderr), (0, b""), under.describe())
        self.assertTrue(under.stdout.endswith(b"zombies and all: 0\n"), under.describe())
        _, problems = judge_recordings(self.layout, self.output, MALLOC_FREE.recordings * 3)
        self.assert_sound(problems)

    def test_the_program_as_pid_1(self) -> None:
        prefix = self.unshared("--pid", "--fork", "--mount-proc", "--kill-child")
        under = self.both_ways(prefix, self.program("malloc_free"))
        self.assertEqual(under.stderr, b"")
        self.assertEqual([path.name for path in sorted(self.output.iterdir())],
                         ["memlab.malloc_free.1.json", "memlab.malloc_free.1.memlog"])

    def test_memlab_run_as_pid_1(self) -> None:
        memlab_run = self.layout.tool("memlab-run")
        if not memlab_run.exists():
            self.skipTest("memlab-run is not built")
        prefix = [*self.unshared("--pid", "--fork", "--mount-proc", "--kill-child"), str(memlab_run),
                  "-o", f"{self.output}/", "--"]
        # The code is passed through, and orphans are reaped while the command runs.
        script = ("(sleep 0.2 & sleep 0.1 &) ; \"$@\" ; sleep 0.6; "
                  "echo zombies: $(grep -l '^State:.Z' /proc/[0-9]*/status | wc -l); exit 5")
        outcome = self.without_memlab([*prefix, "sh", "-c", script, "sh", *self.program("malloc_free")])
        self.assertEqual(outcome.code, 5, outcome.describe())
        self.assertIn(b"zombies: 0\n", outcome.stdout)
        self.assertEqual(len(list(self.output.glob("memlab.malloc_free.*.json"))), 1)
        # Killed: memlab-run as pid 1 cannot end by a signal, so it ends with the shell's code for it.
        outcome = self.without_memlab([*prefix, "sh", "-c", "kill -KILL $$"])
        self.assertEqual(outcome.code, 128 + 9, outcome.describe())

    def test_memlab_run_where_it_can_write_nothing(self) -> None:
        memlab_run = self.layout.tool("memlab-run")
        if not memlab_run.exists():
            self.skipTest("memlab-run is not built")
        prefix = [*self.read_only("true"), str(memlab_run), "--"]
        native = self.without_memlab(self.program("malloc_free"))
        outcome = self.without_memlab([*prefix, *self.program("malloc_free")])
        self.assertEqual((outcome.code, outcome.stdout), (native.code, native.stdout), outcome.describe())
        self.assertLessEqual(len(outcome.stderr.splitlines()), 3, outcome.describe())

    def test_the_doctor_sees_it(self) -> None:
        memlab_run = self.layout.tool("memlab-run")
        if not memlab_run.exists():
            self.skipTest("memlab-run is not built")
        outcome = self.without_memlab([*self.read_only("true"), str(memlab_run), "--doctor", "--json"])
        self.assertEqual(outcome.code, 1, outcome.describe())
        output = [each for each in json.loads(outcome.stdout)["environment"] if each["subject"] == "output"]
        self.assertEqual(output[0]["weight"], "blocked")
        self.assertIn("Read-only file system", output[0]["fact"])

