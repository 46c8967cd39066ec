"""A round of weight-sharing halving over a supernet: request, warm start, scores. Khodak et al. 2020, Algorithm 1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from archray.errors import InvalidInput
from archray.trainables.epoch_trainer import Metrics
from archray.trainables.supernets.networks import Supernet
from archray.trainables.supernets.shared_weights import write_weights
from archray.trainables.tune.trial_config import candidates_of, read_whole_number


@dataclass(frozen=True)
class HalvingRound:
    """What `WeightSharingHalving` asks for.

    Attributes:
        candidates: strings of the space.
        budget: epochs.
        number, replica: which round this is, and which of its trials; with the trial's seed they name its weights.
        warm_start: URI of weights; None begins with new ones.
    """

    candidates: tuple[str, ...]
    budget: int
    number: int
    replica: int
    warm_start: str | None


def read_round(config: Mapping[str, Any], epochs: int) -> HalvingRound | None:
    """The round that a Tune config asks for; None if it has no `candidates`. epochs: where there is no `budget`.

    Raises: InvalidInput.
    """
    candidates = candidates_of(config)
    if candidates is None:
        return None
    warm_start = config.get("warm_start")
    if warm_start is not None and not isinstance(warm_start, str):
        raise InvalidInput(f"expected the config's `warm_start` to be the URI of weights or None, got {warm_start!r}")
    return HalvingRound(
        candidates=candidates,
        budget=read_whole_number(config, "budget", epochs, least=1),
        number=read_whole_number(config, "round", 0, least=0),
        replica=read_whole_number(config, "replica", 0, least=0),
        warm_start=warm_start,
    )


def store(place: str, supernet: Supernet, request: HalvingRound, seed: int) -> str:
    """Writes the weights to the folder `place` and returns their URI; a trial that runs again writes the same file."""
    weights = {name: tensor.cpu() for name, tensor in supernet.state_dict().items()}
    return write_weights(
        place, f"round-{request.number}-replica-{request.replica}-seed-{seed}.pt", {"supernet": weights}
    )


def scores_of(metrics: Sequence[Metrics], score: Literal["loss", "accuracy"]) -> dict[str, Any] | None:
    """Scores, and means over the candidates that have one; None if there is no such candidate.

    A candidate whose loss is not finite has no score: the accuracy of such outputs means nothing.
    """
    finite = [each for each in metrics if math.isfinite(each.loss)]
    if not finite:
        return None
    scores = [getattr(each, score) if math.isfinite(each.loss) else math.nan for each in metrics]
    loss, accuracy = (sum(values) / len(finite) for values in zip(*finite, strict=True))
    return {
        "validation_loss": loss,
        "validation_accuracy": accuracy,
        "scores": scores,
        "score": loss if score == "loss" else accuracy,
    }


def no_scores(request: HalvingRound) -> dict[str, Any]:
    """The same keys, before the last epoch and after a failure."""
    count = len(request.candidates)
    return {
        "validation_loss": math.nan,
        "validation_accuracy": math.nan,
        "scores": [math.nan] * count,
        "score": math.nan,
        "weights": None,
        "candidates_left": count,
    }
