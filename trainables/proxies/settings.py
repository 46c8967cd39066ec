"""The metrics to compute, their variants, the network and the batch (notes P1, P2, P4, P5)."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from archray.errors import InvalidInput
from archray.references import is_reference, split_reference
from archray.settings import Seed, Settings
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.proxies.registry import PROXIES, get_proxy

OTHER_COLUMNS = ("architecture", "failure", "seconds", "parameters")  # of a pool, in addition to its metrics


class ProxySettings(Settings):
    """Defaults are those of the thesis' results; Eq. 7.2 and 7.3 as printed are the second choices.

    Attributes:
        metrics: names in `PROXIES`, or references to custom metrics (see `get_proxy`), at least one.
        batch_size: m, images in the one batch that every architecture is scored on.
        seed: of the batch and of the initial weights.
        augment: augment the images of the batch (note P5).
        network: width, depth and initialisation of the scored networks.
        grad_norm: `layers`: sum over layers of the weight gradient's norm; `global`: Eq. 7.2, all parameters.
        snip: `absolute`: sum |theta g|; `signed`: Eq. 7.3, |theta^T g| over all parameters.
        grasp: `signed`: -theta^T H g over weights; `absolute`: Eq. 7.3, |theta^T H g| over all parameters.
        ntk_gradient: gradient of a sample (note P2). `per-sample`: the part through the sample's own activations;
            `exact`: the row of the Jacobian, m backward passes.
        ntk_output: scalar output of the kernel (note P4): the label's logit, or the sum of logits.
        synflow: without batch normalisation (`no-bn`) or with it (`bn`).
        gram_memory_mib: bound on the per-sample gradients held at once while the Gram matrix is summed.
    """

    metrics: tuple[str, ...] = ("ntk_trace", "kappa")
    batch_size: int = Field(64, ge=2)
    seed: Seed = 42
    augment: bool = True
    network: NetworkSettings = NetworkSettings()
    grad_norm: Literal["layers", "global"] = "layers"
    snip: Literal["absolute", "signed"] = "absolute"
    grasp: Literal["signed", "absolute"] = "signed"
    ntk_gradient: Literal["per-sample", "exact"] = "per-sample"
    ntk_output: Literal["label", "sum"] = "label"
    synflow: Literal["no-bn", "bn"] = "no-bn"
    gram_memory_mib: float = Field(256.0, gt=0)

    @field_validator("metrics")
    @classmethod
    def _known_metrics(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        _check_names(metrics)
        return metrics

    @property
    def columns(self) -> tuple[str, ...]:
        """The metrics' names in a pool."""
        return tuple(map(column_of, self.metrics))


def column_of(metric: str) -> str:
    """The name of a metric in a pool: its own, or the attribute that a reference names."""
    return split_reference(metric)[1] if is_reference(metric) else metric


def check_proxies(settings: ProxySettings) -> None:
    """Checks the names, and loads custom metrics. Raises: UnknownName; InvalidInput."""
    _check_names(settings.metrics)  # a copy of settings is not validated
    for name in filter(is_reference, settings.metrics):
        get_proxy(name)


def _check_names(metrics: Sequence[str]) -> None:
    """Raises: UnknownName for an unknown name; InvalidInput for no metrics, or two of the same column."""
    if not metrics:
        raise InvalidInput(f"expected at least one metric; choose from {', '.join(PROXIES.names())}")
    for name in metrics:
        if not is_reference(name):
            PROXIES.check(name)
        elif column_of(name) in (*PROXIES, *OTHER_COLUMNS):
            raise InvalidInput(
                f"{name!r} would be the column {column_of(name)!r} of the pool, which means something else there; give "
                "the function another name"
            )
    if len(set(map(column_of, metrics))) != len(metrics):
        raise InvalidInput(f"expected distinct metrics, got {', '.join(metrics)}")
