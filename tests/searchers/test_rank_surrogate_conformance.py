"""The searches over several metrics pass the conformance suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from archray.searchers import RankSurrogateSearch, RoBoTSearch
from archray.searchers.testing import ConformanceSuite, SearcherConformance, TunerConformance


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pool") / "pool.parquet"
    rng = np.random.default_rng(0)
    codes = [f"{a}-{b}-{c}" for a in range(3) for b in range(3) for c in range(4)]
    frame = pd.DataFrame({"architecture": codes, "snip": rng.random(36), "flops": rng.integers(1, 5, 36)})
    frame.loc[3, "snip"] = np.nan
    frame.to_parquet(path)
    return path


class RankSurrogateSuite(ConformanceSuite):
    options: dict[str, Any] = {}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _take_pool(self, pool: Path) -> None:
        self.pool = pool

    def make(self, **arguments: Any) -> RankSurrogateSearch:
        return RankSurrogateSearch(self.pool, **self.options, **arguments)


@pytest.mark.usefixtures("ray_session")
@pytest.mark.slow
class TestInATuner(RankSurrogateSuite, TunerConformance):
    pass


class TestMetricsAndCodes(RankSurrogateSuite, SearcherConformance):
    pass


class TestMetricsAlone(RankSurrogateSuite, SearcherConformance):
    options = {"metrics": ["snip"], "encoding": "none"}  # noqa: RUF012


class TestRoBoT(RankSurrogateSuite, SearcherConformance):
    def make(self, **arguments: Any) -> RoBoTSearch:
        return RoBoTSearch(self.pool, **arguments)
