"""One ReLU for all readers of a tensor: when it is shared, and gradients equal to those of separate ReLUs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from archray.trainables.proxies import ProxySettings, score
from archray.trainables.proxies.layers import forward, shared_relus
from archray.trainables.proxies.metrics.gradients import double_backward
from archray.trainables.proxies.tangents import recognized


class Branches(nn.Module):
    """Two branches of the same tensor. `change` may act on it, or on the first ReLU's output, between them."""

    def __init__(self, change: str = "nothing") -> None:
        super().__init__()
        self.change = change
        self.stem, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4, track_running_stats=False)
        self.first, self.second = nn.ReLU(), nn.ReLU()
        self.left, self.right = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.classifier = nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        x = self.norm(self.stem(images))
        a = self.first(x)
        if self.change == "input":
            with torch.no_grad():
                x.mul_(-1.0)
        elif self.change == "output":
            a += 1.0
        return self.classifier((self.left(a) + self.right(self.second(x))).mean((2, 3)))


def network(change: str = "nothing") -> Branches:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Branches(change).double().train()


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(6, 2, 8, 8, generator=generator, dtype=torch.float64), torch.arange(6) % 3


def test_readers_of_one_tensor_share_a_node_and_a_changed_one_does_not() -> None:
    images, _ = batch()
    for change, nodes in (("nothing", 1), ("input", 2)):
        record = forward(network(change), images)
        assert (len(record.relus), len({call.node for call in record.relus})) == (2, nodes)
    assert "forward" not in vars(network().first)


def test_tensors_without_a_graph_are_not_shared() -> None:
    """An in-place change would not be detected."""
    relus = nn.ModuleList([nn.ReLU(), nn.ReLU()])
    x = torch.tensor([-1.0, 2.0])
    with shared_relus(relus):
        first = relus[0](x)
        first += 1
        assert relus[1](x).tolist() == [0.0, 2.0]


def test_gradients_equal_those_of_separate_relus() -> None:
    module, (images, labels) = network(), batch()
    assert recognized(forward(module, images))
    weights = [layer.weight for layer in (module.stem, module.left, module.right, module.classifier)]
    loss = nn.functional.cross_entropy(module(images), labels)  # without the passes' ReLUs
    gradients = torch.autograd.grad(loss, weights, retain_graph=True)
    found = score(module, images, labels, ["grad_norm", "grasp"], ProxySettings())
    assert found["grad_norm"].value == pytest.approx(sum(float(g.norm()) for g in gradients), rel=1e-10)
    assert found["grasp"].value == pytest.approx(double_backward(loss, weights), rel=1e-8)


def test_changing_an_output_in_place_fails_as_it_does_without_sharing() -> None:
    images, labels = batch()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        network("output")(images).sum().backward()
    failure = score(network("output"), images, labels, ["grad_norm"], ProxySettings())["grad_norm"].failure
    assert "modified by an inplace operation" in str(failure)
