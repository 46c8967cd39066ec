"""A Gram matrix of features rounded to 8 bits: a preconditioner at a quarter of float32's cost on CPUs with VNNI."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from archray.trainables.feature_maps.features import DenseFeatures, blocks
from archray.trainables.feature_maps.gram_matrix import BlasGram

# oneDNN's kernels for CPUs without VNNI add 128 to one operand and sum two products in 16 bits, where they saturate
# without a word: 79 is the most with (79 + 128) * 79 * 2 < 2^15, exact on every CPU.
LEVELS = 79
PANEL = 768  # rows of a panel of the triangle: wide enough for the BLAS, and little beyond the diagonal is computed
LONGEST = 2**31 // LEVELS**2  # products whose sum an int32 holds
QUANTISED_ROWS = 256  # at once, within the cache


def int8_gram(features: DenseFeatures, *, dual: bool) -> BlasGram:
    """Centred Gram matrix (d, d), or kernel (n, n) if `dual`, of features rounded to 8 bits; float32, on the CPU.

    The rounding error of a feature is at most 1/158 of the largest; centred with the rounded features' own mean, the
    matrix stays positive semidefinite.
    """
    rounded, scale, sums = quantise(features.matrix)
    vectors = rounded.T if dual else rounded  # (long, m)
    length, size = vectors.shape
    gram = BlasGram(size, torch.float32)
    lower = torch.from_numpy(gram.matrix.T)  # the upper triangle of the C-ordered view is the lower of the other
    for part in blocks(length, LONGEST):
        for columns in blocks(size, PANEL):
            panel = vectors[part, columns].T
            # Private to torch, and public nowhere: the one product of bytes that it has for CPUs.
            lower[columns, columns.start :] += torch._int_mm(panel, vectors[part, columns.start :])
    gram.matrix *= np.float32(scale**2)
    if dual:
        gram.centre()
    else:
        gram.subtract_mean(sums * (scale / length), length)
    return gram


def quantise(matrix: Tensor) -> tuple[Tensor, float, Tensor]:
    """Whole numbers (n, d) int8, the scale with which they are about `matrix`, and their sums (d,) float64."""
    low, high = torch.aminmax(matrix)
    scale = max(-float(low), float(high)) / LEVELS or 1.0
    rounded = torch.empty(matrix.shape, dtype=torch.int8)
    sums = torch.zeros(matrix.shape[1], dtype=torch.float64)
    for rows in blocks(len(matrix), QUANTISED_ROWS):
        block = (matrix[rows] * (1 / scale)).round_()
        rounded[rows] = block
        sums += block.sum(0)
    return rounded, scale, sums
