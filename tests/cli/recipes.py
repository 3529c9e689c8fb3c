"""What the tests of the pages with recipes share: the blocks that a page marks as checked, and a shell that runs
them on the simulated driver.

Run with the folder of the programs in MEMLAB_BIN, the simulated driver's in MEMLAB_SIMCUDA and the source
folder in MEMLAB_SOURCE.
"""

import os
import re
import subprocess
import tempfile
import unittest

BIN = os.environ["MEMLAB_BIN"]


def blocks(page):
    """{name: text} of the blocks of docs/`page` that stand behind a "checked" comment."""
    with open(os.path.join(os.environ["MEMLAB_SOURCE"], "docs", page), encoding="utf-8") as file:
        found = re.findall(r"<!-- checked: ([\w-]+) -->\n```\w*\n(.*?)```", file.read(), re.S)
    return dict(found)


class Recipes(unittest.TestCase):
    """A folder of its own for each test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="memlab-recipes.")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, executable=False):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        if executable:
            os.chmod(self.path(name), 0o755)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def run_all(self, commands, **variables):
        """As a CI server does: each in a shell that stops at the first failure. The exit code of the
        last one that ran, and what they printed."""
        keep = {key: value for key, value in os.environ.items() if not key.startswith("MEMLAB_")}
        keep.pop("LD_PRELOAD", None)
        keep.update(LANG="C.UTF-8", PATH=BIN + os.pathsep + os.environ["PATH"],
                    LD_LIBRARY_PATH=os.environ["MEMLAB_SIMCUDA"])
        keep.update(variables)
        printed = ""
        for command in commands:
            result = subprocess.run(["bash", "-e", "-c", command], cwd=self.folder, env=keep,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
            printed += result.stdout
            if result.returncode != 0:
                return result.returncode, printed
        return 0, printed
