"""The code of a notebook's cell, run as IPython runs it, without the frames of memlab in its tracebacks."""

from __future__ import annotations

import ast
from types import CodeType
from typing import Any, Dict, Optional


class Code:
    """A cell's code, or a statement's. What it defines is the notebook's, and tracebacks quote it.

    `first_line`: of the code in the cell, so that lines have the numbers that the notebook shows.
    SyntaxError: it is no Python, or has an `await` of its own.
    """

    def __init__(self, shell: Any, text: str, first_line: int) -> None:
        self._shell = shell
        above = "\n" * (first_line - 1)
        source = above + shell.transform_cell(text)
        self.file = str(shell.compile.cache(source, shell.execution_count, raw_code=above + text))
        tree = shell.transform_ast(shell.compile.ast_parse(source, self.file))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        self.statements: CodeType = shell.compile(tree, self.file, "exec")
        self.value: Optional[CodeType] = None
        if last is not None:
            self.value = shell.compile(ast.Expression(last.value), self.file, "eval")

    @property
    def title(self) -> str:
        """The cell's, as the notebook has it."""
        return f"In [{self._shell.execution_count}]"

    def name_of(self, file: str) -> str:
        """What the notebook calls a file: "In [3]" of a cell."""
        numbers = getattr(self._shell.compile, "_filename_map", {})
        return f"In [{numbers[file]}]" if file in numbers else file

    def run(self, local_ns: Optional[Dict[str, Any]]) -> Any:
        """Returns the value of the expression that it ends with, if any."""
        __tracebackhide__ = True  # IPython leaves this frame out
        names = self._shell.user_global_ns
        others = names if local_ns is None or local_ns is self._shell.user_ns else local_ns
        exec(self.statements, names, others)  # pylint: disable=exec-used
        if self.value is None:
            return None
        return eval(self.value, names, others)  # pylint: disable=eval-used
