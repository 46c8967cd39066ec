"""One forward pass with its layers recorded: what went in, what came out, and where the gradient arrives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from archray.trainables.proxies.average_pool import shifted_sums
from archray.trainables.proxies.batch_norm import pairwise_sums
from archray.trainables.proxies.shared_relu import shared_relus

# Convolution and linear layers carry the weights of all metrics (note P1).
WeightLayer = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear
WEIGHT_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass
class Call:
    """One use of a layer in the forward pass.

    Attributes:
        input, output: (m, ...) what went in and came out, detached. They share memory with the network's tensors; the
            output may be changed in place later (see `intact`), the input may not: autograd needs it.
        edge: the place in the autograd graph where the output's gradient arrives. Unlike the output itself it
            stays valid when the network goes on to change the output in place. None for an output that depends on
            no parameter, such as a ReLU of the images.
        version: of the output when it was recorded.
    """

    layer: Any
    input: Tensor
    output: Tensor
    edge: GradientEdge | None
    version: int

    @property
    def node(self) -> Any:
        """The node of the autograd graph that the output comes from, or None."""
        return None if self.edge is None else self.edge.node

    @property
    def intact(self) -> bool:
        """Whether `output` still holds what came out."""
        return self.output._version == self.version


@dataclass
class Record:
    """A forward pass: logits (m, K) with their graph, and the calls of each kind of layer, in order."""

    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    calls: list[Call] = field(default_factory=list)  # convolutions and linear layers
    norms: list[Call] = field(default_factory=list)
    relus: list[Call] = field(default_factory=list)

    @property
    def layers(self) -> list[WeightLayer]:
        """The weight layers that were called, each once, in the order of the first call."""
        return list(dict.fromkeys(call.layer for call in self.calls))

    @property
    def weights(self) -> list[Tensor]:
        return list({id(layer.weight): layer.weight for layer in self.layers}.values())

    @property
    def edges(self) -> list[Any]:
        """Where the gradients of the outputs of `calls` arrive: a `GradientEdge` each."""
        return [call.edge for call in self.calls]

    @property
    def norm_edges(self) -> list[Any]:
        """The same of `norms`; None for one whose output depends on no parameter."""
        return [call.edge for call in self.norms]


def forward(network: nn.Module, images: Tensor, *, copy_outputs: bool = False) -> Record:
    """Runs `network` on `images` (m, C, H, W), in the mode it is in, and records its layers.

    Its graph can be differentiated once.

    copy_outputs: record copies of the outputs, which nothing changes in place.
    """
    record = Record()

    def recorder(calls: list[Call]) -> Any:
        def after(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            kept = output.detach().clone() if copy_outputs else output.detach()
            edge = get_gradient_edge(output) if output.requires_grad else None
            calls.append(Call(layer, inputs[0].detach(), kept, edge, kept._version))

        return after

    kinds: list[tuple[Any, list[Call]]] = [
        (WEIGHT_LAYERS, record.calls),
        (BATCH_NORMS, record.norms),
        (nn.ReLU, record.relus),
    ]
    handles = [
        module.register_forward_hook(recorder(calls))
        for module in network.modules()
        for kind, calls in kinds
        if isinstance(module, kind)
    ]
    try:
        with torch.enable_grad(), pairwise_sums(network), shifted_sums(network), shared_relus(network):
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
