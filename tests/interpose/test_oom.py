"""An allocation that fails explains itself once, on stderr, with figures that are the report's; the
program gets CUDA's own error. On the simulated driver, with a limit or a small device.
"""

from __future__ import annotations

import os
import re
import subprocess

from harness import Found, Outcome, judge_recordings
from support import EndToEnd

DEVICE = {"SIMCUDA_CONTEXT_MEMORY": "300MiB", "SIMCUDA_MEMORY": "8GiB"}


class OutOfMemory(EndToEnd):
    """Programs that meet the end of the device."""

    def run_out(self, *command: str, **settings: str) -> tuple[list[str], Outcome]:
        """The message's lines, without their prefix."""
        outcome = self.under_memlab(self.program(*command), DEVICE | settings)
        self.assertEqual(outcome.code, 0, outcome.describe())
        lines = outcome.stderr.decode().splitlines()
        for line in lines:
            self.assertTrue(line.startswith("memlab: "), line)
        return [line.removeprefix("memlab: ").strip() for line in lines], outcome

    def recording(self) -> Found:
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        self.assertEqual(len(found), 1)
        return found[0]

    def test_once_and_with_the_figures_of_the_report(self) -> None:
        message, _ = self.run_out("limited", "fill", "device", MEMLAB_LIMIT="1GiB")
        self.assertEqual(sum("out of memory" in line for line in message), 1)
        self.assertIn("out of memory: cuMemAlloc_v2 of 64.00 MiB on GPU 0", message[0])
        self.assertIn("The device has 1.00 GiB by MEMLAB_LIMIT (8.00 GiB without), 20.00 MiB of it "
                      "free.", message)
        self.assertIn("memlab's pool holds 704.00 MiB: 704.00 MiB allocated.", message)
        self.assertIn("300.00 MiB are in use by this process's contexts and code and the driver's own "
                      "pools, or by other processes.", message)
        self.assertIn("MEMLAB_LIMIT refused it, not the driver.", message)
        self.assertIn("It is short by 44.00 MiB, fragmentation aside; without the limit it would "
                      "have fit.", message)
        report = self.recording().report
        self.assertEqual(report["oom_count"], 2)  # the second round's too
        self.assertEqual(report["devices"][0]["limit_bytes"], 1 << 30)
        self.assertEqual(report["devices"][0]["memory_stats"]["num_ooms"], 2)
        oom = report["ooms"][0]
        self.assertEqual(oom["limit_bytes"], 1 << 30)
        self.assertEqual(oom["pool"]["allocated_bytes"], 704 << 20)
        self.assertEqual(oom["kinds"], {"device": 704 << 20})
        self.assertEqual(oom["refused_by"], "memlab_limit")
        self.assertEqual(oom["holders"]["sites"][0]["allocations"], 11)
        for sentence in oom["explanation"]:
            self.assertIn(sentence, message)

    def test_memlab_report_says_the_same_from_the_log_alone(self) -> None:
        message, _ = self.run_out("limited", "fill", "device", MEMLAB_LIMIT="1GiB")
        found = self.recording()
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), str(found.log)])
        words = " ".join(outcome.stdout.decode().split())
        for sentence in found.report["ooms"][0]["explanation"]:
            self.assertIn(sentence, message)
            self.assertIn(sentence, words)

    def test_the_command_names_the_lines(self) -> None:
        self.require_installed("addr2line")
        message, _ = self.run_out("out_of_memory", SIMCUDA_MEMORY="1GiB",
                                  SIMCUDA_CONTEXT_MEMORY="0")
        commands = [line for line in message if line.startswith("addr2line ")]
        self.assertEqual(len(commands), 2)  # of the request, of the one holder
        for command in commands:
            said = subprocess.run(command.split(), capture_output=True, text=True, check=True)
            self.assertRegex(said.stdout, r"main at .*out_of_memory\.cpp:\d+")

    def test_holders_have_the_names_that_the_program_gave_them(self) -> None:
        message, _ = self.run_out("out_of_memory", SIMCUDA_MEMORY="1GiB", SIMCUDA_CONTEXT_MEMORY="0")
        names = '"results" 832.00 MiB, "index" int64[8388608] 192.00 MiB'
        self.assertIn(f"1.00 GiB in 16 allocations ({names}): cuMemAlloc_v2 <", "\n".join(message))
        self.assertTrue(any(line.startswith(f"One call site ({names}) has allocated 16 times")
                            for line in message), message)
        found = self.recording()
        (holder,) = found.report["ooms"][0]["holders"]["sites"]
        self.assertEqual(holder["labels"], [{"name": "results", "count": 13, "bytes": 832 << 20},
                                            {"name": "index", "count": 3, "bytes": 192 << 20, "detail": "int64[8388608]"}])
        labels = [site["labels"] for site in found.report["sites"] if "labels" in site]
        self.assertEqual(labels, [[{"name": "results", "count": 13, "live_count": 0, "live_bytes": 0},
                                   {"name": "index", "count": 3, "live_count": 0, "live_bytes": 0,
                                    "detail": "int64[8388608]"}]])
        tool = str(self.layout.tool("memlab-report"))
        for command, text in (("oom", names), ("sites", '"results", "index" int64[8388608]')):
            outcome = self.without_memlab([tool, command, "--no-symbols", str(found.report_path)])
            self.assertIn(f"  {text}\n", outcome.stdout.decode())

    def test_every_kind_that_holds_memory_is_named(self) -> None:
        for kind, name in (("vmm", "vmm"), ("array", "array"), ("async", "async_pool")):
            for record in ("on", "off"):
                with self.subTest(kind, record=record):
                    message, _ = self.run_out("limited", "fill", kind, MEMLAB_LIMIT="1GiB",
                                              MEMLAB_RECORD=record)
                    self.assertIn(f"Outside the pool this program holds 704.00 MiB ({name}).", message)

    def test_without_a_recording_the_pool_itself_tells(self) -> None:
        message, _ = self.run_out("limited", "fill", "device", MEMLAB_LIMIT="1GiB",
                                  MEMLAB_RECORD="off")
        self.assertIn("memlab's pool holds 704.00 MiB: 704.00 MiB allocated.", message)
        self.assertIn("It is short by 44.00 MiB, fragmentation aside; without the limit it would "
                      "have fit.", message)
        self.assertFalse(any("addr2line" in line for line in message))
        self.assert_nothing_written()

    def test_quiet_is_quiet(self) -> None:
        message, _ = self.run_out("limited", "fill", "device", MEMLAB_LIMIT="1GiB",
                                  MEMLAB_VERBOSITY="quiet")
        self.assertEqual(message, [])
        self.assertEqual(len(self.recording().report["ooms"]), 2)

    def test_fragmentation_is_told_from_shortage(self) -> None:
        message, outcome = self.run_out("fragmented", MEMLAB_LIMIT="1GiB")
        plain = self.without_memlab(self.program("fragmented"), DEVICE | {"SIMCUDA_MEMORY": "1GiB"})
        self.assertEqual(plain.code, 0, plain.describe())
        self.assertEqual(outcome.stdout, plain.stdout)
        self.assertEqual(outcome.stdout.count(b": 2"), 1, outcome.describe())
        verdict = next(line for line in message if "fragmented: " in line)
        self.assertRegex(verdict, r"^There was enough free memory in total \(\d+\.\d\d MiB\), but fragmented: the "
                                  r"largest free block of the pool had 2\.00 MiB[.;]")
        self.assertRegex("\n".join(message), r"in \d+ allocations: cuMemAlloc_v2 < "
                         r"program::allocate\+0x[0-9a-f]+ \(fragmented\+0x[0-9a-f]+\) < main\+0x")
        # Facts only: what would have helped is found afterwards, by a replay.
        self.assertFalse(any("MEMLAB_BACKEND" in line or "MAX_SPLIT" in line for line in message), message)
        found = self.recording()
        tool = str(self.layout.tool("memlab-report"))
        told = self.without_memlab([tool, "oom", "--no-symbols", str(found.report_path)])
        words = " ".join(told.stdout.decode().split())
        # Mapped pages do not help here: each of them has a live block.
        self.assertNotIn("MEMLAB_BACKEND=vmm", words)
        self.assertRegex(words, r"MEMLAB_LIMIT=\d+MiB is enough to serve it\.")

    def test_other_processes_are_asked_for_when_it_fails(self) -> None:
        """By a thread of memlab's own: the program does not wait for the answer, which is attached to
        the failure when it comes, at the program's end at the latest."""
        library = self.layout.root / "lib"
        self.run_out("limited", "fill", "device", MEMLAB_LIMIT="1GiB",
                     LD_LIBRARY_PATH=f"{library}/simcuda:{library}/simnvml",
                     SIMNVML_PROCESSES="self:290,1:10", SIMNVML_MILLISECONDS="50")
        oom = self.recording().report["ooms"][0]
        if os.readlink("/proc/self/ns/pid") != "pid:[4026531836]":
            return  # there NVML cannot tell which process is this one
        self.assertEqual((oom["others"]["bytes"], oom["others"]["processes"]), (10 << 20, 1))
        self.assertGreater(oom["others"]["time_ns"], oom["time_ns"])
        self.assertIn("Other processes hold 10.00 MiB of it (1 process, by NVML, asked after the failure)",
                      " ".join(oom["explanation"]))

    def test_threads_that_fail_together_explain_once(self) -> None:
        message, _ = self.run_out("limited", "threads", MEMLAB_LIMIT="1GiB")
        self.assertEqual(sum("out of memory" in line for line in message), 1)
        self.assertEqual(self.recording().report["oom_count"], 8)
