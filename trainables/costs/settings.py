"""Settings of the reported costs of networks and of latency measurements."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from archray.errors import InvalidInput
from archray.objects import is_object, named
from archray.references import is_reference, split_reference
from archray.settings import REPEATED, Settings
from archray.trainables.spaces.table_space import PREFIX, absolute_name

BUILT_IN = {"CPU", "GPU", "memory"}  # resources of Ray that do not identify a device


def texts_of(value: Any) -> Any:
    """Splits a text at commas, or each text of a list, which may also contain functions.

    A function alone becomes a tuple. Any other `value` is returned unchanged.
    """
    values = [value] if isinstance(value, str) or is_object(value) else value
    if not isinstance(values, list | tuple) or not all(isinstance(part, str) or is_object(part) for part in values):
        return value
    parts = (map(str.strip, part.split(",")) if isinstance(part, str) else [part] for part in values)
    return tuple(part for group in parts for part in group if part != "")


# A name or a reference; a function or a `Cost` becomes a reference.
CostName = Annotated[str, BeforeValidator(partial(named, kind="cost"))]


class LatencySettings(Settings):
    """Options of a latency measurement.

    Attributes:
        runtime: Runtime of the measured network: `torch-export` (the program of torch.export, on the CPU) or
            `onnxruntime` (the ONNX model; needs the extra `export`).
        batch_size: Number of images per forward pass.
        threads: Number of CPU threads per forward pass.
        clock: Clock of the measurement: `wall`, or `cpu`, the CPU time of a single thread, for a shared machine.
        warmup: Number of passes before the timed ones.
        repeats: Number of timed passes. Their median is the latency of the whole batch.
        resources: Ray resources that identify a device, as JSON: `{"raspberry": 1}`. An actor that holds all these
            resources of a node measures the networks one by one (default: measure in the driver process).
    """

    runtime: Literal["torch-export", "onnxruntime"] = "torch-export"
    batch_size: int = Field(1, ge=1)
    threads: int = Field(1, ge=1)
    clock: Literal["wall", "cpu"] = "wall"
    warmup: int = Field(5, ge=0)
    repeats: int = Field(31, ge=1)
    resources: dict[str, float] | None = None

    @model_validator(mode="after")
    def _one_thread(self) -> "LatencySettings":
        if self.clock == "cpu" and self.threads > 1:
            raise ValueError(f"expected threads 1 with the clock cpu, got {self.threads}. Choose the clock wall")
        return self

    @field_validator("resources", mode="before")
    @classmethod
    def _json(cls, value: Any) -> Any:
        """Accepts JSON text, `{"raspberry": 1}`, from the command line."""
        if not isinstance(value, str):
            return value
        import json

        try:
            return json.loads(value)
        except (ValueError, RecursionError):  # RecursionError: thousands of brackets
            raise ValueError('expected resources as JSON, such as {"raspberry": 1}') from None

    @field_validator("resources")
    @classmethod
    def _of_a_device(cls, value: dict[str, float] | None) -> dict[str, float] | None:
        if value is not None and (not value or BUILT_IN & value.keys() or min(value.values()) <= 0):
            raise ValueError(
                f'expected custom resources of a device such as {{"raspberry": 1}}, got {value}. Start Ray on the '
                "device with --resources"
            )
        return value


class CostSettings(Settings):
    """Options of the reported costs.

    Attributes:
        names: Costs to report as columns of tables: `parameters`, `flops`, `peak_memory`, `latency_ms`,
            `path.py:function`, or columns of `table`. Costs in `constraints` are added.
        table: File with costs of the space's architectures, in a format that `archray bench import` accepts.
        model: Method of measuring a cost. `whole` measures every network. `lookup` measures each distinct operation
            once; a latency is a linear function of their sum over a network, fitted to six networks measured whole.
        latency: Options of a latency measurement.
    """

    names: Annotated[tuple[CostName, ...], REPEATED] = ()
    table: str | None = None
    model: Literal["whole", "lookup"] = "whole"
    latency: LatencySettings = LatencySettings()

    @field_validator("names", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Accepts `flops,latency_ms` from the command line."""
        return texts_of(value)

    @field_validator("names")
    @classmethod
    def _distinct(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Raises: InvalidInput for custom costs of one name, which would have one column."""
        columns = [split_reference(name)[1] for name in names if is_reference(name)]
        if len({*columns, *names}) < len(columns) + len(set(names)):
            raise InvalidInput(f"expected costs with distinct names, got {', '.join(names)}. Rename a function")
        return names

    @field_validator("table")
    @classmethod
    def _absolute(cls, table: str | None) -> str | None:
        """Makes the path absolute, because a run may resume from another folder."""
        return None if table is None else absolute_name(table if table.startswith(PREFIX) else f"{PREFIX}{table}")
