"""Metrics from responses to images (gradients, ReLU states, feature maps), and from weights and size."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from archray.registry import LazyModule
from archray.trainables.proxies.registry import PROXIES, NoScore, proxy

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from archray.trainables.nets import build_network
    from archray.trainables.proxies import layers
    from archray.trainables.proxies.shared_pass import SharedPass
else:
    torch, build_network = LazyModule("torch"), LazyModule("archray.trainables.nets.build_network")
    layers = LazyModule("archray.trainables.proxies.layers")

OFFSET = 1e-5  # k in the papers of jacov and epe_nas: keeps logarithms finite
MANY_CLASSES = 100  # tau of epe_nas: with more classes, it compares classes with each other
ALPHA = 0.01  # size of zen's perturbation, from the authors' program


def correlations(rows: Tensor) -> Tensor:
    """Computes (m, m) float64, Pearson's correlations of `rows` (m, d).

    Raises: NoScore if a row is constant or not finite.
    """
    centered = rows.double() - rows.double().mean(1, keepdim=True)
    norms = centered.norm(dim=1, keepdim=True)
    if not bool((norms > 0).all() and norms.isfinite().all()):
        raise NoScore("the gradient of the output by an image is constant or not finite, so it has no correlations")
    centered /= norms
    return (centered @ centered.T).clamp(-1, 1)


def divergence(matrix: Tensor) -> float:
    """Computes -sum_i [log(v_i + k) + 1 / (v_i + k)], v the eigenvalues of the correlation matrix and k = 1e-5.

    The maximum is -m, where all correlations are zero. matrix: (m, m) symmetric.
    """
    shifted = torch.linalg.eigvalsh(matrix.double()) + OFFSET
    if not bool((shifted > 0).all()):
        raise NoScore(
            f"the correlations of the gradients by the images have an eigenvalue of {shifted[0] - OFFSET:.3g}"
        )
    return -float((shifted.log() + 1 / shifted).sum())


@PROXIES.register("jacov")
@proxy(
    direction="max",
    summary="Lack of correlation between the gradients by the images",
    source="Mellor et al. 2021, in its first version (arXiv:2006.04647v1)",
    reads="images",
)
def jacov(shared: SharedPass) -> float:
    return divergence(correlations(shared.image_gradients))


def class_correlations(rows: Tensor, labels: Tensor, num_classes: int) -> float:
    """Computes sum over c of |e_c| with e_c = sum_ij log(|R^c_ij| + k), R^c the correlations of class c, k = 1e-5.

    With more than 100 classes: the mean over c of sum over c' of |e_c / n_c - e_c' / n_c'|, n_c images of class c. As
    in the authors' program, each pair of classes counts twice; in the paper once.

    Args:
        rows: (m, d) gradients by the images.
        labels: (m,).
        num_classes: Number of classes of the data, not of the batch.

    Raises: NoScore if no class has two images.
    """
    classes, counts = labels.unique(return_counts=True)
    several = [label for label, number in zip(classes.tolist(), counts.tolist(), strict=True) if number > 1]
    if not several:
        raise NoScore(
            f"expected two images of one class in the batch, got {len(labels)} images of different classes; "
            "take a larger batch"
        )
    # A single image correlates only with itself: log(1 + k), which the authors include with few classes.
    many = num_classes > MANY_CLASSES
    scores = []
    for label in several if many else classes.tolist():
        matrix = correlations(rows[labels == label]).abs()
        scores.append((matrix + OFFSET).log().sum() / (len(matrix) if many else 1))
    e = torch.stack(scores)
    return float((e[:, None] - e).abs().sum() / len(e) if many else e.abs().sum())


@PROXIES.register("epe_nas")
@proxy(
    direction="max",
    summary="Correlation between the gradients by the images within classes",
    source="Lopes et al. 2021, sec. 3 (EPE-NAS)",
)
def epe_nas(shared: SharedPass) -> float:
    return class_correlations(shared.image_gradients, shared.labels, shared.record.logits.shape[1])


def log_determinant(states: Sequence[Tensor]) -> float:
    """Computes log |det K|, where K_ij is the number of ReLU units in the same state for samples i and j.

    Args:
        states: For each ReLU module (m, units), whether its units are active.

    Returns: -inf for a singular K (equal samples).

    Raises: NoScore without states.
    """
    if not states:
        raise NoScore("expected a network with nn.ReLU modules, got none, so there are no states to count")
    m = len(states[0])
    kernel = torch.zeros(m, m, dtype=torch.float64, device=states[0].device)
    for state in states:
        on = state.float()  # counts are exact in float32 up to 2^24 units
        both = on @ on.T
        count = both.diagonal()
        kernel += (state.shape[1] - count[:, None] - count[None, :] + 2 * both).double()
    return float(torch.linalg.slogdet(kernel)[1])


@PROXIES.register("naswot")
@proxy(
    direction="max",
    summary="Log determinant of the kernel of ReLU states",
    source="Mellor et al. 2021, sec. 4",
    reads="images",
)
def naswot(shared: SharedPass) -> float:
    return log_determinant([(call.output > 0).flatten(1) for call in shared.record.relus])


def zen_score(network: nn.Module, images: Tensor, seed: int) -> float:
    """Computes log E||f(x) - f(x + alpha e)||_1 + sum over batch normalizations of log sigma, Alg. 1. It reads no data.

    It uses a copy of the network in train mode with standard normal weights (biases 0; normalizations 1 and 0). x, e:
    standard normal, with the shape of `images` (m, C, H, W). f: the last feature map, the input of global average
    pooling. sigma: root of the mean over channels of the variance of a normalization's input when f(x) is computed.
    The norm is a sum of absolute differences, as in the authors' program (Alg. 1: Frobenius norm), of one draw
    instead of the mean of 32. Skip connections, which the authors remove, are kept, because they are choices of a cell.

    Args:
        seed: Seed of weights, x and e.

    Raises: NoScore if the network has no feature map, has layer normalizations, or the input of a batch normalization
        does not vary.
    """
    if any(isinstance(module, torch.nn.LayerNorm) for module in network.modules()):
        raise NoScore(
            "expected a network without layer normalizations, which remove the scale that zen adds over batch "
            "normalizations. Choose another metric"
        )
    network = copy.deepcopy(network).train()
    generator = torch.Generator().manual_seed(seed)

    def normal(like: Tensor) -> Tensor:  # drawn on the CPU, so that all devices get the same numbers
        return torch.randn(like.shape, generator=generator).to(like)

    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, layers.WEIGHT_LAYERS):
                module.weight.copy_(normal(module.weight))
            elif isinstance(module, layers.BATCH_NORMS) and module.affine:
                module.weight.fill_(1.0)
            if isinstance(module, (*layers.WEIGHT_LAYERS, *layers.BATCH_NORMS)) and module.bias is not None:
                module.bias.zero_()
        x = normal(images)
        features, variances = _features(network, x)
        moved, _ = _features(network, x + ALPHA * normal(images))
        distance = (features - moved).abs().flatten(1).sum(1).mean()
    scales = torch.stack([distance, *(variance.sqrt() for variance in variances)])
    if not bool((scales > 0).all()):
        raise NoScore(
            "the features, or the input of a batch normalization, do not vary, so that their scale has no logarithm"
        )
    return float(scales.double().log().sum())


def _features(network: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Returns f(x), (m, C, H, W), and the mean channel variance of each batch normalization's input, in order."""
    maps: list[Tensor] = []
    variances: list[Tensor] = []

    def note_map(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor) and output.ndim == 4 and output[0, 0].numel() > 1:
            maps[:] = [output.clone()]  # the network may change it in place

    def note_variance(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        variances.append(inputs[0].transpose(0, 1).flatten(1).var(1, correction=0).mean())  # (C,) and its mean

    handles = [module.register_forward_hook(note_map) for module in network.modules()]
    handles += [
        module.register_forward_pre_hook(note_variance)
        for module in network.modules()
        if isinstance(module, layers.BATCH_NORMS)
    ]
    try:
        network(x)
    finally:
        for handle in handles:
            handle.remove()
    if not maps:
        raise NoScore("expected a module with a feature map (m, channels, height, width) as its output, got none")
    return maps[0], variances


@PROXIES.register("zen")
@proxy(
    direction="max",
    summary="Change of the features under a Gaussian perturbation of the input, without the scaling of normalizations",
    source="Lin et al. 2021",
    reads="nothing",
)
def zen(shared: SharedPass) -> float:
    return zen_score(shared.network, shared.images, shared.settings.seed)


# Weights and size, without images and labels -------------------------------------------------------------------------


@PROXIES.register("l2_norm")
@proxy(
    direction="max",
    summary="Norm of the weights at initialization",
    source="Krishnakumar et al. 2022 (NAS-Bench-Suite-Zero)",
    reads="nothing",
)
def l2_norm(shared: SharedPass) -> float:
    """sum over l of ||theta_l||_2, where theta_l is the weight of a convolution or linear layer.

    If every weight has a variance of 1 / fan_in, a layer's norm is about the root of its width.
    """
    return float(torch.stack([weight.detach().double().norm() for weight in shared.record.weights]).sum())


def synaptic_flow(network: nn.Module, image: Tensor, variant: Literal["no-bn", "bn"] = "no-bn") -> float:
    """Computes the sum over weights of |theta| dR/d|theta|, R = 1^T f(1; |theta|), the summed outputs for ones.

    It uses the weights of convolutions and linear layers in a copy with the absolute values of all parameters, in
    float64 (note H1). `no-bn`: without batch normalizations, as in Abdelfattah et al. (2021); `bn`: with them.

    Args:
        image: (C, H, W), any image of the right shape.

    Raises: NoScore if the network has layer normalizations.
    """
    if any(isinstance(module, torch.nn.LayerNorm) for module in network.modules()):
        raise NoScore(
            "expected a network without layer normalizations, which subtract the mean, so that absolute weights have "
            "no positive flow. Choose another metric"
        )
    linear = copy.deepcopy(network).double().train()
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.requires_grad_(True).abs_()
    if variant == "no-bn":
        for module in linear.modules():
            if isinstance(module, layers.BATCH_NORMS):
                # not by a hook, which runs after the forward: one image in a map of 1 x 1 cannot be normalized
                module.forward = _pass_through  # type: ignore[assignment, method-assign]
    ones = torch.ones(1, *image.shape, dtype=torch.float64, device=image.device)
    with torch.enable_grad():
        flow = linear(ones).sum()
    weights = [module.weight for module in linear.modules() if isinstance(module, layers.WEIGHT_LAYERS)]
    gradients = torch.autograd.grad(flow, weights, allow_unused=True, materialize_grads=True)
    return float(sum((weight.detach() * gradient).sum() for weight, gradient in zip(weights, gradients, strict=True)))


def _pass_through(x: Tensor) -> Tensor:
    return x


@PROXIES.register("synflow")
@proxy(
    direction="max",
    summary="Synaptic flow of the network with absolute weights",
    source="Tanaka et al. 2020; Abdelfattah et al. 2021; note H1",
    reads="nothing",
)
def synflow(shared: SharedPass) -> float:
    return synaptic_flow(shared.network, shared.images[0], shared.settings.synflow)


@PROXIES.register("parameters")
@proxy(direction="max", summary="Number of parameters, a baseline for all other metrics", reads="nothing")
def parameters(shared: SharedPass) -> float:
    return float(build_network.count_parameters(shared.network))


@PROXIES.register("multiply_adds")
@proxy(
    direction="max",
    summary="Multiply-adds for one image (FLOPs in papers), a baseline for all other metrics",
    reads="nothing",
)
def multiply_adds(shared: SharedPass) -> float:
    channels, height, width = shared.images.shape[1:]
    return float(build_network.count_multiply_adds(shared.network, (channels, height, width)))
