"""Architecture optimizers: how the parameters of a mixture learn. A file that is put here registers its own."""

from __future__ import annotations

from archray.registry import import_modules
from archray.trainables.supernets.optimizers.optimizer_settings import OPTIMIZERS, OptimizerSettings

import_modules(__name__)

__all__ = ["OPTIMIZERS", "OptimizerSettings"]
