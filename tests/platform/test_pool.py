"""Pool scoring: candidates depend on the seed, shards are written as they finish, and a resumed run scores nothing
twice.
"""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import archray_test_cluster as workers
import numpy as np
import pandas as pd
import pytest
from archray_test_command import MARK, wait_until_gone
from rich.console import Console

from archray.cluster.settings import ResourceSettings
from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.engine.pool_scoring import MERGED, Shards, failed_metrics, mixed_devices, score_pool
from archray.platform.engine.progress import ScoringProgress
from archray.platform.engine.settings import candidates
from archray.trainables.data import DataSettings
from archray.trainables.nets import NetworkSettings
from archray.trainables.proxies import ProxySettings
from archray.trainables.spaces import Decision, Space, get_space

SMALL = ProxySettings(batch_size=8, network=NetworkSettings(channels=2, cells=1))
CHUNK = 4


class WideSpace(Space):
    """2^40 architectures. The last 38 decisions change nothing, so there are four canonical forms."""

    name = "wide"
    decisions = tuple(Decision(f"d{i}", ("a", "b")) for i in range(40))

    def canonical(self, architecture: tuple[str, ...]) -> tuple[str, ...]:
        return architecture[:2] + ("a",) * 38


# Candidates


def test_a_small_space_gives_all_canonical_forms() -> None:
    space = get_space("nasbench201")
    pool = candidates("nasbench201", None, seed=0)
    assert len(pool) == len(set(pool))
    assert set(pool) == {space.encode(space.canonical(a)) for a in space.enumerate()}
    assert candidates("nasbench201", 10**6, seed=0) == pool


def test_a_sample_has_distinct_canonical_forms_and_depends_on_the_seed() -> None:
    space = get_space("nasbench201")
    pool = candidates(space, 50, seed=3)
    assert len(set(pool)) == 50
    assert all(space.canonical(space.decode(text)) == space.decode(text) for text in pool)
    assert pool == candidates("nasbench201", 50, seed=3)
    assert pool != candidates("nasbench201", 50, seed=4)


def test_a_space_too_large_to_enumerate_is_sampled() -> None:
    assert len(set(candidates(WideSpace(), 4, seed=0))) == 4
    assert len(set(candidates(WideSpace(), 5, seed=0))) == 4, "a draw has at most all forms"
    with pytest.raises(InvalidInput, match="Set the pool size"):
        candidates(WideSpace(), None, seed=0)


def test_a_sample_of_a_large_space_is_the_first_distinct_draws() -> None:
    for space, size in ((get_space("darts"), 20), (WideSpace(), 4)):
        rng = np.random.default_rng(5)
        draws = dict.fromkeys(space.encode(space.canonical(space.sample(rng))) for _ in range(100))
        assert candidates(space, size, seed=5) == list(draws)[:size]


# Shards


def rows(*architectures: str) -> pd.DataFrame:
    table = pd.DataFrame({"architecture": architectures, "value": 0.5, "failure": None})
    return table.astype({"failure": "string"})


TYPES = {"value": "float64", "failure": "string"}
NAMES = [f"architecture {number}" for number in range(MERGED + 1)]


def test_shards_are_merged_and_read_back(tmp_path: Path) -> None:
    shards = Shards(Folder(tmp_path), TYPES)
    for name in NAMES:
        shards.add(rows(name))
    assert len(list(tmp_path.iterdir())) == 2
    for table in (shards.rows(), Shards(Folder(tmp_path), TYPES).rows()):
        assert sorted(table["architecture"]) == sorted(NAMES)


def test_a_kill_between_merge_and_deletion_repeats_no_row(tmp_path: Path) -> None:
    shards = Shards(Folder(tmp_path / "shards"), TYPES)
    for name in NAMES[: MERGED - 1]:
        shards.add(rows(name))
    shutil.copytree(tmp_path / "shards", tmp_path / "kept")
    shards.add(rows(NAMES[MERGED - 1]))
    shutil.copytree(tmp_path / "kept", tmp_path / "shards", dirs_exist_ok=True)
    for _ in range(2):
        table = Shards(Folder(tmp_path / "shards"), TYPES).rows()
        assert sorted(table["architecture"]) == sorted(NAMES[:MERGED])
    assert len(list((tmp_path / "shards").iterdir())) == 1


def test_a_metric_that_fails_is_named_with_its_first_reason() -> None:
    failures = [None, "zen: no norms", "zen, synflow: no norms; naswot: a: b", "RuntimeError: lost"]
    table = pd.DataFrame({"architecture": NAMES[:4], "failure": failures, "seconds": [1, 1, 1, math.nan]})
    values = {
        "snip": [1, 1, 1],
        "zen": [1, math.nan, math.nan],
        "synflow": [1, 1, math.nan],
        "naswot": [1, 1, math.nan],
    }
    table = table.assign(**{name: [*column, math.nan] for name, column in values.items()})
    assert failed_metrics(table, list(values)) == [
        "the metric zen failed for 2 of 3 architectures: no norms",
        "the metric synflow failed for 1 of 3 architectures: no norms",
        "the metric naswot failed for 1 of 3 architectures: a: b",
    ]
    assert failed_metrics(table[2:3], ["naswot"]) == ["the metric naswot failed for 1 of 1 architecture: a: b"]


class FullFolder(Folder):
    """A folder without space for a shard of more than one row."""

    def write_parquet(self, name: str, table: pd.DataFrame) -> None:
        if len(table) > 1:
            raise OSError("no space left")
        super().write_parquet(name, table)


def test_an_incomplete_merge_loses_no_row(tmp_path: Path) -> None:
    shards = Shards(FullFolder(tmp_path), TYPES)
    for name in NAMES[: MERGED - 1]:
        shards.add(rows(name))
    with pytest.raises(OSError, match="no space left"):
        shards.add(rows(NAMES[MERGED - 1]))
    assert sorted(Shards(Folder(tmp_path), TYPES).rows()["architecture"]) == sorted(NAMES[:MERGED])


# Scoring


POOL = [*candidates("nasbench201", 9, seed=0), "|no_such_operation~0|"]


def score(folder: Path, pool: list[str], scorer: object = None) -> tuple[pd.DataFrame, str]:
    """Returns the table and the printed output."""
    printed = io.StringIO()
    place = Folder(folder)
    score_pool(
        place,
        pool,
        space="nasbench201",
        data=DataSettings(),
        proxy=SMALL,
        resources=ResourceSettings(actors=1),
        console=Console(file=printed, width=200),
        chunk=CHUNK,
        **({} if scorer is None else {"scorer": scorer}),
    )
    return place.read_parquet("pool.parquet"), printed.getvalue()


@pytest.fixture(scope="module")
def scoring(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame, str]:
    """The folder of a scoring, its table, and the printed output. Read-only."""
    folder = tmp_path_factory.mktemp("scored")
    return folder, *score(folder, POOL)


def test_a_pool_is_scored_in_the_order_of_its_candidates(scoring: tuple[Path, pd.DataFrame, str]) -> None:
    folder, table, printed = scoring
    assert list(table.columns) == ["architecture", "ntk_trace", "kappa", "failure", "seconds", "parameters", "device"]
    assert set(table["device"].dropna()) == {"CPU"}
    assert list(table["architecture"]) == POOL
    assert table["kappa"].notna().equals(table["failure"].isna())
    assert (table["parameters"][:-1] > 0).all()
    assert sum(len(pd.read_parquet(shard)) for shard in (folder / "shards").iterdir()) == 10
    assert "scored 10/10" in printed
    assert "10 architectures scored" in printed


def test_scores_of_several_devices_are_reported() -> None:
    assert mixed_devices(pd.Series(["CPU", "CPU", None])) is None
    warning = mixed_devices(pd.Series(["CPU", "NVIDIA H100", "CPU"]))
    assert warning is not None and "2 on CPU, 1 on NVIDIA H100" in warning


def test_an_unsupported_architecture_is_a_row_with_the_reason(
    scoring: tuple[Path, pd.DataFrame, str],
) -> None:
    _, table, printed = scoring
    row = table.iloc[-1]
    assert row["architecture"] == "|no_such_operation~0|"
    assert row["failure"].startswith("InvalidArchitecture: ")
    assert row[["ntk_trace", "kappa", "seconds", "parameters"]].isna().all()
    assert table[:-1]["parameters"].notna().all()
    assert "skipped" in printed


def test_only_architectures_without_a_shard_are_scored(scoring: tuple[Path, pd.DataFrame, str], tmp_path: Path) -> None:
    """Leaves the folder as a kill would: without the table and without one shard."""
    whole, expected, _ = scoring
    shutil.copytree(whole / "shards", tmp_path / "shards")
    (tmp_path / "shards" / "part-00000.parquet").unlink()
    before = {shard.name: shard.read_bytes() for shard in (tmp_path / "shards").iterdir()}
    table, printed = score(tmp_path, POOL)
    assert f"{10 - CHUNK} of 10 architectures already scored" in printed
    assert {name: (tmp_path / "shards" / name).read_bytes() for name in before} == before
    assert_same_values(table, expected)


# Kill and resume


def start_scoring(folder: Path, log: Path, pool: list[str]) -> subprocess.Popen[bytes]:
    """Starts a process with a separate Ray that scores the pool."""
    program = f"""
import json, sys
from archray_test_cluster import logging_scorer
from rich.console import Console
from archray.cluster.settings import ClusterSettings
from archray.cluster.connect import connect
from archray.cluster.settings import ResourceSettings
from archray.files import Folder
from archray.platform.engine.pool_scoring import mixed_devices, score_pool
from archray.trainables.data import DataSettings
from archray.trainables.proxies import ProxySettings
with connect(ClusterSettings(num_cpus=2, num_gpus=0, dashboard=False)):
    score_pool(Folder({str(folder)!r}), json.load(sys.stdin), space="nasbench201", data=DataSettings(),
        proxy=ProxySettings(), resources=ResourceSettings(), console=Console(), chunk={CHUNK},
        scorer=logging_scorer({str(log)!r}))
"""
    modules = os.pathsep.join(filter(None, [str(Path(workers.__file__).parent), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": modules, MARK: str(log)},
        start_new_session=True,
    )
    process.stdin.write(json.dumps(pool).encode())
    process.stdin.close()
    return process


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.usefixtures("ray_session")
def test_a_killed_scoring_resumes_where_it_stopped(tmp_path: Path) -> None:
    pool = candidates("nasbench201", 40, seed=1)
    log, resumed = tmp_path / "log", tmp_path / "resumed"
    process = start_scoring(resumed, log, pool)
    while len(Folder(resumed / "shards").files()) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = shard_rows(resumed)
    assert 2 * CHUNK <= len(finished) < len(pool)
    wait_until_gone(str(log), "MapActor")  # the Ray of the killed driver stops with it
    quiet = log.read_text().splitlines()
    assert len(quiet) < len(pool)

    table, _ = score(resumed, pool, workers.logging_scorer(str(log), seconds=0))  # in this process, with another Ray
    times = Counter(log.read_text().split())
    assert {name: times[name] for name in finished} == dict.fromkeys(finished, 1)  # no finished chunk is scored again
    in_flight = set(quiet) - set(finished)
    assert len(in_flight) <= 2 * 2 * CHUNK  # two chunks in each of two actors: a kill can lose no more
    assert all(times[name] == 1 for name in set(pool) - in_flight)
    assert set(times) == set(pool)

    scorer = workers.logging_scorer(str(tmp_path / "other-log"), seconds=0)(
        "nasbench201", {}, SMALL.model_dump(), "cpu"
    )
    undisturbed = pd.DataFrame([scorer(architecture) for architecture in pool])
    assert_same_values(table, undisturbed.astype(table.dtypes))


def shard_rows(folder: Path) -> list[str]:
    shards = Folder(folder / "shards")
    return [name for shard in shards.files() for name in shards.read_parquet(shard)["architecture"]]


def assert_same_values(left: pd.DataFrame, right: pd.DataFrame) -> None:
    """Compares all columns except the time of each row."""
    pd.testing.assert_frame_equal(left.drop(columns="seconds"), right.drop(columns="seconds"), check_exact=True)


# Progress


def test_progress_without_a_terminal_is_printed_as_lines() -> None:
    printed = io.StringIO()
    with ScoringProgress(Console(file=printed, width=100), total=10, done=4, failed=1) as progress:
        for _ in range(3):
            progress.advance(2)
    lines = printed.getvalue().splitlines()
    assert lines[0].strip() == "4 of 10 architectures already scored"
    assert lines[-1].strip().startswith("scored 10/10")
    assert "0:00 left" in lines[-1]
    assert "1 with a failed metric" in lines[-1]


def test_progress_in_a_terminal_is_a_bar() -> None:
    printed = io.StringIO()
    console = Console(file=printed, force_terminal=True, width=100)
    with ScoringProgress(console, total=4) as progress:
        progress.advance(2)
        progress.advance(1)
        progress._bar.refresh()
    assert "3/4" in printed.getvalue()
    assert "left" in printed.getvalue()
