"""pack.py DIR BUILD_DIR

Collects all that the GPU suite runs into DIR: libmemlab.so, the tools, the test programs, the
samples, the conformance programs, the benchmarks, the witness and the scripts. DIR has the shape of a build folder (bin/, lib/) and runs where nothing can
be built or installed. Nothing of NVIDIA's goes along but what the static CUDA runtime links into a
program. Debug information is dropped where no report needs it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

LIMIT = 63 << 20
ROOT = Path(__file__).resolve().parent.parent.parent

# Their call sites are shown with file and line.
KEEP_LINES = ("sample_",)


def fail(message: str) -> int:
    print(f"pack: {message}", file=sys.stderr)
    return 2


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source.resolve(), target)
    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
    if is_elf(target) and not target.name.startswith(KEEP_LINES):
        keep = ["--strip-debug"] if target.suffix == ".so" else ["--strip-debug", "-R", ".comment"]
        subprocess.run(["strip", *keep, str(target)], check=True)


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    target, build = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    wanted = ["bin/memlab-report", "bin/memlab-run", "bin/memlab-ctl", "bin/memlab-top", "bin/log_audit",
              "bin/log_to_report", "lib/libmemlab.so",
              "lib/libmemlab_unfenced.so", "lib/libmemlab_unordered.so", "lib/libmemlab_peerless.so", "lib/libmemlab_verified.so", "bin/bench_unwind", "bin/race_hunter", "bin/yielding_work", "lib/cupti_reference.so", "lib/hook_timer.so", "bin/bench_pair", "bin/bench_startup", "bin/bench_passing", "bin/sample_cache_lines",
              "generated/share/memlab-report-v1.schema.json"]
    missing = [name for name in wanted if not (build / name).exists()]
    if missing:
        return fail(f"{build} lacks {', '.join(missing)}: build the project with its tests and samples first")
    if target.exists() and any(target.iterdir()) and not (target / "packed.txt").exists():
        return fail(f"{target} is not empty and no earlier pack: name another folder")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / "packed.txt").write_text("memlab GPU suite\nrun: python3 tests/gpu/run.py DIR\n", encoding="utf-8")

    for name in wanted:
        copy(build / name, target / name)
    samples = [program for source in sorted((ROOT / "samples").glob("*.cu"))
               for program in sorted((build / "bin").glob(f"sample_{source.stem}*"))]
    for program in samples + sorted((build / "bin").glob("conformance_*")):
        copy(program, target / "bin" / program.name)
    for program in sorted((build / "bin" / "programs").iterdir()):
        if program.is_file() and is_elf(program):
            copy(program, target / "bin" / "programs" / program.name)
    for folder, names in (("tests/gpu", ("run.py", "several_gpus.py", "ledger.py", "lines.py", "live.py", "tensors.py", "plan.py", "step_aside.py", "checkpoint.py", "steps.py", "verdicts.py", "driver_calls.py")), ("tests/conformance", ("compare.py",)),
                          ("tests/programs", ("catalogue.py", "harness.py", "sample_checks.py"))):
        for name in names:
            copy(ROOT / folder / name, target / "tests" / Path(folder).name / name)
    for folder in ("tests/gpu/py", "python/memlab"):
        shutil.copytree(ROOT / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "share" / "memlab").mkdir(parents=True)
    (target / "share" / "memlab" / "python").symlink_to("../../python")  # where memlab-run looks for it
    for script in sorted((ROOT / "tests/bench").glob("bench_*.py")):
        copy(script, target / "tests/bench" / script.name)
    (target / "samples").mkdir()
    for source in sorted([*(ROOT / "samples").glob("*.cu*"), *(ROOT / "samples").glob("*.py")]):
        shutil.copy2(source, target / "samples" / source.name)

    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if size > LIMIT:
        return fail(f"{target} has {size >> 20} MiB, more than {LIMIT >> 20}")
    print(f"packed {size / (1 << 20):.1f} MiB into {target}; on the GPU machine: tools/dev gpu --run DIR")
    return 0


if __name__ == "__main__":
    sys.exit(main())
