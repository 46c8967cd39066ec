"""Evaluation of ensembles from their members' predictions, each computed once. Shu 2022, Algorithm 5.1, lines 5-6."""

import hashlib
import io
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from archray.errors import InvalidInput, RunInterrupted
from archray.files import Folder
from archray.plurals import count
from archray.trainables.ensembles.measures import Averaged, check_averaged, disagreement
from archray.trainables.ensembles.scores import Arranged, arrange, score_ensembles

METRICS = ("validation_loss", "validation_accuracy", "members_accuracy", "disagreement")  # of an ensemble


class Answer(NamedTuple):
    """The prediction of one member; `archray.cluster.actor_pool.Outcome` has the same attributes.

    Attributes:
        item: The member's string.
        value: Its probabilities, (images, classes), or a string, the reason of a failure.
        error: The worker's error; there is no value then.
    """

    item: str
    value: Any
    error: str | None = None


Predict = Callable[[Sequence[str]], Iterable[Sequence[Any]]]  # of `Answer`s


@dataclass(frozen=True)
class _Member:
    """A member with predictions."""

    arranged: Arranged
    classes: npt.NDArray[np.int16]  # (images,)
    loss: float
    accuracy: float


class CachedEnsembles:
    """Function from a config `{"members": [..]}` to the ensemble's validation loss: `evaluate` of `searchers.drive`.

    A member's predictions are computed once, regardless of the number of its ensembles: T ensembles of n members cost
    as many forward passes as there are distinct strings. Predictions are cached in this process, and in `folder` for
    the next object with the same folder.

    Args:
        labels: Labels of the validation images, (images,).
        predict: Function from members without predictions to an answer for each, in any order, as they arrive. With
            actors: `lambda members: actor_map(SharedPredictions, members, worker_kwargs=.., num_actors=..)`.
        folder: Folder for one set of weights and one set of images; None stores nothing on disk.
        how: Averaged outputs: probabilities or logits.

    Attributes:
        forward_passes: Number of members predicted here, including failed members.
    """

    def __init__(
        self, labels: npt.ArrayLike, predict: Predict, folder: Folder | None = None, how: Averaged = "probabilities"
    ) -> None:
        check_averaged(how)
        self.labels, self.how = np.asarray(labels), how
        self.forward_passes = 0
        self._predict, self._folder = predict, folder
        self._members: dict[str, _Member] = {}
        self._failures: dict[str, str] = {}

    def __call__(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the row of `evaluate` for `config["members"]`, without the members."""
        row = self.evaluate([config["members"]])[0]
        del row["members"]
        return row

    def evaluate(self, ensembles: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """Returns a row for each ensemble.

        The columns are `members`, `validation_loss`, `validation_accuracy` of the average, `members_accuracy` (the mean
        of the single members), `disagreement` (PPD) and `failure`. If a member failed, the metrics are NaN, and
        `failure` is the reason.

        Raises: InvalidInput for an ensemble without members; RunInterrupted as `add`.
        """
        if not all(ensembles):
            raise InvalidInput("expected ensembles with one or more members, got one without")
        self.add(member for ensemble in ensembles for member in ensemble)
        rows = []
        for ensemble in ensembles:
            failure = self._failure(ensemble)
            metrics = dict.fromkeys(METRICS, math.nan) if failure else self._measured(ensemble)
            rows.append({"members": list(ensemble), **metrics, "failure": failure})
        return rows

    def _measured(self, ensemble: Sequence[str]) -> dict[str, float]:
        members = [self._members[name] for name in ensemble]
        arranged = [self._members[name].arranged for name in sorted(ensemble)]  # the order determines the rounding
        losses, accuracies = score_ensembles(arranged, self.labels, [range(len(arranged))], self.how)
        alone = sum(member.accuracy for member in members) / len(members)
        apart = disagreement([member.classes for member in members])
        return dict(zip(METRICS, (float(losses[0]), float(accuracies[0]), alone, apart), strict=True))

    def add(self, members: Iterable[str]) -> None:
        """Predicts the members that have neither predictions nor a failure, in one call.

        Raises: RunInterrupted if some are still missing, because `predict` was stopped. It keeps earlier predictions.
        """
        missing = [member for member in self._missing(dict.fromkeys(members)) if not self._read(member)]
        if not missing:
            return
        for answer in itertools.chain.from_iterable(self._predict(missing)):
            self.forward_passes += 1
            value = answer.value if answer.error is None else answer.error.splitlines()[0]
            if isinstance(value, str):
                self._failures[answer.item] = value
            else:
                self._keep(answer.item, value)
                if self._folder is not None:
                    with self._folder.whole_file(_file(answer.item)) as stream:
                        np.save(stream, np.asarray(answer.value, dtype=np.float32), allow_pickle=False)
        done = len(missing) - len(self._missing(missing))
        if done < len(missing):
            raise RunInterrupted(
                f"stopped after predictions of {done} of {count(len(missing), 'member')}; archray keeps them"
            )

    def _missing(self, members: Iterable[str]) -> list[str]:
        return [member for member in members if member not in self._members and member not in self._failures]

    def members(self) -> list[dict[str, Any]]:
        """Returns a row per distinct member, sorted by string: `architecture`, `loss`, `accuracy`, `failure`."""
        rows: list[dict[str, Any]] = []
        for name in sorted({*self._members, *self._failures}):
            member = self._members.get(name)
            loss, accuracy = (member.loss, member.accuracy) if member else (math.nan, math.nan)
            row = {"architecture": name, "loss": loss, "accuracy": accuracy, "failure": self._failures.get(name)}
            rows.append(row)
        return rows

    def _failure(self, ensemble: Sequence[str]) -> str | None:
        for member in ensemble:
            if member in self._failures:
                return f"the member {member} has no predictions: {self._failures[member]}"
        return None

    def _read(self, member: str) -> bool:
        """Reads a member's predictions from the folder. Returns False without them."""
        if self._folder is None or not self._folder.exists(_file(member)):
            return False
        self._keep(member, np.load(io.BytesIO(self._folder.read_bytes(_file(member))), allow_pickle=False))
        return True

    def _keep(self, name: str, probabilities: npt.NDArray[np.float32]) -> None:
        arranged = arrange(probabilities, self.labels, self.how)
        loss, accuracy = score_ensembles([arranged], self.labels, [[0]], self.how)
        classes = np.asarray(probabilities).argmax(axis=1).astype(np.int16)
        self._members[name] = _Member(arranged, classes, float(loss[0]), float(accuracy[0]))


def _file(member: str) -> str:
    """Returns a file name without characters of architectures that file names cannot contain."""
    return f"{hashlib.sha256(member.encode()).hexdigest()[:32]}.npy"
