"""Every key of every configuration has a description in `--help` and in the documentation."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from archray.platform.config import description_of, field_kinds
from archray.platform.methods import METHODS, STUDIES, get_method
from archray.settings import RegisteredSettings


def keys_without_description(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if not description_of(model, name):
            yield prefix + name
        for kind in field_kinds(field.annotation):
            if isinstance(kind, type) and issubclass(kind, RegisteredSettings):
                for member in kind.registry.names():
                    yield from keys_without_description(kind.registry.get(member), f"{prefix}{name}={member}.")
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from keys_without_description(kind, f"{prefix}{name}.")


def test_every_key_has_a_description() -> None:
    keys = {method: list(keys_without_description(get_method(method).config)) for method in (*METHODS, *STUDIES)}
    assert {method: without for method, without in keys.items() if without} == {}
