"""An ensemble as one module: members of any architecture, their predictions averaged. Shu 2022, section 5.2.1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.trainables.ensembles.measures import Averaged, check_averaged

Output = Literal["probabilities", "log_probabilities"]


class Ensemble(nn.Module):
    """Averages its members' predictions: images (n, C, H, W) -> (n, classes).

    Args:
        members: networks that give logits (n, classes), or, as one with an auxiliary tower does in train mode, a tuple
            of which these are the first. They may be of different architectures, and of different spaces.
        average: the members' probabilities, as in the paper, or their logits.
        output: probabilities, or their logarithms, which lose nothing where probabilities are near 0, and which
            `nll_loss` and `cross_entropy` take.

    Raises: InvalidInput.
    """

    def __init__(
        self,
        members: Sequence[nn.Module],
        average: Averaged = "probabilities",
        output: Output = "probabilities",
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
            found = logits.mean(0).log_softmax(-1)
        else:
            found = logits.log_softmax(-1).logsumexp(0) - math.log(len(self.members))
        return found.exp() if self.output == "probabilities" else found

    def member_logits(self, images: Tensor) -> Tensor:
        """The logits of each member, (members, n, classes), float32."""
        outputs = [member(images) for member in self.members]
        return torch.stack([(each[0] if isinstance(each, tuple) else each).float() for each in outputs])
