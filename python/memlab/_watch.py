"""Names for the memory of a PyTorch model: of what its nn.Modules' calls allocate, and of its parameters and buffers."""

from __future__ import annotations

from typing import Any, Optional

from . import _nn_modules


def watch(model: Any, name: str = "") -> Optional[int]:
    """Gives the memory of a model the names that its users know. Call it when the model is on the GPU, before it trains:

        model = Net().to("cuda")
        memlab.watch(model)

    What a call of one of its nn.Modules allocates, and what backward allocates for that call, has the module's qualified
    name ("encoder.layers.0.linear1") in `memlab-report nn-modules`. Its parameters and buffers on a GPU are labelled with
    theirs, those that share memory with all of theirs ("embedding.weight+head.weight"). Parts of names that are of
    wrappers (DistributedDataParallel, torch.compile, FSDP, checkpoint_wrapper) are left out.

    `name` tells several models apart: it comes before the qualified names ("teacher.encoder"). A model is watched as it
    is: call again after nn.Modules or parameters were added or replaced, or the model was copied or moved. Nothing is
    hooked in it, and its nn.Modules are not kept alive: a name ends with its object. Where memlab names models by itself
    (MEMLAB_NAMES=auto), the model has this name in place of its class, and nothing is to be called again.

    Returns how many nn.Modules have a name; None without memlab, without recording, or before the first use of CUDA,
    after which it is to be called again. TypeError: `model` is no nn.Module. Any thread may call it.
    """
    if not _nn_modules.is_model(model):
        raise TypeError(f"memlab.watch takes a torch.nn.Module, not {type(model).__name__}")
    tensors = _nn_modules.Tensors()
    count = _nn_modules.name_model(model, _nn_modules.models.add(model, name), tensors)
    if count is not None:
        tensors.label(tensors.take())
    return count
