"""Operators with a backward graph, from a stand-in for PyTorch: each allocation of backward has a size
of its own, and prints whose lines it should have: SIZE FUNCTION, of the functions below.

usage: backward.py LIBTORCH_CPU
"""

import ctypes
import sys
import threading

KIB = 1024
DENSE, VIEW, OTHER = 0, 1, 2  # kinds of nodes

cuda = ctypes.CDLL("libcuda.so.1")
torch = ctypes.CDLL(sys.argv[1])
context = ctypes.c_void_p()
u64 = ctypes.c_uint64
torch.torch_operator.argtypes = [ctypes.c_int, u64, u64, ctypes.c_uint32]
torch.torch_operators.argtypes = [ctypes.c_int, u64, u64]
torch.torch_without_gradient.argtypes = [u64]
torch.torch_backward.argtypes = [u64, ctypes.c_bool]
torch.torch_twice.argtypes = [u64, u64, u64, ctypes.POINTER(u64)]
torch.torch_replace.argtypes = [u64, u64]
for name in ("torch_operator", "torch_function", "torch_twice", "torch_attached"):
    getattr(torch, name).restype = u64

expected = {}
next_size = 4  # 1 and 2 KiB are the forward's. All fit into one segment: the engine's thread has no context


def new_size(function=None):
    """A size for backward, whose stack goes on with the frames of this function; None: with none."""
    global next_size
    next_size += 1
    size = next_size * KIB // 2
    expected[size] = function
    return size


def backward(node, here=False):
    torch.torch_backward(node, here)


def dense(size):
    return torch.torch_operator(DENSE, 2 * KIB, size, 1)


def view(size):
    return torch.torch_operator(VIEW, 0, size, 1)


def several_outputs(size):
    return torch.torch_operator(DENSE, 2 * KIB, size, 3)


def without_gradient():
    torch.torch_without_gradient(2 * KIB)


def fails(size):
    """Makes its node, then raises: no tensor gets it."""
    return torch.torch_operator(DENSE, 0, size, 0)


def plain_operators():
    backward(dense(new_size("dense")))
    backward(several_outputs(new_size("several_outputs")))
    node = view(new_size("view"))
    without_gradient()  # not the view's
    backward(node)
    node = fails(new_size())
    without_gradient()
    backward(node)


def a_graph_that_is_kept():
    size = new_size("dense")
    node = dense(size)
    for _ in range(3):
        backward(node)


def on_the_calling_thread():
    """Which has Python frames of its own, as where all tensors are the CPU's."""
    backward(dense(new_size("backward")), here=True)


def of_a_thread_that_has_ended():
    nodes = []

    def run():
        assert cuda.cuCtxSetCurrent(context) == 0
        nodes.append(dense(new_size("dense")))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    backward(nodes[0])


def double_backward():
    second = u64()
    first = torch.torch_twice(2 * KIB, new_size("double_backward"), new_size("double_backward"),
                              ctypes.byref(second))
    backward(first)
    backward(second.value)


def python_backward():
    """A torch.autograd.Function's backward has Python frames of its own; what it calls goes backward in turn."""
    inner = dense(new_size("dense"))
    own = new_size("own_backward")

    @ctypes.CFUNCTYPE(None)
    def own_backward():
        torch.torch_without_gradient(own)
        backward(inner, here=True)

    torch.torch_function.argtypes = [ctypes.c_void_p]
    backward(torch.torch_function(ctypes.cast(own_backward, ctypes.c_void_p)))


def memory_of_nodes_is_reused():
    node = dense(new_size("dense"))
    backward(node)
    torch.torch_replace(node, new_size())
    backward(node)


def kinds_of_which_nothing_was_asked():
    """Views of which backward allocates for few are no longer followed, others are."""
    torch.torch_operators(OTHER, 0, 2000)
    backward(torch.torch_operator(OTHER, 0, new_size(), 1))
    size = new_size("view")
    for _ in range(20):
        backward(view(size))


def threads_that_count_alike():
    """Each thread's nodes have the numbers that the others' have."""
    nodes = []

    def run():
        assert cuda.cuCtxSetCurrent(context) == 0
        nodes.extend([dense(size) for _ in range(4)])

    size = new_size("dense")
    for _ in range(5):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    for node in nodes:
        backward(node)


def more_nodes_than_are_known():
    first = dense(new_size())
    torch.torch_operators(DENSE, KIB, 70000)
    backward(first)
    backward(dense(new_size("dense")))


def work():
    for _ in range(8):
        dense(0)  # nothing is believed before
    before = torch.torch_attached()
    assert before == 8, before
    plain_operators()
    a_graph_that_is_kept()
    on_the_calling_thread()
    of_a_thread_that_has_ended()
    double_backward()
    python_backward()
    memory_of_nodes_is_reused()
    kinds_of_which_nothing_was_asked()
    threads_that_count_alike()
    more_nodes_than_are_known()


assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
work()
for size, function in expected.items():
    print(size, function)
