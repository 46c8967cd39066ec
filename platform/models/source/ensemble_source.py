"""The text of a whole model, a network or an ensemble of them: the file that an export holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from archray.platform.models.source.network_source import Described, source_file, source_of
from archray.registry import import_modules
from archray.trainables.spaces import Space

import_modules("archray.platform.models.source")  # they register their texts

_ENSEMBLE = '''
class Ensemble(nn.Module):
    """The average of its members' AVERAGED: images (n, in_channels, H, W) to probabilities (n, classes)."""

    def __init__(self) -> None:
        super().__init__()
        self.members = nn.ModuleList(
            [
                MEMBERS
            ]
        )

    def forward(self, images: Tensor) -> Tensor:
        logits = torch.stack([member(images) for member in self.members])  # (members, n, classes)
        return AVERAGE
'''
AVERAGES = {
    "probabilities": "logits.softmax(-1).mean(0)",
    "logits": "logits.mean(0).softmax(-1)",
}


def network_file(title: str, described: dict[str, Any], space: str | Space) -> str:
    """The file of one network. described: as `Described.of`. Raises: InvalidInput for a space without a source."""
    return source_file(title, [source_of(Described.of(described, space))], "Network()")


def ensemble_file(title: str, members: Sequence[dict[str, Any]], average: str, spaces: Sequence[str | Space]) -> str:
    """The file of an ensemble: a class for each of its different networks, and `Ensemble`.

    Args:
        members: as `Described.of`, each. average: what is averaged, probabilities or logits.
        spaces: of each member.

    Raises: InvalidInput for a space without a source, or members that drop paths at random.
    """
    texts, numbers, calls = list[str](), dict[str, int](), []
    for member, space in zip(members, spaces, strict=True):
        key = json.dumps(member, sort_keys=True)
        if key not in numbers:
            numbers[key] = len(numbers) + 1
            texts.append(source_of(Described.of(member, space), str(numbers[key])))
        calls.append(f"Network{numbers[key]}(),")
    ensemble = (
        _ENSEMBLE.replace("AVERAGED", average)
        .replace("MEMBERS", f"\n{16 * ' '}".join(calls))
        .replace("AVERAGE", AVERAGES[average])
    )
    return source_file(title, [*texts, ensemble], "Ensemble()")
