"""Presets, files and flags override each other in order, and an invalid key raises an error with a suggestion."""

import json
import os
from contextlib import suppress

import pytest

from archray.errors import InvalidInput, MissingExtra, UnknownName
from archray.platform.config import merge, nest, parse_assignment, read_config_file
from archray.platform.methods import METHODS, get_method
from archray.platform.methods.configure import make_config


def test_later_values_override_earlier_ones_key_by_key():
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 4}}, {"d": {"e": 5}}) == {
        "a": {"b": 1, "c": 4},
        "d": {"e": 5},
    }
    assert nest("a.b.c", 1) == {"a": {"b": {"c": 1}}}
    assert parse_assignment("train.lr=0.05") == {"train": {"lr": 0.05}}
    assert parse_assignment("pool.size=null") == {"pool": {"size": None}}


@pytest.mark.parametrize("text", ["train.lr", "=3", ""])
def test_an_assignment_needs_a_key_and_a_value(text):
    with pytest.raises(InvalidInput, match="expected KEY=VALUE"):
        parse_assignment(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.toml", "seed = 3\n[train]\nepochs = 2\n"),
        ("c.json", '{"seed": 3, "train": {"epochs": 2}}'),
        ("c.yaml", "seed: 3\ntrain:\n  epochs: 2\n"),
    ],
)
def test_config_files(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_config_file(tmp_path / name) == {"seed": 3, "train": {"epochs": 2}}
    config = make_config("hnas", "smoke", tmp_path / name, {"epochs": 5})
    assert (config.seed, config.train.epochs) == (3, 5), "a flag overrides the file"


@pytest.mark.parametrize(
    ("options", "assignments", "epochs"),
    [
        ({}, [], 2),
        ({"epochs": 3}, [], 3),
        ({"epochs": 3}, ["train.epochs=4"], 4),
        ({}, ["train.epochs=4", "train.epochs=5"], 5),
        ({"train__epochs": 6, "epochs": 3}, [], 6),
    ],
)
def test_a_later_source_overrides_an_earlier_one(options, assignments, epochs):
    config = make_config("hnas", "smoke", {"train": {"epochs": 2}}, options, assignments)
    assert config.train.epochs == epochs


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.toml", "seed = ", "not valid toml"),
        ("c.ini", "seed = 3", "expected a file ending in .toml"),
        ("c.json", "[1]", "keys and values"),
        ("c.json", '{"seed": ' + "[" * 100_000, "expected options in a few levels, got hundreds"),
        ("c.json", '{"a": ' * 990 + "1" + "}" * 990, "a few levels"),
        ("c.yaml", "seed: " + "[" * 990 + "]" * 990, "a few levels"),
        ("c.toml", "seed = " + "[" * 5000 + "]" * 5000, "a few levels"),
    ],
)
def test_bad_config_files_raise_an_error(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_config_file(tmp_path / name)
    with pytest.raises(InvalidInput, match="no configuration file"):
        read_config_file(tmp_path / "absent.toml")
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(InvalidInput, match="which is a pipe or a device"):
        read_config_file(tmp_path / "pipe.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1: 2", r"1: expected the name of an option as key, got 1\. "),
        ("true: 2", r"True: expected the name of an option as key, got True\. "),
        ("search: {null: 2}", r"search\.None: expected the name of an option as key, got None\. "),
    ],
)
def test_keys_that_are_no_names_raise_an_error(tmp_path, text, message):
    (tmp_path / "keys.yaml").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        make_config("random", None, tmp_path / "keys.yaml", {})


def test_nested_brackets_on_the_command_line_raise_an_error():
    deep = "[" * 5000 + "]" * 5000
    with pytest.raises(InvalidInput, match="seed: expected a YAML value"):
        parse_assignment(f"seed={deep}")
    for options in ({"decide": [f"train.lr={deep},1"]}, {"cost_on": deep}):
        with pytest.raises(InvalidInput):
            make_config("random", "smoke", None, options)


def test_unknown_keys_of_a_level_list_its_keys_once():
    with pytest.raises(InvalidInput, match=r"there is no option 'qa', 'qb'; expected one of method, ") as caught:
        make_config("hnas", "smoke", {"qa": 1, "qb": 2}, {})
    assert str(caught.value).count("expected one of") == 1


def test_a_misspelled_key_gets_a_suggestion():
    with pytest.raises(InvalidInput, match=r"no option 'train.epoch'; did you mean 'train.epochs'"):
        make_config("hnas", "smoke", {"train": {"epoch": 3}}, {})
    with pytest.raises(InvalidInput, match=r"no option 'sead'; did you mean 'seed'"):
        make_config("hnas", "smoke", {"sead": 3}, {})
    with pytest.raises(InvalidInput, match=r"train.lr: .* got 'fast'"):
        make_config("hnas", "smoke", None, {"train__lr": "fast"})


def test_an_unknown_method_or_preset_lists_the_known_ones():
    with pytest.raises(UnknownName, match=r"choose one of .*fast-halving, .*halving, hnas"):
        make_config("hmas", None, None, {})
    with pytest.raises(InvalidInput, match=r"\(smoke, demo, paper\)"):
        make_config("hnas", "huge", None, {})


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_has_valid_presets_and_flags(name):
    method = get_method(name)
    assert set(method.presets) == {"smoke", "demo", "paper"}
    for preset in method.presets:
        config = make_config(name, preset, None, {})
        if config.data.name == "digits":  # cifar10 is not available, and some methods read its size
            with suppress(MissingExtra):
                config.check()
        assert method.config.model_validate(json.loads(config.model_dump_json())) == config, "JSON round trip"
        values = config.model_dump()
        for path in method.flags.values():
            level = values
            for key in path.split("."):
                assert key in level, f"the flag's path {path} is an option"
                level = level[key]
    assert set(method.extendable) <= set(method.flags)


def test_presets_files_and_options_override_the_defaults_of_a_space():
    config = make_config("zero-cost", "demo", {"final": {"grad_clip": 5.0}}, {"space": "vit"})
    assert (config.train.grad_clip, config.final.grad_clip, config.search.proxy) == (1.0, 5.0, "snip")
    config = make_config("zero-cost", "demo", None, {"space": "vit", "proxy": "parameters"})
    assert config.search.proxy == "parameters"
    config = make_config("zero-cost", "demo", None, {})
    assert (config.train.grad_clip, config.search.proxy) == (None, "synflow")


def test_the_preset_of_the_authors_program_scores_their_networks():
    def biases(space, preset):
        return make_config("hnas", preset, None, {"space": space}).scored.network.biases

    assert biases("nasbench201", "paper")
    assert not biases("nasbench201", "demo")
    assert not biases("darts", "paper")


def test_options_of_a_space_keep_the_other_defaults_of_a_method():
    config = make_config("nes-rs", "paper", None, {"space": "vit"})
    assert (config.train.epochs, config.train.grad_clip) == (50, 1.0)
    assert (config.final.epochs, config.final.grad_clip) == (200, 1.0)


SMALL_MODEL = """from torch import nn
from archray import Choice

def network(in_channels, num_classes):
    def either(name):
        return Choice({"conv": nn.Conv2d(4, 4, 3, padding=1), "skip": nn.Identity()}, name=name)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes))
    return nn.Sequential(nn.Conv2d(in_channels, 4, 3), either("x"), either("y"), *head)
"""  # four architectures


@pytest.mark.parametrize(
    ("name", "options", "amount"),
    [
        ("rank-surrogate", {}, "all canonical architectures of the space"),
        ("hnas", {"pool_size": 400}, "all canonical architectures of the space"),
        ("hnas", {"pool_size": 3}, "3 architectures"),
        ("rs-ws", {}, "then 4 scored architectures per supernet"),
        ("rs-ws", {"samples": 3}, "then 3 scored architectures per supernet"),
        ("supernet-halving", {}, "4 candidates; each round"),
        ("supernet-halving", {"candidates": 1000}, "4 candidates; each round"),
    ],
)
def test_a_draw_is_at_most_the_whole_space(tmp_path, name, options, amount):
    (tmp_path / "small.py").write_text(SMALL_MODEL)
    for preset in ("smoke", "demo"):
        config = make_config(name, preset, None, {"space": f"{tmp_path / 'small.py'}:network", **options})
        config.check()
        assert amount in str(get_method(name).recipe.stages[0].amount(config))
