"""All wanted metrics of one network on one batch, sharing passes (note P3): one forward, two backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.devices import out_of_memory
from archray.trainables.proxies.gradients import fisher, grad_norm, snip
from archray.trainables.proxies.gram import gram_matrix
from archray.trainables.proxies.grasp import grasp
from archray.trainables.proxies.layers import Call, Record, batch_statistics, forward
from archray.trainables.proxies.naswot import naswot
from archray.trainables.proxies.ntk import exact_gram_matrix, kappa, knas, ntk_trace
from archray.trainables.proxies.proxy import PROXIES, Score
from archray.trainables.proxies.proxy_settings import ProxySettings
from archray.trainables.proxies.synflow import synflow
from archray.trainables.proxies.tangents import Gradients, recognised, theta_hessian_gradient

# Logits that differ by less than this part of the largest, over the batch, differ by rounding only.
SAME_LOGITS = 1e-6


def score(
    network: nn.Module, images: Tensor, labels: Tensor, metrics: Sequence[str], settings: ProxySettings
) -> dict[str, Score]:
    """The score of `network` under each of `metrics`.

    images: (m, C, H, W). labels: (m,) int64. settings: variants and the bound on memory; its `metrics`, batch size,
    seed and network are not read here. A metric that cannot be computed has the value NaN and the reason; no network
    makes this raise. The network is left as it was. Raises: UnknownName for an unknown metric; InvalidInput for
    a batch that is none.
    """
    proxies = [PROXIES.get(name) for name in metrics]
    if len(images) < 2 or labels.shape != (len(images),):
        raise InvalidInput(
            f"expected a batch of at least 2 images and as many labels, got images of shape {tuple(images.shape)} "
            f"and labels of shape {tuple(labels.shape)}"
        )
    if images.device.type == "cpu" and images.ndim == 4 and images.dtype == torch.float32:
        images = images.contiguous(memory_format=torch.channels_last)  # oneDNN's convolutions are faster so
    try:
        with batch_statistics(network):
            values = _Pass(network, images, labels, metrics, settings).values()
    except Exception as error:  # a network of the user's can fail in any way, and must not end the scoring of others
        reason = out_of_memory(error) or f"{type(error).__name__}: {error}"
        values = dict.fromkeys(metrics, (math.nan, reason))
    return {proxy.name: Score.of(proxy, *values[proxy.name]) for proxy in proxies}


Value = tuple[float, str | None]  # and the reason of a failure


class _Pass:
    """One forward pass and the backward passes that the metrics need, each done once."""

    def __init__(
        self, network: nn.Module, images: Tensor, labels: Tensor, metrics: Sequence[str], settings: ProxySettings
    ) -> None:
        self.network, self.images, self.labels = network, images, labels
        self.metrics, self.settings = metrics, settings
        self.needs = frozenset().union(*(PROXIES.get(name).needs for name in metrics))

    def values(self) -> dict[str, Value]:
        if self.needs == {"own"}:
            return self._own_passes()
        record = forward(self.network, self.images, copy_outputs="fisher" in self.metrics)
        failure = _failure_of(record, self.labels)
        if failure:
            return dict.fromkeys(self.metrics, (math.nan, failure))
        values: dict[str, Value] = {}
        if "relu" in self.needs:
            values["naswot"] = _guarded(lambda: naswot([(call.output > 0).flatten(1) for call in record.relus]))
        if "labels" in self.needs:
            gram = self._gram(record)
            rounding = torch.finfo(record.logits.dtype).eps
            of_kernel: dict[str, Callable[[], float]] = {
                "ntk_trace": lambda: ntk_trace(gram),
                "kappa": lambda: kappa(gram, rounding),
                "knas": lambda: knas(gram),
            }
            values |= {name: _guarded(metric) for name, metric in of_kernel.items() if name in self.metrics}
        if "cross_entropy" in self.needs:
            values |= self._cross_entropy(record)
        return values | self._own_passes()

    def _gram(self, record: Record) -> Tensor:
        """(m, m): from the backward pass of the sum of label logits (or of all logits)."""
        if self.settings.ntk_output == "label":
            outputs = record.logits.gather(1, self.labels[:, None])[:, 0]  # (m,)
        else:
            outputs = record.logits.sum(1)
        if self.settings.ntk_gradient == "exact":
            parameters = {id(p): p for layer in record.layers for p in (layer.weight, layer.bias) if p is not None}
            return exact_gram_matrix(outputs, list(parameters.values()), self.settings.gram_memory_mib)
        edges: list[Any] = [call.edge for call in record.calls]
        output_gradients = torch.autograd.grad(outputs.sum(), edges, retain_graph=True, allow_unused=True)
        return gram_matrix(record.calls, output_gradients, self.settings.gram_memory_mib)

    def _cross_entropy(self, record: Record) -> dict[str, Value]:
        """The metrics of the mean cross-entropy: one backward pass to all that any of them needs."""
        settings, metrics = self.settings, self.metrics
        loss = F.cross_entropy(record.logits, self.labels)
        weights, every = record.weights, list(self.network.parameters())
        signed_grasp = "grasp" in metrics and settings.grasp == "signed"
        by_tangents = signed_grasp and recognised(record)
        printed = ("grad_norm" in metrics and settings.grad_norm == "global") or (
            "snip" in metrics and settings.snip == "signed"
        )
        wanted: dict[str, Sequence[Any]] = {"weights": weights}
        if printed:
            wanted["every"] = every
        if by_tangents or "fisher" in metrics:
            wanted["outputs"] = [call.edge for call in record.calls]
        if by_tangents:
            wanted["norm_outputs"] = [call.edge for call in record.norms]
        by = _gradients(loss, wanted)

        values: dict[str, Value] = {}
        if "grad_norm" in metrics:
            of = by["weights"] if settings.grad_norm == "layers" else by["every"]
            values["grad_norm"] = (grad_norm(of, settings.grad_norm), None)
        if "snip" in metrics:
            of, parameters = (by["weights"], weights) if settings.snip == "absolute" else (by["every"], every)
            values["snip"] = (snip(parameters, of, settings.snip), None)
        if "fisher" in metrics:
            pairs = [_channels_second(call, b) for call, b in zip(record.calls, by["outputs"], strict=True)]
            values["fisher"] = (fisher([a for a, _ in pairs], [b for _, b in pairs]), None)
        if by_tangents:
            named = {id(weight): gradient for weight, gradient in zip(weights, by["weights"], strict=True)}
            gradients = Gradients(named, by["outputs"], by["norm_outputs"])
            values["grasp"] = (-theta_hessian_gradient(self.network, record, self.images, gradients), None)
        elif "grasp" in metrics:
            again = F.cross_entropy(self.network(self.images), self.labels)  # a graph to differentiate twice
            value = grasp(again, weights if signed_grasp else every)
            values["grasp"] = (value if signed_grasp else abs(value), None)
        return values

    def _own_passes(self) -> dict[str, Value]:
        if "synflow" not in self.metrics:
            return {}
        return {"synflow": _guarded(lambda: synflow(self.network, self.images[0], self.settings.synflow))}


def _failure_of(record: Record, labels: Tensor) -> str | None:
    """Why no metric of this forward pass means anything, or None."""
    logits = record.logits.detach()
    if logits.ndim != 2 or len(logits) != len(labels):
        return f"expected logits of shape ({len(labels)}, classes), got {tuple(logits.shape)}"
    if not bool(logits.isfinite().all()):
        return "the network's output is not finite"
    if not record.calls:
        return "the network calls no convolution or linear layer, so it has no weights to score"
    spread = (logits - logits[0]).abs().max()
    if bool(spread <= SAME_LOGITS * logits.abs().max()):
        return "disconnected: the network's output does not depend on its input"
    return None


def _guarded(metric: Callable[[], float]) -> Value:
    """The value of one metric, or NaN and the reason: the others of the pass go on."""
    try:
        return metric(), None
    except (ArithmeticError, ValueError, RuntimeError) as error:
        return math.nan, out_of_memory(error) or str(error)


def _gradients(loss: Tensor, wanted: dict[str, Sequence[Any]]) -> dict[str, list[Tensor]]:
    """The gradients of `loss` by every tensor or edge in the lists of `wanted`; zeros where it does not depend."""
    flat = [target for targets in wanted.values() for target in targets]
    found = iter(torch.autograd.grad(loss, flat, retain_graph=True, allow_unused=True, materialize_grads=True))
    return {name: [next(found) for _ in targets] for name, targets in wanted.items()}


def _channels_second(call: Call, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The call's output and its gradient as (m, C, ...); a linear layer has its channels last."""
    if isinstance(call.layer, nn.Linear):
        return call.output.movedim(-1, 1), gradient.movedim(-1, 1)
    return call.output, gradient
