"""One round: a member is attacked, and all members defend. Shu 2022, section 5.3.6.

Beside it what the change does without an attack: to the other members alone (transfer), and as random noise of the
same size.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.plurals import count
from archray.seeds import named_seed
from archray.trainables.adversarial.attack_registry import ATTACKS, Attack
from archray.trainables.adversarial.attack_settings import AttackSettings
from archray.trainables.adversarial.pixels import PixelNetwork, pixels_of
from archray.trainables.adversarial.toolbox import adversarial_images
from archray.trainables.data.image_form import ImageForm
from archray.trainables.ensembles.ensemble import Ensemble
from archray.trainables.ensembles.measures import average
from archray.trainables.training import EVALUATION_BATCH

COLUMNS = {  # of a round: a row an image
    "image": "int64",
    "label": "int64",
    "benign_member": "int64",
    "benign_ensemble": "int64",
    "attacked_member": "int64",
    "attacked_ensemble": "int64",
    "transfer": "float64",
    "noise_member": "int64",
    "noise_ensemble": "int64",
    "linf": "float64",
    "l2": "float64",
    "seconds": "float64",
}


def check_defenders(members: int) -> None:
    """Raises: InvalidInput for an ensemble of fewer than two."""
    if members < 2:
        raise InvalidInput(
            f"expected an ensemble of two members or more, as one is attacked and all defend, got one of "
            f"{count(members, 'member')}; attack the run of an ensemble, deep-ensemble for example"
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
    """Attacks one member and lets all of the ensemble predict, as they average; a row an image, in their order.

    Columns: `image` (its place, from 0), `label`; the classes predicted by the attacked member and by the ensemble of
    the image itself (`benign_member`, `benign_ensemble`), of the adversarial one (`attacked_member`,
    `attacked_ensemble`) and of one with random noise (`noise_member`, `noise_ensemble`); `transfer`, the share of the
    other members that classify the adversarial image rightly, each alone; `linf` and `l2`, the size of the change in
    units of a pixel; `seconds`, the time of the attack for an image.

    The noise is, of an attack bounded by L_inf, a random sign of epsilon for each value; of one by L_2, a random
    direction of the length of this image's change; what leaves 0..1 is clipped.

    Args:
        images: (n, C, H, W), normalised, on the ensemble's device. labels: (n,).
        attacked: the member, from 0. name: of the attack.
        seed: of the run; every round has random numbers of its own.

    Raises: InvalidInput for an ensemble of one; UnknownName; MissingExtra.
    """
    check_defenders(len(ensemble.members))
    attack = ATTACKS.get(name)
    pixels = pixels_of(images, form)
    begun = time.perf_counter()
    target = PixelNetwork(ensemble.members[attacked], form).to(pixels.device)
    changed = adversarial_images(target, pixels, labels, attack, settings, seed=named_seed(seed, name, attacked))
    seconds = time.perf_counter() - begun
    change = (changed - pixels).flatten(1)
    noisy = _noisy(pixels, change.norm(dim=1), attack, settings, named_seed(seed, name, attacked, "noise"))
    benign, hostile, noise = (_classes(ensemble, form, each) for each in (pixels, changed, noisy))
    right = hostile[:-1] == labels.cpu().numpy()  # (members, n)
    others = np.delete(right, attacked, axis=0)
    values = {
        "image": np.arange(len(labels)),
        "label": labels.cpu().numpy(),
        "benign_member": benign[attacked],
        "benign_ensemble": benign[-1],
        "attacked_member": hostile[attacked],
        "attacked_ensemble": hostile[-1],
        "transfer": others.mean(0),
        "noise_member": noise[attacked],
        "noise_ensemble": noise[-1],
        "linf": change.abs().amax(1).cpu().numpy(),
        "l2": change.norm(dim=1).cpu().numpy(),
        "seconds": seconds / len(labels),
    }
    return pd.DataFrame(values).astype(COLUMNS)


@torch.no_grad()
def _classes(ensemble: Ensemble, form: ImageForm, pixels: Tensor) -> npt.NDArray[np.int64]:
    """The class that each member predicts, and last that of their average, (members + 1, n)."""
    ensemble.eval()
    networks = [PixelNetwork(member, form).to(pixels.device) for member in ensemble.members]
    parts = [
        torch.stack([network(batch).softmax(1) for network in networks]).cpu()
        for batch in pixels.split(EVALUATION_BATCH)
    ]
    probabilities = torch.cat(parts, dim=1).numpy()  # (members, n, classes)
    together = average(probabilities, ensemble.average)
    return np.concatenate([probabilities.argmax(-1), together.argmax(-1)[None]])


def _noisy(pixels: Tensor, lengths: Tensor, attack: Attack, settings: AttackSettings, seed: int) -> Tensor:
    """Images with noise in the place of an attack. lengths: of its changes by L_2, (n,)."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randn(pixels.shape, generator=generator).to(pixels.device)
    if attack.norm == "linf":
        noise = settings.epsilon * draws.sign()
    else:
        noise = draws * (lengths / draws.flatten(1).norm(dim=1)).view(-1, 1, 1, 1)
    return (pixels + noise).clamp(0.0, 1.0)
