#!/usr/bin/env python3
"""memlab-report export: every format by the rules of its reader, on real recordings, on synthetic
ones and on reports full of what nobody should write.

Run by ctest with the folder of the programs in MEMLAB_BIN and the source folder in MEMLAB_SOURCE.
"""

import glob
import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
import unittest

import export_formats as formats
from test_summary import BIN, REPORT, SOURCE, ToolTest

DATA = os.path.join(SOURCE, "tests", "data")
LOGS = sorted(glob.glob(DATA + "/h100/*.memlog") + glob.glob(DATA + "/h200/*.memlog"))
REPORTS = sorted(glob.glob(DATA + "/h100/*.json"))
OF_LOGS = [path for path in REPORTS if path[:-5] + ".memlog" in LOGS]
STACKS = ("folded", "pprof", "speedscope")


class ExportTest(ToolTest):
    def export(self, to, *arguments):
        result = subprocess.run([REPORT, "export", "--to", to, *arguments], cwd=self.folder.name,
                                env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
                                timeout=120, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def figures(self, path):
        result = self.call(REPORT, "--json", "--no-symbols", path)
        return json.loads(result.stdout)["reports"][0]

    def refused(self, *arguments, says):
        result = self.call(REPORT, "export", *arguments)
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, says)
        self.assertEqual(result.stderr.count("\n"), 1)


def device_report(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def totals(report, by):
    """What all stacks of a report weigh together."""
    if by == "peak":
        # Managed and pinned memory weighs what it held at its own peak.
        return sum(device["curves"]["allocated"]["peak_bytes"] +
                   sum(kind["at_peak"]["bytes"] for kind in device.get("kind_curves", {}).values())
                   for device in report["devices"])
    key = {"bytes": "bytes", "count": "count", "live": "live_bytes"}[by]
    return sum(site[key] for site in report["sites"])


class StackFormats(ExportTest):
    def test_every_recording_in_every_format_and_weight(self):
        for path in REPORTS:
            report = device_report(path)
            for by in ("peak", "bytes", "count", "live"):
                with self.subTest(path=path, by=by):
                    whole = totals(report, by)
                    arguments = ("--no-symbols", "--by", by, path)
                    stacks = formats.folded(self.export("folded", *arguments))
                    self.assertEqual(sum(weight for _, weight in stacks), whole)
                    _, scoped = formats.speedscope(self.export("speedscope", *arguments))
                    self.assertEqual([weight for _, weight in scoped],
                                     [weight for _, weight in stacks])
                    profile = formats.Profile(self.export("pprof", *arguments))
                    kind = {"peak": "peak_space", "bytes": "space", "count": "allocations",
                            "live": "inuse_space"}[by]
                    self.assertEqual(profile.shown, kind)
                    self.assertEqual(profile.total(kind), whole)

    def test_the_stacks_of_a_level_weigh_what_its_sites_do(self):
        columns = {"bytes": "bytes", "count": "count", "live": "live_bytes", "peak": "at_peak_bytes"}
        for name in ("pytorch_tensors.memlog", "pytorch_tensors_named.json", "pytorch_out_of_memory.memlog"):
            path = os.path.join(DATA, "h200", name)
            weights = {}
            for level in ("framework", "driver", "all"):
                sites = json.loads(self.call(REPORT, "sites", "--json", "--no-symbols", "--sort", "bytes", "--level",
                                             level, path).stdout)["reports"][0]["devices"]
                for by, column in columns.items():
                    with self.subTest(name=name, level=level, by=by):
                        arguments = ("--no-symbols", "--level", level, "--by", by, path)
                        weight = sum(weight for _, weight in formats.folded(self.export("folded", *arguments)))
                        outside = 0  # of the curves: at the peak of its own kind
                        if by == "peak":
                            summary = json.loads(self.call(REPORT, "--json", "--no-symbols", "--level", level,
                                                           path).stdout)["reports"][0]["devices"]
                            outside = sum(kind["peak_bytes"] for device in summary
                                          for kind in device.get("kind_curves", {}).values())
                        self.assertEqual(weight, sum(device["total"][column] for device in sites) + outside)
                        _, scoped = formats.speedscope(self.export("speedscope", *arguments))
                        self.assertEqual(sum(each for _, each in scoped), weight)
                        profile = formats.Profile(self.export("pprof", *arguments))
                        self.assertEqual(profile.total(profile.shown), weight)
                        weights[level, by] = weight
            for by in columns:
                self.assertEqual(weights["framework", by] + weights["driver", by], weights["all", by])

    def test_the_peak_and_its_nanosecond_are_one_moment(self):
        for name in ("program_every_kind", "jax_platform_allocator", "pytorch_without_its_cache"):
            log = os.path.join(DATA, "h100", name + ".memlog")
            (device,) = self.figures(log)["devices"]
            peak = device["curves"]["allocated"]["peak_time_ns"]
            with self.subTest(name=name):
                arguments = ("folded", "--no-symbols", "--at")
                self.assertEqual(self.export(*arguments, "peak", log), self.export(*arguments, f"{peak}ns", log))
                scoped = [sorted(formats.speedscope(self.export("speedscope", "--no-symbols", "--at", at, log))[1])
                          for at in ("peak", f"{peak}ns")]
                self.assertEqual(*scoped)

    def test_a_log_gives_what_its_report_gives(self):
        for path in OF_LOGS:
            for to in STACKS:
                with self.subTest(path=path, to=to):
                    log = path[:-5] + ".memlog"
                    self.assertEqual(self.export(to, "--no-symbols", path),
                                     self.export(to, "--no-symbols", log))

    def test_stacks_run_from_the_outermost_function_to_cuda(self):
        log = self.log("leak")
        for frames, weight in formats.folded(self.export("folded", log)):
            if frames[0] == "[pinned]":
                continue
            self.assertEqual(frames[-1], "cuMemAlloc_v2")
            self.assertEqual(frames[-2], {12 << 20: "libcudart.so.13+0x20",
                                          4000256: "libcudart.so.13+0x10"}[weight])
            self.assertRegex(frames[-3], r"^(forward_pass|load_batch) \(memlab_synth\.cpp:\d+\)$")
        # What was cut off on the way up says so.
        self.assertIn("[deeper than MEMLAB_STACK_DEPTH]",
                      [frames[0] for frames, _ in formats.folded(self.export("folded", log))])
        leaf_first = [names for names, _, _ in formats.Profile(self.export("pprof", log)).samples]
        self.assertTrue(all(names[0].startswith("cuMem") for names in leaf_first))

    def test_names_do_not_turn_the_direction_of_writing(self):
        with open(REPORTS[0], encoding="utf-8") as file:
            report = json.load(file)
        report["modules"] = [{**module, "path": "/p/\u202elib\u2028.so"} for module in report["modules"]]
        with open(self.path("turned.json"), "w", encoding="utf-8") as file:
            json.dump(report, file)
        for to in STACKS:
            content = self.export(to, "--no-symbols", self.path("turned.json"))
            content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
            self.assertNotIn("\u202e".encode(), content, to)
            self.assertIn(b" lib .so", content, to)

    def test_host_memory_is_apart(self):
        log = self.log("leak")
        live = formats.folded(self.export("folded", "--by", "live", log))
        self.assertEqual([weight for frames, weight in live if frames[0] == "[pinned]"], [1 << 20])
        kinds = {labels["kind"] for _, _, labels in formats.Profile(self.export("pprof", log)).samples}
        self.assertEqual(kinds, {"device", "pinned"})

    def test_one_gpu_of_two(self):
        log = self.log("two_gpus")
        self.assertEqual([frames[0] for frames, _ in formats.folded(self.export("folded", log))],
                         ["GPU 0", "GPU 1"])
        only = formats.folded(self.export("folded", "--device", "1", log))
        self.assertEqual(len(only), 1)
        self.assertNotIn("GPU", only[0][0][0])
        self.refused("--to", "folded", "--device", "7", log, says="GPU 7 was not used")

    def test_a_filter_chooses_stacks(self):
        log = self.log("leak")
        chosen = formats.folded(self.export("folded", "--filter", "func=load_batch", log))
        self.assertEqual([(frames[0] == "[pinned]", weight) for frames, weight in chosen],
                         [(False, 4000256), (True, 1 << 20)])
        nothing = self.export("folded", "--filter", "func=nobody", log)
        self.assertEqual(nothing, b"")

    def test_the_same_input_gives_the_same_bytes(self):
        log = self.log("leak")
        for to in STACKS + ("openmetrics",):
            self.assertEqual(self.export(to, log), self.export(to, log), to)


    def test_a_name_that_ends_in_gz_is_compressed(self):
        log = self.log("leak")
        for to in ("perfetto", "folded", "pprof"):
            path = self.path(to + ".gz")
            self.export(to, "-o", path, log)
            with open(path, "rb") as file:
                content = file.read()
            plain = self.export(to, log)
            if to == "pprof":  # is compressed anyway, once
                self.assertEqual(content, plain)
            else:
                self.assertEqual(gzip.decompress(content), plain)
                self.assertLess(len(content), len(plain))


class Moments(ExportTest):
    """--at, and two moments or two recordings compared."""

    def held_at(self, log, moment):
        """What timeline lists then: bytes of device memory."""
        result = self.call(REPORT, "timeline", "--json", "--no-symbols", "--at", moment, log)
        self.assertEqual(result.returncode, 0, result.stderr)
        return sum(device["bytes"] for device in json.loads(result.stdout)["reports"][0]["at"]["devices"])

    def folded_at(self, log, moment, *arguments):
        stacks = formats.folded(self.export("folded", "--no-symbols", "--at", moment, *arguments, log))
        return {tuple(frames): weight for frames, weight in stacks}

    @staticmethod
    def device_bytes(stacks):
        return sum(weight for frames, weight in stacks.items()
                   if not any(re.fullmatch(r"\[\w+\]", frame) and frame != "[jit]" for frame in frames[:2]))

    def test_what_was_held_at_a_moment(self):
        seen = 0
        for log in LOGS:
            duration = self.figures(log)["process"]["duration_ns"]
            for moment in ["peak", "end"] + ["%dns" % (duration * share // 7) for share in (1, 3, 5)]:
                with self.subTest(log=log, moment=moment):
                    stacks = self.folded_at(log, moment)
                    held = self.device_bytes(stacks)
                    self.assertEqual(held, self.held_at(log, moment))
                    seen += held != 0
                    _, scoped = formats.speedscope(self.export("speedscope", "--no-symbols", "--at", moment, log))
                    self.assertEqual(sum(weight for _, weight in scoped), sum(stacks.values()))
                    self.assertIn(b'"held at ', self.export("speedscope", "--no-symbols", "--at", moment, log))
                    profile = formats.Profile(self.export("pprof", "--no-symbols", "--at", moment, log))
                    self.assertEqual(profile.total(profile.shown), sum(stacks.values()))
                    self.assertEqual(profile.shown, "peak_space" if moment == "peak" else "inuse_space")
        self.assertGreater(seen, 10)

    def test_a_mark_and_a_report_alone(self):
        log = self.log("cache")
        self.assertEqual(list(self.folded_at(log, "x = tensor").values()), [4000256])
        self.assertEqual(self.folded_at(log, "empty_cache()"), {})
        path = self.without_log(DATA + "/h100/pytorch_without_its_cache.json")
        self.assertEqual(sum(self.folded_at(path, "peak").values()),
                         sum(site["at_peak_bytes"] for site in device_report(path)["sites"]))
        self.assertEqual(sum(self.folded_at(path, "end").values()), totals(device_report(path), "live"))
        self.refused("--to", "folded", "--at", "100ms", path,
                     says="a report knows what was live at the peak and at the end, and at no other moment; "
                          "give its event log")

    def test_two_moments_are_two_weights(self):
        log = self.log("steps")
        for first, second in (("150ms", "330ms"), ("0s", "peak"), ("peak", "end"), ("121ms", "122ms")):
            with self.subTest(first=first, second=second):
                before, after = self.folded_at(log, first), self.folded_at(log, second)
                both = formats.folded(self.export("folded", "--no-symbols", "--from", first, "--until", second,
                                                  log), weights=2)
                self.assertEqual({tuple(frames): weights for frames, weights in both},
                                 {stack: (before.get(stack, 0), after.get(stack, 0))
                                  for stack in set(before) | set(after)})

    def test_two_recordings(self):
        before, after = self.log("steps"), self.log("leak")
        stacks = formats.folded(self.export("folded", before, after), weights=2)
        for which, log in enumerate((before, after)):
            alone = {}
            for frames, weight in formats.folded(self.export("folded", log)):
                # Lines may have moved: only functions and files count.
                key = tuple(re.sub(r":\d+\)$", ")", frame) for frame in frames)
                alone[key] = alone.get(key, 0) + weight
            self.assertEqual({tuple(frames): weights[which] for frames, weights in stacks if weights[which]},
                             alone)
        same = formats.folded(self.export("folded", before, before), weights=2)
        self.assertTrue(all(old == new for _, (old, new) in same))
        at = formats.folded(self.export("folded", "--at", "150ms", before, after), weights=2)
        self.assertEqual(sum(old for _, (old, _) in at), sum(self.folded_at(before, "150ms").values()))

    def test_builds_of_several_devices_have_roots_in_both(self):
        one, two = self.log("leak"), self.log("two_gpus")
        for files in ((one, two), (two, one)):
            roots = {frames[0] for frames, _ in formats.folded(self.export("folded", *files), weights=2)}
            self.assertEqual(roots, {"GPU 0", "GPU 1"})

    def test_usage(self):
        log = self.log("steps")
        for arguments, says in (
                (("folded", "--at", "1 parsec"), "--at takes a time with its unit .*, not 1 parsec"),
                (("folded", "--at", "2s"), "--at 2s is after the end of the recording, 1.000 s"),
                (("folded", "--at", "1ms", "--by", "count"), "--at MOMENT weighs the bytes held then; leave --by"),
                (("folded", "--from", "1ms", "--by", "count"), "leave --by out"),
                (("folded", "--from", "1ms", "--at", "2ms"), "leave --at out"),
                (("folded", "--from", "9ms", "--until", "8ms"), "--from must be before --until"),
                (("folded", "--from", "9ms", log), "--from and --until compare two moments of one recording"),
                (("folded", log, log), "folded takes one recording, or two to compare"),
                (("csv", log), "csv takes one recording; export each by itself"),
                (("pprof", log), "pprof takes one recording and compares itself"),
                (("pprof", "--from", "1ms"), "which pprof does itself"),
                (("speedscope", "--until", "1ms"), "which speedscope cannot show"),
                (("openmetrics", "--from", "1ms"), "--from and --until have no meaning for openmetrics"),
                (("openmetrics", "--at", "1ms"), "--at is for formats of stacks, not for openmetrics"),
                (("perfetto", "-o", "x", "--at", "1ms"), "not for perfetto; --from and --until choose a stretch")):
            with self.subTest(arguments=arguments):
                self.refused("--to", *arguments, log, says=says)


class Stretches(ExportTest):
    """--from and --until of the formats of single events: the same as a part of the whole."""

    def stretches(self, log):
        duration = self.figures(log)["process"]["duration_ns"]
        yield 0, duration
        for first, last in ((2, 6), (5, 7)):
            if duration * first // 7 < duration * last // 7:
                yield duration * first // 7, duration * last // 7

    def test_perfetto(self):
        clipped = 0
        for log in LOGS:
            whole = formats.Trace(self.export("perfetto", "--no-symbols", log))
            for begin, end in self.stretches(log):
                with self.subTest(log=log, begin=begin, end=end):
                    part = formats.Trace(self.export("perfetto", "--no-symbols", "--from", "%dns" % begin,
                                                     "--until", "%dns" % end, log))
                    self.assertEqual(self.slices(part), self.clipped(whole, begin, end))
                    clipped += len(self.slices(part))
                    self.assertEqual(part.instants, [instant for instant in whole.instants
                                                     if begin <= round(instant[2] * 1000) <= end])
                    for name, all_values in whole.counters.items():
                        until_end = [value for value in all_values if round(value[0] * 1000) <= end]
                        values = part.counters.get(name, [])
                        if not values:  # there was nothing
                            self.assertTrue(all(value == 0 for _, value in until_end[-1:]))
                        else:
                            # The value at the start, then each change.
                            first = round(values[0][0] * 1000)
                            self.assertTrue(begin <= first <= end)
                            changes = [value for value in until_end if round(value[0] * 1000) >= begin]
                            self.assertIn(values, (changes, changes[1:], values[:1] + changes))
                            self.assertEqual(values[-1][1], until_end[-1][1])
        self.assertGreater(clipped, 500)

    @staticmethod
    def slices(trace):
        return sorted((category, name, begin, end, (arguments or {}).get("address", ""))
                      for track in trace.tracks for category, name, begin, end, arguments in track.slices)

    @staticmethod
    def clipped(trace, begin, end):
        found = []
        for track in trace.tracks:
            for category, name, first, last, arguments in track.slices:
                # What ends as the stretch begins is in it if the end is recorded then.
                if last >= begin and first <= end:
                    found.append((category, name, max(first, begin), min(last, end),
                                  (arguments or {}).get("address", "")))
        return sorted(found)

    def test_csv_has_an_allocation_for_each_free(self):
        rows_seen = 0
        for log in LOGS:
            whole = formats.csv(self.export("csv", log))
            for begin, end in self.stretches(log):
                with self.subTest(log=log, begin=begin, end=end):
                    part = formats.csv(self.export("csv", "--from", "%dns" % begin, "--until", "%dns" % end, log))
                    live, events = self.split(log, whole, begin, end)
                    self.assertEqual([row[3:] for row in part[:len(live)]], [row[3:] for row in live])
                    self.assertEqual(part[len(live):], events)
                    rows_seen += len(part)
        self.assertGreater(rows_seen, 500)

    def split(self, log, rows, begin, end):
        """What is live at the start, by address, and the rows of the stretch."""
        start = self.figures(log)["process"]["start_wall_ns"]

        def time_of(row):
            hours, minutes, seconds = row[1].split(":")
            return (int(hours) * 60 + int(minutes)) * 60 * 10**6 + round(float(seconds) * 10**6)

        first = (start + begin) // 1000 % (86400 * 10**6)
        last = (start + end) // 1000 % (86400 * 10**6)
        zone = self.zone_of(rows, time_of, start)
        live, events = {}, []
        for row in rows:
            time_us = (time_of(row) - zone) % (86400 * 10**6)
            if time_us < first:
                if row[2] == "allocate":
                    live[row[3]] = row
                elif row[2] == "free":
                    live.pop(row[3], None)
            elif time_us <= last:
                events.append(row)
        return sorted(live.values(), key=lambda row: int(row[3], 16)), events

    @staticmethod
    def zone_of(rows, time_of, start):
        """The local time's difference, in whole quarters of an hour."""
        if not rows:
            return 0
        quarter = 15 * 60 * 10**6
        return ((time_of(rows[0]) - start // 1000 % (86400 * 10**6)) // quarter) * quarter

    def test_pytorch(self):
        for log in LOGS:
            whole = formats.Snapshot(self.export("pytorch", "--no-symbols", log)).snapshot
            start = self.figures(log)["process"]["start_wall_ns"]
            for begin, end in self.stretches(log):
                with self.subTest(log=log, begin=begin, end=end):
                    # Without --from it begins with nothing: all rules hold.
                    until = formats.Snapshot(self.export("pytorch", "--no-symbols", "--until", "%dns" % end,
                                                         log)).snapshot
                    part = formats.unpickled(self.export("pytorch", "--no-symbols", "--from", "%dns" % begin,
                                                         "--until", "%dns" % end, log))
                    self.assertEqual(part["segments"], until["segments"])
                    for traces in zip(part["device_traces"], until["device_traces"], whole["device_traces"]):
                        shown, ended, all_of = ([{key: entry[key] for key in entry if key != "frames"}
                                                 for entry in trace] for trace in traces)
                        self.assertEqual(ended, all_of[:len(ended)])
                        self.assertEqual(shown, ended[len(ended) - len(shown):])
                        self.assertTrue(all((start + begin) // 1000 <= entry["time_us"] for entry in shown))
                        self.assertTrue(all(entry["time_us"] <= (start + begin) // 1000
                                            for entry in ended[:len(ended) - len(shown)]))

    def test_of_a_report_alone_the_counters(self):
        path = self.without_log(DATA + "/h100/pytorch_without_its_cache.json")
        out = self.path("x.pftrace")

        def counters(*arguments):
            self.call(REPORT, "export", "--to", "perfetto", "-o", out, *arguments, path)
            with open(out, "rb") as file:
                return formats.Trace(file.read()).counters["GPU 0 allocated"]

        whole, part = counters(), counters("--from", "400ms", "--until", "500ms")
        before = [value for ts, value in whole if ts < 400000][-1]
        self.assertEqual(part, [(400000.0, before)] + [each for each in whole if 400000 <= each[0] <= 500000])

    def test_what_was_allocated_before_says_when(self):
        trace = formats.Trace(self.export("perfetto", "--from", "150ms", "--until", "230ms", self.log("steps")))
        self.assertEqual(sorted((begin, end, arguments.get("allocated_ns"))
                                for _, begin, end, arguments in trace.slices["allocation"]),
                         [(150000.0, 230000.0, 20000000), (150000.0, 230000.0, 120000000),
                          (210000.0, 230000.0, None)])
        self.assertEqual(sorted((name, begin, end) for name, begin, end, _ in trace.slices["scope"]),
                         [("backward", 200000.0, 230000.0), ("forward", 150000.0, 190000.0),
                          ("step", 150000.0, 230000.0), ("train", 150000.0, 230000.0)])


class Runs(ExportTest):
    """Several processes in one trace of Perfetto's."""

    def test_each_is_a_process_on_one_clock(self):
        folder = self.path("run")
        os.mkdir(folder)
        logs = [log for log in LOGS if os.path.getsize(log) < 300000][:4]
        for log in logs:
            shutil.copy(log, folder)
        whole = formats.Trace(self.export("perfetto", "--no-symbols", folder))
        self.assertEqual(self.export("perfetto", "--no-symbols", *reversed(logs)),
                         self.export("perfetto", "--no-symbols", folder))
        processes = sorted((self.figures(log)["process"]["start_wall_ns"], log) for log in logs)
        first = processes[0][0]
        self.assertLess(abs(whole.wall_ns - first), 10**9)
        for (start, log), process in zip(processes, whole.processes):
            with self.subTest(log=log):
                figures = self.figures(log)["process"]
                self.assertEqual(process.pid, figures["pid"])
                self.assertIn("host " + figures["host"], process.labels)
                # An interpreter's script.
                script = [name for name in figures["arguments"] if name.endswith(".py")] or figures["arguments"]
                self.assertEqual(process.name.split()[0], os.path.basename(script[0]))
                alone = formats.Trace(self.export("perfetto", "--no-symbols", log))
                shift = {ours[2] - theirs[2] for ours, theirs in zip(self.of(whole, process), self.of(alone, alone.processes[0]))}
                self.assertLessEqual(len(shift), 1)
                for each in shift:
                    self.assertLess(abs(each - (start - first)), 10**9)
                    self.assertEqual([(*slice_[:2], slice_[2] - each, slice_[3] - each)
                                      for slice_ in self.of(whole, process)],
                                     [slice_[:4] for slice_ in self.of(alone, alone.processes[0])])

    @staticmethod
    def of(trace, process):
        return sorted(((category, name, begin, end) for track in trace.tracks if track.root() is process
                       for category, name, begin, end, _ in track.slices), key=lambda slice_: slice_[2:])

    def ranks(self):
        folder = self.path("ranks")
        os.mkdir(folder)
        subprocess.run([os.path.join(BIN, "memlab-synth"), "--ranks", "10", "--events", "400", "-o", folder],
                       check=True)
        return folder

    def test_ranks(self):
        folder = self.ranks()
        trace = formats.Trace(self.export("perfetto", folder))
        self.assertEqual([process.name.split(":")[0] for process in trace.processes],
                         ["rank %d" % rank for rank in range(10)])
        self.assertEqual([process.labels[0] for process in trace.processes],
                         ["host node1"] * 8 + ["host node2"] * 2)
        only = formats.Trace(self.export("perfetto", "--until", "100us", folder))
        self.assertEqual(len(only.processes), 10)
        self.assertTrue(all(end <= 100000 for track in only.tracks for *_, end, _ in track.slices))
        self.refused("--to", "perfetto", "-o", self.path("x"), "--from", "10min", folder,
                     says="no process ran between --from and --until")
        self.refused("--to", "perfetto", "-o", self.path("x"), "--device", "9", folder, says="GPU 9 was not used")
        self.refused("--to", "perfetto", "-o", self.path("x"), "--from", "no mark", folder,
                     says="--from takes a time with its unit .*, not no mark")

    def test_processes_of_one_number_are_two(self):
        files = []
        for host in ("one", "two"):
            report = device_report(DATA + "/h100/pytorch_without_its_cache.json")
            report["process"]["host"] = host
            files.append(self.path(host + ".json"))
            with open(files[-1], "w", encoding="utf-8") as file:
                json.dump(report, file)
        trace = formats.Trace(self.export("perfetto", *files))
        pid = "pid %d" % report["process"]["pid"]
        self.assertEqual([process.labels for process in trace.processes], [["host one"], ["host two", pid]])
        self.assertEqual(len({process.pid for process in trace.processes}), 2)

    def test_what_cannot_be_read_is_named_and_the_rest_written(self):
        folder = self.ranks()
        with open(folder + "/memlab.broken.1.json", "w", encoding="utf-8") as file:
            file.write('{"format": "memlab-report", "version": 1, "process": 7}')
        out = self.path("run.pftrace.gz")
        result = self.call(REPORT, "export", "--to", "perfetto", "-o", out, folder)
        self.assertEqual(result.returncode, 2)
        self.assertIn("memlab.broken.1.json", result.stderr)
        with open(out, "rb") as file:
            self.assertEqual(len(formats.Trace(file.read()).processes), 10)

    def test_what_several_lack_is_said_once(self):
        folder = self.path("run")
        os.mkdir(folder)
        for name in ("sample_checkpointing_plain", "pytorch_without_its_cache", "sample_oom_recovery"):
            shutil.copy(DATA + "/h100/%s.json" % name, folder)
        out = self.path("run.pftrace")
        result = self.call(REPORT, "export", "--to", "perfetto", "-o", out, folder)
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stderr, r"\.json and 2 others: A report has no single events")
        self.assertEqual(result.stderr.count("\n"), 1)
        with open(out, "rb") as file:
            self.assertEqual(len(formats.Trace(file.read()).processes), 3)

    def test_metrics_of_several_files(self):
        folder = self.ranks()
        files = sorted(glob.glob(folder + "/*"))
        self.assertEqual(self.export("openmetrics", *files), self.export("openmetrics", folder))


class Size(ExportTest):
    def test_a_trace_is_a_few_times_its_log(self):
        log = self.path("synthetic.memlog")
        events = 40000
        subprocess.run([os.path.join(BIN, "memlab-synth"), "--events", str(events), "-o", log], check=True)
        trace = self.export("perfetto", "--no-symbols", log)
        made = sum(kind["count"] for device in self.figures(log)["devices"] for kind in device["kinds"].values())
        self.assertEqual(len(formats.Trace(trace).slices["allocation"]), made)
        self.assertLess(len(trace), 65 * events)


class Metrics(ExportTest):
    def test_every_recording(self):
        for path in REPORTS:
            with self.subTest(path=path):
                report = device_report(path)
                metrics = formats.openmetrics(self.export("openmetrics", path))
                for device in report["devices"]:
                    for curve, figures in device["curves"].items():
                        if figures is None or figures["peak_bytes"] is None:
                            continue
                        found = [value for (name, labels), value in metrics.items()
                                 if name == "memlab_peak_bytes" and ("curve", curve) in labels
                                 and ("device", str(gpu_of(device))) in labels
                                 and dict(labels).get("allocator") == device.get("allocator")]
                        self.assertEqual(found, [figures["peak_bytes"]])

    def test_what_is_missing_is_a_metric(self):
        log = self.path("stopped.memlog")
        subprocess.run([os.path.join(BIN, "memlab-synth"), "stopped", log], check=True)
        for path, lacks in ((log, ["stopped"]), (REPORTS[0], [])):
            metrics = formats.openmetrics(self.export("openmetrics", path))
            found = [dict(labels)["name"] for (name, labels), value in metrics.items()
                     if (name, value) == ("memlab_lack", 1)]
            self.assertEqual(found, lacks)

    def test_what_a_run_lacks_is_a_metric(self):
        run = os.path.join(self.folder.name, "run")
        shutil.copytree(os.path.join(SOURCE, "tests", "data", "h200", "run_of_four_ranks"), run)
        logs = sorted(name for name in os.listdir(run) if name.endswith(".memlog"))

        def found():
            metrics = formats.openmetrics(self.export("openmetrics", run))
            complete = [value for (name, _), value in metrics.items() if name == "memlab_complete"]
            return complete, {dict(labels)["name"] for (name, labels), _ in metrics.items() if name == "memlab_lack"}

        complete, lacks = found()
        self.assertEqual((complete, lacks), ([1] * len(logs), set()))
        os.remove(os.path.join(run, logs[-1]))
        complete, lacks = found()
        self.assertEqual((complete, lacks), ([0] * (len(logs) - 1), {"processes"}))
        for name in os.listdir(run):
            if name.startswith("memlab-run."):
                os.remove(os.path.join(run, name))
        self.assertEqual(found()[1], {"ranks"})

    def test_a_run_is_one_file_with_a_label_for_each_process(self):
        recordings = [path for path in REPORTS if path.endswith(".json")][:3]
        for path in recordings:
            shutil.copy(path, self.folder.name)
        metrics = formats.openmetrics(self.export("openmetrics", self.folder.name))
        for path in recordings:
            report = device_report(path)
            process = report["process"]
            found = {value for (name, labels), value in metrics.items()
                     if name == "memlab_duration_seconds" and ("pid", str(process["pid"])) in labels
                     and ("host", process["host"]) in labels}
            self.assertEqual(found, {process["duration_ns"] / 1e9}, path)
        self.assertEqual(sum(name == "memlab_run_info" for name, _ in metrics), 3)

    def test_no_two_recordings_are_one_series(self):
        """Two exports in one folder of the textfile collector."""
        one, two = (formats.openmetrics(self.export("openmetrics", path)) for path in
                    [path for path in REPORTS if path.endswith(".json")][:2])
        self.assertEqual(set(one) & set(two), set())
        for _, labels in one:
            self.assertLessEqual({"executable", "pid", "host"}, set(dict(labels)))
        python = formats.openmetrics(self.export("openmetrics", os.path.join(SOURCE, "tests/data/h200/pytorch_scopes.json")))
        self.assertTrue(all(("script", "nvtx_scopes.py") in labels for _, labels in python))

    def test_the_rank_is_a_label(self):
        metrics = formats.openmetrics(self.export("openmetrics", self.log("leak")))
        self.assertTrue(all(("rank", "3") in labels for _, labels in metrics))


def gpu_of(device):
    """A framework's cache is a device of its own on that GPU."""
    return device.get("gpu", device["index"])


def seen_from_inside(report):
    """The devices of frameworks' caches, and the GPUs without one."""
    caches = [device for device in report["devices"] if device["allocator"]]
    cut = {device["gpu"] for device in caches}
    return caches + [device for device in report["devices"] if not device["allocator"] and device["index"] not in cut]


def used_devices(report):
    return [device for device in report["devices"] if device["kinds"]]


class Events(ExportTest):
    """The formats of single events, on every log that was ever recorded."""

    def report_of(self, log):
        """The report that the log amounts to, as its own summary has it."""
        return self.figures(log)

    def test_pytorch_every_log(self):
        for log in LOGS:
            with self.subTest(log=log):
                summary = self.report_of(log)
                snapshot = formats.Snapshot(self.export("pytorch", "--no-symbols", log))
                for device in seen_from_inside(summary):
                    index = gpu_of(device)
                    self.assertEqual(snapshot.peak_allocated[index],
                                     device["curves"]["requested"]["peak_bytes"])
                    self.assertEqual(snapshot.peak_reserved[index],
                                     device["curves"]["reserved"]["peak_bytes"])

    def test_perfetto_every_log(self):
        for log in LOGS:
            with self.subTest(log=log):
                summary = self.report_of(log)
                trace = formats.Trace(self.export("perfetto", "--no-symbols", log))
                for device in summary["devices"]:
                    for curve, figures in device["curves"].items():
                        if figures is None or figures["peak_bytes"] == 0:
                            continue
                        whose = device["allocator"] + " on " if device["allocator"] else ""
                        values = trace.counters["%sGPU %d %s" % (whose, gpu_of(device), curve.replace("_", " "))]
                        self.assertEqual(max(value for _, value in values), figures["peak_bytes"])
                        self.assertEqual(values[-1][1], figures["at_end_bytes"])
                allocated = sum(kind["count"] for device in summary["devices"]
                                for kind in device["kinds"].values())
                self.assertEqual(len(trace.slices.get("allocation", [])), allocated)

    def test_perfetto_has_the_call_stack_of_each_allocation(self):
        log = self.log("leak")
        trace = formats.Trace(self.export("perfetto", log))
        functions = [[function for function, _, _ in arguments["stack"]]
                     for *_, arguments in trace.slices["allocation"]]
        folded = {tuple(frame.rsplit(" (", 1)[0] for frame in frames if frame != "[pinned]")
                  for frames, _ in formats.folded(self.export("folded", "--by", "count", log))}
        self.assertEqual({tuple(stack) for stack in functions}, folded)
        self.assertTrue(any("load_batch" in stack for stack in functions), functions)
        self.assertTrue(any(file.endswith("memlab_synth.cpp") and line > 0
                            for *_, arguments in trace.slices["allocation"]
                            for _, file, line in arguments["stack"]))

    def test_csv_every_log(self):
        for log in LOGS:
            with self.subTest(log=log):
                rows = formats.csv(self.export("csv", log))
                kinds = seen_from_inside(self.report_of(log))[0]["kinds"]
                made = sum(kinds.get(kind, {"count": 0})["count"]
                           for kind in ("device", "managed", "async_pool", "graph", "suballocation"))
                self.assertEqual(sum(row[2] == "allocate" for row in rows), made)

    def test_events_of_nn_modules(self):
        """What is live at a moment by the events up to it, be it there at the peak or the end or not."""
        log = os.path.join(self.folder.name, "layers.memlog")
        subprocess.run([os.path.join(BIN, "random_log"), "layers",
                        os.path.join(SOURCE, "tests/data/h200/pytorch_tensors.memlog"), log], check=True)
        filters = ("encoder", "layers.0", "*.mlp", "none of these")
        seen = {}
        for pattern in filters:
            for moment in ("400ms", "900ms", "1s", "1.9s"):
                rows = formats.csv(self.export("csv", "--no-symbols", "--nn-module", pattern, "--until", moment, log))
                actions = [row[2] for row in rows]
                live = actions.count("allocate") - actions.count("free")
                document = json.loads(self.report("timeline", "--json", "--no-symbols", "--at", moment,
                                                  "--filter", "nn_module=" + pattern, "--level", "framework", log))
                at = document["reports"][0]["at"]
                self.assertEqual(live, sum(device["count"] for device in at["devices"]), (pattern, moment))
            rows = formats.csv(self.export("csv", "--no-symbols", "--nn-module", pattern, log))
            seen[pattern] = len(rows)
            snapshot = formats.Snapshot(self.export("pytorch", "--no-symbols", "--nn-module", pattern, log))
            made = sum(entry["action"] == "alloc" for trace in snapshot.snapshot["device_traces"] for entry in trace)
            self.assertEqual(made, sum(row[2] == "allocate" for row in rows))
        self.assertGreater(seen["encoder"], seen["layers.0"])
        self.assertGreater(seen["layers.0"], 100)
        self.assertEqual(seen["none of these"], 0)

    def test_what_a_trace_shows_of_one_program(self):
        log = self.log("cache")
        trace = formats.Trace(self.export("perfetto", log))
        (name, begin, end, arguments), = trace.slices["allocation"]
        self.assertRegex(name, r"^load_batch \(.*memlab_synth\.cpp:\d+\)$")
        self.assertEqual((begin, end, arguments["bytes"]), (100000.0, 300000.0, 4000256))
        self.assertEqual([name for category, name, _, _ in trace.instants if category == "mark"],
                         ["start", "x = tensor", "del x", "empty_cache()"])
        self.assertEqual(trace.counters["GPU 0 reserved"], [(100000, 20 << 20), (500000, 0)])

    def test_kernels_are_slices_of_their_streams(self):
        log = self.log("kernels")
        trace = formats.Trace(self.export("perfetto", log))
        gemm = "void gemm<float>(float const*)"
        self.assertEqual(sorted(each[:-1] for each in trace.work),
                         [("GPU 0 work", "stream 13", "copy", "copy", 120000.0, 10000.0),
                          ("GPU 0 work", "stream 7", "kernel", gemm, 110000.0, 40000.0),
                          ("GPU 0 work", "stream 7", "kernel", gemm, 140000.0, 20000.0),
                          ("GPU 0 work", "stream 7", "kernel", gemm, 160000.0, 10000.0)])
        self.assertEqual([each[-1]["bytes"] for each in trace.work if each[2] == "copy"], [1 << 20])
        # What overlaps is on two tracks of one name.
        self.assertEqual(len([track for track in trace.tracks if track.name == "stream 7"]), 2)
        self.assertEqual(len(trace.slices["allocation"]), 1)

    def test_a_failure(self):
        log = self.log("oom")
        trace = formats.Trace(self.export("perfetto", log))
        self.assertEqual([(category, name) for category, name, _, _ in trace.instants],
                         [("oom", "out of memory: 58.59 GiB")])
        self.assertEqual([name for (what, _, thread), name in trace.names.items()
                          if (what, thread) == ("thread_name", 7)], ["loader  [31m"])
        ((_, _, _, arguments),) = trace.slices["allocation"]
        self.assertEqual(arguments["thread"], "thread 7 (loader  [31m)")
        self.assertEqual([row[2:4] for row in formats.csv(self.export("csv", log))],
                         [("allocate", "0x7f0000000000"), ("allocate failure", "(nil)")])
        actions = [entry["action"] for entry in
                   formats.Snapshot(self.export("pytorch", log)).snapshot["device_traces"][0]]
        self.assertEqual(actions, ["segment_alloc", "alloc", "oom"])

    def test_scopes_are_slices(self):
        trace = formats.Trace(self.export("perfetto", self.log("hostile")))
        (name, begin, end, _), = trace.slices["scope"]
        self.assertEqual((name, begin, end), (" scope\\", 10000.0, 40000.0))

    def test_a_report_gives_counters_alone(self):
        path = self.without_log(DATA + "/h100/pytorch_without_its_cache.json")
        out = self.path("x.pftrace")
        result = self.call(REPORT, "export", "--to", "perfetto", "-o", out, path)
        self.assertIn("no allocations. Its event log (.memlog) has them", result.stderr)
        with open(out, "rb") as file:
            trace = formats.Trace(file.read())
        self.assertEqual(trace.slices, {})
        peak = device_report(path)["devices"][0]["curves"]["allocated"]["peak_bytes"]
        self.assertEqual(max(value for _, value in trace.counters["GPU 0 allocated"]), peak)
        for to in ("pytorch", "csv"):
            self.refused("--to", to, "-o", self.path("x"), path,
                         says="a report has no single events; give its event log")

    def test_the_log_beside_a_report_is_used(self):
        path = DATA + "/h100/pytorch_without_its_cache"
        for to in ("perfetto", "csv", "pytorch"):
            self.assertEqual(self.export(to, path + ".json"), self.export(to, path + ".memlog"))

    def test_two_gpus(self):
        log = self.log("two_gpus")
        snapshot = formats.Snapshot(self.export("pytorch", log))
        self.assertEqual([len(trace) for trace in snapshot.snapshot["device_traces"]], [2, 2])
        self.assertEqual({segment["device"] for segment in snapshot.snapshot["segments"]}, {0, 1})
        only = formats.Snapshot(self.export("pytorch", "--device", "1", log))
        self.assertEqual([len(trace) for trace in only.snapshot["device_traces"]], [0, 2])
        self.refused("--to", "csv", log, says="csv has no column for the GPU")
        self.assertEqual(len(formats.csv(self.export("csv", "--device", "1", log))), 1)

    def test_a_filter_chooses_allocations(self):
        log = self.log("leak")
        rows = formats.csv(self.export("csv", "--filter", "func=load_batch", log))
        self.assertEqual([(row[2], row[4]) for row in rows], [("allocate", 4000000)])
        trace = formats.Trace(self.export("perfetto", "--filter", "kind=pinned", log))
        self.assertEqual([arguments["kind"] for *_, arguments in trace.slices["allocation"]], ["pinned"])
        formats.Snapshot(self.export("pytorch", "--filter", "func=forward_pass", log))
        self.refused("--to", "perfetto", "--filter", "x",
                     self.without_log(DATA + "/h100/sample_oom_recovery.json"),
                     says="no single events for --filter")

    def test_damaged_logs_give_what_is_whole(self):
        with open(DATA + "/h100/pytorch_without_its_cache.memlog", "rb") as file:
            whole = file.read()
        choice = random.Random(7)
        for size in (17, 100, 5000, 20000, 40000):
            for change in (False, True):
                path = self.path("damaged.memlog")
                data = bytearray(whole[:size])
                for _ in range(3 if change else 0):
                    data[choice.randrange(16, size)] ^= 1 << choice.randrange(8)
                with open(path, "wb") as file:
                    file.write(data)
                for to, check in (("pytorch", formats.Snapshot), ("perfetto", formats.Trace),
                                  ("csv", formats.csv)):
                    result = subprocess.run([REPORT, "export", "--to", to, "--no-symbols", path],
                                            env=self.environment, capture_output=True, check=False)
                    self.assertIn(result.returncode, (0, 2))
                    if result.returncode == 0:
                        check(result.stdout)


class RandomLogs(ExportTest):
    """Rules hold for logs that nobody planned: accidents, overlaps, any number in any field."""

    def test_every_format_of_every_log(self):
        seen = 0
        for kind, seeds in (("plausible", 10), ("wild", 14)):
            for seed in range(1, seeds + 1):
                log = self.path("%s%d.memlog" % (kind, seed))
                subprocess.run([os.path.join(BIN, "random_log"), kind, str(seed), "3000", log], check=True)
                if not self.readable(log):
                    continue
                with self.subTest(kind=kind, seed=seed):
                    snapshot = formats.Snapshot(self.export("pytorch", "--no-symbols", log))
                    seen += sum(len(trace) for trace in snapshot.snapshot["device_traces"])
                    formats.Trace(self.export("perfetto", "--no-symbols", log))
                    devices = self.figures(log)["devices"]
                    for device in devices:
                        formats.csv(self.export("csv", "--device", str(device["index"]), log))
                    for by in ("peak", "bytes", "count", "live"):
                        formats.folded(self.export("folded", "--no-symbols", "--by", by, log))
                        formats.speedscope(self.export("speedscope", "--no-symbols", "--by", by, log))
                    formats.Profile(self.export("pprof", "--no-symbols", log))
                    formats.openmetrics(self.export("openmetrics", log))
                    if kind == "plausible":
                        # What was reserved at most is what the aggregator says, accidents or not.
                        for device in devices:
                            self.assertEqual(snapshot.peak_allocated[device["index"]],
                                             device["curves"]["requested"]["peak_bytes"])
        self.assertGreater(seen, 10000)


HOSTILE = ['"quotes" \\ and ;semicolons;', "line\nbreak\tand\x1b[31mescape", "<&]]>'", "\x00\x7f\x9b",
           "\uffff\ufffe", "", " ", "caf\u00e9 \U0001f4a3", "a" * 5000, "${x} $(y) `z`"]


class HostileTest(ExportTest):
    def hostile_report(self, seed):
        """A real report whose every text is something else, whose sites refer to any stack. (What
        is no UTF-8 is no JSON: logs have it.)"""
        choice = random.Random(seed)
        report = device_report(choice.choice(REPORTS))

        def text():
            return choice.choice(HOSTILE) + (choice.choice(HOSTILE) if choice.random() < 0.2 else "")

        for module in report["modules"]:
            module["path"] = text()
        for frame in report["frames"]:
            if frame.get("function") is not None:
                frame["function"], frame["file"] = text(), text()
        for site in report["sites"]:
            site["api"] = text()
            site["stack"] = choice.randrange(len(report["stacks"]))
        for mark in report["marks"]:
            mark["name"] = text()
        process = report["process"]
        process["executable"], process["host"] = text(), text()
        process["ranks"] = {"RANK": text()}
        for device in report["devices"]:
            device["uuid"], device["name"] = text(), text()
        path = self.path("hostile%d.json" % seed)
        with open(path, "wb") as file:
            encoded = json.dumps(report, ensure_ascii=choice.random() < 0.5)
            file.write(encoded.encode("utf-8"))
        return path


class Hostile(HostileTest):
    def test_whatever_the_names_every_format_parses(self):
        read = 0
        for seed in range(40):
            path = self.hostile_report(seed)
            accepted = self.call(REPORT, "export", "--to", "folded", "--no-symbols", path).returncode == 0
            if not accepted:  # the reader refused the report, as it may
                continue
            read += 1
            with self.subTest(seed=seed):
                for by in ("bytes", "live"):
                    formats.folded(self.export("folded", "--by", by, path))
                    formats.speedscope(self.export("speedscope", "--by", by, path))
                    formats.Profile(self.export("pprof", "--by", by, path))
                formats.openmetrics(self.export("openmetrics", path))
                formats.Trace(self.export("perfetto", path))
        self.assertGreater(read, 30)

    def test_names_of_a_log_that_are_no_utf_8(self):
        log = self.log("hostile")
        (frames, weight), = formats.folded(self.export("folded", log))
        self.assertEqual(weight, 4000256)
        self.assertEqual(frames[-1], 'cu\ufffd\ufffdMem,Alloc "x"')
        formats.speedscope(self.export("speedscope", log))
        self.assertEqual(formats.Profile(self.export("pprof", log)).total("peak_space"), 4000256)
        formats.openmetrics(self.export("openmetrics", log))
        formats.Trace(self.export("perfetto", log))
        formats.Snapshot(self.export("pytorch", log))
        formats.csv(self.export("csv", log))

    def test_an_empty_recording(self):
        log = self.log("empty")
        self.assertEqual(formats.folded(self.export("folded", log)), [])
        self.assertEqual(formats.speedscope(self.export("speedscope", log))[1], [])
        self.assertEqual(formats.Profile(self.export("pprof", log)).samples, [])
        formats.openmetrics(self.export("openmetrics", log))
        self.assertEqual(formats.Trace(self.export("perfetto", log)).counters, {})
        self.assertEqual(formats.Snapshot(self.export("pytorch", log)).snapshot["segments"], [])
        self.assertEqual(formats.csv(self.export("csv", log)), [])


class Files(ExportTest):
    def test_o_writes_a_file_that_is_whole_or_not_there(self):
        log = self.log("leak")
        out = self.path("out.txt")
        self.assertEqual(self.export("folded", "-o", out, log), b"")
        with open(out, "rb") as file:
            formats.folded(file.read())
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["leak.memlog", "out.txt"])
        self.refused("--to", "folded", "-o", self.path("no/such/folder"), log,
                     says="no/such/folder: cannot be written")
        self.refused("--to", "folded", "-o", "/dev/full", log, says="No space left")
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["leak.memlog", "out.txt"])

    def test_standard_output_that_is_full(self):
        log = self.log("leak")
        with open("/dev/full", "wb") as full:
            result = subprocess.run([REPORT, "export", "--to", "folded", log], stdout=full,
                                    stderr=subprocess.PIPE, env=self.environment, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"standard output: cannot be written (No space left on device)", result.stderr)

    def test_a_signal_leaves_no_half_file(self):
        out = self.path("out.folded")
        with open(out, "w", encoding="utf-8") as file:
            file.write("what was there before")
        big = self.path("big.json")
        report = device_report(DATA + "/h100/pytorch_without_its_cache.json")
        report["sites"] = report["sites"] * 3000
        with open(big, "w", encoding="utf-8") as file:
            json.dump(report, file)
        process = subprocess.Popen([REPORT, "export", "--to", "folded", "--by", "bytes", "--no-symbols",
                                    "-o", out, big], env=self.environment, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        temporary = out + ".tmp." + str(process.pid)
        # No deadline but the test's own: a sanitizer's reader may take minutes for so many call sites.
        while not os.path.exists(temporary) and process.poll() is None:
            time.sleep(0.001)
        self.assertTrue(os.path.exists(temporary))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertFalse(os.path.exists(temporary))
        with open(out, encoding="utf-8") as file:
            self.assertEqual(file.read(), "what was there before")

    def test_no_binary_for_a_terminal(self):
        log = self.log("leak")
        leader, follower = os.openpty()
        result = subprocess.run([REPORT, "export", "--to", "pprof", log], stdout=follower,
                                stderr=subprocess.PIPE, env=self.environment, check=False)
        os.close(follower)
        os.close(leader)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"pprof is binary and standard output a terminal; add -o FILE", result.stderr)

    def test_usage(self):
        log = self.log("leak")
        self.refused("--to", "xml", log, says="takes one of .*folded.*, not xml")
        self.refused("--to", "flamegraph", log, says="takes one of .*folded.*, not flamegraph")
        self.refused("--to", "folded", "--by", "age", log, says="takes peak, bytes, count or live, not age")
        self.refused("--to", "openmetrics", "--by", "live", log, says="--by is for formats of stacks")
        self.refused("--to", "openmetrics", "--filter", "x", log, says="--filter has no meaning")
        self.refused("--to", "folded", self.path("nothing.json"), says="no such file")
        os.mkfifo(self.path("pipe"))
        self.refused("--to", "folded", self.path("pipe"), says="empty")
        self.refused("--to", "folded", "--filter", "nobody=x", log, says=".")
        self.refused(log, says="--to is required")

    def test_the_folder_of_a_run(self):
        os.mkdir(self.path("run"))
        os.rename(self.log("leak"), self.path("run/memlab.train.7.memlog"))
        self.assertEqual(len(formats.folded(self.export("folded", self.path("run")))), 3)


if __name__ == "__main__":
    unittest.main()
