"""Functions of later CUDAs: those of 13.1 to 13.4 that memlab hooks or does not follow, and some of a CUDA that is yet
to come. A program that uses them does what it does without memlab, and the report names what is not known."""

from __future__ import annotations

from harness import Found, Outcome, judge_recordings
from support import EndToEnd

# What the simulated driver of 99.0 has, and what their names say.
UNKNOWN = {"cuMemAlloc_v3": "may allocate memory", "cuMemFree_v3": "may free memory or what uses it",
           "cuMemBindExtent": "may map or share memory", "cuMemsetTileAsync": "may submit work",
           "cuMemsetTileAsync_ptsz": "may submit work", "cuStreamBeginCapture_v3": "may capture work or make a graph of it"}


class NewerCuda(EndToEnd):
    def compare(self, *arguments: str, **settings: str) -> tuple[Outcome, Found]:
        """A run of newer_driver beside the same one without memlab."""
        program = self.program("newer_driver", *arguments)
        native = self.without_memlab(program)
        self.assertEqual((native.code, native.stderr), (0, b""), native.describe())
        self.output = self.work / f"out{len(list(self.work.iterdir()))}"
        under = self.under_memlab(program, settings)
        self.assertEqual((under.code, under.stdout), (0, native.stdout), under.describe())
        found, problems = judge_recordings(self.layout, self.output, None)
        if not any(name.startswith("cuMemFree") for name in arguments):  # what is freed unseen stays in the record
            self.assert_sound(problems)
        self.assertEqual(len(found), 1)
        return under, found[0]

    def missed(self, found: Found) -> list[str]:
        return [each["reason"] for each in found.report["missed"]]

    def test_what_is_hooked_is_followed(self) -> None:
        self.use_driver("13.5")
        for mode, said in (("copies", "past the end: 1"), ("host", "calls: 2"), ("recapture", "same memory: 1"),
                           ("nodes", "bytes: 300000")):
            for settings in ({}, {"MEMLAB_POOL": "off"}, {"MEMLAB_BACKEND": "classic"}):
                with self.subTest(mode=mode, settings=settings):
                    under, found = self.compare(mode, **settings)
                    self.assertIn(said, under.stdout.decode())
                    self.assertEqual((under.stderr, self.missed(found)), (b"", []))

    def test_a_recaptured_allocation_is_one(self) -> None:
        """The first recapture finds it alive; the program frees it after each launch, so the second has it again."""
        self.use_driver("13.5")
        _, found = self.compare("recapture")
        graph = [site for site in found.report["sites"] if site["kind"] == "graph"]
        self.assertEqual(sum(site["count"] for site in graph), 2)
        self.assertEqual(found.report["integrity"]["overwritten_allocations"], 0)

    def test_asking_for_all_names_costs_nothing(self) -> None:
        """As cuda-python and NCCL do at their start."""
        self.use_driver("13.5")
        under, found = self.compare("lookups")
        self.assertEqual((under.stderr, self.missed(found)), (b"", []))

    def test_older_drivers_have_none_of_them(self) -> None:
        under, _ = self.compare("ask", "cuLaunchHostFunc_v2", "cuStreamBeginRecaptureToGraph", "cuMemsetTileAsync")
        self.assertEqual(under.stdout.count(b": none\n"), 3)

    def test_what_is_not_followed_is_said_when_it_is_called(self) -> None:
        self.use_driver("13.5")
        for mode, names in (("graphics", ["cuStreamBeginCaptureToCig (CUDA 13.2)"]),
                            ("endpoint", ["cuLogicalEndpointCreate (CUDA 13.3)", "cuLogicalEndpointBindAddr (CUDA 13.3)"])):
            for pool in ("on", "off"):
                with self.subTest(mode=mode, pool=pool):
                    under, found = self.compare(mode, MEMLAB_POOL=pool)
                    self.assertEqual(under.stderr, b"")
                    missed = self.missed(found)
                    self.assertEqual(len(missed), len(names), missed)
                    for name, reason in zip(names, missed):
                        self.assertTrue(reason.startswith(f"the program calls {name}, which memlab does not follow"), reason)

    def test_unknown_functions_are_named_once(self) -> None:
        self.use_driver("99.0")
        for pool in ("on", "off"):
            under, found = self.compare("ask", *UNKNOWN, *UNKNOWN, "cuDeviceGetMood", MEMLAB_POOL=pool)
            missed = self.missed(found)
            self.assertEqual(len(missed), len(UNKNOWN), missed)
            for (name, purpose), reason in zip(UNKNOWN.items(), missed):
                self.assertIn(name, reason)
                self.assertIn(f"does not know, which by its name {purpose}", reason)
            self.assertEqual(under.stderr.count(b"\n"), 1 if pool == "on" else 0, under.describe())
            summary = " ".join(self.shown(found).split())
            for name in UNKNOWN:
                self.assertIn(name, summary)

    def test_each_kind_alone(self) -> None:
        self.use_driver("99.0")
        for name, purpose in UNKNOWN.items():
            for way in ("ask", "address"):
                with self.subTest(name=name, way=way):
                    asked = name if way == "ask" else name.split("_")[0]
                    under, found = self.compare(way, asked)
                    (reason,) = self.missed(found)
                    self.assertIn(asked, reason)
                    self.assertIn(purpose, reason)
                    ends_pooling = purpose != "may submit work"
                    self.assertEqual(b"new memory now comes from the driver" in under.stderr, ends_pooling)

    def test_what_a_program_is_linked_with_is_named_too(self) -> None:
        self.use_driver("99.0")
        program = self.program("linked_with_newer")
        native = self.without_memlab(program)
        self.assertIn(b"last: 3, free: 0, again: 1\n", native.stdout)
        under = self.under_memlab(program)
        self.assertEqual((under.code, under.stdout), (0, native.stdout), under.describe())
        found, _ = judge_recordings(self.layout, self.output, None)
        missed = " ".join(self.missed(found[0]))
        for name in ("cuMemFree_v3", "cuMemsetTileAsync"):
            self.assertIn(name, missed)

    def test_what_only_asks_is_not_worth_a_word(self) -> None:
        self.use_driver("99.0")
        for way, name in (("ask", "cuDeviceGetMood"), ("address", "cuDeviceGetMood"), ("ask", "cuSimcudaUnlisted")):
            under, found = self.compare(way, name)
            self.assertEqual((under.stderr, self.missed(found)), (b"", []))
