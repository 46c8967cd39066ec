"""All wanted metrics of one network on one batch, each by its function; they share passes (note P3)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.trainables.proxies.layers import batch_statistics
from archray.trainables.proxies.proxy_registry import NoScore, Proxy, Score, get_proxy
from archray.trainables.proxies.proxy_settings import ProxySettings
from archray.trainables.proxies.shared_pass import PassFailed, SharedPass, failure_reason
from archray.trainables.randomness import own_randomness

Value = tuple[float, str | None]  # and the reason of a failure


def score(
    network: nn.Module, images: Tensor, labels: Tensor, metrics: Sequence[str], settings: ProxySettings
) -> dict[str, Score]:
    """The score of `network` under each of `metrics`, by the metric's name (of a reference, its attribute).

    images: (m, C, H, W). labels: (m,) int64. metrics: names, or references to the user's own. settings: variants and
    the bound on memory, and the seed of what the user's own draw; its `metrics`, batch size and network are not read
    here. A metric that cannot be computed has the value NaN and the reason; no network and no metric makes this raise.
    The network is left as it was. Raises: UnknownName for an unknown metric; InvalidInput for a batch that is none, or
    a reference that is no metric.
    """
    proxies = [get_proxy(name) for name in metrics]
    if len(images) < 2 or labels.shape != (len(images),):
        raise InvalidInput(
            f"expected a batch of at least 2 images and as many labels, got images of shape {tuple(images.shape)} "
            f"and labels of shape {tuple(labels.shape)}"
        )
    values = {
        proxy.name: _of_copies(proxy, network, images, labels, settings) for proxy in proxies if not proxy.shares_pass
    }
    if images.device.type == "cpu" and images.ndim == 4 and images.dtype == torch.float32:
        images = images.contiguous(memory_format=torch.channels_last)  # oneDNN's convolutions are faster so
    sharing = [proxy for proxy in proxies if proxy.shares_pass]
    try:
        with batch_statistics(network):
            shared = SharedPass(network, images, labels, settings, sharing)
            values |= {proxy.name: _value(proxy.function, shared) for proxy in sharing}
    except Exception as error:  # a network of the user's can fail in any way, and must not end the scoring of others
        values |= dict.fromkeys([proxy.name for proxy in sharing], (math.nan, failure_reason(error)))
    return {proxy.name: Score.of(proxy, *values[proxy.name]) for proxy in proxies}


def _of_copies(proxy: Proxy, network: nn.Module, images: Tensor, labels: Tensor, settings: ProxySettings) -> Value:
    """The value of a function of network, images and labels: it may do to them, and draw, what it likes."""

    def measure() -> Any:
        with own_randomness(settings.seed, images.device), torch.enable_grad():
            return proxy.function(copy.deepcopy(network), images.clone(), labels.clone())

    return _value(measure)


def _value(function: Callable[..., Any], *arguments: Any) -> Value:
    """The value of one metric, or NaN and the reason: the others go on. Raises: PassFailed."""
    try:
        value = function(*arguments)
        if isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1):
            return float(value), None
        raise NoScore(f"expected a number, got {type(value).__name__}")
    except PassFailed:
        raise
    except Exception as error:
        return math.nan, failure_reason(error)
