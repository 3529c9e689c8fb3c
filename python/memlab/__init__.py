"""memlab: where did the GPU memory go?

Two halves, which work without each other (docs/python.md):

- in a program that runs under memlab: scope(), mark(), label(), watch(), peak(), stats(), snapshot(), empty_cache(),
  recording(). They are calls of the preloaded library. In a process without memlab they do nothing, say so once
  (NotRecordedWarning), and figures are None. LineProfiler, profile(), profile_every(), set_target_gpu(),
  clear_global_line_profiler(), MemReporter and Courtesy are pytorch_memlab's, of what memlab records and moves;
- in a notebook: %load_ext memlab has the magics %mlrun, %%mlrun and %%memlab;
- afterwards, anywhere: load(), report(), html(). They run memlab-report, which this package has.

    $ memlab-run -- python3 train.py
    >>> import memlab
    >>> memlab.load("memlab.python3.4711.json").devices[0].peak_bytes
    4000256

Nothing here depends on CUDA, on a framework or on the version of Python. Sizes are bytes; GPUs are numbered as in the
program.
"""

from ._annotations import empty_cache, label, mark, recording, scope, snapshot, stats
from ._courtesy import Courtesy, NotMovedWarning
from ._library import NotRecordedWarning
from ._line_profiler import LineProfiler, clear_global_line_profiler, profile, profile_every, set_target_gpu
from ._mem_reporter import MemReporter
from ._notebook import load_ipython_extension
from ._package import __version__, preload_path, tool_path
from ._peak import Frame, Line, NnModule, Site, peak
from ._recording import Curve, Device, Event, Place, Recording, ReportError, html, load, report
from ._watch import watch

__all__ = ["Courtesy", "Curve", "Device", "Event", "Frame", "Line", "LineProfiler", "MemReporter", "NnModule",
           "NotMovedWarning", "NotRecordedWarning", "Place", "Recording", "ReportError", "Site", "__version__", "clear_global_line_profiler",
           "empty_cache", "html", "label", "load", "load_ipython_extension", "mark", "peak", "preload_path", "profile", "profile_every", "recording",
           "report", "scope", "set_target_gpu", "snapshot", "stats", "tool_path", "watch"]
