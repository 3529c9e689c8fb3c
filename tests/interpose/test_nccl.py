"""What NCCL says of its communicators' memory, on the simulated NCCL, which ends a program that breaks its rules."""

from __future__ import annotations

import json

from harness import Found, Outcome, judge_recordings
from support import EndToEnd

MIB = 1 << 20
WAYS = ("collectives", "collectives_linked", "collectives_plugin")


class Nccl(EndToEnd):
    """tests/programs/collectives.cpp, which opens NCCL, is linked with it, or is a plugin's library that is."""

    def settings(self, library: str = "simnccl") -> dict[str, str]:
        folder = self.layout.root / "lib"
        return {"LD_LIBRARY_PATH": f"{folder}/simcuda:{folder}/{library}", "MEMLAB_LEDGER": "on",
                "SIMNCCL_COUNT": str(self.cwd / "asked")}

    def record(self, program: str, *arguments: str, library: str = "simnccl", **settings: str) -> Found:
        every = self.settings(library) | settings
        native = self.without_memlab(self.program(program, *arguments), every)
        under = self.under_memlab(self.program(program, *arguments), every)
        self.assertEqual((native.code, native.stderr), (0, b""), native.describe())
        self.assertEqual((under.code, under.stdout, under.stderr), (0, native.stdout, b""), under.describe())
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        return found[0]

    def asked(self) -> int:
        return int((self.cwd / "asked").read_text(encoding="ascii"))

    def communicators(self, found: Found) -> list[dict]:
        return found.report["devices"][0]["ledger"].get("communicators", [])

    def page(self, found: Found) -> str:
        outcome: Outcome = self.without_memlab([str(self.layout.tool("memlab-report")), "ledger", str(found.report_path)])
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        return outcome.stdout.decode()

    def test_each_communicator_has_its_memory(self) -> None:
        for program in WAYS:
            with self.subTest(program):
                found = self.record(program)
                told = sorted(self.communicators(found), key=lambda each: each["rank"])
                self.assertEqual([(each["rank"], each["ranks"]) for each in told], [(0, 2), (1, 2)])
                self.assertEqual({each["communicator"] for each in told}, {1, 2})
                for each in told:
                    self.assertEqual((each["total_bytes"], each["persistent_bytes"], each["suspendable_bytes"],
                                      each["max_total_bytes"]), (10 * MIB, 2 * MIB, 8 * MIB, 10 * MIB))
                # Before the end, but not before an abort.
                self.assertEqual([(each["suspended"], each["ended"]) for each in told], [(True, True), (False, False)])
                page = self.page(found)
                self.assertIn("10.00 MiB            communicator 1, rank", page)
                self.assertIn("8.00 MiB of 10.00 MiB can be suspended", page)
                for path in self.output.iterdir():
                    path.unlink()

    def test_the_log_and_json_have_them(self) -> None:
        found = self.record("collectives")
        pages = []
        for path in (found.report_path, found.log):
            outcome = self.without_memlab([str(self.layout.tool("memlab-report")), "ledger", "--json", str(path)])
            pages.append(json.loads(outcome.stdout)["reports"][0]["devices"][0]["communicators"])
        self.assertEqual(pages[0], pages[1])
        self.assertEqual(len(pages[0]), 2)

    def test_a_program_that_ends_without_their_end(self) -> None:
        told = self.communicators(self.record("collectives", "killed"))
        self.assertEqual([each["total_bytes"] for each in told], [10 * MIB, 10 * MIB])
        self.assertEqual({each["ended"] for each in told}, {False})

    def test_calls_are_asked_behind_ever_more_rarely(self) -> None:
        told = self.communicators(self.record("collectives", "many"))
        self.assertIn(10 * MIB, [each["total_bytes"] for each in told])
        self.assertLess(self.asked(), 200)  # four each time, of 5,000

    def test_without_a_ledger_nothing_is_asked(self) -> None:
        self.record("collectives", MEMLAB_LEDGER="off")
        self.assertEqual(self.asked(), 0)

    def test_an_nccl_that_cannot_tell(self) -> None:
        for program in WAYS:
            with self.subTest(program):
                found = self.record(program, library="simnccl_2_28")
                self.assertEqual(self.communicators(found), [])
                self.assertNotIn("communicator", self.page(found))
                for path in self.output.iterdir():
                    path.unlink()

    def test_an_nccl_that_fails_is_asked_once(self) -> None:
        for how in ("fails", "odd"):
            with self.subTest(how):
                found = self.record("collectives", "many", SIMNCCL_STATISTICS=how)
                self.assertEqual(self.communicators(found), [])
                self.assertLessEqual(self.asked(), 4)
                for path in self.output.iterdir():
                    path.unlink()

    def test_switched_off_in_nccl_it_is_not_asked(self) -> None:
        self.record("collectives", NCCL_DISABLE_MEM_MANAGER="1")
        self.assertEqual(self.asked(), 0)

    def test_the_programs_errors_stay_its_own(self) -> None:
        outcome = self.without_memlab(self.program("collectives"), self.settings())
        self.assertIn(b"answers: 00000000000405 00000000000405", outcome.stdout)
