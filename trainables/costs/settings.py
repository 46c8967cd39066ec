"""The costs of networks to report, and the measurement of latencies."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from archray.settings import REPEATED, Settings
from archray.trainables.spaces.table_space import PREFIX, absolute_name


def texts_of(value: Any) -> Any:
    """The texts in a list, or in one text separated by commas; any other `value` as it is."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        return value
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


class LatencySettings(Settings):
    """How a network is timed.

    Fields:
        runtime: `torch-export` (the program of torch.export, on the CPU) or `onnxruntime` (the ONNX model; needs the
            extra `export`).
        batch_size: images of a pass.
        threads: CPU threads of a pass.
        clock: `wall`, or `cpu`: the CPU time of the one thread, for a machine that others use too.
        warmup: passes before the timed ones.
        repeats: timed passes; their median is the latency of the whole batch.
        resources: Ray's resources that name a device, as JSON: `{"raspberry": 1}`. The networks are timed one by one in
            an actor that holds all these resources of a node. None: in the driver's process.
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
            raise ValueError(f"the clock cpu is of one thread, got threads {self.threads}; choose the clock wall")
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
        except ValueError:
            raise ValueError('expected resources as JSON, {"raspberry": 1}') from None


class CostSettings(Settings):
    """The costs of networks to report.

    Fields:
        names: columns of tables and reports in addition to the metrics: costs by name (`parameters`, `flops`,
            `peak_memory`, `latency_ms`), `path.py:function`, or columns of `table`. Costs in `constraints` are added.
        table: a file with costs of the space's architectures, as `archray bench import` takes it.
        model: `whole`: every network is measured; `lookup`: each distinct operation is measured once, and a latency is
            a linear function of their sum over a network, fitted to six networks that are measured whole.
        latency: how a network is timed.
    """

    names: Annotated[tuple[str, ...], REPEATED] = ()
    table: str | None = None
    model: Literal["whole", "lookup"] = "whole"
    latency: LatencySettings = LatencySettings()

    @field_validator("names", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Accepts `flops,latency_ms` from the command line."""
        return texts_of(value)

    @field_validator("table")
    @classmethod
    def _absolute(cls, table: str | None) -> str | None:
        """A run may be resumed from another folder."""
        return None if table is None else absolute_name(table if table.startswith(PREFIX) else f"{PREFIX}{table}")
