"""The package in notebooks: %mlrun, %%mlrun and %%memlab in a Jupyter kernel that `python -m memlab kernelspec` wrote, and in
IPython alone; with a stand-in for PyTorch.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import ROOT, EndToEnd
from test_python import PROGRAMS
from test_python_api import MIB, make_package

SAMPLE = ROOT / "samples" / "notebook.ipynb"
SETUP = """%load_ext memlab
import memlab
from torch import Tensor
M = 1 << 18
held = [Tensor(3 * M)]"""
CELL = """%%memlab figures
def work():
    first = Tensor(8 * M)
    second = Tensor(4 * M)
    return first
kept = work()
len(held)"""
FIGURES = "print([figures.bytes, figures.growth_bytes, figures.end_bytes, figures.allocated_count])"
ROW = re.compile(r"^ +([\d.]+\w) +([\d.]+%) +(\d*)  (.*)$", re.M)


def interpreter_with(*modules: str) -> str | None:
    for candidate in ("/usr/bin/python3", sys.executable):
        if subprocess.run([candidate, "-c", f"import {', '.join(modules)}"], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def data_of(page: str) -> dict:
    """What the page in the frame knows."""
    text = html.unescape(re.search(r'srcdoc="([^"]*)"', page)[1])
    packed = re.search(r'<script id="memlab-data"[^>]*>([^<]+)</script>', text)[1]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


class Notebook(EndToEnd):
    """Notebooks are lists of cells. What is the same in a kernel and in the shell is tested in what there is."""

    def setUp(self) -> None:
        super().setUp()
        self.site = self.work / "site-packages"  # the program's own lines are those of the cells
        make_package(self.layout, self.site)
        shutil.copytree(PROGRAMS / "stand_ins" / "torch_cuda", self.site, dirs_exist_ok=True)
        shutil.copy(PROGRAMS / "memlab_context.py", self.site)
        self.jupyter = interpreter_with("ipykernel", "nbclient", "jupyter_client", "nbformat")
        self.ipython = interpreter_with("IPython")

    @property
    def settings(self) -> dict[str, str]:
        library = self.layout.program("pytorch_cache").parent / "pytorch" / "libc10_cuda.so"
        return {"PYTHONPATH": str(self.site), "LIBC10_CUDA": str(library), "HOME": str(self.work),
                "JUPYTER_DATA_DIR": str(self.work / "jupyter"), "JUPYTER_RUNTIME_DIR": str(self.work / "runtime"),
                "IPYTHONDIR": str(self.work / "ipython"), "MEMLAB_OUTPUT": f"{self.output}/", "SIMCUDA_DEVICES": "2",
                "PYDEVD_DISABLE_FILE_VALIDATION": "1"}

    def require_jupyter(self) -> None:
        if self.jupyter is None:
            self.skipTest("ipykernel, jupyter_client, nbclient and nbformat are not all installed here")

    def kernelspec(self, *arguments: str, interpreter: str | None = None, **settings: str) -> tuple[int, str]:
        outcome = self.without_memlab([interpreter or self.jupyter or "", "-B", "-m", "memlab", "kernelspec", *arguments],
                                      self.settings | settings)
        return outcome.code, (outcome.stdout + outcome.stderr).decode()

    def run_program(self, command: list[str], memlab: bool = False) -> Any:
        start = self.under_memlab if memlab else self.without_memlab
        outcome = start([command[0], "-B", str(PROGRAMS / "notebook.py"), *command[1:]], self.settings, timeout=240)
        self.assertEqual(outcome.code, 0, outcome.describe())
        return json.loads(outcome.stdout)

    def notebook(self, cells: list[str]) -> Path:
        path = self.work / "cells.ipynb"
        path.write_text(json.dumps({
            "nbformat": 4, "nbformat_minor": 4, "metadata": {},
            "cells": [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "execution_count": None}
                      for cell in cells]}), encoding="utf-8")
        return path

    def answers(self, cells: list[str], memlab: bool = True) -> list[tuple[str, list[dict]]]:
        """In each way that is here: its name, and what each cell shows."""
        path, answers = str(self.notebook(cells)), []
        if self.jupyter is not None:
            if memlab:
                self.assertEqual(self.kernelspec("install", "--user")[0], 0)
            answers.append(("kernel", self.run_program([self.jupyter, "kernel", "memlab" if memlab else "python3", path])))
        if self.ipython is not None:
            answers.append(("shell", self.run_program([self.ipython, "shell", path], memlab)))
        if not answers:
            self.skipTest("neither IPython nor Jupyter is installed here")
        return answers

    def test_a_cells_memory(self) -> None:
        for way, (_, cell, figures, table) in self.answers([SETUP, CELL, FIGURES, "%%memlab -t\nother = Tensor(1 * M)"]):
            self.assertEqual(figures["stdout"], f"{[15 * MIB, 12 * MIB, 11 * MIB, 2]}\n", way)
            self.assertEqual(cell["values"][1:], ["1"], way)  # the value of its last line
            text = cell["values"][0]
            self.assertEqual(text.splitlines()[0],
                             "memlab: In [2] peaked at 15.00M of GPU memory, 12.00M above what was held before; it kept 8.00M; "
                             "2 allocations, 12.00M in all", way)
            self.assertEqual(ROW.findall(text), [
                ("8.00M", "53.3%", "1", "In [2], line 3 work  first = Tensor(8 * M)"),
                ("4.00M", "26.7%", "1", "In [2], line 4 work  second = Tensor(4 * M)"),
                ("3.00M", "20.0%", "1", "In [1], line 5       held = [Tensor(3 * M)]")], way)

    def test_a_cells_page(self) -> None:
        for way, (_, cell, figures, table) in self.answers(
                [SETUP, CELL, "print([figures.begin_ns, figures.end_ns])", "%%memlab -t\nother = Tensor(1 * M)"]):
            markup = cell["text/html"]
            self.assertLessEqual(cell["size"], 1 << 20, way)
            self.assertIn("<td style=\"text-align:right\">8.00M</td>", markup.split("<iframe")[0])
            self.assertIn('sandbox="allow-scripts"', markup)
            self.assertNotIn("<iframe", table["text/html"])
            data = data_of(markup)
            begin, end = json.loads(figures["stdout"])
            self.assertEqual((data["title"], data["show"]), ("In [2]", f"from={begin}&to={end}"))
            recording, = data["recordings"]
            marks = [mark for mark in recording["marks"] if mark["kind"] == "peak" and begin <= mark["at"] <= end]
            self.assertTrue(marks, way)
            if way == "shell":  # whose cells have no names of files
                continue
            quoted = "\n".join(line for file in data["files"] for line in file["lines"])
            self.assertIn("    second = Tensor(4 * M)", quoted, way)

    def test_a_cell_without_its_page(self) -> None:
        """Where it is too large, or cannot be made, one line says so; where there is no log, it is of a snapshot."""
        if self.ipython is None:
            self.skipTest("IPython is not installed here")
        fails = "def fails(*arguments): raise memlab.ReportError('no room', 2, '')\nview.report, kept = fails, view.report"
        remove = "\nimport os; os.remove(memlab.recording().replace('.json', '.memlog'))"
        path = str(self.notebook([SETUP + remove, "%%memlab\nmore = Tensor(2 * M)",
                                  "import memlab._cell_view as view\n" + fails,
                                  "%%memlab\nmore = Tensor(2 * M)", "view.report, view.MAX_OUTPUT = kept, 50_000",
                                  "%%memlab\nmore = Tensor(2 * M)"]))
        _, of_snapshot, _, failed, _, large = self.run_program([self.ipython, "shell", path], memlab=True)
        recording, = data_of(of_snapshot["text/html"])["recordings"]
        self.assertRegex(" ".join(recording["notes"]), "Made from a report alone")
        for cell, lack in ((failed, "without memlab's page: no room"),
                           (large, "without memlab's page, which is larger than 1 MiB: memlab-report html writes it into a file")):
            self.assertTrue(cell["text/plain"].endswith("\n" + lack), cell["text/plain"])
            self.assertIn(f"<p>{html.escape(lack)}</p>", cell["text/html"])
            self.assertNotIn("<iframe", cell["text/html"])
            self.assertIn("2.00M", cell["text/plain"])

    def test_a_cell_that_fails(self) -> None:
        for way, (_, cell, syntax, name) in self.answers(
                [SETUP, "%%memlab\nmore = Tensor(5 * M)\nraise KeyError(1)", "%%memlab\nmore more", "%%memlab 7\npass"]):
            self.assertEqual(cell["error"], "KeyError: 1", way)
            self.assertIn("peaked at 8.00M of GPU memory, 5.00M above", cell["text/plain"])
            self.assertTrue(syntax["error"].startswith("SyntaxError: invalid syntax"), way)
            self.assertIn("%%memlab takes the name of a variable for the figures, not 7", name["stderr"])

    def test_lines(self) -> None:
        cells = [SETUP, "def outer():\n    return inner()\ndef inner():\n    held = Tensor(2 * M)\n    return Tensor(5 * M)",
                 "%%mlrun -f inner -f outer\nkept = outer()", "%mlrun -f inner  inner(  )",
                 "%%mlrun -D -c line_bytes.all.made -c allocation.all.current --function Net.forward\n"
                 "class Net:\n    def forward(self):\n        return Tensor(9 * M)\nNet().forward()",
                 f"profiler = %mlrun -qr -g 0 -T '{self.work}/a dump.txt' -f inner inner()\n"
                 "print(type(profiler).__name__, list(profiler.display().records))",
                 "%mlrun -q -f inner inner()", "%mlrun -g 1 -D -c allocated_bytes.all.current -f inner inner()",
                 "def local():\n    here = inner\n    return get_ipython().run_line_magic('mlrun', '-f here here()')\nlocal()"]
        for way, answer in self.answers(cells):
            shown = [cell.get("text/plain", "") for cell in answer]
            self.assertEqual([cell["error"] for cell in answer], [None] * len(cells), way)
            self.assertEqual(re.findall(r"^## (\w+)$", shown[2], re.M), ["inner", "outer"])
            self.assertIn("active_bytes reserved_bytes line  code\n", shown[2])
            self.assertRegex(shown[2], r"(?m)^ +5\.00M +\S+ +4      held = Tensor\(2 \* M\)$")
            self.assertEqual(re.findall(r"^## (\w+)$", shown[3], re.M), ["inner"])
            self.assertEqual(re.findall(r"^ +(\S+) +(\d+) +(\d)  (.*)$", shown[4], re.M)[-1],
                             ("9.00M", "3", "4", "        return Tensor(9 * M)"), way)
            self.assertEqual(answer[5]["stdout"], "LineProfiler ['inner']\n", way)
            dump = (self.work / "a dump.txt").read_text(encoding="utf-8")
            self.assertTrue(dump.startswith("## inner\n\nactive_bytes reserved_bytes line  code\n"), dump)
            self.assertEqual((shown[6], answer[6]["stdout"]), ("", ""))
            self.assertIn("0.00B    4      held = Tensor(2 * M)", shown[7])  # nothing is on that GPU
            self.assertIn("## inner", shown[8])
            self.assertIn('<h3><span style="font-family:monospace">inner</span></h3>', answer[2]["text/html"])

    def test_lines_of_code_that_fails(self) -> None:
        cells = [SETUP, "def fails():\n    held = Tensor(2 * M)\n    raise KeyError(held)", "%mlrun -f fails fails()"]
        for way, (_, _, cell) in self.answers(cells):
            self.assertTrue(cell["error"].startswith("KeyError: "), way)
            self.assertIn("   5.00M", cell["text/plain"])

    def test_wrong_options(self) -> None:
        refused = {
            "%mlrun -z f()": "option -z not recognized; %mlrun? and %%memlab? list the options",
            "%mlrun -f absent f()": "%mlrun -f absent: NameError: name 'absent' is not defined; name a function that is defined "
                                    "before, or in the cell",
            "%mlrun -c no.such.column f()": "%mlrun -c: there is no column 'no.such.column'; there are: {active,",
            "%mlrun -g one f()": "%mlrun -g takes the number of a GPU, not one",
            "%mlrun -T /nowhere/dump f()": "%mlrun -T /nowhere/dump: No such file or directory; name a file that can be written",
            "%mlrun -q": "%mlrun takes a statement to run",
            "%%memlab --page\npass": "option --page not recognized",
        }
        cells = [SETUP, "ran = []\ndef f():\n    ran.append(1)", *refused, "print(ran)"]
        for way, (_, _, *cells_shown, ran) in self.answers(cells):
            for cell, said in zip(cells_shown, refused.values()):
                self.assertIn(f"UsageError: {said}", cell["stderr"], way)
                self.assertEqual(cell["stderr"].strip().count("\n"), 0, way)
            self.assertEqual(ran["stdout"], "[]\n")

    def test_without_memlab(self) -> None:
        cells = [SETUP, CELL, FIGURES, "%mlrun -f work work()"]
        for way, (_, cell, figures, lines) in self.answers(cells, memlab=False):
            advice = (rf"run {self.jupyter} -m memlab kernelspec install, and choose the kernel \"Python 3 \(memlab\)\""
                      if way == "kernel" else "start it with: memlab-run -- ipython")
            self.assertRegex(cell["values"][0], f"^memlab: not recorded, this process runs without memlab: {advice}$")
            self.assertEqual(cell["values"][1:], ["1"])
            self.assertEqual(figures["stdout"], "[None, None, None, None]\n")
            self.assertEqual(lines["text/plain"].strip(), "No data collected")
            self.assertRegex(lines["stderr"], f"NotRecordedWarning: this process runs without memlab: .*; {advice}")

    def test_a_cell_before_cuda_and_memlab_switched_off(self) -> None:
        if self.ipython is None:
            self.skipTest("IPython is not installed here")
        path = str(self.notebook(["%load_ext memlab", "%%memlab figures\n1 + 1", "print(figures.sites)"]))
        cells = self.run_program([self.ipython, "shell", path], memlab=True)
        self.assertEqual(cells[1]["values"], ["memlab: not recorded: no GPU was used up to now", "2"])
        path = str(self.notebook([SETUP, CELL, FIGURES]))
        outcome = self.under_memlab([self.ipython, "-B", str(PROGRAMS / "notebook.py"), "shell", path],
                                    self.settings | {"MEMLAB_DISABLE": "1"})
        cells = json.loads(outcome.stdout)
        self.assertIn("memlab is switched off", cells[1]["values"][0])
        self.assertEqual(cells[2]["stdout"], "[None, None, None, None]\n")

    def test_the_kernels_specification(self) -> None:
        self.require_jupyter()
        python = str(self.jupyter)
        code, said = self.kernelspec("install", "--prefix", str(self.work / "prefix"), "--name", "gpu", "--display-name", "GPU 3")
        path = self.work / "prefix" / "share" / "jupyter" / "kernels" / "gpu" / "kernel.json"
        self.assertEqual((code, said), (0, f"GPU 3: {path}\n"))
        spec = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(spec["argv"], [python, "-m", "memlab", "run", "--", python, "-m", "ipykernel_launcher", "-f",
                                        "{connection_file}"])
        self.assertEqual((spec["display_name"], spec["language"], spec["interrupt_mode"]), ("GPU 3", "python", "message"))
        found = subprocess.run([python, "-c", "from jupyter_client.kernelspec import KernelSpecManager as M; "
                                "print(M().get_kernel_spec('gpu').display_name)"], capture_output=True, check=True, text=True,
                               env=os.environ | {"JUPYTER_PATH": str(self.work / "prefix" / "share" / "jupyter")})
        self.assertEqual(found.stdout, "GPU 3\n")
        prefix = ("--prefix", str(self.work / "prefix"))
        self.assertEqual(self.kernelspec("install", *prefix, "--name", "gpu")[0], 0)  # again, another title
        self.assertIn("Python 3 (memlab)", path.read_text(encoding="utf-8"))
        self.assertEqual(self.kernelspec("remove", *prefix, "--name", "gpu"), (0, f"removed: {path.parent}\n"))
        self.assertFalse(path.parent.exists())

    def test_what_the_kernels_specification_refuses(self) -> None:
        self.require_jupyter()
        prefix = ("--prefix", str(self.work))
        kernels = self.work / "share" / "jupyter" / "kernels"

        def refused(*arguments: str, says: str) -> None:
            code, said = self.kernelspec(*arguments)
            self.assertEqual((code, said.count("\n")), (2, 1), said)
            self.assertRegex(said, "^memlab: kernelspec: " + says)

        refused("remove", *prefix, says=".*/kernels/memlab: there is no such kernel; jupyter kernelspec list shows all")
        refused("install", "--user", *prefix, says=".*not allowed with argument.*; .* --help lists the options")
        refused("install", "--name", "a b", says="--name a b: a kernel's name has letters")
        refused("installed", says="argument action: invalid choice")
        (kernels / "memlab").mkdir(parents=True)
        refused("install", *prefix, says=".*/kernels/memlab is no kernel of memlab's, and is left alone; choose another --name")
        refused("remove", *prefix, says=".*is no kernel of memlab's")
        other = {"argv": ["/opt/other/bin/python", "-m", "memlab", "run", "--"]}
        (kernels / "memlab" / "kernel.json").write_text(json.dumps(other), encoding="utf-8")
        refused("install", *prefix, says=".*/kernels/memlab is the kernel of /opt/other/bin/python; choose another --name")
        (self.work / "file").write_text("", encoding="utf-8")
        refused("install", "--prefix", str(self.work / "file"), says=".*: Not a directory; choose --user or another --prefix")
        self.assertEqual(list(self.work.glob("**/*.new")), [])

    def test_an_interrupted_cell(self) -> None:
        self.require_jupyter()
        self.assertEqual(self.kernelspec("install", "--user")[0], 0)
        self.assertEqual(self.run_program([str(self.jupyter), "interrupt", "memlab"]),
                         [["error", "KeyboardInterrupt"], ["ok", None]])

    def test_the_sample(self) -> None:
        """Running it shows the outputs that it has; MEMLAB_UPDATE_GOLDEN=1 writes them."""
        self.require_jupyter()
        self.assertEqual(self.kernelspec("install", "--user")[0], 0)
        ran = self.work / "ran.ipynb"
        cells = self.run_program([str(self.jupyter), "kernel", "memlab", str(SAMPLE), str(ran)])
        self.assertEqual([cell["error"] for cell in cells], [None] * len(cells))
        notebook = json.loads(ran.read_text(encoding="utf-8"))
        if os.environ.get("MEMLAB_UPDATE_GOLDEN"):
            notebook["metadata"] = {"kernelspec": {"display_name": "Python 3 (memlab)", "language": "python", "name": "memlab"}}
            SAMPLE.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        kept = json.loads(SAMPLE.read_text(encoding="utf-8"))
        outputs = [[cell.get("outputs") for cell in each["cells"]] for each in (kept, notebook)]
        self.assertEqual(outputs[0], outputs[1])

    def test_nbconvert_keeps_the_table(self) -> None:
        self.require_jupyter()
        if interpreter_with("nbconvert") != self.jupyter:
            self.skipTest("nbconvert is not installed here")
        out = self.work / "sample.html"
        outcome = self.without_memlab([str(self.jupyter), "-B", "-m", "nbconvert", "--to", "html", "--output", str(out),
                                       str(SAMPLE)], self.settings, timeout=120)
        self.assertEqual(outcome.code, 0, outcome.describe())
        shown = out.read_text(encoding="utf-8")
        self.assertIn("<th>at the peak</th>", shown)
        self.assertIn("<code>kept.append((batch @ weight).relu())</code>", shown)
