"""How much of a program's stack memlab's part of a call takes: threads may have 56 KiB in all."""

from __future__ import annotations

from support import EndToEnd

KIB = 1024
# More than the call takes without memlab. The end of a program writes the report.
MOST = {"first call": 6 * KIB, "first allocation": 6 * KIB, "allocation": 6 * KIB, "free": 2 * KIB,
        "stream-ordered": 6 * KIB, "out of memory": 6 * KIB, "end of a context": 2 * KIB,
        "end of the program": 6 * KIB}


class StackUse(EndToEnd):
    """tests/programs/stack_use.cpp."""

    def used(self, output: bytes) -> dict[str, int]:
        lines = [line.split(": ") for line in output.decode().splitlines()]
        return {name: int(value) for name, value in lines}

    def test_every_path(self) -> None:
        # The loader's own frames when it binds a function would hide ours.
        command = ["/usr/bin/env", "LD_BIND_NOW=1", *self.program("stack_use")]
        plain = self.without_memlab(command)
        self.assertEqual(plain.code, 0, plain.describe())
        before = self.used(plain.stdout)
        self.assertEqual(before.keys(), MOST.keys())
        for depth in ("64", "256"):
            recorded = self.under_memlab(command, {"MEMLAB_STACK_DEPTH": depth})
            self.assertEqual(recorded.code, 0, recorded.describe())
            after = self.used(recorded.stdout)
            for path, most in MOST.items():
                with self.subTest(depth=depth, path=path):
                    self.assertLess(after[path] - before[path], most)
