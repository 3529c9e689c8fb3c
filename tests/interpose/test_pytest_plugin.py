"""pytest --memlab: pytest starts itself again under memlab, and limits of tests are checked."""

from __future__ import annotations

import subprocess

from support import EndToEnd
from test_python_api import make_package

PYTHON = "/usr/bin/python3"
TESTS = """
import ctypes
import pytest

MIB = 1 << 20

def allocate(mebibytes):
    cuda, context, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_int()
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0 and cuda.cuCtxSetCurrent(context) == 0
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mebibytes * MIB)) == 0
    return lambda: cuda.cuMemFree_v2(pointer)

@pytest.mark.limit_gpu_memory("1 MiB")
def test_before_cuda():
    pass

@pytest.fixture(scope="module")
def model():
    free = allocate(64)
    yield
    free()

@pytest.mark.limit_gpu_memory("24 MiB")
@pytest.mark.parametrize("run", range(100))
def test_within(model, run):
    allocate(24)()

@pytest.mark.limit_gpu_memory("24 MiB")
def test_beyond(model):
    allocate(26)()

def test_by_default(model):
    allocate(40)()
"""


class PytestPlugin(EndToEnd):
    """Each test runs pytest on tests that use the simulated driver."""

    def setUp(self) -> None:
        super().setUp()
        if subprocess.run([PYTHON, "-c", "import pytest"], capture_output=True, check=False).returncode != 0:
            self.skipTest("pytest is not installed here")
        make_package(self.layout, self.work / "site")
        (self.cwd / "test_gpu.py").write_text(TESTS, encoding="utf-8")

    def pytest(self, *arguments: str) -> tuple[int, str]:
        outcome = self.without_memlab([PYTHON, "-B", "-m", "pytest", "-p", "memlab.pytest_plugin", "-p", "no:cacheprovider",
                                       *arguments], {"PYTHONPATH": str(self.work / "site"),
                                                     "MEMLAB_OUTPUT": f"{self.output}/"})
        return outcome.code, (outcome.stdout + outcome.stderr).decode("utf-8")

    def test_limits(self) -> None:
        code, shown = self.pytest("--memlab", "--junit-xml=junit.xml", "-o", "memlab_limit_gpu_memory=32 MiB")
        self.assertEqual(code, 1, shown)
        self.assertIn("2 failed, 101 passed", shown[-3000:])
        self.assertIn(f"needed {26 << 20} bytes of GPU memory, its limit is {24 << 20}", shown)
        self.assertIn(f"needed {40 << 20} bytes of GPU memory, its limit is {32 << 20}", shown)
        self.assertIn("test_gpu.py:", shown)
        self.assertIn(f"{40 << 20:>15,} bytes  test_gpu.py::test_by_default\n", shown)
        self.assertIn("1 limits not checked: no GPU was used", shown)
        self.assertIn("    test_gpu.py::test_before_cuda\n", shown)
        junit = (self.cwd / "junit.xml").read_text(encoding="utf-8")
        self.assertEqual(junit.count(f'<property name="memlab_gpu_bytes" value="{24 << 20}"'), 100)

    def test_without_memlab(self) -> None:
        code, shown = self.pytest("-k", "before or beyond")
        self.assertEqual(code, 0, shown)
        self.assertIn("memlab: 2 limits not checked: run with --memlab", shown)

    def test_bad_limits(self) -> None:
        code, shown = self.pytest("--memlab", "-o", "memlab_limit_gpu_memory=much")
        self.assertEqual(code, 4, shown)
        self.assertIn("'much' is not a size", shown)

    def test_too_late(self) -> None:
        (self.work / "site" / "early.py").write_text("import socket\nkept = socket.socket()\n", encoding="utf-8")
        code, shown = self.pytest("--memlab", "-p", "early")
        self.assertEqual(code, 4, shown)
        self.assertIn("sockets are open already", shown)
