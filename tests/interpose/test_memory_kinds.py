"""Memory that the curves of a GPU do not include: managed memory and pinned host memory have curves, holders and limits
of their own, in every view. tests/programs/managed_only.cpp and pools_of_places.cpp.
"""

from __future__ import annotations

import json
import re
from typing import Any

from harness import Found, judge_recordings
from support import EndToEnd

MIB = 1 << 20


class MemoryKinds(EndToEnd):
    def record(self, *command: str) -> Found:
        outcome = self.under_memlab(self.program(*command))
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        (found,), problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        return found

    def tool(self, *arguments: str, code: int = 0) -> str:
        outcome = self.without_memlab([str(self.layout.tool("memlab-report")), *arguments])
        self.assertEqual(outcome.code, code, outcome.describe())
        return outcome.stdout.decode("utf-8")

    def document(self, *arguments: str) -> Any:
        return json.loads(self.tool(*arguments, "--json"))["reports"][0]


    def test_a_program_of_managed_memory_alone(self) -> None:
        found = self.record("managed_only")
        path = str(found.log)
        (device,) = self.document("--top", "100", path)["devices"]
        curve = device["kind_curves"]["managed"]
        self.assertEqual((curve["peak_bytes"], curve["at_end_bytes"]), (800 * MIB, 200 * MIB))
        self.assertEqual((curve["at_peak"]["bytes"], curve["at_peak"]["count"]), (800 * MIB, 7))
        self.assertEqual(sum(place["bytes"] for place in curve["at_peak"]["places"]), 800 * MIB)
        text = self.tool(path)
        self.assertLess(text.index("managed memory"), text.index("Still allocated"))
        self.assertIn("no device memory was allocated", text)
        self.assertRegex(text, r"Who holds it at its peak: 800\.00 MiB")
        self.assertNotIn("Who holds it at the allocated peak", text)
        self.assertIn("no device memory was allocated", self.tool("timeline", path))
        text = self.tool("inefficiencies", path)
        self.assertIn("No device memory was allocated. Managed and pinned memory is not searched", text)
        self.assertNotRegex(text, "No findings|steps")

    def test_memlab_run_tells_of_it_at_the_end(self) -> None:
        run = str(self.layout.tool("memlab-run"))
        outcome = self.without_memlab([run, "-o", f"{self.output}/", "--", *self.program("managed_only")])
        self.assertEqual(outcome.code, 0, outcome.describe())
        text = outcome.stderr.decode("utf-8")
        self.assertIn("peak of managed memory 800.00 MiB, still held at the end 200.00 MiB", text)
        self.assertNotIn("peak allocated", text)

    def test_its_curve_over_time(self) -> None:
        found = self.record("managed_only")
        for file in ("log", "report_path"):
            with self.subTest(file):
                path = str(getattr(found, file))
                (device,) = self.document("timeline", path)["devices"]
                kind = device["kind_curves"]["managed"]
                self.assertEqual((kind["highest"], kind["at_end"]), (800 * MIB, 200 * MIB))
                report = self.document(path)["devices"][0]
                self.assertEqual(kind["highest_ns"], report["kind_curves"]["managed"]["peak_time_ns"])
                self.assertEqual(max(row["bytes"][1] for row in kind["rows"]), 800 * MIB)
                self.assertIn("managed memory", self.tool("timeline", path))
                rows = [line.split(",") for line in self.tool("timeline", "--csv", path).splitlines()]
                column = rows[0].index("allocated_max")
                self.assertEqual(max(int(row[column]) for row in rows[1:] if row[-1] == "managed"), 800 * MIB)
        moment = self.document("timeline", "--at", "peak", str(found.log))["at"]["devices"][0]["kinds"]["managed"]
        self.assertEqual((moment["bytes"], moment["count"]), (800 * MIB, 7))
        ended = self.document("timeline", "--at", "end", "--filter", "kind=managed", str(found.report_path))
        self.assertEqual(ended["at"]["devices"][0]["kinds"]["managed"]["bytes"], 200 * MIB)

    def test_its_places_and_tree(self) -> None:
        path = str(self.record("managed_only").report_path)
        for view, rows in (("sites", "sites"), ("tree", "nodes")):
            with self.subTest(view):
                (device,) = self.document(view, "--top", "100", path)["devices"]
                self.assertEqual((device["total"]["at_peak_bytes"], list(device["kinds"])), (0, ["managed"]))
                device = device["kinds"]["managed"]
                self.assertEqual(device["total"]["at_peak_bytes"], 800 * MIB)
                self.assertIn(800 * MIB, [node["at_peak_bytes"] for node in device[rows]] +
                              [sum(node["at_peak_bytes"] for node in device[rows])])
                text = self.tool(view, path)
                self.assertIn("GPU 0: managed memory", text)
                self.assertNotIn("GPU 0: Simulated", text)
        by_bytes = self.document("sites", "--sort", "bytes", path)["devices"]
        self.assertEqual([("kinds" in device, device["total"]["bytes"]) for device in by_bytes],
                         [(False, 1600 * MIB)])

    def test_limits(self) -> None:
        found = self.record("managed_only")
        path = str(found.report_path)
        self.assertIn("peak_managed", self.tool("check", "--peak-managed", "800MiB", path))
        told = self.tool("check", "--peak-managed", "799MiB", path, code=1)
        self.assertRegex(told, r"peak_managed +799\.00 MiB +800\.00 MiB")
        self.tool("check", "--peak-pinned", "0", path)
        allocated = self.tool("check", "--peak-allocated", "100MiB", path)
        self.assertRegex(allocated, r"peak_managed +- +800\.00 MiB +no limit")
        self.assertNotIn("peak_pinned", allocated)
        budget = self.work / "budget.toml"
        budget.write_text('[limits]\npeak_managed = "799 MiB"\npeak_pinned = 0\n')
        self.tool("check", "--budget", str(budget), path, code=1)
        baseline = self.work / "baseline.json"
        self.tool("check", "--peak-managed", "+0", "--baseline", str(baseline), "--update", "--missing-baseline",
                  "pass", path)
        self.assertIn('"metric":"peak_managed"', baseline.read_text().replace(" ", ""))
        self.tool("check", "--peak-managed", "+0", "--baseline", str(baseline), path)

    def test_pinned_host_memory_alone(self) -> None:
        found = self.record("managed_only", "pinned")
        path = str(found.log)
        text = self.tool(path)
        self.assertIn("pinned host memory", text)
        self.assertRegex(text, r"Who holds it at its peak: 500\.00 MiB")
        ended = self.tool("timeline", "--at", "end", "--filter", "kind=pinned", path)
        self.assertRegex(ended, r"Live at the end, .*pinned host memory: 500\.00 MiB")
        self.tool("check", "--peak-pinned", "499MiB", path, code=1)
        metrics = self.tool("export", "--to", "openmetrics", path)
        self.assertRegex(metrics, r'memlab_kind_peak_bytes\{[^}]*kind="pinned"[^}]*\} 524288000')

    def test_a_pools_location_decides_what_its_memory_is(self) -> None:
        found = self.record("pools_of_places")
        kinds = found.report["devices"][0]["kinds"]
        self.assertEqual({name: (kind["count"], kind["bytes"] // MIB, kind["live_bytes"] // MIB)
                          for name, kind in kinds.items()},
                         {"async_pool": (1, 64, 0), "pinned": (3, 58, 50), "managed": (2, 40, 24)})
        self.assertEqual(found.report["devices"][0]["curves"]["allocated"]["peak_bytes"], 64 * MIB)
        curves = found.report["devices"][0]["kind_curves"]
        self.assertEqual({name: curve["peak_bytes"] // MIB for name, curve in curves.items()},
                         {"pinned": 58, "managed": 40})
        self.assertEqual(re.findall("whose allocation was not seen", self.shown(found)), [])
