"""`archray config` prints a configuration that `--config` reads back, and `--dry-run` prints the plan of a search."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

import archray
from archray.errors import InvalidInput, RunFolderError
from archray.platform.api import dry_run
from archray.platform.cli import application
from archray.platform.config import WIDTH, config_text
from archray.platform.methods import METHODS, STUDIES, get_method
from archray.platform.methods.configure import make_config
from archray.plurals import count

# Every preset of three methods, and the smallest preset of the others.
PRESETS = [
    (name, preset)
    for name in (*METHODS, *STUDIES)
    for preset in (get_method(name).presets if name in ("hnas", "gaea-pc-darts", "nesbs") else ("smoke",))
]


def printed(*arguments: str) -> str:
    """Returns the output of a command, which must succeed."""
    result = CliRunner().invoke(application(list(arguments)), arguments, env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_config_reads_back_the_printed_text_of_every_preset(name: str, preset: str) -> None:
    chosen = make_config(name, preset, None, {})
    text = config_text(chosen)
    assert max(map(len, text.splitlines())) <= max(WIDTH, 100)
    values = yaml.safe_load(text)
    assert values == chosen.model_dump(mode="json")
    for other in ("smoke", "paper"):
        assert make_config(name, other, values, {}) == chosen


def test_the_python_function_returns_the_configuration_of_search() -> None:
    values = archray.config("hnas", preset="smoke", budget=5, train__lr=0.05, space="darts")
    assert (values["search"]["budget"], values["train"]["lr"], values["space"]) == (5, 0.05, "darts")
    assert make_config("hnas", None, values, {}).model_dump(mode="json") == values
    with pytest.raises(InvalidInput, match=r"expected a preset of hnas .*, got 'tiny'"):
        archray.config("hnas", preset="tiny")


def test_settings_of_another_name_replace_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(printed("config", "darts", "--preset", "smoke"))
    changed = printed(
        "config", "darts", "--config", str(file), "--set", "supernet.relaxation.name=simplex",
        "--set", "supernet.optimizer={name: mirror-descent, lr: 0.2}",
    )  # fmt: skip
    supernet = yaml.safe_load(changed)["supernet"]
    assert supernet["relaxation"] == {"name": "simplex"}
    assert supernet["optimizer"] == {
        "name": "mirror-descent", "lr": 0.2, "dgf": "entropy", "floor": None, "log_space": False,
    }  # fmt: skip


def test_the_configuration_of_another_method_raises_an_error() -> None:
    with pytest.raises(InvalidInput, match="a configuration of gdas, got one of darts"):
        make_config("gdas", None, archray.config("darts"), {})


# The command


def test_the_command_prints_text_that_config_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["archray", "config", "nesbs", "--preset", "smoke", "--delta", "0.5"])
    text = printed("config", "nesbs", "--preset", "smoke", "--delta", "0.5")
    assert text.startswith("# Written by archray config nesbs --preset smoke --delta 0.5, for archray search nesbs")
    file = tmp_path / "nesbs.yaml"
    file.write_text(text)
    assert make_config("nesbs", None, file, {}) == make_config("nesbs", "smoke", None, {"delta": 0.5})


@pytest.mark.parametrize("name", ["hnas", "gaea-pc-darts", "nesbs", "halving", "asha"])
def test_the_help_shows_every_default(name: str) -> None:
    """The defaults are those of the named preset and space."""
    for arguments, preset in ((["--preset", "smoke"], "smoke"), (["--preset=paper"], "paper")):
        text = " ".join(re.sub("[│╭╰─╮╯]", " ", printed("search", name, *arguments, "--help")).split())
        values = make_config(name, preset, None, {})
        for path in get_method(name).flags.values():
            value = values
            for key in path.split("."):
                value = getattr(value, key)
            value = getattr(value, "name", value)
            value = ", ".join(value) if isinstance(value, tuple) else value
            assert f"({path}, default {value})" in text


def test_the_help_shows_the_defaults_of_the_space() -> None:
    assert "(supernet.network.cells, default 5)" in printed(
        "search", "darts", "--space", "nasbench201", "--preset", "paper", "--help"
    )


# Dry run


@pytest.mark.parametrize("name", ["hnas", "gaea-darts", "nesbs", "halving"])
def test_a_dry_run_prints_the_plan_and_does_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray  # not at the top: no other test here needs it

    monkeypatch.chdir(tmp_path)
    initialized = ray.is_initialized()
    text = dry_run(make_config(name, "smoke", None, {}), out="run")
    assert list(tmp_path.iterdir()) == [] and ray.is_initialized() == initialized
    assert yaml.safe_load(text) == make_config(name, "smoke", None, {}).model_dump(mode="json")
    assert f"the run {'run'} and execute these stages:" in text
    stages = get_method(name).recipe.stages
    listed = re.findall(r"^#   \d+\. (\S+) +(.*)$", text, re.M)
    assert [stage for stage, _ in listed] == [*(stage.name for stage in stages), "report"]
    for stage, (_, text_of_plan) in zip(stages, listed, strict=False):
        assert text_of_plan.startswith(stage.title)


def test_a_dry_run_counts_trials_and_epochs_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = printed(
        "search", "hnas", "--preset", "smoke", "--repeats", "2", "--pool-size", "20", "--dry-run", "--no-estimate"
    )
    assert "score architectures without training: 20 architectures\n" in text
    assert "3 training runs of 1 epoch\n" in text and "1 training run of 2 epochs\n" in text
    assert "2 times, in repeat-00, ...:" in text
    assert "# Training: 7 runs with 11 epochs: search 3 (27%), final 2 (18%), baseline 6 (55%).\n" in text
    assert "stimate" not in text
    assert re.search(r"the run archray-runs/hnas-\d{8}-\d{6}", text)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "trained"), [("nesbs", 2), ("urs", 2), ("single-best", 1), ("nes-rs", 2), ("snapshot", 1)]
)
def test_a_dry_run_counts_the_members_that_are_trained(name: str, trained: int, tmp_path: Path) -> None:
    [text_of_plan] = re.findall(
        r"^#   \d+\. final +.*: (.*)$", dry_run(make_config(name, "smoke", None, {}), out=tmp_path / "run"), re.M
    )
    assert text_of_plan == f"{count(trained, 'training run')} of 2 epochs"


@pytest.mark.parametrize(
    ("name", "measured", "others"),
    [
        ("hnas", ["pool", "search", "final", "baseline"], ["report"]),
        ("gaea-darts", ["search", "selection", "final", "baseline"], ["report"]),
        ("nesbs", ["supernet", "final"], ["posterior", "search", "baseline", "report"]),
    ],
)
def test_a_dry_run_estimates_the_time_without_ray(
    name: str, measured: list[str], others: list[str], tmp_path: Path
) -> None:
    import ray  # as above

    initialized, threads = ray.is_initialized(), torch.get_num_threads()
    options = {"data__limit": 200, "repeats": 2}
    text = dry_run(make_config(name, "smoke", None, options), out=tmp_path / "run", estimated=True)
    text = " ".join(text.replace("\n# ", " ").split())
    found = re.search(r"Estimate: about (\d+\.\d) minutes on .*CPU.* \((.*); per repeat\), with up to \d+ trial", text)
    assert found is not None, text
    stages = dict(part.rsplit(" ", 2)[:2] for part in found[2].split(", "))
    assert list(stages) == measured and all(float(seconds) > 0 for seconds in stages.values())
    assert float(found[1]) >= 2 * sum(map(float, stages.values())) / 60
    assert f"Not included: {', '.join(others)}. " in text
    assert ray.is_initialized() == initialized and torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cluster__address": "10.0.0.1:6379"}, "the nodes of the cluster"),
        ({"resources__cpus_per_trial": 1000}, "a trial does not fit on"),
        ({"space": "table:rows.csv"}, "no stage trains or scores networks"),
    ],
)
def test_a_dry_run_says_why_it_estimates_no_time(
    options: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("architecture,validation_accuracy\na=1,0.5\na=2,0.6\na=3,0.7\na=4,0.8\n")
    text = dry_run(make_config("random", "smoke", None, options), out=tmp_path / "run", estimated=True)
    assert f"# No estimate: {reason}" in text


def test_a_dry_run_rejects_the_same_input_as_a_search(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("something")
    with pytest.raises(RunFolderError, match="Choose another --out"):
        dry_run(make_config("hnas", "smoke", None, {}), out=tmp_path)
    with pytest.raises(InvalidInput, match="feature maps, not networks"):
        dry_run(make_config("hnas", "smoke", None, {"space": "fourier"}), out=tmp_path / "run")
