"""How a GPU is chosen: by its number, "cuda:1", or a torch.device of CUDA. One reading of it for all calls that take one."""

from __future__ import annotations

import sys
from typing import Any, Optional

_LAST = (1 << 31) - 1  # the library takes an int


def pytorch() -> Optional[Any]:
    """The torch module, if the program has imported it and uses CUDA."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return torch if cuda is not None and cuda.is_initialized() else None


def gpu_number(device: Any) -> int:
    """The number of the GPU; "cuda" and torch.device("cuda") are PyTorch's current one. TypeError: it is none of these."""
    number: Any = device
    if isinstance(device, str):
        kind, _, index = device.partition(":")
        number = int(index) if kind == "cuda" and index.isdigit() else _current() if device == "cuda" else None
    elif not isinstance(device, int):
        number = getattr(device, "index", None) if getattr(device, "type", "cuda") == "cuda" else None
        if number is None and getattr(device, "type", None) == "cuda":
            number = _current()
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _LAST:
        raise TypeError(f"a GPU is given by its number, 'cuda:1' or a torch.device of CUDA, not {device!r}")
    return number


def _current() -> int:
    torch = pytorch()
    return 0 if torch is None else int(torch.cuda.current_device())
