"""The parts of the GPU suite that need two GPUs or more; skipped by name elsewhere.

NVLink multicast stays off in all of them: a program that uses it can put GPUs that others share out of service.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path

from harness import Outcome, run
from verdicts import Verdict, brief, gpu_count

HERE = Path(__file__).resolve().parent
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
BACKENDS = (("", {}), (", classic", {"MEMLAB_BACKEND": "classic"}))
MIB = 1 << 20
STUCK_SECONDS = 40


class SeveralGpus:
    """Parts of Suite (run.py), which has what they use."""

    def can_run(self, name: str, module: str = "") -> bool:
        """Asked for, and possible here; else it is said why not."""
        if not self.wanted(name):
            return False
        if gpu_count() < 2:
            self.skip(name, "needs 2 GPUs")
            return False
        return not module or self.can_run_with(module, name)

    def peer_memory(self) -> None:
        """Memory that a peer's work still uses is not handed out, where plain CUDA would; two_gpus.cpp."""
        runs = [(f"peer memory, {sync}{backend}", "libmemlab.so", settings | {"MEMLAB_FREE_SYNC": sync}, True)
                for sync in ("auto", "always", "never") for backend, settings in BACKENDS]
        runs += [("peer memory, no fences", "libmemlab_unfenced.so", BACKENDS[1][1], False),
                 ("peer memory, no peers' fences", "libmemlab_peerless.so", BACKENDS[1][1], False)]
        for name, library, settings, right in runs:
            if not self.can_run(name):
                continue
            work, start = self.folder(name), time.monotonic()
            outcome = run([str(self.layout.program("two_gpus_static")), "unordered"],
                          self.layout.environment(memlab=True, output=work / "out", settings=settings | {
                              "LD_PRELOAD": str(self.packed / "lib" / library)}), work, 60)
            wrong = b" 0 of 80 wrong" not in outcome.stdout
            problems = [] if outcome.code == 0 and wrong != right else [outcome.describe()]
            self.add(Verdict(name, "", brief(outcome, time.monotonic() - start), problems), outcome)

    def peer_races(self) -> None:
        """The race hunter over two GPUs; without what orders the peers, it is found to be needed."""
        hunts = [(f"race hunter, 2 GPUs, {sync}{backend}", "libmemlab.so", settings | {"MEMLAB_FREE_SYNC": sync}, [], 0)
                 for sync in ("auto", "always", "never") for backend, settings in BACKENDS]
        hunts += [(f"race hunter, 2 GPUs, waited{backend}", "libmemlab.so", settings, ["--free", "waited"], 0)
                  for backend, settings in (*BACKENDS, (", native", None))]
        hunts += [("race hunter, 2 GPUs, no peers' fences", "libmemlab_peerless.so",
                   {"MEMLAB_FREE_SYNC": "never"} | BACKENDS[1][1], [], 1)]
        for seed, (name, library, settings, arguments, code) in enumerate(hunts):
            if not self.can_run(name):
                continue
            work, start = self.folder(name), time.monotonic()
            memlab = settings is not None
            preload = {"LD_PRELOAD": str(self.packed / "lib" / library), "MEMLAB_KEEP_LOG": "off"} if memlab else {}
            outcome = run([str(self.layout.tool("race_hunter")), "--gpus", "2", "--seconds", str(self.hunt), "--seed",
                           str(int(time.time()) * 10 + seed), *arguments],
                          self.layout.environment(memlab=memlab, output=work / "out", settings=(settings or {}) | preload),
                          work, self.hunt + 60)
            sums = outcome.stdout.decode(errors="replace").splitlines()[-1:]
            verdict = Verdict(name, "", brief(outcome, time.monotonic() - start))
            if outcome.code != code:
                verdict.problems.append(f"it {outcome.describe()}")
            self.results.add_table(f"{name}: {sums[0] if sums else 'nothing'}\n")
            self.add(verdict, outcome)

    def shared_between_gpus(self) -> None:
        """Memory of a process on one GPU in a process on another: by the driver's functions, and PyTorch's tensors."""
        for importer, (backend, settings) in itertools.product(("plain", "preloaded"), BACKENDS):
            name = f"ipc to another GPU: {importer} importer{backend}"
            if self.can_run(name):
                self.share_memory(name, [importer, "on:1"], settings)
        for backend, settings in BACKENDS:
            self.on_all_gpus(f"PyTorch, tensors shared between GPUs{backend}", "torch", "shared_tensors.py", [], settings,
                             used=2)

    def frameworks_on_all(self) -> None:
        """One process that uses all GPUs."""
        own = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        platform = {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}
        for backend, settings in BACKENDS:
            for name, module, script, arguments, more in (
                    ("JAX, all GPUs", "jax", "jax_devices.py", [], own),
                    ("JAX, all GPUs, platform allocator", "jax", "jax_devices.py", [], platform),
                    ("CuPy, all GPUs", "cupy", "cupy_devices.py", [], {}),
                    ("CuPy, all GPUs, without its cache", "cupy", "cupy_devices.py", ["uncached"], {})):
                self.on_all_gpus(f"{name}{backend}", module, script, arguments, settings | more)

    def on_all_gpus(self, name: str, module: str, script: str, arguments: list[str], settings: dict[str, str],
                    used: int | None = None) -> None:
        """`used`: on how many of the GPUs, if not on all."""
        if not self.can_run(name, module):
            return
        verdict, found, outcomes = self.framework_pair(name, script, arguments, settings=settings | NO_MULTICAST,
                                                       native_settings=settings | NO_MULTICAST, timeout=150)
        gpus = {device["uuid"] for one in found if one.report for device in one.report["devices"]
                if device["curves"]["allocated"]["peak_bytes"] > 0}
        if len(gpus) != (used or gpu_count()):
            verdict.problems.append(f"memory was recorded on {len(gpus)} of {used or gpu_count()} GPUs")
        self.add(verdict, *outcomes)

    def train(self, work: Path, ways: list[str], preloaded: list[str] | None, settings: dict[str, str],
              ends_after: int | None = None) -> Outcome:
        """torchrun with a rank per GPU; `preloaded`: memlab-run's options, None without memlab. `ends_after`: seconds,
        then it gets SIGTERM, as from a scheduler."""
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(gpu_count()),
                   "--master-port", str(20000 + os.getpid() % 20000), os.path.relpath(HERE / "py" / "ranks_training.py"),
                   *ways]
        if ends_after is not None:
            command = ["timeout", "--signal=TERM", str(ends_after), *command]
        if preloaded is not None:
            command = [str(self.layout.tool("memlab-run")), "--quiet", "-o", f"{work}/run/", *preloaded, "--", *command]
        environment = self.inheriting_layout.environment(
            memlab=False, inherit=True, settings={"TORCH_NCCL_DUMP_ON_TIMEOUT": "0"} | settings | NO_MULTICAST)
        return run(command, environment, Path.cwd(), 150)

    def training_ranks(self) -> None:
        """DDP, FSDP, a pipeline and registered buffers: every bit as without memlab, and the ranks side by side."""
        trained = ["ddp", "fsdp", "pipeline"]
        variants = [("", [*trained, "registered"], [], {}), (", classic", [*trained, "registered"], [], BACKENDS[1][1]),
                    (", --replace", trained, ["--replace"], {}), (", --replace, classic", trained, ["--replace"], BACKENDS[1][1]),
                    (", NCCL_CUMEM_ENABLE=0", trained, [], {"NCCL_CUMEM_ENABLE": "0"}),
                    (", NCCL_CUMEM_ENABLE=1", trained, [], {"NCCL_CUMEM_ENABLE": "1"})]
        native: dict[str, Outcome] = {}
        for variant, ways, options, settings in variants:
            name = f"ranks, a GPU each: training{variant}"
            if not self.can_run(name, "torch"):
                continue
            work, start = self.folder(name), time.monotonic()
            plain = native.get("") if "NCCL_CUMEM_ENABLE" not in settings else None
            if plain is None:
                plain = self.train(work, [*trained, "registered"] if "" not in native else ways, None,
                                   {key: value for key, value in settings.items() if not key.startswith("MEMLAB_")})
                native.setdefault("", plain)
            under = self.train(work, ways, options, settings | {"NVML_OUT": str(work)})
            verdict = Verdict(name, str(plain.code), brief(under, time.monotonic() - start))
            wanted = [line for line in plain.stdout.splitlines() if line.split(b":")[0].decode() in ways]
            if plain.code != 0 or len(wanted) != len(ways) * gpu_count():
                verdict.problems.append(f"even without memlab it {plain.describe()}")
            if under.code != 0 or under.stdout.splitlines() != wanted:
                verdict.problems.append(f"without memlab {wanted}; with memlab it {under.describe()}")
            said = [line for line in under.stderr.splitlines() if line.startswith(b"memlab:")]
            if said:
                verdict.problems.append("memlab said: " + b"\n".join(said).decode(errors="replace"))
            verdict.problems += self.judge_ranks(work, name)
            self.add(verdict, plain, under)

    def judge_ranks(self, work: Path, name: str) -> list[str]:
        """A rank per GPU, the later ones with 32 MiB more, the sums exact, and NVML as the witness."""
        environment = self.inheriting_layout.environment(memlab=False, inherit=True, settings={"COLUMNS": "110"})
        report = str(self.layout.tool("memlab-report"))
        answers = [run([report, *view, f"{work}/run"], environment, work, 60)
                   for view in (["merge", "--level", "driver", "--json"], ["--json"], ["merge"], [])]
        text = b"".join(outcome.stdout + outcome.stderr for outcome in answers[2:])
        (self.out / "logs" / f"{name.replace(' ', '_').replace(',', '')}.txt").write_bytes(text)
        try:
            rows, tree = json.loads(answers[0].stdout)["ranks"], json.loads(answers[1].stdout)
            count, problems = gpu_count(), []
            if [(row["rank"], row["local_rank"]) for row in rows] != [(rank, rank) for rank in range(count)]:
                problems.append(f"the ranks are {[(row['rank'], row['local_rank']) for row in rows]}")
            if len({tuple(row["gpus"]) for row in rows}) != count or any(len(row["gpus"]) != 1 for row in rows):
                problems.append(f"not a GPU per rank: {[row['gpus'] for row in rows]}")
            gpus = {gpu["uuid"]: gpu for gpu in tree["gpus"]}
            for row in rows:
                gpu, nvml = gpus[row["gpus"][0]], json.loads((work / f"nvml.{row['rank']}.json").read_text())
                for kind in ("allocated", "reserved"):
                    held, peak = gpu[kind], row[f"{kind}_peak_bytes"]
                    if not held["at_once_at_least_bytes"] <= held["at_once_at_most_bytes"] == held["sum_of_peaks_bytes"] == peak:
                        problems.append(f"rank {row['rank']} peaks at {peak} {kind}, its GPU has {held}")
                self.results.add_table(f"{name}: rank {row['rank']}: allocated {row['allocated_peak_bytes'] / MIB:.0f} MiB, "
                                   f"reserved {row['reserved_peak_bytes'] / MIB:.0f}; NVML {nvml['used_bytes'] / MIB:.0f}, "
                                   f"cuMemGetInfo {nvml['cuda_used_bytes'] / MIB:.0f} used at the end\n")
            peaks = [row["allocated_peak_bytes"] for row in rows]
            # In the pipeline the ranks between the first and the last have two neighbours, and NCCL's memory for both.
            for alike in ([peaks[0], peaks[-1]], peaks[1:-1]):
                if sorted(alike) != alike:
                    problems.append(f"the later ranks keep more, but the peaks are {peaks}")
            return problems
        except (OSError, ValueError, KeyError, IndexError) as error:
            return [f"{error!r}: " + "\n".join(outcome.describe() for outcome in answers[:2])]

    def stray_context(self) -> None:
        """A rank that touches another's GPU by mistake: the ledger names the line."""
        name = "ranks, a GPU each: a context by mistake"
        if not self.can_run(name, "torch"):
            return
        work, start = self.folder(name), time.monotonic()
        plain, under = self.train(work, ["stray"], None, {}), self.train(work, ["stray"], [], {})
        verdict = Verdict(name, str(plain.code), brief(under, time.monotonic() - start))
        if plain.code != 0 or plain.code != under.code or plain.stdout != under.stdout:
            verdict.problems += [outcome.describe() for outcome in (plain, under)]
        lines = (HERE / "py" / "ranks_training.py").read_text(encoding="utf-8").splitlines()
        [line] = [number for number, text in enumerate(lines, 1) if "mem_get_info(0)" in text]
        found = []
        for path in sorted((work / "run").glob("memlab.*.json")):
            for device in self.page(path, "ledger")["devices"]:
                found += [(device["index"], row["place"]["line"]) for group in device["moments"]["peak"]["groups"]
                          if group["kind"] == "context" for row in group["rows"]
                          if (row["place"] or {}).get("file", "").endswith("ranks_training.py")]
        self.results.add_table(f"{name}: contexts by GPU and line: {found}\n")
        if found.count((0, line)) != 1:
            verdict.problems.append(f"not one context on GPU 0 of line {line}: {found}")
        self.add(verdict, plain, under)

    def broken_ranks(self) -> None:
        """What becomes of the last rank, and what the run's report says of it and of those that waited."""
        for way in ("out_of_memory", "killed", "stuck"):
            name = f"ranks, a GPU each: {way.replace('_', ' ')}"
            if not self.can_run(name, "torch"):
                continue
            work, start = self.folder(name), time.monotonic()
            # Nothing but a signal ends ranks that wait for one another forever: NCCL's own watchdog does so after
            # minutes.
            ends_after = STUCK_SECONDS if way == "stuck" else None
            plain = self.train(work, [way], None, {}, ends_after)
            under = self.train(work, [way], [], {}, ends_after)
            verdict = Verdict(name, str(plain.code), brief(under, time.monotonic() - start))
            if plain.code != under.code or plain.stdout != under.stdout or plain.code in (0, None):
                verdict.problems += [outcome.describe() for outcome in (plain, under)]
            tree = run([str(self.layout.tool("memlab-report")), "--json", f"{work}/run"],
                       self.inheriting_layout.environment(memlab=False, inherit=True), work, 60)
            try:
                ranks = {process["ranks"]["RANK"]: process for process in json.loads(tree.stdout)["processes"]
                         if "RANK" in process["ranks"]}
                last = ranks[str(gpu_count() - 1)]
                self.results.add_table(f"{name}: " + "; ".join(
                    f"rank {rank} {process['outcome']}, {process['ooms']} out of memory"
                    for rank, process in sorted(ranks.items())) + "\n")
                if len(ranks) != gpu_count() or any(not process["devices"] for process in ranks.values()):
                    verdict.problems.append(f"not all ranks are told of: {ranks}")
                if (last["ooms"] > 0) != (way == "out_of_memory"):
                    verdict.problems.append(f"the last rank ran out of memory {last['ooms']} times")
                if last["ended"] == "exit" and way != "out_of_memory":
                    verdict.problems.append(f"the last rank is said to have ended: {last}")
            except (ValueError, KeyError) as error:
                verdict.problems.append(f"{error!r}: {tree.describe()}")
            self.add(verdict, plain, under)
