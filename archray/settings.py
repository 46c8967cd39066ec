"""The bases of settings: frozen, unknown keys refused; and those whose `name` says which class they are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, model_validator

from archray.registry import Registry

REPEATED = "repeated"  # in the metadata of a field whose flag of the command line may come several times


class Settings(BaseModel):
    """Validated at construction, frozen; a key that it does not have is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RegisteredSettings(Settings):
    """The base of a family of settings, for a field `SerializeAsAny[Family]`.

    A family sets `registry` and does without fields of its own. Its members register themselves, and have `name` as
    their first field. What is validated as the family becomes the member that `name` says, or is refused with the
    names there are; a name by itself stands for the member's defaults.

    Attributes:
        name: which member of the family.
    """

    registry: ClassVar[Registry[Any]]

    name: str

    @model_validator(mode="wrap")
    @classmethod
    def _of_name(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(values, str):
            values = {"name": values}
        if "registry" not in vars(cls) or not isinstance(values, Mapping) or "name" not in values:
            return handler(values)
        member: Self = cls.registry.get(values["name"]).model_validate(values)
        return member
