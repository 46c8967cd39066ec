"""All wanted metrics of one network on one batch, sharing passes (note P3): one forward, two backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.devices import out_of_memory
from archray.trainables.proxies.gradients import fisher, grad_norm, snip
from archray.trainables.proxies.gram import gram_matrix
from archray.trainables.proxies.grasp import grasp_and_gradients, scale_invariant
from archray.trainables.proxies.layers import Record, batch_statistics, forward
from archray.trainables.proxies.naswot import naswot
from archray.trainables.proxies.ntk import exact_gram_matrix, kappa, knas, ntk_trace
from archray.trainables.proxies.proxy import PROXIES, Score
from archray.trainables.proxies.settings import ProxySettings
from archray.trainables.proxies.synflow import synflow

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
    try:
        with batch_statistics(network):
            values = _Pass(network, images, labels, metrics, settings).values()
    except Exception as error:  # a network of the user's can fail in any way, and must not end the scoring of others
        reason = out_of_memory(error) or f"{type(error).__name__}: {error}"
        values = {name: (math.nan, reason) for name in metrics}
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
        record = forward(
            self.network,
            self.images,
            keep_outputs="fisher" in self.metrics,
            keep_relu_states="relu" in self.needs,
        )
        failure = _failure_of(record, self.labels)
        if failure:
            return {name: (math.nan, failure) for name in self.metrics}
        values: dict[str, Value] = {}
        if "relu" in self.needs:
            values["naswot"] = _guarded(lambda: naswot(record.relu_states))
        if "labels" in self.needs:
            gram = self._gram(record)
            for name, metric in (("ntk_trace", ntk_trace), ("kappa", kappa), ("knas", knas)):
                if name in self.metrics:
                    values[name] = _guarded(lambda metric=metric: metric(gram))  # type: ignore[misc]
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
        edges = [call.edge for call in record.calls]
        output_gradients = torch.autograd.grad(outputs.sum(), edges, retain_graph=True, allow_unused=True)
        return gram_matrix(record.calls, output_gradients, self.settings.gram_memory_mib)

    def _cross_entropy(self, record: Record) -> dict[str, Value]:
        """The metrics of the mean cross-entropy."""
        settings, metrics = self.settings, self.metrics
        loss = F.cross_entropy(record.logits, self.labels)
        weights = record.weights
        values: dict[str, Value] = {}
        every = list(self.network.parameters())
        if "grasp" in metrics and settings.grasp == "signed":
            value, gradients = grasp_and_gradients(loss, weights, scale_invariant(record.calls, record.logits))
            values["grasp"] = (float(value), None)
        else:
            gradients = list(
                torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
            )
        if "grasp" in metrics and settings.grasp == "absolute":
            values["grasp"] = (abs(float(grasp_and_gradients(loss, every)[0])), None)
        printed = settings.grad_norm == "global" or settings.snip == "signed"
        all_gradients = (
            torch.autograd.grad(loss, every, retain_graph=True, allow_unused=True, materialize_grads=True)
            if printed
            else []
        )
        if "grad_norm" in metrics:
            of = gradients if settings.grad_norm == "layers" else all_gradients
            values["grad_norm"] = (grad_norm(of, settings.grad_norm), None)
        if "snip" in metrics:
            if settings.snip == "absolute":
                values["snip"] = (snip(weights, gradients), None)
            else:
                values["snip"] = (snip(every, all_gradients, "signed"), None)
        if "fisher" in metrics:
            edges = [call.edge for call in record.calls]
            at_outputs = torch.autograd.grad(loss, edges, retain_graph=True, allow_unused=True)
            pairs = [
                _channels_second(call.layer, call.output, gradient)
                for call, gradient in zip(record.calls, at_outputs, strict=True)
                if gradient is not None and call.output is not None
            ]
            values["fisher"] = (fisher([a for a, _ in pairs], [b for _, b in pairs]), None)
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


def _channels_second(layer: nn.Module, output: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """(m, C, ...) both; a linear layer has its channels last."""
    if isinstance(layer, nn.Linear):
        return output.movedim(-1, 1), gradient.movedim(-1, 1)
    return output, gradient
