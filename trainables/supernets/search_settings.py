"""How a supernet is trained: relaxation, architecture optimizer, objective. Defaults: GAEA's and DARTS' on CIFAR-10."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from archray.trainables.data.augment import AugmentationSettings
from archray.trainables.supernets.blocks import Order
from archray.trainables.supernets.optimizers import GAEA_FLOOR, GAEA_RATE
from archray.trainables.supernets.relaxations.gumbel import TAU_MAX, TAU_MIN
from archray.trainables.supernets.relaxations.relaxation import Domain


class SoftmaxSettings(BaseModel):
    """A mixture by the softmax of logits (DARTS)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["softmax"] = "softmax"


class SimplexSettings(BaseModel):
    """A mixture by the parameters themselves (GAEA)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["simplex"] = "simplex"


class GumbelSettings(BaseModel):
    """One drawn operation per edge with a straight-through gradient.

    Defaults are GDAS'. SNAS has `hard` false, start 1, end 0.03, exponential.

    Attributes:
        start, end: the temperature at the beginning and the end of the search.
        form: of its course in between.
        hard: false mixes all operations by the perturbed softmax.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["gumbel"] = "gumbel"
    start: float = Field(TAU_MAX, gt=0)
    end: float = Field(TAU_MIN, gt=0)
    form: Literal["linear", "exponential"] = "linear"
    hard: bool = True


class PathSettings(BaseModel):
    """One uniformly drawn path per step; there are no architecture parameters to train.

    Attributes:
        draws: `edges`, an operation for each edge of the supernet, or `architectures`, a whole architecture of the
            space, with two inputs for each of DARTS' nodes (thesis 5.2.1), see `UniformArchitectures`.
        fair: strict fairness among the draws of edges, see `relaxations.Path`. The weights are updated after every
            path.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["path"] = "path"
    draws: Literal["edges", "architectures"] = "edges"
    fair: bool = False

    @model_validator(mode="after")
    def _fair_edges(self) -> PathSettings:
        if self.fair and self.draws != "edges":
            raise ValueError("strict fairness is among the operations of an edge; set fair to false or draws to edges")
        return self


class VariationalSettings(BaseModel):
    """A categorical distribution per decision, learned by variational inference, `VariationalPosterior`. Thesis 5.3.3.

    Attributes:
        scale: s of the ELBO, -s (mean cross-entropy) - KL: 1 in the paper, "data" the number of images learned from,
            which is Bayes' (note E5).
        kl: whether the KL is part of the objective. The best-response posterior of SNAS has none (section 5.2.2).
        temperature: tau of Eq. 5.6.
        estimator: of the gradient of the expected loss. `straight-through` is the paper's, Gumbel-softmax with all
            operations evaluated. It takes the loss for linear in the weights of operations, which with trained
            weights cost more than half of the possible gain of the ELBO (seen on one supernet of 25 cells, enumerated).
            `score-function` has no bias, and evaluates paths alone.
        gumbel_temperature: of the straight-through gradient. The less, the less its bias and the larger its variance.
        samples: architectures drawn in each step, 1 in the paper. Each one's baseline for the score function is the
            others' mean loss, so that it needs two.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
            raise ValueError(f"expected a scale above 0 or data, got {self.scale}")
        if self.estimator == "score-function" and self.samples == 1:
            raise ValueError("the score function's baseline is the mean of the other samples; set samples to 2 or more")
        return self


class ControllerSettings(BaseModel):
    """Whole architectures from an LSTM's policy. ENAS, Pham et al. 2018, section 2; needs the optimizer `reinforce`.

    Defaults are those of the paper's search on CIFAR-10. Its program for the cell search has tanh_constant 1.1, a
    further 2.5 times less for operations, and no temperature.

    Attributes:
        units: of the one layer, and of its embeddings.
        temperature, tanh_constant: logits are tanh_constant tanh(logits / temperature); None leaves either step out.
        samples: drawn to derive the architecture, the best of which by accuracy with shared weights is taken. Each is
            evaluated on the validation data after every epoch.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["controller"] = "controller"
    units: int = Field(100, ge=1)
    temperature: float | None = Field(5.0, gt=0)
    tanh_constant: float | None = Field(2.5, gt=0)
    samples: int = Field(10, ge=1)


class AdamSettings(BaseModel):
    """Adam on logits, as in DARTS' program (Liu et al. 2019, App. A.1)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["adam"] = "adam"
    lr: float = Field(3e-4, gt=0)
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.5, 0.999)
    weight_decay: float = Field(1e-3, ge=0)


class MirrorDescentSettings(BaseModel):
    """Mirror descent on simplices: exponentiated gradient, or projected gradient for comparison. GAEA (note G1).

    Attributes:
        floor: of weights; None is the authors' 1e-5 for the entropy, and none in log space or for `euclidean`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["mirror-descent"] = "mirror-descent"
    lr: float = Field(GAEA_RATE, gt=0)
    dgf: Literal["entropy", "euclidean"] = "entropy"
    floor: float | None = Field(None, ge=0, lt=1)
    log_space: bool = False

    @model_validator(mode="after")
    def _one_geometry(self) -> MirrorDescentSettings:
        if self.dgf == "euclidean" and (self.floor or self.log_space):
            raise ValueError("floor and log_space belong to dgf entropy; leave them out")
        if self.floor and self.log_space:
            raise ValueError("in log space there is no floor; choose one of floor and log_space")
        return self

    @property
    def actual_floor(self) -> float:
        if self.floor is not None:
            return self.floor
        return GAEA_FLOOR if self.dgf == "entropy" and not self.log_space else 0.0


class XNASSettings(BaseModel):
    """Exponentiated gradient with clipping per image and wipe-out, `optimizers.xnas`; needs the relaxation `simplex`.

    The number of rounds is that of the images that the architecture will see. It costs a backward pass per image.

    Attributes:
        lr: None is the rate of the regret bound for these rounds.
        clip: L, the bound on the gradient of one image for one weight.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["xnas"] = "xnas"
    lr: float | None = Field(None, gt=0)
    clip: float = Field(1.0, gt=0)


class ReinforceSettings(BaseModel):
    """REINFORCE with Adam for the relaxation `controller`. ENAS, Pham et al. 2018, section 3.2.

    Defaults are the paper's; its program for the cell search has lr 3.5e-3.

    Attributes:
        entropy: weight of the policy's entropy in the reward.
        baseline_decay: of the moving average of rewards.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["reinforce"] = "reinforce"
    lr: float = Field(3.5e-4, gt=0)
    entropy: float = Field(1e-4, ge=0)
    baseline_decay: float = Field(0.99, ge=0, lt=1)


class NoOptimizerSettings(BaseModel):
    """Architecture parameters stay as they are: the weights alone are trained, on all training data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["none"] = "none"


RelaxationSettings = Annotated[
    SoftmaxSettings | SimplexSettings | GumbelSettings | PathSettings | ControllerSettings | VariationalSettings,
    Field(discriminator="name"),
]
OptimizerSettings = Annotated[
    AdamSettings | MirrorDescentSettings | XNASSettings | ReinforceSettings | NoOptimizerSettings,
    Field(discriminator="name"),
]
SECOND_ORDER = "bilevel-second-order"


def domain_of(optimizer: OptimizerSettings) -> Domain:
    """What the architecture parameters are under an optimizer: logits, or points on simplices."""
    return "simplex" if isinstance(optimizer, (MirrorDescentSettings, XNASSettings)) else "logits"


def mismatch(
    relaxation: RelaxationSettings, optimizer: OptimizerSettings, partial_channels: int, objective: str = "bilevel"
) -> str | None:
    """Why these do not go together; None if they do."""
    if isinstance(relaxation, ControllerSettings) != isinstance(optimizer, ReinforceSettings):
        return (
            f"the relaxation controller and the optimizer reinforce need each other; got {relaxation.name} and "
            f"{optimizer.name}"
        )
    if isinstance(optimizer, XNASSettings) and not isinstance(relaxation, SimplexSettings):
        return f"xnas needs the mixture by its own weights; choose the relaxation simplex, not {relaxation.name}"
    if isinstance(relaxation, PathSettings):
        if not isinstance(optimizer, NoOptimizerSettings):
            return f"the relaxation path has no parameters to train; set the optimizer to none, not {optimizer.name}"
    elif isinstance(relaxation, VariationalSettings):
        if not isinstance(optimizer, AdamSettings):
            return f"the relaxation posterior has logits; set the optimizer to adam, not {optimizer.name}"
        if relaxation.scale == "data":
            return "the scale of a posterior that is learned with the weights is a number; data is for trained weights"
    elif isinstance(relaxation, SoftmaxSettings) and isinstance(optimizer, MirrorDescentSettings):
        return "mirror-descent needs parameters on simplices; choose the relaxation simplex or gumbel, or adam"
    elif isinstance(relaxation, SimplexSettings) and isinstance(optimizer, AdamSettings):
        return "adam leaves the simplex; choose mirror-descent, or the relaxation softmax or gumbel"
    single = isinstance(relaxation, ControllerSettings) or (isinstance(relaxation, GumbelSettings) and relaxation.hard)
    if isinstance(relaxation, PathSettings):
        single = relaxation.draws == "edges"
    if partial_channels > 1 and single:
        return (
            f"partial channels are for mixtures, and {relaxation.name} draws one operation; choose softmax, simplex, "
            "gumbel with hard false, or path with draws architectures, where edges weigh 1; or partial_channels 1"
        )
    if objective == SECOND_ORDER and isinstance(optimizer, (XNASSettings, ReinforceSettings)):
        return f"{optimizer.name} does not look one step ahead; choose the objective bilevel or erm, not {objective}"
    return None


class SupernetTrainingSettings(BaseModel):
    """How weights and architecture parameters are trained side by side.

    The defaults are DARTS' search on CIFAR-10 (Liu et al. 2019, App. A.1): 50 epochs, batch 64, SGD at 0.025 down to
    0.001, momentum 0.9, weight decay 3e-4, clipping at 5. GAEA PC-DARTS (App. C.1.1): batch 256, lr 0.1, lr_min 0,
    10 epochs of warm-up.

    Attributes:
        epochs: passes over the weights' images.
        objective: `bilevel`, the architecture's gradient is of its own part of the training data at the present
            weights; `bilevel-second-order`, at weights one step ahead (DARTS' finite difference); `erm`, single
            level, both gradients are of all training data.
        architecture_data: `training`, the architecture learns from a part of the training data; `validation`, from the
            validation data, and all training data are the weights' (thesis 5.3.2).
        architecture_fraction: share of the training data that is the architecture's own, drawn by seed.
        blocks: `alternating`, each step updates the architecture, then the weights; `random`, each of twice as many
            steps updates one of them, drawn with equal chances (GAEA, Algorithm 1); `phases`, in each epoch all steps
            of the weights come first, then as many of the architecture (ENAS, section 2.2).
        warmup_epochs: first epochs, in which only weights are updated.
        augmentation: of the images of both blocks; None leaves them as they are.
        grad_clip: bound on the L2 norm of the weights' whole gradient; None does not clip.
        amp: forward passes in bfloat16 (autocast).
        evaluation_batch: images per forward pass of an evaluation. Where a network normalises by the statistics of
            the batch at hand, as all supernets here do, it also changes results.
        threads: torch threads of a trial; None: as many as the CPUs that Tune gave it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(50, ge=1)
    batch_size: int = Field(64, ge=1)
    lr: float = Field(0.025, gt=0)
    lr_min: float = Field(0.001, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    nesterov: bool = False
    weight_decay: float = Field(3e-4, ge=0)
    grad_clip: float | None = Field(5.0, gt=0)
    objective: Literal["bilevel", "bilevel-second-order", "erm"] = "bilevel"
    architecture_data: Literal["training", "validation"] = "training"
    architecture_fraction: float = Field(0.5, gt=0, lt=1)
    blocks: Order = "alternating"
    warmup_epochs: int = Field(0, ge=0)
    augmentation: AugmentationSettings | None = AugmentationSettings()
    amp: bool = False
    evaluation_batch: int = Field(512, ge=1)
    threads: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> SupernetTrainingSettings:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs momentum above 0; set nesterov to false or momentum to 0.9")
        if self.lr_min > self.lr:
            raise ValueError(f"expected lr_min to be at most lr, {self.lr}, got {self.lr_min}")
        if self.objective == "erm" and self.architecture_data == "validation":
            raise ValueError("erm learns both from all training data; choose bilevel, or architecture_data training")
        return self
