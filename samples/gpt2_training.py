"""gpt2_training.py

Three steps of a training of GPT-2 (124 million parameters, from transformers) on random text, without a line about memory.

What to look for, with `memlab-run -- python3 samples/gpt2_training.py`: `memlab-report nn-modules` has the memory of each
nn.Module by what PyTorch uses it for, `memlab-report leaks --largest` names tensors, and `memlab-report html` shows both.
"""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def train(steps: int, batch: int, length: int) -> float:
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config()).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        tokens = torch.randint(0, model.config.vocab_size, (batch, length), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def main() -> int:
    if not torch.cuda.is_available():
        print("PyTorch finds no GPU", file=sys.stderr)
        return 2
    print(f"trained: {train(steps=3, batch=4, length=512) > 0}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
