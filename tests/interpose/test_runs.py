"""Trees of processes and ranks as one run: memlab-run -o FOLDER/, memlab-report FOLDER, merge."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import unittest

import harness
from harness import Outcome, jsonschema, run
from support import Build, EndToEnd

MIB = 1 << 20

# Workers of Python's multiprocessing that use CUDA through ctypes, as frameworks do.
POOL_OF_WORKERS = """
import ctypes
import multiprocessing
import sys

def use_cuda(mebibytes):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
    if cuda.cuInit(0) != 0:
        return False
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mebibytes << 20)) == 0
    assert cuda.cuMemFree_v2(address) == 0
    return True

if __name__ == "__main__":
    method, parent_too = sys.argv[1], sys.argv[2] == "parent"
    if parent_too:
        print("parent:", use_cuda(9))
    with multiprocessing.get_context(method).Pool(3) as pool:
        print("workers:", pool.map(use_cuda, [1, 2, 3], chunksize=1))
        pool.close()
        pool.join()
"""


@unittest.skipIf(Build.sanitizer, "a sanitizer's runtime must be preloaded first")
class Runs(EndToEnd):
    """Programs of many processes under memlab-run."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = self.work / "run"
        self.reporter = str(self.layout.tool("memlab-report"))

    def under_run(self, command: list[str], *options: str, settings: dict[str, str] | None = None) -> Outcome:
        tool = [str(self.layout.tool("memlab-run")), "-o", f"{self.folder}/", *options, "--"]
        return run([*tool, *command], self.layout.environment(memlab=False, settings=settings), self.cwd)

    def tree(self, parts: str, *options: str) -> dict:
        """Runs tests/programs/tree.cpp; the run as memlab-report sees it."""
        outcome = self.under_run(self.program("tree", parts), *options)
        self.assertIsNotNone(outcome.code, outcome.describe())
        return self.seen()

    def shell(self, script: str, *options: str, settings: dict[str, str] | None = None) -> Outcome:
        """A script in which `tree` is the program."""
        program = f"tree() {{ {shlex.quote(str(self.layout.program('tree')))} \"$@\"; }}\n"
        return self.under_run(["bash", "-c", program + script], *options, settings=settings)

    def report(self, *arguments: str) -> Outcome:
        return run([self.reporter, *arguments], self.layout.environment(memlab=False), self.cwd)

    def judged(self, outcome: Outcome, schema: str) -> dict:
        """The JSON of an outcome, valid by its schema."""
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        return self.valid(json.loads(outcome.stdout), schema)

    def valid(self, document: dict, schema: str) -> dict:
        if jsonschema is not None:
            text = self.layout.schema(schema).read_text(encoding="utf-8")
            errors = jsonschema.Draft7Validator(json.loads(text)).iter_errors(document)
            self.assertEqual([f"{error.json_path}: {error.message}" for error in errors], [])
        return document

    def seen(self) -> dict:
        document = self.judged(self.report("--json", str(self.folder)), "run-summary")
        self.assertEqual(document["errors"], [])
        return document

    def run_files(self) -> list[dict]:
        return [self.valid(json.loads(path.read_text(encoding="utf-8")), "run")
                for path in sorted(self.folder.glob("memlab-run.*.json"))]

    @staticmethod
    def part(process: dict) -> str:
        """The letter by which tree.cpp knows a process."""
        return process["arguments"][-1][0]

    def families(self, document: dict) -> dict[str, list[str]]:
        """Letters of the children, by their parent's letter; "" is above all."""
        found: dict[str, list[str]] = {}
        for process in document["processes"]:
            parent = process["parent"]
            name = "" if parent is None else self.part(document["processes"][parent])
            found.setdefault(name, []).append(self.part(process))
        return found

    def assert_text(self, *wanted: str) -> str:
        outcome = self.report(str(self.folder))
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        text = outcome.stdout.decode("utf-8")
        for each in wanted:
            self.assertRegex(text, each)
        return text

    # ---- trees ----------------------------------------------------------------------------------

    def test_three_levels(self) -> None:
        document = self.tree("a(b(c d) e)")
        self.assertEqual(self.families(document), {"": ["a"], "a": ["b", "e"], "b": ["c", "d"]})
        self.assertEqual({process["outcome"] for process in document["processes"]}, {"ended"})
        peaks = {self.part(process): process["devices"][0]["allocated_peak_bytes"] // MIB
                 for process in document["processes"]}
        self.assertEqual(peaks, {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})
        self.assertEqual(self.part(document["processes"][document["largest"]]), "e")
        (gpu,) = document["gpus"]
        # One after another: never more than the largest alone.
        self.assertEqual(gpu["allocated"]["sum_of_peaks_bytes"], 15 * MIB)
        self.assertEqual(gpu["allocated"]["at_once_at_most_bytes"], 5 * MIB)
        self.assertEqual(gpu["allocated"]["at_once_at_least_bytes"], 5 * MIB)
        self.assertEqual(document["notes"], [])
        (described,) = self.run_files()
        self.assertEqual(described["command"][1:], ["a(b(c d) e)"])
        self.assertEqual((described["exit_code"], described["signal"]), (0, None))
        self.assertEqual(len(described["processes"]), 5)
        self.assert_text(r"(?m)^5 processes with CUDA", r"(?m)^ +\d+  tree 'a\(b\(c", r"├─ tree 'b\(c d\)'",
                         r"│  └─ tree d +4\.00 MiB", r"└─ tree e +5\.00 MiB", r"the largest peak <==\ntree ")

    def test_memory_that_is_held_together_is_added(self) -> None:
        document = self.tree("a!(b!(c! d!))")
        (gpu,) = document["gpus"]
        self.assertEqual(gpu["allocated"]["sum_of_peaks_bytes"], 10 * MIB)
        self.assertEqual(gpu["allocated"]["at_once_at_most_bytes"], 7 * MIB)
        self.assertEqual(gpu["allocated"]["at_once_at_least_bytes"], 7 * MIB)
        self.assert_text(r"sum of peaks +at once\n  allocated +10\.00 MiB +7\.00 MiB\n")

    def test_an_option_that_is_not_understood_ends_it(self) -> None:
        """Also with --quiet: the program would run without the limit that was meant."""
        ran = self.work / "ran"
        for options in ([], ["--quiet"]):
            for name, value in (("LIMIT", "24XB"), ("STACK_DEPTH", "many"), ("BACKEND", "mapped")):
                with self.subTest(options=options, name=name):
                    outcome = self.under_run(["touch", str(ran)], *options, settings={f"MEMLAB_{name}": value})
                    self.assertEqual(outcome.code, 2, outcome.describe())
                    self.assertRegex(outcome.stderr.decode(), rf"^memlab-run: MEMLAB_{name}={value} is not understood "
                                     r"\(takes .*\)\n$")
                    self.assertFalse(ran.exists())
        for size in ("24GB", "24Gi", "24 GiB", "1.5g"):
            outcome = self.under_run(["touch", str(ran)], "--quiet", settings={"MEMLAB_LIMIT": size})
            self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
            self.assertTrue(ran.exists())

    def test_fifty_children(self) -> None:
        document = self.tree("a(" + " ".join(["+b"] * 50) + ")")
        self.assertEqual(self.families(document), {"": ["a"], "a": ["b"] * 50})
        self.assertEqual(len({process["pid"] for process in document["processes"]}), 51)
        self.assertEqual(len(list(self.folder.glob("*.memlog"))), 51)

    def test_every_way_to_end(self) -> None:
        document = self.tree("a(b# c/ d=3 e!)")
        processes = {self.part(process): process for process in document["processes"]}
        self.assertEqual({name for name, process in processes.items() if process["from_log"]}, {"b", "c"})
        self.assertEqual({name: process["ended"] for name, process in processes.items()},
                         {"a": "exit", "b": "cut off", "c": "cut off", "d": "exit", "e": "exit"})
        self.assertEqual({name: (process["exit_code"], process["outcome"])
                          for name, process in processes.items()},
                         {"a": (0, "ended"), "b": (None, "cut off"), "c": (None, "cut off"),
                          "d": (3, "exit 3"), "e": (0, "ended")})
        self.assert_text(r"tree d=3 .* exit 3\n", r"tree 'b#' .* cut off\n")
        self.assertEqual(processes["e"]["devices"][0]["allocated_at_end_bytes"], 5 * MIB)
        recovered = {self.part(process): process["recovered"] for process in self.run_files()[0]["processes"]}
        self.assertEqual(recovered, {"a": False, "b": True, "c": True, "d": False, "e": False})

    def test_the_command_killed_or_failed(self) -> None:
        outcome = self.under_run(self.program("tree", "a#(b)"))
        self.assertEqual(outcome.code, -signal.SIGKILL)
        processes = {self.part(process): process for process in self.seen()["processes"]}
        self.assertEqual((processes["a"]["signal"], processes["a"]["outcome"]), ("SIGKILL", "SIGKILL"))
        self.assertEqual(self.run_files()[0]["signal"], "SIGKILL")
        self.assert_text(r"the command was killed by SIGKILL", r"SIGKILL\n")

    def test_processes_without_cuda_stand_between(self) -> None:
        document = self.tree("-(-(a b) -(c))")
        self.assertEqual(self.families(document), {"": ["a", "b", "c"]})
        (described,) = self.run_files()
        self.assertEqual(sorted(entry["command"].split("tree ")[-1] for entry in described["ancestors"]),
                         ["-(-(a b) -(c))", "-(a b)", "-(c)"])
        self.assert_text(r"tree -\(-\(a b\)", r"├─ .*tree -\(a b\) +no CUDA\n +\d+  │  ├─ tree a ",
                         r"   └─ tree c ")

    def test_an_exec_keeps_its_place(self) -> None:
        outcome = self.under_run(self.program("execs"))
        self.assertEqual(outcome.code, 0)
        first, second = self.seen()["processes"]
        self.assertEqual(first["pid"], second["pid"])
        self.assertEqual((first["outcome"], first["by_exec"]), ("exec", False))
        self.assertEqual((second["outcome"], second["by_exec"], second["parent"]), ("ended", True, 0))
        self.assert_text(r"└─ exec execs sec")

    def test_a_pipeline_and_a_shell_write_nothing(self) -> None:
        outcome = self.shell("tree a | cat; echo x | { cat; tree b; } | wc -l; (tree c; true)")
        self.assertEqual((outcome.code, outcome.stdout), (0, b"1\n"))
        document = self.seen()
        self.assertEqual(sorted(self.part(process) for process in document["processes"]), ["a", "b", "c"])
        self.assertEqual(len(list(self.folder.iterdir())), 3 * 2 + 1)

    def test_a_folder_that_is_there_needs_no_slash(self) -> None:
        self.folder.mkdir()
        for given, cwd in ((str(self.folder), self.cwd), (".", self.folder)):
            outcome = run([str(self.layout.tool("memlab-run")), "-o", given, "--", *self.program("tree", "a")],
                          self.layout.environment(memlab=False), cwd)
            self.assertEqual(outcome.code, 0, outcome.describe())
        self.assertEqual(len(self.seen()["processes"]), 2)
        self.assertEqual(len(self.run_files()), 2)

    def test_one_that_is_left_behind_is_listed(self) -> None:
        outcome = self.shell(f"setsid {shlex.quote(str(self.layout.program('tree')))} f~ > ready 2>&1 & "
                             "echo $!; until grep -q ready ready; do sleep 0.02; done; sleep 0.1")
        left = int(outcome.stdout)
        try:
            said = outcome.stderr.decode("utf-8")
            self.assertRegex(said, r"memlab-run: 1 process is still running and holds 6\.00 MiB of GPU memory "
                                   r"through memlab; it reports at its end:\n"
                                   rf"  pid {left}  6\.00 MiB  .*tree f~\n    its parent: pid \d+  ")
            (described,) = self.run_files()
            (process,) = described["processes"]
            self.assertEqual((process["pid"], process["ended"], process["report"]), (left, "running", None))
            self.assertGreater(process["held_bytes"], 0)
            document = self.seen()
            self.assertEqual(document["processes"][0]["outcome"], "running")
            self.assert_text(r"Still running when the command had ended\n  pid \d+  holds 6\.00 MiB")
        finally:
            os.kill(left, signal.SIGKILL)

    def test_without_arguments_nothing_of_a_run_names_them(self) -> None:
        """Neither its file nor the manifest nor what is said at its end, of a process left behind too."""
        script = ("\"$1\" 'a(b#secret)'; setsid \"$1\" f~secret > ready 2>&1 & echo $!\n"
                  "until grep -q ready ready; do sleep 0.02; done; cp \"$MEMLAB_RUN_MANIFEST\" manifest")
        for way in ("environment", "option"):
            with self.subTest(way):
                self.folder = self.work / way
                (self.cwd / "ready").unlink(missing_ok=True)
                options, settings = ((), {"MEMLAB_ARGUMENTS": "off"}) if way == "environment" \
                    else (("--option", "ARGUMENTS=off"), None)
                program = self.program("tree")[0]
                outcome = self.under_run(["bash", "-c", script, "bash", program, "secret"], *options,
                                         settings=settings)
                self.assertEqual(outcome.code, 0, outcome.describe())
                left = int(outcome.stdout)
                try:
                    self.assertRegex(outcome.stderr.decode("utf-8"), rf"\n  pid {left}  6\.00 MiB  {program}\n"
                                                                     r"    its parent: pid \d+  \S*\n")
                    (described,) = self.run_files()
                    self.assertEqual(described["command"], ["bash"])
                    self.assertEqual([process["arguments"] for process in described["processes"]],
                                     [[program]] * 3)
                    manifest = (self.cwd / "manifest").read_bytes()
                    self.assertEqual(manifest.count(b"\n"), 3)
                    for written in (manifest, outcome.stderr, *(path.read_bytes() for path in self.folder.iterdir())):
                        self.assertNotIn(b"secret", written)
                finally:
                    os.kill(left, signal.SIGKILL)

    def test_a_process_id_that_is_used_again_is_not_running(self) -> None:
        """The log of a process that was killed is read although its number belongs to another now."""
        script = ("import os, subprocess, sys\n"
                  "child = subprocess.Popen([sys.argv[1], 'a#'])\n"
                  "child.wait()\n"
                  "lines = open(os.environ['MEMLAB_RUN_MANIFEST']).read().replace(f'{child.pid}\\t', '1\\t', 1)\n"
                  "open(os.environ['MEMLAB_RUN_MANIFEST'], 'w').write(lines)\n")
        outcome = self.under_run([sys.executable, "-c", script, str(self.layout.program("tree"))])
        self.assertEqual(outcome.code, 0, outcome.describe())
        (process,) = self.run_files()[0]["processes"]
        self.assertEqual((process["ended"], process["recovered"]), ("cut off", True))

    def test_a_zombie_is_not_running(self) -> None:
        """One that ended and is not waited for, of a parent that is left behind, gets its report."""
        parent = ("import os, subprocess, sys, time\n"
                  "child = subprocess.Popen([sys.argv[1], 'b#'])\n"
                  "os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)\n"
                  "open('ready', 'w').write(str(child.pid))\n"
                  "time.sleep(600)\n")
        program = shlex.quote(str(self.layout.program("tree")))
        outcome = self.under_run(["bash", "-c", f"setsid {shlex.quote(sys.executable)} -c \"$0\" {program} > log 2>&1 & "
                                  "echo $!; until [ -s ready ]; do sleep 0.02; done", parent])
        left = int(outcome.stdout)
        try:
            zombie = int((self.cwd / "ready").read_text(encoding="utf-8"))
            state = harness.Path(f"/proc/{zombie}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            self.assertEqual(state, "Z")
            self.assertNotIn(b"still running", outcome.stderr)
            (process,) = self.run_files()[0]["processes"]
            self.assertEqual((process["pid"], process["ended"], process["recovered"]), (zombie, "cut off", True))
        finally:
            os.kill(left, signal.SIGKILL)

    # ---- Python's multiprocessing ---------------------------------------------------------------

    def workers(self, method: str, parent: str) -> tuple[Outcome, list[int]]:
        """The outcome, and the allocated peaks in MiB of all recordings."""
        script = self.work / "workers.py"
        script.write_text(POOL_OF_WORKERS, encoding="utf-8")
        outcome = self.under_run([sys.executable, str(script), method, parent])
        self.assertEqual(outcome.code, 0, outcome.describe())
        processes = self.seen()["processes"]
        return outcome, sorted(sum(device["allocated_peak_bytes"] for device in process["devices"]) // MIB
                               for process in processes)

    def test_python_workers_by_fork(self) -> None:
        outcome, peaks = self.workers("fork", "alone")
        self.assertEqual(outcome.stdout, b"workers: [True, True, True]\n")
        self.assertLessEqual(max(peaks), 3)
        self.assertIn(3, peaks)

    def test_python_workers_by_spawn(self) -> None:
        outcome, peaks = self.workers("spawn", "parent")
        self.assertEqual(outcome.stdout, b"parent: True\nworkers: [True, True, True]\n")
        self.assertIn(9, peaks)
        self.assertIn(3, peaks)

    def test_python_workers_forked_too_late(self) -> None:
        outcome, peaks = self.workers("fork", "parent")
        self.assertEqual(outcome.stdout, b"parent: True\nworkers: [False, False, False]\n")
        self.assertEqual(peaks, [9])
        said = [line for line in outcome.stderr.decode("utf-8").splitlines() if line.startswith("memlab: ")]
        self.assertEqual(len(said), 1, said)
        self.assertIn("'spawn' start method", said[0])
        self.assert_text(r"processes forked from this one after CUDA had started")

    # ---- ranks ----------------------------------------------------------------------------------

    def launch(self, parts: list[str], names: tuple[str, str, str], *, each: bool = False) -> None:
        """A launcher of ranks made of a shell: with one memlab-run around it, or one around each rank."""
        rank, local, size = names
        tool = shlex.quote(str(self.layout.tool("memlab-run"))) + f" --quiet -o {self.folder}/ -- " if each else ""
        program = shlex.quote(str(self.layout.program("tree")))
        script = "".join(f"{rank}={number} {local}={number % 2} {size}={len(parts)} {tool}{program} '{part}' &\n"
                         for number, part in enumerate(parts)) + "wait\n"
        if each:
            outcome = run(["bash", "-c", script], self.layout.environment(memlab=False), self.cwd)
        else:
            outcome = self.under_run(["bash", "-c", script])
        self.assertEqual(outcome.code, 0, outcome.describe())

    def merged(self, *arguments: str) -> dict:
        return self.judged(self.report("merge", "--json", *(arguments or (str(self.folder),))), "merge")

    def test_ranks_of_torchrun(self) -> None:
        self.launch(["a", "b(a)", "a", "h!"], ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        document = self.merged()
        self.assertEqual([(row["rank"], row["local_rank"], row["allocated_peak_bytes"] // MIB, row["processes"])
                          for row in document["ranks"]],
                         [(0, 0, 1, 1), (1, 1, 2, 2), (2, 0, 1, 1), (3, 1, 8, 1)])
        imbalance = document["imbalance"]["allocated"]
        self.assertEqual((imbalance["rank"], imbalance["largest_bytes"], imbalance["mean_bytes"]),
                         (3, 8 * MIB, 3 * MIB))
        self.assertAlmostEqual(imbalance["ratio"], 8 / 3)
        self.assertEqual((document["world_size"], document["notes"]), (4, []))
        place = document["places"][0]
        self.assertEqual(place["difference_bytes"], 7 * MIB)
        self.assertEqual([peak // MIB for peak in place["peak_bytes"]], [1, 2, 1, 8])
        self.assertEqual(place["function"], "main")  # program::allocate is passed over
        text = self.report("merge", "--width", "80", str(self.folder)).stdout.decode("utf-8")
        for wanted in (r"(?m)^4 ranks of 4$", r"(?m)^ +3 +\d+  GPU-\w+ +8\.00 MiB", r"allocated +2\.67   rank 3 peaks "
                       r"at 8\.00 MiB, the mean is 3\.00 MiB", r"7\.00 MiB +8\.00 MiB +3 +1\.00 MiB +0  .*tree.cpp"):
            self.assertRegex(text, wanted)
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])

    def test_ranks_of_other_launchers(self) -> None:
        for names in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
                      ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
                      ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")):
            self.folder = self.work / names[0]
            self.launch(["a", "b"], names)
            document = self.merged()
            self.assertEqual([(row["rank"], row["local_rank"]) for row in document["ranks"]], [(0, 0), (1, 1)])
            self.assertEqual(document["world_size"], 2, names)

    def test_one_memlab_run_around_each_rank(self) -> None:
        self.launch(["a", "b", "c"], ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"), each=True)
        self.assertEqual(len(self.run_files()), 3)
        document = self.merged()
        self.assertEqual([row["rank"] for row in document["ranks"]], [0, 1, 2])
        self.assertEqual(document["notes"], ["3 runs of memlab-run are here and shown as one."])

    def test_two_runs_in_one_folder(self) -> None:
        for _ in range(2):
            self.launch(["a", "b"], ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        document = self.merged()
        self.assertEqual(len(document["ranks"]), 2)
        self.assertEqual(sum("was found twice" in note for note in document["notes"]), 2, document["notes"])
        self.assertEqual(len(self.seen()["processes"]), 4)

    def test_folders_of_several_hosts(self) -> None:
        folders = []
        for host, parts in (("one", ["a", "b"]), ("two", ["c", "d"])):
            self.folder = self.work / host
            script = "".join(f"RANK={number + 2 * (host == 'two')} WORLD_SIZE=4 "
                             f"{shlex.quote(str(self.layout.program('tree')))} {part} &\n"
                             for number, part in enumerate(parts)) + "wait\n"
            self.assertEqual(self.under_run(["bash", "-c", script]).code, 0)
            folders.append(str(self.folder))
        document = self.merged(*folders)
        self.assertEqual([row["rank"] for row in document["ranks"]], [0, 1, 2, 3])
        # Files copied together, and one rank that did not arrive.
        together = self.work / "together"
        together.mkdir()
        for folder in folders:
            for path in harness.Path(folder).iterdir():
                (together / path.name).write_bytes(path.read_bytes())
        self.assertEqual(len(self.merged(str(together))["ranks"]), 4)
        lost = next(path for path in together.glob("memlab.tree.*.json")
                    if json.loads(path.read_text(encoding="utf-8"))["process"]["ranks"]["RANK"] == "2")
        lost.unlink()
        lost.with_suffix(".memlog").unlink()
        notes = self.merged(str(together))["notes"]
        self.assertIn("1 of 4 ranks is missing: 2.", notes)
        self.assertTrue(any("neither its report nor its log is here" in note for note in notes), notes)

    def diffed(self, before: str, after: str, *arguments: str) -> dict:
        outcome = self.report("diff", "--json", *arguments, str(self.work / before), str(self.work / after))
        return self.judged(outcome, "run-diff")

    def test_two_runs_of_ranks_side_by_side(self) -> None:
        for name, parts in (("one", ["a", "b(a)", "a", "h!"]), ("two", ["a", "e(a)", "c", "f!", "g"])):
            self.folder = self.work / name
            self.launch(parts, ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        document = self.diffed("one", "two")
        self.assertEqual(document["paired_by"], "rank")
        standing = [process for process in document["processes"] if process["stands_for_rank"]]
        self.assertEqual([(process["rank"], process["change"] // MIB) for process in standing],
                         [(4, 7), (1, 3), (2, 2), (3, -2), (0, 0)])
        self.assertIsNone(standing[0]["before"])
        self.assertEqual([(process["rank"], process["change"]) for process in document["processes"]
                          if not process["stands_for_rank"]], [(1, 0)])
        # Without the rank that was added: 1 2 1 1 8 before, 1 5 1 3 6 after.
        (site,) = document["call_sites"]["sites"]
        self.assertEqual((site["before"]["at_peak_bytes"], site["after"]["at_peak_bytes"], site["change"]),
                         (13 * MIB, 16 * MIB, 3 * MIB))
        self.assertEqual(site["place"]["function"], "main")
        self.assertTrue(any("has no partner" in note for note in document["notes"]), document["notes"])
        text = self.report("diff", str(self.work / "one"), str(self.work / "two")).stdout.decode("utf-8")
        for wanted in (r"(?m)^Run  5 pairs, by rank · 1 new$", r"7\.00 MiB +new +- +7\.00 MiB  rank 4: tree g\n",
                       r"-2\.00 MiB +-25\.0% +8\.00 MiB +6\.00 MiB  rank 3: tree 'f!'\n", r"total; 2 unchanged"):
            self.assertRegex(text, wanted)
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])
        one = self.report("diff", "--json", "--rank", "3", str(self.work / "one"), str(self.work / "two"))
        document = json.loads(one.stdout)
        self.assertEqual((one.code, document["format"]), (0, "memlab-diff"))
        self.assertEqual(document["devices"][0]["totals"]["allocated_peak_bytes"]["change"], -2 * MIB)
        for rank, expected in (("4", "rank 4 is in AFTER alone"), ("9", "rank 9 is in neither run")):
            outcome = self.report("diff", "--rank", rank, str(self.work / "one"), str(self.work / "two"))
            self.assertEqual((outcome.code, outcome.stdout), (2, b""))
            self.assertRegex(outcome.stderr.decode("utf-8"), rf"^memlab-report: {expected}; .*\n$")

    def test_two_trees_side_by_side(self) -> None:
        for name, parts in (("one", "a!(b!(c d) e)"), ("two", "a!(d!(c d) e f)")):
            self.folder = self.work / name
            self.tree(parts)
        document = self.diffed("one", "two")
        self.assertEqual(document["paired_by"], "program")
        changes = [(process["before"] and self.part(process["before"]),
                    process["after"] and self.part(process["after"])) for process in document["processes"]]
        self.assertEqual(changes, [(None, "f"), ("b", "d"), ("a", "a"), ("c", "c"), ("d", "d"), ("e", "e")])
        # At once on the one GPU, from the logs: a, b and d before, a, d and d after.
        self.assertEqual(document["totals"]["gpu_allocated_peak_bytes"],
                         {"before": 7 * MIB, "after": 9 * MIB, "change": 2 * MIB})
        self.assertEqual(self.diffed("one", "two", "--device", "0")["device"], 0)
        self.assertEqual(self.diffed("one", "two", "--filter", "func=nowhere")["call_sites"]["sites"], [])

    def test_the_merged_file(self) -> None:
        self.launch(["a", "b"], ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        merged = self.folder / "ranks.json"
        outcome = self.report("merge", str(self.folder), "-o", str(merged))
        self.assertEqual(outcome.code, 0, outcome.describe())
        written = json.loads(merged.read_text(encoding="utf-8"))
        self.assertEqual(written, self.merged())
        self.assertEqual(len(self.seen()["processes"]), 2)  # it is no recording itself
        outcome = self.report("merge", str(self.folder), "-o", "/nowhere/ranks.json")
        self.assertEqual(outcome.code, 2)
        self.assertRegex(outcome.stderr, rb"^memlab-report: /nowhere/ranks.json: cannot be written \(No such file")

    def test_truncated_logs_are_listed_and_read(self) -> None:
        self.launch(["a!", "b!", "c!"], ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        for path in self.folder.glob("memlab.tree.*.json"):
            path.unlink()
        logs = sorted(self.folder.glob("*.memlog"))
        data = logs[0].read_bytes()
        logs[0].write_bytes(data[:len(data.rstrip(b"\0")) - 3])
        logs[1].write_bytes(b"")
        outcome = self.report("merge", "--json", str(self.folder))
        self.assertEqual(outcome.code, 2)
        self.assertRegex(outcome.stderr.decode("utf-8"), r"^memlab-report: .*memlog: empty; .*\n$")
        document = json.loads(outcome.stdout)
        self.assertEqual(len(document["ranks"]), 2)
        self.assertEqual(len(document["errors"]), 1)

    def test_bad_inputs(self) -> None:
        self.folder.mkdir()
        self.launch(["a"], ("NO_RANK", "NO_LOCAL", "NO_SIZE"))
        (self.work / "empty").mkdir()
        for arguments, expected in ((["merge", str(self.folder)], "none of these recordings has a rank"),
                                    (["merge", str(self.work / "empty")], "holds no report and no event log"),
                                    (["merge", "missing"], "missing: no such file"),
                                    (["merge", "--top", "0", "x"], "takes a number from 1 on"),
                                    (["merge"], "RANKS is required"),
                                    ([str(self.work / "empty")], "holds no report and no event log")):
            outcome = self.report(*arguments)
            self.assertEqual((outcome.code, outcome.stdout), (2, b""), arguments)
            self.assertRegex(outcome.stderr.decode("utf-8"), rf"^memlab-report: .*{re.escape(expected)}.*\n$")

    def test_the_folder_of_an_earlier_run_of_the_same_number(self) -> None:
        """A taken name is never written over: containers have the same process ids."""
        self.tree("a")
        (first,) = self.folder.glob("memlab-run.*.json")
        script = f"cp {first} {self.folder}/memlab-run.$(uname -n).$PPID.json; tree b"
        self.assertEqual(self.shell(script).code, 0)
        self.assertEqual(len(list(self.folder.glob("memlab-run.*.json"))), 3)


if __name__ == "__main__":
    unittest.main()
