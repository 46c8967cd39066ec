"""Choices inside models that exist: torchvision's ResNet-18 and MobileNetV3, and a vision transformer of timm.

    archray check examples/existing_models.py:resnet18
    archray search rs-ws --space examples/existing_models.py:resnet18 --data digits --preset smoke

A layer keeps its weights when it becomes an alternative, and when its size becomes a `Width`. So a pretrained model can
be searched around.
"""

from __future__ import annotations

import torchvision
from torch import nn

from archray import Choice, Width


def resnet18(in_channels: int, num_classes: int) -> nn.Module:
    """ResNet-18 for small images: whether each second block exists, and the inner width of each first block."""
    net = torchvision.models.resnet18(num_classes=num_classes)
    net.conv1, net.maxpool = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False), nn.Identity()
    for number in (1, 2, 3, 4):
        stage = getattr(net, f"layer{number}")
        most = stage[0].conv1.out_channels
        width = Width([most // 4, most // 2, most], name=f"layer{number}.0.width")
        stage[0].conv1.out_channels = stage[0].bn1.num_features = stage[0].conv2.in_channels = width
        stage[1] = Choice({"basic": stage[1], "skip": nn.Identity()}, name=f"layer{number}.1")
    return net


def mobilenet_v3_small(in_channels: int, num_classes: int) -> nn.Module:
    """MobileNetV3 for small images: the kernel of each depthwise convolution."""
    net = torchvision.models.mobilenet_v3_small(num_classes=num_classes)
    net.features[0][0] = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
    for number, block in enumerate(net.features[1:-1], 1):
        [layer] = (part for part in block.block if isinstance(part, nn.Sequential) and part[0].groups > 1)
        channels, stride = layer[0].out_channels, layer[0].stride
        kernels = {
            f"{k}x{k}": nn.Conv2d(channels, channels, k, stride, k // 2, groups=channels, bias=False) for k in (3, 5, 7)
        }
        layer[0] = Choice(kernels, name=f"kernel{number}")
    return net


def vit(in_channels: int, num_classes: int) -> nn.Module:
    """A vision transformer of timm for images of 32 pixels: heads, MLP width and existence of each block."""
    import timm

    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 96, "depth": 4, "num_heads": 3}
    net = timm.models.VisionTransformer(in_chans=in_channels, num_classes=num_classes, **sizes)
    for number, block in enumerate(net.blocks):
        heads = Width([1, 2, 3], name=f"heads{number}")
        attention, inner = block.attn, heads * block.attn.head_dim
        attention.num_heads, attention.attn_dim, attention.proj.in_features = heads, inner, inner
        attention.qkv.out_features = 3 * inner  # queries, keys and values of the first heads
        hidden = Width([96, 192, 384], name=f"mlp{number}")
        block.mlp.fc1.out_features = block.mlp.fc2.in_features = hidden
        net.blocks[number] = Choice({"block": block, "skip": nn.Identity()}, name=f"block{number}")
    return net
