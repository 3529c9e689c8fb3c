"""Names of a PyTorch model as its users know them: of its nn.Modules, parameters, buffers and gradients.

A model is what is called inside of no other nn.Module, or what memlab.watch() was given. It is known by a weak
reference, so that it is not kept alive. Nothing here needs PyTorch: a model is what has named_modules().
"""

from __future__ import annotations

import weakref
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from . import _library
from ._annotations import _address, detail_of, give_label

# What PyTorch puts between a model's nn.Modules and itself: torch.compile, FSDP, checkpoint_wrapper.
_WRAPPERS = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))

_named: Dict[int, Tuple[str, str]] = {}  # name and class, by the address of an nn.Module that has a name
_ends: Dict[int, Any] = {}  # weakref.finalize objects, by the same
_labels: Dict[int, Tuple[int, str]] = {}  # where it is, and its label, by the address of a tensor object that stays


class Model:
    """An nn.Module that is called inside of no other."""

    def __init__(self, module: Any, name: str, given: bool) -> None:
        self.of = weakref.ref(module)
        self.name = name  #: before the qualified names, unless empty
        self.given = given  #: by the program


class Models:
    """The models of this process, in the order of their first calls."""

    def __init__(self) -> None:
        self.stale = False  #: an nn.Module or a parameter was added or ended since they were named
        self._known: Dict[int, Model] = {}

    def alive(self) -> Iterator[Tuple[Any, str]]:
        """Each with its name, those that were given last, since they win; those that are gone are dropped."""
        for address, model in sorted(self._known.items(), key=lambda item: item[1].given):
            module = model.of()
            if module is None:
                del self._known[address]
            else:
                yield module, model.name

    def add(self, module: Any, name: Optional[str] = None) -> str:
        """The name of the model from here on; without one its class, and a number if that name is taken."""
        known = self._known.get(id(module))
        if known is not None and known.of() is module:
            known.name = known.name if name is None else name
            known.given |= name is not None
        elif name is None:
            known = self._known[id(module)] = Model(module, self._name_by_class(module), False)
        else:
            known = self._known[id(module)] = Model(module, name, True)
        return known.name

    def drop(self, inner: Any) -> None:
        """It is a part of a model: if it was called on its own before, it is no model for that."""
        known = self._known.get(id(inner))
        if known is not None and not known.given:
            del self._known[id(inner)]

    def _name_by_class(self, module: Any) -> str:
        kind = type(_unwrapped(module)).__name__
        if getattr(module, "_is_replica", False):
            return kind  # of DataParallel, made for one call: the original's
        taken = {name for _, name in self.alive()}  # a model that is made again for each use has one name
        number, name = 1, kind
        while name in taken:
            number += 1
            name = f"{kind}#{number}"
        return name


models = Models()


def _unwrapped(module: Any) -> Any:
    """The model in what PyTorch wraps around it (DistributedDataParallel, torch.compile, ...)."""
    for _ in range(8):
        children = getattr(module, "_modules", None)
        if not isinstance(children, dict) or len(children) != 1:
            break
        (name, child), = children.items()
        if child is None or not _falls(module, name):
            break
        module = child
    return module


def _falls(parent: Any, name: str) -> bool:
    """Whether this part of a qualified name is of a wrapper, which comparisons would trip over."""
    if name in _WRAPPERS:
        return True
    return (name == "module" and len(getattr(parent, "_modules", ())) == 1
            and not getattr(parent, "_parameters", None))


class _Names:
    """Qualified names in a model without the wrappers' parts."""

    def __init__(self, prefix: str) -> None:
        self._short: Dict[str, str] = {"": prefix}
        self._modules: Dict[str, Any] = {}

    def of_module(self, qualified: str, module: Any) -> str:
        """nn.Modules come before those in them."""
        self._modules[qualified] = module
        if qualified not in self._short:
            above, _, name = qualified.rpartition(".")
            around = self.of_tensor(above)
            falls = _falls(self._modules.get(above), name)
            self._short[qualified] = around if falls else join(around, name)
        return self._short[qualified]

    def of_tensor(self, qualified: str) -> str:
        if qualified not in self._short:
            above, _, name = qualified.rpartition(".")
            self._short[qualified] = join(self.of_tensor(above), name)
        return self._short[qualified]


def join(name: str, qualified: str) -> str:
    """The qualified name in something that has a name, which may be none."""
    return f"{name}.{qualified}" if name and qualified else name or qualified


def is_model(candidate: Any) -> bool:
    """Whether it has what names are taken from."""
    return all(callable(getattr(candidate, each, None))
               for each in ("named_modules", "named_parameters", "named_buffers"))


class Tensors:
    """Parameters and buffers of models, with the names of all that are the same tensor.

    Of a tensor no weak reference is made: PyTorch refuses to swap one that has any (torch.utils.swap_tensors).
    """

    def __init__(self) -> None:
        self._names: Dict[int, List[str]] = {}  # by the tensor object's address
        self._tensors: List[Any] = []

    def add(self, tensor: Any, name: str) -> None:
        """One more name of the tensor."""
        names = self._names.setdefault(id(tensor), [])
        if not names:
            self._tensors.append(tensor)
        if name not in names:
            names.append(name)

    def name(self, tensor: Any) -> Optional[str]:
        """That of this tensor; tied ones are joined by "+"."""
        names = self._names.get(id(tensor))
        return None if names is None else "+".join(names)

    def take(self) -> List[Any]:
        """The tensors, which it keeps alive no longer."""
        tensors, self._tensors = self._tensors, []
        return tensors

    def label(self, tensors: List[Any]) -> None:
        """Labels their memory, where it is on a GPU; those that share it get the names of all."""
        sharing: Dict[int, List[Any]] = {}
        for tensor in tensors:
            pointer = pointer_of(tensor)
            if pointer is not None:
                sharing.setdefault(pointer, []).append(tensor)
        for pointer, placed in sharing.items():
            label_once(placed, pointer, "+".join(name for tensor in placed for name in self._names[id(tensor)]))


def pointer_of(tensor: Any) -> Optional[int]:
    """Where its memory is; None: on no GPU, or it has none. Of a DTensor this process's part."""
    local = getattr(tensor, "_local_tensor", tensor)
    if not getattr(local, "is_cuda", False):
        return None
    try:
        return _address(local) or None
    except (RuntimeError, TypeError, ValueError):  # sparse ones, those that are not made yet
        return None


def label_once(tensors: Sequence[Any], pointer: int, name: str) -> None:
    """For tensor objects that keep their memory: the label that the first has already is not given again."""
    first = id(tensors[0])
    if _labels.get(first) != (pointer, name) and label(tensors, pointer, name):
        if len(_labels) >= 1 << 18:
            _labels.clear()
        _labels[first] = (pointer, name)


def label(tensors: Sequence[Any], pointer: int, name: str) -> bool:
    """Labels the memory there, which holds these tensors. Whether memlab knows memory there.

    The detail of several is that of each, joined by "+", the same once. Of a DTensor this process's part counts.
    """
    details = dict.fromkeys(detail_of(getattr(tensor, "_local_tensor", tensor)) for tensor in tensors)
    return give_label(pointer, name, "" if "" in details else "+".join(details))


def name_model(model: Any, prefix: str, tensors: Tensors) -> Optional[int]:
    """Names its nn.Modules, and collects its parameters and buffers.

    How many nn.Modules have a name; None: there is no recording.
    """
    names = _Names(prefix)
    count = 0
    for qualified, module in model.named_modules():
        wanted = (names.of_module(qualified, module), type(module).__name__)
        if module is not model:
            models.drop(module)
        if _named.get(id(module)) != wanted:
            if _library.call("nn_module", id(module), *map(_library.text, wanted)) != 0:
                return None
            _named[id(module)] = wanted
        count += 1
        if id(module) not in _ends:
            _ends[id(module)] = end = weakref.finalize(module, _ended, id(module))
            end.atexit = False
    for named in (model.named_parameters, model.named_buffers):
        try:
            pairs = list(named(remove_duplicate=False))
        except TypeError:  # PyTorch before 2.0
            pairs = list(named())
        for qualified, tensor in pairs:
            tensors.add(tensor, names.of_tensor(qualified))
    return count


def _ended(address: int) -> None:
    """The nn.Module there is gone; its memory is not another object's yet."""
    _ends.pop(address, None)
    _named.pop(address, None)
    models.stale = True
    _library.call("nn_module_end", address)
