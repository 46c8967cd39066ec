"""HNASSearch passes the conformance suite with each treatment of repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest

from archray.searchers import HNASSearch
from archray.searchers.testing import ConformanceSuite, SearcherConformance, TunerConformance


def pool_table(rows: int = 40, seed: int = 0) -> pd.DataFrame:
    """A pool whose landscape over (mu, nu) has several minimizers."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "architecture": [f"a{row}" for row in range(rows)],
            "ntk_trace": rng.uniform(0.1, 3.0, rows),
            "kappa": rng.uniform(0.0, 0.2, rows),
        }
    )


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pool") / "pool.parquet"
    pool_table().to_parquet(path)
    return path


class HNASSuite(ConformanceSuite):
    on_repeat: Literal["reuse", "next-best"] = "reuse"

    @pytest.fixture(autouse=True)
    def _take_pool(self, pool: Path) -> None:
        self.pool = pool

    def make(self, **arguments: Any) -> HNASSearch:
        return HNASSearch(self.pool, on_repeat=self.on_repeat, **arguments)


class NextBest(HNASSuite):
    on_repeat = "next-best"


class TestNextBest(NextBest, SearcherConformance):
    pass


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
class TestInATuner(NextBest, TunerConformance):
    pass


@pytest.mark.slow  # each repeat fits the Gaussian process again
class TestTellKnownValue(HNASSuite, SearcherConformance):
    on_repeat = "reuse"


class TestBayesian(HNASSuite, SearcherConformance):
    def make(self, **arguments: Any) -> HNASSearch:
        return HNASSearch(self.pool, points="bayesian", **arguments)


class TestRandomPoints(HNASSuite, SearcherConformance):
    def make(self, **arguments: Any) -> HNASSearch:
        return HNASSearch(self.pool, points="uniform", **arguments)
