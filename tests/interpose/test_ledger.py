"""The ledger: what contexts, code, graphs and streams take of the GPU, each with its place. On the
simulated driver, which gives each of them a size.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from harness import Found, judge_recordings, run
from support import EndToEnd

MIB = 1 << 20
CONTEXT = 300
TAKES = {"module": 64, "kernel": 1, "launch": 16, "graph": 4, "upload": 8, "stream": 2, "event": 2, "limit": 66}
LOCAL = 40_000 * 132 * 2048 / MIB  # what all threads that can be resident on the simulated device need
DEVICE = {"SIMCUDA_CONTEXT_MEMORY": f"{CONTEXT}MiB",
          "SIMCUDA_TAKES": ",".join(f"{what}:{size}MiB" for what, size in TAKES.items())}


class Ledger(EndToEnd):
    """tests/programs/ledger.cpp, which has one of each."""

    def record(self, *arguments: str, **settings: str) -> Found:
        outcome = self.under_memlab(self.program("ledger", *arguments),
                                    DEVICE | {"MEMLAB_LEDGER": "on"} | settings)
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        self.assertEqual(len(found), 1)
        return found[0]

    def report_of(self, *arguments: str) -> str:
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), "ledger", *arguments])
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        return outcome.stdout.decode("utf-8")

    def ledger(self, found: Found) -> dict:
        """The page of the one GPU."""
        [report] = json.loads(self.report_of("--json", str(found.report_path)))["reports"]
        [device] = report["devices"]
        return device

    def groups(self, moment: dict) -> dict[str, list[tuple[str, float]]]:
        """The rows of each group: what or where, and MiB. All of them add up."""
        for group in moment["groups"]:
            self.assertEqual(sum(row["bytes"] for row in group["rows"]) or group["bytes"], group["bytes"])
        self.assertEqual(sum(group["bytes"] for group in moment["groups"]) + moment["rest_bytes"],
                         moment["used_bytes"])
        return {group["kind"]: [(row["what"] or row["place"]["function"].split("::")[-1],
                                 row["bytes"] / MIB) for row in group["rows"]]
                for group in moment["groups"]}

    def test_each_thing_has_its_row(self) -> None:
        device = self.ledger(self.record())
        groups = self.groups(device["moments"]["peak"])
        self.assertEqual(groups["context"], [("use_device", CONTEXT), ("second_context", CONTEXT)])
        self.assertEqual(groups["module"], [("ledger", TAKES["module"])])
        self.assertEqual(groups["kernel"], [("ledger", TAKES["kernel"])])
        self.assertEqual(groups["limit"], [("main", TAKES["limit"])])
        self.assertEqual(groups["graph"], [("main", TAKES["graph"])])
        self.assertEqual(groups["stream"], [("main", 3 * TAKES["stream"])])
        self.assertEqual(groups["event"], [("main", TAKES["event"])])
        # Its library's rest, and then the one that is only launched.
        self.assertEqual(groups["launch"], [("ledger", TAKES["launch"] + TAKES["kernel"])])
        self.assertNotIn("growth", groups)
        self.assertEqual(device["moments"]["peak"]["rest_bytes"], 0)
        self.assertEqual(device["not_measured"], 0)
        self.assertTrue(any("2 contexts are on this GPU" in advice for advice in device["advice"]))

    def test_an_upload_has_a_row_and_memory_of_nodes_is_the_pools(self) -> None:
        device = self.ledger(self.record("uploads"))
        groups = self.groups(device["moments"]["end"])
        self.assertEqual(groups["graph"], [("uploads", TAKES["upload"]), ("uploads", TAKES["graph"])])
        self.assertEqual(sum(size for _, size in groups["driver_pools"]), 6)
        self.assertEqual(device["moments"]["end"]["rest_bytes"], 0)

    def test_an_uploaded_graph_that_is_destroyed_leaves_no_row(self) -> None:
        self.assertNotIn("graph", self.groups(self.ledger(self.record("uploads", "given"))["moments"]["end"]))

    def test_what_is_given_back_leaves_no_row(self) -> None:
        device = self.ledger(self.record("given"))
        groups = self.groups(device["moments"]["end"])
        self.assertEqual(groups["context"], [("use_device", CONTEXT)])
        for kind in ("module", "graph", "stream"):
            self.assertNotIn(kind, groups)
        self.assertIn("module", self.groups(device["moments"]["peak"]))

    def test_nothing_is_measured_in_a_capture(self) -> None:
        groups = self.groups(self.ledger(self.record("captures"))["moments"]["end"])
        self.assertNotIn("module", groups)
        self.assertEqual(groups["context"], [("use_device", CONTEXT)])

    def launched(self, moment: dict) -> list[dict]:
        return [row for group in moment["groups"] if group["kind"] == "launch" for row in group["rows"]]

    def asked_for_used_memory(self, calls: Path) -> int:
        """How often the driver was."""
        [asked] = [line.split()[2] for line in calls.read_text(encoding="utf-8").splitlines()
                   if line.startswith("calls cuMemGetInfo_v2 ")]
        return int(asked)

    def test_a_first_launch_has_its_library_call_and_line(self) -> None:
        """Of 4,000 launches of two kernels in one context, and one in a second one."""
        calls = self.cwd / "calls.txt"
        found = self.record("launches", MEMLAB_LEDGER="auto", SIMCUDA_STATS=str(calls))
        self.assertLess(self.asked_for_used_memory(calls), 40)
        device = self.ledger(found)
        end = device["moments"]["end"]
        [row] = self.launched(end)
        # Of a module once, of each function once; in a second context nothing more is loaded here.
        self.assertEqual((row["what"], row["api"], row["bytes"], row["count"]),
                         ("ledger", "cuLaunchKernel", (TAKES["launch"] + 2 * TAKES["kernel"]) * MIB, 2))
        self.assertEqual(row["place"]["function"].split("::")[-1].split("(")[0], "launch")
        self.assertEqual(self.groups(end)["context"], [("use_device", CONTEXT), ("second_context", CONTEXT)])
        self.assertNotIn("growth", self.groups(end))
        self.assertEqual(device["not_measured"], 0)
        self.assertIn("first launches: code, local memory", self.report_of(str(found.report_path)))

    def test_local_memory_is_that_of_the_launch_that_needs_it(self) -> None:
        device = self.ledger(self.record("locals", MEMLAB_LEDGER="auto", SIMCUDA_MEMORY="32GiB"))
        peak = device["moments"]["peak"]
        self.assertEqual(self.groups(peak)["launch"], [("ledger", TAKES["launch"] + LOCAL)])
        self.assertEqual(peak["rest_bytes"], 0)
        self.assertNotIn("growth", self.groups(peak))
        self.assertGreater(peak["used_bytes"], LOCAL * MIB)

    def test_streams_of_threads_have_their_line(self) -> None:
        end = self.ledger(self.record("threads"))["moments"]["end"]
        self.assertEqual(self.groups(end)["stream"], [("library_stream", 200 * TAKES["stream"])])
        self.assertNotIn("growth", self.groups(end))
        self.assertEqual(end["rest_bytes"], 0)

    def test_an_executable_graph_is_measured_at_its_first_launch(self) -> None:
        end = self.ledger(self.record("execs"))["moments"]["end"]
        self.assertEqual(self.groups(end)["graph"],
                         [("execs", 300 * TAKES["upload"]), ("executable", 300 * TAKES["graph"])])
        self.assertNotIn("growth", self.groups(end))
        self.assertEqual(end["rest_bytes"], 0)

    def test_what_was_not_measured_is_estimated(self) -> None:
        """20,000 streams: the first thousand are measured (a machine that is busy may take their time for less), of the
        others there are the mean and the figure."""
        found = self.record("streams", "20000", MEMLAB_LEDGER="auto", SIMCUDA_MEMORY="32GiB",
                            SIMCUDA_TAKES="stream:1MiB")
        device = self.ledger(found)
        end = device["moments"]["end"]
        [streams] = [group for group in end["groups"] if group["kind"] == "stream"]
        self.assertEqual(streams["bytes"], 20_000 * MIB)
        self.assertEqual((end["rest_bytes"], [group for group in end["groups"] if group["kind"] == "growth"]), (0, []))
        measured, estimated = sorted(streams["rows"], key=lambda row: row["estimated"])
        self.assertGreater(measured["count"], 100)
        self.assertEqual((measured["estimated"], estimated["estimated"]), (False, True))
        self.assertEqual(estimated["count"], device["not_measured"])
        self.assertEqual(estimated["bytes"], device["not_measured"] * MIB)
        self.assertGreater(device["not_measured"], 100)
        page = " ".join(self.report_of(str(found.report_path)).split())
        self.assertIn("calls that were not measured", page)
        self.assertIn("estimated by the mean of the measured ones", page)

    def test_beyond_the_budget_calls_are_counted(self) -> None:
        # To measure all of them took the time of a run of seconds; contexts are measured anyway.
        found = self.record("many", MEMLAB_LEDGER="auto")
        device = self.ledger(found)
        self.assertEqual(self.groups(device["moments"]["peak"])["context"], [("use_device", CONTEXT)])
        self.assertGreater(device["not_measured"], 100)
        self.assertIn(f"{device['not_measured']:,} calls not measured", self.report_of(str(found.report_path)))

    def test_a_kernel_is_measured_once_each_time_it_is_loaded(self) -> None:
        """Runtimes ask for a kernel at each launch: 20,000 times here, two of which load it. The driver is asked for
        what is in use before and after these two, and around what else the program does."""
        calls = self.cwd / "calls.txt"
        device = self.ledger(self.record("kernels", SIMCUDA_STATS=str(calls)))
        self.assertLess(self.asked_for_used_memory(calls), 40)
        self.assertEqual(self.groups(device["moments"]["peak"])["kernel"], [("ledger", TAKES["kernel"])])

    def test_a_trim_is_followed_by_a_sample(self) -> None:
        """tests/programs/idle.cpp frees 30 MB and makes no calls while the memory goes back, 100 ms later at the
        earliest: what is in use at the end is of then."""
        outcome = self.under_memlab(self.program("idle", "1500"), DEVICE | {"MEMLAB_TRIM_AFTER": "100ms"})
        self.assertEqual(outcome.code, 0, outcome.describe())
        [found], problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        end = self.ledger(found)["moments"]["end"]
        self.assertGreater(end["time_ns"], 100_000_000)
        self.assertLess(end["used_bytes"], (CONTEXT + 8) * MIB)

    def test_off_asks_nothing_and_says_so(self) -> None:
        found = self.record(MEMLAB_LEDGER="off")
        self.assertNotIn("ledger", json.loads(found.report_path.read_text())["devices"][0])
        self.assertIn("No ledger was kept", self.report_of(str(found.report_path)))

    def test_the_log_has_the_same_page(self) -> None:
        found = self.record()
        for at in ("peak", "end"):
            self.assertEqual(self.report_of("--at", at, str(found.report_path)),
                             self.report_of("--at", at, str(found.log)))

    def check(self, found: Found, *limits: str) -> tuple[int, str]:
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), "check", *limits,
                                       str(found.report_path)])
        return outcome.code, outcome.stdout.decode("utf-8") + outcome.stderr.decode("utf-8")

    def test_limits(self) -> None:
        found = self.record()
        self.assertEqual(self.check(found, "--contexts", "2", "--modules", "65MiB", "--unexplained", "1%")[0], 0)
        code, said = self.check(found, "--limit", "contexts=1")
        self.assertEqual(code, 1, said)
        self.assertIn("second_context", said)
        self.assertEqual(self.check(found, "--limit", "modules=64MiB")[0], 1)

    def test_without_a_ledger_no_limit_is_kept(self) -> None:
        code, said = self.check(self.record(MEMLAB_LEDGER="off"), "--contexts", "9")
        self.assertEqual(code, 2)
        self.assertIn("no ledger was kept", said)

    def test_diff_and_summary_have_the_groups(self) -> None:
        found = self.record()
        diff = self.without_memlab([str(self.layout.tool("memlab-report")), "diff", "--json",
                                    str(found.report_path), str(found.log)])
        totals = json.loads(diff.stdout)["devices"][0]["totals"]
        self.assertEqual(totals["contexts_bytes"]["after"], 2 * CONTEXT * MIB)
        self.assertEqual(totals["rest_bytes"], {"before": 0, "after": 0, "change": 0})
        shown = self.shown(found)
        self.assertRegex(shown, r"600\.00 MiB +contexts")
        summary = self.without_memlab([str(self.layout.tool("memlab-report")), "--json", str(found.report_path)])
        fall = json.loads(summary.stdout)["reports"][0]["devices"][0]["waterfall"]
        self.assertEqual(fall["remainder"]["limit"], TAKES["limit"] * MIB)

    def test_metrics_have_the_groups(self) -> None:
        found = self.record()
        metrics = self.without_memlab([str(self.layout.tool("memlab-report")), "export", "--to", "openmetrics", "-o", "-",
                                       str(found.report_path)])
        self.assertEqual((metrics.code, metrics.stderr), (0, b""), metrics.describe())
        told = re.findall(r'memlab_ledger_bytes\{.*,moment="(\w+)",group="(\w+)"\} (\d+)', metrics.stdout.decode())
        self.assertGreater(len(told), 10)
        expected = {}
        for name, moment in self.ledger(found)["moments"].items():
            expected |= {(name, group["kind"]): group["bytes"] for group in moment["groups"]}
            expected[name, "rest"] = moment["rest_bytes"]
        self.assertEqual({(moment, group): int(size) for moment, group, size in told}, expected)

    def test_failures_of_the_driver_stay_the_programs(self) -> None:
        for fault in ("cuModuleLoadData:1:2", "cuStreamCreate:2:999", "cuGraphInstantiateWithFlags:1:719",
                      "cuCtxCreate:1:2", "cuCtxSetLimit:1:2"):
            with self.subTest(fault):
                settings = DEVICE | {"SIMCUDA_FAIL": fault, "MEMLAB_LEDGER": "on"}
                native = self.without_memlab(self.program("ledger"), settings)
                under = self.under_memlab(self.program("ledger"), settings)
                self.assertEqual((native.code, native.stdout), (under.code, under.stdout))
                self.assertEqual(native.code, 3)

    def test_a_driver_that_does_not_tell_is_no_matter(self) -> None:
        for call in range(1, 6):
            outcome = self.under_memlab(self.program("ledger"), DEVICE | {
                "SIMCUDA_FAIL": f"cuMemGetInfo:{call}:999", "MEMLAB_LEDGER": "on", "MEMLAB_POOL": "off"})
            self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())

    def witnesses(self, processes: str | None) -> tuple[dict, str]:
        """What NVML said, and the page."""
        library = self.layout.root / "lib"
        settings = {"LD_LIBRARY_PATH": f"{library}/simcuda:{library}/simnvml"}
        if processes is not None:
            settings["SIMNVML_PROCESSES"] = processes
        found = self.record("waits", **settings)
        device = self.ledger(found)
        self.groups(device["moments"]["peak"])  # which add up
        return device, self.report_of(str(found.report_path))

    def test_nvml_sees_one_process(self) -> None:
        device, page = self.witnesses("self:290")
        for witness in device["witnesses"]:
            self.assertEqual((witness["state"], witness["own_bytes"], witness["other_processes"]), ("seen", 290 * MIB, 0))
        times = [witness["time_ns"] for witness in device["witnesses"]]
        self.assertEqual(len(times), 2)
        self.assertGreater(times[1], 900_000_000)  # at the end
        self.assertIn("According to NVML, this process has 290.00 MiB, others 0 B", page)

    def test_nvml_sees_other_processes(self) -> None:
        device, page = self.witnesses("self:290,1:10")
        witness = device["witnesses"][-1]
        groups = self.groups(device["moments"]["peak"])
        if os.readlink("/proc/self/ns/pid") == "pid:[4026531836]":
            self.assertEqual((witness["state"], witness["other_bytes"]), ("seen", 10 * MIB))
            self.assertEqual(groups["others"], [("1 process", 10)])
            self.assertEqual(groups["context"], [("use_device", CONTEXT - 10)])
        else:  # which of the two it is nobody can tell
            self.assertEqual((witness["state"], witness["other_processes"]), ("elsewhere", 2))
            self.assertEqual(groups["context"], [("use_device", CONTEXT)])
            self.assertIn("NVML lists 2 processes with 300.00 MiB, but not which is this one",
                          " ".join(page.split()))

    def test_nvml_is_absent(self) -> None:
        device, page = self.witnesses(None)
        self.assertEqual([witness["state"] for witness in device["witnesses"]], ["absent"])
        self.assertIn("NVML could not be queried", page)

    def test_a_fork_waits_for_nvml(self) -> None:
        """A child that uses NVML itself finds none of its locks taken by memlab's thread."""
        library = self.layout.root / "lib"
        outcome = self.under_memlab(self.program("ledger", "forks"), {
            "LD_LIBRARY_PATH": f"{library}/simcuda:{library}/simnvml", "SIMNVML_PROCESSES": "self:290",
            "SIMNVML_MILLISECONDS": "50"})
        self.assertEqual((outcome.code, outcome.stdout), (0, b"children that hung: 0\n"), outcome.describe())

    def test_bad_usage_is_one_line(self) -> None:
        outcome = run([str(self.layout.tool("memlab-report")), "ledger", "--at", "noon", "x.json"],
                      self.layout.environment(memlab=False), self.cwd)
        self.assertEqual((outcome.code, outcome.stdout), (2, b""))
        self.assertEqual(outcome.stderr.count(b"\n"), 1, outcome.describe())
