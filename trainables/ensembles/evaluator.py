"""Evaluates ensembles from their members' predictions, each computed once. Shu 2022, Algorithm 5.1, lines 5 to 6."""

import hashlib
import io
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import ray

from archray.errors import InvalidInput, RunInterrupted
from archray.files import Folder
from archray.plurals import count
from archray.trainables.ensembles.measures import Averaged, check_averaged, disagreement
from archray.trainables.ensembles.scores import Arranged, arrange, restore, score_ensembles

METRICS = ("validation_loss", "validation_accuracy", "members_accuracy", "disagreement")  # of an ensemble


class Answer(NamedTuple):
    """What became of one member: `archray.cluster.actor_pool.Outcome` is one too.

    item: the member's string. value: its probabilities, (images, classes), or a string: why it has none. error: with
    what the worker failed; there is no value then.
    """

    item: str
    value: Any
    error: str | None = None


Predict = Callable[[Sequence[str]], Iterable[Sequence[Any]]]  # of `Answer`s


@dataclass(frozen=True)
class _Member:
    """A member with predictions. `reference`: of `arranged` in the object store; None without Ray."""

    arranged: Arranged
    reference: ray.ObjectRef | None
    classes: npt.NDArray[np.int16]  # (images,)
    loss: float
    accuracy: float


def in_process(worker: Callable[[str], npt.NDArray[np.float32] | str]) -> Predict:
    """Predicts in this process, member by member; `worker` is for example a `SharedPredictions`."""

    def predict(members: Sequence[str]) -> Iterator[Sequence[Answer]]:
        for member in members:
            yield [Answer(member, worker(member))]

    return predict


class CachedEnsembles:
    """Config `{"members": [..]}` -> the ensemble's validation loss; the `evaluate` of `searchers.drive`.

    A member's predictions are computed once, whatever the number of ensembles it is in: T ensembles of n members cost
    at most as many forward passes as there are distinct strings. They lie in Ray's object store where Ray runs, where
    other processes share them by `references`, in this process otherwise, and in `folder`, from which they are read
    by the next that is made on it.

    Args:
        labels: of the validation images, (images,).
        predict: members that are missing -> what became of each, in any order, as it comes. With actors:
            `lambda members: actor_map(SharedPredictions, members, worker_kwargs=.., num_actors=..)`; else
            `in_process(worker)`.
        folder: for one set of weights and one set of images; None keeps nothing on disk.
        how: what is averaged.

    Attributes:
        forward_passes: how many predictions of a member were computed here, those that failed included.
    """

    def __init__(
        self,
        labels: npt.ArrayLike,
        predict: Predict,
        folder: Folder | None = None,
        how: Averaged = "probabilities",
    ) -> None:
        self.labels = np.asarray(labels)
        self.how: Averaged = how
        check_averaged(how)
        self.forward_passes = 0
        self._predict = predict
        self._folder = folder
        self._members: dict[str, _Member] = {}
        self._failures: dict[str, str] = {}

    def __call__(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The row of `evaluate` for `config["members"]`, without its members."""
        row = self.evaluate([config["members"]])[0]
        del row["members"]
        return row

    def evaluate(self, ensembles: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """A row for each ensemble: `members`, `validation_loss`, `validation_accuracy` of the average,
        `members_accuracy` (the mean of each alone), `disagreement` (PPD), `failure`.

        The metrics of an ensemble with a member that failed are NaN, and `failure` is the reason.

        Raises: InvalidInput for an ensemble without members; RunInterrupted as `add`.
        """
        if not all(ensembles):
            raise InvalidInput("expected ensembles of one member or more, got one of none")
        self.add(member for ensemble in ensembles for member in ensemble)
        rows = []
        for ensemble in ensembles:
            failure = self._failure(ensemble)
            metrics = dict.fromkeys(METRICS, math.nan) if failure else self._measured(ensemble)
            rows.append({"members": list(ensemble), **metrics, "failure": failure})
        return rows

    def _measured(self, ensemble: Sequence[str]) -> dict[str, float]:
        members = [self._members[name] for name in ensemble]
        arranged = [self._members[name].arranged for name in sorted(ensemble)]  # whose order decides the rounding
        losses, accuracies = score_ensembles(arranged, self.labels, [range(len(arranged))], self.how)
        alone = sum(member.accuracy for member in members) / len(members)
        apart = disagreement([member.classes for member in members])
        return dict(zip(METRICS, (float(losses[0]), float(accuracies[0]), alone, apart), strict=True))

    def add(self, members: Iterable[str]) -> None:
        """Sees that each member has predictions, or a reason why not; what is missing is computed in one go.

        Raises: RunInterrupted if some are still missing after that: whoever predicts was stopped. What came is kept.
        """
        missing = [each for each in dict.fromkeys(members) if each not in self._members and each not in self._failures]
        missing = [each for each in missing if not self._read(each)]
        if not missing:
            return
        for answer in itertools.chain.from_iterable(self._predict(missing)):
            self.forward_passes += 1
            if answer.error is not None:
                self._failures[answer.item] = answer.error.splitlines()[0]
            elif isinstance(answer.value, str):
                self._failures[answer.item] = answer.value
            else:
                self._keep(answer.item, answer.value)
                if self._folder is not None:
                    with self._folder.whole_file(_file(answer.item)) as stream:
                        np.save(stream, np.asarray(answer.value, dtype=np.float32), allow_pickle=False)
        left = [each for each in missing if each not in self._members and each not in self._failures]
        if left:
            raise RunInterrupted(
                f"stopped with predictions of {len(missing) - len(left)} of {count(len(missing), 'member')}; "
                "they are kept"
            )

    def members(self) -> list[dict[str, Any]]:
        """A row per distinct member, by its string: `architecture`, `loss`, `accuracy`, `failure`."""
        rows: list[dict[str, Any]] = []
        for name in sorted({*self._members, *self._failures}):
            found = self._members.get(name)
            loss, accuracy = (found.loss, found.accuracy) if found else (math.nan, math.nan)
            rows.append(
                {
                    "architecture": name,
                    "loss": loss,
                    "accuracy": accuracy,
                    "failure": self._failures.get(name),
                }
            )
        return rows

    def probabilities(self, members: Sequence[str]) -> npt.NDArray[np.float32]:
        """The predictions of members, (members, images, classes). Raises: InvalidInput if one failed."""
        self.add(members)
        failure = self._failure(members)
        if failure is not None:
            raise InvalidInput(failure)
        return np.stack([restore(self._members[each].arranged, self.labels, self.how) for each in members])

    def references(self) -> dict[str, ray.ObjectRef]:
        """Member -> its predictions in the object store, (classes, images) as `arrange` lays them out."""
        found = {name: member.reference for name, member in self._members.items()}
        return {name: reference for name, reference in found.items() if reference is not None}

    def _failure(self, ensemble: Sequence[str]) -> str | None:
        for member in ensemble:
            if member in self._failures:
                return f"the member {member} has no predictions: {self._failures[member]}"
        return None

    def _read(self, member: str) -> bool:
        """Takes a member's predictions from the folder; whether they are there."""
        if self._folder is None or not self._folder.exists(_file(member)):
            return False
        self._keep(member, np.load(io.BytesIO(self._folder.read_bytes(_file(member))), allow_pickle=False))
        return True

    def _keep(self, name: str, probabilities: npt.NDArray[np.float32]) -> None:
        arranged, reference = arrange(probabilities, self.labels, self.how), None
        if ray.is_initialized():
            reference = ray.put(arranged)
            arranged = ray.get(reference)  # the object store's own memory, not a second copy
        loss, accuracy = score_ensembles([arranged], self.labels, [[0]], self.how)
        classes = np.asarray(probabilities).argmax(axis=1).astype(np.int16)
        self._members[name] = _Member(arranged, reference, classes, float(loss[0]), float(accuracy[0]))


def _file(member: str) -> str:
    """Strings of architectures hold signs that file names may not."""
    return f"{hashlib.sha256(member.encode()).hexdigest()[:32]}.npy"
