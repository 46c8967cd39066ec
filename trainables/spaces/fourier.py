"""Random Fourier features of images. Khodak et al. 2020, appendix B.2.1; Rahimi and Recht 2008."""

from __future__ import annotations

from typing import ClassVar

from archray.trainables.spaces.feature_map import FeatureMapSpace, LogUniform
from archray.trainables.spaces.space import SPACES, Decision


@SPACES.register("fourier")
class Fourier(FeatureMapSpace):
    """Random Fourier features: which kernel, after which preprocessing, at which bandwidth gamma.

    The kernels are exp(-gamma ||x - y||_2^2) (gaussian) and exp(-gamma ||x - y||_1) (laplace). Pixels are left alone
    (none), scaled to 0..1 per pixel (minmax), scaled to length 1 per image (normalise), or standardised per pixel
    (standard). gamma is continuous: a grid has only 56 maps, too few for the paper's 256 candidates.
    """

    name: ClassVar[str] = "fourier"
    decisions = (
        Decision("kernel", ("gaussian", "laplace")),
        Decision("preprocess", ("none", "minmax", "normalise", "standard")),
    )
    constant = LogUniform("gamma", 1e-5, 10.0)
