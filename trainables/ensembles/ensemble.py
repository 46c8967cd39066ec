"""An ensemble as one module: members of any architecture, with averaged predictions. Shu 2022, section 5.2.1.

It is saved in two files: a description of the members, and their weights, which are read without running any code.
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
DESCRIPTION, STATE_DICT = "architecture.json", "state_dict.pt"  # the same names as for a single network
KIND = "ensemble"  # `kind` in the description


class Ensemble(nn.Module):
    """Averages its members' predictions: images (n, C, H, W) -> (n, classes).

    Args:
        members: Networks that return logits (n, classes), or a tuple that starts with them, as with an auxiliary
            classifier in train mode. Architectures and spaces may differ.
        average: Whether to average the members' probabilities, as in the paper, or their logits.
        output: Probabilities, or their logarithms, which are exact for probabilities near 0, and which `nll_loss` and
            `cross_entropy` take.

    Raises: InvalidInput.

    Example:
        ```python
        ensemble = Ensemble([first, second], output="log_probabilities").eval()
        log_probabilities = ensemble(images)  # (n, classes)
        ```
    """

    def __init__(
        self, members: Sequence[nn.Module], average: Averaged = "probabilities", output: Output = "probabilities"
    ) -> None:
        super().__init__()
        if not members:
            raise InvalidInput("expected an ensemble with one or more members, got none")
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
        """Returns the logits of each member, (members, n, classes), float32."""
        outputs = [member(images) for member in self.members]
        return torch.stack([(out[0] if isinstance(out, tuple) else out).float() for out in outputs])


# Files of an ensemble


class Member(Settings):
    """The settings that rebuild a member.

    Attributes:
        space: Name of a registered space, or a reference to a custom space.
        architecture: The space's string.
        network: Width, depth and stem of the network.
        in_channels: Number of channels of an image.
        num_classes: Number of classes.
        drop_path: Arguments of `DroppedPaths`, for a member that drops paths in prediction.
    """

    space: str
    architecture: str
    network: NetworkSettings = NetworkSettings()
    in_channels: int = Field(ge=1)
    num_classes: int = Field(ge=1)
    drop_path: dict[str, Any] | None = None

    def build(self, space: str | Space | None = None) -> nn.Module:
        """Builds the network with random weights. space: replaces the member's, for a file that has moved."""
        shape: dict[str, Any] = {"in_channels": self.in_channels, "num_classes": self.num_classes}
        space = self.space if space is None else space
        network = build(space, self.architecture, network=self.network, seed=0, **shape)
        return network if self.drop_path is None else DroppedPaths(network, **self.drop_path)


def member_of(checkpoint: str | Path, space: str | Space | None = None) -> tuple[Member, nn.Module]:
    """Loads the network in a checkpoint of a `StandaloneTrainable`, on the CPU, in evaluation mode, and its settings.

    space: as in `load_trained`. Raises: InvalidInput for the checkpoint of a trial that failed.
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
    """Returns the contents of the ensemble's files by name. Write the description last; it marks completeness.

    Args:
        members: Settings of the networks, in order.
        described: Further entries of the description, plain data (accuracies, the data set).

    Raises: InvalidInput for another number of members, or further entries with reserved names.
    """
    if len(members) != len(ensemble.members):
        raise InvalidInput(
            f"expected the settings of {count(len(ensemble.members), 'member')}, got {len(members)}. Give one for each"
        )
    entries: dict[str, Any] = {
        "kind": KIND,
        "members": [member.model_dump(mode="json") for member in members],
        "average": ensemble.average,
        "output": ensemble.output,
    }
    if described and entries.keys() & described.keys():
        raise InvalidInput(
            f"expected further entries other than {', '.join(entries)}, got {', '.join(described)}; rename them"
        )
    buffer = io.BytesIO()
    torch.save(ensemble.state_dict(), buffer)
    text = json.dumps(entries | (described or {}), indent=2, ensure_ascii=False) + "\n"
    return {STATE_DICT: buffer.getvalue(), DESCRIPTION: text.encode()}


def load_ensemble(
    source: str | Path | Callable[[str], bytes], space: str | Space | None = None, output: Output | None = None
) -> Ensemble:
    """Loads a saved ensemble on the CPU, in evaluation mode.

    Args:
        source: Folder, or a function that reads one of its files by name, for remote folders.
        space: Replaces every member's space, for a reference whose file has moved.
        output: Replaces the saved ensemble's output.

    Raises: FileNotFoundError; InvalidInput if the folder contains no ensemble, or other weights.
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
    load_fitting(ensemble, state, f"{STATE_DICT} with the weights of the members in {DESCRIPTION}")
    return ensemble.eval()
