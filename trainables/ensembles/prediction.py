"""Class probabilities of a trained network on a whole split. MC-DropPath: draws of dropped paths as an ensemble.

After Monte Carlo dropout (Gal and Ghahramani 2016); Shu 2022, section 5.4.3, with the probability 0.01 (note E8).
"""

from contextlib import nullcontext

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.seeds import stream_seed
from archray.trainables.data.dataset import Split
from archray.trainables.devices import restored_randomness
from archray.trainables.nets.darts_network import Cell, DARTSNetwork
from archray.trainables.training import EVALUATION_BATCH

DROP_PATH = "drop_path"  # entry of a checkpoint whose network drops paths: the arguments of `DroppedPaths`


@torch.no_grad()
def predict(
    network: nn.Module, split: Split, batch: int = EVALUATION_BATCH, *, amp: bool = False
) -> npt.NDArray[np.float32]:
    """Predicts (images, classes) float32, in the split's order. It does not change the network's mode.

    Args:
        network: Images (n, C, H, W) -> logits (n, classes).
        split: Split on the network's device.
        batch: Number of images per forward pass; it changes no result of a network in evaluation mode.
        amp: Whether forward passes run in bfloat16.
    """
    parts = []
    for images, _ in split.in_order(batch):
        with torch.autocast(images.device.type, dtype=torch.bfloat16) if amp else nullcontext():
            logits = network(images)
        parts.append(logits.float().softmax(1).cpu())
    return torch.cat(parts).numpy()


class DroppedPaths(nn.Module):
    """A trained network that drops paths in evaluation mode: images (n, C, H, W) -> logits (n, classes).

    Each edge of a cell that is not an identity is dropped for each image with `probability`, the others scaled up, as
    in training. Normalization uses its running statistics, and there is no auxiliary classifier.

    A forward pass draws from `seed` and the number of forward passes since the last `eval()`. torch's global generators
    do not change.

    Args:
        network: Network of the space DARTS, which has paths to drop. It is changed.
        probability: In (0, 1).
        seed: Seed of the draws.

    Raises: InvalidInput for a network without paths to drop, or another probability.
    """

    def __init__(self, network: nn.Module, probability: float, *, seed: int = 0) -> None:
        super().__init__()
        if not isinstance(network, DARTSNetwork):
            raise InvalidInput(
                f"expected a network with paths to drop, as in the space darts, got a {type(network).__name__}. Search "
                "the space darts, or choose another ensemble"
            )
        if not 0 < probability < 1:
            raise InvalidInput(f"expected a probability between 0 and 1, got {probability}")
        self.network = network
        self.probability = probability
        self.seed = seed
        self.eval()

    def train(self, mode: bool = True) -> "DroppedPaths":
        """In evaluation mode, cells drop paths with `probability`. Raises: InvalidInput for train mode."""
        if mode:
            raise InvalidInput("expected evaluation mode, got train mode. Train `network` instead")
        super().train(False)
        self.network.drop_path = self.probability
        for module in self.network.modules():
            if isinstance(module, Cell):
                module.training = True  # of the cell itself, which drops; its layers stay in evaluation mode
        self.passes = 0
        return self

    def forward(self, images: Tensor) -> Tensor:
        with restored_randomness(stream_seed(self.seed, self.passes), images.device):
            logits = self.network(images)
        self.passes += 1
        return logits
