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
STACKS = ("flamegraph", "folded", "pprof", "speedscope")


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
        return sum(device["curves"]["allocated"]["peak_bytes"] for device in report["devices"])
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
                    if whole:
                        boxes = formats.flamegraph(self.export("flamegraph", *arguments))
                        self.assertAlmostEqual(sum(share for _, depth, share in boxes if depth == 1),
                                               1.0, delta=0.02)

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
            self.assertEqual(frames[-1], "cuMemAlloc_v2")
            self.assertEqual(frames[-2], {12 << 20: "libcudart.so.13+0x20",
                                          4000256: "libcudart.so.13+0x10"}[weight])
            self.assertRegex(frames[-3], r"^(forward_pass|load_batch) \(memlab_synth\.cpp:\d+\)$")
        # What was cut off on the way up says so.
        self.assertIn("[deeper than MEMLAB_STACK_DEPTH]",
                      [frames[0] for frames, _ in formats.folded(self.export("folded", log))])
        leaf_first = [names for names, _, _ in formats.Profile(self.export("pprof", log)).samples]
        self.assertTrue(all(names[0].startswith("cuMem") for names in leaf_first))

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
        self.assertEqual([weight for _, weight in chosen], [4000256])
        nothing = self.export("folded", "--filter", "func=nobody", log)
        self.assertEqual(nothing, b"")
        formats.flamegraph(self.export("flamegraph", "--filter", "func=nobody", log))

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
                         says="a report has no single events; give the event log")

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
                        formats.flamegraph(self.export("flamegraph", "--no-symbols", "--by", by, log))
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
                    formats.flamegraph(self.export("flamegraph", "--by", by, path))
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
        formats.flamegraph(self.export("flamegraph", log))
        formats.openmetrics(self.export("openmetrics", log))
        formats.Trace(self.export("perfetto", log))
        formats.Snapshot(self.export("pytorch", log))
        formats.csv(self.export("csv", log))

    def test_an_empty_recording(self):
        log = self.log("empty")
        self.assertEqual(formats.folded(self.export("folded", log)), [])
        self.assertEqual(formats.speedscope(self.export("speedscope", log))[1], [])
        self.assertEqual(formats.Profile(self.export("pprof", log)).samples, [])
        self.assertEqual(len(formats.flamegraph(self.export("flamegraph", log))), 1)
        formats.openmetrics(self.export("openmetrics", log))
        self.assertEqual(formats.Trace(self.export("perfetto", log)).counters, {})
        self.assertEqual(formats.Snapshot(self.export("pytorch", log)).snapshot["segments"], [])
        self.assertEqual(formats.csv(self.export("csv", log)), [])


class Files(ExportTest):
    def test_o_writes_a_file_that_is_whole_or_not_there(self):
        log = self.log("leak")
        out = self.path("out.svg")
        self.assertEqual(self.export("flamegraph", "-o", out, log), b"")
        with open(out, "rb") as file:
            formats.flamegraph(file.read())
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["leak.memlog", "out.svg"])
        self.refused("--to", "folded", "-o", self.path("no/such/folder"), log,
                     says="cannot write .*no/such/folder")
        self.refused("--to", "folded", "-o", "/dev/full", log, says="No space left")
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["leak.memlog", "out.svg"])

    def test_standard_output_that_is_full(self):
        log = self.log("leak")
        with open("/dev/full", "wb") as full:
            result = subprocess.run([REPORT, "export", "--to", "folded", log], stdout=full,
                                    stderr=subprocess.PIPE, env=self.environment, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"cannot write to standard output", result.stderr)

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
        self.refused("--to", "xml", log, says="takes one of .*flamegraph.*, not xml")
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
        self.assertEqual(len(formats.folded(self.export("folded", self.path("run")))), 2)


if __name__ == "__main__":
    unittest.main()
