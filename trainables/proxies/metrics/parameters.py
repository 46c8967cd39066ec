"""Number of parameters: a baseline that no metric may be shown without."""

from __future__ import annotations

from archray.trainables.nets.cost import count_parameters
from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass


@proxy(direction="max")
def parameters(shared: SharedPass) -> float:
    return float(count_parameters(shared.network))
