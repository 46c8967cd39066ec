"""The configuration of NASI, search at initialisation. Shu 2022 (thesis), sections 6.4 and 6.5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from archray.errors import InvalidInput
from archray.platform.config import merge
from archray.platform.methods.method import Method, Values
from archray.platform.methods.supernets.supernet_config import (
    CLASSES,
    IMAGE_CHANNELS,
    SelectionSettings,
    check_network,
    check_selection,
    serves,
)
from archray.platform.methods.supernets.supernet_method import FLAGS, PRESETS, defaults_of
from archray.platform.methods.trained_config import TrainedSearchConfig
from archray.trainables.spaces import get_space
from archray.trainables.spaces.named_tables import absolute_name
from archray.trainables.spaces.table_space import PREFIX
from archray.trainables.tune.settings import NASIOptions, NASISettings

if TYPE_CHECKING:
    from archray.platform.run.run import Run


class NASIConfig(TrainedSearchConfig):
    """The configuration of NASI.

    Fields:
        nasi: the supernet that is searched at its initial weights, and how.
        search_seeds: k, how many searches run, each from its own initial weights.
        agreement: random architectures whose trace norms are compared: the approximations with the exact one, random
            labels and inputs with the data's (Table 6.7, Figure 6.1); 0 for none.
        agreement_table: a table of trained architectures of the space, a file as of `table:FILE`: the trace norm, SNIP,
            GraSP, SynFlow and NASWOT of some of them are compared with its accuracies (Figure 6.3, Table 6.5).
        agreement_rows: how many of its architectures, drawn uniformly; all of a smaller table.
        selection: which of the architectures that they found are trained to the end.
    """

    method: Literal["nasi"] = "nasi"
    space: str = "darts"
    nasi: NASIOptions = NASIOptions()
    search_seeds: int = Field(1, ge=1)
    agreement: int = Field(0, ge=0)
    agreement_table: str | None = None
    agreement_rows: int = Field(100, ge=3)
    selection: SelectionSettings = SelectionSettings()

    @field_validator("agreement_table")
    @classmethod
    def _absolute_table(cls, table: str | None) -> str | None:
        """A run may be resumed from another folder."""
        return None if table is None else absolute_name(f"{PREFIX}{table.removeprefix(PREFIX)}")

    @property
    def begins_without_data(self) -> bool:
        return self.nasi.without_data

    @property
    def mode(self) -> str:
        """Whether the best reward is the least or the largest."""
        return "max"

    def check(self) -> None:
        """Builds both networks without memory: what does not go together is refused before Ray starts."""
        super().check()
        check_selection(self.search_seeds, self.selection, self.final)
        if self.agreement in (1, 2):
            raise InvalidInput(
                f"expected an agreement of 3 architectures or more, or 0 for none, got {self.agreement}: two points "
                "always lie on a line"
            )
        if self.agreement_table is not None:
            from archray.platform.methods.supernets.table_values import TableValues  # which imports what reads tables

            TableValues.read(self.agreement_table, get_space(self.space))
        check_nasi(self.space, self.nasi)
        check_network(self.space, self.network)


def settings_of(run: Run[NASIConfig], **more: Any) -> dict[str, Any]:
    """The settings of a run's `NASITrainable`s, JSON-able. more: fields of `NASISettings` over the run's own."""
    options = {**dict(run.config.nasi), "space": run.space, "data": run.data, **more}
    return NASISettings(**options).model_dump(mode="json")


def check_nasi(space: str, options: NASIOptions) -> None:
    """Builds the supernet without memory. Raises: InvalidInput if its options do not go together."""
    import torch  # not above: a configuration is read, and most that is wrong with it found, without

    with torch.device("meta"):
        options.build(space, in_channels=IMAGE_CHANNELS, num_classes=CLASSES, seed=None)


# The thesis' constants: DARTS 6.5.3, trained as 6.4.4 says; NAS-Bench-1Shot1 6.5.1 (its nu, 1000, holds for its own
# initialisation: Eq. 6.14 is the rule). Those of NAS-Bench-201 are not given.
OF_SPACE: Values = {
    "darts": {"nasi": {"mu": 2.0}, "final": {"batch_size": 96, "drop_path": 0.2}},
    "nasbench1shot1": {"nasi": {"mu": 1.0, "nu_rule": "adaptive"}},
}


def _defaults(space: str) -> Values:
    values = defaults_of(space)
    network = values.pop("supernet", {}).get("network", {})
    name = get_space(space).name
    own: Values = next((of_space for known, of_space in OF_SPACE.items() if name.startswith(known)), {})
    return merge(values, {"nasi": {"network": network}}, own)


def _preset(name: str, **nasi: object) -> Values:
    values = {key: value for key, value in PRESETS[name].items() if key != "supernet"}
    return merge(values, {"nasi": nasi})


NASI = Method(
    name="nasi",
    config=NASIConfig,
    recipe_at="archray.platform.methods.supernets.nasi_recipe:RECIPE",
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
        **{name: path for name, path in FLAGS.items() if not path.startswith("supernet.")},
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
    serves=serves,
)
