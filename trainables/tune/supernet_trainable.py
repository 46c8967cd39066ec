"""The Tune trainables of shared weights: supernets, rounds of halving, posteriors, and sliced supernets."""

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

__all__ = ["PosteriorTrainable", "SlicedTrainable", "SupernetSettings", "SupernetTrainable"]

EXTREMES = ("smallest", "largest")


class HalvingRound(NamedTuple):
    """What `WeightSharingHalving` asks for. Khodak et al. 2020, Algorithm 1."""

    candidates: tuple[str, ...]  # strings of the space
    number: int  # with the replica and the trial's seed it names the weights
    replica: int
    warm_start: str | None  # URI of weights; None begins with new ones


class SupernetTrainable(EpochTrainable[SupernetTrainer]):
    """Trains a supernet. Config: see `TrialTrainable`, and, for a round of `WeightSharingHalving`, `candidates`
    (architectures' strings), `budget` (epochs, else those of the settings), `round`, `replica`, `warm_start` (URI of
    weights, or None).

    Every result holds train_loss, train_accuracy (of the batches that trained the weights), and what
    `EpochTrainable` says. A loss that is not finite and an architecture that its space refuses are failed results.

    Without `candidates` weights and architecture parameters are trained. The result holds further, of the validation
    data,

    - `mixture_loss`, `mixture_accuracy`: with the mixture; where operations are drawn, a draw for each batch.
    - `architecture`: the discretised string, `shared_loss`, `shared_accuracy`: of its path through the supernet,
      `discretisation_drop`: mixture_accuracy - shared_accuracy. With the relaxation `path` there is nothing to
      discretise: None and NaN. With the relaxation `controller` the best of its samples, see there;
      with `posterior` its most probable one.
    - with a penalty on what the mixture costs, `expected_cost`: of the learnt probabilities, and `cost_weight`, of the
      penalty.
    - with the relaxations `path` and `posterior`, after the last epoch, `updates`: JSON of a table's columns, `group`,
      `edge`, `operation`, `updates` (the weights' steps that took it), `steps` (of the weights, in all), and `chance`,
      the probability that a step of uniform paths takes it (None where draws are learned). With `posterior`,
      `posterior`: JSON of {decision: log-probabilities}, as of a `PosteriorTrainable`.
    - `entropy`: mean over edges, in nats; `entropy_GROUP`: mean over a group's edges; `entropies_GROUP`: of each edge.
      A controller has one group, `decisions`: each decision of the space with two choices or more, given those before.
      So have paths of whole architectures; and a posterior, but of all its decisions.

    With `candidates` the weights alone are trained, on a candidate's path in each step, at a cosine schedule of their
    own. After the last epoch the result holds further, and before it NaN and no scores,

    - `scores`: of each candidate with the shared weights on the validation data, by `score`: loss or accuracy, in
      order; NaN for one that is not finite. `score`: the mean of the others. `shared_loss`, `shared_accuracy`: too.
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
            warm_start = config.get("warm_start")
            if warm_start is not None and not isinstance(warm_start, str):
                raise InvalidInput(
                    f"expected the config's `warm_start` to be the URI of weights or None, got {warm_start!r}"
                )
            self._epochs = read_whole_number(config, "budget", self._epochs, least=1)
            number = read_whole_number(config, "round", 0, least=0)
            replica = read_whole_number(config, "replica", 0, least=0)
            self._round = HalvingRound(candidates, number, replica, warm_start)
        self._training = settings.training.model_copy(update={"epochs": self._epochs})
        self._groups = settings.groups(settings.space)

    def _build(self) -> None:
        settings = self._settings
        dataset = load_images(settings.data, device=self._device)
        supernet = settings.build(
            settings.space, in_channels=dataset.in_channels, num_classes=dataset.num_classes, seed=self._seed
        )
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
        """What the cost of the mixture adds to the loss. Raises: InvalidInput without what operations cost."""
        settings = self._settings
        if not settings.penalty.active:
            return None
        costs = settings.edge_costs.get(settings.penalty.cost or "")
        if costs is None:
            raise InvalidInput(
                f"penalty: expected edge_costs of {settings.penalty.cost}; see `edge_costs`, which counts"
            )
        return CostPenalty(settings.penalty, costs, {group.name: group.shape for group in self._groups})

    def _epoch(self) -> dict[str, Any]:
        trainer = self.trainer
        warm_start = None if self._round is None else self._round.warm_start
        if trainer.epochs_done == 0 and warm_start is not None:
            weights = read_weights(warm_start, self._device)
            load_weights(trainer.supernet, weights, f"the weights in {warm_start}", "; leave warm_start out")
        train = trainer.epoch()
        measured = self._searched() if self._round is None else self._scored(self._round)
        return dict(zip(("train_loss", "train_accuracy"), train, strict=True)) | measured

    def _no_values(self) -> dict[str, Any]:
        values: dict[str, Any] = {"train_loss": math.nan, "train_accuracy": math.nan}
        if self._round is not None:
            return values | _no_scores(self._round)
        names = ("mixture_loss", "mixture_accuracy", "shared_loss", "shared_accuracy")
        values |= dict.fromkeys((*names, "discretisation_drop"), math.nan) | {"architecture": None}
        rows = self._settings.relaxation.entropy_rows(get_space(self._settings.space), self._groups)
        entropies = self._entropies({name: [math.nan] * count for name, count in rows.items()})
        return values | entropies | self._drawn(None) | self._priced(None)

    def _searched(self) -> dict[str, Any]:
        """Of the mixture and the discretised architecture. Raises: Diverged."""
        trainer, settings = self.trainer, self._settings
        validation = trainer.evaluate(trainer.dataset.validation)
        if not math.isfinite(validation.loss):
            raise Diverged(f"the validation loss is {validation.loss} in epoch {trainer.epochs_done}")
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
            "discretisation_drop": validation.accuracy - path.accuracy,
            **self._entropies(trainer.mixing.entropies()),
            **self._drawn(trainer),
            **self._priced(trainer),
        }

    def _priced(self, trainer: SupernetTrainer | None) -> dict[str, Any]:
        """With a penalty, the expected cost of the learnt probabilities and the penalty's weight; NaN of a failure."""
        if not self._settings.penalty.active:
            return {}
        if trainer is None or trainer.penalty is None:
            return {"expected_cost": math.nan, "cost_weight": math.nan}
        assert isinstance(trainer.mixing, ArchitectureParameters)  # the configuration has been checked
        expected = float(trainer.penalty.costs.expected(trainer.mixing.probabilities()))
        return {"expected_cost": expected, "cost_weight": trainer.penalty.weight}

    def _feasible(self, architecture: str, bounds: BoundSettings) -> str:
        """Of what meets the constraints, what the learnt weights favour. Raises: InvalidArchitecture without any."""
        trainer, dataset = self.trainer, self.trainer.dataset
        violation = bounds.violation(
            self._settings.space,
            in_channels=dataset.in_channels,
            image_size=dataset.image_size,
            num_classes=dataset.num_classes,
        )
        for column, costs in self._settings.edge_costs.items():
            violation.costs.substitutes[column] = partial(path_cost, trainer.supernet, costs)
        learnt = trainer.mixing.probabilities() if isinstance(trainer.mixing, ArchitectureParameters) else None
        found = feasible_architecture(trainer.supernet, architecture, learnt, violation, self._seed)
        if violation(found) > 0.0:
            raise InvalidArchitecture(
                f"nothing near {architecture} meets {', '.join(bounds.constraints)}: {found}, which comes nearest, has "
                f"{violation.describe(found)}; give the cost a weight (--cost-weight), or loosen the constraint"
            )
        return found

    def _drawn(self, trainer: SupernetTrainer | None) -> dict[str, Any]:
        """Of the paths that trained the weights; None for a trial that failed."""
        relaxation = self._settings.relaxation
        values: dict[str, Any] = dict.fromkeys(relaxation.further_results)
        if trainer is not None:
            values |= trainer.mixing.results()
        if "updates" in values and trainer is not None and trainer.finished:
            chances = relaxation.chances(trainer.supernet)
            values["updates"] = json.dumps(update_table(trainer.updates, self._groups, chances))
        return values

    def _entropies(self, rows: dict[str, list[float]]) -> dict[str, Any]:
        """rows: group -> the entropy of each edge. Edges that choose inputs, and not operations, are not counted."""
        inputs = [group.name for group in self._groups if group.inputs]
        edges = [entropy for name, of_edges in rows.items() if name not in inputs for entropy in of_edges]
        values: dict[str, Any] = {"entropy": _mean(edges)}
        for name, of_edges in rows.items():
            values |= {f"entropy_{name}": _mean(of_edges), f"entropies_{name}": of_edges}
        return values

    def _scored(self, request: HalvingRound) -> dict[str, Any]:
        """The scores of all candidates, once training has finished. Raises: Diverged if none is finite."""
        trainer, place, by = self.trainer, self._settings.weights_dir, self._settings.score
        if not trainer.finished:
            return _no_scores(request) | {"scores": []}  # TensorBoard's writer complains of a list of NaN every epoch
        measured = trainer.score(request.candidates)
        finite = [metrics for metrics in measured if math.isfinite(metrics.loss)]
        if not finite:
            raise Diverged("no candidate has a finite validation loss")
        loss, accuracy = map(_mean, zip(*finite, strict=True))
        weights = None
        if place is not None:  # a trial that runs again writes the same file
            state = {name: tensor.cpu() for name, tensor in trainer.supernet.state_dict().items()}
            name = f"round-{request.number}-replica-{request.replica}-seed-{self._seed}.pt"
            weights = write_weights(place, name, {"supernet": state})
        return _no_scores(request) | {
            "shared_loss": loss,
            "shared_accuracy": accuracy,
            # The accuracy of outputs that are not finite means nothing.
            "scores": [getattr(metrics, by) if math.isfinite(metrics.loss) else math.nan for metrics in measured],
            "score": loss if by == "loss" else accuracy,
            "weights": weights,
        }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _no_scores(request: HalvingRound) -> dict[str, Any]:
    """What a round reports before its last epoch and after a failure."""
    count = len(request.candidates)
    return {
        "shared_loss": math.nan,
        "shared_accuracy": math.nan,
        "scores": [math.nan] * count,
        "score": math.nan,
        "weights": None,
        "candidates_left": count,
    }


class PosteriorTrainable(EpochTrainable[PosteriorTrainer]):
    """Learns p_alpha(A) with a supernet's weights. Every result holds, beside what `EpochTrainable` says,

    - `elbo`, `kl`, `expected_loss`: see `PosteriorEpoch`; `scale`: s, as a number.
    - `entropies`: of each decision in the order of `posterior`, in nats, after the epoch; `entropy`: their mean over
      the decisions with two choices or more.
    - `posterior`: JSON of {decision: log-probabilities, None where impossible}, what the `Posterior` of
      `archray.searchers.nesbs` takes; a string, as Tune flattens dicts. `architecture`: the most probable one.
    - `parameters`: choices that are possible.

    Raises: InvalidInput for weights of another supernet, too; FileNotFoundError.
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
        supernet = options.build(
            settings.space, in_channels=dataset.in_channels, num_classes=dataset.num_classes, seed=self._seed
        )
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
        of = zip(self._decisions, entropies, strict=True)
        free = [value for decision, value in of if len(decision.choices) > 1]
        return {"entropy": _mean(free), "entropies": entropies}


class SlicedTrainable(EpochTrainable[SandwichTrainer]):
    """Trains a sliced supernet. Config: see `TrialTrainable`.

    Every result holds `train_loss`, `train_accuracy` (the largest network's, of the batches), `smallest_loss`,
    `smallest_accuracy`, `largest_loss`, `largest_accuracy` (of these networks with the shared weights, on the
    validation data), and what `EpochTrainable` says. A loss that is not finite is a failed result.
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
        extremes = trainer.score([trainer.smallest, trainer.largest])
        for which, metrics in (("training", train), *zip(EXTREMES, extremes, strict=True)):
            if not math.isfinite(metrics.loss) and not math.isnan(metrics.accuracy):
                raise TrialFailed(f"the {which} loss is {metrics.loss} in epoch {trainer.epochs_done}")
        return _named(train, *extremes)

    def _no_values(self) -> dict[str, Any]:
        return _named(NO_METRICS, NO_METRICS, NO_METRICS)


def _named(*metrics: tuple[float, float]) -> dict[str, Any]:
    names = ("train", *EXTREMES)
    return {
        key: value
        for name, (loss, accuracy) in zip(names, metrics, strict=True)
        for key, value in ((f"{name}_loss", loss), (f"{name}_accuracy", accuracy))
    }
