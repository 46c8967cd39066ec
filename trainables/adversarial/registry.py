"""The attacks by name, what each is, and whether the toolbox that makes them is there. Neither it nor torch is loaded.

To add an attack is to add a file in `attacks/`, which holds an `Attack` of its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from archray.errors import MissingExtra
from archray.registry import PackageRegistry
from archray.trainables.adversarial.settings import AttackSettings

PACKAGES = ("art", "multiprocess")  # the toolbox, and what its AutoAttack imports without requiring it


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack of the toolbox.

    Attributes:
        title: as tables have it.
        norm: what it is bounded by: `linf`, by epsilon; `l2`, by nothing, and it makes the change small.
        reads: what of the settings it depends on, JSON-able.
        make: (the toolbox' classifier, settings) -> the toolbox' attack.
    """

    title: str
    norm: Literal["linf", "l2"]
    reads: Callable[[AttackSettings], dict[str, Any]]
    make: Callable[[Any, AttackSettings], Any]


ATTACKS: PackageRegistry[Attack] = PackageRegistry("attack", "archray.trainables.adversarial.attacks")


def check_toolbox() -> None:
    """Raises: MissingExtra, with what to install, if the toolbox is not there. It imports nothing."""
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise MissingExtra(
            f"attacks need the Adversarial Robustness Toolbox, and {', '.join(missing)} cannot be imported; install it "
            "with: pip install 'archray[adversarial]'"
        )
