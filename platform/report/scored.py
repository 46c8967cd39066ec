"""The pool as HNAS sees it: M divided by its largest, kappa, and the evaluated architectures among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from archray.platform.report.view import RunView, failures, numbers


@dataclass(frozen=True)
class Scored:
    """The rows of the pool that can be ranked.

    Args:
        names: (n,) architecture strings.
        m: (n,) |M| over the scale, in (0, 1] for the scale of note H1.
        kappa: (n,) condition numbers, positive.
        excluded: how many rows of the pool have a failure, M = 0, or a value that is not finite.
    """

    names: np.ndarray
    m: np.ndarray
    kappa: np.ndarray
    excluded: int

    def row(self, architecture: object) -> int | None:
        """The position of an architecture's first row, None if it has none."""
        found = np.flatnonzero(self.names == architecture)
        return int(found[0]) if found.size else None


def scored(view: RunView) -> Scored | None:
    """The rankable rows of `view.pool`; None if it lacks a column or has no such row."""
    pool = view.pool
    if view.proxy is None or not {"architecture", view.proxy, "kappa"} <= set(pool.columns):
        return None
    m, kappa = numbers(pool, view.proxy).abs().to_numpy(), numbers(pool, "kappa").to_numpy()
    usable = np.isfinite(m) & np.isfinite(kappa) & (m > 0) & (kappa > 0) & failures(pool).isna().to_numpy()
    if not usable.any():
        return None
    scale = view.objective.scale if view.objective is not None else float(m[usable].max())
    names = pool["architecture"].astype(str).to_numpy(dtype=object)
    return Scored(names[usable], m[usable] / scale, kappa[usable], int((~usable).sum()))


def values_by_architecture(view: RunView) -> dict[str, float]:
    """The metric of each architecture that was trained without failure, the first training of it."""
    if "architecture" not in view.evaluated:
        return {}
    values = numbers(view.evaluated, "value").where(failures(view.evaluated).isna())
    known: dict[str, float] = {}
    for name, value in zip(view.evaluated["architecture"], values, strict=True):
        if isinstance(name, str) and np.isfinite(value):
            known.setdefault(name, float(value))
    return known
