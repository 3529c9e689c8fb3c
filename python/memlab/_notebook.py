"""The magics of IPython and Jupyter: %mlrun and %%mlrun, which are pytorch_memlab's, and %%memlab.

IPython is imported when the extension is loaded, so that the package needs none.
"""

from __future__ import annotations

import getopt
import importlib
import re
import sys
from types import CodeType
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import _library
from ._cell import Code
from ._cell_view import CellView
from ._line_profiler import DEFAULT_COLUMNS, LineProfiler
from ._peak import peak

_Options = List[Tuple[str, str]]


def _usage_error(message: str) -> Exception:
    """IPython shows it as one line."""
    error: Exception = importlib.import_module("IPython.core.error").UsageError(message)
    return error


def _options(line: str, letters: str, names: Dict[str, str]) -> Tuple[_Options, str]:
    """The options that the line begins with, by their letters, and what follows them as it was written. `names`: long
    options, as getopt has them, and their letters."""
    words = list(re.finditer(r"(?:\"[^\"]*\"|'[^']*'|\S)+", line))
    try:
        options, others = getopt.getopt([word.group() for word in words], letters, list(names))
    except getopt.GetoptError as error:
        raise _usage_error(f"{error.msg}; %mlrun? and %%memlab? list the options") from None
    long = {"--" + name.rstrip("="): "-" + letter for name, letter in names.items()}
    found = [(long.get(option, option), value[1:-1] if value[:1] in ("'", '"') and value[-1:] == value[:1] else value)
             for option, value in options]
    return found, line[words[len(words) - len(others)].start():] if others else ""


def _functions_of(code: CodeType, outer: str = "") -> Iterator[Tuple[str, CodeType]]:
    """The qualified names and codes of what a cell's code defines."""
    for each in code.co_consts:
        if isinstance(each, CodeType) and not each.co_name.startswith("<"):
            yield outer + each.co_name, each
            yield from _functions_of(each, f"{outer}{each.co_name}.")


class Magics:
    """What %load_ext memlab registers with a shell."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def mlrun(self, line: str, cell: Optional[str] = None, local_ns: Optional[Dict[str, Any]] = None) -> Any:
        """Run a statement or a cell, and show the GPU memory by line of functions that it calls.

        %mlrun [-f FUNC] [-c COLS] [-D] [-r] [-g GPU_ID] [-q] [-T OUTPUT] STATEMENT
        %%mlrun [the same options]

        -f FUNC, --function FUNC            profile this function; may be repeated. In a cell also one that the cell defines
        -c COLS, --column COLS              show this column, too, a key of torch.cuda.memory_stats(); may be repeated
        -D, --no_default_columns            without active_bytes.all.peak and reserved_bytes.all.peak
        -r, --return-profiler               the value is the LineProfiler, and nothing is shown
        -g GPU_ID, --gpu GPU_ID             look at this GPU (default: 0)
        -q, --quiet                         show nothing
        -T OUTPUT, --dump-profile OUTPUT    write the text that is shown to this file, too
        """
        __tracebackhide__ = True
        options, statement = _options(line, "f:c:Drg:qT:", {
            "function=": "f", "column=": "c", "no_default_columns": "D", "return-profiler": "r", "gpu=": "g", "quiet": "q",
            "dump-profile=": "T"})
        values = dict(options)
        columns = [*(() if "-D" in values else DEFAULT_COLUMNS), *(value for name, value in options if name == "-c")]
        gpu = values.get("-g", "0")
        if not gpu.isdecimal():
            raise _usage_error(f"%mlrun -g takes the number of a GPU, not {gpu}")
        if cell is None and not statement:
            raise _usage_error("%mlrun takes a statement to run: %mlrun -f FUNC FUNC()")
        code = Code(self.shell, statement if cell is None else cell, first_line=1 if cell is None else 2)
        profiler = self._profiler([value for name, value in options if name == "-f"], int(gpu), code, local_ns)
        try:
            profiler.records.check(columns)
            dump = open(values["-T"], "w", encoding="utf-8") if "-T" in values else None
        except ValueError as error:
            raise _usage_error(f"%mlrun -c: {error}") from None
        except OSError as error:
            raise _usage_error(f"%mlrun -T {values['-T']}: {error.strerror}; name a file that can be written") from None
        returned = False
        try:
            with profiler:
                code.run(local_ns)
            returned = True
        finally:
            if dump is not None:
                try:
                    with dump:
                        profiler.print_stats(columns=columns, stream=dump)
                except OSError as error:  # the figures are still shown, or what the cell raised
                    print(f"memlab: %mlrun -T {values['-T']}: {error.strerror}; its text is incomplete", file=sys.stderr)
            if not returned and "-q" not in values:  # up to the line that failed
                _display(profiler.display(columns=columns))
        if "-r" in values:
            return profiler
        return None if "-q" in values else profiler.display(columns=columns)

    def _profiler(self, names: List[str], gpu: int, code: Code, local_ns: Optional[Dict[str, Any]]) -> LineProfiler:
        """Of these functions: those that are there, and those that the code will define."""
        profiler = LineProfiler(target_gpu=gpu)
        defined = dict(_functions_of(code.statements))
        for name in names:
            if name in defined:
                profiler.add_code(defined[name], name)
            try:
                function = eval(name, self.shell.user_global_ns, local_ns)  # pylint: disable=eval-used
            except Exception as error:  # pylint: disable=broad-exception-caught
                if name not in defined:
                    raise _usage_error(f"%mlrun -f {name}: {type(error).__name__}: {error}; name a function that is defined "
                                       "before, or in the cell") from None
                continue
            profiler.add_function(function)
        return profiler

    def memlab(self, line: str, cell: str, local_ns: Optional[Dict[str, Any]] = None) -> Any:
        """Run the cell, and show the GPU memory that it needed: its peak, the lines that held it, and memlab's page.

        %%memlab [-t] [NAME]

        -t, --table     the table alone, without the page, which takes up to 1 MiB of the notebook
        NAME            a variable for the figures, a memlab.peak
        """
        __tracebackhide__ = True
        options, name = _options(line, "t", {"table": "t"})
        name = name.strip()
        if name and not name.isidentifier():
            raise _usage_error(f"%%memlab takes the name of a variable for the figures, not {name}")
        code = Code(self.shell, cell, first_line=2)
        measured = peak(limit=200)
        with_memlab = _library.has("interval_begin")
        try:
            if not with_memlab:  # said below
                return code.run(local_ns)
            with measured:
                return code.run(local_ns)
        finally:
            if name:
                self.shell.user_ns[name] = measured
            _display(CellView(measured, code.title, code.name_of, with_page=not options, with_memlab=with_memlab))


def _display(shown: Any) -> None:
    importlib.import_module("IPython.display").display(shown)


def load_ipython_extension(ipython: Any) -> None:
    """%load_ext memlab: registers %mlrun, %%mlrun and %%memlab with the shell."""
    magics = Magics(ipython)
    ipython.register_magic_function(magics.mlrun, magic_kind="line_cell", magic_name="mlrun")
    ipython.register_magic_function(magics.memlab, magic_kind="cell", magic_name="memlab")


for _magic in (Magics.mlrun, Magics.memlab):
    setattr(_magic, "needs_local_scope", True)  # what IPython's decorator of that name does
    setattr(_magic, "_ipython_magic_output_can_be_silenced", True)  # by a semicolon at the end
