"""A custom training-free metric: GradSign, which measures whether samples agree on the sign of each gradient.

    archray search hnas --proxy examples/own_metric.py:grad_sign --preset smoke
    archray proxies --proxies snip,examples/own_metric.py:grad_sign --size 100 --out pool.parquet

A run keeps a copy of this file. So it can be resumed from any folder, and its workers do not need the file.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def grad_sign(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Returns sum_k |sum_i sign(dL_i / dtheta_k)| over parameters k and samples i; larger is better.

    Zhang and Jia 2022. A metric receives copies, so it may change gradients and weights.

    Args:
        network: the untrained network, in train mode.
        images: (m, C, H, W).
        labels: (m,) int64.
    """
    parameters = list(network.parameters())
    signs = [torch.zeros_like(parameter) for parameter in parameters]
    for image, label in zip(images.split(1), labels.split(1), strict=True):
        loss = F.cross_entropy(network(image), label)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        for total, gradient in zip(signs, gradients, strict=True):
            total += gradient.sign()
    return float(sum(total.abs().sum() for total in signs))


if __name__ == "__main__":
    import sys

    import archray

    result = archray.search("hnas", proxy=f"{__file__}:grad_sign", data="digits", preset="smoke", out=sys.argv[1])
    print(result.architecture, result.test_accuracy)
