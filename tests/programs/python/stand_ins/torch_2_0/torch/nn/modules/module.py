"""A stand-in for PyTorch's file of this name: how it called an nn.Module before 2.1."""


class Module:
    def _call_impl(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    __call__ = _call_impl
