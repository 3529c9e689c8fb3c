"""line_profiles.py FILE

The uses that pytorch_memlab documents, with memlab's names, and a training step each of whose lines asks PyTorch for its
statistics. Under memlab what it printed and collected is written to FILE, as JSON. Prints the loss.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "python"))
import memlab  # noqa: E402  (the path above)

warnings.simplefilter("ignore", memlab.NotRecordedWarning)
COLUMNS = [f"{name}.all.{part}" for name in ("allocated_bytes", "reserved_bytes", "active_bytes", "allocation", "segment",
                                             "requested_bytes", "inactive_split_bytes") for part in ("current", "peak")]
answers: dict = {"columns": COLUMNS}
asked: list = []


def ask():
    """What PyTorch has now, and its peaks since it was asked last."""
    stats = torch.cuda.memory_stats()
    torch.cuda.reset_peak_memory_stats()
    asked.append([sys._getframe(1).f_lineno, [stats[column] for column in COLUMNS]])


def printed(work, *arguments, **named):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        work(*arguments, **named)
    return text.getvalue()


def inner():
    torch.nn.Linear(100, 100).cuda()


def outer():
    linear = torch.nn.Linear(100, 100).cuda()
    linear2 = torch.nn.Linear(100, 100).cuda()
    inner()


def train(model, optimizer, batch):
    torch.cuda.reset_peak_memory_stats()
    output = model(batch); ask()
    loss = output.square().mean(); ask()
    del output; ask()
    loss.backward(); ask()
    optimizer.step(); ask()
    optimizer.zero_grad(set_to_none=True); ask()
    large = [torch.empty(3 << 20, device="cuda") for _ in range(4)]; ask()
    large = large[0]; ask()
    torch.cuda.empty_cache(); ask()
    return loss.item()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(100, 100).cuda()

    @memlab.profile_every(1)
    def forward(self, batch):
        return self.linear(batch)


def two_gpus():
    net1 = torch.nn.Linear(1024, 1024).cuda(0)
    memlab.set_target_gpu(1)
    net2 = torch.nn.Linear(1024, 1024).cuda(1)
    memlab.set_target_gpu(torch.device("cuda", 0))
    net3 = torch.nn.Linear(1024, 1024).cuda(0)


def profiler_examples():
    with memlab.LineProfiler(outer, inner) as profiler:
        outer()
    answers["readme"] = str(profiler.display())
    answers["made"] = {name: [row[0] for _, row in sorted(rows.items())] for name, rows in
                       profiler.display(columns=["line_bytes.all.made"]).records.items()}
    answers["every"] = printed(Net(), torch.ones(50, 100).cuda())
    if torch.cuda.device_count() > 1:
        memlab.profile(two_gpus)()
        profiler = memlab._line_profiler._global_profiler
        answers["two_gpus"] = [row[0] for _, row in sorted(profiler.display(two_gpus, ["line_bytes.all.made"]).records["two_gpus"].items())]
    memlab.clear_global_line_profiler()


def reporter_examples():
    linear = torch.nn.Linear(1024, 1024).cuda()
    answers["minimal"] = printed(memlab.MemReporter().report, device=torch.device("cuda:0"))
    batch = torch.ones(512, 1024).cuda()
    reporter = memlab.MemReporter(linear)
    output = linear(batch).mean()
    answers["before"] = printed(reporter.report)
    output.backward()
    answers["after"] = printed(reporter.report)
    optimizer = torch.optim.Adam(linear.parameters())
    reporter.add_optimizer(optimizer)
    optimizer.step()
    answers["optimizer"] = printed(reporter.report)
    del output, optimizer
    linear.zero_grad(set_to_none=True)
    output = linear(batch * (batch + 2)).mean()
    answers["of_cpp"] = printed(reporter.report)
    del output, reporter
    second = torch.nn.Linear(1024, 1024).cuda()
    second.weight = linear.weight
    container = torch.nn.Sequential(linear, second)
    container(batch).mean().backward()
    answers["shared"] = printed(memlab.MemReporter(container).report, verbose=True)
    del container, second, linear, batch
    lstm = torch.nn.LSTM(1024, 1024).cuda()
    answers["lstm"] = printed(memlab.MemReporter(lstm).report, verbose=True)


def main() -> None:
    torch.manual_seed(1)
    warm = torch.nn.Linear(8, 8).cuda()
    warm(torch.ones(2, 8, device="cuda")).sum().backward()  # cuBLAS takes what it keeps
    del warm
    profiler_examples()
    reporter_examples()
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(512, 1024, device="cuda")
    with memlab.LineProfiler(train) as profiler:
        loss = train(model, optimizer, batch)
    print(f"{loss:.4f}")
    rows = profiler.display(columns=COLUMNS).records
    if rows:
        answers.update(lines=rows["train"], asked=asked)
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump(answers, file)


main()
