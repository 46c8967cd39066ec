"""Base classes of settings: frozen models without unknown keys, and families whose `name` selects the class."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, get_args

from annotated_types import Le
from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidationInfo

from archray.registry import Registry

REPEATED = "repeated"  # metadata of a field whose command line option may be repeated

LARGEST = 10**9  # maximum of an integer: no run has more epochs, trials or images
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]  # the root of random numbers; fits a 64-bit column of a table


class Settings(BaseModel):
    """Base class of frozen settings, which are validated at construction.

    Unknown keys, NaN and infinity raise an error. So does an integer above LARGEST, unless its field has a bound `le`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool(cls, value: Any, info: ValidationInfo) -> Any:
        """Raises an error for true in place of a number, which pydantic converts to 1."""
        kinds = _kinds(cls.model_fields[info.field_name].annotation) if info.field_name else set()
        if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
            raise PydanticCustomError("number_type", "Input should be a number")
        return value

    @field_validator("*")
    @classmethod
    def _bounded(cls, value: Any, info: ValidationInfo) -> Any:
        bounds = cls.model_fields[info.field_name].metadata if info.field_name else []
        if not any(isinstance(bound, Le) for bound in bounds):
            for number in value if isinstance(value, list | tuple) else (value,):
                if isinstance(number, int) and abs(number) > LARGEST:
                    raise PydanticCustomError(
                        "less_than_equal", "Input should be less than or equal to {le}", {"le": f"{LARGEST:,}"}
                    )
        return value


def _kinds(annotation: Any) -> set[Any]:
    """Returns the types in an annotation, those in unions included."""
    return {annotation, *(kind for part in get_args(annotation) for kind in _kinds(part))}


class RegisteredSettings(Settings):
    """Base class of a family of settings, for a field `SerializeAsAny[Family]`.

    A family sets `registry` and has no other fields. Its members register themselves, and `name` is their first field.
    A value that is validated as the family becomes the member `name`; an unknown name raises an error that lists the
    names. A name alone selects the member with its defaults.

    Attributes:
        name: The name of the member.
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
