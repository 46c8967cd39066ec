"""The Adversarial Robustness Toolbox, as far as it is used: a network as its classifier, an attack's images.

Nicolae et al. 2018. The toolbox works on NumPy arrays, and draws from NumPy's global generator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from archray.trainables.adversarial.attack_registry import Attack, check_toolbox
from archray.trainables.adversarial.attack_settings import AttackSettings
from archray.trainables.devices import own_randomness

Floats = npt.NDArray[np.float32]


def adversarial_images(
    network: nn.Module, pixels: Tensor, labels: Tensor, attack: Attack, settings: AttackSettings, *, seed: int
) -> Tensor:
    """What an untargeted attack that knows the labels makes of images, (n, C, H, W) in 0..1, on their device.

    Args:
        network: pixels in 0..1 -> logits (n, classes), a `PixelNetwork`; on the images' device. It is left in
            evaluation mode, its parameters' gradients as they were.
        pixels: (n, C, H, W) float32 in 0..1. labels: (n,).
        seed: of what the attack draws; torch's and NumPy's global generators are as they were.

    Raises: MissingExtra without the toolbox.
    """
    check_toolbox()
    wanted = [parameter.requires_grad for parameter in network.parameters()]
    network.eval().requires_grad_(False)
    try:
        with torch.no_grad():
            classes = network(pixels[:1]).shape[1]
        made = attack.make(classifier_of(network, tuple(pixels.shape[1:]), classes), settings)
        with own_randomness(seed, pixels.device), _own_numpy_randomness(seed), torch.enable_grad():
            changed = made.generate(pixels.cpu().numpy(), labels.cpu().numpy())
    finally:
        for parameter, before in zip(network.parameters(), wanted, strict=True):
            parameter.requires_grad_(before)
    return torch.from_numpy(np.ascontiguousarray(changed, dtype=np.float32)).to(pixels.device)


def classifier_of(network: nn.Module, shape: tuple[int, ...], classes: int) -> Any:
    """The toolbox' classifier of a network on pixels. shape: of an image, (C, H, W)."""
    from art.estimators.classification import PyTorchClassifier

    class Classifier(PyTorchClassifier):
        """The toolbox' classifier; predictions without a data loader, and gradients of one class in one pass.

        An image's logits depend on that image alone, so one backward pass through the sum of the chosen logits gives
        the gradient for every image; the toolbox makes one for each class among them.
        """

        def predict(
            self, x: Floats, batch_size: int = 128, training_mode: bool = False, **more: Any
        ) -> npt.NDArray[Any]:
            network.eval()
            with torch.no_grad():
                parts = [network(part.to(self.device)) for part in torch.from_numpy(_plain(x)).split(batch_size)]
            return torch.cat(parts).cpu().numpy()

        def class_gradient(self, x: Floats, label: Any = None, training_mode: bool = False, **more: Any) -> Any:
            if not isinstance(label, np.ndarray):
                return super().class_gradient(x, label=label, training_mode=training_mode, **more)
            network.eval()
            images = torch.from_numpy(_plain(x)).to(self.device).requires_grad_()
            chosen = network(images).gather(1, torch.from_numpy(label).long().to(self.device)[:, None])
            (gradient,) = torch.autograd.grad(chosen.sum(), images)
            return gradient.cpu().numpy()[:, None]

    on_gpu = next(network.buffers()).is_cuda
    return Classifier(
        network,
        loss=nn.CrossEntropyLoss(),
        input_shape=shape,
        nb_classes=classes,
        clip_values=(0.0, 1.0),
        device_type="gpu" if on_gpu else "cpu",
    )


def _plain(x: npt.NDArray[Any]) -> Floats:
    return np.ascontiguousarray(x, dtype=np.float32)


@contextmanager
def _own_numpy_randomness(seed: int) -> Iterator[None]:
    """Lets what draws from NumPy's global generator draw from `seed` alone."""
    before = np.random.get_state()  # noqa: NPY002  # what the toolbox draws from
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
