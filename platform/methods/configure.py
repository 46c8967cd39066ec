"""Builds the configuration of a run from a method, a preset, a file and flags, and validates it before Ray starts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from archray.cluster.settings import check_address
from archray.errors import InvalidInput, expect
from archray.platform.config import (
    SearchConfig,
    family_paths,
    merge,
    nest,
    parse_assignment,
    read_config_file,
    validate,
)
from archray.platform.methods.catalog import METHODS, get_method
from archray.platform.methods.config import space_defaults
from archray.trainables.data import DATASETS, DataSettings, check_data, data_kind
from archray.trainables.spaces import get_space, space_name

# The paths in the configuration of the flags that all methods share.
COMMON_FLAGS = {
    "data": "data.name",
    "data_dir": "data.data_dir",
    "channels": "network.channels",
    "cells": "network.cells",
    "weights": "network.weights",
    "constraint": "constraints",
    "cost": "costs.names",
    "cost_table": "costs.table",
    "cost_model": "costs.model",
    "cost_on": "costs.latency.resources",
    "max_concurrent": "resources.max_concurrent",
    "cpus_per_trial": "resources.cpus_per_trial",
    "gpus_per_trial": "resources.gpus_per_trial",
    "trials_per_gpu": "resources.trials_per_gpu",
    "train_workers": "resources.train_workers",
    "address": "cluster.address",
}


def make_config(
    name: str,
    preset: str | None,
    config: str | Path | Mapping[str, Any] | None,
    options: Mapping[str, Any],
    assignments: Sequence[str] = (),
) -> SearchConfig:
    """Builds the configuration of a run.

    Later layers override earlier ones: defaults of the paper, preset, file, options, assignments.

    Args:
        name: name of the method or study.
        preset: name of the preset; None for `demo`.
        config: path of a configuration file, or its content.
        options: flags of the method or of all methods, or any option by its path with double underscores, which
            overrides a flag; `space` may be an object, see `space_name`. Options that are None are ignored.
        assignments: `KEY=VALUE` for any option by its path; the value is YAML.

    Raises: InvalidInput, UnknownName.
    """
    method = get_method(name)
    expect("preset", preset, str, type(None))
    preset = "demo" if preset is None else preset
    if preset not in method.presets:
        raise InvalidInput(f"expected a preset of {name} ({', '.join(method.presets)}), got {preset!r}")
    families = frozenset(family_paths(method.config))
    file = config if isinstance(config, Mapping) else read_config_file(config) if config is not None else {}
    paths = {**COMMON_FLAGS, **method.flags}
    if (space := options.get("space")) is not None:
        options = {**options, "space": space_name(space)}
    flags = [
        nest(paths.get(key, key.replace("__", ".")), value)
        for key, value in sorted(options.items(), key=lambda item: "__" in item[0])
        if value is not None
    ]
    values = merge(file, *flags, *map(parse_assignment, assignments), families=families)
    if values.get("method", name) != name:
        raise InvalidInput(
            f"expected a configuration of {name}, got one of {values['method']}. Run the method {values['method']}"
        )
    for option, reason in method.rejects.items():
        if option in values:
            others = ", ".join(other for other in METHODS if option in get_method(other).config.model_fields)
            raise InvalidInput(f"{name} does not support {option}: {reason}. Remove it, or choose one of {others}")
    layers = [method.presets[preset], method.stands_for(values), values, {"method": name}]
    configuration = merge(*layers, families=families)
    space = configuration.get("space", method.config.model_fields["space"].default)
    if not isinstance(space, str):  # of a file or a dictionary
        raise InvalidInput(
            f"expected space to be a name ('archray list spaces') or a reference such as path.py:Class, got {space!r}"
        )
    of_space = merge(space_defaults(method.config, space), method.defaults(space))
    return validate(method.config, merge(of_space, *layers, families=families))


def check_config(config: SearchConfig, *, data_given: bool = False) -> None:
    """Validates a configuration as far as possible before Ray starts. Raises: ArchrayError."""
    method, space = get_method(config.method), get_space(config.space)
    reason = method.serves(space)
    if reason is not None:
        raise InvalidInput(f"{config.method} cannot search {config.space}: {reason}")
    if not data_given and config.data.name != config.space:  # a table of results needs no data set
        check_data_of_space(config.data, config.space)
        if config.data.streamed and not method.streams:
            raise InvalidInput(
                f"{config.method} needs all images in memory, got {config.data.name}, which streams them from files; "
                f"load them with folder:PATH, or choose one of the methods "
                f"{', '.join(name for name in METHODS if get_method(name).streams)}"
            )
    check_address(config.cluster)
    config.check()


def check_data_of_space(data: DataSettings, space: str) -> None:
    """Checks that the data exist and are of the kind that the space needs. Raises: as `check_data`, InvalidInput."""
    check_data(data)
    kind, expected = data_kind(data), get_space(space).data_kind
    if kind != expected:
        others = [name for name in DATASETS if DATASETS.get(name).kind == expected]
        raise InvalidInput(
            f"expected {expected} as data for {space}, got {data.name}, which contains {kind}. Choose --data "
            f"{', '.join(others)}"
        )
