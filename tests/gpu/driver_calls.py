"""driver_calls.py DIR [--memlab] [--only TEXT] [--out FILE]

A census, on a GPU machine, of the driver functions that the suite's Python programs call (PyTorch,
CuPy, JAX, numba) and of the work that really ran, as CUPTI saw them. DIR is what pack.py made. Prints
(or writes to FILE) a line "FUNCTION COUNT PROGRAM" for each function, and "kernels|copies|peer_copies|
fills COUNT PROGRAM" for the work; lines that begin with # tell what could not be seen.

With --memlab the programs run under memlab, whose work clock must have counted no less than ran: a
line "submissions COUNT PROGRAM" more, which is at least the sum of the work. One launch of a graph runs many
kernels: a program that launches graphs is judged by its calls of submitting functions instead.

Exit code 0 when every installed program could be watched and no work went uncounted, else 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "programs"))
sys.dont_write_bytecode = True

from harness import Layout, run  # noqa: E402  (the path above)

PROGRAMS = [("torch", "pytorch", "train.py", [], {}),
            ("torch", "pytorch_cuda_graphs", "graph_work.py", [], {}),
            ("torch", "pytorch_without_its_cache", "train.py", [], {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
            ("cupy", "cupy", "cupy_work.py", [], {}),
            ("jax", "jax", "jax_work.py", [], {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}),
            ("numba", "numba", "numba_work.py", [], {})]


def watch(packed: Path, memlab: bool, work: Path, script: str, arguments: list[str],
          settings: dict[str, str], sees: str) -> tuple[list[str], str]:
    """The witness's lines of all processes, and what is wrong ("" when nothing)."""
    environment = Layout(packed).environment(memlab=memlab, output=work / "out", inherit=True, settings=settings | {
        "CUDA_INJECTION64_PATH": str(packed / "lib" / "cupti_reference.so"), "MEMLAB_VERBOSITY": "debug",
        "WITNESS_SEES": sees, "WITNESS_OUTPUT": str(work / "witness.%p.txt")})
    outcome = run([sys.executable, str(HERE / "py" / script), *arguments], environment, work, 60)
    lines: list[str] = []
    ended = False
    for path in work.glob("witness.*.txt"):
        seen = path.read_text(encoding="utf-8").splitlines()
        lines += [line for line in seen if line.startswith(("call ", "work "))]
        ended = ended or seen[-1:] == ["end"]
    if outcome.code != 0:
        return lines, "the program " + outcome.describe().splitlines()[0]
    if not ended:
        return lines, "the witness was cut off"
    return lines + work_clock(outcome.stderr.decode(errors="replace")), ""


def work_clock(stderr: str) -> list[str]:
    """What memlab says of its work clock at the end of each process, as a line of the census."""
    said = re.findall(r"work clock: ([0-9]+) submissions(, not trusted)?", stderr)
    if not said:
        return []
    return [f"clock {'distrusted_' if any(lost for _, lost in said) else ''}submissions "
            f"{sum(int(count) for count, _ in said)}"]


def uncounted(lines: list[str]) -> str:
    """Work that ran without memlab's clock having seen it submitted; "" when there is none."""
    figures = dict(line.split()[1:] for line in lines if line.startswith(("work ", "clock ")))
    calls = {name: int(count) for kind, name, count in (line.split() for line in lines) if kind == "call"}
    if calls.get("cuGraphLaunch", calls.get("cuGraphLaunch_ptsz")):
        ran = sum(count for name, count in calls.items()
                  if re.match(r"cu(GraphLaunch|LaunchKernel|Memcpy\w*Async|Memset\w*Async)", name))
    elif "kernels" in figures:
        ran = sum(int(figures[what]) for what in ("kernels", "copies", "peer_copies", "fills"))
    else:
        return ""
    if "submissions" not in figures:
        return "memlab's work clock is not trusted, or memlab said nothing of it"
    counted = int(figures["submissions"])
    return "" if counted >= ran else f"{ran} pieces of work ran, {counted} submissions were counted"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("packed", type=Path)
    parser.add_argument("--memlab", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out: list[str] = []
    failed = False
    for module, name, script, arguments, settings in PROGRAMS:
        if options.only not in name:
            continue
        if importlib.util.find_spec(module) is None:
            out.append(f"# {name}: {module} is not installed")
            continue
        # A program that does not bear both at once may bear one.
        for sees in ("calls,work", "calls"):
            with tempfile.TemporaryDirectory(prefix="memlab-census.") as folder:
                lines, problem = watch(options.packed.resolve(), options.memlab, Path(folder), script,
                                       arguments, settings, sees)
            if not problem:
                break
            out.append(f"# {name}, {sees}: {problem}; {len(lines)} lines thrown away")
            lines = []
        if not problem and options.memlab:
            problem = uncounted(lines)
            if problem:
                out.append(f"# {name}: {problem}")
        failed = failed or bool(problem)
        out += sorted(" ".join([*line.split()[1:], name]) for line in lines)
    text = "\n".join(out) + "\n"
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
