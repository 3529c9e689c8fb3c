"""Runs programs without and with memlab and judges what was recorded. Python 3.11, nothing else.

The judgement has three independent parties: the catalogue (what the program did, known from its
source), log_audit (books of its own, over the event log) and the report (memlab's aggregator). All
three must say the same.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

try:
    import jsonschema
except ImportError:
    jsonschema = None

from catalogue import Case, Kind, Recording


@dataclass
class Outcome:
    """How a process ended and what it said. A negative code is a signal; None: it took too long."""

    code: int | None
    stdout: bytes
    stderr: bytes

    def describe(self) -> str:
        if self.code is None:
            how = "did not end in time"
        elif self.code < 0:
            how = f"ended by signal {signal.Signals(-self.code).name}"
        else:
            how = f"ended with {self.code}"
        return f"{how}\n--- stdout\n{self.stdout.decode(errors='replace')}" \
               f"--- stderr\n{self.stderr.decode(errors='replace')}"


@dataclass
class Layout:
    """Where things are: `root` is a build folder or a packed one (both have bin/ and lib/).

    `library_path` goes to LD_LIBRARY_PATH of every run, `preload_first` before libmemlab.so in
    LD_PRELOAD (a sanitizer's runtime, which must come first), in runs without memlab too. `other_library` is
    the libmemlab.so under test where it is not root's.
    """

    root: Path
    library_path: list[str] = field(default_factory=list)
    preload_first: list[str] = field(default_factory=list)
    extra_environment: dict[str, str] = field(default_factory=dict)
    other_library: Path | None = None

    @property
    def library(self) -> Path:
        return self.other_library or self.root / "lib" / "libmemlab.so"

    def program(self, name: str) -> Path:
        return self.root / "bin" / "programs" / name

    def tool(self, name: str) -> Path:
        return self.root / "bin" / name

    def schema(self, document: str) -> Path:
        """The JSON Schema of a document ("report"), which the build prints."""
        return self.root / "generated" / "share" / f"memlab-{document}-v1.schema.json"

    def environment(self, *, memlab: bool, output: Path | None = None,
                    preload: tuple[str, ...] = (), settings: dict[str, str] | None = None,
                    inherit: bool = False) -> dict[str, str]:
        """The environment of a run: small and known, unless `inherit` asks for this process's."""
        if inherit:
            environment = {name: value for name, value in os.environ.items()
                           if not name.startswith("MEMLAB_") and name != "LD_PRELOAD"}
        else:
            environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent",
                           "LANG": "C.UTF-8"}
        environment |= self.extra_environment
        path = [entry for entry in self.library_path + [os.environ.get("LD_LIBRARY_PATH", "")]
                if entry]
        if path:
            environment["LD_LIBRARY_PATH"] = ":".join(path)
        preloaded = list(self.preload_first)
        preloaded += [str(self.program(name)) for name in preload]
        if memlab:
            preloaded.append(str(self.library))
            if not inherit:  # what is reserved must not depend on how long a run takes
                environment["MEMLAB_TRIM_AFTER"] = "0"
            if output is not None:
                environment["MEMLAB_OUTPUT"] = f"{output}/"
        if preloaded:
            environment["LD_PRELOAD"] = ":".join(preloaded)
        return environment | (settings or {})


def run(command: list[str], environment: dict[str, str], cwd: Path, timeout: float = 60) -> Outcome:
    """Runs a command in a process group of its own, so that nothing of it is left behind."""
    process = subprocess.Popen(command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True)
    try:
        stdout, stderr = process.communicate(timeout=timeout)
        return Outcome(process.returncode, stdout, stderr)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        return Outcome(None, stdout, stderr)


def without_warnings(stderr: bytes) -> bytes:
    """stderr less the lines that memlab itself wrote."""
    return b"".join(line for line in stderr.splitlines(keepends=True)
                    if not line.startswith(b"memlab:"))


def differences(native: Outcome, under: Outcome, may_warn: bool) -> list[str]:
    """What a user would notice of memlab. Empty when nothing."""
    found = []
    if native.code != under.code:
        found.append(f"without memlab it {native.describe()}\nwith memlab it {under.describe()}")
    if native.stdout != under.stdout:
        found.append(f"stdout differs: without memlab\n{native.stdout.decode(errors='replace')}"
                     f"with memlab\n{under.stdout.decode(errors='replace')}")
    stderr = without_warnings(under.stderr) if may_warn else under.stderr
    if native.stderr != stderr:
        found.append(f"stderr differs: without memlab\n{native.stderr.decode(errors='replace')}"
                     f"with memlab\n{under.stderr.decode(errors='replace')}")
    return found


@dataclass
class Found:
    """One recording as it lies in the output folder."""

    stem: str
    log: Path | None = None
    report_path: Path | None = None
    audit: dict = field(default_factory=dict)
    report: dict = field(default_factory=dict)


def recordings_in(layout: Layout, output: Path, traffic: bool = False) -> tuple[list[Found], list[str]]:
    """All recordings of a folder, audited, and what is wrong with them on their own."""
    problems: list[str] = []
    by_stem: dict[str, Found] = {}
    for path in sorted(output.iterdir()) if output.is_dir() else []:
        if path.suffix not in (".json", ".memlog"):
            problems.append(f"an unexpected file: {path.name}")
            continue
        found = by_stem.setdefault(path.stem, Found(path.stem))
        if path.suffix == ".json":
            found.report_path = path
            try:
                found.report = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                problems.append(f"{path.name} is not JSON: {error}")
        else:
            found.log = path
            found.audit, audit_problems = audit(layout, path, traffic)
            problems += audit_problems
    return list(by_stem.values()), problems


def audit(layout: Layout, log: Path, traffic: bool = False) -> tuple[dict, list[str]]:
    """log_audit's judgement of a log."""
    command = [str(layout.tool("log_audit")), str(log)] + (["--traffic"] if traffic else [])
    environment = layout.environment(memlab=False)
    result = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=600)
    try:
        facts = json.loads(result.stdout)
    except ValueError:
        return {}, [f"log_audit {log.name}: {result.stderr.decode(errors='replace')}"]
    problems = [f"{log.name}: {line}" for line in facts.get("contradictions", [])]
    if facts.get("status") not in ("complete", "cut_off"):
        problems.append(f"{log.name} is {facts.get('status')}: {facts.get('message')}")
    return facts, problems


def report_against_log(layout: Layout, found: Found) -> list[str]:
    """The report written at exit must be the one that the log amounts to, byte for byte."""
    assert found.log is not None and found.report_path is not None
    if found.report["log"]["dropped"]:
        return []
    result = subprocess.run([str(layout.tool("log_to_report")), str(found.log)],
                            env=layout.environment(memlab=False), capture_output=True, check=False,
                            timeout=120)
    written = found.report_path.read_bytes()
    if result.stdout == written:
        return []
    ours, theirs = written.split(b","), result.stdout.split(b",")
    place = next((index for index, (one, other) in enumerate(zip(ours, theirs)) if one != other),
                 min(len(ours), len(theirs)))
    return [f"{found.stem}: the report is not the log's: after "
            f"{b','.join(ours[max(0, place - 4):place]).decode(errors='replace')} it says "
            f"{b','.join(ours[place:place + 2])!r}, the log {b','.join(theirs[place:place + 2])!r} "
            f"{result.stderr.decode(errors='replace')}"]


@functools.cache
def report_validator(schema: Path) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads(schema.read_text(encoding="utf-8")))


def report_against_schema(layout: Layout, found: Found) -> list[str]:
    """What the report's JSON Schema says against it; nothing where jsonschema is not installed (on a
    GPU machine: the tests on the simulated driver have it)."""
    if jsonschema is None:
        return []
    errors = report_validator(layout.schema("report")).iter_errors(found.report)
    return [f"{found.stem}: {error.json_path}: {error.message}"[:300] for error in errors][:5]


def kinds_of_report(report: dict) -> dict[str, dict[str, int]]:
    """The report's kinds summed over devices."""
    total: dict[str, dict[str, int]] = {}
    for device in report["devices"]:
        for name, kind in device["kinds"].items():
            sums = total.setdefault(name, dict.fromkeys(("count", "bytes", "live_count", "live_bytes"), 0))
            for key in sums:
                sums[key] += kind[key]
    return total


def report_against_audit(found: Found) -> list[str]:
    """The aggregator's figures against the audit's: every byte accounted."""
    report, facts, problems = found.report, found.audit, []

    def same(what: str, ours: object, theirs: object) -> None:
        if ours != theirs:
            problems.append(f"{found.stem}: {what}: the report says {ours}, the log {theirs}")

    same("ended", report["process"]["ended"], facts["ended"])
    same("out-of-memory failures", report["oom_count"], facts["ooms"])
    same("marks", [mark["name"] for mark in report["marks"]], facts["marks"])
    kinds = kinds_of_report(report)
    same("kinds", sorted(kinds), sorted(facts["kinds"]))
    for name, sums in facts["kinds"].items():
        if name not in kinds:
            continue
        allocs, frees, lost, live = (sums[key] for key in ("allocs", "frees", "lost", "live"))
        for key, unit in (("count", "count"), ("bytes", "bytes")):
            same(f"{name}, allocated {unit}", kinds[name][key], allocs[key])
            same(f"{name}, live {unit}", kinds[name][f"live_{key}"], live[key])
            same(f"{name}, allocs - frees - lost in {unit}",
                 allocs[key] - frees[key] - lost[key], live[key])
    for name in facts["kinds"]:
        sites = [site for site in report["sites"] if site["kind"] == name]
        sums = facts["kinds"][name]
        same(f"{name}, sum of the sites' counts", sum(site["count"] for site in sites),
             sums["allocs"]["count"])
        same(f"{name}, sum of the sites' requested bytes",
             sum(site["requested_bytes"] for site in sites), sums["allocs"]["requested"])
        same(f"{name}, sum of the sites' live bytes", sum(site["live_bytes"] for site in sites),
             sums["live"]["bytes"])
    for key, value in report["integrity"].items():
        if value:
            problems.append(f"{found.stem}: integrity.{key} is {value}")
    if report["log"]["dropped"]:
        problems.append(f"{found.stem}: the log dropped {report['log']['dropped']} events")
    return problems


def against_expected(found: Found, expected: Recording) -> list[str]:
    """The log's facts against what the program is known to do."""
    facts, problems = found.audit, []
    if facts["ended"] != expected.ended:
        problems.append(f"{found.stem}: ended by {facts['ended']}, not {expected.ended}")
    if facts["ooms"] != expected.ooms:
        problems.append(f"{found.stem}: {facts['ooms']} out-of-memory failures, not {expected.ooms}")
    if len(facts["missed"]) != expected.missed:
        problems.append(f"{found.stem}: missed: {facts['missed']}, expected {expected.missed}")
    if sorted(facts["kinds"]) != sorted(expected.kinds):
        problems.append(f"{found.stem}: kinds {sorted(facts['kinds'])}, "
                        f"not {sorted(expected.kinds)}")
    for name, kind in expected.kinds.items():
        if name in facts["kinds"]:
            problems += _kind_against_expected(f"{found.stem}: {name}", facts["kinds"][name], kind)
    return problems


def _kind_against_expected(where: str, sums: dict, kind: Kind) -> list[str]:
    count, frees, lost, live = (sums[key]["count"] for key in ("allocs", "frees", "lost", "live"))
    if kind.at_least:
        good = count >= kind.count and live <= kind.live_count
    else:
        good = (count == kind.count and lost == kind.lost and live == kind.live_count
                and frees == count - lost - live)
    if not good:
        return [f"{where}: {count} allocations, {frees} frees, {lost} lost, {live} live; "
                f"expected {kind}"]
    if kind.requested is not None and sums["allocs"]["requested"] != kind.requested:
        return [f"{where}: {sums['allocs']['requested']} bytes asked for, not {kind.requested}"]
    return []


def replayed(layout: Layout, one: Found) -> list[str]:
    """The log through the very same pool again: every event of it must be the same."""
    tool = layout.tool("memlab-report")
    if not tool.exists():
        return []
    outcome = run([str(tool), "replay", str(one.log)], layout.environment(memlab=False), one.log.parent)
    return [] if outcome.code == 0 else [f"{one.stem}: replay {outcome.describe()}"]


def judge_recordings(layout: Layout, output: Path,
                     expected: tuple[Recording, ...] | None, traffic: bool = False,
                     replay: bool = True) -> tuple[list[Found], list[str]]:
    """What is wrong with the recordings of a run. Each must match one expected recording."""
    found, problems = recordings_in(layout, output, traffic)
    for one in found:
        if one.log is None:
            problems.append(f"{one.stem}: a report without its log")
            continue
        if one.report and one.audit:
            problems += report_against_audit(one)
            problems += report_against_log(layout, one)
            problems += report_against_schema(layout, one)
        if replay:
            problems += replayed(layout, one)
        if one.report_path is None and one.audit.get("ended") != "cut off":
            problems.append(f"{one.stem}: ended well, but there is no report")
    if expected is None:
        return found, problems
    if len(found) != len(expected):
        names = ", ".join(sorted(path.name for path in output.iterdir())) if output.is_dir() else ""
        problems.append(f"{len(found)} recordings, not {len(expected)}: {names or 'no file'}")
        return found, problems
    left = [one for one in found if one.audit]
    for wanted in expected:
        verdicts = [(len(against_expected(one, wanted)), index) for index, one in enumerate(left)]
        if not verdicts:
            break
        _, best = min(verdicts)
        problems += against_expected(left.pop(best), wanted)
    return found, problems


def exit_code_against(found: Found, code: int) -> list[str]:
    """A process that ended by exit says with what; of every other nobody in it knows."""
    if not found.report:
        return []
    process = found.report["process"]
    expected = code if process["ended"] == "exit" else None
    said = process.get("exit_code")
    return [] if said == expected else [f"{found.stem}: exit code {said}, not {expected}"]


def run_case(layout: Layout, case: Case, work: Path, traffic: bool = False,
             timeout: float = 60) -> tuple[Outcome, Outcome, list[Found], list[str]]:
    """A case without and with memlab, judged. `work` is an empty folder for the run's files."""
    command = [str(layout.program(case.command[0])), *case.command[1:]]
    native_cwd, cwd, output = work / "native", work / "memlab", work / "out"
    native_cwd.mkdir(parents=True)
    cwd.mkdir()
    settings = {"SIMCUDA_DEVICES": str(case.gpus)} | dict(case.settings)
    native = run(command, layout.environment(memlab=False, preload=case.preload, settings=settings),
                 native_cwd, timeout)
    under = run(command, layout.environment(memlab=True, output=output, preload=case.preload,
                                            settings=settings), cwd, timeout)
    problems = []
    if native.code != case.code:
        problems.append(f"even without memlab it {native.describe()}")
    problems += differences(native, under, case.may_warn)
    left = sorted(path.name for path in cwd.iterdir())
    if left:
        problems.append(f"files left in the working directory: {left}")
    found, more = judge_recordings(layout, output, case.recordings, traffic) if case.judged else ([], [])
    if len(found) == 1 and case.code >= 0:
        more += exit_code_against(found[0], case.code)
    return native, under, found, problems + more


def file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text)
