"""The Tune trainable of supernets: a search by gradients, or a round of halving on given architectures."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from ray import tune

from archray.errors import InvalidArchitecture
from archray.trainables.checkpoint import read_state, write_state
from archray.trainables.data import load_images
from archray.trainables.devices import choose_device, out_of_memory
from archray.trainables.gauges import EpochGauges
from archray.trainables.nets import count_parameters
from archray.trainables.nets.supernet import build_supernet, groups
from archray.trainables.supernet_settings import SupernetSettings, read_settings
from archray.trainables.supernet_training import (
    ArchitectureParameters,
    CandidatePaths,
    Diverged,
    Mixing,
    PathSettings,
    SupernetTrainer,
    score_architectures,
)
from archray.trainables.supernet_training.architecture import chooses_inputs
from archray.trainables.supernet_training.halving_round import (
    HalvingRound,
    no_scores,
    read_round,
    scores_of,
    start_from,
    store,
    whole_number,
)
from archray.trainables.training import Metrics

__all__ = ["SupernetSettings", "SupernetTrainable", "read_settings"]

NO_METRICS = Metrics(math.nan, math.nan)


class SupernetTrainable(tune.Trainable):
    """Trains a supernet; one `step` is one epoch. Config: `settings` (a `SupernetSettings` as a dict, unknown keys
    refused), `seed` (optional), and, for a round of `WeightSharingHalving`, `candidates` (architectures' strings),
    `budget` (epochs, else those of the settings), `round`, `replica`, `warm_start` (URI of weights, or None). Other
    keys belong to the searcher; Tune records them with the trial and they change nothing.

    Every result holds train_loss, train_accuracy (of the batches that trained the weights), `validation_loss`,
    `validation_accuracy`, `epoch`, `epochs`, `lr` (of the next step), `parameters`, `seconds_epoch`, `failure`, `done`.

    Without `candidates` weights and architecture parameters are trained. Validation is of the mixture; where the
    relaxation draws operations, of a draw for each batch. The result holds further

    - `architecture`: the discretised string, `discretised_loss`, `discretised_accuracy`: of its path through the
      supernet, `discretisation_drop`: validation_accuracy - discretised_accuracy. With the relaxation `path` there is
      nothing to discretise: None and NaN.
    - `entropy`: mean over edges, in nats; `entropy_GROUP`: mean over a group's edges; `entropies_GROUP`: of each edge.

    With `candidates` the weights alone are trained, on a candidate's path in each step, at a cosine schedule of their
    own. After the last epoch, and NaN before, the result holds

    - `scores`: of each candidate with the shared weights on the validation data, by `score`: loss or accuracy, in
      order; NaN for one that is not finite. `score`: the mean of the others. validation_loss, validation_accuracy: too.
    - `weights`: the URI of the weights that this trial has stored, or None. `candidates_left`.

    What a retry cannot cure (a loss that is not finite, an architecture that its space refuses, memory that ran out)
    is a result too: done, metrics NaN, `failure` the reason. Anything else raises, so that Tune retries it from the
    last checkpoint. A trial restored after its last epoch reports its last result again and does no work. Reused
    actors (`reuse_actors=True`) give the same results as fresh ones.

    Raises: InvalidInput for settings or candidates that are wrong, DataNotFound.
    """

    _trainer: SupernetTrainer | None
    _result: dict[str, Any] | None  # the last one; before the first epoch None, or the failure that building met
    _gauges: EpochGauges

    def setup(self, config: dict[str, Any]) -> None:
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    def cleanup(self) -> None:
        self._release()

    def step(self) -> dict[str, Any]:
        if self._result is not None and self._result["done"]:
            return dict(self._result)
        self._result = self._guarded(self._epoch)
        assert self._result is not None  # an epoch always has a result
        self._gauges.report(self._result)
        return dict(self._result)

    @property
    def trainer(self) -> SupernetTrainer:
        """The trainer at work. Raises: RuntimeError for a trial that failed: it has none."""
        if self._trainer is None:
            raise RuntimeError("the trial failed and holds no trainer; see `failure` in its result")
        return self._trainer

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        trainer = self._trainer
        write_state(
            checkpoint_dir,
            {
                "seed": self._seed,
                "settings": self._settings.model_dump(mode="json"),
                "in_channels": trainer.dataset.in_channels if trainer else None,
                "num_classes": trainer.dataset.num_classes if trainer else None,
                "trainer": trainer.state_dict() if trainer else None,
                "result": self._result,
            },
        )

    def load_checkpoint(self, checkpoint: Any) -> None:  # the folder that `save_checkpoint` was given
        state = read_state(checkpoint, self._device)
        if state["trainer"] is None:  # the trial had failed
            self._result = state["result"]
        elif self._trainer is not None:  # else building it failed here and now, which `_result` says
            self._trainer.load_state_dict(state["trainer"])
            self._result = state["result"]

    def _begin(self, config: dict[str, Any]) -> None:
        """Sets all state of a trial; nothing of the trial before is left."""
        self._release()
        settings = read_settings(config.get("settings", {}))
        self._seed = whole_number(config, "seed", settings.seed, least=0)
        self._round = read_round(config, settings.training.epochs)
        epochs = settings.training.epochs if self._round is None else self._round.budget
        self._training = settings.training.model_copy(update={"epochs": epochs})
        self._settings = settings
        self._groups = groups(settings.space, partial_channels=settings.partial_channels, none=settings.none)
        self._result = None
        self._parameters = 0
        given = self.trial_resources  # by Tune; None outside it
        resources = given.required_resources if given is not None else None
        self._device = choose_device(settings.device, gpus=None if resources is None else resources.get("GPU", 0.0))
        self._gauges = EpochGauges(trial=self.trial_id)
        self._set_threads(None if resources is None else resources.get("CPU", 0.0))
        self._result = self._guarded(self._build)

    def _build(self) -> None:
        settings = self._settings
        dataset = load_images(settings.data, device=self._device)
        supernet = build_supernet(
            settings.space,
            settings.network,
            in_channels=dataset.in_channels,
            num_classes=dataset.num_classes,
            seed=self._seed,
            partial_channels=settings.partial_channels,
            none=settings.none,
        )
        self._parameters = count_parameters(supernet)
        mixing: Mixing
        if self._round is not None:
            mixing = CandidatePaths(supernet, self._round.candidates)
        else:
            mixing = ArchitectureParameters(
                supernet, settings.relaxation, settings.optimizer, seed=self._seed, device=self._device
            )
        self._trainer = SupernetTrainer(supernet, dataset, mixing, self._training, seed=self._seed)

    def _epoch(self) -> dict[str, Any]:
        trainer = self.trainer
        start = time.perf_counter()
        if trainer.epochs_done == 0 and self._round is not None and self._round.warm_start is not None:
            start_from(self._round.warm_start, trainer.supernet, self._device)
        train = trainer.epoch()
        measured = self._searched() if self._round is None else self._scored(self._round)
        values = dict(zip(("train_loss", "train_accuracy"), train, strict=True)) | measured
        return self._results(values, seconds=time.perf_counter() - start)

    # A search by gradients -----------------------------------------------------------------------------------------

    def _searched(self) -> dict[str, Any]:
        """Of the mixture and the discretised architecture. Raises: Diverged."""
        trainer = self.trainer
        mixing = trainer.mixing
        assert isinstance(mixing, ArchitectureParameters)
        validation = trainer.evaluate(trainer.dataset.validation)
        if not math.isfinite(validation.loss):
            raise Diverged(f"the validation loss is {validation.loss} in epoch {trainer.epochs_done}")
        architecture, path = None, NO_METRICS
        if not isinstance(self._settings.relaxation, PathSettings):
            architecture = mixing.discretised()
            [path] = self._score([architecture])
        return {
            "validation_loss": validation.loss,
            "validation_accuracy": validation.accuracy,
            "architecture": architecture,
            "discretised_loss": path.loss,
            "discretised_accuracy": path.accuracy,
            "discretisation_drop": validation.accuracy - path.accuracy,
            **self._entropies(mixing.entropies()),
        }

    def _entropies(self, rows: dict[str, list[float]]) -> dict[str, Any]:
        """rows: group -> the entropy of each edge. Where inputs are chosen, and not operations, no edge is counted."""
        edges = [each for group in self._groups if not chooses_inputs(group) for each in rows[group.name]]
        values: dict[str, Any] = {"entropy": _mean(edges)}
        for name, of_edges in rows.items():
            values |= {f"entropy_{name}": _mean(of_edges), f"entropies_{name}": of_edges}
        return values

    # A round of halving --------------------------------------------------------------------------------------------

    def _scored(self, asked: HalvingRound) -> dict[str, Any]:
        """The scores of all candidates, once training has finished. Raises: Diverged if none is finite."""
        if not self.trainer.finished:
            return no_scores(asked)
        scores = scores_of(self._score(asked.candidates), self._settings.score)
        if scores is None:
            raise Diverged("no candidate has a finite validation loss")
        place = self._settings.weights_dir
        weights = None if place is None else store(place, self.trainer.supernet, asked, self._seed)
        return no_scores(asked) | scores | {"weights": weights}

    def _score(self, architectures: Sequence[str]) -> list[Metrics]:
        trainer, training = self.trainer, self._training
        validation = trainer.dataset.validation
        return score_architectures(
            trainer.supernet, architectures, validation, training.evaluation_batch, amp=training.amp
        )

    # Results and failures ------------------------------------------------------------------------------------------

    def _results(self, values: dict[str, Any], *, seconds: float, failure: str | None = None) -> dict[str, Any]:
        trainer = self._trainer
        return {
            **values,
            "epoch": trainer.epochs_done if trainer else 0,
            "epochs": self._training.epochs,
            "lr": trainer.lr if trainer else math.nan,
            "parameters": self._parameters,
            "seconds_epoch": seconds,
            "failure": failure,
            "done": failure is not None or (trainer is not None and trainer.finished),
        }

    def _failed(self, reason: str) -> dict[str, Any]:
        values: dict[str, Any] = {"train_loss": math.nan, "train_accuracy": math.nan}
        if self._round is not None:
            return self._results(values | no_scores(self._round), seconds=math.nan, failure=reason)
        names = ("validation_loss", "validation_accuracy", "discretised_loss", "discretised_accuracy")
        values |= dict.fromkeys((*names, "discretisation_drop"), math.nan) | {"architecture": None}
        values |= self._entropies({group.name: [math.nan] * group.edges for group in self._groups})
        return self._results(values, seconds=math.nan, failure=reason)

    def _guarded(self, work: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
        """What `work` returns; a failed result where it meets something that a retry cannot cure."""
        try:
            return work()
        except (Diverged, InvalidArchitecture) as error:
            result = self._failed(str(error))
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            reason = out_of_memory(error)
            if reason is None:
                raise
            result = self._failed(reason)
        self._release()
        return result

    def _release(self) -> None:
        """Gives the memory of the supernet back, so that the next trial of a reused actor finds it free."""
        self._trainer = None
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def _set_threads(self, cpus: float | None) -> None:
        """As many torch threads as the trial has CPUs: sums, and so results, depend on the number of threads.

        It is state of the process, and in Tune the process is this trial's own. Outside Tune only the setting counts.
        """
        threads = self._settings.training.threads
        if threads is None and cpus is not None:
            threads = max(1, int(cpus))
        if threads is not None:
            torch.set_num_threads(threads)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan
