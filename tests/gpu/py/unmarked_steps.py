"""unmarked_steps.py MODE

A training, or another loop, that marks no steps. Prints one line of JSON: "steps", how many iterations its outer loop
made: of two optimizers in one iteration one step, with accumulation the optimizer's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

STEPS = 24


def batches(torch, count: int, rows: int = 64) -> Iterator:
    for number in range(count):
        yield torch.full((rows + 8 * (number % 5), 256), 0.01 * number, device="cuda")


def mlp(torch, inputs: int = 256, outputs: int = 256):
    return torch.nn.Sequential(torch.nn.Linear(inputs, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, outputs)).cuda()


def gpt2(torch) -> int:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_head=4, n_embd=256, vocab_size=2000, n_positions=128)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(STEPS):
        tokens = torch.randint(0, 2000, (4, 64 + 8 * (number % 5)), device="cuda")
        loss = model(tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return STEPS


class Module:
    """What a user of a trainer writes."""

    def __init__(self, torch) -> None:
        self.model = mlp(torch)

    def training_step(self, batch):
        return self.model(batch).square().mean()

    def validation_step(self, batch):
        return self.model(batch).abs().mean()


class Trainer:
    """A loop as Lightning's: epochs, a closure that the optimizer calls, a validation after each epoch."""

    def __init__(self, torch, epochs: int) -> None:
        self.torch, self.epochs, self.global_step = torch, epochs, 0

    def closure(self, module: Module, optimizer, batch) -> Callable:
        def run():
            optimizer.zero_grad()
            loss = module.training_step(batch)
            loss.backward()
            return loss

        return run

    def fit(self, module: Module) -> int:
        optimizer = self.torch.optim.Adam(module.model.parameters())
        for _ in range(self.epochs):
            for batch in batches(self.torch, STEPS // self.epochs):
                optimizer.step(self.closure(module, optimizer, batch))
                self.global_step += 1
            with self.torch.no_grad():
                for batch in batches(self.torch, 4, rows=32):
                    module.validation_step(batch)
        return self.global_step


def lightning(torch) -> int:
    return Trainer(torch, epochs=3).fit(Module(torch))


def accelerate(torch) -> int:
    from accelerate import Accelerator

    accelerator = Accelerator()
    model = mlp(torch)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.utils.data.DataLoader(torch.randn(STEPS * 32, 256), batch_size=32)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for batch in data:
        loss = model(batch).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return STEPS


def gan(torch) -> int:
    generator, judge = mlp(torch), mlp(torch, outputs=1)
    of_generator = torch.optim.Adam(generator.parameters())
    of_judge = torch.optim.Adam(judge.parameters())
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    for real in batches(torch, STEPS):
        ones, zeros = torch.ones(len(real), 1, device="cuda"), torch.zeros(len(real), 1, device="cuda")
        fake = generator(torch.randn_like(real))
        of_judge.zero_grad()
        (loss(judge(real), ones) + loss(judge(fake.detach()), zeros)).backward()
        of_judge.step()
        of_generator.zero_grad()
        loss(judge(fake), ones).backward()
        of_generator.step()
    return STEPS


def accumulation(torch) -> int:
    model = mlp(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for number, batch in enumerate(batches(torch, 4 * STEPS)):
        (model(batch).square().mean() / 4).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    return STEPS


def compiled(torch) -> int:
    model = mlp(torch)
    optimizer = torch.optim.Adam(model.parameters())
    run = torch.compile(lambda batch: model(batch).square().mean())
    for number in range(STEPS):
        optimizer.zero_grad()
        run(torch.full((64, 256), 0.01 * number, device="cuda")).backward()
        optimizer.step()
    return STEPS


def losses(torch) -> int:
    """With a leak, which is what steps are looked for."""
    model, kept = mlp(torch), []
    optimizer = torch.optim.Adam(model.parameters())
    for batch in batches(torch, STEPS):
        optimizer.zero_grad()
        output = model(batch)
        output.square().mean().backward()
        optimizer.step()
        kept.append(output)
    return STEPS


def evaluation(torch) -> int:
    """No optimizer: the calls of the loop return."""
    model = mlp(torch)
    with torch.no_grad():
        for batch in batches(torch, STEPS):
            model(batch).square().mean().item()
    return STEPS


def jax() -> int:
    import jax
    import jax.numpy as jnp

    def loss(weights, batch):
        return jnp.mean(jnp.square(jax.nn.relu(batch @ weights[0]) @ weights[1]))

    step = jax.jit(lambda weights, batch: [w - 0.01 * g for w, g in zip(weights, jax.grad(loss)(weights, batch))])
    weights = [jnp.ones((256, 1024)) / 256, jnp.ones((1024, 256)) / 1024]
    steps = 4 * STEPS  # compiling and tuning allocate, too
    for number in range(steps):
        weights = step(weights, jnp.full((64, 256), 0.01 * number))
    jax.block_until_ready(weights)
    return steps


def cupy() -> int:
    import cupy

    if "uncached" in sys.argv:
        cupy.cuda.set_allocator(None)
    weights = cupy.ones((256, 1024), dtype=cupy.float32) / 256
    for number in range(STEPS):
        batch = cupy.full((64 + 8 * (number % 5), 256), 0.01 * number, dtype=cupy.float32)
        hidden = cupy.maximum(batch @ weights, 0)
        weights = weights - 0.001 * (batch.T @ hidden)
    cupy.cuda.Device().synchronize()
    return STEPS


def main() -> None:
    mode = sys.argv[1]
    if mode in ("jax", "cupy"):
        steps = {"jax": jax, "cupy": cupy}[mode]()
    else:
        import torch

        torch.manual_seed(1)
        steps = globals()[mode](torch)
        torch.cuda.synchronize()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
