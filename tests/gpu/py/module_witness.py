"""module_witness.py MODEL FILE

Trains a model. Without memlab every nn.Module has hooks that say when its forward begins and ends, and each tensor that
an operation makes is seen. So it is known, by other means than memlab's, which nn.Module's call made what is alive: of
a forward the innermost call, of backward the one whose forward made the node; of what no call made, the nn.Module whose
parameter, buffer, gradient or state of the optimizer it is. At eleven moments it writes down the bytes by nn.Module, as
PyTorch's cache rounds them; at the end, to FILE, as JSON. Under memlab the same training runs without the hooks, which
would be in its way, and makes a mark at each of these moments. Prints the losses.

With MODEL tracker:MODEL the witness is PyTorch's own MemTracker: the bytes by its categories at the peak. With fsdp2 this
is the first of two ranks, each with a GPU of its own; it starts the other, without memlab and without a witness.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

Loss = Callable[[], torch.Tensor]
OUTSIDE = ""
CLAIMED = "made in the forward of"
MIB = 1 << 20


def tensors(values: object) -> list[torch.Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    """Of a DTensor, that of this rank's part."""
    return getattr(tensor, "_local_tensor", tensor).untyped_storage()


class Witness(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls = threading.local()
        self.storages: dict[int, tuple[StorageWeakRef, str]] = {}
        self.models: list[tuple[weakref.ref[torch.nn.Module], str]] = []
        self.optimizer: weakref.ref[torch.optim.Optimizer] | None = None
        self.optimized: list[tuple[weakref.ref[torch.Tensor], str]] = []
        self.lock = threading.Lock()

    def names(self) -> list[str]:
        if not hasattr(self.calls, "names"):
            self.calls.names = []
        return self.calls.names

    def owner(self) -> str:
        if self.names():
            return self.names()[-1]
        node = torch._C._current_autograd_node()
        return OUTSIDE if node is None else node.metadata.get(CLAIMED, OUTSIDE)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tensors(result):
            if tensor.is_cuda:
                self.saw(storage_of(tensor))
        return result

    def saw(self, storage: torch.UntypedStorage) -> None:
        with self.lock:
            known = self.storages.get(storage._cdata)
            if storage.nbytes() and (known is None or known[0].expired()):
                self.storages[storage._cdata] = (StorageWeakRef(storage), self.owner())

    def claim(self, values: object, owner: str) -> None:
        """The nodes behind tensors that no call that has ended made."""
        nodes = [each.grad_fn for each in tensors(values)]
        while nodes:
            node = nodes.pop()
            if node is not None and CLAIMED not in node.metadata:
                node.metadata[CLAIMED] = owner
                nodes += [each for each, _ in node.next_functions]

    def watch(self, model: torch.nn.Module, root: str) -> None:
        self.models.append((weakref.ref(model), root))
        for name, module in model.named_modules():
            self.hook(module, f"{root}.{name}" if name else root)

    def hook(self, module: torch.nn.Module, name: str) -> None:
        def begins(_, args, kwargs) -> None:
            self.claim((args, kwargs), self.names()[-1] if self.names() else OUTSIDE)
            if not self.names() and threading.current_thread().name.startswith("Thread"):  # DataParallel's
                self.__enter__()
            self.names().append(name)

        def ends(_, args, kwargs, output) -> None:
            self.claim(output, name)
            self.names().pop()
            if not self.names() and threading.current_thread().name.startswith("Thread"):
                self.__exit__(None, None, None)

        module.register_forward_pre_hook(begins, prepend=True, with_kwargs=True)
        module.register_forward_hook(ends, with_kwargs=True, always_call=True)

    def watch_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Before the first forward: FSDP2 then puts whole parameters in place of those that the optimizer has."""
        self.optimizer = weakref.ref(optimizer)
        self.optimized = [(weakref.ref(tensor), owner) for tensor, owner in self.own_tensors()]

    def own_tensors(self) -> Iterable[tuple[torch.Tensor, str]]:
        for reference, root in self.models:
            model = reference()
            for name, module in model.named_modules() if model is not None else ():
                for tensor in [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
                    yield tensor, f"{root}.{name}" if name else root

    def own(self) -> dict[int, str]:
        """The nn.Module of each storage of a parameter, of a buffer, of their gradients and of the optimizer's states."""
        optimizer = self.optimizer() if self.optimizer is not None else None
        found: dict[int, str] = {}
        then = [(tensor, owner) for reference, owner in self.optimized if (tensor := reference()) is not None]
        for tensor, owner in [*self.own_tensors(), *then]:
            states = tensors(dict(optimizer.state.get(tensor, {}))) if optimizer is not None else []
            for each in [tensor, tensor.grad, *states]:
                if each is not None:
                    found.setdefault(storage_of(each)._cdata, owner)
        return found

    def live(self) -> dict[str, int]:
        held: dict[str, int] = {}
        own = self.own()
        with self.lock:
            for address, (reference, owner) in self.storages.items():
                if not reference.expired():  # FSDP2 takes the bytes out of a storage that stays
                    size = torch.UntypedStorage._new_with_weak_ptr(reference.cdata).nbytes()
                    owner = owner or own.get(address, OUTSIDE)
                    held[owner] = held.get(owner, 0) + (size + 511) // 512 * 512
        return held


class Moments:
    """What the witness says at each, and marks where there is memlab."""

    def __init__(self, witness: Witness | None) -> None:
        self.witness, self.said = witness, {}
        self.mark = getattr(ctypes.CDLL(None), "memlab_api_mark", lambda _: None)

    def note(self, name: str) -> None:
        if name not in self.said:
            self.said[name] = {} if self.witness is None else self.witness.live()
            self.mark(name.encode())


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.act = torch.nn.GELU()

    def forward(self, batch):
        return batch + self.down(self.act(self.up(self.norm(batch))))


class LowRank(torch.nn.Module):
    """LoRA: a layer that stays as it is, and two thin ones that are trained."""

    def __init__(self, layer: torch.nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.a = torch.nn.Linear(layer.in_features, rank, bias=False)
        self.b = torch.nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, batch):
        return self.layer(batch) + self.b(self.a(batch)) * 2


class Blocks(torch.nn.Module):
    def __init__(self, count: int = 6, width: int = 512, recompute: bool = False) -> None:
        super().__init__()
        self.blocks, self.recompute = torch.nn.ModuleList(Block(width) for _ in range(count)), recompute

    def forward(self, batch):
        for block in self.blocks:
            batch = checkpoint(block, batch, use_reentrant=False) if self.recompute else block(batch)
        return batch


def random_tokens(vocabulary: int, batch: int = 4, length: int = 128) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length), device="cuda")


def gpt2() -> torch.nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=512, n_head=8, vocab_size=8192))


def llama() -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=4, hidden_size=512, num_attention_heads=8,
                                        num_key_value_heads=4, intermediate_size=1536, vocab_size=8192))


# What a model takes is made before: MemTracker calls it activations, too, if it sees it made.
def language(model: torch.nn.Module) -> Loss:
    tokens = random_tokens(8192)
    return lambda: model(input_ids=tokens, labels=tokens).loss


def vit() -> torch.nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(num_hidden_layers=4, hidden_size=384, num_attention_heads=6, intermediate_size=1536))


def pictures(model: torch.nn.Module) -> Loss:
    taken = {"pixel_values": torch.randn(16, 3, 224, 224, device="cuda"),
             "labels": torch.zeros(16, dtype=torch.long, device="cuda")}
    return lambda: model(**taken).loss


def of_rows(model: torch.nn.Module, *shape: int) -> Loss:
    rows = torch.randn(*shape, device="cuda")
    return lambda: model(rows).square().mean()


def replicated(model: torch.nn.Module) -> Loss:
    parallel = torch.nn.DataParallel(model)
    loss = of_rows(parallel, 2048, 512)
    loss.parallel = parallel
    return loss


def encoder() -> torch.nn.Module:
    return torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 6)


def low_rank() -> torch.nn.Module:
    model = Blocks()
    for block in model.blocks:
        block.up, block.down = LowRank(block.up), LowRank(block.down)
    return model


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[torch.nn.Module], Loss]]] = {
    "gpt2": (gpt2, language), "vit": (vit, pictures), "encoder": (encoder, lambda model: of_rows(model, 16, 128, 512)),
    "lora": (low_rank, lambda model: of_rows(model, 2048, 512)),
    "ema": (Blocks, lambda model: of_rows(model, 2048, 512)),
    "checkpointing": (lambda: Blocks(recompute=True), lambda model: of_rows(model, 2048, 512)),
    "data_parallel": (Blocks, replicated),
    "fsdp2": (llama, language), "generate": (gpt2, language)}


@contextlib.contextmanager
def ranks(file: str):
    """The process group of this rank and the other."""
    other = None
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    if "RANK" not in os.environ:
        os.environ |= {"MASTER_PORT": str(20000 + os.getpid() % 20000), "WORLD_SIZE": "2", "RANK": "0"}
        plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        other = subprocess.Popen([sys.executable, __file__, "fsdp2", file], env=plain | {"RANK": "1"}, stdout=sys.stderr)
    torch.cuda.set_device(int(os.environ["RANK"]))
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["RANK"])))
    try:
        yield
        torch.distributed.destroy_process_group()
        if other is not None and other.wait(60) != 0:
            sys.exit("the other rank failed")
    finally:
        if other is not None:
            other.kill()


def shard(model: torch.nn.Module) -> None:
    from torch.distributed.fsdp import fully_shard

    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)


def average(model: torch.nn.Module, of: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        for mean, now in zip(model.parameters(), of.parameters()):
            mean.lerp_(now, 0.1)
        return model(batch)


def generate(witness: Witness | None, moments: Moments) -> int:
    """The model is gone when this returns."""
    model = gpt2().cuda().eval()
    if witness is not None:
        witness.watch(model, "GPT2LMHeadModel#2")
    with torch.no_grad():
        tokens = random_tokens(8192, 2, 64)
        filled = model(input_ids=tokens, use_cache=True)
        moments.note("filled")
        return int(model.generate(tokens, max_new_tokens=16, do_sample=False, pad_token_id=0).sum()) + len(filled.logits)


def at_hooks(modules: Iterable[torch.nn.Module], moments: Moments, step: list[int]) -> None:
    """Moments in the midst of a forward and of a backward."""
    chosen = [module for module in modules if isinstance(module, (torch.nn.LayerNorm, torch.nn.Linear))]
    for number in (1, 2, 3):
        module = chosen[number * (len(chosen) - 1) // 3]

        def forward_ends(*_, number=number) -> None:
            if step[0] >= 2:
                moments.note(f"forward {number}")

        def backward_was(_, number=number) -> None:
            if step[0] >= 2:
                moments.note(f"backward {number}")

        module.register_forward_hook(forward_ends)
        for parameter in list(module.parameters())[:1]:
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(backward_was)


def train(name: str, witness: Witness | None, moments: Moments, at_the_peak: Callable[[], None]) -> list[float]:
    make, objective = MODELS[name]
    torch.manual_seed(1)
    model = make().cuda()
    if name == "fsdp2":
        shard(model)
    root, step = type(model).__name__, [0]
    mean = copy.deepcopy(model) if name == "ema" else None
    if witness is not None:
        witness.watch(model, root)
        if mean is not None:
            witness.watch(mean, f"{root}#2")
    at_hooks(model.modules(), moments, step)
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad])
    if witness is not None:
        witness.watch_optimizer(optimizer)
    loss_of, losses = objective(model), []
    if witness is not None and name == "data_parallel":
        witness.hook(loss_of.parallel, root)  # its replicas are made in its own call; names leave it out
    for step[0] in range(4):
        loss = loss_of()
        kept = average(mean, model, torch.randn(2048, 512, device="cuda")) if mean is not None else None
        if step[0] == 3:
            moments.note("forward")
            at_the_peak()
        loss.backward()
        if step[0] == 2:
            moments.note("backward")
        optimizer.step()
        moments.note("stepped")
        optimizer.zero_grad(set_to_none=True)
        losses.append(round(loss.item(), 4))
        del loss, kept
    moments.note("end of training")
    if name == "generate":
        losses.append(generate(witness, moments))
    return losses


def peak_of_all(moments: Moments) -> None:
    large = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    moments.note("peak")
    assert large.numel() > 0


def with_tracker(name: str, tracked: bool) -> tuple[dict[str, int], list[float]]:
    from torch.distributed._tools.mem_tracker import MemTracker

    make, objective = MODELS[name]
    torch.manual_seed(1)
    model = make().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    loss_of, losses, said = objective(model), [], {}
    tracker = MemTracker() if tracked else contextlib.nullcontext()
    if tracked:
        tracker.track_external(model, optimizer)
    with tracker:
        for step in range(4):
            loss = loss_of()
            if step == 3:
                if tracked:
                    held = next(value for device, value in tracker.get_tracker_snapshot("current").items()
                                if device.type == "cuda")
                    said = {getattr(kind, "value", str(kind)): size for kind, size in held.items()}
                large = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
                assert large.numel() > 0
                del large
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(round(loss.item(), 4))
            if tracked:
                tracker.reset_mod_stats()  # it takes a second forward for another call of the same nn.Module
    return said, losses


def main() -> None:
    name, recorded = sys.argv[1], hasattr(ctypes.CDLL(None), "memlab_api_mark")
    if name.startswith("tracker:"):
        said, losses = with_tracker(name.removeprefix("tracker:"), not recorded)
    else:
        recorded = recorded or os.environ.get("RANK") == "1"  # nobody asks about that rank
        witness = None if recorded else Witness()
        moments = Moments(witness)
        with ranks(sys.argv[2]) if name == "fsdp2" else contextlib.nullcontext(), witness or contextlib.nullcontext():
            losses = train(name, witness, moments, lambda: peak_of_all(moments))
        said = moments.said
    if not recorded:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            json.dump(said, file)
    print(losses)


main()
