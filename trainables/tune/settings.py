"""Settings of the trainables of supernets, posteriors and NASI; importable without torch."""

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
    """Options of a trainable that trains or searches on data; they are in its Tune config under the key `settings`.

    Args:
        data: what the trial reads, unless its class says otherwise.
        device: "auto" (a GPU if Tune gave the trial one, else the CPU), or a torch device: "cpu", "cuda", "cuda:1".
        seed: of a trial whose config has no `seed`.
    """

    data: DataSettings = DataSettings()
    device: str = "auto"
    seed: Seed = 0


class SlicedSettings(TrialSettings):
    """All options of a `SlicedTrainable`.

    Args:
        space: a registered name of a space whose supernet is sliced.
        network: the skeleton of every network in the supernet.
    """

    space: str = "vit"
    network: NetworkSettings = NetworkSettings()
    training: supernets.SandwichSettings = supernets.SandwichSettings()


class SupernetOptions(Settings):
    """A supernet and its training, for any space and data.

    The default method is GAEA: the simplex mixture and mirror descent. Any relaxation combines with any objective, and
    with any optimizer of the same kind of parameters.

    Args:
        network: width, depth and initialisation of the supernet.
        partial_channels: K of PC-DARTS: operations see 1/K of the channels, and edges have weights of their own.
        none: whether the supernet has the space's operation `none`. GAEA leaves it out on NAS-Bench-201 (note G1).
        relaxation: from the architecture's parameters to the weights of a mixture of operations.
        optimizer: of the architecture's parameters.
        training: of the weights, and the schedule of the architecture's updates.
        penalty: on the mixture's cost, while the architecture learns.
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
        """The architecture parameters of the supernet of `space`. Raises: as `networks.groups`."""
        from archray.trainables.supernets.networks import groups  # which imports torch

        return groups(space, partial_channels=self.partial_channels, none=self.none)

    def build(self, space: Space | str, *, in_channels: int, num_classes: int, seed: int | None) -> "Supernet":
        """The supernet of `space`. Args, Raises: as `build_supernet`."""
        from archray.trainables.supernets.networks import build_supernet

        return build_supernet(
            space, self.network, in_channels, num_classes, seed, partial_channels=self.partial_channels, none=self.none
        )


class SupernetSettings(SupernetOptions, TrialSettings):
    """All options of a `SupernetTrainable`.

    Args:
        space: a registered name, or a reference to a space of the user's that has a supernet.
        score: the kind of `scores` in a config with `candidates`: "loss", least is best, or "accuracy".
        weights_dir: folder of the weights of a trial with `candidates`: a local path or a pyarrow URI that every node
            reads. None stores no weights, and the next round starts from new ones.
        bounds: constraints on the trial's last architecture, the most probable feasible one near the mode. None: none.
        edge_costs: by column, the cost of each operation of each edge, for the penalty and for bounds on costs that are
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
    """How a posterior is learnt, for any supernet, space and data.

    Defaults are the paper's (thesis 5.3.3); its batch is unknown, and the default is that of the supernet's training.

    Args:
        posterior: the distribution and its objective.
        optimizer: of its parameters; the weights of the supernet stay as they are.
        epochs: passes over the validation images.
        batch_size: images in a step.
        threads: torch threads of a trial; None: as many as the CPUs that Tune gave it.
    """

    posterior: supernets.VariationalSettings = supernets.VariationalSettings()
    optimizer: supernets.AdamSettings = supernets.AdamSettings(lr=0.01, betas=(0.9, 0.999), weight_decay=3e-4)
    epochs: int = Field(20, ge=1)
    batch_size: int = Field(128, ge=1)
    threads: int | None = Field(None, ge=1)


class PosteriorSettings(PosteriorOptions, TrialSettings):
    """All options of a `PosteriorTrainable`.

    Args:
        space, data: of the weights' training. The posterior learns from the validation part, 30 % of the training
            images in the paper (section 5.3.2: `validation_fraction` 0.3), without augmentation.
        supernet: the options of the weights' training; of `training` only `amp` is read.
        weights: path or pyarrow URI of the trained weights, as `write_weights` writes a supernet's state (alone, or
            under the key `supernet`).
    """

    space: str = "darts"
    supernet: SupernetOptions
    weights: str


class NASIOptions(Settings):
    """How NASI searches, for any space and data.

    Attributes:
        network: width, depth and initialisation of the supernet.
        none: whether the supernet has the space's operation `none`; in DARTS it has not (section 6.4.2).
        steps: T, samples of architectures, each with its own mini-batch.
        batch_size: b.
        nu_rule: nu is constant (`fixed`), or follows the trace norms of the samples (`adaptive`, Eq. 6.15).
        nu: the first nu. None: the mean trace norm of `samples` random architectures, Eq. 6.14; five times that for
            `adaptive`, which starts loose. Numbers of the thesis are for its initialisation.
        mu: the penalty. Trace norms above nu have no gradient with 1, and a negative one with 2.
        samples: N of Eq. 6.14.
        approximation: of the trace norm: `batch` (Eq. 6.7), `samples` (the first bound of Eq. 6.6), or `exact`
            (Eq. 6.4), which cost once, b times and b n times as much.
        labels: `true`, of the data's training images, or `random`, uniform over the classes (section 6.3.1).
        inputs: `true`, the data's training images, or `random`, Gaussian (section 6.3.2). With both random the search
            opens no data set.
        image_size, in_channels, classes: of random images and labels without a data set; the same for all data, so that
            the result depends on none.
        temperature: tau of Eq. 6.16.
        xi: the length of the step, Eq. 6.13.
        every: steps of NASI in a step of Tune.
        threads: torch threads of a trial; None: as many as the CPUs that Tune gave it.
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
        """Whether no data set is needed."""
        return "true" not in (self.labels, self.inputs)

    @property
    def drawn_words(self) -> str:
        """A description of the random data."""
        return f"random images {self.in_channels} x {self.image_size} x {self.image_size}, of {self.classes} classes"

    def build(self, space: Space | str, *, in_channels: int, num_classes: int, seed: int | None) -> "Supernet":
        """The supernet that is searched. Args, Raises: as `build_supernet`."""
        from archray.trainables.nasi.search import form_of
        from archray.trainables.supernets.networks import build_supernet

        form = form_of(space)
        none = self.none and form is None
        return build_supernet(space, self.network, in_channels, num_classes, seed, none=none, form=form)


class NASISettings(NASIOptions, TrialSettings):
    """All options of a `NASITrainable`.

    Attributes:
        space: a registered name, or a reference to a space of the user's that has a supernet.
        data: of the batches, unless both inputs and labels are random.
        bounds: constraints on the trial's last architecture. None: none.
        bounded_images: channels, pixels per side and classes of the data of the bounded networks; None: those of the
            search, which may be random.
    """

    space: str = "darts"
    bounds: BoundSettings | None = None
    bounded_images: tuple[int, int, int] | None = None
