"""The configuration of HNAS, its presets and its flags. Shu 2022, ch. 7; note H2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from archray.errors import InvalidInput
from archray.platform.config import SearchConfig, merge
from archray.platform.methods.config import SCORINGS, TRAININGS, PooledConfig, check_budget_grows
from archray.platform.methods.method import Method, Values
from archray.settings import Settings
from archray.trainables.proxies import column_of
from archray.trainables.training_settings import TrainingSettings

if TYPE_CHECKING:
    from archray.searchers.pool_file import PoolFile

KAPPA = "kappa"


class HNASOptions(Settings):
    """Options of `HNASSearch`.

    Fields:
        proxy: the training-free metric M of Eq. 7.7: a name (`archray list proxies`), or path.py:function.
        budget: trainings, K of Algorithm 7.1. 20 in the authors' program (note H2).
        points: how (mu, nu) are chosen: `selections`, by a Gaussian process over what was selected and at random in
            turn; `bayesian`, by one over (mu, nu), as in the paper; `uniform`, at random from the same square. None:
            `selections`, and `bayesian` with the preset `paper-code` and with `tell`.
        penalty: F(x) is x^2 (`square`, Eq. 7.7) or |x| (`absolute`); None: that of the preset, or `square`.
        preset: `paper-code` does as the authors' program (note H2): absolute penalty on the unscaled M, and candidates
            that grow by random rows of the pool.
        on_repeat: what happens to a point that selects an architecture again: `next-best` (also None) takes the next
            best instead, `tell` answers with the value that is known.
    """

    proxy: str = "ntk_trace"
    budget: int = Field(20, ge=1)
    points: Literal["selections", "bayesian", "uniform"] | None = None
    penalty: Literal["square", "absolute"] | None = None
    preset: Literal["paper-code"] | None = None
    on_repeat: Literal["tell", "next-best"] | None = None


class HNASConfig(PooledConfig):
    """The configuration of HNAS.

    Fields:
        proxies: how the pool is scored: its metrics are those listed, the one searched with, and kappa.
        search: the search over (mu, nu).
        train: the short training that gives a trial its value.
    """

    method: Literal["hnas"] = "hnas"
    search: HNASOptions = HNASOptions()
    train: TrainingSettings = TrainingSettings(epochs=12)

    def check(self) -> None:
        if self.search.proxy == KAPPA:
            raise InvalidInput("kappa is the other half of HNAS's objective; choose another proxy")
        if self.search.points == "selections" and self.search.on_repeat == "tell":
            raise InvalidInput("search.points=selections asks for nothing twice: leave search.on_repeat=tell out")
        super().check()
        if self.pool.table is None and self.low_is_good(self.search.proxy):
            raise InvalidInput(
                f"HNAS looks for a large M, and {self.search.proxy} promises the more the smaller it is; choose "
                "another proxy, or return its inverse"
            )

    def architectures_of(self, file: PoolFile) -> Sequence[str]:
        from archray.searchers.hnas.objective import load_pool

        return load_pool(file, self.proxy).architectures

    def check_extends(self, before: SearchConfig) -> None:
        if isinstance(before, HNASConfig):
            check_budget_grows(self.search.budget, before.search.budget)

    @property
    def proxy(self) -> str:
        """The column of the pool that is M."""
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
        "pool": {"size": 300},
        "search": {"budget": 8},
    },
    # Shu 2022, 7.5 and appendix; the search as in the authors' program (note H2), NAS-Bench-201's network and data
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
    searcher_at="archray.platform.methods.searchers:hnas",
    by_proxy=True,
    beside={"random points": {"points": "uniform"}},  # note H7: they may find as much
)
