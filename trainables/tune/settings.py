"""Settings of the trainables of supernets, posteriors and NASI. Imports no torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from archray.settings import Seed, Settings
from archray.trainables.costs.networks import BoundSettings, EdgeCosts
from archray.trainables.data import DataSettings
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import Space
from archray.trainables.supernets import settings as supernets

if TYPE_CHECKING:
    from archray.trainables.supernets.networks import Group, Supernet


class TrialSettings(Settings):
    """Options of a trainable that trains or searches on data. Its Tune config contains them under the key `settings`.

    Attributes:
        data: Data set of the trial.
        device: Torch device (`cpu`, `cuda`, `cuda:1`), or `auto`: the GPU that Tune assigned to the trial, else the
            CPU.
        seed: Seed of a trial whose config has no `seed`.
    """

    data: DataSettings = DataSettings()
    device: str = "auto"
    seed: Seed = 0


class SlicedSettings(TrialSettings):
    """All options of a `SlicedTrainable`.

    Attributes:
        space: Name of a registered space whose supernet is sliced.
        network: Width, depth and stem of every network in the supernet.
        training: Training of the shared weights.
    """

    space: str = "vit"
    network: NetworkSettings = NetworkSettings()
    training: supernets.SandwichSettings = supernets.SandwichSettings()


class SupernetOptions(Settings):
    """A supernet and its training, for any space and data.

    The default method is GAEA: the simplex mixture and mirror descent. Any relaxation combines with any objective, and
    with any optimizer of the same kind of parameters.

    Attributes:
        network: Width, depth and initialization of the supernet.
        partial_channels: Divisor K of PC-DARTS: operations process 1/K of the channels, and edges have weights.
        none: Whether the supernet contains the operation `none` of the space. GAEA omits it on NAS-Bench-201.
        relaxation: Function from the architecture parameters to the weights of a mixture of operations.
        optimizer: Optimizer of the architecture parameters.
        training: Training of the weights, and the schedule of the architecture updates.
        penalty: Penalty on the mixture's cost in the loss of the architecture.
    """

    network: NetworkSettings = NetworkSettings()
    partial_channels: int = Field(1, ge=1)
    none: bool = True
    relaxation: SerializeAsAny[supernets.RelaxationSettings] = supernets.SimplexSettings()
    optimizer: SerializeAsAny[supernets.OptimizerSettings] = supernets.MirrorDescentSettings()
    training: supernets.SupernetTrainingSettings = supernets.SupernetTrainingSettings()
    penalty: supernets.CostPenaltySettings = supernets.CostPenaltySettings()

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        supernets.check_together(self.relaxation, self.optimizer, self.partial_channels)
        self.optimizer.check_objective(self.training.objective)
        return self

    def groups(self, space: Space | str) -> "tuple[Group, ...]":
        """Returns the groups of architecture parameters of the supernet of `space`. Raises: as `networks.groups`."""
        from archray.trainables.supernets.networks import groups  # which imports torch

        return groups(space, partial_channels=self.partial_channels, none=self.none)

    def build(self, space: Space | str, *, in_channels: int, num_classes: int, seed: int | None) -> "Supernet":
        """Builds the supernet of `space`. Args, Raises: as `build_supernet`."""
        from archray.trainables.supernets.networks import build_supernet

        return build_supernet(
            space, self.network, in_channels, num_classes, seed, partial_channels=self.partial_channels, none=self.none
        )


class SupernetSettings(SupernetOptions, TrialSettings):
    """All options of a `SupernetTrainable`.

    Attributes:
        space: Name of a registered space, or a reference to a custom space that has a supernet.
        score: Score of candidates in a config with `candidates`: `loss` (lower is better) or `accuracy`.
        weights_dir: Folder for the weights of a trial with `candidates`: a local path or a pyarrow URI that every node
            can read. Without it no weights are stored, and the next round starts from new ones.
        bounds: Constraints on the derived architecture, the most probable feasible one near the mode (default: none).
        edge_costs: Cost of each operation of each edge, by column, for the penalty and for bounds on costs that are
            measured elsewhere.
    """

    space: str = "nasbench201"
    score: Literal["loss", "accuracy"] = "loss"
    weights_dir: str | None = None
    bounds: BoundSettings | None = None
    edge_costs: dict[str, EdgeCosts] = Field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @field_validator("weights_dir")
    @classmethod
    def _absolute(cls, place: str | None) -> str | None:
        return place if place is None or "://" in place else str(Path(place).expanduser().absolute())


class PosteriorOptions(Settings):
    """Options of learning a posterior, for any supernet, space and data.

    Defaults are the paper's (Shu 2022, 5.3.3). Its batch size is unknown; the default is the
    supernet's.

    Attributes:
        posterior: Distribution and objective.
        optimizer: Optimizer of the posterior's parameters. The weights of the supernet stay fixed.
        epochs: Number of passes over the validation images.
        batch_size: Number of images per step.
        threads: Number of torch threads per trial (default: the number of CPUs that Tune assigned to the trial).
    """

    posterior: supernets.VariationalSettings = supernets.VariationalSettings()
    optimizer: supernets.AdamSettings = supernets.AdamSettings(lr=0.01, betas=(0.9, 0.999), weight_decay=3e-4)
    epochs: int = Field(20, ge=1)
    batch_size: int = Field(128, ge=1)
    threads: int | None = Field(None, ge=1)


class PosteriorSettings(PosteriorOptions, TrialSettings):
    """All options of a `PosteriorTrainable`.

    Attributes:
        space: Space of the supernet whose weights were trained.
        data: Data set of the weights' training. The posterior learns from the validation part without augmentation. In
            the paper this part is 30 % of the training images (section 5.3.2: `validation_fraction` 0.3).
        supernet: Options of the weights' training; of `training` only `amp` is read.
        weights: Path or pyarrow URI of the trained weights: a supernet's state that `write_weights` wrote, alone or
            under the key `supernet`.
    """

    space: str = "darts"
    supernet: SupernetOptions
    weights: str


class NASIOptions(Settings):
    """Options of NASI's search, for any space and data.

    Attributes:
        network: Width, depth and initialization of the supernet.
        none: Whether the supernet contains the operation `none` of the space. In DARTS it does not (section 6.4.2).
        steps: Number of sampled architectures, T, each with its own mini-batch.
        batch_size: Number of images per step, b.
        nu_rule: Rule of the threshold nu: constant (`fixed`), or following the trace norms of the samples (`adaptive`,
            Eq. 6.15).
        nu: Initial threshold nu (default: the mean trace norm of `samples` random architectures, Eq. 6.14; five times
            that for `adaptive`). Numbers in Shu (2022) hold for its initialization only.
        mu: Penalty mu. A trace norm above nu has no gradient with mu = 1, and a negative one with mu = 2.
        samples: Number of random architectures, N, in Eq. 6.14.
        approximation: Approximation of the trace norm: `batch` (Eq. 6.7), `samples` (the first bound of Eq. 6.6), which
            costs b times as much, or `exact` (Eq. 6.4), which costs b n times as much.
        labels: Labels of the search: `true`, those of the training images, or `random`, uniform over the classes
            (section 6.3.1).
        inputs: Inputs of the search: `true`, the training images, or `random`, Gaussian (section 6.3.2). If labels and
            inputs are random, the search needs no data set.
        image_size: Height and width of random images without a data set. The same for all data, so that the result
            does not depend on a data set.
        in_channels: Number of channels of random images without a data set.
        classes: Number of classes of random labels without a data set.
        temperature: Temperature tau of Eq. 6.16.
        xi: Length of the step, Eq. 6.13.
        every: Number of NASI steps per step of Tune.
        threads: Number of torch threads per trial (default: the number of CPUs that Tune assigned to the trial).
    """

    network: NetworkSettings = NetworkSettings()
    none: bool = True
    steps: int = Field(100, ge=1)
    batch_size: int = Field(64, ge=2)
    nu_rule: Literal["fixed", "adaptive"] = "fixed"
    nu: float | None = Field(None, gt=0)
    mu: float = Field(1.0, ge=0)
    samples: int = Field(50, ge=1)
    approximation: Literal["exact", "samples", "batch"] = "batch"
    labels: Literal["true", "random"] = "true"
    inputs: Literal["true", "random"] = "true"
    image_size: int = Field(32, ge=4)
    in_channels: int = Field(3, ge=1)
    classes: int = Field(10, ge=2)
    temperature: float = Field(1.0, gt=0)
    xi: float = Field(1.0, gt=0)
    every: int = Field(10, ge=1)
    threads: int | None = Field(None, ge=1)

    @property
    def without_data(self) -> bool:
        """Whether the search runs without a data set."""
        return "true" not in (self.labels, self.inputs)

    @property
    def drawn_words(self) -> str:
        """A description of the random data."""
        return f"random images {self.in_channels} x {self.image_size} x {self.image_size}, of {self.classes} classes"

    def build(self, space: Space | str, *, in_channels: int, num_classes: int, seed: int | None) -> "Supernet":
        """Builds the supernet that is searched. Args, Raises: as `build_supernet`."""
        from archray.trainables.nasi.search import form_of
        from archray.trainables.supernets.networks import build_supernet

        form = form_of(space)
        none = self.none and form is None
        return build_supernet(space, self.network, in_channels, num_classes, seed, none=none, form=form)


class NASISettings(NASIOptions, TrialSettings):
    """All options of a `NASITrainable`.

    Attributes:
        space: Name of a registered space, or a reference to a custom space that has a supernet.
        data: Data set of the batches, unless both inputs and labels are random.
        bounds: Constraints on the derived architecture (default: none).
        bounded_images: Channels, pixels per side and classes of the data of the bounded networks (default: those of the
            search, which may be random).
    """

    space: str = "darts"
    bounds: BoundSettings | None = None
    bounded_images: tuple[int, int, int] | None = None
