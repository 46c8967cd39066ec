"""Training-free metrics of one network on one batch, from shared passes (note P3): one forward, two backward passes."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.devices import out_of_memory, restored_randomness, tf32
from archray.trainables.proxies.gram import exact_gram_matrix, gram_matrix
from archray.trainables.proxies.layers import Record, batch_statistics, forward
from archray.trainables.proxies.registry import NoScore, Proxy, Score, get_proxy
from archray.trainables.proxies.settings import ProxySettings
from archray.trainables.proxies.tangents import recognized

SAME_LOGITS = 1e-6  # smaller differences, relative to the largest logit of the batch, are rounding errors

Target = Tensor | GradientEdge  # of a derivative: a parameter, or the position of a layer's output


class PassFailed(NoScore):
    """A shared pass failed, so that all its metrics are undefined; the message is the reason."""


class SharedPass:
    """One forward pass of a network on a batch, and its backward passes. Each runs once, when a metric needs it.

    Attributes:
        network: Network in train mode, with gradients for every parameter. A metric does not change it.
        images: (m, C, H, W).
        labels: (m,) int64.
        proxies: Metrics that use the pass.
    """

    def __init__(
        self,
        network: nn.Module,
        images: Tensor,
        labels: Tensor,
        settings: ProxySettings,
        proxies: Sequence[Proxy] = (),
    ) -> None:
        self.network, self.images, self.labels = network, images, labels
        self.settings, self.proxies = settings, proxies
        self._loss_gradients: dict[Target, Tensor] = {}

    @cached_property
    def record(self) -> Record:
        """The forward pass. Raises: PassFailed if none of its metrics is meaningful."""
        with _failing_all():
            record = forward(self.network, self.images, copy_outputs=any(p.copies_outputs for p in self.proxies))
            _check(record, self.labels)
            return record

    @property
    def parameters(self) -> list[Tensor]:
        """All parameters of the network. Most metrics use `record.weights` instead (note P1)."""
        return list(self.network.parameters())

    @cached_property
    def gram(self) -> Tensor:
        """(m, m) float64: the neural tangent kernel of the label logits, or of the sum of all. Raises: PassFailed."""
        record, settings = self.record, self.settings
        with _failing_all():
            if settings.ntk_output == "label":
                outputs = record.logits.gather(1, self.labels[:, None])[:, 0]  # (m,)
            else:
                outputs = record.logits.sum(1)
            if settings.ntk_gradient == "exact":
                parameters = {id(p): p for layer in record.layers for p in (layer.weight, layer.bias) if p is not None}
                return exact_gram_matrix(outputs, list(parameters.values()), settings.gram_memory_mib)
            output_gradients = torch.autograd.grad(outputs.sum(), record.edges, retain_graph=True, allow_unused=True)
            return gram_matrix(record.calls, output_gradients, settings.gram_memory_mib)

    @cached_property
    def image_gradients(self) -> Tensor:
        """(m, C H W): the gradient of the sum of all logits by each image, by an extra forward and backward pass.

        Under batch normalization it includes the paths through the other images, as in Mellor et al. (2021).
        """
        images = self.images.detach().requires_grad_()
        # a copy, as a network may change its input in place
        (gradients,) = torch.autograd.grad(forward(self.network, images.clone()).logits.sum(), images)
        return gradients.flatten(1)

    @cached_property
    def has_tangents(self) -> bool:
        """Whether tangents pass through every layer of the network (`tangents.py`)."""
        return recognized(self.record)

    def loss_gradients(self, targets: Sequence[Target]) -> list[Tensor]:
        """Returns the gradients of the mean cross-entropy by each of `targets`; zeros for independent targets.

        One backward pass computes all targets of the metrics' `gradients_by`; other targets need another.

        Raises: PassFailed.
        """
        missing = [target for target in targets if target not in self._loss_gradients]
        if missing:
            if not self._loss_gradients:
                missing += [target for p in self.proxies if p.gradients_by for target in p.gradients_by(self)]
            distinct: list[Any] = list(dict.fromkeys(missing))
            with _failing_all():
                loss = F.cross_entropy(self.record.logits, self.labels)
                gradients = torch.autograd.grad(loss, distinct, retain_graph=True, allow_unused=True)
                filled = {t: self._zeros(t) if g is None else g for t, g in zip(distinct, gradients, strict=True)}
            self._loss_gradients.update(filled)
        return [self._loss_gradients[target] for target in targets]

    def _zeros(self, target: Target) -> Tensor:
        """Returns the zero gradient of a target that the loss does not depend on, such as an unused layer."""
        if isinstance(target, Tensor):
            return torch.zeros_like(target)
        # torch creates no zeros for the position of an output.
        return torch.zeros_like(next(c.output for c in (*self.record.calls, *self.record.norms) if c.edge == target))


@contextmanager
def _failing_all() -> Iterator[None]:
    """Turns errors into `PassFailed`, so that they count for all metrics, not only for the first one."""
    try:
        yield
    except Exception as error:  # a custom network can fail in any way
        raise PassFailed(failure_reason(error)) from error


def failure_reason(error: Exception) -> str:
    """Returns the reason in the score of a metric that raised an error."""
    if isinstance(error, NoScore):
        return str(error)
    return out_of_memory(error) or f"{type(error).__name__}: {error}"


def _check(record: Record, labels: Tensor) -> None:
    """Raises: NoScore if no metric of this forward pass is meaningful."""
    logits = record.logits.detach()
    if logits.ndim != 2 or len(logits) != len(labels):
        raise NoScore(f"expected logits of shape ({len(labels)}, classes), got {tuple(logits.shape)}")
    if not bool(logits.isfinite().all()):
        raise NoScore("expected a finite output of the network, got NaN or infinity")
    if not record.calls:
        raise NoScore(
            "expected a network with convolution or linear layers, got none, so there are no weights to score"
        )
    spread = (logits - logits[0]).abs().max()
    if bool(spread <= SAME_LOGITS * logits.abs().max()):
        raise NoScore("disconnected: the network's output does not depend on its input")


@tf32(False)
def score(
    network: nn.Module, images: Tensor, labels: Tensor, metrics: Sequence[str], settings: ProxySettings
) -> dict[str, Score]:
    """Scores `network` under each of `metrics`. Returns the scores by the metric's name (or a reference's attribute).

    A metric that fails has the value NaN and the reason: errors of networks and metrics do not propagate. The network
    is not changed.

    Args:
        images, labels: (m, C, H, W) and (m,) int64.
        metrics: Names, or references to custom metrics.
        settings: Variants, the bound on memory, and the seed of custom metrics. `metrics`, `batch_size` and `network`
            are not read.

    Raises: UnknownName for an unknown metric; InvalidInput for an invalid batch, or a reference that is not a metric.

    Example:
        ```python
        images, labels = proxy_batch(load_data(DataSettings(name="digits")), size=64, seed=42)
        scores = score(network, images, labels, ["snip", "kappa"], ProxySettings())
        print(scores["snip"].value, scores["kappa"].failure)
        ```
    """
    proxies = [get_proxy(name) for name in metrics]
    if len(images) < 2 or labels.shape != (len(images),):
        raise InvalidInput(
            f"expected a batch of 2 or more images with one label each, got images of shape {tuple(images.shape)} "
            f"and labels of shape {tuple(labels.shape)}"
        )
    scores = {
        proxy.name: _of_copies(proxy, network, images, labels, settings) for proxy in proxies if not proxy.shares_pass
    }
    if images.device.type == "cpu" and images.ndim == 4 and images.dtype == torch.float32:
        images = images.contiguous(memory_format=torch.channels_last)  # faster in oneDNN's convolutions
    sharing = [proxy for proxy in proxies if proxy.shares_pass]
    try:
        with batch_statistics(network):
            shared = SharedPass(network, images, labels, settings, sharing)
            scores |= {proxy.name: _score(proxy, partial(proxy.function, shared)) for proxy in sharing}
    except Exception as error:  # a custom network can fail in any way, which must not end the scoring of others
        reason = failure_reason(error)
        scores |= {proxy.name: Score(math.nan, proxy.direction, reason) for proxy in sharing}
    return {proxy.name: scores[proxy.name] for proxy in proxies}


def _of_copies(proxy: Proxy, network: nn.Module, images: Tensor, labels: Tensor, settings: ProxySettings) -> Score:
    """Scores by a function of network, images and labels, which may change them, and draw random numbers."""
    with restored_randomness(settings.seed, images.device), torch.enable_grad():
        return _score(proxy, lambda: proxy.function(copy.deepcopy(network), images.clone(), labels.clone()))


def _score(proxy: Proxy, function: Callable[[], Any]) -> Score:
    """Scores by `function`, or returns NaN and the reason. Raises: PassFailed."""
    try:
        value = function()
        if not (isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)):
            raise NoScore(f"expected a number, got {type(value).__name__}")
        if math.isfinite(number := float(value)):
            return Score(number, proxy.direction)
        raise NoScore(f"the value is {number}")
    except PassFailed:
        raise
    except Exception as error:
        return Score(math.nan, proxy.direction, failure_reason(error))
