"""Options of the pool's policy, seen from the driver: which calls reach it."""

from __future__ import annotations

from harness import judge_recordings
from support import EndToEnd


class Policy(EndToEnd):
    """tests/programs/malloc_free.cpp: 100 allocations of up to 100,000 bytes, one of 30,000,000."""

    def driver_calls(self, **settings: str) -> dict[str, int]:
        statistics = self.cwd / "calls.txt"
        outcome = self.under_memlab(self.program("malloc_free"),
                                    {"SIMCUDA_STATS": str(statistics), **settings})
        self.assertEqual(outcome.code, 0, outcome.describe())
        fields = [line.split() for line in statistics.read_text(encoding="utf-8").splitlines()]
        return {words[1]: int(words[2]) for words in fields if words[0] == "calls"}

    def calls(self, **settings: str) -> tuple[int, int]:
        """Allocations and frees of device memory that reached the driver, with segments."""
        calls = self.driver_calls(MEMLAB_BACKEND="classic", **settings)
        return calls.get("cuMemAlloc_v2", 0), calls.get("cuMemFree_v2", 0)

    def test_by_default_all_is_pooled(self) -> None:
        # Four small segments of 2 MiB, a large one; the cache keeps what is freed.
        self.assertEqual(self.calls(), (5, 0))

    def test_sizes_that_pass_through(self) -> None:
        self.assertEqual(self.calls(MEMLAB_PASSTHROUGH="size>=30000000"), (5, 1))
        self.assertEqual(self.calls(MEMLAB_PASSTHROUGH="size<=1000"), (6, 1))
        self.assertEqual(self.calls(MEMLAB_PASSTHROUGH="size<=1000|size>1MiB"), (6, 2))
        self.assertEqual(self.calls(MEMLAB_PASSTHROUGH="size>0"), (101, 51))

    def test_callers_that_pass_through(self) -> None:
        self.assertEqual(self.calls(MEMLAB_PASSTHROUGH="site=malloc_free"), (101, 51))
        self.assertEqual(self.calls(MEMLAB_PASSTHROUGH="site=libnobody.so"), (5, 0))

    def test_a_rule_that_is_none_is_named_and_ignored(self) -> None:
        outcome = self.under_memlab(self.program("malloc_free"), {"MEMLAB_PASSTHROUGH": "big"})
        self.assertEqual(outcome.code, 0, outcome.describe())
        self.assertIn(b"MEMLAB_PASSTHROUGH=big is not", outcome.stderr)

    def trimmed(self, milliseconds: int, **settings: str) -> list[str]:
        """tests/programs/idle.cpp: what the driver has in use before and after a pause."""
        outcome = self.under_memlab(self.program("idle", str(milliseconds)), settings)
        self.assertEqual(outcome.code, 0, outcome.describe())
        return outcome.stdout.decode().splitlines()

    def test_unused_memory_goes_back_while_the_program_does_nothing(self) -> None:
        self.assertEqual(self.trimmed(1500, MEMLAB_TRIM_AFTER="100ms"),
                         ["cached: 30000000 or more", "after the pause: given back",
                          "contents of what is held: kept"])

    def test_where_it_is_to_be_kept_the_cache_stays(self) -> None:
        self.assertEqual(self.trimmed(300)[1], "after the pause: still there")

    def test_unused_memory_goes_back_where_little_of_the_device_is_free(self) -> None:
        """Long before its time; a device with enough free memory shows that it is not the time."""
        for device, said in (("36MiB", "given back"), ("1GiB", "still there")):
            self.assertEqual(self.trimmed(2500, MEMLAB_TRIM_AFTER="5min", SIMCUDA_MEMORY=device)[1],
                             f"after the pause: {said}")

    def test_the_cache_makes_room_for_managed_memory(self) -> None:
        # Of a device of 1 GiB, 2 MiB are in use and 30 cached.
        for sizes, expected, after in ((("100", "200"), ["still there"] * 2, "still there"),
                                       (("600", "400"), ["still there", "given back"], "given back"),
                                       (("1000", "1"), ["given back"] * 2, "given back"),
                                       (("100", "750"), ["still there"] * 2, "given back")):
            with self.subTest(sizes):
                outcome = self.under_memlab(self.program("idle", "0", "managed", *sizes),
                                            {"SIMCUDA_MEMORY": "1GiB"})
                self.assertEqual(outcome.code, 0, outcome.describe())
                self.assertEqual(outcome.stdout.decode().splitlines()[1:],
                                 [f"after {size} MiB managed: {said}" for size, said in zip(sizes, expected)] +
                                 [f"after a free: {after}"])

    def test_the_thread_for_it_takes_no_signals_and_survives_a_fork(self) -> None:
        outcome = self.under_memlab(self.program("idle", "300", "signals"),
                                    {"MEMLAB_TRIM_AFTER": "20ms"})
        self.assertEqual(outcome.code, 0, outcome.describe())
        self.assertIn(b"handlers ran on the main thread: 50 of 50", outcome.stdout)

    def test_a_later_version_of_a_free_ends_pooling(self) -> None:
        self.use_driver("99.0")
        for way in ("symbol", "address"):
            for when in ("before", "after"):
                with self.subTest(way=way, when=when):
                    native = self.without_memlab(self.program("later_version", way, when))
                    self.assertEqual(native.stdout, b"free: 0, again: 1\n" * 3)
                    under = self.under_memlab(self.program("later_version", way, when))
                    self.assertEqual((under.code, under.stdout), (0, native.stdout), under.describe())
                    name = b"cuMemFree_v3" if way == "symbol" else b"cuMemFree"
                    self.assertEqual(under.stderr.count(b"\n"), 1, under.describe())
                    self.assertIn(b"a version of " + name + b" that this memlab does not know, which by its name may "
                                  b"free memory or what uses it; new memory now comes from the driver", under.stderr)

    def backend(self, *command: str, **settings: str) -> str:
        """What MEMLAB_BACKEND=auto is in a process."""
        programs = str(self.layout.root / "bin" / "programs")
        paths = self.layout.environment(memlab=False).get("LD_LIBRARY_PATH", "")
        self.output = self.work / "-".join(("out", *command, *settings.values()))
        outcome = self.under_memlab(self.program(*(command or ("malloc_free",))),
                                    {"LD_LIBRARY_PATH": f"{programs}:{paths}", **settings})
        self.assertEqual(outcome.code, 0, outcome.describe())
        found, problems = judge_recordings(self.layout, self.output, None)
        self.assert_sound(problems)
        return found[0].report["options"]["MEMLAB_BACKEND"]

    def test_memory_is_mapped(self) -> None:
        self.assertEqual(self.backend(), "vmm")
        self.assertEqual(self.backend(SIMCUDA_DEVICES="2"), "vmm")
        self.assertEqual(self.backend(MEMLAB_BACKEND="classic"), "classic")

    def test_options_of_segments_mean_segments(self) -> None:
        self.assertEqual(self.backend(MEMLAB_MAX_SPLIT_SIZE_MB="200"), "classic")
        self.assertEqual(self.backend(MEMLAB_GC_THRESHOLD="0.8"), "classic")

    def test_libraries_that_need_segments_get_them(self) -> None:
        self.assertEqual(self.backend("ipc_user", "before", MEMLAB_IPC="off"), "classic")
        self.assertEqual(self.backend("ipc_user", "later", MEMLAB_IPC="off"), "vmm")

    def test_expandable_ranges_take_no_segments_but_chunks(self) -> None:
        calls = self.driver_calls(MEMLAB_BACKEND="vmm")
        self.assertEqual(calls.get("cuMemAlloc_v2", 0), 0)
        # 5,050,000 bytes of small blocks, a page at a time; 30,000,000 in one, in chunks of 16 MiB.
        self.assertEqual(calls["cuMemCreate"], 4 + 2)
        self.assertEqual(calls["cuMemRelease"], calls["cuMemCreate"])

    def test_a_device_without_virtual_memory_management_gets_segments(self) -> None:
        calls = self.driver_calls(MEMLAB_BACKEND="vmm", SIMCUDA_FAIL="cuMemAddressReserve:1:801")
        self.assertEqual(calls["cuMemAlloc_v2"], 5)
