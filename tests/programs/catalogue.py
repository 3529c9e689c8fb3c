"""Every run of a test program and what must be recorded of it.

tests/interpose runs the catalogue on the simulated driver, tests/gpu on a real one. The figures are
those that each program's source says on top.
"""

from __future__ import annotations

from dataclasses import dataclass, field


# Ways of tests/programs/shares.cpp with memlab's own handles: the same as with the driver's, and what
# plain CUDA leaves open.
SHARES_AS_PLAIN_CUDA = ("range", "twice", "large", "own")
SHARES_REFUSED = {"freed": 400, "dead": 205, "stopped": 205}


@dataclass(frozen=True)
class Kind:
    """Allocations of one kind of memory in one recording.

    `requested` is the sum of what was asked for, None where it depends on the device. Live is what
    is neither freed nor lost with its context. With `at_least` the count is a lower bound and `live`
    an upper one.
    """

    count: int
    frees: int | None = None
    requested: int | None = None
    lost: int = 0
    at_least: bool = False
    live: int | None = None

    @property
    def live_count(self) -> int:
        if self.live is not None:
            return self.live
        return self.count - (self.count if self.frees is None else self.frees) - self.lost


@dataclass(frozen=True)
class Recording:
    """What one process image must leave behind."""

    device: Kind | None = None
    others: dict[str, Kind] = field(default_factory=dict)
    ended: str = "exit"
    ooms: int = 0
    missed: int = 0  # how many reasons the report gives for what memlab could not do

    @property
    def kinds(self) -> dict[str, Kind]:
        return ({"device": self.device} if self.device else {}) | self.others


@dataclass(frozen=True)
class Case:
    """One run: `code` is the exit code, negative for a signal. `recordings` in any order; None where
    what is recorded is not determined."""

    name: str
    command: tuple[str, ...]
    code: int = 0
    recordings: tuple[Recording, ...] | None = ()
    group: str = "memory"
    static_runtime: bool = False
    # memlab may warn on stderr: the program does what memlab can only warn of, or runs out of memory.
    may_warn: bool = False
    # Why the real driver cannot run it, with or without memlab; empty where it can.
    not_on_gpu: str = ""
    preload: tuple[str, ...] = ()
    # GPUs that it needs; the simulated driver has as many.
    gpus: int = 1
    # Whether the recordings are looked at: not where what the program does costs a part of them.
    judged: bool = True
    settings: tuple[tuple[str, str], ...] = ()


def _ends() -> list[Case]:
    clean = {"return": 7, "exit": 8, "pthread_exit": 0}
    killed = {"_exit": 9, "abort": -6, "sigkill": -9, "sigterm": -15, "sigsegv": -11, "throw": -6}
    device = Kind(3, 1, 3_000_000)
    hangs = "a real driver's own threads keep the process alive"
    cases = [Case(f"ends by {way}", ("ways_to_end", way), code, (Recording(device),), "ends",
                  not_on_gpu=hangs if way == "pthread_exit" else "")
             for way, code in clean.items()]
    cases += [Case(f"ends by {way}", ("ways_to_end", way), code,
                   (Recording(device, ended="cut off"),), "ends")
              for way, code in killed.items()]
    cases += [Case(f"interrupted: {way}", ("interrupted", way, times), 0, None, "ends",
                   may_warn=way in ("other", "thread"), judged=False,
                   not_on_gpu="a real driver's end may need the heap" if way == "heap" else "")
              for way, times in (("exit", "20"), ("quick_exit", "10"), ("alternate", "10"),
                                 ("heap", "10"), ("waiting", "2"), ("other", "4"), ("thread", "4"))]
    cases.append(Case("cancelled threads", ("cancelled", "50"), 0,
                      (Recording(Kind(51, at_least=True, live=150)),), "ends"))
    cases.append(Case("cancelled threads, beside memory that goes back", ("cancelled", "50"), 0,
                      (Recording(Kind(51, at_least=True, live=150)),), "ends",
                      settings=(("MEMLAB_TRIM_AFTER", "5ms"),)))
    cases.append(Case("ends by quick_exit", ("ways_to_end", "quick_exit"), 10,
                      (Recording(device, ended="quick_exit"),), "ends"))
    return cases


def _processes() -> list[Case]:
    parent = Recording(Kind(2, 1, 1_400_000))
    told = Recording(Kind(2, 1, 1_400_000), missed=1)  # of the children's attempts
    child = Recording(Kind(3, 3, 900_000))
    return [
        Case("fork before CUDA", ("forks", "before"), 0, (parent,), "processes"),
        Case("fork after CUDA, child exits", ("forks", "after-exit"), 0, (parent,), "processes"),
        Case("fork after CUDA, child _exits", ("forks", "after-_exit"), 0, (parent,), "processes"),
        Case("clone after CUDA, child uses it", ("forks", "after-clone"), 0, (parent,), "processes",
             not_on_gpu="a real driver does not survive it, and need not say so"),
        Case("fork after CUDA, child uses it", ("forks", "after-use"), 0, (told,), "processes",
             may_warn=True),
        Case("fork after CUDA, many children use it", ("forks", "after-many-use"), 0, (told,),
             "processes", may_warn=True),
        Case("runtime API after a fork, shared", ("runtime_fork",), 0, (told,), "processes",
             may_warn=True),
        Case("runtime API after a fork, static", ("runtime_fork_static",), 0, (told,), "processes",
             static_runtime=True, may_warn=True),
        Case("CUDA in the child only", ("forks", "child"), 0, (child,), "processes"),
        Case("CUDA in child and parent", ("forks", "both"), 0, (child, parent), "processes"),
        Case("CUDA in a grandchild", ("forks", "grandchild"), 0, (child,), "processes"),
        Case("200 children", ("forks", "many"), 0, (), "processes"),
        Case("200 children of a CUDA program", ("forks", "many-after"), 0, (parent,), "processes"),
        Case("exec after CUDA", ("execs",), 0,
             (Recording(Kind(1, 0, 111_000), ended="cut off"), Recording(Kind(2, 1, 444_000))),
             "processes"),
        Case("system and popen", ("spawns",), 0, (Recording(Kind(1, 1, 50_000)),), "processes"),
    ]


def _threads_requested() -> int:
    total = 8 * 12345
    for number in range(8):
        for step in range(200):
            total += number * 1000 + step + 1
            total += 1_500_000 + number * 100_000 + step
    return total


def _spin_requested() -> int:
    sizes = 1000 + (100 << 10) + (3 << 20) + (30 << 20)
    return (19 + 8 + 2 * 4) * sizes


def _two_gpus_requested() -> int:
    return 4 * (64 << 20) + (40 * 2 * 2 + 20 * 2 * 2 + 3 + 1) * (3 << 20)


BESIDE_CAPTURES = ("relaxed", "exchanged", "other_thread", "create", "freed", "thread_ends",
                   "never_ended", "stream", "joined", "invalidated", "legacy", "handle")
BESIDE_A_KERNEL = ("malloc", "impossible", "host", "async", "create", "array")
PRINTED = ("at_once", "busy", "done", "pair", "again", "other_context", "in_capture", "after_capture")
FAULTS_TOLD_BY = ("stream_query", "event_query", "record", "elapsed", "synchronize")


def _memory() -> list[Case]:
    kinds = {"managed": Kind(1, 1, 20_000), "pinned": Kind(3, 3, 78_192), "array": Kind(3, 3),
             "async_pool": Kind(2, 2, 110_000), "vmm": Kind(1, 1)}
    kept = {name: Kind(kind.count, 0, kind.requested) for name, kind in kinds.items()}
    runtime = Recording(Kind(4, 4), {"managed": Kind(1, 1, 20_000), "pinned": Kind(2, 2, 70_000),
                                     "async_pool": Kind(1, 1, 50_000), "array": Kind(1, 1)}, ooms=1)
    reset = Recording(Kind(3, 1, 1_900_000, lost=2))
    graph_copies = Recording(Kind(2 * 3 + 12 * 7 * 2, requested=4 * (64 << 20) + (2 + 12 * 7 * 2) * (3 << 20)))
    ipc_peers = Recording(Kind(2 * 2 + 3 * 8 * 2, requested=4 * (64 << 20) + 3 * 8 * 2 * (3 << 20)),
                          {"ipc_import": Kind(1, 1, 2 << 20)})
    two_gpus = Recording(Kind(248, 245, _two_gpus_requested(), lost=3),
                         {"pinned": Kind(1, 1, 3 << 20)})
    return [
        Case("a class of buffers", ("device_buffer",), 0, (Recording(Kind(3, 3, 28 << 20)),)),
        Case("many sizes", ("malloc_free",), 0, (Recording(Kind(101, 51, 35_050_000)),)),
        *(Case(f"system calls refused with {error}", ("sandboxed", error), 0, (Recording(Kind(20_000, 20_000, 20_000 * 4096)),),
               not_on_gpu="a real driver needs some of them") for error in ("EPERM", "ENOSYS")),
        Case("memory made synchronous", ("synchronous",), 0, (Recording(Kind(1, 1, 3 << 20), missed=1),)),
        Case("stacks of 56 KiB", ("small_stack",), 0,
             (Recording(Kind(65, 33, lost=32), ooms=1),), may_warn=True),
        Case("stacks of 56 KiB, the end too", ("small_stack", "exit"), 5,
             (Recording(Kind(65, 33, lost=32), ooms=1),), may_warn=True),
        Case("longjmp and exceptions", ("jumps",), 0, (Recording(Kind(200, 200, 1_000_000)),)),
        Case("plugin", ("plugin_host",), 0, (Recording(Kind(4, 3, 200_000)),)),
        Case("plugin whose constructor waits for an allocating thread, first", ("plugin_host", "warm"),
             0, (Recording(Kind(5, 4, 207_000)),),
             not_on_gpu="a real driver's first call itself waits for the loader"),
        Case("plugin whose constructor waits for an allocating thread, last",
             ("plugin_host", "warmed"), 0, (Recording(Kind(5, 4, 207_000)),)),
        Case("plugin with RTLD_DEEPBIND", ("plugin_host", "deepbind"), 0, None, may_warn=True),
        Case("resolving as the runtime does", ("resolve",), 0,
             (Recording(Kind(2, 2, 30_000), {"async_pool": Kind(2, 2, 70_000)}),)),
        Case("static and thread-local lifetimes", ("static_lifetime",), 0,
             (Recording(Kind(6, 5, 21_000)),)),
        Case("threads that outlive main", ("outlive_main",), 0,
             (Recording(Kind(400, at_least=True, live=4)),)),
        Case("eight threads", ("threads",), 0,
             (Recording(Kind(3208, 3200, _threads_requested())),)),
        Case("threads that wait for the device", ("waits",), 0,
             (Recording(Kind(33_600, 33_600, 33_600 * 4096)),)),
        Case("contents", ("contents",), 0, (Recording(Kind(1000, at_least=True, live=0)),)),
        Case("every kind", ("kinds",), 0, (Recording(Kind(2, 2), kinds),)),
        Case("every kind, kept", ("kinds", "keep"), 0, (Recording(Kind(2, 0), kept),)),
        Case("every kind, per-thread streams", ("kinds_ptsz",), 0, (Recording(Kind(2, 2), kinds),)),
        Case("frees across families", ("cross_family",), 0,
             (Recording(Kind(1, 1, 80_000), {"async_pool": Kind(1, 1, 70_000)}),)),
        Case("wrong calls", ("bad_calls",), 0,
             (Recording(Kind(2, 2, 100_100), {"pinned": Kind(1, 1, 4096)}, ooms=2),),
             may_warn=True),
        Case("address ranges", ("address_range",), 0, (Recording(Kind(3, 3, 5_000_200)),)),
        Case("memory info", ("memory_info",), 0, (Recording(Kind(1, 1, 64 << 20)),)),
        Case("two contexts", ("contexts", "two"), 0, (Recording(Kind(7, 4, 1_200_000, lost=3)),)),
        Case("primary context reset", ("contexts", "reset"), 0,
             (Recording(Kind(3, 1, 1_300_000, lost=2)),)),
        Case("a context that another thread destroyed", ("contexts", "elsewhere"), 0,
             (Recording(Kind(3, 2, 1_900_000, lost=1)),)),
        Case("relaxed capture", ("captures", "relaxed"), 0, (Recording(Kind(5, 5, 450_000)),)),
        Case("global capture", ("captures", "global"), 0, (Recording(Kind(3, 3, 270_000)),)),
        Case("thread-local capture", ("captures", "thread_local"), 0,
             (Recording(Kind(3, 3, 270_000)),)),
        Case("out of memory", ("out_of_memory",), 0,
             (Recording(Kind(10, at_least=True, live=0), ooms=1),), may_warn=True),
        Case("frees in a stream that answers", ("stream_frees", "answer"), 0,
             (Recording(Kind(2, 2, 2 * (3 << 20)), {"pinned": Kind(1, 1, 64)}),)),
        Case("frees beside a kernel that goes on", ("stream_frees", "beside"), 0,
             (Recording(Kind(2, 2, 2 * (3 << 20)), {"pinned": Kind(1, 1, 64)}),)),
        Case("many frees beside a kernel that goes on", ("stream_frees", "churn"), 0,
             (Recording(Kind(301, 301, (3 << 20) + 300 * (8 << 20)), {"pinned": Kind(1, 1, 64)}),)),
        Case("a free in a callback", ("nested_frees",), 0,
             (Recording(Kind(6, 6, 4 * (3 << 20) + (64 << 20) + (3 << 20))),)),
        Case("more frees in a callback than have room", ("nested_frees", "many"), 0,
             (Recording(Kind(601, 513, 600 * 1000 + (64 << 20)), missed=1),)),
        Case("frees in callbacks where contexts end", ("nested_frees", "ends"), 0,
             (Recording(Kind(12, 10, 12 * (3 << 20), lost=2)),)),
        *(Case(f"beside a capture: {way}", ("beside_captures", way), 0, None)
          for way in BESIDE_CAPTURES),
        *(Case(f"a fault that {way} tells of", ("told_of_faults", way), 0, None)
          for way in FAULTS_TOLD_BY),
        *(Case(f"freed memory beside a kernel that goes on: {what}", ("gives_way", "beside", what), 0,
               None, may_warn=what in ("impossible", "host")) for what in BESIDE_A_KERNEL),
        *(Case(f"freed memory for a graph: {way}", ("gives_way", "graph", way), 0, None)
          for way in ("upload", "launch")),
        Case("freed memory for whatever the driver makes", ("gives_way", "calls"), 0, None),
        *(Case(f"freed memory for a child: {how}", ("gives_way", "child", how), 0, None,
               settings=(("MEMLAB_TRIM_AFTER", "1s"),)) for how in ("fork", "vfork", "spawn")),
        Case("graphs that copy across contexts", ("graph_copies", "stream"), 0, (graph_copies,)),
        Case("graphs that cannot be made executable", ("graph_handles",), 0,
             (Recording(Kind(3, 2, 3 * ((3 << 20) - 12), lost=1)),)),
        Case("a context that ends while others free", ("peers_end", "peers"), 0, None),
        Case("a context that ends before a free is complete", ("peers_end", "pending"), 0, None),
        *(Case(f"contexts that end beside threads that allocate: {backend}", ("peers_end", "reused"), 0,
               (Recording(Kind(100, at_least=True, live=0), {"managed": Kind(100, at_least=True, live=0)}),),
               settings=(("MEMLAB_BACKEND", backend), ("MEMLAB_TRIM_AFTER", "5ms")))
          for backend in ("vmm", "classic")),
        Case("memory of a context that is released all the time", ("retains", "beside", "20"), 0, None),
        *(Case(f"a thread that is to sleep while it waits: {since}", ("sleeps", since), 0, None)
          for since in ("start", "later", "primary")),
        *(Case(f"what kernels print is seen after a free: {way}", ("device_printf", way), 0, None,
               settings=(("MEMLAB_FREE_SYNC", "auto"),)) for way in PRINTED),
        *(Case(f"the driver's error log: {ledger}", ("error_log",), 0, (Recording(Kind(1, requested=4)),),
               settings=(("MEMLAB_LEDGER", ledger),)) for ledger in ("auto", "on")),
        Case("a context that ends in a capture", ("peers_end", "capture"), 0, None),
        Case("work that waits for work", ("spin", "alloc"), 0,
             (Recording(Kind(116, 116, _spin_requested()), {"pinned": Kind(1, 1, 64)}),)),
        Case("runtime API, shared", ("runtime_api",), 0, (runtime,), may_warn=True),
        Case("runtime API, static", ("runtime_api_static",), 0, (runtime,), static_runtime=True,
             may_warn=True),
        Case("device reset, shared", ("device_reset",), 0, (reset,)),
        Case("device reset, static", ("device_reset_static",), 0, (reset,), static_runtime=True),
        *(Case(f"copies between GPUs: {backend}", ("copies_between_gpus",), 0,
               (Recording(Kind(4, requested=4 * 3 << 19)),), gpus=2, settings=(("MEMLAB_BACKEND", backend),))
          for backend in ("classic", "vmm")),
        Case("two GPUs, shared", ("two_gpus",), 0, (two_gpus,), gpus=2),
        Case("memory of a process on another GPU", ("ipc_peers", "stream"), 0, (ipc_peers,), gpus=2),
        Case("two GPUs, static", ("two_gpus_static",), 0, (two_gpus,), static_runtime=True, gpus=2),
    ]


def _descriptors() -> list[Case]:
    cases = [Case(f"descriptors: {way}", ("descriptors", way), 0, None, "bystanders",
                  may_warn=True, judged=False) for way in ("sweep", "stdout")]
    return cases + [Case(f"standard error: {way}", ("broken_stderr", way), 0,
                         (Recording(ooms=1),), "bystanders", may_warn=True)
                    for way in ("unread", "full", "reused", "closed")]


def _bystanders() -> list[Case]:
    return [
        Case("no CUDA", ("no_cuda",), 0, (), "bystanders"),
        Case("linked with CUDA only", ("linked_only",), 0, (), "bystanders"),
        Case("facts about dlsym", ("dlsym_facts",), 0, (), "bystanders"),
        Case("RTLD_NEXT of another preload", ("next_user",), 0, (), "bystanders",
             preload=("next_wrapper.so",)),
    ]


CASES: list[Case] = _ends() + _processes() + _memory() + _descriptors() + _bystanders()
