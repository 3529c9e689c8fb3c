"""A stand-in for PyTorch's file of this name: how it calls an nn.Module since 2.1."""


class Module:
    def _wrapped_call_impl(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args, **kwargs):
        def inner():  # so self is a cell variable
            return self.forward(*args, **kwargs)
        return inner()

    __call__ = _wrapped_call_impl
