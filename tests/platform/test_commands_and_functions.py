"""A command and the public function with its name do the same: the same configuration, or the same arguments."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import archray
from archray.errors import RunInterrupted
from archray.platform.cli import COMMANDS, application
from archray.platform.commands.search import GROUPS
from archray.platform.engine.settings import candidates
from archray.trainables.data import DataSettings, load_data
from archray.trainables.proxies import ProxySettings

# The words of a command, and the arguments of its function.
SEARCHES: list[tuple[str, dict[str, Any]]] = [
    ("search hnas --seed 5 --budget 3", {"method": "hnas", "seed": 5, "budget": 3}),
    ("search --seed 5", {"seed": 5}),
    (
        "search gaea-darts --seed 5 --repeats 2 --preset paper --data digits",
        {"method": "gaea-darts", "seed": 5, "repeats": 2, "preset": "paper", "data": "digits"},
    ),
    ("understand topology --seed 5 --preset smoke", {"study": "topology", "seed": 5, "preset": "smoke"}),
    ("understand split --seed 5", {"study": "split", "seed": 5}),
    ("config hnas --seed 5", {"method": "hnas", "seed": 5}),
]
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "bench random evolution --table t.csv --out b --seeds 3 --budget 4,5 --proxy snip",
        "bench",
        {
            "methods": ["random", "evolution"],
            "table": "t.csv",
            "out": "b",
            "seeds": 3,
            "budget": [4, 5],
            "proxy": ["snip"],
        },
    ),
    ("bench random --table t.csv --out b", "bench", {"methods": ["random"], "table": "t.csv", "out": "b"}),
    ("bench proxies --table t.csv", "bench_proxies", {"table": "t.csv"}),
    (
        "attack r --seed 5 --attacks fgsm --epsilon 8/255",
        "attack",
        {"path": "r", "attacks": ["fgsm"], "seed": 5, "epsilon": 8 / 255},
    ),
    ("resume r --budget 40", "resume", {"path": "r", "budget": 40}),
    ("report r", "report", {"path": "r"}),
    ("compare r s", "compare", {"paths": ["r", "s"]}),
    ("export r", "export", {"path": "r"}),
    ("predict r a.png", "predict", {"path": "r", "images": ["a.png"]}),
    ("show r", "show", {"path": "r"}),
    ("watch r", "watch", {"path": "r"}),
    ("runs", "runs", {}),
    ("list spaces", "list_names", {"kind": "spaces"}),
]
PROXIES = "proxies --seed 5 --size 6 --proxies snip"
WITHOUT_FUNCTION = {"check", "submit"}


class Called(Exception):
    """The arguments of a call."""


def passed(words: str) -> Any:
    """Runs a command, and returns the arguments of the call at which it stopped, or what it printed."""
    arguments = words.split()
    shown = CliRunner().invoke(application(arguments), arguments)
    if isinstance(shown.exception, Called):
        return shown.exception.args[0]
    assert isinstance(shown.exception, RunInterrupted | None), shown.exception
    return shown.output


def stop(*values: Any, **options: Any) -> None:
    raise Called((values, options))


def test_each_command_is_compared() -> None:
    compared = {words.split()[0] for words, *_ in (*SEARCHES, *CALLS, (PROXIES,))}
    names = {function.__name__.rstrip("_") for function in COMMANDS} | GROUPS.keys() | {"bench"}
    assert compared == names - WITHOUT_FUNCTION


@pytest.mark.parametrize(("words", "options"), SEARCHES, ids=[words for words, _ in SEARCHES])
def test_searches_have_the_same_configuration(
    words: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("archray.platform.api.begin_run", stop)
    name = words.split()[0]
    result = passed(words)
    if name == "config":
        assert yaml.safe_load(result) == archray.config(**options)
        return
    with pytest.raises(Called) as called:
        getattr(archray, name)(**options)
    (by_command, *_), (by_function, *_) = result[0], called.value.args[0][0]
    assert by_command == by_function
    assert (by_command.seed, by_command.data.seed) == (5, 0), "the problem is the same for all seeds"


@pytest.mark.parametrize(("words", "name", "options"), CALLS, ids=[words for words, *_ in CALLS])
def test_calls_have_the_same_arguments(
    words: str, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    signature = inspect.signature(getattr(archray, name))
    monkeypatch.setattr(archray, name, stop)

    def bound(values: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
        arguments = signature.bind(*values, **options)
        arguments.apply_defaults()
        flat = arguments.arguments | arguments.arguments.get("options", {})
        return {key: value for key, value in flat.items() if key != "options" and value not in (None, (), [], {})}

    assert bound(*passed(words)) == bound((), options)


def test_proxies_has_the_same_split_and_draws_the_same_architectures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise RunInterrupted("before Ray")

    monkeypatch.setattr("archray.cluster.connect.connect", interrupt)
    monkeypatch.chdir(tmp_path)

    def read(name: str) -> Any:
        return json.loads(Path(f"{name}.parquet.parts/options.json").read_text())

    settings = ProxySettings(metrics=("snip",))
    passed(f"{PROXIES} --out command.parquet")
    with pytest.raises(RunInterrupted):
        archray.proxies(size=6, seed=5, settings=settings, out="function.parquet")
    assert read("command") == read("function")
    splits = {load_data(DataSettings(**read(name)["data"])).checksum() for name in ("command", "function")}
    assert splits == {load_data(DataSettings(name="digits")).checksum()}
    draws = [candidates("nasbench201", read(name)["size"], read(name)["seed"]) for name in ("command", "function")]
    assert draws[0] == draws[1] != candidates("nasbench201", 6, 0)
