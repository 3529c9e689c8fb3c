"""libmemlab.so as a file: what it exports, what it needs, and which glibc it needs."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import unittest

from support import ROOT, Build, EndToEnd

GLIBC_FLOOR = (2, 28)

# What NVTX looks for in the library that NVTX_INJECTION64_PATH names.
NVTX = ("InitializeInjectionNvtx2", "InitializeInjectionNvtxExtension")
# What Kokkos looks for in the library that KOKKOS_TOOLS_LIBS names.
KOKKOS = {f"kokkosp_{name}" for name in ("init_library", "request_tool_settings", "allocate_data", "push_profile_region",
                                         "pop_profile_region", "profile_event")}
# The loader's.
LOADER = ("dlsym", "dlvsym", "dlopen", "dlmopen", "dlclose")
# Start child processes without the handlers of pthread_atfork().
CHILDREN = ("vfork", "posix_spawn", "posix_spawnp")
# What ThreadSanitizer's runtime asks for.
SANITIZERS = ("__tsan_default_suppressions",)
# For musl's loader, which looks at hidden symbols too.
HIDDEN = {"__libc_start_main", "stdin"}
# NVML's that tell of memory.
NVML = {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"} | {
    f"nvmlDeviceGet{what}RunningProcesses{version}" for what in ("Compute", "Graphics") for version in ("", "_v2", "_v3")}
# NCCL's that use or end a communicator.
NCCL = {f"nccl{name}" for name in ("AllReduce", "Reduce", "Bcast", "Broadcast", "ReduceScatter", "AllGather", "Send", "Recv",
                                   "GroupStart", "GroupEnd", "CommFinalize", "CommDestroy", "CommAbort")}
# CUPTI's functions by which another profiler subscribes.
SUBSCRIBING = ("cuptiSubscribe", "cuptiSubscribe_v2", "cuptiActivityRegisterCallbacks", "cuptiActivityEnable",
               "cuptiActivityEnableContext", "cuptiActivitySetAttribute", "cuptiActivitySetAttribute_v2")


def tool(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
# What libc10_cuda.so tells libc10.so, of PyTorch since 2.3 and before; and what ends each operator of a forward.
PYTORCH = {f"_ZN3c1027report{what}{totals}NS_6DeviceE"
           for what in ("MemoryUsageToProfilerEPvl", "OutOfMemoryToProfilerEl") for totals in ("mm", "ll")} | {
    "_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE"}


class Library(EndToEnd):
    """Facts read with nm and readelf."""

    def setUp(self) -> None:
        super().setUp()
        if Build.sanitizer:
            self.skipTest("a sanitizer adds symbols and libraries of its own")

    def exported(self) -> set[str]:
        lines = tool("nm", "-D", "--defined-only", str(self.layout.library)).splitlines()
        return {line.split()[-1] for line in lines} - HIDDEN

    def hooked(self) -> set[str]:
        names = set()
        for table in ("hooked_functions.inc", "submitting_functions.inc", "implicit_functions.inc"):
            text = (ROOT / "interpose" / "driver" / table).read_text(encoding="utf-8")
            names.update(re.findall(r"^MEMLAB_HOOK\((\w+),", text, re.MULTILINE))
        return names

    def test_exports_only_what_it_interposes(self) -> None:
        allowed = self.hooked() | {"cuGetProcAddress", "cuGetProcAddress_v2", *LOADER, *CHILDREN,
                                   *SUBSCRIBING, *NVML, *NCCL, *NVTX, *KOKKOS, *PYTORCH, *SANITIZERS}
        strangers = {name for name in self.exported() - allowed if not name.startswith("memlab_")}
        self.assertEqual(strangers, set())

    def test_exports_all_that_it_interposes(self) -> None:
        wanted = self.hooked() | {"cuGetProcAddress", "cuGetProcAddress_v2", *LOADER, *CHILDREN,
                                  *SUBSCRIBING, *NVML, *NCCL, *NVTX, *KOKKOS, *PYTORCH, *SANITIZERS}
        header = (ROOT / "interpose/include/memlab/memlab.h").read_text(encoding="utf-8")
        wanted |= set(re.findall(r"weak\)\) [\w ]+?\b(memlab_api_\w+)\(", header))
        self.assertGreater(len(wanted), 50)
        self.assertEqual(wanted - self.exported(), set())

    def test_what_is_for_musl_is_hidden_from_glibc(self) -> None:
        symbols = [line.split() for line in tool("readelf", "-W", "--dyn-syms", str(self.layout.library)).splitlines()]
        self.assertEqual({line[7]: line[5] for line in symbols if len(line) == 8 and line[7] in HIDDEN},
                         dict.fromkeys(HIDDEN, "HIDDEN"))

    def test_exports_the_same_with_any_cuda_headers(self) -> None:
        if self.layout.other_library is None:
            self.skipTest("one library: tools/dev cuda12 compares two")
        own = dataclasses.replace(self.layout, other_library=None).library
        names = [tool("nm", "-D", "--defined-only", "--format=posix", str(library)).splitlines()
                 for library in (self.layout.library, own)]
        names = [{tuple(line.split()[:2]) for line in lines} for lines in names]
        self.assertEqual(names[0] ^ names[1], set())

    def test_exports_have_no_version(self) -> None:
        self.assertNotIn("Version definition section", tool("readelf", "-V", str(self.layout.library)))

    def test_needs_libc_and_the_loader_only(self) -> None:
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "-d", str(self.layout.library))))
        # glibc 2.34 moved what was in libpthread and libdl into libc; both are still there, empty.
        self.assertEqual(needed, {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"})

    def test_needs_no_newer_glibc_than_stated(self) -> None:
        versions = {tuple(int(part) for part in version.split("."))
                    for version in re.findall(r"GLIBC_([0-9.]+)",
                                              tool("nm", "-D", "--undefined-only", "--with-symbol-versions",
                                                   str(self.layout.library)))}
        self.assertGreater(len(versions), 2)
        highest = max(versions)
        print(f"needs glibc {'.'.join(map(str, highest))}")
        self.assertLessEqual(highest, GLIBC_FLOOR)

    def test_stack_is_not_executable(self) -> None:
        segments = tool("readelf", "-lW", str(self.layout.library))
        stack = next(line for line in segments.splitlines() if "GNU_STACK" in line)
        self.assertNotIn("RWE", stack)

    def test_does_not_forbid_late_loading(self) -> None:
        headers = tool("readelf", "-lW", str(self.layout.library))
        tls = [line.split() for line in headers.splitlines() if line.strip().startswith("TLS")]
        for line in tls:  # initial-exec storage is scarce when a library is loaded late
            self.assertLessEqual(int(line[5], 16), 1024)


if __name__ == "__main__":
    unittest.main()
