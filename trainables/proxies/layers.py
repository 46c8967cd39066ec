"""One forward pass with every convolution and linear layer recorded: its input, and where its gradient arrives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

# Convolution and linear layers carry the weights of all metrics (note P1).
WeightLayer = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear
WEIGHT_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


@dataclass
class Call:
    """One use of a layer in the forward pass.

    Attributes:
        layer: the module.
        input: (m, ...) what went in, detached.
        output: (m, ...) what came out, detached; only if outputs are kept.
        edge: the place in the autograd graph where the output's gradient arrives. Unlike the output itself it
            stays valid when the network goes on to change the output in place.
    """

    layer: WeightLayer
    input: Tensor
    output: Tensor | None
    edge: GradientEdge


@dataclass
class Record:
    """A forward pass: logits (m, K), the calls of weight layers in order, the states of ReLU units."""

    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    calls: list[Call] = field(default_factory=list)
    relu_states: list[Tensor] = field(default_factory=list)  # (m, units) bool each

    @property
    def layers(self) -> list[WeightLayer]:
        """The layers that were called, each once, in the order of the first call."""
        return list(dict.fromkeys(call.layer for call in self.calls))

    @property
    def weights(self) -> list[Tensor]:
        return list({id(layer.weight): layer.weight for layer in self.layers}.values())


def forward(
    network: nn.Module, images: Tensor, *, keep_outputs: bool = False, keep_relu_states: bool = False
) -> Record:
    """Runs `network` on `images` (m, C, H, W) as it is (see `batch_statistics` for the mode) and records its layers.

    keep_outputs: keep a copy of each layer's output (fisher). keep_relu_states: keep which units of every
    `nn.ReLU` module are on (naswot).
    """
    record = Record()

    def after_weight_layer(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        assert isinstance(layer, WEIGHT_LAYERS)
        # An input without gradient is the data: its output's edge exists all the same, through the weight.
        kept = output.detach().clone() if keep_outputs else None
        record.calls.append(Call(layer, inputs[0].detach(), kept, get_gradient_edge(output)))

    def after_relu(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        record.relu_states.append((output.detach() > 0).flatten(1))

    handles = []
    for module in network.modules():
        if isinstance(module, WEIGHT_LAYERS):
            handles.append(module.register_forward_hook(after_weight_layer))
        elif keep_relu_states and isinstance(module, nn.ReLU):
            handles.append(module.register_forward_hook(after_relu))
    try:
        with torch.enable_grad():
            record.logits = network(images)
    finally:
        for handle in handles:
            handle.remove()
    return record


@contextmanager
def batch_statistics(network: nn.Module) -> Iterator[None]:
    """Puts `network` in train mode, all parameters requiring gradients, and leaves it as it was.

    Batch normalisation then uses the batch's statistics; its running statistics and any other buffers that a
    forward pass changes are put back.
    """
    modes = [(module, module.training) for module in network.modules()]
    frozen = [parameter for parameter in network.parameters() if not parameter.requires_grad]
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]
    network.train()
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter in frozen:
            parameter.requires_grad_(False)
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
