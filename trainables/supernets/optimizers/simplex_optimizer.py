"""What the optimizers on simplices share: their parameters are checked, and a step is one update of all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, overload

import torch
from torch.optim.optimizer import Optimizer

from archray.errors import InvalidInput


class SimplexOptimizer(Optimizer):
    """Keeps every row (last dimension) of its parameters on the simplex; float32 or float64."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raises: InvalidInput if an option or a parameter is wrong; the group is not added then."""
        super().add_param_group(param_group)
        try:
            self._check(self.param_groups[-1])
        except InvalidInput:
            del self.param_groups[-1]
            raise

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update. `closure`, if given, computes anew what it takes, and its loss is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._update()
        return loss

    @abstractmethod
    def _check(self, group: dict[str, Any]) -> None:
        """Raises: InvalidInput if an option of a parameter group, or one of its parameters, cannot be used."""

    @abstractmethod
    def _update(self) -> None:
        """Overwrites all parameters."""
