"""What a `NASITrainable` is told. Shu 2022 (thesis), chapter 6."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from archray.settings import Seed, Settings
from archray.trainables.costs import BoundSettings
from archray.trainables.data.data_settings import DataSettings
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import Space

if TYPE_CHECKING:
    import torch

    from archray.trainables.nasi.mini_batches import NASIBatches
    from archray.trainables.supernets.networks import Supernet


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

    def build(self, space: Space | str, *, in_channels: int, num_classes: int, seed: int | None) -> Supernet:
        """The supernet that is searched. Args, Raises: as `build_supernet`."""
        from archray.trainables.nasi.darts_form import form_of
        from archray.trainables.supernets.networks import build_supernet

        form = form_of(space)
        none = self.none and form is None
        return build_supernet(space, self.network, in_channels, num_classes, seed, none=none, form=form)


class NASISettings(NASIOptions):
    """All options of a `NASITrainable`; they stand in its Tune config under the key `settings`.

    Attributes:
        space: a registered name, or a reference to a space of the user's that has a supernet.
        data: where batches are from, unless both inputs and labels are random.
        device: "auto" (a GPU if the trial was given one, else the CPU), or torch's own word.
        seed: of a trial whose config has no `seed` of its own.
        bounds: constraints that the architecture which a trial ends with meets. None: there are none.
        bounded_images: channels, pixels a side and classes of the data that the bounded networks are built for; None:
            those of the search, which may be random.
    """

    space: str = "darts"
    data: DataSettings = DataSettings()
    device: str = "auto"
    seed: Seed = 0
    bounds: BoundSettings | None = None
    bounded_images: tuple[int, int, int] | None = None

    def batches(self, seed: int, device: torch.device) -> NASIBatches:
        """The mini-batches of a search; the data set is opened unless none of it is used. Raises: as `load_images`."""
        from archray.trainables.data import load_images
        from archray.trainables.nasi.mini_batches import NASIBatches

        dataset = None if self.without_data else load_images(self.data, device=device)
        shape, classes = (self.in_channels, self.image_size, self.image_size), self.classes
        if dataset is not None:
            shape, classes = (dataset.in_channels, dataset.image_size, dataset.image_size), dataset.num_classes
        return NASIBatches(dataset, self.inputs, self.labels, shape, classes, self.batch_size, seed, device)
