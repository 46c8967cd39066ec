"""Tune trainables with shared weights: supernets, rounds of halving, posteriors, and sliced supernets."""

import json
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from archray.errors import InvalidArchitecture, InvalidInput
from archray.trainables.checkpoint import load_weights, read_weights, write_weights
from archray.trainables.costs import BoundSettings
from archray.trainables.data import load_images
from archray.trainables.nets import count_parameters
from archray.trainables.spaces import get_space
from archray.trainables.supernets.controllers import CandidatePaths
from archray.trainables.supernets.elastic import SandwichTrainer, build_sliced, sliced_class
from archray.trainables.supernets.evaluation import feasible_architecture, path_cost
from archray.trainables.supernets.mixing import Mixing
from archray.trainables.supernets.posterior import PosteriorTrainer, VariationalPosterior
from archray.trainables.supernets.relaxations import ArchitectureParameters
from archray.trainables.supernets.settings import DECISIONS, build_mixing
from archray.trainables.supernets.trainer import CostPenalty, Diverged, SupernetTrainer, update_table
from archray.trainables.training import NO_METRICS
from archray.trainables.tune.settings import PosteriorSettings, SlicedSettings, SupernetSettings
from archray.trainables.tune.trial import EpochTrainable, TrialFailed, candidates_of, read_whole_number

SLICED_METRICS = (
    "train_loss", "train_accuracy", "smallest_loss", "smallest_accuracy", "largest_loss", "largest_accuracy",
)  # fmt: skip


class HalvingRound(NamedTuple):
    """A round of `WeightSharingHalving`. Khodak et al. 2020, Algorithm 1."""

    candidates: tuple[str, ...]  # strings of the space
    number: int  # part of the weights' name, with the replica and the trial's seed
    replica: int
    warm_start: str | None  # URI of weights; None starts with new ones


class SupernetTrainable(EpochTrainable[SupernetTrainer]):
    """Trains a supernet.

    Config: see `TrialTrainable`, and, for a round of `WeightSharingHalving`, `candidates` (architectures' strings),
    `budget` (epochs, by default from the settings), `round`, `replica`, `warm_start` (URI of weights, or None).

    Every result contains train_loss, train_accuracy (of the batches that trained the weights), and the entries of
    `EpochTrainable`. An infinite or NaN loss and an architecture that its space rejects are failed results.

    Without `candidates`, weights and architecture parameters are trained. Further entries, on the validation data:

    - `mixture_loss`, `mixture_accuracy`: with the mixture; if operations are drawn, one draw for each batch.
    - `architecture`: the discretized string; `shared_loss`, `shared_accuracy`: of its path through the supernet;
      `discretization_drop`: mixture_accuracy - shared_accuracy. With the relaxation `path` None and NaN; with
      `controller` the best of its samples; with `posterior` its most probable architecture.
    - with a penalty on the mixture's cost, `expected_cost`: of the learned probabilities, and `cost_weight`.
    - with the relaxations `path` and `posterior`, after the last epoch, `updates`: JSON of a table's columns, `group`,
      `edge`, `operation`, `updates` (steps of the weights with it), `steps` (of the weights, in total), and `chance`,
      the probability that a step of uniform paths takes it (None if draws are learned). With `posterior`, `posterior`:
      JSON of {decision: log-probabilities}, as in a `PosteriorTrainable`.
    - `entropy`: mean over edges, in nats; `entropy_GROUP`: mean over a group's edges; `entropies_GROUP`: of each edge.
      Controllers, posteriors and paths of whole architectures have one group, `decisions`: the space's decisions
      (without a posterior those with two or more choices), given the previous decisions.

    With `candidates`, only the weights are trained, on a candidate's path in each step, with a cosine schedule of
    `budget` epochs. Further entries, NaN and without scores before the last epoch:

    - `scores`: of each candidate with the shared weights on the validation data, by `score`: loss or accuracy, in
      order; NaN for an infinite or NaN loss. `score`, `shared_loss`, `shared_accuracy`: means of the others.
    - `weights`: the URI of the weights that this trial has stored, or None. `candidates_left`.
    """

    settings_type = SupernetSettings
    failures = (Diverged, InvalidArchitecture)
    _settings: SupernetSettings
    _round: HalvingRound | None

    def _read(self, config: dict[str, Any]) -> None:
        settings = self._settings
        self._epochs, self._round = settings.training.epochs, None
        candidates = candidates_of(config)
        if candidates is not None:
            uri = config.get("warm_start")
            if uri is not None and not isinstance(uri, str):
                raise InvalidInput(f"expected the URI of weights or None as `warm_start` in the config, got {uri!r}")
            self._epochs = read_whole_number(config, "budget", self._epochs, least=1)
            number = read_whole_number(config, "round", 0, least=0)
            replica = read_whole_number(config, "replica", 0, least=0)
            self._round = HalvingRound(candidates, number, replica, uri)
        self._training = settings.training.model_copy(update={"epochs": self._epochs})
        self._groups = settings.groups(settings.space)

    def _build(self) -> None:
        settings = self._settings
        dataset = load_images(settings.data, device=self._device)
        shape = {"in_channels": dataset.in_channels, "num_classes": dataset.num_classes}
        supernet = settings.build(settings.space, seed=self._seed, **shape)
        self._parameters = count_parameters(supernet)
        mixing: Mixing
        if self._round is not None:
            mixing = CandidatePaths(supernet, self._round.candidates)
        else:
            mixing = build_mixing(
                supernet, settings.relaxation, settings.optimizer, seed=self._seed, device=self._device
            )
        penalty = self._penalty() if self._round is None else None
        self._trainer = SupernetTrainer(supernet, dataset, mixing, self._training, seed=self._seed, penalty=penalty)

    def _penalty(self) -> CostPenalty | None:
        """Creates the penalty on the cost of the mixture. Raises: InvalidInput without the operations' costs."""
        settings = self._settings
        if not settings.penalty.active:
            return None
        costs = settings.edge_costs.get(settings.penalty.cost or "")
        if costs is None:
            raise InvalidInput(
                f"expected edge_costs of {settings.penalty.cost} for the penalty, got "
                f"{', '.join(settings.edge_costs) or 'none'}; "
                "compute them with `archray.trainables.costs.networks.edge_costs`"
            )
        return CostPenalty(settings.penalty, costs, {group.name: group.shape for group in self._groups})

    def _epoch(self) -> dict[str, Any]:
        trainer = self.trainer
        warm_start = None if self._round is None else self._round.warm_start
        if trainer.epochs_done == 0 and warm_start is not None:
            weights = read_weights(warm_start, self._device)
            load_weights(trainer.supernet, weights, f"the weights in {warm_start}", ". Leave warm_start out")
        train = trainer.epoch()
        values = {"train_loss": train.loss, "train_accuracy": train.accuracy}
        return values | (self._searched() if self._round is None else self._scored(self._round))

    def _no_values(self) -> dict[str, Any]:
        values: dict[str, Any] = {"train_loss": math.nan, "train_accuracy": math.nan}
        if self._round is not None:
            return values | _no_scores(self._round)
        names = ("mixture_loss", "mixture_accuracy", "shared_loss", "shared_accuracy")
        values |= dict.fromkeys((*names, "discretization_drop"), math.nan) | {"architecture": None}
        rows = self._settings.relaxation.entropy_rows(get_space(self._settings.space), self._groups)
        entropies = self._entropies({name: [math.nan] * count for name, count in rows.items()})
        return values | entropies | self._further(None)

    def _searched(self) -> dict[str, Any]:
        """Returns the entries of the mixture and the discretized architecture. Raises: Diverged."""
        trainer, settings = self.trainer, self._settings
        validation = trainer.evaluate(trainer.dataset.validation)
        if not math.isfinite(validation.loss):
            raise Diverged(
                f"expected a finite validation loss, got {validation.loss} in epoch {trainer.epochs_done}. Lower lr"
            )
        architecture = trainer.derive()
        if architecture is not None and trainer.finished and settings.bounds is not None:
            architecture = self._feasible(architecture, settings.bounds)
        path = NO_METRICS if architecture is None else trainer.score([architecture])[0]
        return {
            "mixture_loss": validation.loss,
            "mixture_accuracy": validation.accuracy,
            "architecture": architecture,
            "shared_loss": path.loss,
            "shared_accuracy": path.accuracy,
            "discretization_drop": validation.accuracy - path.accuracy,
            **self._entropies(trainer.mixing.entropies()),
            **self._further(trainer),
        }

    def _feasible(self, architecture: str, bounds: BoundSettings) -> str:
        """Returns the feasible architecture that the learned weights favor. Raises: InvalidArchitecture without one."""
        trainer, dataset = self.trainer, self.trainer.dataset
        violation = bounds.violation(
            self._settings.space,
            in_channels=dataset.in_channels,
            image_size=dataset.image_size,
            num_classes=dataset.num_classes,
        )
        for column, costs in self._settings.edge_costs.items():
            violation.costs.substitutes[column] = partial(path_cost, trainer.supernet, costs)
        learned = trainer.mixing.probabilities() if isinstance(trainer.mixing, ArchitectureParameters) else None
        nearest = feasible_architecture(trainer.supernet, architecture, learned, violation, self._seed)
        if violation(nearest) > 0.0:
            raise InvalidArchitecture(
                f"expected an architecture near {architecture} that meets {', '.join(bounds.constraints)}, got none; "
                f"the nearest, {nearest}, has {violation.describe(nearest)}. Give the cost a weight (--cost-weight), "
                "or loosen the constraint"
            )
        return nearest

    def _further(self, trainer: SupernetTrainer | None) -> dict[str, Any]:
        """Returns entries of the relaxation and the penalty; None and NaN without a trainer, for a failed trial."""
        relaxation = self._settings.relaxation
        values: dict[str, Any] = dict.fromkeys(relaxation.further_results)
        if trainer is not None:
            values |= trainer.mixing.results()
            if "updates" in values and trainer.finished:
                chances = relaxation.chances(trainer.supernet)
                values["updates"] = json.dumps(update_table(trainer.updates, self._groups, chances))
        if self._settings.penalty.active:
            values |= {"expected_cost": math.nan, "cost_weight": math.nan}
        if trainer is not None and trainer.penalty is not None:
            assert isinstance(trainer.mixing, ArchitectureParameters)  # the settings were checked
            values["expected_cost"] = float(trainer.penalty.costs.expected(trainer.mixing.probabilities()))
            values["cost_weight"] = trainer.penalty.weight
        return values

    def _entropies(self, rows: dict[str, list[float]]) -> dict[str, Any]:
        """rows: group -> the entropy of each edge. Edges that choose inputs are left out of the mean."""
        inputs = [group.name for group in self._groups if group.inputs]
        edges = [entropy for name, entropies in rows.items() if name not in inputs for entropy in entropies]
        values: dict[str, Any] = {"entropy": _mean(edges)}
        for name, entropies in rows.items():
            values |= {f"entropy_{name}": _mean(entropies), f"entropies_{name}": entropies}
        return values

    def _scored(self, request: HalvingRound) -> dict[str, Any]:
        """Returns the scores of all candidates after training. Raises: Diverged if none is finite."""
        trainer, folder, by = self.trainer, self._settings.weights_dir, self._settings.score
        if not trainer.finished:
            return _no_scores(request) | {"scores": []}  # TensorBoard's writer warns about a list of NaN every epoch
        measured = trainer.score(request.candidates)
        finite = [metrics for metrics in measured if math.isfinite(metrics.loss)]
        if not finite:
            raise Diverged("expected a candidate with a finite validation loss, got none. Lower lr")
        loss, accuracy = map(_mean, zip(*finite, strict=True))
        weights = None
        if folder is not None:  # a trial that runs again writes the same file
            state = {name: tensor.cpu() for name, tensor in trainer.supernet.state_dict().items()}
            name = f"round-{request.number}-replica-{request.replica}-seed-{self._seed}.pt"
            weights = write_weights(folder, name, {"supernet": state})
        return _no_scores(request) | {
            "shared_loss": loss,
            "shared_accuracy": accuracy,
            # If the loss is not finite, the accuracy is meaningless too.
            "scores": [getattr(metrics, by) if math.isfinite(metrics.loss) else math.nan for metrics in measured],
            "score": loss if by == "loss" else accuracy,
            "weights": weights,
        }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _no_scores(request: HalvingRound) -> dict[str, Any]:
    """Returns the entries of a round before its last epoch and after a failure."""
    values: dict[str, Any] = dict.fromkeys(("shared_loss", "shared_accuracy"), math.nan)
    count = len(request.candidates)
    return values | {"scores": [math.nan] * count, "score": math.nan, "weights": None, "candidates_left": count}


class PosteriorTrainable(EpochTrainable[PosteriorTrainer]):
    """Learns p_alpha(A) with a supernet's weights. Every result contains the entries of `EpochTrainable`, and

    - `elbo`, `kl`, `expected_loss`: see `PosteriorEpoch`; `scale`: s, as a number.
    - `entropies`: of each decision in the order of `posterior`, in nats, after the epoch; `entropy`: their mean over
      the decisions with two or more choices.
    - `posterior`: JSON of {decision: log-probabilities, None if impossible}, for the `Posterior` of
      `archray.searchers.nesbs`; a string, because Tune flattens dicts. `architecture`: the most probable one.
    - `parameters`: the number of possible choices.

    Raises: InvalidInput also for weights of another supernet; FileNotFoundError.
    """

    settings_type = PosteriorSettings
    failures = (Diverged,)
    _settings: PosteriorSettings

    def _read(self, config: dict[str, Any]) -> None:
        settings = self._settings
        self._epochs = settings.epochs
        space = get_space(settings.space)
        self._decisions = space.posterior_decisions
        settings.supernet.groups(space)  # raises

    def _build(self) -> None:
        settings, options = self._settings, self._settings.supernet
        dataset = load_images(settings.data, device=self._device)
        shape = {"in_channels": dataset.in_channels, "num_classes": dataset.num_classes}
        supernet = options.build(settings.space, seed=self._seed, **shape)
        load_weights(supernet, read_weights(settings.weights), f"the weights in {settings.weights}")
        scale = settings.posterior.scale
        self._scale = float(len(dataset.validation) if scale == "data" else scale)
        posterior = VariationalPosterior(
            supernet, settings.posterior, settings.optimizer, scale=self._scale, device=self._device
        )
        self._parameters = int(posterior.relaxed.allowed.sum())
        self._trainer = PosteriorTrainer(
            supernet,
            dataset,
            posterior,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            seed=self._seed,
            amp=options.training.amp,
        )

    def _epoch(self) -> dict[str, Any]:
        trainer = self.trainer
        measured = trainer.epoch()
        posterior = trainer.posterior
        return {
            **measured._asdict(),
            "scale": self._scale,
            **self._entropies(posterior.entropies()[DECISIONS]),
            "posterior": json.dumps(posterior.log_probs()),
            "architecture": posterior.mode(),
        }

    def _no_values(self) -> dict[str, Any]:
        values: dict[str, Any] = dict.fromkeys(("elbo", "kl", "expected_loss", "scale"), math.nan)
        return values | self._entropies([math.nan] * len(self._decisions)) | {"posterior": None, "architecture": None}

    def _entropies(self, entropies: list[float]) -> dict[str, Any]:
        pairs = zip(self._decisions, entropies, strict=True)
        free = [entropy for decision, entropy in pairs if len(decision.choices) > 1]
        return {"entropy": _mean(free), "entropies": entropies}


class SlicedTrainable(EpochTrainable[SandwichTrainer]):
    """Trains a sliced supernet. Config: see `TrialTrainable`.

    Every result contains `train_loss`, `train_accuracy` (of the largest network on the batches), `smallest_loss`,
    `smallest_accuracy`, `largest_loss`, `largest_accuracy` (of these networks with the shared weights, on the
    validation data), and the entries of `EpochTrainable`. An infinite or NaN loss is a failed result.
    """

    settings_type = SlicedSettings
    failures = (TrialFailed,)
    _settings: SlicedSettings

    def _read(self, config: dict[str, Any]) -> None:
        sliced_class(get_space(self._settings.space))  # raises
        self._epochs = self._settings.training.epochs

    def _build(self) -> None:
        settings = self._settings
        dataset = load_images(settings.data, device=self._device)
        shape = {"in_channels": dataset.in_channels, "num_classes": dataset.num_classes}
        supernet = build_sliced(settings.space, settings.network, seed=self._seed, **shape)
        self._parameters = count_parameters(supernet)
        self._trainer = SandwichTrainer(supernet, dataset, settings.training, seed=self._seed)

    def _epoch(self) -> dict[str, Any]:
        trainer = self.trainer
        train = trainer.epoch()
        smallest, largest = trainer.score([trainer.smallest, trainer.largest])
        for name, metrics in (("training", train), ("smallest", smallest), ("largest", largest)):
            if not math.isfinite(metrics.loss) and not math.isnan(metrics.accuracy):
                raise TrialFailed(
                    f"expected a finite {name} loss, got {metrics.loss} in epoch {trainer.epochs_done}. Lower lr"
                )
        return dict(zip(SLICED_METRICS, (*train, *smallest, *largest), strict=True))

    def _no_values(self) -> dict[str, Any]:
        return dict.fromkeys(SLICED_METRICS, math.nan)
