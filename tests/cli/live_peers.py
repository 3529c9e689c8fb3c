"""Processes that answer on memlab's control channel as a recorded one does (interpose/control/protocol.hpp), for the
tests of what asks them: any number, with any figures, and with the manners that a test wants.

    live_peers.py SPEC    is such a process; SPEC is JSON
"""

import json
import os
import socket
import subprocess
import sys
import time

GIB = 1 << 30
MIB = 1 << 20
# As the simulated driver's and NVML's.
UUID = "GPU-73696d63-7564-6100-0000-0000000000%02x"


def status(spec, pid, requests):
    allocated = spec["allocated"] + spec.get("growth", 0) * requests
    reserved = max(spec["reserved"], allocated)
    gpu = {"gpu": 0, "uuid": UUID % spec.get("gpu", 0), "name": "Simulated GPU", "allocated_bytes": allocated,
           "max_allocated_bytes": allocated, "reserved_bytes": reserved, "max_reserved_bytes": reserved,
           "cached_bytes": reserved - allocated, "tensor_bytes": spec.get("tensors"),
           "max_tensor_bytes": spec.get("tensors"), "allocation_count": 40 + requests, "live_count": 12,
           "free_bytes": 60 * GIB, "total_bytes": 80 * GIB, "limit_bytes": spec.get("limit")}
    return {"format": "memlab-status", "version": 1, "memlab_version": "1.2.3", "pid": pid, "host": "node1",
            "executable": "/usr/bin/python3", "arguments": spec["arguments"], "rank": spec.get("rank"),
            "start_wall_ns": 1764000000000000000, "duration_ns": 5000000000, "recording": True, "report": None,
            "log": None, "pooling": True, "stack_depth": 32, "gpus": [gpu], "pinned_bytes": 3 * MIB,
            "max_pinned_bytes": 3 * MIB, "managed_bytes": 0, "max_managed_bytes": 0,
            "oom_count": spec.get("ooms", 0), "step_count": spec.get("steps", 0) + requests,
            "latest_mark": spec.get("mark"), "at_least": False,
            "hold_on_oom": {"on": False, "timeout_s": 600, "waiting": 0, "since_ns": None, "requested_bytes": None,
                            "gpu": None},
            "step_aside": {"phase": "off", "since_ns": None, "away_bytes": 0, "waiting": 0, "short_of_memory": False}}


def frame(function, line):
    return {"function": function, "file": "/src/train.py", "line": line}


def interval(spec, since_mark):
    held = (("forward", 42, spec["allocated"] // 2), ("backward", 43, spec["allocated"] // 4))
    sites = [] if since_mark and not spec.get("mark") else [
        {"bytes": share, "count": 3, "gpu": 0, "allocator": "PyTorch", "kind": "device", "api": "cudaMalloc",
         "frames": [frame(function, line), frame("train", 20), frame("main", 10)]}
        for function, line, share in held]
    if since_mark:
        sites = sites[:1]
    nn_modules = [{"name": "encoder.layers.%d.linear" % layer, "class": "Linear", "bytes": (9 - layer) * MIB,
                   "count": 2} for layer in range(8)]
    zeros = ("begin_ns", "end_ns", "begin_bytes", "end_bytes", "peak_bytes", "peak_time_ns", "allocated_count",
             "allocated_bytes", "freed_count", "freed_bytes", "library_count", "library_bytes", "own_growth_bytes",
             "begin_moment", "peak_moment", "end_moment")
    return {"format": "memlab-interval", "version": 1, "at_least": False, "sites": sites, "other_sites": 2,
            "other_count": 5, "other_bytes": MIB, "nn_modules": nn_modules,
            "gpus": [{"gpu": 0, "name": "Simulated GPU"}], "build_ids": [], **dict.fromkeys(zeros, 0)}


def pool(spec):
    segment = {"bytes": spec["reserved"] // 2, "active_bytes": spec["allocated"] // 2, "pending_bytes": 0,
               "block_count": 3, "picture": "#" * 40 + "." * 24}
    return {"format": "memlab-live-pool", "version": 1, "gpus": [
        {"gpu": 0, "segment_count": 2, "reserved_bytes": spec["reserved"], "active_bytes": spec["allocated"],
         "pending_bytes": 0, "empty_count": 0, "empty_bytes": 0, "segments": [segment, segment]}]}


class Peer:
    """The process itself."""

    def __init__(self, spec):
        self.spec = spec
        self.requests = 0
        self.yields = []  # who has asked, of a peer that steps aside when it is called back

    def answer(self, line):
        verb, *arguments = line.split("\t")
        if verb == "status":
            self.requests += 1
            return status(self.spec, os.getpid(), self.requests)
        if verb in ("sites", "nn-modules"):
            return interval(self.spec, "since-mark" in arguments)
        if verb == "pool":
            return pool(self.spec)
        if verb == "mark":
            self.spec["mark"] = arguments[0]
        with open(self.spec["log"], "a", encoding="utf-8") as log:
            log.write("\t".join([verb, *arguments]) + "\n")
        return {"format": "memlab-action", "version": 1, "verb": verb, "text": "%s is done" % verb, "path": None,
                "bytes": None}

    def serve(self):
        folder = os.path.join(os.environ["XDG_RUNTIME_DIR"], "memlab")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(os.path.join(folder, "%d.sock" % os.getpid()))
        listener.listen(16)
        print("ready", flush=True)
        clients = {}
        import select
        while True:
            for ready in select.select([listener, *clients], [], [])[0]:
                if ready is listener:
                    clients[listener.accept()[0]] = b""
                    continue
                try:
                    data = ready.recv(4096)
                except ConnectionError:
                    data = b""
                if not data:
                    del clients[ready]
                    ready.close()
                    continue
                *lines, clients[ready] = (clients[ready] + data).split(b"\n")
                for line in lines:
                    text = json.dumps(self.answer(line.decode())).encode()
                    if line == b"yield" and self.spec.get("yields_slowly"):
                        self.yields.append((ready, text))
                        continue
                    late, self.yields = (self.yields, []) if line == b"restore" else ([], self.yields)
                    for client, reply in [(ready, text), *late]:
                        client.sendall(b"ok %d\n%s" % (len(reply), reply))


class Peers:
    """Starts peers for a test, and ends them. `environment` is for what looks at them."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {"XDG_RUNTIME_DIR": folder}
        self.processes = []

    def start(self, count=1, **spec):
        spec = {"allocated": 12 * GIB, "reserved": 20 * GIB, "arguments": ["python3", "train.py", "--epochs", "3"],
                "log": os.path.join(self.folder, "asked.txt"), **spec}
        new = [subprocess.Popen([sys.executable, "-B", os.path.abspath(__file__), json.dumps(spec)],
                                stdout=subprocess.PIPE, env={**os.environ, **self.environment})
               for _ in range(count)]
        for process in new:
            assert process.stdout.readline() == b"ready\n"
        self.processes += new
        return [process.pid for process in new]

    def asked(self):
        """What they were asked to do, without their figures."""
        path = os.path.join(self.folder, "asked.txt")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as log:
            return log.read().splitlines()

    def wait_for_asked(self, what, patience=10):
        end = time.monotonic() + patience
        while what not in self.asked() and time.monotonic() < end:
            time.sleep(0.05)
        return self.asked()

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()


if __name__ == "__main__":
    Peer(json.loads(sys.argv[1])).serve()
