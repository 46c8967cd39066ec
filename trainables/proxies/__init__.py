"""Training-free metrics of networks. Shu 2022, sec. 7.2.2; notes P1 to P5.

Importing this loads no torch until a network is scored.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from archray.trainables.proxies.proxy import PROXIES, Proxy, Score
from archray.trainables.proxies.proxy_settings import ProxySettings

if TYPE_CHECKING:
    from archray.trainables.proxies.scoring import score

_TORCH = {"score": "scoring"}  # what needs torch, loaded when first asked for

__all__ = ["PROXIES", "Proxy", "ProxySettings", "Score", "score"]


def __getattr__(name: str) -> Any:
    if name in _TORCH:
        return getattr(import_module(f"archray.trainables.proxies.{_TORCH[name]}"), name)
    raise AttributeError(f"module 'archray.trainables.proxies' has no attribute {name!r}")
