"""Tests of programs that use PyTorch, for pytest --memlab: what is called test_holds_... passes, test_exceeds_... fails by its
limit alone, in any order and however often.
"""

from __future__ import annotations

import pytest
import torch

MIB = 1 << 20
kept: list = []


@pytest.fixture(scope="module")
def net():
    """Its weights are the fixture's, 16 MiB each."""
    return torch.nn.Sequential(torch.nn.Linear(2048, 2048, bias=False), torch.nn.Linear(2048, 2048, bias=False)).cuda()


@pytest.fixture
def batch():
    return torch.randn(2048, 2048, device="cuda")


def step(net, batch):
    """Two outputs, the loss's square, gradients of these and of the weights: 16 MiB each. cuBLAS takes workspaces."""
    net(batch).square().mean().backward()
    net.zero_grad(set_to_none=True)


@pytest.mark.limit_gpu_memory("144 MiB")
@pytest.mark.limit_gpu_leaks("1 MiB")
@pytest.mark.parametrize("run", range(100))
def test_holds_step(net, batch, run):
    step(net, batch)


@pytest.mark.limit_gpu_memory("24 MiB")
def test_exceeds_step(net, batch):
    step(net, batch)


@pytest.mark.limit_gpu_allocations(2)
def test_holds_allocations():
    torch.empty(MIB, device="cuda")
    torch.empty(MIB, device="cuda")


@pytest.mark.limit_gpu_allocations(2)
def test_exceeds_allocations():
    for _ in range(3):
        torch.empty(MIB, device="cuda")


@pytest.mark.limit_gpu_memory("8 MiB", kind="pinned")
def test_holds_device_beside_pinned():
    torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("8 MiB", kind="pinned")
def test_exceeds_pinned():
    torch.empty(64 * MIB, dtype=torch.uint8, pin_memory=True)


@pytest.mark.limit_gpu_leaks("1 MiB")
def test_holds_results(net, batch):
    """The exception's frames, the graph and a cycle hold tensors until they are collected."""
    result = [net(batch)]
    result.append(result)
    with pytest.raises(RuntimeError):
        net(batch[:, :7])


@pytest.mark.limit_gpu_leaks("1 MiB")
def test_exceeds_by_history():
    for _ in range(3):
        kept.append(torch.empty(MIB, device="cuda"))


@pytest.mark.limit_gpu_leaks("1 MiB")
def test_exceeds_by_gradients(net, batch):
    """They stay with the module's weights."""
    net(batch).sum().backward()
