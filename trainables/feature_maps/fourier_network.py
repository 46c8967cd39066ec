"""Random Fourier features and their linear model as one torch module, which becomes a graph. Note W2.

Its text is copied into an exported source: it uses torch alone.
"""

import math

import torch
from torch import Tensor, nn


class FourierNetwork(nn.Module):
    """Images (n, C, H, W) of p numbers each to decision values (n, K): sqrt(2/d) cos(s B x' + b) by a linear model.

    x' is the image less `shift`, divided by `width`, (p,) each, and then, if `unit_length`, scaled to length 1.
    """

    def __init__(self, inputs: int, dimension: int, classes: int, *, unit_length: bool) -> None:
        super().__init__()
        self.unit_length = unit_length
        self.shift = nn.Buffer(torch.zeros(inputs))
        self.width = nn.Buffer(torch.ones(inputs))
        self.scale = nn.Buffer(torch.ones(()))  # s, of the kernel's bandwidth
        self.basis = nn.Buffer(torch.zeros(inputs, dimension))  # B, transposed
        self.offset = nn.Buffer(torch.zeros(dimension))  # b
        self.weights = nn.Parameter(torch.zeros(dimension, classes))
        self.intercept = nn.Parameter(torch.zeros(classes))

    def forward(self, images: Tensor) -> Tensor:
        x = (images.flatten(1) - self.shift) / self.width  # (n, p)
        if self.unit_length:
            length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
            x = x / torch.where(length > 0, length, torch.ones_like(length))
        features = torch.cos((x * self.scale) @ self.basis + self.offset)  # (n, d)
        return features * math.sqrt(2 / self.basis.shape[1]) @ self.weights + self.intercept
