"""Memory that a library may export on the program's behalf: once UCX or MPI is loaded, new
memory comes from the driver, and every export is exact. Without that, a block inside a segment is
refused, with a message.
"""

from __future__ import annotations

from harness import Found, Outcome, judge_recordings
from support import EndToEnd

REFUSED = "801"


class IpcUsers(EndToEnd):
    """One program, tests/programs/ipc_user.cpp, that exports a pair of blocks."""

    def export(self, when: str, program: str = "ipc_user", **settings: str) -> tuple[list[str], Outcome, Found]:
        """What its two exports answered."""
        programs = str(self.layout.root / "bin" / "programs")
        paths = self.layout.environment(memlab=False).get("LD_LIBRARY_PATH", "")
        self.output = self.work / "-".join(("out", program, when, *settings.values()))
        outcome = self.under_memlab(self.program(program, when),
                                    {"LD_LIBRARY_PATH": f"{programs}:{paths}"} | settings)
        self.assertEqual(outcome.code, 0, outcome.describe())
        self.assertNotIn(b"cannot be loaded", outcome.stdout)
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        answers = [line.split()[-1] for line in outcome.stdout.decode().splitlines()
                   if line.startswith("export:")]
        return answers, outcome, found[0]

    def reasons(self, found: Found) -> str:
        return " ".join(missed["reason"] for missed in found.report["missed"])

    def segments(self, library: str, **settings: str) -> list[str]:
        path = self.layout.program("framework_cache").parent / library
        outcome = self.under_memlab(self.program("framework_cache", str(path)), settings)
        self.assertEqual(outcome.code, 0, outcome.describe())
        return outcome.stdout.decode().splitlines()

    def test_segments_of_pytorchs_cache_are_the_drivers(self) -> None:
        plain = ["exported: 4 of 4", "the driver has it back: yes"]
        self.assertEqual(self.segments("libc10_cuda.so"), plain)
        for settings in ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, {"MEMLAB_IPC": "off"}):
            self.assertEqual(self.segments("libc10_cuda.so", **settings)[1], "the driver has it back: no")
        self.assertEqual(self.segments("libnot_c10_cuda.so")[1], "the driver has it back: no")

    def test_without_such_a_library_a_block_inside_is_refused(self) -> None:
        answers, outcome, found = self.export("never", MEMLAB_BACKEND="classic")
        self.assertEqual(answers, ["0", REFUSED])
        self.assertIn(b"cuIpcGetMemHandle of a block inside a pooled segment", outcome.stderr)
        self.assertNotIn("is loaded", self.reasons(found))

    def test_code_that_refers_to_the_export_gets_the_drivers_memory(self) -> None:
        for backend in ("classic", "vmm"):
            answers, outcome, found = self.export("never", "ipc_user_linked", MEMLAB_BACKEND=backend)
            self.assertEqual((answers, outcome.stderr), (["0", "0"], b""))
            self.assertIn("refer to cudaIpcGetMemHandle was not pooled", self.reasons(found))
            self.assertNotIn("handles of memlab's own", self.reasons(found))
            self.assertEqual(found.report["devices"][0]["memory_stats"]["num_device_alloc"], 0)
        answers, _, found = self.export("never", "ipc_user_linked", MEMLAB_IPC="off", MEMLAB_BACKEND="classic")
        self.assertEqual(answers, ["0", REFUSED])
        self.assertNotIn("refer to cudaIpcGetMemHandle", self.reasons(found))

    def test_loaded_before_nothing_is_pooled(self) -> None:
        answers, outcome, found = self.export("before")
        self.assertEqual((answers, outcome.stderr), (["0", "0"], b""))
        self.assertIn("libucp.so.0 is loaded, which may share device memory", self.reasons(found))
        stats = found.report["devices"][0]["memory_stats"]
        self.assertEqual(stats["num_device_alloc"], 0)

    def test_loaded_later_it_is_noticed_when_the_pool_grows(self) -> None:
        answers, outcome, found = self.export("later")
        self.assertEqual((answers, outcome.stderr), (["0", "0"], b""))
        self.assertIn("libucp.so.0 is loaded", self.reasons(found))
        stats = found.report["devices"][0]["memory_stats"]
        self.assertGreater(stats["num_device_alloc"], 0)  # what came before was pooled

    def test_vmm_memory_too(self) -> None:
        answers, outcome, _ = self.export("before", MEMLAB_BACKEND="vmm")
        self.assertEqual((answers, outcome.stderr), (["0", "0"], b""))

    def test_off_pools_all_the_same(self) -> None:
        answers, _, found = self.export("before", MEMLAB_IPC="off", MEMLAB_BACKEND="classic")
        self.assertEqual(answers, ["0", REFUSED])
        self.assertNotIn("is loaded", self.reasons(found))
