"""An ensemble as one module: members of any architecture, their predictions averaged. Shu 2022, section 5.2.1.

Its two files are a description of the members, and their weights, which are read without running any code.
"""

import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from pydantic import Field
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.plurals import count
from archray.settings import Settings
from archray.trainables.checkpoint import load_fitting, load_trained_weights, read_state
from archray.trainables.ensembles.measures import Averaged, check_averaged
from archray.trainables.ensembles.prediction import DROP_PATH, DroppedPaths
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces import Space
from archray.trainables.tune.standalone_trainable import load_trained

Output = Literal["probabilities", "log_probabilities"]
DESCRIPTION, STATE_DICT = "architecture.json", "state_dict.pt"  # the names that the files of a single network have
KIND = "ensemble"  # `kind` of the description


class Ensemble(nn.Module):
    """Averages its members' predictions: images (n, C, H, W) -> (n, classes).

    Args:
        members: networks that give logits (n, classes), or a tuple that starts with them, as with an auxiliary tower in
            train mode. Architectures and spaces may differ.
        average: the members' probabilities, as in the paper, or their logits.
        output: probabilities, or their logarithms, which are exact where probabilities are near 0, and which `nll_loss`
            and `cross_entropy` take.

    Raises: InvalidInput.
    """

    def __init__(
        self, members: Sequence[nn.Module], average: Averaged = "probabilities", output: Output = "probabilities"
    ) -> None:
        super().__init__()
        if not members:
            raise InvalidInput("expected an ensemble of one member or more, got none")
        if output not in get_args(Output):
            raise InvalidInput(f"expected probabilities or log_probabilities as output, got {output!r}")
        check_averaged(average)
        self.members = nn.ModuleList(members)
        self.average: Averaged = average
        self.output: Output = output

    def forward(self, images: Tensor) -> Tensor:
        logits = self.member_logits(images)  # (members, n, classes)
        if self.average == "logits":
            log_p = logits.mean(0).log_softmax(-1)
        else:
            log_p = logits.log_softmax(-1).logsumexp(0) - math.log(len(self.members))
        return log_p.exp() if self.output == "probabilities" else log_p

    def member_logits(self, images: Tensor) -> Tensor:
        """The logits of each member, (members, n, classes), float32."""
        outputs = [member(images) for member in self.members]
        return torch.stack([(out[0] if isinstance(out, tuple) else out).float() for out in outputs])


# Its files


class Member(Settings):
    """The settings that rebuild a member.

    space: a registered name, or a reference to a user's space. drop_path: the arguments of `DroppedPaths`, for a member
    that drops paths to predict.
    """

    space: str
    architecture: str
    network: NetworkSettings = NetworkSettings()
    in_channels: int = Field(ge=1)
    num_classes: int = Field(ge=1)
    drop_path: dict[str, Any] | None = None

    def build(self, space: str | Space | None = None) -> nn.Module:
        """The network with random weights. space: instead of the member's, for a file that has moved."""
        shape: dict[str, Any] = {"in_channels": self.in_channels, "num_classes": self.num_classes}
        space = self.space if space is None else space
        network = build(space, self.architecture, network=self.network, seed=0, **shape)
        return network if self.drop_path is None else DroppedPaths(network, **self.drop_path)


def member_of(checkpoint: str | Path, space: str | Space | None = None) -> tuple[Member, nn.Module]:
    """The network in a `StandaloneTrainable`'s checkpoint, on the CPU, in evaluation mode, and its settings.

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
    """The contents of the ensemble's files by name. Write the description last, as it marks the ensemble as complete.

    members: the settings of the networks, in order. described: further entries of the description, plain data
    (accuracies, the data set).

    Raises: InvalidInput for another number of members, or further entries whose names are taken.
    """
    if len(members) != len(ensemble.members):
        raise InvalidInput(f"expected what each of {count(len(ensemble.members), 'member')} is, got {len(members)}")
    entries: dict[str, Any] = {
        "kind": KIND,
        "members": [member.model_dump(mode="json") for member in members],
        "average": ensemble.average,
        "output": ensemble.output,
    }
    if described and entries.keys() & described.keys():
        raise InvalidInput(f"expected other entries than {', '.join(entries)}, got {', '.join(described)}")
    buffer = io.BytesIO()
    torch.save(ensemble.state_dict(), buffer)
    text = json.dumps(entries | (described or {}), indent=2, ensure_ascii=False) + "\n"
    return {STATE_DICT: buffer.getvalue(), DESCRIPTION: text.encode()}


def load_ensemble(
    source: str | Path | Callable[[str], bytes], space: str | Space | None = None, output: Output | None = None
) -> Ensemble:
    """The ensemble that was saved, on the CPU, in evaluation mode.

    Args:
        source: the folder, or a function that reads a file of it by name, for remote folders.
        space: instead of every member's, for a reference whose file has moved.
        output: instead of the saved ensemble's.

    Raises: FileNotFoundError; InvalidInput if the folder holds no ensemble, or other weights.
    """
    read = source if callable(source) else lambda name: (Path(source) / name).read_bytes()
    described = json.loads(read(DESCRIPTION))
    if described.get("kind") != KIND:
        raise InvalidInput(f"expected a saved ensemble, got a {described.get('kind') or 'single network'}")
    members = [Member.model_validate(member) for member in described["members"]]
    place = "" if callable(source) else f"{source}/"
    classes = [member.num_classes for member in members]
    state = load_trained_weights(read(STATE_DICT), f"{place}{STATE_DICT}", classes, f"{place}{DESCRIPTION}")
    networks = [member.build(space) for member in members]
    ensemble = Ensemble(networks, average=described["average"], output=output or described["output"])
    load_fitting(ensemble, state, f"{STATE_DICT} to hold the weights of the members that {DESCRIPTION} names")
    return ensemble.eval()
