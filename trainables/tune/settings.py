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
        device: "auto" (a GPU if the trial was given one, else the CPU), or torch's word: "cpu", "cuda", "cuda:1".
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
    """What a supernet is and how it is trained, whatever its space and data.

    The default method is GAEA: the simplex mixture and mirror descent. Any relaxation goes with any objective and, as
    far as they mean the same by a parameter, with any optimizer.

    Args:
        network: width, depth and initialisation of the supernet.
        partial_channels: K of PC-DARTS: operations see 1/K of the channels, and edges have weights of their own.
        none: whether the operation `none` takes part, where the space has it. GAEA leaves it out on NAS-Bench-201
            (note G1).
        relaxation: how the weights of a mixture of operations are made of the architecture's parameters.
        optimizer: how the architecture's parameters learn.
        training: of the weights, and when the architecture learns.
        penalty: how much what the mixture costs counts while the architecture learns.
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
        score: what `scores` are in a config with `candidates`: "loss", least is best, or "accuracy".
        weights_dir: where a trial with `candidates` stores the weights: a local path or a pyarrow URI that every node
            reads. None stores none, and the next round starts from new weights.
        bounds: constraints that the architecture which a trial ends with meets: the most probable one near to what the
            weights say. None: there are none.
        edge_costs: by column, what each operation of each edge costs: of the penalty's cost, and of bounds on costs
            that are measured elsewhere.
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
    """How a posterior is learnt, whatever the supernet, its space and data.

    Defaults are the paper's (thesis 5.3.3), but for the batch, which it does not say: that of the supernet's training.

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
        space, data: those that the weights were trained with. The posterior learns from the validation part, 30 % of
            the training images in the paper (section 5.3.2: `validation_fraction` 0.3), without augmentation.
        supernet: the options that the weights were trained with; of `training` only `amp` is read.
        weights: path or pyarrow URI of the trained weights, as `write_weights` writes a supernet's state (alone, or
            under the key `supernet`).
    """

    space: str = "darts"
    supernet: SupernetOptions
    weights: str


class NASIOptions(Settings):
    """How NASI searches, whatever its space and data.

    Attributes:
        network: width, depth and initialisation of the supernet.
        none: whether the operation `none` takes part, where the space has it; DARTS without (section 6.4.2).
        steps: T, samples of architectures, each with a mini-batch of its own.
        batch_size: b.
        nu_rule: nu stays as it begins (`fixed`), or follows the trace norms of the samples (`adaptive`, Eq. 6.15).
        nu: what it begins with. None: the mean trace norm of `samples` random architectures, Eq. 6.14; for `adaptive`
            five times that, as a loose start is the rule's own. Numbers of the thesis hold for its initialisation.
        mu: the penalty. With 1 what is above nu has no gradient, with 2 one away from there.
        samples: N of Eq. 6.14.
        approximation: of the trace norm: `batch` (Eq. 6.7), `samples` (the first bound of Eq. 6.6), or `exact`
            (Eq. 6.4), which cost once, b times and b n times as much.
        labels: `true`, of the data's training images, or `random`, uniform over the classes (section 6.3.1).
        inputs: `true`, the data's training images, or `random`, Gaussian (section 6.3.2). With both random the search
            opens no data set, and its images are 32 x 32 with 3 channels, of 10 classes, whatever the data; image_size,
            in_channels and classes are others.
        image_size, in_channels, classes: of random images and labels where no data set is opened. The same for all
            data, so that what is found depends on none.
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
        """What stands in the place of data."""
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
        data: where batches are from, unless both inputs and labels are random.
        bounds: constraints that the architecture which a trial ends with meets. None: there are none.
        bounded_images: channels, pixels a side and classes of the data that the bounded networks are built for; None:
            those of the search, which may be random.
    """

    space: str = "darts"
    bounds: BoundSettings | None = None
    bounded_images: tuple[int, int, int] | None = None
