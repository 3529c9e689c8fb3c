"""A stand-in for PyTorch's file of this name: what names are taken from, and how it calls an nn.Module since 2.1."""

_module_hooks, _parameter_hooks, _buffer_hooks = [], [], []


def register_module_module_registration_hook(hook):
    _module_hooks.append(hook)


def register_module_parameter_registration_hook(hook):
    _parameter_hooks.append(hook)


def register_module_buffer_registration_hook(hook):
    _buffer_hooks.append(hook)


class Parameter:
    """A tensor of so many bytes on the GPU; `memory` gives its address."""

    is_cuda = True
    is_leaf = True
    grad = None
    dtype = "torch.float32"

    def __init__(self, memory, shape=(128, 128)):
        self.memory = memory
        self.shape = shape

    def data_ptr(self):
        return self.memory


class Module:
    def __init__(self):
        self._modules, self._parameters, self._buffers = {}, {}, {}

    def __setattr__(self, name, value):
        for kind, own, hooks in ((Module, "_modules", _module_hooks), (Parameter, "_parameters", _parameter_hooks)):
            if isinstance(value, kind):
                for hook in hooks:
                    hook(self, name, value)
                self.__dict__[own][name] = value
                return
        self.__dict__[name] = value

    def __getattr__(self, name):
        for own in ("_modules", "_parameters", "_buffers"):
            if name in self.__dict__[own]:
                return self.__dict__[own][name]
        raise AttributeError(name)

    def named_modules(self, prefix=""):
        yield prefix, self
        for name, child in self._modules.items():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def _named(self, own, remove_duplicate):
        seen = set()
        for prefix, module in self.named_modules():
            for name, tensor in module.__dict__[own].items():
                if remove_duplicate and id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                yield f"{prefix}.{name}" if prefix else name, tensor

    def named_parameters(self, remove_duplicate=True):
        return self._named("_parameters", remove_duplicate)

    def named_buffers(self, remove_duplicate=True):
        return self._named("_buffers", remove_duplicate)

    def _wrapped_call_impl(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args, **kwargs):
        def inner():  # so self is a cell variable
            return self.forward(*args, **kwargs)
        return inner()

    __call__ = _wrapped_call_impl
