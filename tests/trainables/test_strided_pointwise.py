"""No network of archray has a strided 1 x 1 convolution, for which oneDNN's AVX2 kernel writes beyond its memory."""

import json
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from archray.trainables.nets import NetworkSettings, build
from archray.trainables.nets.build_network import NETWORKS
from archray.trainables.nets.darts_network import OPERATIONS, every_second_pixel
from archray.trainables.spaces import SPACES, get_space
from archray.trainables.supernets.networks import SUPERNETS, build_supernet

# Prints, per number of channels, the largest deviation of a gradient from float64 over eight rounds.
DEVIATIONS = """
import copy, json, torch
from archray.trainables.nets.darts_network import FactorizedReduce

torch.set_num_threads(1)  # with more the broken kernel may wait for ever
generator = torch.Generator().manual_seed(0)

def gradients(module, x, along):
    x = x.requires_grad_()
    return torch.autograd.grad(module(x), [x, *module.parameters()], along)

largest = {}
for channels in range(2, 8):
    module = FactorizedReduce(channels, 2 * channels, "search").to(memory_format=torch.channels_last)
    exact = copy.deepcopy(module).double()
    for _ in range(8):
        x = torch.randn(16, channels, 8, 8, generator=generator).to(memory_format=torch.channels_last)
        along = torch.randn(16, 2 * channels, 4, 4, generator=generator).to(memory_format=torch.channels_last)
        pairs = zip(gradients(module, x, along), gradients(exact, x.detach().double(), along.double()), strict=True)
        found = max(float((one - other).abs().max() / other.abs().max()) for one, other in pairs)
        largest[channels] = max(found, largest.get(channels, 0.0))
print(json.dumps(largest))
"""


def kernels_and_strides(module: nn.Module) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Kernel and stride of the convolutions."""
    return {(layer.kernel_size, layer.stride) for layer in module.modules() if isinstance(layer, nn.Conv2d)}


def strided_pointwise(module: nn.Module) -> bool:
    return any(max(kernel) == 1 and max(stride) > 1 for kernel, stride in kernels_and_strides(module))


@pytest.mark.slow
def test_gradients_of_a_factorized_reduction_under_avx2() -> None:
    # Since glibc 2.34 MALLOC_CHECK_ needs the library. Without it the linker prints a warning and continues.
    checked = {"MALLOC_CHECK_": "3", "LD_PRELOAD": "libc_malloc_debug.so.0"}
    environment = {**os.environ, **checked, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    ended = subprocess.run(
        [sys.executable, "-c", DEVIATIONS], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    largest = json.loads(ended.stdout)
    assert list(largest) == list("234567")
    assert max(largest.values()) < 1e-4


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 8), (9, 9)])
def test_every_second_pixel_is_a_slice(size: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *size, dtype=torch.float64).to(memory_format=torch.channels_last).requires_grad_()
    found = every_second_pixel(x)
    assert torch.equal(found, x[..., ::2, ::2])
    (gradient,) = torch.autograd.grad(found.square().sum(), x)
    (expected,) = torch.autograd.grad(x[..., ::2, ::2].square().sum(), x)
    assert torch.equal(gradient, expected)
    assert gradient.stride() == x.stride()


def test_the_check_detects_such_a_convolution() -> None:
    assert strided_pointwise(nn.Sequential(nn.Conv2d(2, 2, 3, 2), nn.Conv2d(2, 2, 1, (1, 2))))
    assert not strided_pointwise(nn.Sequential(nn.Conv2d(2, 2, 3, 2), nn.Conv2d(2, 2, 1)))


# Those of a package have them, but with enough channels for the kernel (test_nets_timm.py).
@pytest.mark.parametrize("name", [name for name in NETWORKS if get_space(name).package is None])
def test_no_standalone_network_has_one(name: str) -> None:
    space = get_space(name)
    choices = {choice for decision in space.decisions for choice in decision.choices}
    built = set()
    for choice in sorted(choices):  # wherever it can be chosen
        architecture = tuple(choice if choice in d.choices else d.choices[-1] for d in space.decisions)
        for for_scoring in (False, True):
            settings = NetworkSettings(channels=4, cells=1)
            options = {"in_channels": 3, "num_classes": 2, "seed": 0, "for_scoring": for_scoring}
            built.add(build(space, architecture, network=settings, **options))
        if name.startswith("darts"):
            large = settings.model_copy(update={"stem": "imagenet", "auxiliary": True})
            built.add(build(space, architecture, network=large, in_channels=3, num_classes=2, seed=0))
    assert not any(strided_pointwise(network) for network in built)
    assert set.union(*map(kernels_and_strides, built))


@pytest.mark.parametrize("partial", [1, 2])
@pytest.mark.parametrize("name", [name for name in SUPERNETS if name in SPACES])
def test_no_supernet_has_one(name: str, partial: int) -> None:
    supernet = build_supernet(name, NetworkSettings(channels=4, cells=1), 3, 2, seed=0, partial_channels=partial)
    assert not strided_pointwise(supernet)
    assert len(kernels_and_strides(supernet)) > 1


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("form", ["search", "training", "scoring"])
def test_no_operation_of_darts_has_one(form: str, stride: int) -> None:
    assert not any(strided_pointwise(make(4, stride, form)) for make in OPERATIONS.values())
