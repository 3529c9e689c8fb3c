"""One of the modules that CuPy imports at the end, with the way in which its pool calls hooks."""

from cupy.cuda.memory_hook import get_memory_hooks


def tell(when, **of):
    for hook in get_memory_hooks().values():
        getattr(hook, when)(device_id=0, pmem_id=1, **of)
