"""Wrappers of the driver and of dlsym that somebody else preloads, before or behind memlab: each is called as it
would be without memlab, in the order of LD_PRELOAD. And what traces calls from LD_AUDIT.
"""

from __future__ import annotations

import itertools
import shutil

from harness import Outcome, recordings_in
from support import Build, EndToEnd


class Wrappers(EndToEnd):
    """tests/programs/wrapped.cpp with driver_wrapper.so."""

    def setUp(self) -> None:
        super().setUp()
        if Build.sanitizer:
            self.skipTest("the order of the preloaded libraries is the test's own")
        self.wrapper = str(self.layout.program("driver_wrapper.so"))

    def preloaded(self, libraries: list[str], command: list[str], **settings: str) -> Outcome:
        outcome = self.under_memlab(command, {"LD_PRELOAD": ":".join(libraries), **settings})
        self.assertEqual(outcome.stderr, b"", outcome.describe())
        return outcome

    def lines(self, libraries: list[str], **settings: str) -> list[str]:
        outcome = self.preloaded(libraries, self.program("wrapped"), **settings)
        self.assertEqual(outcome.code, 0, outcome.describe())
        return outcome.stdout.decode().splitlines()

    def test_without_the_pool_it_sees_what_it_sees_without_memlab(self) -> None:
        memlab = str(self.layout.library)
        for asks in ("next", "driver"):
            native = self.lines([self.wrapper], WRAPPER_ASKS=asks)
            self.assertIn("the wrapper saw 1 starts, 3 allocations, 3 frees", native)
            self.assertIn("it was given itself 0 times", native)
            for order in ([memlab, self.wrapper], [self.wrapper, memlab]):
                with self.subTest(order=order, asks=asks):
                    self.assertEqual(self.lines(order, WRAPPER_ASKS=asks, MEMLAB_POOL="off"), native)

    def test_behind_the_pool_it_sees_the_segments(self) -> None:
        memlab = str(self.layout.library)
        for asks in ("next", "driver"):
            with self.subTest(asks):
                lines = self.lines([memlab, self.wrapper], WRAPPER_ASKS=asks, MEMLAB_BACKEND="classic")
                self.assertEqual(lines[:2], ["the wrapper saw 1 starts, 1 allocations, 0 frees",
                                             "it was given itself 0 times"])

    def test_in_front_of_the_pool_it_sees_the_program(self) -> None:
        memlab = str(self.layout.library)
        lines = self.lines([self.wrapper, memlab])
        self.assertEqual(lines[:2], ["the wrapper saw 1 starts, 3 allocations, 3 frees",
                                     "it was given itself 0 times"])

    def test_without_a_driver_the_wrapper_answers(self) -> None:
        # A program that is not linked with libcuda and looks for it in what was preloaded.
        script = ("import ctypes; p = ctypes.CDLL(None); "
                  "print(p.cuInit(0), hasattr(p, 'cuMemAlloc_v2'), hasattr(p, 'cuMemGetInfo_v2'))")
        memlab = str(self.layout.library)
        native = self.preloaded([self.wrapper], ["python3", "-c", script])
        self.assertEqual(native.stdout, b"500 True False\n")
        for order in ([memlab, self.wrapper], [self.wrapper, memlab]):
            with self.subTest(order):
                outcome = self.preloaded(order, ["python3", "-c", script])
                self.assertEqual(outcome.stdout, native.stdout, outcome.describe())
        self.assert_nothing_written()


class Layers(EndToEnd):
    """tests/programs/layered.cpp with layers that take over dlsym."""

    def setUp(self) -> None:
        super().setUp()
        if Build.sanitizer:
            self.skipTest("the order of the preloaded libraries is the test's own")
        self.memlab = str(self.layout.library)
        self.quota = str(self.layout.program("quota_layer.so"))
        self.layer = str(self.layout.program("dlsym_layer.so"))

    def lines(self, libraries: list[str], *arguments: str, **settings: str) -> list[str]:
        """What the program prints; with memlab among the libraries it must be recorded and pooled."""
        settings = {"LD_PRELOAD": ":".join(libraries), "MEMLAB_VERBOSITY": "quiet", **settings}
        shutil.rmtree(self.output, ignore_errors=True)
        outcome = self.under_memlab(self.program("layered", *arguments), settings)
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        if self.memlab in libraries:
            found, problems = recordings_in(self.layout, self.output)
            self.assertEqual((len(found), problems), (1, []))
            device = found[0].report["devices"][0]
            self.assertGreaterEqual(device["kinds"]["device"]["count"], 3)
            pooled = device["memory_stats"]["allocation.all.allocated"] > 0
            self.assertEqual(pooled, settings.get("MEMLAB_POOL") != "off")
        return outcome.stdout.decode().splitlines()

    def test_a_quota_in_front_sees_the_program(self) -> None:
        native = self.lines([self.quota])
        self.assertEqual(native, ["the same function by dlsym: yes", "the quota saw 1 starts, 3 allocations, 3 frees",
                                  "it was asked both ways"])
        self.assertEqual(self.lines([self.quota, self.memlab]), native)

    def test_a_quota_behind_sees_what_the_pool_asks_for(self) -> None:
        lines = self.lines([self.memlab, self.quota])
        self.assertEqual(lines, ["the same function by dlsym: yes", "the quota saw 1 starts, 1 allocations, 0 frees",
                                 "it was asked both ways"])
        self.assertEqual(self.lines([self.memlab, self.quota], MEMLAB_POOL="off"), self.lines([self.quota]))

    def test_its_quota_holds_in_both_orders(self) -> None:
        quota = {"QUOTA_BYTES": str(20 << 20)}
        native = self.lines([self.quota], "exceed", **quota)
        self.assertEqual(native, ["20 blocks, then 2"])
        for order in ([self.memlab, self.quota], [self.quota, self.memlab]):
            for pool in ("on", "off"):
                with self.subTest(order=order, pool=pool):
                    self.assertEqual(self.lines(order, "exceed", MEMLAB_POOL=pool, **quota), native)

    def test_a_layer_over_dlsym_in_both_orders(self) -> None:
        for finds in ("version", "default", "libc"):
            native = self.lines([self.layer], LAYER_FINDS=finds)
            self.assertEqual(native, ["the same function by dlsym: yes",
                                      "the layer saw the look-ups, its function serves"])
            for order in ([self.memlab, self.layer], [self.layer, self.memlab]):
                with self.subTest(order=order, finds=finds):
                    self.assertEqual(self.lines(order, LAYER_FINDS=finds), native)

    def test_one_on_each_side(self) -> None:
        for order in ([self.quota, self.memlab, self.layer], [self.layer, self.memlab, self.quota]):
            with self.subTest(order):
                lines = self.lines(order)
                self.assertIn("the layer saw the look-ups, its function serves", lines)
                self.assertIn("it was asked both ways", lines)


    def test_several_in_each_order(self) -> None:
        """Programs linked with libcuda and others; each library's references to its own functions are bound to those
        of the first in the order."""
        libraries = [self.memlab, self.quota, str(self.layout.program("driver_wrapper.so"))]
        for program in ("malloc_free", "resolve", "kinds"):
            native = self.without_memlab(self.program(program))
            for order in itertools.permutations(libraries):
                with self.subTest(program=program, order=order):
                    shutil.rmtree(self.output, ignore_errors=True)
                    under = self.under_memlab(self.program(program), {"LD_PRELOAD": ":".join(order)}, timeout=20)
                    self.assertEqual((under.code, under.stdout, under.stderr), (native.code, native.stdout, b""),
                                     under.describe())
                    found, problems = recordings_in(self.layout, self.output)
                    self.assertEqual((len(found), problems), (1, []))


class DeepBinding(EndToEnd):
    """tests/programs/deep_bound.cpp opens a plugin that bypasses every preload."""

    def setUp(self) -> None:
        super().setUp()
        if Build.sanitizer:
            self.skipTest("the sanitizer's runtime refuses RTLD_DEEPBIND")

    def missed(self, *arguments: str) -> list[str]:
        native = self.without_memlab(self.program("deep_bound", *arguments))
        under = self.under_memlab(self.program("deep_bound", *arguments))
        self.assertEqual((native.code, native.stderr), (0, b""), native.describe())
        self.assertEqual((under.code, under.stdout, under.stderr), (0, native.stdout, b""), under.describe())
        if not arguments:
            self.assertEqual(native.stdout.count(b"the free waited: yes"), 2, native.describe())
            self.assertEqual(native.stdout.count(b"filled 0, freed 0"), 3, native.describe())
        found, _ = recordings_in(self.layout, self.output)  # the plugin frees unseen what is recorded
        self.assertEqual(len(found), 1)
        return [each["reason"] for each in found[0].report["missed"]]

    def test_nothing_is_assumed_of_what_it_does(self) -> None:
        reasons = self.missed()
        self.assertEqual(len(reasons), 1)
        self.assertIn("RTLD_DEEPBIND", reasons[0])

    def test_a_library_that_uses_no_cuda_changes_nothing(self) -> None:
        self.assertEqual(self.missed("harmless"), [])


class TracedCalls(EndToEnd):
    """Programs whose calls the loader tells an audit library of."""

    def test_a_tracer_of_every_call(self) -> None:
        if Build.sanitizer:
            self.skipTest("the sanitizer's runtime does not survive it")
        traced = {"LD_AUDIT": str(self.layout.program("call_tracer.so"))}
        native = self.without_memlab(self.program("resolve"), traced)
        under = self.under_memlab(self.program("resolve"), traced)
        self.assertEqual((native.code, native.stderr), (0, b""), native.describe())
        self.assertEqual((under.code, under.stdout, under.stderr), (0, native.stdout, b""), under.describe())
        found, problems = recordings_in(self.layout, self.output)
        self.assertEqual((len(found), problems), (1, []))


class WeakReferences(EndToEnd):
    """tests/programs/weak_references.cpp finds a driver only where there is one."""

    def test_without_a_driver_they_stay_null(self) -> None:
        for program in ("weak_references", "weak_references_now"):
            with self.subTest(program):
                native = self.without_memlab(self.program(program))
                under = self.under_memlab(self.program(program))
                self.assertIn(b"cuInit: null", native.stdout)
                self.assertEqual((under.code, under.stdout, under.stderr),
                                 (native.code, native.stdout, native.stderr))
        self.assert_nothing_written()

    def test_with_a_driver_they_are_recorded(self) -> None:
        if Build.sanitizer:
            self.skipTest("the order of the preloaded libraries is the test's own")
        libraries = [self.layout.library, self.layout.root / "lib" / "simcuda" / "libcuda.so.1"]
        outcome = self.under_memlab(self.program("weak_references"),
                                    {"LD_PRELOAD": ":".join(map(str, libraries))})
        self.assertIn(b"cuInit: there, 0", outcome.stdout, outcome.describe())
        found, problems = recordings_in(self.layout, self.output)
        self.assertEqual((len(found), problems), (1, []))
