"""What the end-to-end tests share: the build under test and a folder for each test's files."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "programs"))

from harness import Found, Layout, Outcome, run  # noqa: E402  (the path above)

ROOT = Path(__file__).resolve().parent.parent.parent


class Build:
    """The build under test; run.py fills it in."""

    layout: Layout
    sanitizer: str = ""


class EndToEnd(unittest.TestCase):
    """A test with an empty folder of its own, removed when it is over."""

    def setUp(self) -> None:
        self.layout = Build.layout
        folder = tempfile.TemporaryDirectory(prefix="memlab-test.")
        self.addCleanup(folder.cleanup)
        self.work = Path(folder.name)
        self.output = self.work / "out"
        self.cwd = self.work / "cwd"
        self.cwd.mkdir()

    def use_driver(self, version: str) -> None:
        """The runs of this test are on the simulated driver of that CUDA ("99.0": one that is yet to come)."""
        major, minor = version.split(".")
        driver = self.layout.root / "lib" / "simcuda" / version
        self.layout = dataclasses.replace(
            self.layout, library_path=[str(driver), *self.layout.library_path], extra_environment=(
                self.layout.extra_environment | {"SIMCUDA_DRIVER_VERSION": str(int(major) * 1000 + int(minor) * 10)}))

    def require_installed(self, name: str) -> None:
        if not any((Path(folder) / name).exists() for folder in ("/usr/bin", "/bin", "/usr/local/bin")):
            self.skipTest(f"{name} is not installed here")

    def under_memlab(self, command: list[str], settings: dict[str, str] | None = None,
                     to_output: bool = True, timeout: float = 60) -> Outcome:
        environment = self.layout.environment(memlab=True, settings=settings,
                                              output=self.output if to_output else None)
        return run(command, environment, self.cwd, timeout)

    def without_memlab(self, command: list[str], settings: dict[str, str] | None = None,
                       timeout: float = 60) -> Outcome:
        return run(command, self.layout.environment(memlab=False, settings=settings), self.cwd, timeout)

    def program(self, name: str, *arguments: str) -> list[str]:
        return [str(self.layout.program(name)), *arguments]

    def pytorch_package(self, *folders: str, version: str = "2.99.0+cu139") -> Path:
        """A Python package torch of this version, with the stand-ins for its libraries from the folders; later ones
        take the place of earlier ones. Returns the folder of its libraries."""
        libraries = self.work / "site" / "torch" / "lib"
        libraries.mkdir(parents=True)
        (libraries.parent / "version.py").write_text(f"__all__ = ['__version__']\n__version__ = '{version}'\n")
        for folder in folders:
            for library in (self.layout.program("pytorch_cache").parent / folder).glob("lib*.so"):
                shutil.copy2(library, libraries)
        return libraries

    def shown(self, found: Found) -> str:
        """The text that memlab-report prints of a recording."""
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), str(found.report_path)])
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        return outcome.stdout.decode("utf-8")

    def assert_nothing_written(self) -> None:
        written = [path.name for folder in (self.output, self.cwd) if folder.is_dir()
                   for path in folder.iterdir()]
        self.assertEqual(written, [])

    def assert_sound(self, problems: list[str]) -> None:
        if problems:
            self.fail("\n".join(problems))
