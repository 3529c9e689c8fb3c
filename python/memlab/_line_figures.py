"""The figures of PyTorch's cache at the end of a line, with the keys of torch.cuda.memory_stats().

What the recorder knows is the recorder's: it follows each block, and keeps the peaks between two readings by itself, so
that PyTorch's own peaks need no reset. What only PyTorch knows is asked of it at that moment, and so are peaks of it: they
are the most at any end of a line.
"""

from __future__ import annotations

import ctypes
import operator
from typing import Dict, List, NamedTuple, Optional, Sequence

from . import _library
from ._gpu import pytorch

_POOLS = ("all", "large_pool", "small_pool")
_PARTS = ("allocated", "current", "freed", "peak")
_RECORDED = frozenset({"active", "active_bytes", "allocated_bytes", "allocation", "reserved_bytes", "segment"})
_ACTIVE = ("active", "active_bytes")
# What memlab_cache_stats() has, in its order: these, of one pool (or none), and counters.
_BY_POOL = ("active", "active_bytes", "allocated_bytes", "allocation", "inactive_split", "inactive_split_bytes")
_SINGLE = ("num_alloc_retries", "num_device_alloc", "num_device_free", "num_ooms", "num_sync_all_streams")
_OVERSIZE = ("oversize_allocations", "oversize_segments")
_LAST = ("requested_bytes", "reserved_bytes", "segment")


def _keys(names: Sequence[str]) -> List[str]:
    return [f"{name}.{pool}.{part}" for name in names for pool in _POOLS for part in _PARTS]


_ALL: List[str] = [*_keys(_BY_POOL), *_SINGLE, *(f"{name}.{part}" for name in _OVERSIZE for part in _PARTS), *_keys(_LAST)]
KEYS: List[str] = [*_keys(_BY_POOL), *_keys(_LAST)]  #: of a line's figures
_take = operator.itemgetter(*map(_ALL.index, KEYS))
KEYS_IN_SHORT = ".".join("{" + ",".join(parts) + "}" for parts in ((*_BY_POOL, *_LAST), _POOLS, _PARTS))
INDEX: Dict[str, int] = {key: at for at, key in enumerate(KEYS)}
_IS_RECORDED = [key.split(".")[0] in _RECORDED for key in KEYS]
ASKED = frozenset(key for key, recorded in zip(KEYS, _IS_RECORDED) if not recorded)  #: of PyTorch
PEAKS = [at for at, key in enumerate(KEYS) if key.endswith(".peak")]
SUMS = [at for at, key in enumerate(KEYS) if key.endswith((".allocated", ".freed"))]
_CURRENT = {at: INDEX[KEYS[at].replace(".peak", ".current")] for at in PEAKS}
_Array = ctypes.c_uint64 * len(_ALL)


class Reading(NamedTuple):
    """Of one GPU, at a moment."""

    values: List[int]  #: by KEYS
    asked_all: bool  #: the recorder has no such cache; all is PyTorch's
    asked: bool  #: PyTorch was asked: what is ASKED is known
    active_at_least: bool  #: blocks that other streams still use were active that memlab took for free

    def restarted(self) -> List[int]:
        """The values with which a line begins: its peaks are what is there."""
        values = list(self.values)
        for at, current in _CURRENT.items():
            values[at] = values[current]
        return values


def recorded() -> bool:
    """Whether the process runs under memlab; says so once if it does not."""
    return _library.call("cache_stats", -1, None, 0) is not None


def _ask(gpu: int) -> Optional[Dict[str, int]]:
    torch = pytorch()
    if torch is None or not 0 <= gpu < torch.cuda.device_count():
        return None
    try:
        answer: Dict[str, int] = torch.cuda.memory_stats(gpu)
    except RuntimeError:  # an error of CUDA's is for the program to meet
        return None
    return answer


def read(gpu: int) -> Reading:
    """Peaks are those since the previous reading of that GPU."""
    array = _Array()
    known = _library.call("cache_stats", gpu, array, len(_ALL)) == len(_ALL)
    values = list(_take(list(array)))
    answer = _ask(gpu)
    at_least = False
    if answer is not None:
        for at, key in enumerate(KEYS):
            if not known or not _IS_RECORDED[at]:
                values[at] = answer.get(key, 0)
        for at in PEAKS:
            if not known or not _IS_RECORDED[at]:
                values[at] = values[_CURRENT[at]]
        for pool in _POOLS if known else ():
            for name in _ACTIVE:
                current, peak = INDEX[f"{name}.{pool}.current"], INDEX[f"{name}.{pool}.peak"]
                more = answer.get(KEYS[current], 0)
                if more > values[current]:
                    at_least = True
                    values[current] = more
                    values[peak] = max(values[peak], more)
    asked_all = not known and answer is not None and any(values)
    return Reading(values, asked_all, answer is not None, at_least)
