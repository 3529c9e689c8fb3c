"""Programs that have nothing to do with CUDA, under the preload: the same output and exit code, no
files, no threads, no open files, nothing on stderr.
"""

from __future__ import annotations

from support import ROOT, Build, EndToEnd


class Bystanders(EndToEnd):
    """Each test runs one command both ways."""

    def unchanged(self, *command: str) -> None:
        native = self.without_memlab(list(command))
        under = self.under_memlab(list(command))
        self.assertIsNotNone(native.code, native.describe())
        self.assertEqual((native.code, native.stdout, native.stderr),
                         (under.code, under.stdout, under.stderr))
        self.assert_nothing_written()

    def test_shell_pipe(self) -> None:
        self.unchanged("bash", "-c", "ls / | sort; exit 3")

    def test_shell_with_curl(self) -> None:
        self.require_installed("curl")
        if Build.sanitizer:
            self.skipTest("curl does not start with a sanitizer's runtime preloaded")
        self.unchanged("bash", "-c", "ls / | sort | curl --version")

    def test_shell_substitution_and_signals(self) -> None:
        self.unchanged("bash", "-c", 'trap "echo trapped" TERM; kill -TERM $$; echo $(echo $(echo deep))')

    def test_threads_and_open_files(self) -> None:
        self.unchanged("bash", "-c", "ls /proc/self/task | wc -l; ls /proc/self/fd | wc -l")
        self.unchanged(*self.program("no_cuda"))

    def test_signal_dispositions(self) -> None:
        # Not SigQ: it counts the signals queued for all of this user's processes.
        self.unchanged("grep", "-E", "Sig(Blk|Ign|Cgt)", "/proc/self/status")

    def test_make(self) -> None:
        self.require_installed("make")
        (self.work / "makefile").write_text(
            "all: one two\n.PHONY: all one two\none:\n\t@echo one\ntwo: one\n\t@sh -c 'echo two'\n", encoding="ascii")
        self.unchanged("make", "-s", "-j2", "--output-sync", "-f", str(self.work / "makefile"), "one",
                       "two")

    def test_git(self) -> None:
        self.require_installed("git")
        self.unchanged("git", "--version")
        self.unchanged("git", "-c", "safe.directory=*", "-C", str(ROOT), "rev-parse", "--is-inside-work-tree")

    def test_python(self) -> None:
        self.unchanged("python3", "-c", "pass")
        self.unchanged("python3", "-c", "import ctypes, threading, subprocess; "
                       "print(threading.active_count(), subprocess.call(['true']))")

    def test_python_finds_no_driver_that_is_not_there(self) -> None:
        self.unchanged("python3", "-c", "import ctypes; p = ctypes.CDLL(None); "
                       "print(hasattr(p, 'cuInit'), hasattr(p, 'cuMemAlloc_v2'), hasattr(p, 'strlen'))")

    def test_a_program_that_does_not_exist(self) -> None:
        self.unchanged("bash", "-c", "no-such-program-anywhere")

    def test_static_and_setuid_like_loading(self) -> None:
        self.unchanged("env", "-i", "/bin/true")
