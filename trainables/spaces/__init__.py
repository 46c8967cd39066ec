"""Search spaces in pure Python. Imports no torch."""

import inspect
from typing import Any

from archray.errors import InvalidInput
from archray.objects import reference_of
from archray.references import call_reference, is_reference, load_reference
from archray.registry import import_modules
from archray.trainables.spaces.constrained_space import ConstrainedSpace
from archray.trainables.spaces.darts import DARTS, DARTSWithNone, NASNet
from archray.trainables.spaces.feature_map import Activations, FeatureMapSpace, Fourier, LogUniform, NGrams
from archray.trainables.spaces.nasbench1shot1 import (
    NASBench1Shot1,
    NASBench1Shot1Space1,
    NASBench1Shot1Space2,
    NASBench1Shot1Space3,
)
from archray.trainables.spaces.nasbench201 import NASBench201
from archray.trainables.spaces.space import SPACES, Architecture, Decision, Space
from archray.trainables.spaces.table_space import PREFIX, TableSpace, open_table_space
from archray.trainables.spaces.timm import TimmConvNeXts, TimmFamily, TimmResNets
from archray.trainables.spaces.vit import VisionTransformers

import_modules(__name__)

__all__ = [
    "DARTS",
    "SPACES",
    "Activations",
    "Architecture",
    "ConstrainedSpace",
    "DARTSWithNone",
    "Decision",
    "FeatureMapSpace",
    "Fourier",
    "LogUniform",
    "NASBench1Shot1",
    "NASBench1Shot1Space1",
    "NASBench1Shot1Space2",
    "NASBench1Shot1Space3",
    "NASBench201",
    "NASNet",
    "NGrams",
    "Space",
    "TableSpace",
    "TimmConvNeXts",
    "TimmFamily",
    "TimmResNets",
    "VisionTransformers",
    "get_space",
    "space_name",
]


def is_custom_space(name: str) -> bool:
    """Whether a name refers to a custom space, not to a registered space or a table."""
    family = name.partition(":")[0] + ":"  # of registered names such as timm:resnet, which is not a custom module
    registered = name in SPACES or any(space.startswith(family) for space in SPACES)
    return is_reference(name) and not registered and not name.startswith(PREFIX)


def space_name(space: Any) -> str:
    """Returns the name of a space, or a reference to it.

    Args:
        space: a name or reference, which is returned unchanged; or a custom space: a model with choices, a function
            that returns one, a `ModelSpace`, a `Space` or a class of spaces, also from a notebook.

    Raises: InvalidInput for another object, or as `reference_of`.
    """
    if isinstance(space, str):
        return space
    for name in SPACES:
        if space is SPACES.get(name) or (isinstance(space, Space) and space == SPACES.get(name)()):
            return name
    if not callable(space) and not isinstance(space, Space):
        raise InvalidInput(
            f"expected space to be a name ('archray list spaces'), a reference such as path.py:Class, a function of a "
            f"model with choices, or a Space, got {space!r}"
        )
    return reference_of(space, "space")


def get_space(name_or_reference: str | Space) -> Space:
    """Returns a space by name, or a custom space by reference. A `Space` is returned unchanged.

    Args:
        name_or_reference: A registered name; or `module:attribute` / `path.py:attribute`, a model with choices or a
            function that returns one (`ModelSpace`), a `Space` class without required arguments, or an instance; or
            `table:FILE`, a table with one architecture per row.

    Raises: UnknownName for an unknown name or reference; InvalidInput if the reference or table is not a space.

    Example:
        ```python
        space = get_space("nasbench201")
        architecture = space.sample(np.random.default_rng(0))
        print(space.encode(space.canonical(architecture)))
        ```
    """
    if isinstance(name_or_reference, Space):
        return name_or_reference
    if name_or_reference.startswith(PREFIX):
        return open_table_space(name_or_reference)
    if not is_custom_space(name_or_reference):
        return SPACES.get(name_or_reference)()
    space = load_reference(name_or_reference)
    if isinstance(space, type) and issubclass(space, Space):
        try:
            inspect.signature(space).bind()
        except TypeError as error:
            raise InvalidInput(
                f"expected a space class without required arguments, got {name_or_reference!r} ({error}). "
                "Name an instance of it"
            ) from error
        space = call_reference(name_or_reference, space)
    if callable(space) and not isinstance(space, Space):
        from archray.trainables.model_space import model_space  # which imports torch

        return model_space(space)
    if not isinstance(space, Space):
        raise InvalidInput(
            f"Expected a function of a model with choices, or an archray.trainables.spaces.Space, as "
            f"{name_or_reference!r}, got {type(space).__name__}. Name such a function, class or instance"
        )
    for attribute in ("name", "decisions"):
        if not getattr(space, attribute, None):
            raise InvalidInput(
                f"expected the attribute {attribute} in the space {name_or_reference!r}. Set it in the class"
            )
    space.check_strings()
    return space
