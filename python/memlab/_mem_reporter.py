"""PyTorch's tensors that Python knows, by name, with the memory of their storages; and what C++ alone holds."""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import weakref
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from . import _library
from ._line_table import readable_size
from ._peak import Site

_WIDTH = 79
_ROW = "{:<40s}{:>20s}{:>10s}"
_BLOCK = 512  # PyTorch's cache hands out multiples of it
_HOLDERS = 10  # call sites that are shown
# Libraries that allocate for others: who asked them is of interest.
_ALLOCATORS = ("libmemlab", "libcuda.so", "libcudart", "libc10")
_PARTS_OF_SPARSE = {"torch.sparse_coo": ("_indices", "_values"),
                    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
                    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
                    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
                    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values")}


class _Entry(NamedTuple):
    """A line of the table."""

    name: str
    size: str
    elements: int
    bytes: int  #: 0 of a storage that an earlier line has
    shares: Optional[str]  #: the name of that line
    address: int


class _Names:
    """Of live tensors. A tensor that is gone leaves its name to none that comes to lie where it was."""

    def __init__(self) -> None:
        self._by_id: Dict[int, Tuple[Any, str]] = {}
        self._unnamed = 0

    def give(self, tensor: Any, name: str) -> None:
        self._by_id[id(tensor)] = (weakref.ref(tensor), name)

    def known(self, tensor: Any) -> Optional[str]:
        reference, name = self._by_id.get(id(tensor), (None, ""))
        return name if reference is not None and reference() is tensor else None

    def of(self, tensor: Any) -> str:
        name = self.known(tensor)
        if name is None:
            name = f"{type(tensor).__name__}{self._unnamed}"
            self._unnamed += 1
            self.give(tensor, name)
        return name

    def forget_ended(self) -> None:
        self._by_id = {key: value for key, value in self._by_id.items() if value[0]() is not None}


class MemReporter:
    """Prints the tensors that Python knows, by device:

        reporter = memlab.MemReporter(model)
        reporter.add_optimizer(optimizer)
        reporter.report()

    Parameters and buffers of `model` have their qualified names, gradients that of their parameter with `.grad`, an
    optimizer's state "Adam.weight.exp_avg", other tensors numbers. The memory is that of their storages, each counted for
    the first tensor that has it. Under memlab the tensors that C++ alone holds, as what autograd keeps for backward, are
    listed by the line and the library that allocated them. `pre_collect` runs Python's garbage collector before.
    """

    def __init__(self, model: Any = None, pre_collect: bool = False) -> None:
        self._names = _Names()
        self._pre_collect = pre_collect
        self._optimizers: List[Any] = []
        self._first: List[Any] = []  # weak references to what the model has, in its order
        if model is None:
            return
        if not all(callable(getattr(model, each, None)) for each in ("named_parameters", "named_buffers")):
            raise TypeError(f"memlab.MemReporter takes a torch.nn.Module, not {type(model).__name__}")
        for named in (model.named_parameters(), model.named_buffers()):
            for name, tensor in named:
                known = self._names.known(tensor)
                self._names.give(tensor, name if known is None else f"{known}+{name}")
                if known is None:
                    self._first.append(weakref.ref(tensor))

    def add_optimizer(self, optimizer: Any) -> None:
        """Names its state, also what it has only after a step that is yet to come."""
        if not hasattr(optimizer, "state"):
            raise TypeError(f"add_optimizer takes a torch.optim.Optimizer, not {type(optimizer).__name__}")
        self._optimizers.append(weakref.ref(optimizer))

    def report(self, verbose: bool = False, device: Any = None) -> None:
        """Prints the tensors of each device, or of one (a torch.device, its name or a GPU's number). `verbose` shows whose
        storage a tensor shares: "bias(->weight)"."""
        torch = importlib.import_module("torch")
        if self._pre_collect:
            gc.collect()
        self._names.forget_ended()
        self._name_states(torch)
        only = None if device is None else _device(torch, device)
        print(_ROW.format("Element type", "Size", "Used MEM"))
        for of, entries in self._entries(torch).items():
            if only is None or of == only:
                _print_device(torch, of, entries, verbose)

    def _name_states(self, torch: Any) -> None:
        for optimizer in (reference() for reference in self._optimizers):
            if optimizer is None:
                continue
            for parameter, states in optimizer.state.items():
                for name, value in states.items() if isinstance(states, dict) else ():
                    if _is_tensor(torch, value) and self._names.known(value) is None:
                        self._names.give(value, f"{type(optimizer).__name__}.{self._names.of(parameter)}.{name}")

    def _tensors(self, torch: Any) -> Iterator[Any]:
        """Each once: the model's first."""
        seen: Set[int] = set()
        for tensor in [*(each for each in (reference() for reference in self._first) if each is not None),
                       *(each for each in gc.get_objects() if _is_tensor(torch, each))]:
            for each, suffix in ((tensor, ""), (_gradient(tensor), ".grad")):
                if each is None:
                    continue
                local = getattr(each, "_local_tensor", each)  # a DTensor's part of this process
                if suffix and self._names.known(each) is None:
                    self._names.give(each, self._names.of(tensor) + suffix)
                if local is not each and self._names.known(local) is None:
                    self._names.give(local, self._names.of(each))
                if id(local) not in seen:
                    seen.add(id(local))
                    yield local

    def _entries(self, torch: Any) -> Dict[str, List[_Entry]]:
        found: Dict[str, List[_Entry]] = {}
        storages: Dict[Tuple[str, int], str] = {}
        for tensor in self._tensors(torch):
            device = str(tensor.device)
            try:
                if device == "meta" or int(tensor.numel()) == 0:
                    continue
            except RuntimeError:  # a size that is only known as a symbol
                continue
            parts = _PARTS_OF_SPARSE.get(str(getattr(tensor, "layout", "")))
            for name, part in [(self._names.of(tensor), tensor)] if parts is None else self._parts(tensor, parts):
                entry = _entry(name, part, device, storages)
                if entry is not None:
                    found.setdefault(device, []).append(entry)
        return found

    def _parts(self, tensor: Any, parts: Tuple[str, ...]) -> List[Tuple[str, Any]]:
        plain = tensor.detach()
        return [(f"{self._names.of(tensor)}.{part.strip('_')}", getattr(plain, part)()) for part in parts]


def _is_tensor(torch: Any, value: Any) -> bool:
    return issubclass(type(value), torch.Tensor)  # isinstance() would run the __class__ of lazy objects


def _gradient(tensor: Any) -> Any:
    """None where there is none, and where PyTorch would warn of asking."""
    return tensor.grad if tensor.requires_grad and tensor.is_leaf else None


def _device(torch: Any, device: Any) -> str:
    name = f"cuda:{device}" if isinstance(device, int) else str(device)
    return f"cuda:{torch.cuda.current_device()}" if name == "cuda" else name


def _entry(name: str, tensor: Any, device: str, storages: Dict[Tuple[str, int], str]) -> Optional[_Entry]:
    try:
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        size, address = int(storage.nbytes()), int(storage.data_ptr())
    except (RuntimeError, NotImplementedError):  # of a kind without memory of its own
        return None
    size = -(-size // _BLOCK) * _BLOCK
    shares = storages.get((device, address)) if address else None
    if shares is None:
        storages[device, address] = name
    return _Entry(name, str(tuple(int(each) for each in tensor.size()) or (1,)), int(tensor.numel()), 0 if shares is not None else size, shares, address)


def _print_device(torch: Any, device: str, entries: List[_Entry], verbose: bool) -> None:
    print("-" * _WIDTH)
    print(f"Storage on {device}")
    for entry in entries:
        name = f"{entry.name}(->{entry.shares})" if verbose and entry.shares is not None else entry.name
        print(_ROW.format(name, entry.size, readable_size(entry.bytes)))
    total = sum(entry.bytes for entry in entries)
    print("-" * _WIDTH)
    print(f"Total Tensors: {sum(entry.elements for entry in entries)} \tUsed Memory: {readable_size(total)}")
    if device.startswith("cuda:"):
        allocated = int(torch.cuda.memory_allocated(int(device[5:])))
        print(f"The allocated memory on {device}: {readable_size(allocated)}")
        if allocated != total:
            _print_others(int(device[5:]), entries, allocated - total)
    print("-" * _WIDTH)


def _print_others(gpu: int, entries: List[_Entry], difference: int) -> None:
    """What the cache handed out beside the storages of these tensors: `difference` bytes."""
    addresses = [entry.address for entry in entries if entry.address]
    known = (ctypes.c_uint64 * len(addresses))(*addresses)
    text = _library.filled("cache_holders", gpu, known, len(addresses), _HOLDERS, room=_library.LARGE)
    if text is None:
        print(f"Memory differs by {readable_size(difference)}: blocks are larger than their tensors, or C++ alone holds some "
              "(memlab tells which)")
        return
    document = json.loads(text)
    held = document["peak_bytes"]
    if held:
        print(f"Held by C++ alone: {readable_size(held)}")
    for site in document["sites"]:
        print(_ROW.format(*_describe(Site.of(site)), readable_size(site["bytes"])))
    if document["other_bytes"]:
        print(_ROW.format(f"{document['other_sites']} other call sites", "", readable_size(document["other_bytes"])))
    if difference != held:
        print(f"Blocks are larger than their tensors by: {readable_size(difference - held)}")


def _describe(site: Site) -> Tuple[str, str]:
    """The line that allocated it, and the library that asked for it."""
    place = site.place
    line = site.api if place is None else str(place)
    if place is not None and place.file is not None:
        line = f"{os.path.basename(place.file)}:{place.line} {place.function}"
    libraries = [os.path.basename(frame.module) for frame in site.frames if frame.module]
    asking = [library for library in libraries if not library.startswith(_ALLOCATORS)] or libraries or [""]
    return line[:39], asking[0][:19]
