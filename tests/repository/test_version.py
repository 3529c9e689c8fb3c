#!/usr/bin/env python3
"""memlab's version is that of the git tag, and CMakeLists.txt's where there is none (cmake/MemlabVersion.cmake)."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "cmake" / "MemlabVersion.cmake"
GIT = shutil.which("git")


class VersionTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="memlab-version.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def git(self, where, *arguments):
        # Neither the tester's configuration nor the repository in whose hook this may run.
        return subprocess.run(
            [GIT, "-C", where, "-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false",
             "-c", "tag.gpgsign=false", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *arguments],
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1"},
            check=True, capture_output=True, text=True).stdout.strip()

    def version(self, source, git=GIT):
        output = self.folder / "own_version.cpp"
        subprocess.run(["cmake", f"-DSOURCE={source}", "-DFALLBACK=0.9.0", f"-DGIT={git}", f"-DOUTPUT={output}",
                        "-P", SCRIPT], check=True, capture_output=True)
        return re.search(r'own_version = "(.*)";', output.read_text(encoding="utf-8")).group(1)

    def commit(self, where):
        self.git(where, "commit", "--quiet", "--allow-empty", "--message", "a commit")

    def repository(self, name="source"):
        source = self.folder / name
        source.mkdir()
        self.git(source, "init", "--quiet")
        (source / "file").write_text("text", encoding="utf-8")
        self.git(source, "add", "file")
        self.commit(source)
        return source

    def behind(self, source, count):
        return f"1.2.3+{count}.g{self.git(source, 'rev-parse', '--short=7', 'HEAD')}"


@unittest.skipUnless(GIT, "git is not installed")
class WithGit(VersionTest):
    def test_of_a_tag_and_of_what_comes_after(self):
        for arguments in (("v1.2.3",), ("--annotate", "--message", "memlab 1.2.3", "v1.2.3")):
            with self.subTest(arguments=arguments):
                source = self.repository("source" + str(len(arguments)))
                self.assertEqual(self.version(source), "0.9.0")
                self.git(source, "tag", *arguments)
                self.assertEqual(self.version(source), "1.2.3")
                self.commit(source)
                self.assertEqual(self.version(source), self.behind(source, 1))
                self.commit(source)
                self.assertEqual(self.version(source), self.behind(source, 2))
                self.git(source, "tag", "v1.3.0")
                self.assertEqual(self.version(source), "1.3.0")

    def test_tags_that_are_no_versions(self):
        source = self.repository()
        self.git(source, "tag", "v1.2.3")
        self.commit(source)
        for tag in ("nightly", "v2", "v2.0.0-rc1", "v2.x.0", "2.0.0"):
            self.git(source, "tag", tag)
        self.assertEqual(self.version(source), self.behind(source, 1))

    def test_a_shallow_clone_has_what_it_has(self):
        source = self.repository()
        self.git(source, "tag", "v1.2.3")
        self.git(self.folder, "clone", "--quiet", "--depth=1", "--branch=v1.2.3", f"file://{source}", "tagged")
        self.assertEqual(self.version(self.folder / "tagged"), "1.2.3")
        self.commit(source)
        self.git(self.folder, "clone", "--quiet", "--depth=1", f"file://{source}", "shallow")
        self.assertEqual(self.version(self.folder / "shallow"), "0.9.0")

    def test_an_archive_within_another_repository(self):
        around = self.repository("around")
        self.git(around, "tag", "v7.7.7")
        source = self.repository()
        self.git(source, "tag", "v1.2.3")
        archive = around / "unpacked"
        archive.mkdir()
        self.git(source, "archive", "--output", str(self.folder / "source.tar"), "HEAD")
        subprocess.run(["tar", "-xf", self.folder / "source.tar", "-C", archive], check=True)
        self.assertTrue((archive / "file").is_file())
        self.assertEqual(self.version(archive), "0.9.0")

    def test_a_working_tree_beside_its_repository(self):
        source = self.repository()
        self.git(source, "tag", "v1.2.3")
        self.git(source, "worktree", "add", "--quiet", str(self.folder / "beside"), "HEAD")
        self.assertTrue((self.folder / "beside" / ".git").is_file())
        self.assertEqual(self.version(self.folder / "beside"), "1.2.3")

    def test_the_source_is_written_when_it_changes(self):
        source = self.repository()
        self.version(source)
        output = self.folder / "own_version.cpp"
        before = output.stat().st_mtime_ns
        self.version(source)
        self.assertEqual(output.stat().st_mtime_ns, before)
        self.git(source, "tag", "v1.2.3")
        self.assertEqual(self.version(source), "1.2.3")

    def test_without_git(self):
        source = self.repository()
        self.git(source, "tag", "v1.2.3")
        for git in ("", "GIT_EXECUTABLE-NOTFOUND", "/no/such/git"):
            self.assertEqual(self.version(source, git), "0.9.0")


class WithoutRepository(VersionTest):
    def test_a_folder(self):
        self.assertEqual(self.version(self.folder), "0.9.0")


if __name__ == "__main__":
    unittest.main()
