"""Names for the memory of a PyTorch model: of what its nn.Modules' calls allocate, and of its parameters and buffers."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Optional

from . import _library
from ._annotations import _address

_ends: Dict[int, Any] = {}  # weakref.finalize objects, by the address of an nn.Module that has a name


def watch(model: Any, name: str = "") -> Optional[int]:
    """Gives the memory of a model the names that its users know. Call it when the model is on the GPU, before it trains:

        model = Net().to("cuda")
        memlab.watch(model)

    What a call of one of its nn.Modules allocates, and what backward allocates for that call, has the module's qualified
    name ("encoder.layers.0.linear1") in `memlab-report nn-modules`. Its parameters and buffers on a GPU are labelled with
    theirs, those that share memory with all of theirs ("embedding.weight+head.weight").

    `name` tells several models apart: it comes before the qualified names ("teacher.encoder"). A model is watched as it
    is: call again after nn.Modules or parameters were added or replaced, or the model was copied or moved. Nothing is
    hooked in it, and its nn.Modules are not kept alive: a name ends with its object.

    Returns how many nn.Modules have a name; None without memlab, without recording, or before the first use of CUDA,
    after which it is to be called again. TypeError: `model` is no nn.Module. Any thread may call it.
    """
    if not all(callable(getattr(model, each, None)) for each in ("named_modules", "named_parameters", "named_buffers")):
        raise TypeError(f"memlab.watch takes a torch.nn.Module, not {type(model).__name__}")
    count = 0
    for qualified, module in model.named_modules():
        class_name = _library.text(type(module).__name__)
        if _library.call("nn_module", id(module), _library.text(_join(name, qualified)), class_name) != 0:
            return None
        count += 1
        if id(module) not in _ends:
            _ends[id(module)] = end = weakref.finalize(module, _ended, id(module))
            end.atexit = False
    for pointer, names in _tensors(model).items():
        _library.call("label", pointer, _library.text("+".join(_join(name, each) for each in names)))
    return count


def _join(name: str, qualified: str) -> str:
    return f"{name}.{qualified}" if name and qualified else name or qualified


def _ended(address: int) -> None:
    """The nn.Module there is gone; its memory is not another object's yet."""
    _ends.pop(address, None)
    _library.call("nn_module_end", address)


def _tensors(model: Any) -> Dict[int, List[str]]:
    """Names of parameters and buffers on a GPU, by where they are."""
    found: Dict[int, List[str]] = {}
    for named in (model.named_parameters, model.named_buffers):
        try:
            tensors = list(named(remove_duplicate=False))
        except TypeError:  # PyTorch before 2.0
            tensors = list(named())
        for qualified, tensor in tensors:
            local = getattr(tensor, "_local_tensor", tensor)  # a DTensor's part of this process
            if getattr(local, "is_cuda", False):
                found.setdefault(_address(local), []).append(qualified)
    return found
