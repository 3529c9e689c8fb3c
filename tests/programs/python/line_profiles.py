"""The line profiler and the reporter of memlab, used as pytorch_memlab's are. Prints what they say as JSON.

usage: line_profiles.py lines | kinds | gpus | forks | traced | every | chosen | reporter | nothing
"""

import asyncio
import contextlib
import functools
import io
import json
import os
import signal
import sys
import threading
import warnings

import memlab
import torch
from memlab_context import start

COLUMNS = ("allocated_bytes.all.current", "reserved_bytes.all.current", "allocated_bytes.all.peak", "active_bytes.all.peak",
           "line_bytes.all.made", "line_bytes.all.kept", "allocation.all.freed", "requested_bytes.all.current")
MIB = 1 << 20


def tensor(mebibytes, gpu=0):
    return torch.Tensor(mebibytes * MIB // 4, gpu=gpu)


def levels():
    stats = torch.cuda.memory_stats()
    return [stats[key + ".all.current"] for key in ("allocated_bytes", "reserved_bytes", "requested_bytes")]


def collected(profiler, *chosen):
    """By function, the lines counted from its first."""
    shown = profiler.display(list(chosen) or None, COLUMNS)
    return {name.split(".")[-1]: {line - min(rows): row for line, row in rows.items()} for name, rows in shown.records.items()}


seen = []


def work(keep):
    first = tensor(3); seen.append(levels())
    second = (tensor(2), tensor(5), None)[2]; seen.append(levels())
    for size in (1, 4):
        third = tensor(size); seen.append(levels())
    first = None; seen.append(levels())
    inner(); seen.append(levels())
    keep.append(third); seen.append(levels())


def inner():
    tensor(8)


def lines():
    keep = []
    with memlab.LineProfiler(work, inner) as profiler:
        work(keep)
    once = collected(profiler)
    work(keep)  # not while it is disabled
    assert collected(profiler) == once
    return {"lines": once, "seen": seen[:len(seen) // 2], "text": str(profiler.display()), "html": profiler.display()._repr_html_()}


class Net:
    def forward(self):
        self.kept = tensor(2)
        return self.kept


def generator(count):
    for size in range(1, count + 1):
        held = tensor(size)
        yield size
    return held


async def waits():
    held = tensor(2)
    await asyncio.sleep(0)
    held = None
    return held


def raises():
    held = tensor(3)
    raise KeyError(held is None)


def recursive(depth):
    held = tensor(1)
    if depth:
        recursive(depth - 1)
    return held


def kinds():
    net = Net()

    def nested():
        return tensor(1)

    @functools.wraps(nested)
    def decorated():
        return nested()

    with memlab.LineProfiler(net.forward, generator, waits, raises, recursive, decorated) as profiler:
        net.forward()
        net.kept = None
        between = [tensor(10) for _ in generator(2)]
        del between
        abandoned = generator(2)
        next(abandoned)
        abandoned.close()
        asyncio.run(waits())
        with contextlib.suppress(KeyError):
            raises()
        recursive(2)
        decorated()
        with contextlib.suppress(RuntimeError):
            thrown = generator(1)
            next(thrown)
            thrown.throw(RuntimeError("thrown"))
    return collected(profiler)


@memlab.profile
def two_gpus():
    first = tensor(3)
    memlab.set_target_gpu(1)
    second = tensor(2, gpu=1)
    memlab.set_target_gpu(torch.device("cuda", 0))
    third = tensor(4)
    del first, second, third


def gpus():
    two_gpus()
    return collected(memlab._line_profiler._global_profiler)


def every():
    @memlab.profile_every(2)
    def counted():
        tensor(1)

    @memlab.profile_every(enable=False)
    def uncounted():
        tensor(1)

    @memlab.profile_every(1, columns=("segment.all.current",))
    def yields():
        yield tensor(1)

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        for _ in range(5):
            counted()
        uncounted()
        list(yields())
    own = memlab.LineProfiler(counted)
    with own:
        counted()
    memlab.clear_global_line_profiler()
    counted()
    return {"text": text.getvalue(), "own": collected(own)}


def forks():
    """While another thread reads figures; the child goes on."""
    profiler = memlab.LineProfiler(inner)
    followed = memlab._line_profiler._followed
    held, over = threading.Event(), threading.Event()

    def hold():
        with followed.lock:
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    profiler.enable()
    thread.start()
    held.wait()
    warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        harmless()
        os._exit(7)
    over.set()
    thread.join()
    inner()
    return {"inner": collected(profiler)["inner"], "child": os.waitpid(child, 0)[1] >> 8}


def harmless():
    """Of no CUDA, which a forked child may not use."""
    with memlab.LineProfiler(nothing_new) as profiler:
        nothing_new()
    return profiler


def nothing_new():
    return 0


def traced():
    """Another trace function, a debugger's, before, during and after."""
    others = []

    def trace(frame, event, argument):
        if frame.f_code is inner.__code__:
            others.append(event)
            return trace

    sys.settrace(trace)
    inner()
    with memlab.LineProfiler(inner) as profiler:
        inner()
    inner()
    memlab.clear_global_line_profiler()  # nothing is profiled any more
    assert sys.gettrace() is trace
    sys.settrace(None)
    return {"inner": collected(profiler)["inner"], "others": others}


def refused(work):
    try:
        work()
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def chosen():
    profiler = memlab.LineProfiler(work)
    profiler.add_function(inner)
    none = [str(profiler.display()), profiler.display()._repr_html_()]
    profiler.enable()
    work([])
    profiler.disable()
    text = io.StringIO()
    profiler.print_stats("inner", ["allocation.all.peak"], text)
    answers = {"none": none, "by_name": sorted(collected(profiler, "work")), "by_function": sorted(collected(profiler, inner)),
               "by_list": sorted(collected(profiler, "work", "inner")), "stream": text.getvalue(),
               "refused": [refused(lambda: profiler.display(columns=["no.such.column"])),
                           refused(lambda: profiler.display(columns=["active_bytes"])),
                           refused(lambda: profiler.display("absent")), refused(lambda: memlab.set_target_gpu("cpu")),
                           refused(lambda: memlab.MemReporter([])), refused(lambda: memlab.profile_every(0))]}
    profiler.clear()
    return {**answers, "cleared": str(profiler.display())}


def of_cpp():
    return torch.UntypedStorage(2 * MIB)


def reporter():
    weight, bias = torch.Parameter(1024, 1024), torch.Parameter(1024)
    model = torch.Module([("weight", weight), ("bias", bias)], [("mask", torch.Tensor(7))])
    optimizer = torch.Adam([weight])
    says = memlab.MemReporter(model, pre_collect=True)
    says.add_optimizer(optimizer)

    def report(**arguments):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            says.report(**arguments)
        return text.getvalue()

    answers = {"first": report()}
    view = torch.Tensor(512, storage=weight.untyped_storage())
    weight.grad = torch.Tensor(1024, 1024)
    optimizer.step()
    answers["verbose"] = report(verbose=True)
    answers["plain"] = report()
    held = of_cpp()
    there = torch.Tensor(16, gpu=1)
    sparse = torch.SparseTensor(4, 4)
    answers["held"] = report(device=torch.device("cuda:0"))
    answers["other"] = report(device=1)
    del view, held, there, sparse
    return answers


def nothing():
    with memlab.LineProfiler(inner) as profiler:
        inner_of = memlab.profile(lambda: 2)
    memlab.profile_every()(inner_of)()
    return [str(profiler.display()), inner_of()]


if sys.argv[1] != "nothing":
    start()
print(json.dumps(globals()[sys.argv[1]]()))
