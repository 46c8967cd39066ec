"""Settings of training-free metrics: their variants, the network and the batch (notes P1, P2, P4, P5)."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from archray.errors import InvalidInput
from archray.objects import named
from archray.references import is_reference, split_reference
from archray.settings import Seed, Settings
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.proxies.registry import PROXIES, get_proxy

OTHER_COLUMNS = ("architecture", "failure", "seconds", "parameters")  # of a pool, in addition to its metrics

# A name or a reference; a function or a `Proxy` becomes a reference.
MetricName = Annotated[str, BeforeValidator(partial(named, kind="metric"))]


class ProxySettings(Settings):
    """Options of training-free metrics. Defaults: Shu (2022); Eq. 7.2 and 7.3 as printed are the second choices.

    Attributes:
        metrics: Names of metrics, or references to custom metrics (see `get_proxy`).
        batch_size: Number of images, m, in the one batch on which every architecture is scored.
        seed: Seed of the batch and of the initial weights.
        augment: Whether to augment the images of the batch.
        network: Width, depth and initialization of the scored networks.
        grad_norm: Form of grad_norm. `layers`: sum over layers of the norm of the weight gradient. `global`: norm over
            all parameters, Eq. 7.2.
        snip: Form of SNIP. `absolute`: sum |theta g|. `signed`: |theta^T g| over all parameters, Eq. 7.3.
        grasp: Form of GraSP. `signed`: -theta^T H g over weights. `absolute`: |theta^T H g| over all parameters,
            Eq. 7.3.
        ntk_gradient: Gradient of a sample in the NTK. `per-sample`: through the activations of the sample alone.
            `exact`: the row of the Jacobian, in m backward passes.
        ntk_output: Scalar output in the NTK: the logit of the label, or the sum of logits.
        synflow: Form of SynFlow: without batch normalization (`no-bn`) or with it (`bn`).
        gram_memory_mib: Upper bound on the memory of per-sample gradients while the Gram matrix is summed, in MiB.
    """

    metrics: tuple[MetricName, ...] = ("ntk_trace", "kappa")
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
        """Column names of the metrics in a pool."""
        return tuple(map(column_of, self.metrics))


def column_of(metric: str) -> str:
    """Returns the column name of a metric in a pool: its name, or the attribute that a reference names."""
    return split_reference(metric)[1] if is_reference(metric) else metric


def check_proxies(settings: ProxySettings) -> None:
    """Checks the names and loads custom metrics. Raises: UnknownName; InvalidInput, also without metrics."""
    if not settings.metrics:
        raise InvalidInput(f"expected at least one metric. Choose from {', '.join(PROXIES.names())}")
    _check_names(settings.metrics)  # a copy of settings is not validated
    for name in filter(is_reference, settings.metrics):
        get_proxy(name)


def _check_names(metrics: Sequence[str]) -> None:
    """Raises: UnknownName for an unknown name; InvalidInput if two have the same column."""
    for name in metrics:
        if not is_reference(name):
            PROXIES.check(name)
        elif column_of(name) in (*PROXIES, *OTHER_COLUMNS):
            raise InvalidInput(
                f"expected another name for the metric {name!r}: its column {column_of(name)!r} is reserved in a pool; "
                "rename the function"
            )
    if len(set(map(column_of, metrics))) != len(metrics):
        raise InvalidInput(f"expected distinct metrics, got {', '.join(metrics)}")
