"""What programs say of themselves, with memlab.h and with NVTX, end to end."""

from __future__ import annotations

import json
import unittest

from harness import Found, Outcome, differences, judge_recordings, run
from support import Build, EndToEnd

MIB = 1 << 20


def by_path(report: dict) -> dict[str, dict]:
    """The scopes by their names from the outermost on; ranges in brackets."""
    rows: dict[str, dict] = {}
    paths: list[str] = []
    for scope in report["scopes"]:
        name = f"[{scope['name']}]" if scope["kind"] == "range" else scope["name"]
        path = name if scope["parent"] is None else f"{paths[scope['parent']]}/{name}"
        paths.append(path)
        rows[path] = scope
    return rows


class Scopes(EndToEnd):
    """Programs that print the same with and without memlab, and their reports."""

    def record(self, command: list[str], settings: dict[str, str] | None = None
               ) -> tuple[Outcome, Found]:
        native = self.without_memlab(command)
        self.assertEqual(native.code, 0, native.describe())
        under = self.under_memlab(command, settings)
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(differences(native, under, may_warn=False) + problems)
        self.assertEqual(len(found), 1)
        return under, found[0]

    def check_notes(self, program: str) -> None:
        snapshot = self.work / "snapshot.json"
        _, found = self.record(self.program(program, str(snapshot)))
        report = found.report
        rows = by_path(report)
        self.assertEqual(rows["setup"]["escaped"]["count"], 1)
        self.assertEqual(rows["setup"]["entries"], 1)
        self.assertNotIn("setup/over before CUDA", rows)
        step, forward = rows["step"], rows["step/forward"]
        self.assertEqual((step["entries"], step["open"], step["allocated_count"]), (20, 0, 40))
        self.assertEqual(forward["escaped"]["bytes"], 20 * 3 * MIB)
        self.assertEqual(forward["escaped"]["most_bytes"], 3 * MIB)
        self.assertEqual(forward["peak_growth_bytes"], 3 * MIB)
        self.assertEqual(forward["freed_count"], 0)
        self.assertEqual(rows["step/backward"]["freed_bytes"], 20 * 3 * MIB)
        self.assertEqual(step["escaped"]["count"], 20)
        self.assertEqual(step["escaped"]["bytes"], 20 * 4096)
        self.assertEqual(rows["worker"]["allocated_count"], 1)
        self.assertEqual(rows["open at the end"]["open"], 1)
        if program == "notes_cpp":
            self.assertEqual(rows["in a block"]["freed_count"], 1)
        self.assertEqual(report["unbalanced_scopes"],
                         {"ends_without_begin": 1, "ended_with_thread": 1, "too_many_open": 0,
                          "open_at_end": 1})
        names = [mark["name"] for mark in report["marks"]]
        self.assertEqual(names, ["before CUDA", *(f"end of step {i}" for i in range(20)), ""])
        verdicts = {(each["kind"], each["name"]): each for each in report["steps"]}
        for key in (("scope", "step"), ("mark", "end of step #")):
            self.assertEqual((verdicts[key]["steps"], verdicts[key]["verdict"]), (20, "growing"))
            self.assertAlmostEqual(verdicts[key]["bytes_per_step"], 4096)
            (growing,) = verdicts[key]["growing_sites"]
            self.assertEqual(report["sites"][growing["site"]]["requested_bytes"], 20 * 4096)
        (label,) = report["labels"]
        self.assertEqual((label["name"], label["detail"], label["live_count"]), ("weights", "float32[500, 500]", 1))
        self.assertIn((1_000_000, "weights", "float32[500, 500]"),
                      [(live["requested_bytes"], live["label"], live.get("label_detail"))
                       for live in report["largest_live"]])
        halfway = json.loads(snapshot.read_bytes())
        self.assertEqual(halfway["process"]["ended"], "running")
        self.assertEqual(by_path(halfway)["step"]["entries"], 10)
        text = self.shown(found)
        self.assertRegex(text, r'20 steps by scope "step": growing\n +4\.00 KiB/step  \S+')
        self.assertRegex(text, r"weights  float32\[500, 500\]\n")
        copy = self.work / "copy.json"
        for view, shown in (("leaks", r'program\.h:\d+  allocate\n +"weights" float32\[500, 500\] 9\d\d\.\d\d KiB\n'),
                            ("sites", r'"weights" float32\[500, 500\]\n'),
                            ("pool", r'"weights" float32\[500, 500\] 9\d\d\.\d\d KiB\n')):
            page = self.without_memlab([str(self.layout.tool("memlab-report")), view, str(found.report_path)])
            self.assertRegex(page.stdout.decode(), shown)
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), "anonymize", str(found.report_path), "-o",
                                       str(copy)])
        self.assertEqual(outcome.code, 0, outcome.describe())
        anonymous = json.loads(copy.read_bytes())
        self.assertEqual([anonymous["labels"], [live.get("label_detail") for live in anonymous["largest_live"]]],
                         [report["labels"], [live.get("label_detail") for live in report["largest_live"]]])
        self.assertRegex(text, r" 20  step/forward\n")

    def test_memlab_h_from_c99(self) -> None:
        self.check_notes("notes")

    def test_memlab_h_from_cpp17(self) -> None:
        self.check_notes("notes_cpp")

    def test_snapshot_beside_the_report(self) -> None:
        outcome = self.under_memlab(self.program("notes", "warm"))
        self.assertEqual(outcome.stderr, b"", outcome.describe())
        (path,) = self.output.glob("*.warm.json")
        self.assertRegex(path.name, r"^memlab\.notes\.\d+\.warm\.json$")
        self.assertEqual(json.loads(path.read_bytes())["mark_count"], 11)

    def test_without_recording_the_calls_do_nothing(self) -> None:
        outcome = self.under_memlab(self.program("notes", "warm"), {"MEMLAB_RECORD": "off"})
        self.assertEqual((outcome.code, outcome.stdout, outcome.stderr), (0, b"20 steps\n", b""))
        self.assert_nothing_written()

    def test_nvtx(self) -> None:
        _, found = self.record(self.program("nvtx_ranges"),
                               {"NVTX_INJECTION64_PATH": str(self.layout.library)})
        report = found.report
        rows = by_path(report)
        self.assertEqual(rows["forward"]["escaped"]["bytes"], 1536 << 10)
        self.assertEqual(rows["forward/LIB:call"]["escaped"]["bytes"], 512 << 10)
        inner = rows["wide ä€/LIB:registered/"]
        self.assertEqual((inner["entries"], inner["allocated_count"]), (1, 1))
        self.assertEqual(rows["[first]"]["allocated_count"], 2)
        self.assertEqual(rows["[second]"]["allocated_count"], 2)
        self.assertEqual(rows["[first]"]["escaped"]["bytes"], 512 << 10)
        self.assertEqual(rows["iteration # of many"]["entries"], 20000)
        self.assertEqual(rows[""]["entries"], 4)
        self.assertEqual(rows["x" * 255]["entries"], 1)
        self.assertEqual(rows["ä" * 127]["entries"], 1)
        self.assertLess(len(report["scopes"]), 20)
        payload = rows["PAYLOAD:ended with a payload"]
        self.assertEqual((payload["entries"], payload["escaped"]["bytes"]), (1, 4 << 10))
        self.assertEqual((rows["PAYLOAD:"]["entries"], rows["[PAYLOAD:]"]["entries"]), (1, 1))
        self.assertEqual({kind: count for kind, count in report["unbalanced_scopes"].items() if count},
                         {"ends_without_begin": 3})
        marks = [mark["name"] for mark in report["marks"]]
        self.assertEqual(marks[:2], ["a mark", "LIB:a mark of the library"])
        self.assertIn("�� invalid �", marks)
        self.assertEqual({label["name"]: label["live_bytes"] for label in report["labels"]},
                         {"a heap": MIB, "a region": 512 << 10})
        self.assertEqual(report["missed"], [])
        names = {thread["id"]: thread["name"] for thread in report["threads"]}
        self.assertEqual(names.pop(report["process"]["pid"]), "from the start")
        self.assertEqual(names.pop(1), "nobody")
        self.assertEqual(sorted(names.values()), ["named €", "range's end"])

    def test_kokkos(self) -> None:
        _, found = self.record(self.program("kokkos_views"), {"KOKKOS_TOOLS_LIBS": str(self.layout.library)})
        report = found.report
        rows = by_path(report)
        self.assertEqual(rows["assemble"]["escaped"]["bytes"], MIB)
        self.assertEqual((rows["assemble/inner"]["allocated_count"], rows["assemble/inner"]["freed_count"]), (1, 1))
        self.assertEqual([mark["name"] for mark in report["marks"]], ["converged"])
        self.assertEqual({label["name"]: label["live_bytes"] for label in report["labels"] if label["live_bytes"]},
                         {"stiffness": MIB, "load vector": 256 << 10})
        self.assertEqual(report["missed"], [])
        self.assertNotIn("unbalanced_scopes", report)

    def test_kokkos_without_the_preload(self) -> None:
        """Kokkos loads the library by itself where LD_PRELOAD is gone: nothing is recorded."""
        command = self.program("kokkos_views")
        environment = self.layout.environment(memlab=False, settings={
            "KOKKOS_TOOLS_LIBS": str(self.layout.library), "MEMLAB_OUTPUT": f"{self.output}/"})
        outcome = run(command, environment, self.cwd)
        self.assertEqual((outcome.code, outcome.stdout, outcome.stderr), (0, b"no fences\n", b""), outcome.describe())
        self.assert_nothing_written()

    def test_nvtx_belongs_to_whom_the_variable_names(self) -> None:
        without = self.under_memlab(self.program("nvtx_ranges"))
        self.assertEqual(without.code, 0, without.describe())
        (path,) = self.output.glob("*.json")
        report = json.loads(path.read_bytes())
        self.assertNotIn("scopes", report)
        self.assertEqual((report["marks"], report["missed"]), ([], []))
        path.unlink()
        other = self.under_memlab(self.program("nvtx_ranges"),
                                  {"NVTX_INJECTION64_PATH": "/no/such/profiler.so"})
        self.assertEqual((other.code, other.stderr), (0, b""), other.describe())
        (path,) = self.output.glob("*.json")
        (missed,) = json.loads(path.read_bytes())["missed"]
        self.assertIn("/no/such/profiler.so (NVTX_INJECTION64_PATH)", missed["reason"])

    @unittest.skipIf(Build.sanitizer, "a sanitizer's runtime must be preloaded first")
    def test_memlab_run_is_the_tool_of_nvtx(self) -> None:
        tool = self.layout.tool("memlab-run")
        if not tool.exists():
            self.skipTest("the tools are not built")
        command = [str(tool), "--quiet", "--library", str(self.layout.library), "-o", f"{self.output}/",
                   *self.program("nvtx_ranges")]
        outcome = self.without_memlab(command)
        self.assertEqual(outcome.code, 0, outcome.describe())
        (path,) = self.output.glob("memlab.*.json")  # beside the run's own
        self.assertIn("forward", by_path(json.loads(path.read_bytes())))


if __name__ == "__main__":
    unittest.main()
