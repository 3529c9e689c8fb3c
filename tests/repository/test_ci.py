#!/usr/bin/env python3
""".ci/run stops at the first red step, says which, and ends with ctest's own words when all is green."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parents[2] / ".ci" / "run"
SUMMARY = "100% tests passed, 0 tests failed out of "


class Ci(unittest.TestCase):
    def run_ci(self, dev):
        """Runs a copy of it over a tools/dev that is a stand-in; returns (exit code, lines)."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in (".ci", "tools"):
                (root / name).mkdir()
            shutil.copy(RUN, root / ".ci" / "run")
            (root / "tools" / "dev").write_text("#!/usr/bin/env bash\n" + dev)
            (root / "tools" / "dev").chmod(0o755)
            result = subprocess.run([str(root / ".ci" / "run")], text=True, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, timeout=60, check=False)
            return result.returncode, result.stdout.splitlines()

    def test_green_ends_with_the_summaries(self):
        code, lines = self.run_ci(f'[[ $1 != test ]] || echo "{SUMMARY}7"; echo "called $*"; read -r x || true')
        self.assertEqual(code, 0)
        self.assertEqual(lines[-1], SUMMARY + "7")
        self.assertEqual(sum(line == SUMMARY + "7" for line in lines[-8:]), 4)
        self.assertEqual([line for line in lines if line.startswith("called")],
                         ["called format --check", "called lint", "called test --preset release", "called cuda12",
                          "called test --preset asan", "called test --preset tsan --quick",
                          "called test --preset fuzz --quick"])

    def test_the_first_red_step_is_the_last(self):
        for red in ("format", "lint", "test"):
            code, lines = self.run_ci(f"echo called $1; [[ $1 != {red} ]] || exit 3")
            self.assertEqual(code, 1)
            self.assertIn("FAILED", lines[-1])
            self.assertIn("exit code 3", lines[-1])
            self.assertEqual(lines[-2], f"called {red}")


if __name__ == "__main__":
    unittest.main()
