"""One round: a member is attacked, and all members defend. Shu 2022, section 5.3.6.

For comparison: the effect of the change on each other member (transfer), and of random noise of the same size.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.files import Folder
from archray.plurals import count
from archray.seeds import named_seed
from archray.trainables.adversarial.attacks import ATTACKS, Attack, AttackSettings, check_toolbox
from archray.trainables.data import DataSettings, load_images
from archray.trainables.data.dataset import Dataset
from archray.trainables.data.image_form import ImageForm
from archray.trainables.devices import choose_device, restored_randomness
from archray.trainables.ensembles.ensemble import Ensemble, load_ensemble
from archray.trainables.ensembles.measures import average
from archray.trainables.training import EVALUATION_BATCH

# Pixels in 0..1, which attacks change --------------------------------------------------------------------------------


def check_pixels(data: Dataset) -> ImageForm:
    """Returns how the data set normalizes pixels in 0..1. Raises: InvalidInput for one without such pixels."""
    form = data.form
    if form is None or form.mean is None or form.std is None:
        raise InvalidInput(
            f"expected a data set with a known normalization, as epsilon is in units of a pixel in 0..1, got "
            f"{data.name} without it. Give its Dataset a `form` (an ImageForm)"
        )
    if not form.unit:
        raise InvalidInput(
            f"expected images with pixels in 0..1 before normalization, as epsilon is in units of such a pixel, got "
            f"{data.name} with larger values; attack a run on images, or divide your arrays by their maximum"
        )
    return form


def pixels_of(images: Tensor, form: ImageForm) -> Tensor:
    """Converts normalized images (n, C, H, W) to pixels in 0..1. Values outside, due to rounding, are clipped."""
    mean, std = _statistics(form, images.device)
    return (images * std + mean).clamp(0.0, 1.0)


class PixelNetwork(nn.Module):
    """A network with its normalization: pixels in 0..1, (n, C, H, W) -> logits (n, classes), float32.

    Args:
        network: Normalized images -> logits, or a tuple that starts with them.
    """

    def __init__(self, network: nn.Module, form: ImageForm) -> None:
        super().__init__()
        self.network = network
        mean, std = _statistics(form)
        self.mean, self.std = nn.Buffer(mean), nn.Buffer(std)

    def forward(self, pixels: Tensor) -> Tensor:
        outputs = self.network((pixels - self.mean) / self.std)
        logits: Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
        return logits.float()


def _statistics(form: ImageForm, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Returns mean and standard deviation, (1, C, 1, 1) each."""
    mean, std = (torch.tensor(values, device=device).view(1, -1, 1, 1) for values in (form.mean, form.std))
    return mean, std


# The toolbox, which uses NumPy arrays and draws from NumPy's global generator ----------------------------------------

Floats = npt.NDArray[np.float32]


def adversarial_images(
    network: nn.Module, pixels: Tensor, labels: Tensor, attack: Attack, settings: AttackSettings, *, seed: int
) -> Tensor:
    """Computes adversarial images of an untargeted attack, (n, C, H, W) in 0..1, on the images' device.

    Args:
        network: Pixels in 0..1 -> logits (n, classes), a `PixelNetwork` on the images' device. It stays in evaluation
            mode, with its parameters' `requires_grad` restored.
        pixels: (n, C, H, W) float32 in 0..1.
        labels: (n,).
        seed: Seed of the attack; torch's and NumPy's global generators are restored.

    Raises: MissingExtra without the toolbox.
    """
    check_toolbox()
    gradients = [parameter.requires_grad for parameter in network.parameters()]
    network.eval().requires_grad_(False)
    try:
        with torch.no_grad():
            classes = network(pixels[:1]).shape[1]
        attacker = attack.make(classifier_of(network, tuple(pixels.shape[1:]), classes), settings)
        with restored_randomness(seed, pixels.device), _own_numpy_randomness(seed), torch.enable_grad():
            changed = attacker.generate(pixels.cpu().numpy(), labels.cpu().numpy())
    finally:
        for parameter, before in zip(network.parameters(), gradients, strict=True):
            parameter.requires_grad_(before)
    return torch.from_numpy(np.ascontiguousarray(changed, dtype=np.float32)).to(pixels.device)


def classifier_of(network: nn.Module, shape: tuple[int, ...], classes: int) -> Any:
    """Creates the toolbox's classifier from a network on pixels. shape: of an image, (C, H, W)."""
    from art.estimators.classification import PyTorchClassifier

    class Classifier(PyTorchClassifier):
        """The toolbox's classifier, with predictions without a data loader and gradients of one class in one pass.

        An image's logits depend on that image only, so one backward pass through the sum of the chosen logits computes
        the gradient for every image. The toolbox makes one pass per class.
        """

        def predict(
            self, x: Floats, batch_size: int = 128, training_mode: bool = False, **more: Any
        ) -> npt.NDArray[Any]:
            network.eval()
            with torch.no_grad():
                images = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
                parts = [network(part.to(self.device)) for part in images.split(batch_size)]
            return torch.cat(parts).cpu().numpy()

        def class_gradient(self, x: Floats, label: Any = None, training_mode: bool = False, **more: Any) -> Any:
            if not isinstance(label, np.ndarray):
                return super().class_gradient(x, label=label, training_mode=training_mode, **more)
            network.eval()
            images = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)).to(self.device).requires_grad_()
            chosen = network(images).gather(1, torch.from_numpy(label).long().to(self.device)[:, None])
            (gradient,) = torch.autograd.grad(chosen.sum(), images)
            return gradient.cpu().numpy()[:, None]

    device = "gpu" if next(network.buffers()).is_cuda else "cpu"
    options = {"input_shape": shape, "nb_classes": classes, "clip_values": (0.0, 1.0), "device_type": device}
    return Classifier(network, loss=nn.CrossEntropyLoss(), **options)


@contextmanager
def _own_numpy_randomness(seed: int) -> Iterator[None]:
    """Seeds NumPy's global generator, and restores it."""
    before = np.random.get_state()  # noqa: NPY002  # the toolbox draws from it
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def check_defenders(members: int) -> None:
    """Raises: InvalidInput for an ensemble with fewer than two members."""
    if members < 2:
        raise InvalidInput(
            f"expected an ensemble with two or more members, one to attack and all to defend, got "
            f"{count(members, 'member')}; attack the run of an ensemble, such as deep-ensemble"
        )


def attack_member(
    ensemble: Ensemble,
    form: ImageForm,
    images: Tensor,
    labels: Tensor,
    attacked: int,
    name: str,
    settings: AttackSettings,
    *,
    seed: int,
) -> pd.DataFrame:
    """Attacks one member and predicts with all members and their average. Returns one row per image, in order.

    Columns: `image` (from 0), `label`; the classes that the attacked member and the ensemble predict for the image
    (`benign_member`, `benign_ensemble`), the adversarial image (`attacked_member`, `attacked_ensemble`) and one with
    random noise (`noise_member`, `noise_ensemble`); `transfer`, the share of the other members that classify the
    adversarial image correctly; `linf` and `l2`, the size of the change in units of a pixel; `seconds` per image.

    For an attack bounded by L_inf, the noise is a random sign of epsilon for each value; for L_2, a random direction
    with the length of the image's change. It is clipped to 0..1.

    Args:
        images: (n, C, H, W), normalized, on the ensemble's device.
        labels: (n,).
        attacked: Index of the member, from 0.
        name: Name of the attack.
        seed: Seed of the run; every round has separate random numbers.

    Raises: InvalidInput for an ensemble with one member; UnknownName; MissingExtra.
    """
    check_defenders(len(ensemble.members))
    attack = ATTACKS.get(name)
    pixels = pixels_of(images, form)
    start = time.perf_counter()
    target = PixelNetwork(ensemble.members[attacked], form).to(pixels.device)
    changed = adversarial_images(target, pixels, labels, attack, settings, seed=named_seed(seed, name, attacked))
    seconds = time.perf_counter() - start
    change = (changed - pixels).flatten(1)
    noisy = _noisy(pixels, change.norm(dim=1), attack, settings, named_seed(seed, name, attacked, "noise"))
    benign, hostile, noise = (_classes(ensemble, form, batch) for batch in (pixels, changed, noisy))
    correct = hostile[:-1] == labels.cpu().numpy()  # (members, n)
    values = {
        "image": np.arange(len(labels)),
        "label": labels.cpu().numpy(),
        "benign_member": benign[attacked],
        "benign_ensemble": benign[-1],
        "attacked_member": hostile[attacked],
        "attacked_ensemble": hostile[-1],
        "transfer": np.delete(correct, attacked, axis=0).mean(0),
        "noise_member": noise[attacked],
        "noise_ensemble": noise[-1],
        "linf": change.abs().amax(1).cpu().numpy(),
        "l2": change.norm(dim=1).cpu().numpy(),
        "seconds": seconds / len(labels),
    }
    return pd.DataFrame(values).astype({"linf": "float64", "l2": "float64"})


@torch.no_grad()
def _classes(ensemble: Ensemble, form: ImageForm, pixels: Tensor) -> npt.NDArray[np.int64]:
    """Predicts the class of each member, and last of their average, (members + 1, n)."""
    ensemble.eval()
    networks = [PixelNetwork(member, form).to(pixels.device) for member in ensemble.members]
    parts = [
        torch.stack([network(batch).softmax(1) for network in networks]).cpu()
        for batch in pixels.split(EVALUATION_BATCH)
    ]
    probabilities = torch.cat(parts, dim=1).numpy()  # (members, n, classes)
    return np.concatenate([probabilities.argmax(-1), average(probabilities, ensemble.average).argmax(-1)[None]])


def _noisy(pixels: Tensor, lengths: Tensor, attack: Attack, settings: AttackSettings, seed: int) -> Tensor:
    """Adds noise to images instead of an attack. lengths: L_2 norms of the attack's changes, (n,)."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randn(pixels.shape, generator=generator).to(pixels.device)
    if attack.norm == "linf":
        noise = settings.epsilon * draws.sign()
    else:
        noise = draws * (lengths / draws.flatten(1).norm(dim=1)).view(-1, 1, 1, 1)
    return (pixels + noise).clamp(0.0, 1.0)


def chosen_images(images: int, number: int, seed: int) -> npt.NDArray[np.int64]:
    """Returns the sorted indices of `number` random images, the same for every attack and member."""
    draw = np.random.default_rng(named_seed(seed, "attacked images")).permutation(images)[:number]
    return np.sort(draw).astype(np.int64)


class AttackWorker:
    """Attacks members of one trained ensemble on test images.

    Args:
        model: Folder of the ensemble's files, a path or a URI.
        space: Space of its members; see `load_ensemble`.
        data: Settings of the data, as a dict.
        images: Number of test images.
        settings: `AttackSettings`, as a dict.
        seed: Seed of the draws.
        device: Torch device; `auto` takes a GPU if one is visible.
    """

    def __init__(
        self,
        model: str,
        space: str,
        data: dict[str, Any],
        images: int,
        settings: dict[str, Any],
        seed: int,
        device: str,
    ) -> None:
        place = choose_device(device)
        dataset = load_images(DataSettings(**data))
        self.form = check_pixels(dataset)
        self.chosen = chosen_images(len(dataset.test), images, seed)
        rows = torch.from_numpy(self.chosen)
        self.images = dataset.test.batch(rows).to(place)
        self.labels = dataset.test.labels[rows].to(place)
        self.ensemble = load_ensemble(Folder(model).read_bytes, space).to(place)
        self.settings, self.seed = AttackSettings(**settings), seed

    def __call__(self, item: tuple[str, int]) -> pd.DataFrame:
        """Returns the table of `attack_member` for (attack, member); `image` is the index in the test split."""
        name, member = item
        table = attack_member(
            self.ensemble, self.form, self.images, self.labels, member, name, self.settings, seed=self.seed
        )
        return table.assign(image=self.chosen)
