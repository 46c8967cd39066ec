"""Ray's metrics of a run, as the port of a node serves them, and the Grafana dashboard that shows them."""

from __future__ import annotations

import json
import math
import pickle
import re
import time
from pathlib import Path
from typing import Any

import pytest
from archray_test_metrics import value, wait_for
from ray import tune

from archray.cluster.metrics import GRAFANA, LABEL_KEYS, METRICS, RunLabels, RunMetric, RunMetrics, ScoredCount
from archray.searchers import RandomSearch

HISTOGRAM = ("bucket", "count")  # the series of a histogram


def series(metric: RunMetric) -> str:
    """Returns the metric's name in Prometheus, for a histogram without `_bucket` and `_count`."""
    return f"ray_{metric.name}{'_total' * (metric.kind == 'counter')}"


class SlowSearcher(RandomSearch):
    """A searcher with slow suggestions."""

    def propose(self, number: int) -> Any:
        time.sleep(0.05)
        return super().propose(number)


def test_labels_are_ascii_and_differ() -> None:
    labels = [RunLabels(name) for name in ("größe", "grosse", "grö😀e", "a\"b'\\")]
    tags = [each.tags(state="läuft") for each in labels]
    assert all(value.isascii() for each in tags for value in each.values())
    assert len({each["run"] for each in tags}) == len(labels)
    for each in labels:
        ScoredCount(each).add(1)  # Ray accepts them


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.usefixtures("ray_session")
def test_the_port_of_a_node_serves_the_metrics_of_a_run(tmp_path: Path) -> None:
    def trial(config: dict[str, Any]) -> None:
        if config["architecture"] == "c":
            raise ValueError("no")
        accuracy = {"a": 0.25, "b": 0.75, "d": math.nan}[config["architecture"]]
        tune.report({"accuracy": accuracy / 2, "seconds_epoch": 0.5, "gpu_memory_peak": 2e9})
        tune.report({"accuracy": accuracy, "seconds_epoch": 7.0, "gpu_memory_peak": 1e9})

    labels, pool = RunLabels("digits", "random", "search"), RunLabels("digits", "random", "pool")
    searcher = SlowSearcher(["a", "b", "c", "d"], budget=4, metric="accuracy", mode="max")
    callback = RunMetrics(labels, "accuracy", "max", searcher)
    tune.Tuner(
        trial,
        param_space={"settings": {}},
        tune_config=tune.TuneConfig(
            search_alg=searcher, num_samples=-1, max_concurrent_trials=1, metric="accuracy", mode="max"
        ),
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), callbacks=[callback], verbose=0),
    ).fit()
    ScoredCount(pool).add(5)
    ScoredCount(pool).add(0)
    # Only after the last publication: an earlier one may contain the error too.
    samples_by_name = wait_for(labels, lambda samples: value(samples, "ray_archray_trials", state="TERMINATED") == 3)
    states = {more["state"]: number for more, number in samples_by_name["ray_archray_trials"]}
    assert states == {"PENDING": 0, "RUNNING": 0, "PAUSED": 0, "TERMINATED": 3, "ERROR": 1}
    assert value(samples_by_name, "ray_archray_best_score", metric="accuracy") == 0.75
    assert value(samples_by_name, "ray_archray_architectures_scored_total") == 2, "the NaN and the error do not count"
    buckets = [count for _, count in samples_by_name["ray_archray_epoch_seconds_bucket"]]  # cumulative, by upper bound
    assert buckets == [0, 0, 3, 3, 3, 3, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6]
    assert value(samples_by_name, "ray_archray_epoch_seconds_count") == 6
    assert value(samples_by_name, "ray_archray_gpu_memory_peak_bytes") == 2e9
    assert (
        value(samples_by_name, "ray_archray_searcher_seconds_total") == pytest.approx(searcher.seconds)
        and searcher.seconds > 0.2
    )
    assert value(wait_for(pool), "ray_archray_architectures_scored_total") == 5
    assert {key for samples in samples_by_name.values() for more, _ in samples for key in more} == {"state", "metric"}


def test_a_callback_pickled_with_its_searcher_observes_that_searcher() -> None:
    """Tune pickles both, and a resumed run reads them."""
    searcher = RandomSearch(["a"], budget=1, metric="accuracy", mode="max")
    callback = RunMetrics(RunLabels(), "accuracy", "max", searcher)
    again, callback_again = pickle.loads(pickle.dumps((searcher, callback)))
    assert callback_again.searcher is again


# Grafana dashboard


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    return json.loads(GRAFANA.read_text(encoding="utf-8"))


def expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_grafana_shows_exactly_the_existing_metrics(dashboard: dict[str, Any]) -> None:
    shown = {name for text in expressions(dashboard) for name in re.findall(r"\bray_\w+", text)}
    parts = {f"{series(metric)}_{part}" for metric in METRICS if metric.kind == "histogram" for part in HISTOGRAM}
    plain = {series(metric) for metric in METRICS if metric.kind != "histogram"}
    assert shown == parts | plain
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    for label in ("run", "method"):
        query = variables[label]["query"]["query"]
        assert re.fullmatch(rf"label_values\((\w+), {label}\)", query)[1] in shown  # type: ignore[index]  # it matches


def test_grafana_uses_labels_that_the_metrics_have(dashboard: dict[str, Any]) -> None:
    by_series = {series(metric): metric for metric in METRICS}
    for text in expressions(dashboard):
        assert text.count("(") == text.count(")") and text.count("{") == text.count("}") > 0
        [name_of_series] = {
            name for name in by_series if f"{name}{{" in text or any(f"{name}_{part}{{" in text for part in HISTOGRAM)
        }
        labels = {*LABEL_KEYS, *by_series[name_of_series].labels, "le"}
        grouped = re.findall(r"by \(([^)]*)\)", text)
        assert grouped and {label for group in grouped for label in group.split(", ")} <= labels
        selections = re.findall(r"\{([^}]*)\}", text)
        assert set(selections) == {'run=~"$run", method=~"$method"'}


def test_grafana_can_read_it(dashboard: dict[str, Any]) -> None:
    """The importer of Grafana 10 requires its panel types on a grid of 24 columns without overlaps."""
    assert dashboard["schemaVersion"] >= 36 and dashboard["uid"] == "archray" and dashboard["title"]
    cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells and max(x for x, _ in own) < 24
        cells |= own
        assert panel["type"] == "timeseries" and panel["title"] and panel["fieldConfig"]["defaults"]["unit"]
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == list("ABCDEFGH"[: len(letters)]) and letters
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
        legends = {label for target in panel["targets"] for label in re.findall(r"{{(\w+)}}", target["legendFormat"])}
        grouped = {
            label
            for target in panel["targets"]
            for group in re.findall(r"by \(([^)]*)\)", target["expr"])
            for label in group.split(", ")
        }
        assert legends <= grouped
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
