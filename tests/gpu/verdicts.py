"""What the GPU suite says of each of its parts, and which GPUs there are."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

from harness import Outcome


@dataclass
class Verdict:
    """A line of the table."""

    name: str
    native: str = ""
    memlab: str = ""
    problems: list[str] = field(default_factory=list)
    skipped: str = ""
    begun: bool = True  # False: no time was left

    @property
    def word(self) -> str:
        if self.skipped:
            return f"skipped: {self.skipped}"
        return "FAILED" if self.problems else "passed"


def brief(outcome: Outcome, seconds: float) -> str:
    code = "timeout" if outcome.code is None else str(outcome.code)
    return f"{code} in {seconds:.1f} s"


def gpu_count() -> int:
    """Of this machine, 0 when there is no driver."""
    count = ctypes.c_int(0)
    driver = ctypes.CDLL("libcuda.so.1")
    ready = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if ready else 0


def gpu_name() -> str:
    """The first GPU, or an exception that says why there is none."""
    driver = ctypes.CDLL("libcuda.so.1")
    name = ctypes.create_string_buffer(100)
    version = ctypes.c_int()
    for call in (lambda: driver.cuInit(0), lambda: driver.cuDeviceGetName(name, 100, 0),
                 lambda: driver.cuDriverGetVersion(ctypes.byref(version))):
        if call() != 0:
            raise OSError("the driver finds no GPU")
    return f"{name.value.decode()}, driver for CUDA {version.value // 1000}.{version.value % 1000 // 10}"
