"""yielding_cases.py CASE

One thing that must work right after memory has left the GPU and come back (tests/gpu/step_aside.py moves it). Sets it up,
does it once, and says "ready"; then does it again for each line that it reads, and says "right", or what is not as it
was. "not here: ..." in place of "ready": what it needs is missing. Every result is compared bit for bit with that of the
same process before anything moved."""

from __future__ import annotations

import copy
import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

Step = Callable[[], str]


class NotHere(Exception):
    """What the case needs is missing."""


def need(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise NotHere(str(error)) from None


def torch_here() -> Any:
    torch = need("torch")
    if not torch.cuda.is_available():
        raise NotHere("no GPU for PyTorch")
    torch.manual_seed(1234)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    return torch


def same_tensors(torch: Any, work: Callable[[], list[Any]]) -> Step:
    """`work` gives tensors; they must be as at first."""
    first = [each.detach().clone() for each in work()]
    again = [each.detach().clone() for each in work()]
    torch.cuda.synchronize()
    for which, (one, two) in enumerate(zip(first, again, strict=True)):
        if not torch.equal(one, two):
            raise NotHere(f"result {which} is another one each time, without any move")
    on_host = [each.cpu() for each in first]

    def step() -> str:
        for which, (wanted, found) in enumerate(zip(on_host, work(), strict=True)):
            if not torch.equal(found.detach().cpu(), wanted):
                return f"result {which} differs"
        for which, (wanted, kept) in enumerate(zip(on_host, first, strict=True)):
            if not torch.equal(kept.cpu(), wanted):
                return f"what was kept of result {which} differs"
        return "right"

    return step


def expandable() -> Step:
    """PyTorch's expandable segments: PYTORCH_CUDA_ALLOC_CONF is set by the test."""
    torch = torch_here()
    held = [torch.arange(i, i + (8 << 20), dtype=torch.int32, device="cuda") for i in range(16)]
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    data = torch.randn(256, 512, device="cuda")

    def work() -> list[Any]:
        model.zero_grad(set_to_none=True)
        model(data).square().sum().backward()
        scratch = [torch.full((1 << 20,), float(i), device="cuda") for i in range(8)]  # segments grow after the move
        return [model[0].weight.grad, *scratch[:2], *(each.sum() for each in held)]

    return same_tensors(torch, work)


def generate() -> Step:
    """A language model's generate(), and a KV cache that lives across the move."""
    torch = torch_here()
    transformers = need("transformers")
    config = transformers.GPT2Config(n_layer=4, n_head=4, n_embd=256, vocab_size=1000, n_positions=256,
                                     bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config).cuda().eval()
    prompt = torch.randint(1, 1000, (2, 32), device="cuda")
    following = torch.randint(1, 1000, (2, 1), device="cuda")
    with torch.no_grad():
        cache = model(prompt, use_cache=True).past_key_values

    def work() -> list[Any]:
        with torch.no_grad():
            tokens = model.generate(prompt, max_new_tokens=24, do_sample=False, pad_token_id=0)
            logits = model(following, past_key_values=copy.deepcopy(cache), use_cache=True).logits
        return [tokens, logits]

    return same_tensors(torch, work)


def compiled() -> Step:
    """torch.compile with CUDA graphs: kernels, copies and fills at fixed addresses."""
    torch = torch_here()
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.LayerNorm(512),
                                torch.nn.Linear(512, 256)).cuda().eval()
    data = torch.randn(64, 256, device="cuda")
    try:
        fast = torch.compile(model, mode="reduce-overhead")
        with torch.no_grad():
            for _ in range(4):
                fast(data)
    except Exception as error:  # no compiler, no Triton
        raise NotHere(f"torch.compile: {type(error).__name__}: {error}") from None

    def work() -> list[Any]:
        with torch.no_grad():
            return [fast(data).clone()]

    return same_tensors(torch, work)


def graphs() -> Step:
    """A graph of kernels, a copy and a fill, captured by PyTorch."""
    torch = torch_here()
    source = torch.randn(1 << 20, device="cuda")
    target = torch.zeros_like(source)
    cleared = torch.ones(1 << 18, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            target.copy_(source)
            cleared.zero_()
            product = (target * 3 + 1).relu()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        target.copy_(source)
        cleared.zero_()
        product = (target * 3 + 1).relu()

    def work() -> list[Any]:
        target.fill_(7)
        cleared.fill_(7)
        graph.replay()
        return [target, cleared, product]

    return same_tensors(torch, work)


def workspaces() -> Step:
    """cuBLAS's, cuBLASLt's and cuDNN's, made before the move."""
    torch = torch_here()
    matrix = torch.randn(1024, 1024, device="cuda")
    half = matrix.half()
    bias = torch.randn(1024, device="cuda", dtype=torch.float16)
    images = torch.randn(8, 32, 64, 64, device="cuda")
    convolution = torch.nn.Conv2d(32, 64, 3, padding=1).cuda()

    def work() -> list[Any]:
        with torch.no_grad():
            return [matrix @ matrix, torch.addmm(bias, half, half), convolution(images),
                    torch.linalg.cholesky(matrix @ matrix.T + 2048 * torch.eye(1024, device="cuda"))]

    return same_tensors(torch, work)


def peers() -> Step:
    """Copies between GPUs that may access each other."""
    torch = torch_here()
    if torch.cuda.device_count() < 2:
        raise NotHere("one GPU")
    here = torch.arange(8 << 20, dtype=torch.int32, device="cuda:0")
    there = here.to("cuda:1")

    def work() -> list[Any]:
        return [here.to("cuda:1").to("cuda:0"), (there + 1).to("cuda:0")]

    return same_tensors(torch, work)


def cupy_arrays() -> Step:
    cupy = need("cupy")
    values = cupy.arange(1 << 20, dtype=cupy.float64)
    matrix = (values % 7).reshape(1024, 1024)
    kernel = cupy.ElementwiseKernel("float64 x", "float64 y", "y = x * 3 + 1", "three_and_one")

    def work() -> list[bytes]:
        transformed = cupy.fft.fft(values[:4096])
        return [bytes(cupy.asnumpy(each).tobytes()) for each in
                (matrix @ matrix.T, cupy.sort((values * 7919) % (1 << 20)), kernel(values), transformed)]

    return same_bytes(work)


def texture() -> Step:
    """A texture object on linear memory."""
    cupy = need("cupy")
    runtime, textures = cupy.cuda.runtime, cupy.cuda.texture
    values = (cupy.arange(1 << 20, dtype=cupy.float32) % 1009).astype(cupy.float32)
    channel = textures.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
    resource = textures.ResourceDescriptor(runtime.cudaResourceTypeLinear, arr=values, chDesc=channel,
                                           sizeInBytes=values.nbytes)
    made = textures.TextureObject(resource, textures.TextureDescriptor())
    kernel = cupy.RawKernel(
        'extern "C" __global__ void fetch(cudaTextureObject_t from, float* to, int count) {\n'
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < count) to[i] = 2 * tex1Dfetch<float>(from, i);\n}\n", "fetch")
    found = cupy.zeros_like(values)

    def work() -> list[bytes]:
        found.fill(0)
        kernel((values.size // 256,), (256,), (made, found, cupy.int32(values.size)))
        return [bytes(cupy.asnumpy(found).tobytes())]

    return same_bytes(work)


def same_bytes(work: Callable[[], list[bytes]]) -> Step:
    first = work()
    if work() != first:
        raise NotHere("its results are others each time, without any move")

    def step() -> str:
        differ = [str(which) for which, (wanted, found) in enumerate(zip(first, work(), strict=True))
                  if found != wanted]
        return f"results {', '.join(differ)} differ" if differ else "right"

    return step


class Window(ctypes.Structure):
    """CUaccessPolicyWindow, in the 64 bytes of a CUstreamAttrValue."""

    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("ratio", ctypes.c_float),
                ("hits", ctypes.c_int), ("misses", ctypes.c_int), ("rest", ctypes.c_char * 32)]


def window() -> Step:
    """An L2 access-policy window on a stream."""
    torch = torch_here()
    cuda = ctypes.CDLL("libcuda.so.1")
    data = torch.randn(1 << 20, device="cuda")
    stream = torch.cuda.Stream()
    access_policy_window, streaming, persisting = 1, 1, 2
    value = Window(data.data_ptr(), data.numel() * 4, 1.0, persisting, streaming, b"")
    code = cuda.cuStreamSetAttribute(ctypes.c_void_p(stream.cuda_stream), access_policy_window, ctypes.byref(value))
    if code != 0:
        raise NotHere(f"cuStreamSetAttribute answers {code}")

    def work() -> list[Any]:
        with torch.cuda.stream(stream):
            found = data * 2 + 1
        stream.synchronize()
        return [found]

    return same_tensors(torch, work)


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


def managed() -> Step:
    """Managed memory beside a tensor: on the GPU before the move, and where nobody said."""
    torch = torch_here()
    cuda = ctypes.CDLL("libcuda.so.1")
    held = torch.arange(16 << 20, dtype=torch.int32, device="cuda")
    size = 64 << 20
    blocks = []
    for prefetched in (True, False):
        address = ctypes.c_uint64()
        code = cuda.cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t(size), 1)
        if code != 0:
            raise NotHere(f"cuMemAllocManaged answers {code}")
        code = cuda.cuMemsetD32_v2(address, 0x12345678, ctypes.c_size_t(size // 4))
        if prefetched:
            code = code or cuda.cuMemPrefetchAsync_v2(address, ctypes.c_size_t(size), Location(1, 0), 0, None)
        code = code or cuda.cuCtxSynchronize()
        if code != 0:
            raise NotHere(f"managed memory: {code}")
        blocks.append(address)
    word = ctypes.c_uint32()

    def step() -> str:
        for which, address in enumerate(blocks):
            for at in (0, size // 2, size - 4):
                code = cuda.cuMemcpyDtoH_v2(ctypes.byref(word), ctypes.c_uint64(address.value + at), ctypes.c_size_t(4))
                if code != 0 or word.value != 0x12345678:
                    return f"block {which} has {word.value:#x} at {at} (error {code})"
        return "right" if int(held[-1].item()) == (16 << 20) - 1 else "the tensor differs"

    step()
    return step


def jax_arrays() -> Step:
    """XLA_PYTHON_CLIENT_ALLOCATOR is set by the test."""
    jax = need("jax")
    numpy = need("numpy")
    if jax.devices()[0].platform != "gpu":
        raise NotHere("no GPU for JAX")
    matrix = (jax.numpy.arange(512 * 512, dtype=jax.numpy.float32) % 7).reshape(512, 512)
    function = jax.jit(lambda x: (x @ x.T) % 17 + jax.numpy.cumsum(x, axis=0) % 5)
    return same_bytes(lambda: [numpy.asarray(function(matrix)).tobytes(), numpy.asarray(matrix).tobytes()])


CASES: dict[str, Callable[[], Step]] = {
    "expandable": expandable, "generate": generate, "compiled": compiled, "graphs": graphs, "workspaces": workspaces,
    "peers": peers, "cupy": cupy_arrays, "texture": texture, "window": window, "managed": managed,
    "jax-platform": jax_arrays, "jax-cuda_async": jax_arrays,
}


def main() -> None:
    try:
        step = CASES[sys.argv[1]]()
    except NotHere as error:
        print(f"not here: {error}", flush=True)
        return
    print("ready", flush=True)
    for _ in sys.stdin:
        print(step(), flush=True)


main()
