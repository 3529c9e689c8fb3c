"""What %%memlab shows of a cell: a table, which every viewer of notebooks has, and the page of memlab-report html, looking
at the time of the cell, in a frame. Both together are at most 1 MiB of the notebook.
"""

from __future__ import annotations

import html
import json
import linecache
import os
import tempfile
import time
from typing import Any, Callable, Dict, List, NamedTuple

from . import _library
from ._annotations import recording, snapshot
from ._line_table import readable_size
from ._peak import Site, peak
from ._recording import ReportError, report

MAX_OUTPUT = 1 << 20  #: bytes of a cell's output in the notebook's JSON
_MAX_PAGE = "900KiB"
_ROWS = 10
_LOG_DELAY = 0.01  # seconds; where the log is no mapped file, a thread writes it after 2 ms


class _Row(NamedTuple):
    bytes: int
    blocks: int
    place: str
    code: str


class CellView:
    """Shows itself as text and as HTML. Figures are those of the peak."""

    def __init__(self, measured: peak, title: str, name_of: Callable[[str], str], with_page: bool, with_memlab: bool) -> None:
        self._measured = measured
        self._title = title
        self._name_of = name_of
        self._says = self._summary(with_memlab)
        self._rows = self._table()
        self._page, self._lacks = "", ""
        if with_page and self._rows:
            try:
                self._page = _frame(_page_of(measured, title), title)
            except (ReportError, OSError) as error:
                self._lacks = f"without memlab's page: {error}"
            if len(json.dumps(self._repr_mimebundle_())) > MAX_OUTPUT:
                self._page = ""
                self._lacks = "without memlab's page, which is larger than 1 MiB: memlab-report html writes it into a file"

    def _summary(self, with_memlab: bool) -> str:
        measured = self._measured
        if not with_memlab:
            return f"memlab: not recorded, this process runs without memlab: {_library.advice()}"
        if measured.bytes is None or measured.growth_bytes is None:
            return ("memlab: not recorded: memlab is switched off in this process (MEMLAB_DISABLE, MEMLAB_RECORD), or 64 peaks "
                    "are open")
        if recording() is None and not measured.bytes:
            return "memlab: not recorded: no GPU was used up to now"
        kept = (measured.end_bytes or 0) - (measured.begin_bytes or 0)
        count = measured.allocated_count
        return (f"memlab: {self._title} peaked at {'at least ' if measured.at_least else ''}{readable_size(measured.bytes)} of "
                f"GPU memory, {readable_size(measured.growth_bytes)} above what was held before; it "
                f"{'kept' if kept >= 0 else 'gave back'} {readable_size(abs(kept))}; {count} allocation{'s' * (count != 1)}, "
                f"{readable_size(measured.allocated_bytes or 0)} in all")

    def _table(self) -> List[_Row]:
        """Who held the memory at the peak: the lines that held most, and the rest, together all of it."""
        if not self._measured.bytes:
            return []
        by_place: Dict[str, _Row] = {}
        for site in self._measured.sites or ():
            row = self._row_of(site)
            known = by_place.get(row.place, row._replace(bytes=0, blocks=0))
            by_place[row.place] = row._replace(bytes=known.bytes + row.bytes, blocks=known.blocks + row.blocks)
        rows = sorted(by_place.values(), key=lambda row: -row.bytes)
        others = (self._measured.other_bytes or 0) + sum(row.bytes for row in rows[_ROWS:])
        return rows[:_ROWS] + ([_Row(others, 0, "elsewhere", "")] if others else [])

    def _row_of(self, site: Site) -> _Row:
        place = site.place
        if place is None or place.file is None:
            return _Row(site.bytes, site.count, str(place or site.api), "")
        name = self._name_of(place.file)
        where = f"{name}, line {place.line}" if name != place.file else f"{os.path.basename(name)}:{place.line}"
        where += "" if place.function in (None, "<module>") else f" {place.function}"
        return _Row(site.bytes, site.count, where, linecache.getline(place.file, place.line or 0).strip())

    def __repr__(self) -> str:
        lines = [self._says]
        if self._rows:
            width = max(len(row.place) for row in self._rows)
            lines += ["", f"{'at the peak':>12} {'share':>6} {'blocks':>7}  {'where':<{width}}  code"]
            lines += [f"{readable_size(row.bytes):>12} {self._share(row):>6} {row.blocks or '':>7}  {row.place:<{width}}  "
                      f"{row.code}".rstrip() for row in self._rows]
        return "\n".join(lines + ([self._lacks] if self._lacks else []))

    def _share(self, row: _Row) -> str:
        return f"{100 * row.bytes / (self._measured.bytes or 1):.1f}%"

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(self._says)}</p>"]
        if self._rows:
            right, left = ' style="text-align:right"', ' style="text-align:left"'
            parts.append(f"<table><thead><tr><th>at the peak</th><th>share</th><th>blocks</th><th{left}>where</th>"
                         f"<th{left}>code</th></tr></thead><tbody>")
            parts += [f"<tr><td{right}>{readable_size(row.bytes)}</td><td{right}>{self._share(row)}</td>"
                      f"<td{right}>{row.blocks or ''}</td><td{left}>{html.escape(row.place)}</td>"
                      f"<td{left}><code>{html.escape(row.code)}</code></td></tr>" for row in self._rows]
            parts.append("</tbody></table>")
        if self._lacks:
            parts.append(f"<p>{html.escape(self._lacks)}</p>")
        return "".join(parts) + self._page

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def _page_of(measured: peak, title: str) -> str:
    """The page of the recording so far, which looks at the cell. Of the log; where there is none, of a report."""
    with tempfile.TemporaryDirectory(prefix="memlab-cell.") as folder:
        page = os.path.join(folder, "page.html")
        _write_sources(measured, folder)
        path = recording()
        log = "" if path is None else os.path.splitext(path)[0] + ".memlog"
        if os.path.exists(log):
            time.sleep(_LOG_DELAY)
        else:
            log = snapshot(os.path.join(folder, "memlab.json")) or ""
        report("html", "--output", page, "--max-size", _MAX_PAGE, "--title", title, "--sources", folder,
               "--show", f"from={measured.begin_ns}&to={measured.end_ns}", log)
        with open(page, encoding="utf-8") as file:
            return file.read()


def _write_sources(measured: peak, folder: str) -> None:
    """The cells' texts, which are in no file, for the page to quote."""
    for file in {frame.file for site in measured.sites or () for frame in site.frames if frame.file is not None}:
        lines = linecache.getlines(file)
        copy = os.path.join(folder, os.path.basename(file))
        if lines and not os.path.exists(file) and not os.path.exists(copy):
            with open(copy, "w", encoding="utf-8") as out:
                out.writelines(lines)
            os.utime(copy, (0, 0))  # it did not change since


def _frame(page: str, title: str) -> str:
    """The page may run its own script, and reaches nothing of the notebook's."""
    text = page.replace("&", "&amp;").replace('"', "&quot;")
    return (f'<iframe title="memlab: {html.escape(title)}" sandbox="allow-scripts" loading="lazy" '
            f'style="width:100%;height:720px;border:0" srcdoc="{text}"></iframe>')
