"""A trained ensemble as two files: what its members are, and their weights; read without running any code."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from archray.errors import InvalidInput
from archray.files import write_file
from archray.settings import Settings
from archray.trainables.checkpoint import read_state
from archray.trainables.ensembles.ensemble import Ensemble, Output
from archray.trainables.ensembles.prediction import DROP_PATH, DropPathSettings, DroppedPaths
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces import Space
from archray.trainables.tune.trained_network import load_trained

DESCRIPTION, STATE_DICT = "architecture.json", "state_dict.pt"  # the names that the files of a single network have
KIND = "ensemble"  # what the description says that it is


class Member(Settings):
    """What is needed to build a member again.

    space: a registered name, or a reference to the user's own. drop_path: of a member that drops paths to predict.
    """

    space: str
    architecture: str
    network: NetworkSettings = NetworkSettings()
    in_channels: int
    num_classes: int
    drop_path: DropPathSettings | None = None

    def build(self, space: str | Space | None = None) -> nn.Module:
        """The network, with weights of its own drawing. space: instead of the member's, for a file that has moved."""
        network = build(
            self.space if space is None else space,
            self.architecture,
            network=self.network,
            in_channels=self.in_channels,
            num_classes=self.num_classes,
            seed=0,
        )
        return network if self.drop_path is None else DroppedPaths(network, **self.drop_path.model_dump())


def member_of(checkpoint: str | Path, space: str | Space | None = None) -> tuple[Member, nn.Module]:
    """The network in a `StandaloneTrainable`'s checkpoint, on the CPU, in evaluation mode, and what it is.

    space: as `load_trained`. Raises: InvalidInput for the checkpoint of a trial that failed.
    """
    network = load_trained(checkpoint, space)
    state = read_state(checkpoint)
    member = Member(
        space=space if isinstance(space, str) else state["settings"]["space"],
        architecture=state["architecture"],
        network=state["settings"]["network"],
        in_channels=state["in_channels"],
        num_classes=state["num_classes"],
        drop_path=state.get(DROP_PATH),
    )
    return member, network


def ensemble_files(
    ensemble: Ensemble, members: Sequence[Member], described: dict[str, Any] | None = None
) -> dict[str, bytes]:
    """The contents of the ensemble's files by name. The description is to be written last: it says that all is there.

    Args:
        members: what each of the ensemble's networks is, in their order.
        described: further entries of the description, plain data (errors, the data set).

    Raises: InvalidInput if members are too many or too few, or entries have the names of others.
    """
    if len(members) != len(ensemble.members):
        raise InvalidInput(f"expected what each of {len(ensemble.members)} members is, got {len(members)}")
    own: dict[str, Any] = {
        "kind": KIND,
        "members": [member.model_dump(mode="json") for member in members],
        "average": ensemble.average,
        "output": ensemble.output,
    }
    if described and own.keys() & described.keys():
        raise InvalidInput(f"expected other entries than {', '.join(own)}, got {', '.join(described)}")
    buffer = io.BytesIO()
    torch.save(ensemble.state_dict(), buffer)
    text = json.dumps(own | (described or {}), indent=2, ensure_ascii=False) + "\n"
    return {STATE_DICT: buffer.getvalue(), DESCRIPTION: text.encode()}


def save_ensemble(
    folder: str | Path, ensemble: Ensemble, members: Sequence[Member], described: dict[str, Any] | None = None
) -> None:
    """Writes `ensemble_files` to a local folder, each whole, the description last."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for name, content in ensemble_files(ensemble, members, described).items():
        write_file(place / name, content)


def load_ensemble(
    source: str | Path | Callable[[str], bytes], space: str | Space | None = None, output: Output | None = None
) -> Ensemble:
    """The ensemble that was saved, on the CPU, in evaluation mode.

    Args:
        source: the folder, or what reads a file of it by name, for folders elsewhere.
        space: instead of every member's own, for a reference whose file has moved.
        output: instead of the saved one's.

    Raises: FileNotFoundError; InvalidInput if the folder holds something else than an ensemble.
    """
    read = source if callable(source) else lambda name: (Path(source) / name).read_bytes()
    described = json.loads(read(DESCRIPTION))
    if described.get("kind") != KIND:
        raise InvalidInput(f"expected a saved ensemble, got a {described.get('kind') or 'single network'}")
    ensemble = Ensemble(
        [Member.model_validate(each).build(space) for each in described["members"]],
        average=described["average"],
        output=output or described["output"],
    )
    ensemble.load_state_dict(torch.load(io.BytesIO(read(STATE_DICT)), weights_only=True))
    return ensemble.eval()
