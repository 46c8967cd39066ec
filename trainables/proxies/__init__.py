"""Training-free metrics of networks. Shu 2022, sec. 7.2.2; notes P1 to P5.

Importing this loads no torch until a network is scored.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from archray.trainables.proxies.proxy_registry import PROXIES, NoScore, Proxy, Score, get_proxy, proxy
from archray.trainables.proxies.proxy_settings import ProxySettings, check_proxies, column_of

if TYPE_CHECKING:
    from archray.trainables.proxies.scoring import score
    from archray.trainables.proxies.shared_pass import SharedPass

_TORCH = {"SharedPass": "shared_pass", "score": "scoring"}  # what needs torch, loaded when first asked for

__all__ = [
    "PROXIES",
    "NoScore",
    "Proxy",
    "ProxySettings",
    "Score",
    "SharedPass",
    "check_proxies",
    "column_of",
    "get_proxy",
    "proxy",
    "score",
]


def __getattr__(name: str) -> Any:
    if name in _TORCH:
        return getattr(import_module(f"archray.trainables.proxies.{_TORCH[name]}"), name)
    raise AttributeError(f"module 'archray.trainables.proxies' has no attribute {name!r}")
