"""Which costs of networks are looked at, and how a latency is measured."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from archray.settings import REPEATED, Settings
from archray.trainables.spaces.table_space import PREFIX, absolute_name


def texts_of(value: Any) -> Any:
    """The texts in a list, or in one text separated by commas: the command line has both; else `value` as it is."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        return value
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


class LatencySettings(Settings):
    """How a network is timed.

    Fields:
        runtime: what runs the network: `torch-export` (the program that torch.export makes, on the CPU) or
            `onnxruntime` (its ONNX model; with the extra `export`).
        batch_size: images of a pass.
        threads: CPU threads of a pass.
        clock: `wall`, or `cpu`: the time that the thread was at work, on a machine that others use too; of one thread.
        warmup: passes before the first that counts.
        repeats: passes that count: their median is the latency, of the whole batch.
        resources: Ray's resources that name a device, as JSON: `{"raspberry": 1}`. The networks are timed in an actor
            on a node that has them, one at a time: it holds all that the node has. None: in the driver's process.
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
        """`{"raspberry": 1}`, as the command line has it, too."""
        if not isinstance(value, str):
            return value
        import json

        try:
            return json.loads(value)
        except ValueError:
            raise ValueError('expected resources as JSON, {"raspberry": 1}') from None


class CostSettings(Settings):
    """Which costs of networks are looked at.

    Fields:
        names: columns of tables and reports beside the metrics: costs by name (`parameters`, `flops`, `peak_memory`,
            `latency_ms`), `path.py:function`, or columns of `table`. What `constraints` bound is added.
        table: a file with costs of the space's architectures, as `archray bench import` takes it.
        model: `whole`: every network is measured; `lookup`: a latency is the sum over a network's operations, each
            distinct one of which is measured once, on a line fitted to six networks that are measured whole.
        latency: how a network is timed.
    """

    names: Annotated[tuple[str, ...], REPEATED] = ()
    table: str | None = None
    model: Literal["whole", "lookup"] = "whole"
    latency: LatencySettings = LatencySettings()

    @field_validator("names", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """`flops,latency_ms`, as the command line has it, too."""
        return texts_of(value)

    @field_validator("table")
    @classmethod
    def _absolute(cls, table: str | None) -> str | None:
        """A run may be resumed from another folder."""
        return None if table is None else absolute_name(table if table.startswith(PREFIX) else f"{PREFIX}{table}")
