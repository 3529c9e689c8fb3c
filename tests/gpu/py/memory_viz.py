"""memory_viz.py MEMLAB_REPORT LOG: PyTorch's own reader of snapshots takes what memlab-report export
--to pytorch wrote of LOG. Prints "N segments N blocks N entries"; fails where a figure is not that of
the snapshot.
"""

import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from torch.cuda import _memory_viz


def weights(lines):
    """Bytes of all lines of a flame graph, which are "stack bytes"."""
    return sum(int(line.rsplit(" ", 1)[1]) for line in lines.splitlines())


def main():
    report, log = sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="memory_viz.") as folder:
        path = Path(folder) / "snapshot.pickle"
        subprocess.run([report, "export", "--to", "pytorch", "-o", str(path), log], check=True)
        snapshot = pickle.loads(path.read_bytes())

    segments = snapshot["segments"]
    blocks = [block for segment in segments for block in segment["blocks"]]
    reserved = sum(segment["total_size"] for segment in segments)
    # Their sums are of whole segments: what is asked for, rounded and free.
    for graph in (_memory_viz.memory, _memory_viz.segments):
        assert weights(graph(snapshot, format_flamegraph=lambda lines: lines)) == reserved, graph
    # It asserts that blocks add up to their segments.
    summary = _memory_viz.segsum(snapshot)
    assert f"segments: {len(segments)}\n" in summary, summary

    entries = sum(len(trace) for trace in snapshot["device_traces"])
    listing = _memory_viz.trace(snapshot)
    allocations = sum(entry["action"] == "alloc" for trace in snapshot["device_traces"] for entry in trace)
    assert len(re.findall(r"(?m)^\w+ = \w+\[\d+:", listing)) == allocations, listing[:2000]
    for plot_segments in (False, True):
        page = _memory_viz.trace_plot(snapshot, plot_segments=plot_segments)
        assert "MemoryViz.js" in page and len(page) > entries, len(page)
    print(f"{len(segments)} segments {len(blocks)} blocks {entries} entries")


if __name__ == "__main__":
    main()
