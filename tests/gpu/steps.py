"""Steps that a program does not mark, as memlab-report finds them, beside the program's own count."""

from __future__ import annotations

# (module, mode, further arguments, options of memlab-run, whether its steps can be seen): JAX with its own cache
# allocates nothing in a step; what CuPy takes from its cache is seen with names (docs/python.md).
RUNS = (("transformers", "gpt2", (), (), True), ("torch", "lightning", (), (), True),
        ("accelerate", "accelerate", (), (), True), ("torch", "gan", (), (), True),
        ("torch", "accumulation", (), (), True), ("torch", "compiled", (), (), True), ("torch", "losses", (), (), True),
        ("torch", "evaluation", (), (), True), ("jax", "jax", (), ("--replace=jax",), True), ("jax", "jax", (), (), False),
        ("cupy", "cupy", ("uncached",), (), True), ("cupy", "cupy", (), (), True),
        ("cupy", "cupy", (), ("--option", "NAMES=off"), False))


def judge_steps(page: dict, steps: int, seen: bool) -> list[str]:
    """`page`: the summary's JSON; `steps`: the program's own count."""
    found = [(kind["steps"], kind["evidence"]) for kind in page["steps"] if kind["evidence"]]
    if not seen:
        return [f"steps where none can be seen: {found}"] if found else []
    return [] if [count for count, _ in found] == [steps] else [f"{steps} steps, found: {found}"]
