"""The configuration of NASI (search at initialization). Shu 2022, sections 6.4 and 6.5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from archray.errors import InvalidArchitecture, InvalidInput
from archray.platform.config import merge
from archray.platform.methods.config import TrainedSearchConfig
from archray.platform.methods.method import Method, Values
from archray.platform.methods.supernets import config as supernets
from archray.trainables.spaces import Space, get_space
from archray.trainables.spaces.table_space import PREFIX, absolute_name, canonical_string
from archray.trainables.tabular import open_table
from archray.trainables.tune.settings import NASIOptions, NASISettings

if TYPE_CHECKING:
    from archray.platform.run.run import Run

AGREEMENT = "agreement.parquet"  # of the stage `agreement`, a row per architecture; see `NASIAgreementTrainable`
IN_TABLE = "table.parquet"  # of the stage `table`, a row per architecture of the user's table
TABLE = "table.json"  # of the stage `table`: the description of the user's table
METRICS = ("ntk_trace_batch", "snip", "grasp", "synflow", "naswot")  # Table 6.5; the first is the metric of NASI
REWARD = "found_reward"  # compares the found architectures of several seeds


class NASIConfig(TrainedSearchConfig):
    """The configuration of NASI.

    Fields:
        nasi: the supernet, and the search at its initial weights.
        search_seeds: number of searches, each with its own initial weights.
        agreement: number of random architectures that compare trace norms: each approximation with the exact norm,
            random labels and inputs with real data (Table 6.7, Figure 6.1); 0 for none.
        agreement_table: file with a table of trained architectures of the space, as in `table:FILE`. The report
            compares the table's accuracies with trace norm, SNIP, GraSP, SynFlow and NASWOT (Figure 6.3, Table 6.5).
        agreement_rows: number of architectures of that table that are compared, drawn uniformly; all of a smaller
            table.
        selection: which of the found architectures are trained to the end.
    """

    method: Literal["nasi"] = "nasi"
    space: str = "darts"
    nasi: NASIOptions = NASIOptions()
    search_seeds: int = Field(1, ge=1)
    agreement: int = Field(0, ge=0)
    agreement_table: str | None = None
    agreement_rows: int = Field(100, ge=3)
    selection: supernets.SelectionSettings = supernets.SelectionSettings()

    @field_validator("agreement_table")
    @classmethod
    def _absolute_table(cls, table: str | None) -> str | None:
        """Makes the path absolute: a run may be resumed from another folder."""
        return None if table is None else absolute_name(f"{PREFIX}{table.removeprefix(PREFIX)}")

    @property
    def starts_without_data(self) -> bool:
        return self.nasi.without_data

    @property
    def mode(self) -> str:
        """The direction of the reward: `max`."""
        return "max"

    def check(self) -> None:
        """Builds both networks without memory, so that options that do not fit raise an error before Ray starts."""
        super().check()
        supernets.check_selection(self.search_seeds, self.selection, self.final)
        if self.agreement in (1, 2):
            raise InvalidInput(
                f"expected agreement to be at least 3 architectures, or 0 for none, got {self.agreement}: a "
                "correlation needs 3 points"
            )
        if self.agreement_table is not None:
            TableValues.read(self.agreement_table, get_space(self.space))
        import torch  # here, as reading a configuration and most of its checks do not need torch

        with torch.device("meta"):  # raises InvalidInput for options that do not fit
            images = {"in_channels": supernets.IMAGE_CHANNELS, "num_classes": supernets.CLASSES}
            self.nasi.build(self.space, **images, seed=None).check_probes()
        supernets.check_network(self.space, self.network)


def settings_of(run: Run[NASIConfig], **more: Any) -> dict[str, Any]:
    """The settings of a run's `NASITrainable`, as JSON.

    Args:
        run: the run.
        more: fields of `NASISettings` that override the run's fields.
    """
    options = {**dict(run.config.nasi), "space": run.space, "data": run.data, **more}
    return NASISettings(**options).model_dump(mode="json")


def _defaults(space: str) -> Values:
    values = supernets.defaults_of(space)
    network = values.pop("supernet", {}).get("network", {})
    return merge(values, {"nasi": {"network": network}}, get_space(space).defaults.get("nasi", {}))


def _preset(name: str, **nasi: object) -> Values:
    return merge({k: v for k, v in supernets.PRESETS[name].items() if k != "supernet"}, {"nasi": nasi})


NASI = Method(
    name="nasi",
    config=NASIConfig,
    recipe_at="archray.platform.methods.nasi.stages:RECIPE",
    defaults=_defaults,
    presets={
        "smoke": {
            **_preset(
                "smoke", network={"channels": 4, "cells": 1}, steps=4, batch_size=8, samples=3, every=2, image_size=8
            ),
            "agreement": 3,
            "agreement_rows": 12,
        },
        "demo": {
            **_preset("demo", network={"channels": 8, "cells": 1}, steps=50, batch_size=32, samples=20),
            "agreement": 12,
        },
        "paper": {**_preset("paper"), "search_seeds": 5},
    },
    flags={
        **{name: path for name, path in supernets.FLAGS.items() if not path.startswith("supernet.")},
        "search_channels": "nasi.network.channels",
        "search_cells": "nasi.network.cells",
        "steps": "nasi.steps",
        "nu_rule": "nasi.nu_rule",
        "nu": "nasi.nu",
        "mu": "nasi.mu",
        "approximation": "nasi.approximation",
        "labels": "nasi.labels",
        "inputs": "nasi.inputs",
        "agreement": "agreement",
        "agreement_table": "agreement_table",
        "agreement_rows": "agreement_rows",
    },
    extendable=("final_epochs", "final_seeds", "random"),
    serves=supernets.serves,
)


MIN_ROWS = 3  # architectures that a correlation needs


@dataclass(frozen=True)
class TableValues:
    """The results of trained architectures in a table, by the canonical strings of a space.

    Attributes:
        location: path of the table's file.
        checksum: SHA-256 of the file.
        column: the column of the results; without results, the column of the objective.
        mode: whether the largest (`max`) or the smallest (`min`) value is best.
        values: canonical string -> value.
    """

    location: str
    checksum: str
    column: str
    mode: Literal["max", "min"]
    values: Mapping[str, float]

    @classmethod
    def read(cls, name: str, space: Space) -> TableValues:
        """Reads `table:FILE`, with optional roles of columns after a `?`.

        Raises: InvalidTable, InvalidInput, as `open_table`; InvalidInput for a table of another space or with fewer
        than three architectures.
        """
        table, values = open_table(name), dict[str, float]()
        for row in table.rows:
            text = table.architectures[row]
            try:
                values.setdefault(canonical_string(space, text), float(table.result[row]))
            except InvalidArchitecture as error:
                raise InvalidInput(
                    f"expected a table of architectures of {space.name}, got {table.location} with other architectures "
                    f"({error}). Pass a table of that space, or set --space to the space of the table"
                ) from error
        if len(values) < MIN_ROWS:
            raise InvalidInput(
                f"expected at least {MIN_ROWS} architectures in {table.location}, got {len(values)}. Pass a larger "
                "table"
            )
        column = table.roles.result or str(table.roles.objective)
        return cls(table.location, table.space.file.checksum, column, table.mode, values)

    def described(self) -> dict[str, Any]:
        """The attributes without the values, and the best value, as JSON."""
        best = (max if self.mode == "max" else min)(self.values.values())
        return {
            "location": self.location,
            "checksum": self.checksum,
            "column": self.column,
            "mode": self.mode,
            "architectures": len(self.values),
            "best": best,
        }
