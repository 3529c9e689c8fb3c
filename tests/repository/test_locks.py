"""Lint checks locks: code that uses what a lock guards without the lock does not pass (threads/mutex.hpp)."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

GUARDED = """// Planted.
#include "threads/mutex.hpp"

class Counter {
  public:
    void add() {
        const memlab::threads::LockGuard lock(mutex_);
        ++count_;
    }
    int count() const { return %s; }

  private:
    int locked_count() const {
        const memlab::threads::LockGuard lock(mutex_);
        return count_;
    }

    mutable memlab::threads::Mutex mutex_;
    int count_ MEMLAB_GUARDED_BY(mutex_) = 0;
};

int planted() {
    Counter counter;
    counter.add();
    return counter.count();
}
"""


class Locks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name).resolve()
        for name in ("threads", "trace", "profiler", "allocator", "tools/dev.d"):
            shutil.copytree(ROOT / name, self.tree / name, ignore=shutil.ignore_patterns("node_modules"))
        shutil.copy2(ROOT / ".clang-tidy", self.tree)
        (self.tree / "build").mkdir()

    def lint(self, source):
        """The exit code of lint for that source of the copied tree, and what it said."""
        command = ["c++", f"-I{self.tree}", "-std=c++20", "-fno-gnu-unique", "-Werror", "-o", "x.o", "-c", source]
        (self.tree / "build/compile_commands.json").write_text(json.dumps(
            [{"directory": str(self.tree), "file": source, "command": " ".join(command)}]))
        result = subprocess.run([sys.executable, "tools/dev.d/lint_cpp.py", "--build", "build", "--quick"],
                                cwd=self.tree, capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr

    def assert_found(self, source, variable):
        code, text = self.lint(source)
        self.assertEqual(code, 1, text)
        self.assertRegex(text, f"'{variable}' requires holding mutex .*thread-safety")

    def test_a_planted_violation(self):
        planted = self.tree / "profiler/planted.cpp"
        planted.write_text(GUARDED % "locked_count()")
        self.assertEqual(self.lint("profiler/planted.cpp")[0], 0)
        planted.write_text(GUARDED % "count_")
        self.assert_found("profiler/planted.cpp", "count_")

    def test_a_lock_that_is_forgotten(self):
        source = self.tree / "profiler/annotation_names.cpp"
        self.assertEqual(self.lint("profiler/annotation_names.cpp")[0], 0)
        without, count = re.subn(r".*threads::LockGuard.*\n", "", source.read_text())
        self.assertGreater(count, 0)
        source.write_text(without)
        self.assert_found("profiler/annotation_names.cpp", "names_")

    def test_the_pool_while_it_waits(self):
        source = self.tree / "allocator/pool_frees.cpp"
        self.assertEqual(self.lint("allocator/pool_frees.cpp")[0], 0)
        text, unlocked = source.read_text(), "    mutex_.unlock();\n    const BackendStatus waited"
        self.assertIn(unlocked, text)
        source.write_text(text.replace(unlocked, unlocked.replace("const", "++fences_recorded_;\n    const")))
        self.assert_found("allocator/pool_frees.cpp", "fences_recorded_")


if __name__ == "__main__":
    if shutil.which("clang-tidy") is None or shutil.which("clang++") is None:
        print("not run: no clang-tidy")
        sys.exit(77)
    unittest.main()
