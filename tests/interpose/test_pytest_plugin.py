"""pytest --memlab: pytest starts itself again under memlab, and limits of tests are checked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

from support import ROOT, EndToEnd
from test_python import PROGRAMS
from test_python_api import make_package

PYTHON = "/usr/bin/python3"
HEAD = """
import gc
import pytest
from gpu_memory import KIB, MIB, Memory, library_work, peak_of

limit, leaks, allocations = pytest.mark.limit_gpu_memory, pytest.mark.limit_gpu_leaks, pytest.mark.limit_gpu_allocations
"""
MEMORY = """
@limit("1 MiB")
def test_before_cuda():
    pass

@pytest.fixture(scope="module")
def model():
    return Memory(64 * MIB)

@limit("24 MiB")
@pytest.mark.parametrize("run", range(100))
def test_within(model, run):
    peak_of(24 * MIB)

@limit("24 MiB")
def test_beyond(model):
    peak_of(26 * MIB)

def test_by_default(model):
    peak_of(40 * MIB)
"""
KINDS = """
@limit("1 MiB", device=1)
def test_other_gpu():
    peak_of(4 * MIB)

@limit("1 MiB", device=1)
def test_this_gpu():
    peak_of(2 * MIB, device=1)

@limit("1 MiB", device=0)
@limit("4 MiB", device=1)
def test_both_gpus():
    peak_of(2 * MIB)
    peak_of(4 * MIB, device=1)

@limit("1 MiB")
class TestClosest:
    @limit("4 MiB")
    def test_within(self):
        peak_of(4 * MIB)
        peak_of(5 * MIB, kind="pinned")

    @limit("4 MiB", kind="pinned")
    def test_pinned(self):
        peak_of(5 * MIB, kind="pinned")

@limit("1 MiB", kind="managed")
def test_managed():
    peak_of(2 * MIB)
    peak_of(1 * MIB, kind="managed")

@allocations(3)
@pytest.mark.parametrize("count", [3, 4])
def test_allocations(count):
    for _ in range(count):
        peak_of(KIB)
"""
# Each test leaves at most what its name says.
LEAKS = """
kept = []

def leave(size):
    Memory(size).leak()

class Owner:
    def __init__(self):
        self.memory, self.itself = Memory(2 * MIB), self

@pytest.fixture(scope="session")
def of_session():
    return Memory(8 * MIB)

@pytest.fixture(scope="module", params=[1, 2])
def of_module(request, of_session):
    leave(3 * MIB)
    yield Memory(8 * MIB)
    leave(3 * MIB)

@pytest.fixture(scope="module")
def of_module_late():
    leave(3 * MIB)

@pytest.fixture(scope="class")
def of_class():
    kept.append(Memory(8 * MIB))

@pytest.fixture
def of_function():
    return Memory(8 * MIB)

@pytest.fixture
def of_function_left():
    yield
    leave(2 * MIB)

@leaks("1 MiB")
@pytest.mark.parametrize("run", range(100))
def test_nothing(of_session, of_class, of_function, run):
    memory = Memory(2 * MIB)

@leaks("1 MiB")
def test_nothing_by_parameter(of_module):
    Memory(2 * MIB).free()

@leaks("1 MiB")
def test_nothing_asked_late(request):
    request.getfixturevalue("of_class"), request.getfixturevalue("of_module_late")

@leaks("1 MiB")
def test_nothing_after_collection():
    gc.disable()
    Owner()

@leaks("1 MiB")
def test_little_by_two_stacks():
    leave(600 * KIB)
    leave(600 * KIB)

@leaks("1 MiB")
def test_nothing_of_a_library():
    library_work("./libcublas.so.12")

@leaks("1 MiB", filter=lambda site: not any(frame.function == "leave" for frame in site.frames))
def test_nothing_that_counts():
    leave(2 * MIB)

@leaks("1 MiB")
def test_left_by_one_stack():
    for _ in range(2):
        leave(600 * KIB)

@leaks("1 MiB")
def test_left_by_its_fixture(of_function_left, of_session):
    pass

@leaks("1 MiB")
def test_left_beside_wider_fixtures(request):
    leave(2 * MIB)
    request.getfixturevalue("of_module_late")

@leaks("50 KB", filter=lambda site: site.library)
def test_left_by_a_library():
    library_work("./libcublas.so.12")

@leaks("1 MiB", filter=lambda site: site.no_such_member)
def test_left_with_a_wrong_filter():
    leave(2 * MIB)

@leaks("1 MiB")
class TestInstance:
    def setup_method(self):
        self.memory = Memory(2 * MIB)

    def test_nothing_where_it_is_dropped(self):
        del self.memory

    def test_left_in_self(self):
        pass

@leaks("1 MiB")
def test_fails_anyway():
    leave(2 * MIB)
    assert False

@pytest.fixture(scope="module")
def holder():
    held = []
    yield held
    held.clear()

@leaks("1 MiB")
@pytest.mark.parametrize("run", range(2))
def test_left_in_a_wider_fixture(holder, run):  # behind the last one it is torn down
    holder.append(Memory(2 * MIB))
"""
OTHERS = """
tries = []

@limit("1 MiB")
def test_of_two_tries():
    tries.append(1)
    peak_of((4 - 3 * (len(tries) > 1)) * MIB)

@limit("1 MiB")
@pytest.mark.xfail(strict=True)
def test_known_to_be_too_much():
    peak_of(2 * MIB)

@limit("50 KB")
def test_first_use_of_a_library():
    library_work("./libcublas.so.12")

@limit("1 MiB")
def test_second_use_of_a_library():
    library_work("./libcublas.so.12")

@limit("50 KB")
def test_library_after_the_peak():
    peak_of(48 * KIB)
    library_work("./libcublas.so.12")
"""
# As pytest-rerunfailures does.
RERUNS = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    for last in (False, True):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        again = not last and any(report.failed for report in reports)
        for report in reports:
            report.outcome = "rerun" if again and report.failed else report.outcome
            item.ihook.pytest_runtest_logreport(report=report)
        if not again:
            return True
        item._initrequest()

def pytest_report_teststatus(report):
    if report.outcome == "rerun":
        return "rerun", "R", "RERUN"
"""
BASELINE = """
import os

@pytest.mark.gpu_baseline
@pytest.mark.parametrize("size", [4, 8])
def test_step(size):
    peak_of(int(size * float(os.environ.get("FACTOR", "1")) * MIB))
    assert "FAILS" not in os.environ
"""
FAILING = """
@pytest.fixture(params=["a b", "c"])
def broken(request):
    memory = Memory(MIB)
    assert request.param == "c"
    return memory

def test_good():
    peak_of(MIB)

class TestBad:
    def test_setup(self, broken):
        pass

    @limit("1 MiB")
    def test_limit(self):
        peak_of(2 * MIB)

@leaks("1 MiB")
def test_leak():
    Memory(2 * MIB).leak()
"""


# In place of PyTorch, and as a package is: torch.empty().
TORCH = """
from gpu_memory import Memory

def empty(elements, device):
    assert device == "cuda"
    return Memory(4 * elements)
"""


class PytestPlugin(EndToEnd):
    """Each test runs pytest on tests that use the simulated driver."""

    def setUp(self) -> None:
        super().setUp()
        if not self.has("pytest"):
            self.skipTest("pytest is not installed here")
        make_package(self.layout, self.work / "site")
        shutil.copy2(PROGRAMS / "gpu_memory.py", self.work / "site")
        shutil.copy2(self.layout.program("plugin.so"), self.cwd / "libcublas.so.12")

    @staticmethod
    def has(module: str) -> bool:
        return subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0

    def write(self, tests: str, **files: str) -> None:
        (self.cwd / "test_gpu.py").write_text(HEAD + tests, encoding="utf-8")
        for name, text in files.items():
            (self.cwd / f"{name}.py").write_text(text, encoding="utf-8")

    def pytest(self, *arguments: str, expect: int = 0, **environment: str) -> str:
        outcome = self.without_memlab([PYTHON, "-m", "pytest", "-p", "memlab.pytest_plugin", "-p", "no:cacheprovider",
                                       *arguments], {"PYTHONPATH": str(self.work / "site"), "PYTHONDONTWRITEBYTECODE": "1",
                                                     **environment})
        self.assertEqual(outcome.code, expect, outcome.describe())
        return (outcome.stdout + outcome.stderr).decode("utf-8")

    def refused(self, says: str, *arguments: str, **environment: str) -> None:
        """With one line, before any test."""
        lines = [line for line in self.pytest(*arguments, expect=4, **environment).splitlines() if line.startswith("ERROR: ")]
        self.assertEqual(len(lines), 1, lines)
        self.assertIn(says, lines[0])

    def results(self, shown: str) -> dict[str, str]:
        """By test, of pytest -rA's lines; the worst, where call and teardown have one each."""
        order = ["PASSED", "XFAIL", "FAILED", "ERROR"]
        found: dict[str, str] = {}
        for result, test in re.findall(r"^(PASSED|XFAIL|FAILED|ERROR) test_gpu\.py::(\S+)", shown, re.M):
            found[test] = max(result, found.get(test, result), key=order.index)
        return found

    def files(self) -> list[str]:
        """That a run left."""
        return sorted(path.name for path in self.cwd.iterdir() if path.suffix not in (".py", ".12"))

    def test_limits(self) -> None:
        self.write(MEMORY)
        shown = self.pytest("--memlab", "--junit-xml=junit.xml", "-o", "memlab_limit_gpu_memory=32 MiB", expect=1)
        self.assertIn("2 failed, 101 passed", shown[-3000:])
        self.assertIn(f"needed {26 << 20} bytes of GPU memory, its limit is {24 << 20}. At the peak:\n", shown)
        self.assertIn(f"needed {40 << 20} bytes of GPU memory, its limit is {32 << 20}. At the peak:\n", shown)
        self.assertRegex(shown, rf"\n  {26 << 20} bytes in 1: \S*gpu_memory\.py:\d+ Memory\.__init__\n")
        self.assertIn(f"{40 << 20:>15,} bytes  test_gpu.py::test_by_default\n", shown)
        self.assertIn("1 limit not checked: no GPU was used, or memlab is switched off\n"
                      "    test_gpu.py::test_before_cuda  limit_gpu_memory\n", shown)
        junit = (self.cwd / "junit.xml").read_text(encoding="utf-8")
        self.assertEqual(junit.count(f'<property name="memlab_gpu_bytes" value="{24 << 20}"'), 100)
        self.assertEqual(self.files(), ["junit.xml"])

    def test_the_example_of_the_docs(self) -> None:
        page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
        tests, shown = re.findall(r"```python\n(# test_model\.py\n.*?)```\n.*?```\n\$ pytest --memlab\n(.*?)```\n", page, re.S)[0]
        packages = self.work / "lib" / "python3" / "site-packages"
        packages.mkdir(parents=True)
        shutil.move(self.work / "site" / "gpu_memory.py", packages)
        (packages / "torch.py").write_text(TORCH, encoding="utf-8")
        (self.cwd / "test_model.py").write_text(tests, encoding="utf-8")
        printed = self.pytest("--memlab", expect=1, PYTHONPATH=f"{self.work / 'site'}:{packages}")
        printed = printed[printed.index("\ntest_model.py ") + 1:].replace(f"{self.cwd}/", "")
        printed = printed.replace("Simulated CUDA device", "NVIDIA H100 80GB HBM3")
        # Newer versions of pytest say more in the lines of their own summary.
        summary = re.compile(r"=+ short test summary info .*", re.S)
        self.assertEqual(*(summary.sub("", text) for text in (printed, shown)))

    def test_devices_kinds_and_allocations(self) -> None:
        self.write(KINDS)
        shown = self.pytest("--memlab", "-rA", expect=1, SIMCUDA_DEVICES="2")
        self.assertEqual(self.results(shown), {
            "test_other_gpu": "PASSED", "test_this_gpu": "FAILED", "test_both_gpus": "FAILED",
            "TestClosest::test_within": "PASSED", "TestClosest::test_pinned": "FAILED", "test_managed": "PASSED",
            "test_allocations[3]": "PASSED", "test_allocations[4]": "FAILED"})
        self.assertEqual(re.findall(r"The test (?:needed|made) .*limit is \d+", shown), [
            f"The test needed {2 << 20} bytes of GPU memory of GPU 1, its limit is {1 << 20}",
            f"The test needed {2 << 20} bytes of GPU memory of GPU 0, its limit is {1 << 20}",
            f"The test needed {5 << 20} bytes of pinned memory, its limit is {4 << 20}",
            "The test made 4 allocations of GPU memory, its limit is 3"])

    def test_leaks(self) -> None:
        self.write(LEAKS)
        shown = self.pytest("--memlab", "-rA", "--junit-xml=junit.xml", expect=1)
        for name, result in self.results(shown).items():
            test = name.rpartition("::")[2]
            bad = "FAILED" if test == "test_fails_anyway" else "ERROR"
            self.assertEqual(result, "PASSED" if test.startswith(("test_nothing", "test_little")) else bad, shown)
        self.assertIn("1 failed, 116 passed, 8 errors", shown[-3000:])
        self.assertRegex(shown, rf"The test left {1200 << 10} bytes of GPU memory behind, by 1 call stack with more than its "
                                rf"limit of {1 << 20} each:\n  {1200 << 10} bytes in 2, cuMemAlloc_v2:\n"
                                r"    \S*gpu_memory\.py:\d+ Memory\.__init__\n    \S*test_gpu\.py:\d+ leave\n"
                                r"    \S*test_gpu\.py:\d+ test_left_by_one_stack\n")
        self.assertIn("by 1 call stack with more than its limit of 50000 each:\n  60416 bytes in 1, cuMemAlloc_v2:\n", shown)
        self.assertIn("AttributeError: 'Site' object has no attribute 'no_such_member'", shown)
        self.assertEqual(shown.count("\nThe test left"), 7)
        junit = (self.cwd / "junit.xml").read_text(encoding="utf-8")
        self.assertEqual(junit.count('<property name="memlab_left_bytes" value="0"'), 107)

    def test_reruns_xfail_and_libraries(self) -> None:
        self.write(OTHERS, conftest=RERUNS)
        shown = self.pytest("--memlab", "-rA", "--junit-xml=junit.xml")
        self.assertEqual(self.results(shown), {
            "test_of_two_tries": "PASSED", "test_known_to_be_too_much": "XFAIL", "test_first_use_of_a_library": "PASSED",
            "test_second_use_of_a_library": "PASSED", "test_library_after_the_peak": "PASSED"})
        self.assertIn("4 passed, 1 xfailed, 1 rerun", shown[-3000:])
        junit = (self.cwd / "junit.xml").read_text(encoding="utf-8")
        self.assertEqual(junit.count('<property name="memlab_library_bytes" value="60416"'), 3)
        self.assertIn('<property name="memlab_gpu_bytes" value="40448"', junit)
        self.assertIn('<property name="memlab_gpu_bytes" value="49152"', junit)

    def test_baseline(self) -> None:
        self.write(BASELINE)
        unchecked = r"2 limits not checked: no baseline of (.*) yet: run with --memlab-update\n"
        (model,) = re.findall(unchecked, self.pytest("--memlab"))
        self.pytest("--memlab", "--memlab-update", expect=1, FAILS="1")
        self.assertEqual(self.files(), [])
        path = self.cwd / "gpu-baseline.json"
        self.assertIn(f"memlab: 2 baselines written to {path}\n", self.pytest("--memlab", "--memlab-update"))
        peaks = {f"test_gpu.py::test_step[{size}]": size << 20 for size in (4, 8)}
        document = {"format": "memlab-pytest-baseline", "version": 1, "peak_bytes": {model: peaks}}
        self.assertEqual(json.loads(path.read_text(encoding="utf-8")), document)

        fails = "--memlab-fail-on-increase"
        self.assertNotIn("memlab: more", self.pytest("--memlab", fails))
        for arguments in ((), (f"{fails}=25",)):
            shown = self.pytest("--memlab", *arguments, FACTOR="1.25")
            self.assertIn("memlab: more than its baseline: +1,048,576 bytes, +25.0%  test_gpu.py::test_step[4]\n", shown)
        for arguments in ((fails,), (f"{fails}=24.9",)):
            shown = self.pytest("--memlab", *arguments, expect=1, FACTOR="1.25")
            self.assertIn(f"The test needed {5 << 20} bytes of GPU memory, {1 << 20} more than its baseline of {4 << 20} on "
                          f"{model}. At the peak:\n  {5 << 20} bytes in 1: ", shown)
        self.assertEqual(json.loads(path.read_text(encoding="utf-8")), document)

        # Of another model it stays; a run of one test writes that one alone.
        document["peak_bytes"] = {"Another": peaks}
        path.write_text(json.dumps(document), encoding="utf-8")
        self.assertRegex(self.pytest("--memlab", fails, FACTOR="2"), unchecked)
        self.pytest("--memlab", "--memlab-update", "-k", "4")
        document["peak_bytes"][model] = {"test_gpu.py::test_step[4]": 4 << 20}
        self.assertEqual(json.loads(path.read_text(encoding="utf-8")), document)
        for wrong in ('{"format": 1}', "[", '{"format": "memlab-pytest-baseline", "version": 1, "peak_bytes": {"A": 1}}'):
            path.write_text(wrong, encoding="utf-8")
            self.refused(f"{path}: ", "--memlab")

    def test_recordings_of_failing_tests(self) -> None:
        self.write(FAILING)
        shown = self.pytest("--memlab", "--memlab-keep=failed", expect=1)
        self.assertEqual(self.files(), ["failed"])
        kept = sorted(path.name for path in (self.cwd / "failed").iterdir())
        self.assertEqual([re.sub(r"\.[0-9a-f]{8}\.", ".#.", name) for name in kept], [
            "test_gpu.py.TestBad.test_limit.json", "test_gpu.py.TestBad.test_setup[a_b].#.setup.json",
            "test_gpu.py.test_leak.teardown.json"])
        for name in kept:
            self.assertIn(f"recording: {self.cwd / 'failed' / name}\n", shown)
        report = json.loads((self.cwd / "failed" / kept[0]).read_text(encoding="utf-8"))
        grown = {scope["name"]: scope["peak_growth_bytes"] for scope in report["scopes"]}
        self.assertEqual(grown["test_gpu.py::TestBad::test_limit"], 2 << 20)
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), f"failed/{kept[0]}"])
        self.assertEqual(outcome.code, 0, outcome.describe())
        shutil.rmtree(self.cwd / "failed")
        self.pytest("--memlab", "-o", "memlab_keep=by_ini", "-k", "leak", expect=1)
        self.assertEqual(self.files(), ["by_ini"])
        self.pytest("--memlab", "-k", "leak", expect=1)
        self.pytest("--memlab", "-k", "leak", expect=1, MEMLAB_OUTPUT=f"{self.output}/")
        self.assertEqual(len(list(self.output.glob("memlab.*.json"))), 1)

    def test_workers_of_xdist(self) -> None:
        if not self.has("xdist"):
            self.skipTest("pytest-xdist is not installed here")
        self.write(BASELINE + FAILING)
        arguments = ("--memlab", "-n", "2")
        self.pytest(*arguments, "--memlab-update", "--memlab-keep=failed", expect=1)
        self.assertEqual(len(list((self.cwd / "failed").iterdir())), 3)
        self.assertEqual(self.files(), ["failed", "gpu-baseline.json"])
        shown = self.pytest(*arguments, "--memlab-fail-on-increase", "-k", "step or good", expect=1, FACTOR="1.5")
        self.assertIn("2 failed, 1 passed", shown[-3000:])
        self.assertIn(f"{12 << 20:>15,} bytes  test_gpu.py::test_step[8]\n", shown)
        self.assertIn("memlab: more than its baseline: +2,097,152 bytes, +50.0%  test_gpu.py::test_step[4]\n", shown)

        self.write("@limit('1 XB')\ndef test_one():\n    pass\n")  # a worker cannot end the run
        shown = self.pytest(*arguments, expect=1)
        self.assertIn("\ntest_gpu.py::test_one: limit_gpu_memory: '1 XB' is not a size: write it as", shown)
        self.assertIn("1 error", shown[-3000:])

    def test_without_memlab(self) -> None:
        self.write(MEMORY + LEAKS + BASELINE + KINDS)
        shown = self.pytest("-k", "before or beyond or little or step or both_gpus or allocations",
                            SIMCUDA_DEVICES="2")
        self.assertIn("memlab: 9 limits not checked: run with --memlab\n", shown)
        self.assertEqual(self.files(), [])

    def test_wrong_usage(self) -> None:
        self.write(MEMORY)
        self.refused("memlab_limit_gpu_memory: 'much' is not a size", "--memlab", "-o", "memlab_limit_gpu_memory=much")
        self.refused("--memlab-update needs --memlab", "--memlab-update")
        self.refused("--memlab-keep needs --memlab", "--memlab-keep=folder")
        self.refused("--memlab-fail-on-increase needs --memlab", "--memlab-fail-on-increase")
        outcome = self.pytest("--memlab", "--memlab-fail-on-increase", "test_gpu.py", expect=4)
        self.assertIn("'test_gpu.py' is no percentage; write --memlab-fail-on-increase=PERCENT", outcome)
        for marker, says in (("limit()", 'limit_gpu_memory is written as limit_gpu_memory("24 MiB", device=0, kind="pinned")'),
                             ("limit('1 XB')", "limit_gpu_memory: '1 XB' is not a size"),
                             ("limit('1 MB', gpu=1)", "limit_gpu_memory is written as"),
                             ("limit('1 MB', device='gpu')", "limit_gpu_memory: a GPU is given by its number"),
                             ("limit('1 MB', kind='vmm')", "limit_gpu_memory: kind is one of device, managed, pinned"),
                             ("leaks('1 MB', filter=3)", "limit_gpu_leaks: filter is a function"),
                             ("leaks('1 MB', 3)", "limit_gpu_leaks is written as"),
                             ("allocations('3')", "limit_gpu_allocations: '3' is not a number of allocations"),
                             ("pytest.mark.gpu_baseline(3)", "gpu_baseline takes no arguments")):
            self.write(f"@{marker}\ndef test_one():\n    pass\n")
            self.refused(f"test_gpu.py::test_one: {says}")

    def test_too_late(self) -> None:
        self.write(MEMORY)
        for early, why in (("import socket\nkept = socket.socket()\n", "sockets are open already"),
                           ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
                            "threads run already"),
                           ("import ctypes\nctypes.CDLL('libcuda.so.1')\n", "CUDA is loaded already")):
            (self.work / "site" / "early.py").write_text(early, encoding="utf-8")
            self.refused(f"--memlab: {why}, so pytest cannot be started again: run memlab-run", "--memlab", "-p", "early")
