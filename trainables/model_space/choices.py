"""Choices inside a model: alternatives, depth, inputs and widths. They make a search space of any `nn.Module`.

Modules with the same `name` are one decision. Outside a supernet a model with choices computes its default network:
the first alternative, the first inputs, the largest depth and the largest width.
"""

import itertools
import math
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.supernets.networks.cells import (
    bypass_channels,
    operation_channels,
    operation_width,
    shuffle,
    weighted_sum,
)
from archray.trainables.supernets.networks.supernet import LEFT_OUT, NONE, Offer, Rows

MOST_CHOICES = 10_000  # of a decision; more are a mistake, and exhaust the memory
LARGEST_WIDTH = 2**24  # channels; as `MOST_CHOICES`

Modules = Mapping[str, nn.Module | Callable[[int], nn.Module]]

_partial_channels: ContextVar[int] = ContextVar("partial_channels", default=1)  # of the supernet that is being built
reached_choices: ContextVar[list["ChoiceModule"] | None] = ContextVar("reached", default=None)  # see `check_forward`
isolated_choices: ContextVar[frozenset["ChoiceModule"]] = ContextVar(
    "isolated", default=frozenset()
)  # they copy inputs
_probing: ContextVar[bool] = ContextVar("probing", default=True)  # False while an offer of a probe is evaluated


def _check_name(kind: str, name: object) -> None:
    if not isinstance(name, str) or not name or any(mark in name for mark in "=|"):
        raise InvalidInput(f"Expected a name without '=' and '|' for {kind}, got {name!r}. Choose another name")


def _integers(values: Any) -> tuple[int, ...] | None:
    """Returns the values as integers; None if they are not a sequence of integers."""
    try:
        return tuple(map(operator.index, values))
    except TypeError:
        return None


@contextmanager
def partial_channels(number: int) -> Iterator[None]:
    """Builds each `Choice` of functions of channels for 1/`number` of its channels (PC-DARTS)."""
    token = _partial_channels.set(number)
    try:
        yield
    finally:
        _partial_channels.reset(token)


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return type(value)(map(_copied, value)) if type(value) in (tuple, list) else value


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | tuple | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


def _versions(value: Any) -> list[int]:
    return [tensor._version for tensor in _tensors(value)]  # torch counts the changes in place


def _storages(value: Any) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in _tensors(value) if tensor.layout == torch.strided}


class ChoiceModule(nn.Module):
    """Base class of modules with a decision.

    Attributes:
        name: Name of the decision; modules with the same name are decided together.
        labels: Choices of the decision.
        default: Choice of a forward pass outside a supernet.
        rows: Weights of the choices during a forward pass of a supernet; None outside.
    """

    rows: Rows | None

    def __init__(self, name: str, labels: Sequence[str]) -> None:
        super().__init__()
        kind = type(self).__name__
        _check_name(kind, name)
        if len(labels) < 2:
            raise InvalidInput(
                f"{kind} {name!r}: Expected two or more choices, got {', '.join(labels) or 'none'}. "
                "Add an alternative, or use the module without a choice"
            )
        self.name, self.labels, self.rows = name, tuple(labels), None
        self.default = self.labels[0]
        self._writes: dict[tuple[str, bool], bool] = {}  # branch and its mode -> whether it changes its input in place
        self._sharing: set[str] = set()  # branches whose output shares memory with their input

    def separate(self, branch: str, module: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        """Calls a branch. In a supernet, if it changes its inputs in place, it receives copies: others read them too.

        The first call finds out. Training and evaluation count separately, because of layers such as in-place dropout.
        """
        isolated = self in isolated_choices.get()
        if self.rows is None and not isolated:
            return module(*inputs, **options)
        mode, passed = (branch, getattr(module, "training", False)), (inputs, options)
        if isolated or self._writes.get(mode, True):
            passed = _copied(passed)
        versions = _versions(passed)
        out = module(*passed[0], **passed[1])
        self._writes[mode] = self._writes.get(mode, False) or versions != _versions(passed)
        if isolated and _storages(out) & _storages(passed):
            self._sharing.add(branch)
        return out

    def writers(self) -> list[str]:
        """Returns the branches of the default choice that change their input in place, in the passes so far."""
        written = {branch for (branch, _), writes in self._writes.items() if writes}
        return [branch for branch, _, labels in self.branches() if branch in written and self.default in labels]

    def suspects(self) -> list[str]:
        """Returns the choices with which memory of the input is changed or passed on, in the passes so far."""
        marked = self._sharing | {branch for (branch, _), writes in self._writes.items() if writes}
        used = {label for branch, _, labels in self.branches() if branch in marked for label in labels}
        return [label for label in self.labels if label in used or not any(self.places(label))]

    @property
    def probe(self) -> Callable[[Tensor, Sequence[Offer]], Tensor] | None:
        return None if self.rows is None or not _probing.get() else self.rows.probe

    def weighed(self, out: Tensor, column: int) -> Tensor:
        """Multiplies the only evaluated choice by its weight of 1 if the weight needs a gradient (straight-through)."""
        rows = self.rows
        if rows is None or rows.probe is not None or column == LEFT_OUT or not rows.dense.requires_grad:
            return out
        return weighted_sum([(out, rows.dense[0, column])])

    def chosen_rows(self, label: str) -> Rows:
        """Returns the weights that choose a label."""
        column = self.labels.index(label)
        return Rows(nn.functional.one_hot(torch.tensor([column]), len(self.labels)).float(), (column,))

    def check_shapes(self, outputs: Mapping[str, Any]) -> None:
        """Records that a pass reached this choice. outputs: name -> output, tensors of equal shapes.

        Raises: InvalidInput for other outputs.
        """
        reached = reached_choices.get()
        assert reached is not None
        reached.append(self)
        types = {name: type(out).__name__ for name, out in outputs.items() if not isinstance(out, Tensor)}
        if types:
            raise InvalidInput(
                f"{type(self).__name__} {self.name!r}: Expected one tensor as output, got "
                f"{', '.join(f'{name}: {kind}' for name, kind in types.items())}. Return one tensor"
            )
        shapes = {name: tuple(out.shape) for name, out in outputs.items()}
        if len(set(shapes.values())) > 1:
            raise InvalidInput(
                f"{type(self).__name__} {self.name!r}: Expected outputs of one shape, got "
                f"{', '.join(f'{shape} from {name}' for name, shape in shapes.items())}. Give all the same number of "
                "channels and the same stride"
            )

    @abstractmethod
    def branches(self) -> Iterator[tuple[str, nn.Module, tuple[str, ...]]]:
        """Yields each submodule: its name in this module, the module, and the labels that use it."""

    @abstractmethod
    def resolved(self, label: str) -> nn.Module:
        """Returns the module of a choice, without the choice and without the weights of other choices."""

    @abstractmethod
    def places(self, label: str) -> Iterator[tuple[str, nn.Module]]:
        """Yields the submodules of `resolved(label)`: the name there (empty: the module itself), and the module."""


class Choice(ChoiceModule):
    """Alternatives for one place in a model, with equal input and output shapes.

    The labels are the choices of the decision. An alternative may contain further choices.

    Args:
        alternatives: Label -> module. For methods with partial channels (PC-DARTS): label -> function of the number of
            channels that returns the module, and `channels`.
        name: Name of the decision. All choices with this name take the same label (cells that repeat).
        channels: Number of input and output channels, for alternatives that are functions.

    Raises: InvalidInput for fewer than two alternatives, or a label that cannot be the name of a module.

    Example:
        >>> from torch import nn
        >>> from archray import Choice
        >>> layer = Choice({"conv3": nn.Conv2d(8, 8, 3, padding=1), "skip": nn.Identity()}, name="layer")
    """

    def __init__(self, alternatives: Modules, *, name: str, channels: int | None = None) -> None:
        if not isinstance(alternatives, Mapping | nn.ModuleDict):
            raise InvalidInput(
                f"Choice {name!r}: Expected a dictionary of labels and modules, got "
                f"{type(alternatives).__name__}. Give each module a label"
            )
        for label in alternatives:
            if (
                not isinstance(label, str)
                or not label
                or any(mark in label for mark in "=|.")
                or hasattr(nn.ModuleDict(), label)
            ):
                raise InvalidInput(
                    f"Choice {name!r}: Expected a label that is a text without '=', '|' and '.' and not a method of "
                    f"torch.nn.ModuleDict, got {label!r}. Rename it"
                )
        super().__init__(name, list(alternatives))
        self.partial = _partial_channels.get()
        self.alternatives = nn.ModuleDict()
        for label, alternative in alternatives.items():
            if isinstance(alternative, nn.Module):
                if self.partial > 1:
                    raise InvalidInput(
                        f"Choice {name!r}: Expected alternatives that are functions of channels for partial_channels "
                        f"{self.partial}, got a module for {label!r}. Pass functions and channels, or choose a method "
                        "without partial channels, such as gaea-darts"
                    )
            elif callable(alternative) and isinstance(channels, int):
                alternative = alternative(operation_width(channels, self.partial))
            if not isinstance(alternative, nn.Module):
                raise InvalidInput(
                    f"Choice {name!r}: Expected a torch.nn.Module for {label!r}, got {type(alternative).__name__}. "
                    "Pass a module, or functions of channels together with channels, a number"
                )
            self.alternatives[label] = alternative

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Computes the default alternative; in a supernet the weighted sum, or the chosen one."""
        rows, part = self.rows, inputs
        if self.partial > 1:
            part = (operation_channels(inputs[0], self.partial), *inputs[1:])
        outputs = {
            label: partial(self.separate, f"alternatives.{label}", alternative, *part, **options)
            for label, alternative in self.alternatives.items()
        }
        if reached_choices.get() is not None:
            computed = {label: output() for label, output in outputs.items()}
            self.check_shapes(computed)
            mixed = computed[self.default]
        elif rows is None:
            mixed = outputs[self.default]()
        elif rows.chosen is not None:
            column = rows.chosen[0]
            mixed = self.weighed(outputs[self._chosen(column)](), column)
        else:
            columns = zip(self.columns, rows.dense[0].unbind(), strict=True)
            mixed = weighted_sum([(outputs[label](), weight) for label, weight in columns])
        if (probe := self.probe) is not None:
            offers = [(0, column, partial(_offered, outputs[label])) for column, label in enumerate(self.columns)]
            mixed = probe(mixed, offers)
        if self.partial == 1:
            return mixed
        whole = inputs[0]
        stride = -(-whole.shape[-1] // mixed.shape[-1])
        return shuffle(mixed, bypass_channels(whole, self.partial, stride))

    @property
    def columns(self) -> tuple[str, ...]:
        """The labels of a row's columns: all, or all without `none` if the supernet leaves it out."""
        assert self.rows is not None
        if self.rows.dense.shape[1] == len(self.labels):
            return self.labels
        return tuple(label for label in self.labels if label != NONE)

    def _chosen(self, column: int) -> str:
        return NONE if column == LEFT_OUT and NONE in self.labels else self.columns[column]

    def branches(self) -> Iterator[tuple[str, nn.Module, tuple[str, ...]]]:
        for label, module in self.alternatives.items():
            yield f"alternatives.{label}", module, (label,)

    def resolved(self, label: str) -> nn.Module:
        return self.alternatives[label]

    def places(self, label: str) -> Iterator[tuple[str, nn.Module]]:
        yield "", self.alternatives[label]


class Repeat(ChoiceModule):
    """A chain of blocks whose length is a decision. Shorter chains are the first blocks of longer ones.

    Args:
        block: Function of the block's number, from 0, that returns the block. Its output has the shape of its input.
        depths: Smallest and largest number of blocks; 0 passes the input on.
        name: Name of the decision. Its choices are the numbers of blocks.

    Raises: InvalidInput for depths that are not two increasing numbers.

    Example:
        >>> from torch import nn
        >>> from archray import Repeat
        >>> body = Repeat(lambda number: nn.Conv2d(8, 8, 3, padding=1), (1, 4), name="depth")
    """

    def __init__(self, block: Callable[[int], nn.Module], depths: tuple[int, int], *, name: str) -> None:
        low, high = numbers if (numbers := _integers(depths)) and len(numbers) == 2 else (0, 0)
        if not 0 <= low < high <= MOST_CHOICES:
            raise InvalidInput(
                f"Repeat {name!r}: Expected depths (low, high), two integers with 0 <= low < high <= {MOST_CHOICES}, "
                f"got {depths!r}. Correct the depths"
            )
        super().__init__(name, [str(depth) for depth in range(low, high + 1)])
        self.low, self.default = low, str(high)
        expected = f"Repeat {name!r}: Expected a function of the block's number that returns a torch.nn.Module, got"
        if isinstance(block, nn.Module) or not callable(block):
            raise InvalidInput(
                f"{expected} {type(block).__name__}. Create each block in a function: lambda number: ..."
            )
        blocks = [block(number) for number in range(high)]
        if others := [other for other in blocks if not isinstance(other, nn.Module)]:
            raise InvalidInput(f"{expected} a function that returns {type(others[0]).__name__}. Return the block")
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Computes all blocks; in a supernet the weighted sum over the depths, or the chosen depth."""
        rows = self.rows
        if self in isolated_choices.get():
            x = x.clone()  # which depth 0 returns
        if reached_choices.get() is not None:
            outputs = list(self._outputs(len(self.blocks), x))
            self.check_shapes({f"depth {depth}": out for depth, out in enumerate(outputs)})
            return outputs[int(self.default)]
        if rows is None:
            return self._prefix(int(self.default), x)
        if rows.chosen is not None:
            out = self.weighed(self._prefix(self.low + max(rows.chosen[0], 0), x), rows.chosen[0])
        else:
            outputs = list(self._outputs(len(self.blocks), x))[self.low :]
            out = weighted_sum(list(zip(outputs, rows.dense[0].unbind(), strict=True)))
        if (probe := self.probe) is not None:
            offers = [
                (0, column, partial(_offered, partial(self._prefix, self.low + column), x))
                for column in range(len(self.labels))
            ]
            out = probe(out, offers)
        return out

    def _outputs(self, depth: int, x: Tensor) -> Iterator[Tensor]:
        """Yields the input and the output of each of the first blocks."""
        yield x
        for number, block in enumerate(self.blocks[:depth]):
            yield (x := self.separate(f"blocks.{number}", block, x))

    def _prefix(self, depth: int, x: Tensor) -> Tensor:
        for out in self._outputs(depth, x):
            x = out
        return x

    def branches(self) -> Iterator[tuple[str, nn.Module, tuple[str, ...]]]:
        for number, block in enumerate(self.blocks):
            yield f"blocks.{number}", block, tuple(depth for depth in self.labels if int(depth) > number)

    def resolved(self, label: str) -> nn.Module:
        return nn.Sequential(*self.blocks[: int(label)])

    def places(self, label: str) -> Iterator[tuple[str, nn.Module]]:
        for number, block in enumerate(self.blocks[: int(label)]):
            yield str(number), block


class Edges(ChoiceModule):
    """A node that reads some of several earlier outputs, and sums them.

    A forward pass receives the list of possible inputs. In a supernet every input has a weight, as in PC-DARTS
    (Xu et al. 2020, section 3.3).

    Args:
        edges: The module of each possible input, such as a `Choice` of operations; all have equal output shapes.
        k: Number of inputs that an architecture reads.
        name: Name of the decision. Its choices are the numbers of the inputs: `0,2`.

    Raises: InvalidInput unless k is positive and smaller than the number of inputs.

    Example:
        >>> from torch import nn
        >>> from archray import Edges
        >>> node = Edges([nn.Conv2d(8, 8, 1) for _ in range(3)], k=2, name="node_2")
    """

    def __init__(self, edges: Sequence[nn.Module], *, k: int, name: str) -> None:
        modules = list(edges) if isinstance(edges, Iterable) else [edges]
        if others := [other for other in modules if not isinstance(other, nn.Module)]:
            raise InvalidInput(
                f"Edges {name!r}: Expected a list of torch.nn.Module, one for each input, got "
                f"{type(others[0]).__name__}. Pass a module for each input"
            )
        if _integers([k]) is None or not 1 <= k < len(modules) or math.comb(len(modules), k) > MOST_CHOICES:
            raise InvalidInput(
                f"Edges {name!r}: Expected an integer k between 1 and {len(modules) - 1} for "
                f"{count(len(modules), 'input')}, with up to {MOST_CHOICES} combinations of inputs, got {k!r}. Change "
                "k, or sum the inputs without a choice"
            )
        super().__init__(name, [",".join(map(str, kept)) for kept in itertools.combinations(range(len(modules)), k)])
        self.k = k
        self.edges = nn.ModuleDict({str(number): edge for number, edge in enumerate(modules)})

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Sums the first k inputs; in a supernet the weighted sum of all, or the sum of the chosen ones.

        Args:
            inputs: At least as many as there are edges.
        """
        rows = self.rows
        edges = {name: partial(self.separate, f"edges.{name}", edge) for name, edge in self.edges.items()}
        if reached_choices.get() is not None:
            if not isinstance(inputs, Sequence) or len(inputs) < len(self.edges):
                got = len(inputs) if isinstance(inputs, Sequence) else type(inputs).__name__
                raise InvalidInput(
                    f"Edges {self.name!r}: Expected {count(len(self.edges), 'input')}, one for each edge, got {got}. "
                    "Pass a list of all earlier outputs"
                )
            self.check_shapes({f"input {name}": edge(inputs[int(name)]) for name, edge in edges.items()})
        if rows is None:
            return kept_sum({name: edges[name] for name in self.default.split(",")}, inputs)
        if rows.probe is None:
            # A path, or a drawn input, has weights of 0 that need no gradient: only the other edges are evaluated.
            mixed = rows.dense.requires_grad and rows.chosen is None
            weights = zip(edges.items(), rows.dense[0].unbind(), strict=True)
            terms = [(edge(inputs[int(name)]), weight) for (name, edge), weight in weights if mixed or weight != 0]
            if terms:
                return weighted_sum(terms)
            return kept_sum(edges, inputs) * 0.0  # a branch that the path does not use
        kept = [str(number) for number, weight in enumerate(rows.dense[0].tolist()) if weight]
        out = kept_sum({name: edges[name] for name in kept}, inputs)
        if (probe := self.probe) is not None:
            offers = [(0, int(name), partial(_offered, edge, inputs[int(name)])) for name, edge in edges.items()]
            out = probe(out, offers)
        return out

    def chosen_rows(self, label: str) -> Rows:
        kept = label.split(",")
        return Rows(torch.tensor([[float(name in kept) for name in self.edges]]), (int(kept[0]),))

    def branches(self) -> Iterator[tuple[str, nn.Module, tuple[str, ...]]]:
        for name, edge in self.edges.items():
            yield f"edges.{name}", edge, tuple(label for label in self.labels if name in label.split(","))

    def resolved(self, label: str) -> nn.Module:
        return KeptEdges({name: self.edges[name] for name in label.split(",")})

    def places(self, label: str) -> Iterator[tuple[str, nn.Module]]:
        for name in label.split(","):
            yield f"edges.{name}", self.edges[name]


class KeptEdges(nn.Module):
    """The resolved form of `Edges`: the sum of the chosen inputs."""

    def __init__(self, edges: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.edges = nn.ModuleDict(edges)

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        return kept_sum(dict(self.edges.items()), inputs)


def kept_sum(edges: Mapping[str, Callable[[Tensor], Tensor]], inputs: Sequence[Tensor]) -> Tensor:
    """Returns the sum of the edges of their inputs."""
    return weighted_sum([(edge(inputs[int(name)]), None) for name, edge in edges.items()])


def _offered(module: Callable[..., Tensor], *inputs: Any, **options: Any) -> Tensor:
    token = _probing.set(False)
    try:
        return module(*inputs, **options)
    finally:
        _probing.reset(token)


class Width(int):
    """A number of channels or features that is a decision. Networks share the first channels of the widest one.

    A width is an integer, the largest of `sizes`, so that layers of torch accept it. It may be the size of
    convolutions, linear layers, normalization layers and embeddings, and an attribute such as `num_heads`. It can be
    assigned to a layer that exists: `block.fc1.out_features = Width([64, 128], name="hidden")`.

    Products keep the structure of the channels. `heads * 64` is a block of 64 channels per head, the first heads of
    which are used. `3 * width` are three parts (such as queries, keys and values), the first channels of each of which
    are used. `width // 4` and sums also work.

    Args:
        sizes: Distinct positive numbers.
        name: Name of the decision. Its choices are the sizes.

    Raises: InvalidInput for fewer than two sizes, or sizes that are not distinct and positive.

    Example:
        >>> from torch import nn
        >>> from archray import Width
        >>> width = Width([16, 24, 32], name="width")
        >>> layer = nn.Conv2d(3, width, 3)
        >>> layer.weight.shape[0]
        32
    """

    decisions: Mapping[str, tuple[int, ...]]
    expression: tuple[Any, ...]

    def __new__(cls, sizes: Sequence[int], *, name: str) -> "Width":
        numbers = _integers(sizes) or ()
        if len(set(numbers)) != len(numbers) or min(numbers, default=0) < 1 or len(numbers) < 2:
            raise InvalidInput(
                f"Width {name!r}: Expected two or more distinct positive integers, got {sizes!r}. Correct the sizes"
            )
        _check_name("Width", name)
        return _width(("width", name), {name: numbers})

    def size(self, chosen: Mapping[str, int]) -> int:
        """Returns the number of channels. chosen: decision -> size; the largest size by default."""
        return _size(self.expression, self.decisions, chosen)

    def indices(self, chosen: Mapping[str, int]) -> list[int]:
        """Returns the channels of the widest layer that are used. chosen: as in `size`."""
        own = tuple((name, chosen[name]) for name in self.decisions if name in chosen)
        return _cached(self.expression, tuple(self.decisions.items()), own)

    def __mul__(self, other: int) -> "Width":
        return _combined("product", self, other)

    def __rmul__(self, other: int) -> "Width":
        return _combined("product", other, self)

    def __add__(self, other: int) -> "Width":
        return _combined("sum", self, other)

    def __radd__(self, other: int) -> "Width":
        return _combined("sum", other, self)

    def __floordiv__(self, other: int) -> "Width":
        return self if other == 1 else _combined("quotient", self, other)

    def __reduce__(self) -> tuple[Any, ...]:
        return _width, (self.expression, dict(self.decisions))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Width":
        return self


def _width(expression: tuple[Any, ...], decisions: Mapping[str, tuple[int, ...]]) -> Width:
    size = _size(expression, decisions, {})
    if not 1 <= size <= LARGEST_WIDTH:
        raise InvalidInput(
            f"Width {', '.join(map(repr, decisions))}: Expected between 1 and {LARGEST_WIDTH:,} channels, got "
            f"{size:,}. Correct the sizes"
        )
    width = int.__new__(Width, size)
    width.expression, width.decisions = expression, decisions
    return width


def _combined(operation: str, left: int, right: int) -> Any:
    if not isinstance(left, int) or not isinstance(right, int):
        return NotImplemented
    decisions: dict[str, tuple[int, ...]] = {}
    for side in (left, right):
        for name, sizes in (side.decisions if isinstance(side, Width) else {}).items():
            if decisions.setdefault(name, sizes) != sizes:
                raise InvalidInput(
                    f"Width {name!r}: Expected one list of sizes, got {list(decisions[name])} and {list(sizes)}. "
                    "Use the same Width, or another name"
                )
    sides = [side.expression if isinstance(side, Width) else ("number", int(side)) for side in (left, right)]
    return _width((operation, *sides), decisions)


def _size(expression: tuple[Any, ...], decisions: Mapping[str, tuple[int, ...]], chosen: Mapping[str, int]) -> int:
    """Returns the number of used channels, which is the length of `_evaluated`."""
    kind = expression[0]
    if kind == "number":
        return int(expression[1])
    if kind == "width":
        name = expression[1]
        return chosen.get(name, max(decisions[name]))
    left, right = (_size(side, decisions, chosen) for side in expression[1:])
    return {"quotient": operator.floordiv, "sum": operator.add, "product": operator.mul}[kind](left, right)


@lru_cache(maxsize=4096)
def _cached(
    expression: tuple[Any, ...], decisions: tuple[tuple[str, tuple[int, ...]], ...], chosen: tuple[tuple[str, int], ...]
) -> list[int]:
    return _evaluated(expression, dict(decisions), dict(chosen))


def _evaluated(
    expression: tuple[Any, ...], decisions: Mapping[str, tuple[int, ...]], chosen: Mapping[str, int]
) -> list[int]:
    """Returns the indices of the used channels among those of the widest layer."""
    kind = expression[0]
    if kind == "number":
        return list(range(expression[1]))
    if kind == "width":
        name = expression[1]
        return list(range(chosen.get(name, max(decisions[name]))))
    left, right = (_evaluated(side, decisions, chosen) for side in expression[1:])
    if kind == "quotient":
        return list(range(len(left) // len(right)))
    whole_left, whole_right = (len(_evaluated(side, decisions, {})) for side in expression[1:])
    if kind == "sum":
        return left + [whole_left + index for index in right]
    return [index * whole_right + within for index in left for within in right]
