"""Names without a call in the program (MEMLAB_NAMES=auto): begun when the program imports PyTorch.

Names are given at safe points: when a model is called first, soon after, by a pending call of the interpreter's; after an
optimizer's step; when the program ends. Never from inside of CUDA, where the recorder only notes addresses. An address
becomes an object by what the garbage collector has. Whatever fails here costs a name, not the program.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import gc
import os
import sys
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _library, _nn_modules

# Of the program's time: looking for objects, beside a quarter of a second, and labelling what each step makes again.
_SHARE = 1 / 200
_CREDIT = 0.25
_MOST = 64  # nn.Modules taken from the recorder at a time


class _Budget:
    """Keeps work that comes again to a share of the program's time, in which it was not stopped or waiting for others.

    `credit`: seconds that may be spent at once. No more than that is saved up: after a long start of the program many
    steps one after the other would take longer.
    """

    def __init__(self, credit: float) -> None:
        self._begin, self._begin_of_processors = time.perf_counter(), time.process_time()
        self._credit, self._spent = credit, -credit

    def allows(self) -> bool:
        # By the clock first: to ask for the processors' time takes a system call.
        return self._spent <= self._by_clock() and self._spent <= self._by_processors()

    def spent(self, begin: float) -> None:
        """Work that began then is over."""
        earned = min(self._by_clock(), self._by_processors())
        self._spent = max(self._spent, earned - self._credit) + time.perf_counter() - begin

    def _by_clock(self) -> float:
        return _SHARE * (time.perf_counter() - self._begin)

    def _by_processors(self) -> float:
        return _SHARE * (time.process_time() - self._begin_of_processors)


class _State:
    """What is known of the program's models."""

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self.tensors = _nn_modules.Tensors()
        self.naming, self.labels = _Budget(_CREDIT), _Budget(0)
        self.unnamed: List[int] = []  # addresses that the recorder told
        self.steps: Any = weakref.WeakKeyDictionary()  # of optimizers, to 2
        self.hooked = False


_state = _State()
_kept: List[Any] = []  # what C has the address of
_disabled: Dict[Callable[..., None], Callable[..., None]] = {}  # by torch.compile
_is_compiling: Callable[[], bool] = bool


def start() -> None:
    """The program imports PyTorch: asks the recorder to tell of models."""
    if _kept:
        return
    call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_pending)
    add = ctypes.cast(ctypes.pythonapi.Py_AddPendingCall, ctypes.c_void_p)
    if not _library.has("nn_modules_tell"):
        return
    _kept.append(call)
    _library.call("nn_modules_tell", add, ctypes.cast(call, ctypes.c_void_p))
    atexit.register(_at_exit)


def _pending(_: Optional[int]) -> int:
    """In the main thread, between two of its instructions."""
    try:
        _hook_in()
        _unseen(_refresh, False)
    except KeyboardInterrupt:
        _thread.interrupt_main()  # it was meant for the program
    except Exception:
        pass
    return 0


def _at_exit() -> None:
    try:
        _library.call("nn_modules_tell", None, None)
        _unseen(_refresh, True)
    except Exception:
        pass


def _unseen(work: Callable[..., None], *arguments: Any) -> None:
    """Calls it so that neither torch.compile nor the program's __torch_function__ see it, which it may be inside of."""
    dynamo = sys.modules.get("torch._dynamo")
    disable = getattr(dynamo, "disable", None)
    if callable(disable):
        if work not in _disabled:  # it takes long
            _disabled[work] = disable(work)
        work = _disabled[work]
    no_functions = getattr(getattr(sys.modules.get("torch"), "_C", None), "DisableTorchFunction", None)
    with no_functions() if callable(no_functions) else contextlib.nullcontext():
        work(*arguments)


def _hook_in() -> None:
    """PyTorch is imported, since an nn.Module was called."""
    global _is_compiling
    torch = sys.modules.get("torch")
    if _state.hooked or torch is None:
        return
    _state.hooked = True
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    _is_compiling = compiling if callable(compiling) else bool
    optimizers = sys.modules.get("torch.optim.optimizer")
    after_steps = getattr(optimizers, "register_optimizer_step_post_hook", None)
    if callable(after_steps):
        after_steps(_after_step)
    module = sys.modules.get("torch.nn.modules.module")
    for kind in ("module", "parameter", "buffer"):
        register = getattr(module, f"register_module_{kind}_registration_hook", None)
        if callable(register):
            register(_registered)


def _registered(*_: Any) -> None:
    _nn_modules.models.stale = True


def _after_step(optimizer: Any, *_: Any) -> None:
    try:
        if not _is_compiling() and (_has_unnamed() or _is_to_label(optimizer)):
            _unseen(_step_ended, optimizer)
    except Exception:
        pass


def _has_unnamed() -> bool:
    return (bool(_state.unnamed) or _nn_modules.models.stale) and _state.naming.allows()


def _is_to_label(optimizer: Any) -> bool:
    # After the first step there are states, and the second has gradients where they stay.
    return _state.steps.get(optimizer, 0) < 2 or _state.labels.allows()


def _step_ended(optimizer: Any) -> None:
    _refresh(False)
    if not _is_to_label(optimizer) or not _state.lock.acquire(False):
        return
    try:
        begin = time.perf_counter()
        _state.steps[optimizer] = min(_state.steps.get(optimizer, 0) + 1, 2)
        _label_optimizer(optimizer)
        _state.labels.spent(begin)
    finally:
        _state.lock.release()


def _refresh(at_exit: bool) -> None:
    """Names the models that were called since, and what was added to those that are known."""
    if not _state.lock.acquire(False):
        return  # another thread does, or this one was interrupted in it: at the next safe point
    try:
        _take_unnamed()
        if not (_state.unnamed or _nn_modules.models.stale) or not (at_exit or _state.naming.allows()):
            return
        begin = time.perf_counter()
        if (_state.unnamed and _find()) or _nn_modules.models.stale:
            _nn_modules.models.stale = False
            _name_all()
        _state.naming.spent(begin)
    finally:
        _state.lock.release()


def _take_unnamed() -> None:
    addresses = (ctypes.c_void_p * _MOST)()
    count = _MOST
    while count == _MOST:
        count = _library.call("nn_modules_unnamed", addresses, _MOST) or 0
        _state.unnamed += [address for address in addresses[:count] if address]


def _find() -> bool:
    """Whether one of the objects at the addresses is a model."""
    wanted, _state.unnamed = _state.unnamed, []
    objects = gc.get_objects()
    addresses = list(map(id, objects))  # a million in tens of milliseconds
    base = getattr(sys.modules.get("torch.nn.modules.module"), "Module", None)
    found = False
    for address in wanted:
        each = objects[addresses.index(address)] if address in addresses else None
        if base is not None and issubclass(type(each), base) and _nn_modules.is_model(each):
            _nn_modules.models.add(each)
            found = True
        elif gc.get_freeze_count() == 0:  # what is frozen is not found
            _library.call("nn_module_end", address)  # it is gone, and was not known to end
    return found


def _name_all() -> None:
    tensors = _nn_modules.Tensors()
    for module, name in list(_nn_modules.models.alive()):
        _nn_modules.name_model(module, name, tensors)
    _state.tensors = tensors
    taken = tensors.take()
    tensors.label(taken)
    _label_gradients(taken)


def _label_gradients(parameters: List[Any]) -> None:
    """Each step may make them again, where others were."""
    for parameter in parameters:
        gradient = getattr(parameter, "grad", None) if getattr(parameter, "is_leaf", True) else None
        pointer = None if gradient is None else _nn_modules.pointer_of(gradient)
        name = None if pointer is None else _state.tensors.name(parameter)
        if pointer is not None and name is not None:
            _nn_modules.label((gradient, ), pointer, name + ".grad")


def _label_optimizer(optimizer: Any) -> None:
    """Gradients and states of its parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    named = [parameter for parameter in parameters if _state.tensors.name(parameter) is not None]
    _state.tensors.label(named)
    _label_gradients(named)
    kind = type(optimizer).__name__
    for parameter in named:
        for key, value in _tensors_in(optimizer.state.get(parameter)):
            pointer = _nn_modules.pointer_of(value)
            if pointer is not None:
                _nn_modules.label_once((value, ), pointer, f"{kind}.{_state.tensors.name(parameter)}.{key}")


def _tensors_in(state: Any) -> List[Tuple[str, Any]]:
    """Keys and tensors of an optimizer's state of one parameter, in lists, too."""
    found = []
    for key, value in state.items() if isinstance(state, dict) else ():
        if isinstance(value, (list, tuple)):
            found += [(f"{key}.{i}", each) for i, each in enumerate(value)]
        else:
            found.append((str(key), value))
    return found


def _forked() -> None:
    """A child has none of its parent's recording."""
    _state.lock = _thread.allocate_lock()
    _state.unnamed = []


os.register_at_fork(after_in_child=_forked)
