"""Training-free metrics of networks. Shu 2022, sec. 7.2.2; notes P1 to P5.

torch is not imported until a network is scored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes
from archray.trainables.proxies import metrics as metrics
from archray.trainables.proxies.registry import PROXIES, NoScore, Proxy, Score, get_proxy, low_is_good, proxy
from archray.trainables.proxies.settings import ProxySettings, check_proxies, column_of

if TYPE_CHECKING:
    from archray.trainables.proxies.shared_pass import SharedPass, score

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
    "low_is_good",
    "proxy",
    "score",
]

__getattr__ = lazy_attributes(__name__, shared_pass=("SharedPass", "score"))  # these need torch
