"""The configuration of HNAS, its presets and its flags. Shu 2022, ch. 7; note H2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from archray.errors import InvalidInput
from archray.platform.config import SearchConfig, merge
from archray.platform.methods.config import (
    SCORED_WITHOUT_TRAINING,
    SCORINGS,
    TRAININGS,
    PooledConfig,
    check_budget_grows,
)
from archray.platform.methods.method import Method, Values
from archray.settings import Settings
from archray.trainables.proxies import ProxySettings, column_of
from archray.trainables.proxies.settings import MetricName
from archray.trainables.spaces import get_space
from archray.trainables.training_settings import TrainingSettings

if TYPE_CHECKING:
    from archray.searchers.pool_file import PoolFile

KAPPA = "kappa"


class HNASOptions(Settings):
    """Options of `HNASSearch`.

    Fields:
        proxy: the training-free metric M in the objective (Eq. 7.7): a name (`archray list proxies`) or
            `path.py:function`.
        budget: number of training runs (K in Algorithm 7.1); the authors' program uses 20.
        points: how the objective's parameters (mu, nu) are chosen. `selections`: alternately by a Gaussian process
            over the selected architectures and at random. `bayesian`: by a Gaussian process over (mu, nu), as in the
            paper. `uniform`: at random. Default: `selections`; `bayesian` with the preset `paper-code` or with
            `on_repeat` set to `reuse`.
        penalty: form of the penalty F(x) in the objective: `square` (x^2, Eq. 7.7) or `absolute` (|x|). Default: the
            penalty of the preset, or `square`.
        preset: `paper-code` reproduces the authors' program: absolute penalty, unscaled M, and a growing random subset
            of the pool as candidates.
        on_repeat: what to do if (mu, nu) selects an architecture that is already trained. `next-best` (the default)
            trains the next best architecture instead; `reuse` passes the earlier value to the optimizer.
        library: library that fits the Gaussian process of `bayesian`.
    """

    proxy: MetricName = "ntk_trace"
    budget: int = Field(20, ge=1)
    points: Literal["selections", "bayesian", "uniform"] | None = None
    penalty: Literal["square", "absolute"] | None = None
    preset: Literal["paper-code"] | None = None
    on_repeat: Literal["reuse", "next-best"] | None = None
    library: Literal["scikit-optimize", "scikit-learn"] = "scikit-optimize"


class HNASConfig(PooledConfig):
    """The configuration of HNAS.

    Fields:
        proxies: how the pool is scored. The metric of the search and kappa are added to the metrics listed here.
        search: options of the search over (mu, nu).
        train: settings of the short training run that gives a trial its validation accuracy.
    """

    method: Literal["hnas"] = "hnas"
    search: HNASOptions = HNASOptions()
    train: TrainingSettings = TrainingSettings(epochs=12)

    def check(self) -> None:
        if self.search.proxy == KAPPA:
            raise InvalidInput(
                "expected search.proxy to be a metric other than kappa, which the objective of HNAS already contains. "
                "Choose another proxy"
            )
        if self.search.points == "selections" and self.search.on_repeat == "reuse":
            raise InvalidInput(
                "expected search.on_repeat to be next-best with search.points=selections, which never repeats an "
                "architecture, got reuse. Remove search.on_repeat"
            )
        super().check()
        if self.pool.table is None and self.low_is_good(self.search.proxy):
            raise InvalidInput(
                f"expected a metric whose large values are good, got {self.search.proxy}, whose small values are good. "
                "Choose another proxy, or return its inverse"
            )

    @property
    def scored(self) -> ProxySettings:
        settings = super().scored
        if self.search.preset != "paper-code" or self.pool.table is not None:
            return settings
        network = settings.network.model_copy(update=get_space(self.space).defaults.get("paper-code", {}))
        return settings.model_copy(update={"network": network})

    def architectures_of(self, file: PoolFile) -> Sequence[str]:
        from archray.searchers.hnas.objective import load_pool

        return load_pool(file, self.proxy).architectures

    def check_extends(self, before: SearchConfig) -> None:
        if isinstance(before, HNASConfig):
            check_budget_grows(self.search.budget, before.search.budget)

    @property
    def proxy(self) -> str:
        """The column of the pool with the metric M."""
        return column_of(self.search.proxy)

    @property
    def needed(self) -> tuple[str, ...]:
        return (self.search.proxy, KAPPA)


_PRESETS: Mapping[str, Values] = {
    "smoke": {
        "pool": {"size": 12},
        "search": {"budget": 3},
        "train": {"epochs": 1, "batch_size": 32},
        "final": {"epochs": 2, "batch_size": 32},
        "baseline": 2,
    },
    "demo": {
        "proxies": {"metrics": ["grad_norm", "snip", "ntk_trace"]},
        "pool": {"size": 100},
        "search": {"budget": 8},
    },
    # Shu 2022, 7.5 and appendix; the search of the authors' program (note H2), network and data of NAS-Bench-201
    "paper": {"pool": {"size": None}, "search": {"budget": 20, "preset": "paper-code"}},
}

HNAS = Method(
    name="hnas",
    config=HNASConfig,
    recipe_at="archray.platform.methods.hnas.stages:RECIPE",
    streams=True,
    presets={preset: merge(TRAININGS[preset], SCORINGS[preset], values) for preset, values in _PRESETS.items()},
    flags={
        "proxy": "search.proxy",
        "budget": "search.budget",
        "points": "search.points",
        "epochs": "train.epochs",
        "final_epochs": "final.epochs",
        "final_seeds": "final_seeds",
        "pool": "pool.table",
        "pool_size": "pool.size",
        "random": "baseline",
    },
    extendable=("budget", "final_epochs", "final_seeds", "random"),
    rejects={"decide": SCORED_WITHOUT_TRAINING},
    searcher_at="archray.platform.methods.searchers:hnas",
    by_proxy=True,
    variants={"random points": {"points": "uniform"}},  # the control experiment of note H7
)
