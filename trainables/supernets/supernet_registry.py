"""The supernets, by the name of their space. Importing this loads no torch; `networks` fills it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import Registry

if TYPE_CHECKING:
    from archray.trainables.supernets.networks.supernet import Supernet

SUPERNETS: Registry[type[Supernet]] = Registry("supernet")
