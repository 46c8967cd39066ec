"""Settings of supernets: training, architecture optimizers, relaxations. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from archray.errors import InvalidInput
from archray.registry import LazyModule, Registry
from archray.settings import RegisteredSettings, Settings
from archray.trainables.spaces import Space
from archray.trainables.training_settings import Count, NotNegative, Positive, SGDSettings

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.optim.optimizer import Optimizer

    from archray.trainables.supernets import controllers, optimizers, posterior, relaxations
    from archray.trainables.supernets.mixing import Mixing
    from archray.trainables.supernets.networks import Group, Supernet
else:
    torch = LazyModule("torch")
    controllers, optimizers, posterior, relaxations = (
        LazyModule(f"archray.trainables.supernets.{name}")
        for name in ("controllers", "optimizers", "posterior", "relaxations")
    )

SECOND_ORDER = "bilevel-second-order"


class SupernetTrainingSettings(SGDSettings):
    """Options of training weights and architecture parameters together.

    The defaults come from DARTS on CIFAR-10 (Liu et al. 2019, App. A.1). GAEA PC-DARTS (App. C.1.1) has batch 256,
    lr 0.1, lr_min 0 and 10 warm-up epochs.

    Attributes:
        epochs: Number of passes over the images that train the weights.
        lr_min: Learning rate at the end of the cosine schedule.
        objective: Objective of the architecture. `bilevel`: the loss on separate data at the current weights.
            `bilevel-second-order`: the same at weights one step ahead (finite difference of DARTS). `erm`: single
            level, both gradients on all training data.
        architecture_data: Data that train the architecture. `training`: a part of the training data. `validation`: the
            validation data, while all training data train the weights (Shu 2022, 5.3.2).
        architecture_fraction: Share of the training data that trains the architecture, drawn by seed.
        blocks: Order of the updates. `alternating`: each step updates the architecture, then the weights. `random`:
            each of twice as many steps updates one of the two, drawn with equal probability (GAEA, Algorithm 1).
            `phases`: in each epoch all steps of the weights, then as many of the architecture (ENAS, section 2.2).
        warmup_epochs: Number of first epochs that update the weights only.
        evaluation_batch: Number of images per forward pass in evaluation. It changes results, because supernets
            normalize by the statistics of each batch.
    """

    epochs: Count = 50
    batch_size: Count = 64
    lr: Positive = 0.025
    lr_min: NotNegative = 0.001
    nesterov: bool = False
    weight_decay: NotNegative = 3e-4
    grad_clip: Positive | None = 5.0
    objective: Literal["bilevel", "bilevel-second-order", "erm"] = "bilevel"
    architecture_data: Literal["training", "validation"] = "training"
    architecture_fraction: float = Field(0.5, gt=0, lt=1)
    blocks: Literal["alternating", "random", "phases"] = "alternating"
    warmup_epochs: int = Field(0, ge=0)
    evaluation_batch: Count = 512

    @model_validator(mode="after")
    def _consistent(self) -> SupernetTrainingSettings:
        if self.lr_min > self.lr:
            raise ValueError(f"expected lr_min of at most lr, {self.lr}, got {self.lr_min}")
        if self.objective == "erm" and self.architecture_data == "validation":
            raise ValueError(
                "expected architecture_data training with the objective erm, which uses all training data for both "
                "updates, got validation. Choose bilevel, or architecture_data training"
            )
        return self


DECISIONS = "decisions"  # group name for the entropies of mixings that draw whole architectures
Domain = Literal["logits", "simplex"]  # parameters are unconstrained logits, or probabilities

# Supernets by the name of their space. `networks` registers them.
SUPERNETS: Registry[type[Supernet]] = Registry("supernet")
OPTIMIZERS: Registry[type[OptimizerSettings]] = Registry("architecture optimizer")
RELAXATIONS: Registry[type[RelaxationSettings]] = Registry("relaxation")


class CostPenaltySettings(Settings):
    """Weight of the mixture's expected cost in the loss of the architecture.

    Attributes:
        cost: Name of the cost (default: the first cost that is reported or bounded, else flops).
        weight: Weight of the expected cost, relative to the cost of the uniform mixture.
        target: Target of the expected cost, in the cost's unit. The weight starts at `weight`. It rises while the
            mixture costs more than the target and falls while it costs less.
        rate: Change of the weight per step, as a multiple of the relative distance from the target.
    """

    cost: str | None = None
    weight: float = Field(0.0, ge=0)
    target: float | None = Field(None, gt=0)
    rate: float = Field(0.05, gt=0)

    @property
    def active(self) -> bool:
        return self.weight > 0 or self.target is not None


class SandwichSettings(SGDSettings):
    """Options of training shared weights by the sandwich rule (Yu and Huang 2019, sec. 3.2).

    Attributes:
        epochs: Number of passes over the training images. Each step trains `draws` + 2 networks.
        draws: Number of random networks per step, in addition to the smallest and the largest; 2 in the paper (n = 4).
        distillation: Whether all networks except the largest learn from its predictions in the same step instead of
            the labels (sec. 3.3, in-place distillation). Off by default, unlike in the paper: in runs of a few dozen
            epochs the predictions stay uninformative for long.
        evaluation_batch: Number of images per forward pass in evaluation.
    """

    epochs: Count = 100
    batch_size: Count = 64
    lr: Positive = 0.1
    nesterov: bool = True
    weight_decay: NotNegative = 5e-4
    grad_clip: Positive | None = 1.0
    draws: int = Field(2, ge=0)
    distillation: bool = False
    evaluation_batch: Count = 512


class OptimizerSettings(RegisteredSettings):
    """Base class of the settings of an architecture optimizer. A subclass registers itself under its `name`.

    An optimizer that needs only the gradient of the parameters defines `domain` and `make`. Others define `learner`.
    """

    registry = OPTIMIZERS
    domain: ClassVar[Domain | None]  # of the parameters; None if it changes no parameters of a mixture
    looks_ahead: ClassVar[bool] = True  # whether it can use the gradient one step of the weights ahead

    def make(self, parameters: list[Tensor]) -> Optimizer:
        """Creates the optimizer of parameters in its domain: rows (last dimension) on the simplex, or any logits."""
        raise NotImplementedError(f"the architecture optimizer {self.name} does not learn from a gradient")

    def learner(self, parameters: Mapping[str, Tensor]) -> optimizers.Learner | None:
        """Returns the learner of the parameters of each group; None if they stay fixed."""
        return optimizers.GradientLearner(self.make(list(parameters.values())))

    def check_relaxation(self, relaxation: str) -> None:
        """Raises: InvalidInput if the optimizer cannot be combined with the relaxation of this name."""

    def check_objective(self, objective: str) -> None:
        """Raises: InvalidInput if the optimizer does not support this objective of `SupernetTrainingSettings`."""
        if objective == SECOND_ORDER and not self.looks_ahead:
            raise InvalidInput(f"expected the objective bilevel or erm with the optimizer {self.name}, got {objective}")


Beta = Annotated[float, Field(ge=0, lt=1)]


@OPTIMIZERS.register("adam")
class AdamSettings(OptimizerSettings):
    """Adam on logits, as in the program of DARTS (Liu et al. 2019, App. A.1).

    Attributes:
        lr: Learning rate.
        betas: Decay rates of the running means of the gradient and of its square.
        weight_decay: Weight decay of the logits.
    """

    domain = "logits"

    name: Literal["adam"] = "adam"
    lr: float = Field(3e-4, gt=0)
    betas: tuple[Beta, Beta] = (0.5, 0.999)
    weight_decay: float = Field(1e-3, ge=0)

    def make(self, parameters: list[Tensor]) -> Optimizer:
        return torch.optim.Adam(parameters, lr=self.lr, betas=self.betas, weight_decay=self.weight_decay)


GAEA_RATE = 0.1  # App. C.1.1 and C.3
GAEA_FLOOR = 1e-5  # in the authors' code: an operation whose weight falls to zero could never recover (note G1)


@OPTIMIZERS.register("mirror-descent")
class MirrorDescentSettings(OptimizerSettings):
    """Mirror descent on simplices: exponentiated gradient, or projected gradient for comparison. GAEA (note G1).

    Attributes:
        lr: Learning rate.
        dgf: Distance-generating function: `entropy` gives exponentiated gradient, `euclidean` projected gradient.
        log_space: Whether to store logarithms of the weights, so that none becomes zero.
        floor: Lower bound of the weights (default: 1e-5 for `entropy`, as in the authors' code; none in log space or
            for `euclidean`).
    """

    domain = "simplex"

    name: Literal["mirror-descent"] = "mirror-descent"
    lr: float = Field(GAEA_RATE, gt=0, allow_inf_nan=False)
    dgf: Literal["entropy", "euclidean"] = "entropy"
    floor: float | None = Field(None, ge=0, lt=1)
    log_space: bool = False

    @model_validator(mode="after")
    def _one_geometry(self) -> MirrorDescentSettings:
        if self.dgf == "euclidean" and (self.floor or self.log_space):
            raise ValueError("expected dgf entropy with floor or log_space, got euclidean. Leave these out")
        if self.floor and self.log_space:
            raise ValueError("expected one of floor and log_space, got both. Leave one out")
        return self

    def make(self, parameters: list[Tensor]) -> Optimizer:
        floor = self.floor
        if floor is None:
            floor = GAEA_FLOOR if self.dgf == "entropy" and not self.log_space else 0.0
        return optimizers.MirrorDescent(parameters, self.lr, self.dgf, floor, self.log_space)


@OPTIMIZERS.register("none")
class NoOptimizerSettings(OptimizerSettings):
    """No architecture optimizer: only the weights are trained, on all training data."""

    domain = None

    name: Literal["none"] = "none"

    def learner(self, parameters: Mapping[str, Tensor]) -> None:
        return None


@OPTIMIZERS.register("reinforce")
class ReinforceSettings(OptimizerSettings):
    """REINFORCE with Adam for the relaxation `controller`. ENAS, Pham et al. 2018, section 3.2.

    Defaults are the paper's. Its program for the cell search has lr 3.5e-3.

    Attributes:
        lr: Learning rate of Adam.
        entropy: Weight of the policy's entropy in the reward.
        baseline_decay: Decay rate of the moving average of rewards.
    """

    domain = None
    looks_ahead = False

    name: Literal["reinforce"] = "reinforce"
    lr: float = Field(3.5e-4, gt=0)
    entropy: float = Field(1e-4, ge=0)
    baseline_decay: float = Field(0.99, ge=0, lt=1)

    def check_relaxation(self, relaxation: str) -> None:
        if relaxation != "controller":
            raise InvalidInput(
                f"expected the relaxation controller with the optimizer reinforce, got {relaxation}. Choose both or "
                "neither"
            )


@OPTIMIZERS.register("xnas")
class XNASSettings(OptimizerSettings):
    """Exponentiated gradient with clipping per image and wipe-out; needs the relaxation `simplex`.

    A round is one image that the architecture is trained on. Each round costs a backward pass.

    Attributes:
        lr: Learning rate (default: the rate of the regret bound for this number of rounds).
        clip: Bound, L, on the gradient of one image for one weight.
    """

    domain = "simplex"
    looks_ahead = False

    name: Literal["xnas"] = "xnas"
    lr: float | None = Field(None, gt=0, allow_inf_nan=False)
    clip: float = Field(1.0, gt=0, allow_inf_nan=False)

    def learner(self, parameters: Mapping[str, Tensor]) -> optimizers.PointLearner:
        return optimizers.PointLearner(parameters, self)

    def check_relaxation(self, relaxation: str) -> None:
        if relaxation != "simplex":
            raise InvalidInput(
                f"expected the relaxation simplex with the optimizer xnas, got {relaxation}. Choose simplex"
            )


class RelaxationSettings(RegisteredSettings):
    """Base class of the settings of a relaxation. A subclass registers itself under its `name`.

    A relaxation that is a function of parameters, one row per edge, defines `domains` and `make`. Others define
    `mixing`.
    """

    registry = RELAXATIONS
    domains: ClassVar[tuple[Domain, ...]] = ()  # of its parameters; the first is for optimizers of any domain
    further_results: ClassVar[tuple[str, ...]] = ()  # entries that this relaxation adds to a trial's result

    @property
    def draws_one(self) -> bool:
        """Whether a step evaluates one operation per edge, which rules out partial channels."""
        return False

    def make(self, generator: torch.Generator, domain: Domain) -> relaxations.Relaxation:
        """Creates the relaxation of parameters in `domain`; it draws from `generator`."""
        raise NotImplementedError(f"the relaxation {self.name} is not a function of a supernet's parameters")

    def mixing(
        self, supernet: Supernet, optimizer: OptimizerSettings, *, seed: int, device: torch.device | str = "cpu"
    ) -> Mixing:
        """Creates the source of mixtures, which learns or draws the architecture. `build_mixing` also checks it."""
        make = partial(self.make, domain=optimizer.domain or self.domains[0])
        return relaxations.ArchitectureParameters(supernet, make, optimizer, seed=seed, device=device)

    def entropy_rows(self, space: Space, groups: Sequence[Group]) -> dict[str, int]:
        """Returns the number of entropies in `Mixing.entropies` by name. groups: of the supernet of `space`."""
        return {group.name: group.edges for group in groups}

    def chances(self, supernet: Supernet) -> dict[str, Tensor] | None:
        """Returns group -> (edges, operations), the probabilities that a path takes an operation; None if unknown."""
        return None

    def check_optimizer(self, optimizer: OptimizerSettings) -> None:
        """Raises: InvalidInput if the optimizer cannot train the parameters of this relaxation."""
        if optimizer.domain is None or optimizer.domain in self.domains:
            return
        if optimizer.domain == "simplex":
            raise InvalidInput(
                f"expected the relaxation simplex or gumbel with the optimizer {optimizer.name}, got {self.name}. "
                "Choose one of these, or the optimizer adam"
            )
        raise InvalidInput(
            f"expected the optimizer mirror-descent with the relaxation {self.name}, got {optimizer.name}. Choose it, "
            "or the relaxation softmax or gumbel"
        )


def check_together(relaxation: RelaxationSettings, optimizer: OptimizerSettings, partial_channels: int) -> None:
    """Raises: InvalidInput if relaxation, optimizer and partial channels cannot be combined."""
    optimizer.check_relaxation(relaxation.name)
    relaxation.check_optimizer(optimizer)
    if partial_channels > 1 and relaxation.draws_one:
        raise InvalidInput(
            f"expected partial_channels 1, as the relaxation {relaxation.name} draws one operation per edge, got "
            f"{partial_channels}. Choose softmax, simplex, gumbel with hard false, path with draws architectures, or "
            "partial_channels 1"
        )


def build_mixing(
    supernet: Supernet,
    relaxation: RelaxationSettings,
    optimizer: OptimizerSettings,
    *,
    seed: int,
    device: torch.device | str = "cpu",
) -> Mixing:
    """Builds the source of mixtures, which learns or draws the architecture.

    Args:
        seed: Seed of the initial parameters.

    Raises: InvalidInput as `check_together`.
    """
    check_together(relaxation, optimizer, supernet.partial_channels)
    return relaxation.mixing(supernet, optimizer, seed=seed, device=device)


class _WholeMixtureSettings(RelaxationSettings):
    def make(self, generator: torch.Generator, domain: Domain) -> relaxations.WholeMixture:
        return relaxations.WholeMixture(generator, domain)


@RELAXATIONS.register("softmax")
class SoftmaxSettings(_WholeMixtureSettings):
    """A mixture by the softmax of logits (DARTS)."""

    domains = ("logits",)

    name: Literal["softmax"] = "softmax"


@RELAXATIONS.register("simplex")
class SimplexSettings(_WholeMixtureSettings):
    """A mixture weighted by the parameters themselves (GAEA). The optimizer keeps each edge's row on the simplex."""

    domains = ("simplex",)

    name: Literal["simplex"] = "simplex"


# The last temperature of GDAS. Between two equal operations the gradient p (1 - p) / tau has a mean near 1/4 and a
# variance of about 1 / (24 tau), and p (1 - p) is above 0.01 in a share of 2.3 tau of the draws: a quarter of them at
# 0.1. At lower temperatures fewer steps have a gradient, which is then very large.
TAU_MIN = 0.1
TAU_MAX = 10.0  # the first temperature of GDAS


@RELAXATIONS.register("gumbel")
class GumbelSettings(RelaxationSettings):
    """One sampled operation per edge with a straight-through gradient.

    The defaults come from GDAS. SNAS has `hard` false, start 1, end 0.03, exponential.

    Attributes:
        start: Temperature at the start of the search.
        end: Temperature at the end of the search.
        form: Form of the temperature schedule.
        hard: Whether to sample one operation. False mixes all operations by the perturbed softmax.
    """

    domains = ("logits", "simplex")

    name: Literal["gumbel"] = "gumbel"
    start: float = Field(TAU_MAX, gt=0, allow_inf_nan=False)
    end: float = Field(TAU_MIN, gt=0, allow_inf_nan=False)
    form: Literal["linear", "exponential"] = "linear"
    hard: bool = True

    @property
    def draws_one(self) -> bool:
        return self.hard

    def make(self, generator: torch.Generator, domain: Domain) -> relaxations.Gumbel:
        return relaxations.Gumbel(generator, domain, self)

    def temperature(self, progress: float) -> float:
        if self.form == "linear":
            return self.start + (self.end - self.start) * progress
        return self.start * (self.end / self.start) ** progress


def _open_decisions(space: Space, groups: Sequence[Group]) -> dict[str, int]:
    return {DECISIONS: len(controllers.OpenDecisions(space, groups).decisions)}


@RELAXATIONS.register("path")
class PathSettings(RelaxationSettings):
    """One uniformly drawn path per step, without architecture parameters.

    Attributes:
        draws: Draws of a step. `edges`: an operation for each edge of the supernet. `architectures`: a whole
            architecture of the space, with two inputs for each node in DARTS (Shu 2022, 5.2.1).
        fair: Whether draws of edges use strict fairness, see `Path`. The weights are updated after every path.
    """

    domains = ("simplex",)
    further_results = ("updates",)

    name: Literal["path"] = "path"
    draws: Literal["edges", "architectures"] = "edges"
    fair: bool = False

    @model_validator(mode="after")
    def _fair_edges(self) -> PathSettings:
        if self.fair and self.draws != "edges":
            raise ValueError("expected draws edges with fair, got architectures. Set fair to false or draws to edges")
        return self

    @property
    def draws_one(self) -> bool:
        return self.draws == "edges"

    def make(self, generator: torch.Generator, domain: Domain) -> relaxations.Path:
        return relaxations.Path(generator, self.fair)

    def mixing(
        self, supernet: Supernet, optimizer: OptimizerSettings, *, seed: int, device: torch.device | str = "cpu"
    ) -> Mixing:
        if self.draws == "architectures":
            return controllers.UniformArchitectures(supernet)
        return super().mixing(supernet, optimizer, seed=seed, device=device)

    def entropy_rows(self, space: Space, groups: Sequence[Group]) -> dict[str, int]:
        return super().entropy_rows(space, groups) if self.draws == "edges" else _open_decisions(space, groups)

    def chances(self, supernet: Supernet) -> dict[str, Tensor] | None:
        """Unknown (None) if a path can leave out loose ends."""
        if supernet.loose_ends:
            return None
        if self.draws == "edges":
            return {group.name: torch.full(group.shape, 1.0 / group.shape[1]) for group in supernet.groups}
        relaxed = posterior.RelaxedDecisions(supernet)
        return relaxed.chances(relaxed.allowed / relaxed.allowed.sum(-1, keepdim=True))

    def check_optimizer(self, optimizer: OptimizerSettings) -> None:
        if optimizer.name != "none":
            raise InvalidInput(
                f"expected the optimizer none with the relaxation path, which has no parameters, got {optimizer.name}"
            )


@RELAXATIONS.register("posterior")
class VariationalSettings(RelaxationSettings):
    """A categorical distribution per decision, learned by variational inference: `VariationalPosterior`.

    Source: Shu (2022), 5.3.3.

    Attributes:
        scale: Factor s of the ELBO, -s (mean cross-entropy) - KL: 1 in the paper. `data` is the number of images, the
            Bayesian choice.
        kl: Whether the objective contains the KL term. The best-response posterior of SNAS has none (section 5.2.2).
        temperature: Temperature tau of Eq. 5.6.
        estimator: Estimator of the gradient of the expected loss. `straight-through` is the paper's: Gumbel-softmax
            with all operations evaluated. It assumes that the loss is linear in the weights of operations. With trained
            weights this bias cost more than half of the possible gain of the ELBO, on one enumerated supernet of 25
            cells. `score-function` has no bias and evaluates single paths.
        gumbel_temperature: Temperature of the straight-through gradient. A lower one has less bias and more variance.
        samples: Number of architectures drawn per step, 1 in the paper. The score function needs two or more: the
            baseline of a sample is the mean loss of the others.
    """

    further_results = ("updates", "posterior")

    name: Literal["posterior"] = "posterior"
    scale: float | Literal["data"] = 1.0
    kl: bool = True
    temperature: float = Field(1.0, gt=0)
    estimator: Literal["straight-through", "score-function"] = "straight-through"
    gumbel_temperature: float = Field(1.0, gt=0)
    samples: int = Field(1, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> VariationalSettings:
        if self.scale != "data" and not 0 < self.scale < math.inf:
            raise ValueError(f"expected a scale above 0, or data, got {self.scale}")
        if self.estimator == "score-function" and self.samples == 1:
            raise ValueError("expected 2 or more samples with the estimator score-function, got 1. Set samples to 2")
        return self

    def mixing(
        self, supernet: Supernet, optimizer: OptimizerSettings, *, seed: int, device: torch.device | str = "cpu"
    ) -> posterior.VariationalPosterior:
        assert self.scale != "data"  # `check_optimizer` rejects it
        return posterior.VariationalPosterior(supernet, self, optimizer, scale=self.scale, device=device)

    def entropy_rows(self, space: Space, groups: Sequence[Group]) -> dict[str, int]:
        return {DECISIONS: len(space.posterior_decisions)}

    def check_optimizer(self, optimizer: OptimizerSettings) -> None:
        if optimizer.domain != "logits":
            raise InvalidInput(
                f"expected an optimizer of logits with the relaxation posterior, got {optimizer.name}. Choose adam"
            )
        if self.scale == "data":
            raise InvalidInput(
                "expected a number as the scale of a posterior that is trained together with the weights, got data"
            )


@RELAXATIONS.register("controller")
class ControllerSettings(RelaxationSettings):
    """Whole architectures from an LSTM's policy. ENAS, Pham et al. 2018, section 2; needs the optimizer `reinforce`.

    The defaults come from the paper's search on CIFAR-10. Its program for the cell search has tanh_constant 1.1 (2.5
    times less for operations) and no temperature.

    Attributes:
        units: Number of units of the LSTM layer and of its embeddings.
        temperature: Temperature of the logits: tanh_constant tanh(logits / temperature); null skips the division.
        tanh_constant: Bound of the logits: tanh_constant tanh(logits / temperature); null skips the tanh.
        samples: Number of candidates for the derived architecture. After every epoch, the candidate with the best
            validation accuracy with shared weights is taken.
    """

    name: Literal["controller"] = "controller"
    units: int = Field(100, ge=1)
    temperature: float | None = Field(5.0, gt=0)
    tanh_constant: float | None = Field(2.5, gt=0)
    samples: int = Field(10, ge=1)

    @property
    def draws_one(self) -> bool:
        return True

    def mixing(
        self, supernet: Supernet, optimizer: OptimizerSettings, *, seed: int, device: torch.device | str = "cpu"
    ) -> controllers.ReinforcedController:
        assert isinstance(optimizer, ReinforceSettings)  # `check_optimizer` rejects others
        return controllers.ReinforcedController(supernet, self, optimizer, seed=seed)

    def entropy_rows(self, space: Space, groups: Sequence[Group]) -> dict[str, int]:
        return _open_decisions(space, groups)

    def check_optimizer(self, optimizer: OptimizerSettings) -> None:
        if not isinstance(optimizer, ReinforceSettings):
            raise InvalidInput(
                f"expected the optimizer reinforce with the relaxation controller, got {optimizer.name}. Choose both "
                "or neither"
            )
