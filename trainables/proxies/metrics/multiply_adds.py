"""Multiply-adds of one image, what papers call FLOPs: a baseline that no metric may be shown without."""

from __future__ import annotations

from archray.trainables.nets.cost import count_multiply_adds
from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass


@proxy(direction="max")
def multiply_adds(shared: SharedPass) -> float:
    channels, height, width = shared.images.shape[1:]
    return float(count_multiply_adds(shared.network, (channels, height, width)))
