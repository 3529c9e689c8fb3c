"""What a line profiler collected, and its tables: as text, and as HTML for notebooks."""

from __future__ import annotations

import html
import inspect
from types import CodeType
from typing import Dict, List, Optional, Sequence, Set, Tuple

from . import _line_figures

_MADE, _KEPT = "line_bytes.all.made", "line_bytes.all.kept"
OWN_COLUMNS = (_MADE, _KEPT)
_ALLOCATED, _FREED = (_line_figures.INDEX["allocated_bytes.all." + part] for part in ("allocated", "freed"))
_BAR_COLORS = ("#a9c6ea", "#f3c99f", "#b5dfb0", "#e9b0ac", "#cdbfe3", "#d9c6b5")

Row = List[Optional[int]]
_UNITS = "BKMGTPE"


def readable_size(size: int) -> str:
    """With two digits, in units of 1024: "512.00B", "40.00K", "-2.00M"."""
    value, unit = float(abs(size)), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{'-' if size < 0 else ''}{value:.2f}{_UNITS[unit]}"


class Source:
    """A profiled function."""

    def __init__(self, code: CodeType, name: str) -> None:
        self.code, self.name = code, name

    def lines(self) -> List[Tuple[int, str]]:
        """Numbers and texts; none where there is no source."""
        try:
            lines, first = inspect.getsourcelines(self.code)
        except (OSError, TypeError):
            return []
        return [(first + at, line.rstrip("\r\n")) for at, line in enumerate(lines)]


class Records:
    """The maxima of each line over its runs."""

    def __init__(self) -> None:
        self._values: Dict[Tuple[CodeType, int], List[int]] = {}
        self._kept: Dict[Tuple[CodeType, int], int] = {}
        self._lacks: Set[str] = set()

    def add(self, code: CodeType, line: int, values: List[int], reading: _line_figures.Reading) -> None:
        kept = values[_ALLOCATED] - values[_FREED]
        known = self._values.get((code, line))
        if known is None:
            self._values[code, line], self._kept[code, line] = values, kept
        else:
            self._values[code, line] = [a if a > b else b for a, b in zip(known, values)]
            self._kept[code, line] = max(kept, self._kept[code, line])
        for lack, is_so in (("asked all", reading.asked_all), ("asked", reading.asked), ("not asked", not reading.asked),
                            ("active", reading.active_at_least)):
            if is_so:
                self._lacks.add(lack)

    def check(self, columns: Sequence[str]) -> None:
        for column in columns:
            if column not in _line_figures.INDEX and column not in OWN_COLUMNS:
                parts = "" if str(column).count(".") == 2 else ", whose names have three parts with dots between"
                raise ValueError(f"there is no column {column!r}{parts}; there are: {_line_figures.KEYS_IN_SHORT}, "
                                 f"{', '.join(OWN_COLUMNS)}")

    def lines_of(self, code: CodeType, columns: Sequence[str]) -> Dict[int, Row]:
        rows: Dict[int, Row] = {}
        for (of, line), values in self._values.items():
            if of == code:
                rows[line] = [self._value(column, values, self._kept[of, line]) for column in columns]
        return rows

    def _value(self, column: str, values: List[int], kept: int) -> Optional[int]:
        if column == _MADE:
            return values[_ALLOCATED]
        if column == _KEPT:
            return kept
        if column in _line_figures.ASKED and "asked" not in self._lacks:
            return None
        return values[_line_figures.INDEX[column]]

    def notes(self, columns: Sequence[str]) -> List[str]:
        """What these columns are not."""
        if "asked all" in self._lacks:
            return ["memlab recorded no cache of PyTorch there: PyTorch was asked at each line's end, and peaks are the most "
                    "of that"]
        notes = []
        asked = [column for column in columns if column in _line_figures.ASKED]
        if asked and "asked" in self._lacks:
            notes.append(f"{', '.join(asked)}: asked of PyTorch at each line's end; a peak is the most of that")
        elif asked:
            notes.append(f"{', '.join(asked)}: only PyTorch knows, and it was not in use")
        active = [column for column in columns if column.startswith("active")]
        if active and "active" in self._lacks:
            notes.append(f"{', '.join(active)}: at least; freed blocks were still in use by other streams")
        return notes


def _is_bytes(column: str) -> bool:
    return "bytes" in column.split(".")[0]


def _text(column: str, value: Optional[int]) -> str:
    if value is None:
        return ""
    return readable_size(value) if _is_bytes(column) else str(value)


class RecordsDisplay:
    """Shows itself as text, and in a notebook as HTML. `records` has the figures: by function and line, in the order of
    `columns`."""

    def __init__(self, found: Dict[Source, Dict[int, Row]], columns: Sequence[str], notes: Sequence[str]) -> None:
        self.columns = list(columns)
        self.records = {source.name: rows for source, rows in found.items() if rows}
        self._found = {source: rows for source, rows in found.items() if rows}
        self._notes = list(notes)

    def _rows(self, source: Source, rows: Dict[int, Row]) -> List[Tuple[int, Row, str]]:
        lines = dict(source.lines()) or {line: "" for line in sorted(rows)}
        return [(line, rows.get(line, [None] * len(self.columns)), code) for line, code in lines.items()]

    def __repr__(self) -> str:
        if not self._found:
            return "No data collected\n"
        parts = [f"## {source.name}\n\n{self._table(self._rows(source, rows))}\n" for source, rows in self._found.items()]
        return "\n\n".join(parts) + "".join(f"\n{note}\n" for note in self._notes)

    def _table(self, rows: List[Tuple[int, Row, str]]) -> str:
        names = [column.split(".") for column in self.columns]
        table = [[*(name[level] for name in names), "line" if level == 0 else "", "code" if level == 0 else ""]
                 for level in range(3)]
        table += [[*map(_text, self.columns, values), str(line), code] for line, values, code in rows]
        widths = [max(len(row[at]) for row in table) for at in range(len(table[0]) - 1)]
        return "\n".join(" ".join([*(cell.rjust(width) for cell, width in zip(row, widths)), " " + row[-1]]).rstrip()
                         for row in table)

    def _repr_html_(self) -> str:
        if not self._found:
            return "<p>No data collected</p>"
        most = [max([row[at] or 0 for rows in self._found.values() for row in rows.values()] + [0])
                for at in range(len(self.columns))]
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes)
        return "\n".join(self._html_of(source, rows, most) for source, rows in self._found.items()) + notes

    def _html_of(self, source: Source, rows: Dict[int, Row], most: List[int]) -> str:
        heads = "".join(f'<th style="text-align:left">{html.escape(column).replace(".", "<br>")}</th>'
                        for column in self.columns)
        body = []
        for line, values, code in self._rows(source, rows):
            cells = "".join(self._cell(at, value, most[at]) for at, value in enumerate(values))
            body.append(f'<tr>{cells}<td style="text-align:right">{line}</td><td style="text-align:left;white-space:pre;'
                        f'font-family:monospace">{html.escape(code)}</td></tr>')
        return (f'<h3><span style="font-family:monospace">{html.escape(source.name)}</span></h3><div><table><thead><tr>{heads}'
                f'<th>line</th><th style="text-align:left">code</th></tr></thead><tbody>{"".join(body)}</tbody></table></div>')

    def _cell(self, at: int, value: Optional[int], most: int) -> str:
        share = 100 * (value or 0) / most if most > 0 else 0
        color = _BAR_COLORS[at % len(_BAR_COLORS)]
        bar = f";background:linear-gradient(90deg,{color} {share:.1f}%,transparent {share:.1f}%)" if share > 0 else ""
        return f'<td style="text-align:right{bar}">{_text(self.columns[at], value)}</td>'
