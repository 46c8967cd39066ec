"""The text of a network, a family of spaces each, and the file that holds it with the layers that it uses."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from archray.errors import InvalidInput
from archray.platform.models.source.plain_layers import LAYERS
from archray.registry import Registry
from archray.trainables.feature_maps.fourier_network import FourierNetwork
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import Architecture, Space, TableSpace, get_space

WIDTH = 110  # of a line of an architecture in a docstring


@dataclass(frozen=True)
class Described:
    """A network: what `build` makes it of."""

    space: Space
    architecture: Architecture
    network: NetworkSettings
    in_channels: int
    num_classes: int

    @classmethod
    def of(cls, described: dict[str, Any], space: str | Space) -> Described:
        """described: `architecture`, `network`, `in_channels`, `num_classes`, as the description of a model has them.

        Raises: InvalidInput for a form of normalisation that a plain network has not.
        """
        network = NetworkSettings(**described["network"])
        if network.normalisation == "scoring":
            raise InvalidInput(
                "expected network.normalisation auto or training, as a source normalises by running statistics, got "
                "scoring; choose another format"
            )
        if described.get("drop_path") is not None:
            raise InvalidInput(
                "a network that drops paths at random to predict (mc-droppath) has no plain source; choose another "
                "format: torch-export, state-dict or safetensors"
            )
        space = get_space(space)
        architecture = space.decode(described["architecture"])
        if isinstance(space, TableSpace) and space.base is not None:  # as `build`
            space = space.base
        return cls(space, architecture, network, described["in_channels"], described["num_classes"])

    @property
    def arguments(self) -> str:
        """The defaults of a network's arguments."""
        return (
            f"in_channels: int = {self.in_channels}, num_classes: int = {self.num_classes}, "
            f"channels: int = {self.network.channels}, cells: int = {self.network.cells}"
        )

    @property
    def spelt(self) -> str:
        """The architecture's string as lines of a docstring of a class."""
        text = self.space.encode(self.architecture)
        lines = textwrap.wrap(text, WIDTH, break_long_words=True, break_on_hyphens=False)
        return "\n    ".join(lines)


# A network -> the text of its classes; the last one's name is `Network` and the suffix.
SOURCES: Registry[Callable[[Described, str], str]] = Registry("plain source")


def source_of(described: Described, suffix: str = "") -> str:
    """The classes of a network, `Network` and what it uses, their names with a suffix.

    Raises: InvalidInput for a space that has none: of the user's own, which builds its networks itself, or of another
    package's modules.
    """
    name = described.space.name
    if hasattr(described.space, "build") or name not in SOURCES:
        package = described.space.package
        instead = "take the file that builds it, and" if package is None else f"its modules are {package}'s; take"
        raise InvalidInput(
            f"expected a network of {', '.join(SOURCES)} for the format python, got one of {name}, whose source "
            f"archray does not write; {instead} another format: torch-export, onnx, state-dict or safetensors"
        )
    return SOURCES.get(name)(described, suffix)


def module_table(modules: Mapping[str, str]) -> str:
    """A dictionary of modules, as the argument of a call: `({})`, or a line an entry."""
    entries = "".join(f'\n{16 * " "}"{key}": {module},' for key, module in modules.items())
    return f"(\n{12 * ' '}{{{entries}\n{12 * ' '}}}\n{8 * ' '})" if modules else "({})"


def source_file(title: str, networks: Sequence[str], build: str) -> str:
    """A whole file: imports, the layers that the networks use, the networks, and `build()`.

    Args:
        title: the docstring of the file. build: the expression that makes the model.
    """
    classes = "\n\n\n".join(network.strip() for network in networks)
    body = f"{_layers(classes)}{classes}\n\n\n" + _BUILD.replace("EXPRESSION", build)
    imports = [
        line
        for line, used in (
            ("import math\n", r"\bmath\."),
            ("import torch", r"\btorch\."),
            ("from torch import Tensor, nn", r"\bnn\."),
            ("from torch.nn import functional", r"\bfunctional\."),
        )
        if re.search(used, body)
    ]
    return f'"""{title}"""\n\nfrom __future__ import annotations\n\n' + "\n".join(imports) + f"\n\n\n{body}"


def fourier_file(title: str, network: FourierNetwork) -> str:
    """The file of a feature map of images and its linear model."""
    inputs, dimension = network.basis.shape
    arguments = f"{inputs}, {dimension}, {len(network.intercept)}, unit_length={network.unit_length}"
    return source_file(title, [inspect.getsource(FourierNetwork)], f"FourierNetwork({arguments})")


_BUILD = '''def build() -> nn.Module:
    """The model in evaluation mode, with weights of its own drawing; `state_dict.pt` has those that were trained."""
    return EXPRESSION.eval()
'''


def _layers(text: str) -> str:
    """The layers that a text uses, and that those use, in order."""
    used: set[str] = set()
    for layer in reversed(LAYERS):
        source = inspect.getsource(layer)
        if re.search(rf"\b{layer.__name__}\b", text):
            used.add(layer.__name__)
            text += source
    return "".join(f"{inspect.getsource(layer).strip()}\n\n\n" for layer in LAYERS if layer.__name__ in used)
