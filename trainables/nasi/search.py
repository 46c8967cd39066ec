"""Algorithm 6.1: gradients of samples' trace norms at alpha_0, and the architecture of alpha*. Shu 2022, 6.2.3."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from archray.errors import InvalidInput
from archray.seeds import stream_seed
from archray.trainables.data.dataset import Dataset
from archray.trainables.devices import tf32
from archray.trainables.nasi.one_step import LOOSE, Constraint, Numbers, constraints, one_step, reward
from archray.trainables.nasi.trace_norm import Approximation, Path, trace_gradient, trace_norm
from archray.trainables.spaces import Architecture, Decision, Space, get_space
from archray.trainables.spaces.darts import DARTS, NODES
from archray.trainables.spaces.genotypes import CELLS, Genotype
from archray.trainables.supernets.networks import MixtureWeights, Supernet
from archray.trainables.supernets.networks.darts import DARTSSupernet
from archray.trainables.supernets.networks.supernet import LEFT_OUT, Rows
from archray.trainables.supernets.posterior import RelaxedDecisions
from archray.trainables.supernets.relaxations import gumbel_noise, gumbel_weights

# Purposes of random streams: of batches, and of the search.
CHOSEN, IMAGES, LABELS, NOISE, RANDOM, FOUND = 0, 1, 2, 10, 11, 12
KEPT = 2  # inputs, and operations, that a node of DARTS keeps
# Constants of the sweep at the end of a search (Figures 6.4 and 6.6): multiples of nu, and mu.
MULTIPLES, PENALTIES = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0), (0.0, 1.0, 2.0, 4.0)

Source = Literal["true", "random"]


@dataclass(frozen=True)
class NASIBatches:
    """Mini-batches of a data set or without data (section 6.3; Algorithm 6.1, line 3), functions of the seed and t.

    Attributes:
        dataset: Data set; None if it is not used.
        inputs: The training images, not augmented, or draws from the standard Gaussian (section 6.3.2).
        labels: Labels of training images (any, if the images are random), or drawn uniformly from all classes (6.3.1).
        shape: Shape of random images, (C, H, W).
        classes: n.
        size: b.
    """

    dataset: Dataset | None
    inputs: Source
    labels: Source
    shape: tuple[int, int, int]
    classes: int
    size: int
    seed: int
    device: torch.device

    def take(self, step: int) -> tuple[Tensor, Tensor]:
        """Returns (b, C, H, W) and (b,); b is at most the size of the data set."""
        images = labels = None
        if self.dataset is not None:
            train = self.dataset.train
            order = torch.randperm(len(train), generator=_generator(self.seed, step, CHOSEN))[: self.size]
            chosen = order.to(train.device)
            images, labels = train.batch(chosen), train.labels[chosen]
        if self.inputs != "true" or images is None:
            images = torch.randn(self.size, *self.shape, generator=_generator(self.seed, step, IMAGES)).to(self.device)
        if self.labels != "true" or labels is None:
            draws = torch.randint(self.classes, (len(images),), generator=_generator(self.seed, step, LABELS))
            labels = draws.to(self.device)
        return images[: len(labels)], labels


def _generator(seed: int, *words: int) -> torch.Generator:
    return torch.Generator().manual_seed(stream_seed(seed, *words))


class WholeDecisions(RelaxedDecisions):
    """The decisions of the space, independent of each other: NAS-Bench-201, NAS-Bench-1Shot1 and custom spaces."""

    def masks(self, rows: Tensor) -> dict[str, Tensor]:
        """Returns group -> (edges, operations) bool: the weights that rows (B, C) reach by changing a single choice."""
        return {group.name: torch.ones(group.shape, dtype=torch.bool) for group in self.supernet.groups}

    def mode(self, probabilities: Tensor) -> Architecture:
        """Returns the most probable architecture, Algorithm 6.1; the first one wins a tie. probabilities: (B, C)."""
        return self.architecture(probabilities.argmax(-1))


class OneInputDecisions:
    """One operation and one input for each node of DARTS' cells, sampled independently. Section 6.4.2.

    A node is o(x_k) for its operation o and its input k, so an edge's weight of an operation is the product of two
    rows. See `RelaxedDecisions` for its methods.
    """

    def __init__(self, supernet: DARTSSupernet, device: torch.device | str = "cpu") -> None:
        self.space, self.operations = supernet.space, supernet.groups[0].operations
        self.decisions: tuple[Decision, ...] = tuple(
            decision
            for cell, node in itertools.product(CELLS, NODES)
            for decision in (
                Decision(f"{cell}_{node}_operation", self.operations),
                Decision(f"{cell}_{node}_input", tuple(map(str, range(node)))),
            )
        )
        most = max(len(decision.choices) for decision in self.decisions)
        sizes = torch.tensor([len(decision.choices) for decision in self.decisions])
        self.allowed = (torch.arange(most) < sizes[:, None]).to(device)

    def mixture(self, rows: Tensor) -> dict[str, MixtureWeights]:
        outer = {cell: [torch.outer(*pair) for pair in self._rows_of(rows, cell)] for cell in CELLS}
        return {cell: MixtureWeights(torch.cat(nodes)) for cell, nodes in outer.items()}

    def masks(self, rows: Tensor) -> dict[str, Tensor]:
        """Returns the chosen input's operations, and the chosen operation on every input: others need two changes."""
        sums = {cell: [row[:, None] + column for row, column in self._rows_of(rows.cpu(), cell)] for cell in CELLS}
        return {cell: torch.cat(nodes) > 0 for cell, nodes in sums.items()}

    def mode(self, probabilities: Tensor) -> Architecture:
        """Keeps the two most probable inputs and operations per node, the likelier operation on the likelier input.

        Shu (2022) does not assign operations to inputs (note N1). The first ones win ties.
        """
        cells = []
        for cell in CELLS:
            edges: list[tuple[str, int]] = []
            for by_input, of_operations in self._rows_of(probabilities, cell):
                sources = by_input.argsort(descending=True, stable=True)[:KEPT].tolist()
                columns = of_operations.argsort(descending=True, stable=True)[:KEPT].tolist()
                kept = zip(sources, columns, strict=True)
                edges += [(self.operations[column], source) for source, column in sorted(kept)]
            cells.append(tuple(edges))
        return self.space.architecture(Genotype(*cells))

    def _rows_of(self, rows: Tensor, cell: str) -> list[tuple[Tensor, Tensor]]:
        """Returns the row of inputs, (sources,), and the row of operations of each node of a cell."""
        first = CELLS.index(cell) * 2 * len(NODES)
        return [
            (rows[first + 2 * number + 1, :node], rows[first + 2 * number, : len(self.operations)])
            for number, node in enumerate(NODES)
        ]


def decisions_of(supernet: Supernet, device: torch.device | str = "cpu") -> WholeDecisions | OneInputDecisions:
    """Returns the decisions that NASI samples in a supernet's space."""
    if isinstance(supernet, DARTSSupernet):
        return OneInputDecisions(supernet, device)
    return WholeDecisions(supernet, device)


def path_of(supernet: Supernet, mixture: Mapping[str, MixtureWeights]) -> dict[str, Rows]:
    """Returns the path of a mixture whose weights are 0 and 1."""
    path = {}
    for group in supernet.groups:
        dense = mixture[group.name].dense.detach()
        columns = torch.where(dense.sum(-1) > 0, dense.argmax(-1), LEFT_OUT)
        path[group.name] = Rows(dense, None if group.inputs else tuple(columns.tolist()))
    return path


class NotFinite(ArithmeticError):
    """A trace norm or its gradient is infinite or NaN. The message contains the step."""


class NothingLearned(ArithmeticError):
    """No step had a gradient, so that all architectures are equally probable."""


class Constants(NamedTuple):
    """Constants of the reward and the step, Eq. 6.8 and 6.13."""

    mu: float
    nu_0: float
    constraint: Constraint
    xi: float = 1.0


class NASISearch:
    """Collects, step by step, trace norms of architectures sampled at alpha_0 = 0, and their gradients by alpha.

    Random numbers of step t are a function of the seed and t, so that the state has no generator.

    Args:
        supernet: Supernet with initial weights; it is not changed.
        temperature: tau of Eq. 6.16.
        samples: N of Eq. 6.14.
    """

    def __init__(
        self,
        supernet: Supernet,
        batches: NASIBatches,
        *,
        approximation: Approximation,
        temperature: float,
        samples: int,
        seed: int,
    ) -> None:
        if supernet.partial_channels > 1:
            raise InvalidInput(f"expected a supernet with partial_channels 1, got {supernet.partial_channels}")
        supernet.check_probes()
        self.supernet, self.batches, self.seed = supernet, batches, seed
        self.approximation: Approximation = approximation
        self.temperature, self.samples = temperature, samples
        self.decisions = decisions_of(supernet, batches.device)
        self.alpha_0 = torch.zeros(self.decisions.allowed.shape, device=batches.device)
        self._traces: list[float] = []
        self._gradients: list[Numbers] = []  # (B, C) each
        self._mean: float | None = None

    @property
    def steps_done(self) -> int:
        return len(self._traces)

    @property
    def traces(self) -> Numbers:
        """(t,)."""
        return np.array(self._traces)

    @tf32(False)
    def step(self) -> None:
        """Makes lines 3 to 5 of Algorithm 6.1. Raises: NotFinite."""
        number = self.steps_done
        alpha = self.alpha_0.clone().requires_grad_()
        log_p = alpha.masked_fill(~self.decisions.allowed, -torch.inf).log_softmax(-1)
        noise = gumbel_noise(log_p, _generator(self.seed, number, NOISE))
        rows = gumbel_weights(log_p, noise, self.temperature, hard=True).dense
        mixture = self.decisions.mixture(rows)
        images, labels = self.batches.take(number)
        path, masks = path_of(self.supernet, mixture), self.decisions.masks(rows.detach())
        trace, by_weights = trace_gradient(self.supernet, images, labels, path, masks, self.approximation)
        dense = [weights.dense for weights in mixture.values()]
        torch.autograd.backward(dense, [by_weights[name] for name in mixture])
        assert alpha.grad is not None
        gradient = alpha.grad.double().cpu().numpy()
        if not (np.isfinite(trace) and np.isfinite(gradient).all()):
            raise NotFinite(f"expected a finite trace norm and gradient, got infinity or NaN in step {number + 1}")
        self._traces.append(trace)
        self._gradients.append(gradient)

    def mean_trace(self) -> float:
        """Computes the mean of N uniformly drawn architectures, Eq. 6.14, once. Raises: NotFinite."""
        if self._mean is None:
            traces = [self._trace(self.random_path(number), RANDOM, number) for number in range(self.samples)]
            if not np.isfinite(traces).all():
                raise NotFinite("expected a finite trace norm of a random architecture, got infinity or NaN")
            self._mean = float(np.mean(traces))
        return self._mean

    def nu_0(self, constraint: Constraint) -> float:
        """Returns the mean of Eq. 6.14, or five times that for the adaptive rule, which starts loose (6.4.1)."""
        return self.mean_trace() * (LOOSE if constraint == "adaptive" else 1.0)

    def nus(self, constants: Constants) -> Numbers:
        """Returns (t,), the constraint of each step."""
        return constraints(self.traces, constants.nu_0, constants.constraint)

    def probabilities(self, constants: Constants) -> Tensor:
        """Computes p_alpha* of each decision, (B, C), from the steps so far; uniform before the first."""
        alpha = self.alpha_0.double().cpu()
        if self.steps_done:
            gradients = np.stack(self._gradients)
            alpha = alpha + torch.from_numpy(
                one_step(gradients, self.traces, self.nus(constants), constants.mu, constants.xi)
            )
        return self._softmax(alpha)

    def architecture(self, constants: Constants) -> str | None:
        """Returns the mode of p_alpha*, lines 6 and 7 of Algorithm 6.1, as a string; None if nothing was learned."""
        probabilities = self.probabilities(constants)
        if torch.equal(probabilities, self._softmax(self.alpha_0.double().cpu())):
            return None
        return self.supernet.space.encode(self.decisions.mode(probabilities))

    def mode_trace(self, constants: Constants, batches: int = 4) -> float:
        """Computes the mean trace norm of the most probable sample over some batches, for the supernet's path.

        In DARTS the path has one input for each node, and the derived architecture two.
        """
        chosen = self.probabilities(constants).argmax(-1)
        path = self._path(chosen)
        return float(np.mean([self._trace(path, FOUND, number) for number in range(batches)]))

    def sweep(self, constants: Constants, parameters: Callable[[str], int]) -> list[dict[str, Any]]:
        """Derives the architectures of other constants, multiples of nu_0 and values of mu, from the same gradients.

        Args:
            parameters: Function from a string to the parameters of the architecture's standalone network.

        Returns: rows of nu, mu, architecture, and its trace and parameters; None if nothing is learned.
        """
        variants = [
            constants._replace(nu_0=multiple * constants.nu_0, mu=mu) for mu in PENALTIES for multiple in MULTIPLES
        ]
        architectures = {variant: self.architecture(variant) for variant in variants}
        traces = {name: self.mode_trace(variant) for variant, name in architectures.items() if name is not None}
        sizes = {name: parameters(name) for name in traces}
        return [
            {
                "nu": variant.nu_0,
                "mu": variant.mu,
                "architecture": name,
                "trace": traces.get(name or ""),
                "parameters": sizes.get(name or ""),
            }
            for variant, name in architectures.items()
        ]

    def rewards(self, constants: Constants) -> Numbers:
        """Computes (t,), Eq. 6.8 of each step's sample."""
        return reward(self.traces, self.nus(constants), constants.mu)

    def state_dict(self) -> dict[str, Any]:
        """Returns tensors and plain data only."""
        gradients = np.stack(self._gradients) if self._gradients else np.zeros((0, *self.alpha_0.shape))
        return {"traces": list(self._traces), "gradients": torch.from_numpy(gradients), "mean_trace": self._mean}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._traces, self._mean = list(state["traces"]), state["mean_trace"]
        self._gradients = list(state["gradients"].cpu().numpy())

    def random_path(self, number: int) -> dict[str, Rows]:
        """Returns the path of a uniformly drawn architecture, a function of the seed and the number."""
        log_p = self._softmax(self.alpha_0.cpu()).log()  # p_alpha_0, (B, C)
        return self._path((log_p + gumbel_noise(log_p, _generator(self.seed, number, RANDOM))).argmax(-1))

    @tf32(False)
    def trace_on(self, path: Path, batch: tuple[Tensor, Tensor], approximation: Approximation) -> float:
        """Computes the trace norm of a path, with the network in training mode, on a batch of images and labels."""
        images, labels = batch
        with torch.enable_grad():
            logits = self.supernet.logits(images.contiguous(memory_format=torch.channels_last), path)
            return trace_norm(logits, labels, list(self.supernet.parameters()), approximation)

    def _path(self, chosen: Tensor) -> dict[str, Rows]:
        """chosen: (B,) indices of choices."""
        rows = functional.one_hot(chosen, self.decisions.allowed.shape[1]).to(self.alpha_0)
        return path_of(self.supernet, self.decisions.mixture(rows))

    def _softmax(self, alpha: Tensor) -> Tensor:
        return alpha.masked_fill(~self.decisions.allowed.cpu(), -torch.inf).softmax(-1)

    def _trace(self, path: Path, *batch: int) -> float:
        return self.trace_on(path, self.batches.take(stream_seed(self.seed, *batch)), self.approximation)


class PooledDARTSSupernet(DARTSSupernet):
    """A `DARTSSupernet` whose operations all have stride 1; max-pooling halves a reduction cell's inputs (6.4.2)."""

    pooled: ClassVar[bool] = True


def form_of(space: Space | str) -> type[Supernet] | None:
    """Returns the class of the supernet that NASI searches in a space; None for the registered class."""
    return PooledDARTSSupernet if isinstance(get_space(space), DARTS) else None
