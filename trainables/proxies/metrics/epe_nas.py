"""How the gradients by the images correlate within classes. Lopes et al. 2021, sec. 3 (EPE-NAS)."""

from __future__ import annotations

import torch
from torch import Tensor

from archray.trainables.proxies.correlations import OFFSET, correlations
from archray.trainables.proxies.proxy_registry import NoScore, proxy
from archray.trainables.proxies.shared_pass import SharedPass

MANY_CLASSES = 100  # tau: above it classes are compared with each other


def class_correlations(rows: Tensor, labels: Tensor, num_classes: int) -> float:
    """With e_c = sum_ij log(|R^c_ij| + k), R^c the correlations of class c's rows and k = 1e-5: sum over c of |e_c|.

    Of more than 100 classes: the mean over c of sum over c' of |e_c / n_c - e_c' / n_c'|, with n_c images of class c.
    This is the authors' program, in which each pair of classes counts twice; the paper has every pair once.

    rows: (m, d) the gradients by the images. labels: (m,). num_classes: of the data, not of the batch.
    Raises: NoScore if no class has two images, as within one image there is nothing to correlate.
    """
    classes, counts = labels.unique(return_counts=True)
    several = [label for label, number in zip(classes.tolist(), counts.tolist(), strict=True) if number > 1]
    if not several:
        raise NoScore(
            f"no two of the batch's {len(labels)} images are of one class, so none can be compared within its class; "
            "take a larger batch"
        )
    # A single image correlates with itself alone: log(1 + k), which the authors count with few classes.
    many = num_classes > MANY_CLASSES
    scores = []
    for label in several if many else classes.tolist():
        matrix = correlations(rows[labels == label]).abs()
        scores.append((matrix + OFFSET).log().sum() / (len(matrix) if many else 1))
    e = torch.stack(scores)
    return float((e[:, None] - e).abs().sum() / len(e) if many else e.abs().sum())


@proxy(direction="max")
def epe_nas(shared: SharedPass) -> float:
    return class_correlations(shared.image_gradients, shared.labels, shared.record.logits.shape[1])
