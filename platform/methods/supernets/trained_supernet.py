"""The trained sliced supernet of a run: where its weights lie, their checksum, and what they were trained with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.run.layout import DONE
from archray.platform.run.run_summary import read_manifest

if TYPE_CHECKING:
    from torch import Tensor

STAGE = "supernet"
WEIGHTS, DESCRIPTION = "weights.pt", "supernet.json"


@dataclass(frozen=True)
class TrainedSupernet:
    """Weights by path and checksum: they are read where they lie, and not copied.

    Attributes:
        place: URI of the folder that holds `weights.pt`.
        sha256: of that file.
        settings: fields of `SlicedSettings` that they were trained with.
        config: the configuration of the run that trained them, or has taken them.
        data_checksum: of that run's data.
    """

    place: str
    sha256: str
    settings: dict[str, Any]
    config: dict[str, Any]
    data_checksum: str | None

    @classmethod
    def of_run(cls, run: str) -> TrainedSupernet:
        """Raises: InvalidInput if the folder holds no run with a trained sliced supernet."""
        advice = "give the folder of a run of sliced-supernet whose supernet is trained"
        try:
            manifest = read_manifest(Folder(run))
        except RunFolderError as error:
            raise InvalidInput(f"expected the supernet of another run, got {run}: {error}; {advice}") from error
        folder = Folder(run) / STAGE
        if not folder.exists(DONE) or not folder.exists(DESCRIPTION):
            raise InvalidInput(f"{run} has no trained sliced supernet; {advice}")
        told = folder.read_json(DESCRIPTION)
        own = {"place": told["place"] or folder.uri, "sha256": told["sha256"], "settings": told["settings"]}
        return cls(**own, config=manifest["config"], data_checksum=manifest["data_checksum"])

    def write(self, folder: Folder) -> None:
        """Writes what it is into the stage's folder of a run; of weights that lie there, without their place."""
        place = None if self.place == folder.uri else self.place
        folder.write_json(DESCRIPTION, {"place": place, "sha256": self.sha256, "settings": self.settings})

    def weights(self) -> dict[str, Tensor]:
        """The state of the supernet. Raises: InvalidInput if the file is gone, or is another than it was."""
        from archray.trainables.checkpoint import read_weights  # which imports torch

        folder = Folder(self.place)
        if not folder.exists(WEIGHTS):
            raise InvalidInput(
                f"the supernet's weights {folder}/{WEIGHTS} are gone; put the run that trained them back"
            )
        if folder.sha256(WEIGHTS) != self.sha256:
            raise InvalidInput(
                f"the supernet's weights {folder}/{WEIGHTS} are others than when this run began; begin a new run"
            )
        state: dict[str, Tensor] = read_weights((folder / WEIGHTS).uri)
        return state
