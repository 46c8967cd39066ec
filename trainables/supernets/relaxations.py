"""Relaxations: functions from architecture parameters to the weights of a step's mixture."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.supernets.mixing import Lesson, Mixing, Mixture
from archray.trainables.supernets.networks.supernet import MixtureWeights, Supernet, discretize, one_hot
from archray.trainables.supernets.settings import Domain, GumbelSettings, OptimizerSettings, SupernetTrainingSettings

LOGIT_SCALE = 1e-3  # standard deviation of initial logits in DARTS and GDAS: nearly uniform, all distinct


class Relaxation(ABC):
    """Base class: architecture parameters -> mixture weights. Each group of edges has parameters (edges, operations).

    Args:
        generator: Source of random relaxations, part of this object's state. It may be on the CPU while the
            parameters are on a GPU, so that all devices get the same draws.
        domain: Domain of the parameters: `logits` (unconstrained) or `simplex` (probabilities).

    Raises: InvalidInput for another domain.
    """

    reads_parameters: ClassVar[bool] = True  # whether its weights depend on the parameters

    def __init__(self, generator: torch.Generator, domain: Domain) -> None:
        if domain not in get_args(Domain):
            raise InvalidInput(f"expected a domain of the parameters, {' or '.join(get_args(Domain))}, got {domain!r}")
        self.generator = generator
        self.domain = domain

    def initial(
        self, edges: int, operations: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> Tensor:
        """Returns initial parameters (edges, operations): small random logits, or the uniform point of the simplex."""
        if self.domain == "simplex":
            return torch.full((edges, operations), 1.0 / operations, dtype=dtype, device=device)
        noise = torch.randn((edges, operations), generator=self.generator, device=self.generator.device, dtype=dtype)
        return (LOGIT_SCALE * noise).to(device)

    def probabilities(self, parameters: Tensor) -> Tensor:
        """Returns (edges, operations): the distribution of the parameters, for entropies and discretization."""
        return parameters if self.domain == "simplex" else parameters.softmax(-1)

    def weights(self, parameters: Mapping[str, Tensor], progress: float = 0.0) -> dict[str, MixtureWeights]:
        """Returns the weights of one step, for every group, in the order of `parameters`.

        Args:
            parameters: group -> (edges, operations).
            progress: Completed share of the search, in [0, 1].
        """
        return {group: self.group_weights(group, rows, progress) for group, rows in parameters.items()}

    @abstractmethod
    def group_weights(self, group: str, parameters: Tensor, progress: float) -> MixtureWeights:
        """Returns the weights of one step for one group."""

    def state_dict(self) -> dict[str, Any]:
        """Returns tensors only: the generator's state."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.generator.set_state(state["generator"].cpu())


class WholeMixture(Relaxation):
    """All operations, weighted by their probabilities: the softmax of logits (DARTS), or the parameters (GAEA)."""

    def group_weights(self, group: str, parameters: Tensor, progress: float) -> MixtureWeights:
        return MixtureWeights(self.probabilities(parameters))


def entropy(weights: Tensor) -> Tensor:
    """(..., operations) rows on the simplex -> (...), their entropies in nats. GAEA, Li et al. 2021, Figure 1."""
    return torch.special.entr(weights).sum(-1)


class ArchitectureParameters(Mixing):
    """The parameters of all groups of a supernet, and the mixture that a relaxation computes from them.

    Args:
        relaxation: Function from a generator to the relaxation that draws from it.
        seed: Seed of the initial parameters.
        device: Device of the parameters. Random relaxations draw on the CPU, so that all devices get the same draws.
    """

    def __init__(
        self,
        supernet: Supernet,
        relaxation: Callable[[torch.Generator], Relaxation],
        optimizer: OptimizerSettings,
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.space, self.groups = supernet.space, supernet.groups
        self._make, self._optimizer = relaxation, optimizer
        self.relaxation = relaxation(torch.Generator().manual_seed(seed))
        self.parameters: dict[str, Tensor] = {
            group.name: self.relaxation.initial(*group.shape, device=device) for group in self.groups
        }
        self.learner = optimizer.learner(self.parameters)
        self.learns = self.learner is not None
        for parameter in self.parameters.values():
            parameter.requires_grad_(self.learns)

    def prepare(self, training: SupernetTrainingSettings, points: int) -> None:
        self._optimizer.check_objective(training.objective)
        if self.learner is not None:
            self.learner.prepare(training, points)

    def reseed(self, seed: int) -> None:
        self.relaxation.generator.manual_seed(seed)

    def draw(self, progress: float) -> dict[str, MixtureWeights]:
        return self.relaxation.weights(self.parameters, progress)

    def evaluation(self, progress: float, seed: int) -> Callable[[], Mixture]:
        """Returns mixtures of the current parameters; a new draw each time if the relaxation is random."""
        relaxation = self._make(torch.Generator().manual_seed(seed))
        return torch.no_grad()(lambda: relaxation.weights(self.parameters, progress))

    def learn(self, lesson: Lesson, progress: float) -> Tensor:
        assert self.learner is not None  # otherwise it does not learn
        return self.learner.learn(lambda: self.draw(progress), lesson)

    @torch.no_grad()
    def probabilities(self) -> dict[str, Tensor]:
        """Returns group -> (edges, operations), rows that sum to one."""
        return {name: self.relaxation.probabilities(rows.detach()) for name, rows in self.parameters.items()}

    def entropies(self) -> dict[str, list[float]]:
        """Returns group -> the entropy of each of its rows, in nats."""
        return {name: entropy(rows).tolist() for name, rows in self.probabilities().items()}

    def discretized(self) -> str:
        """Returns the architecture with the strongest operations (note G4)."""
        probabilities = self.probabilities()
        return discretize(self.space, self.learner.strengths(probabilities) if self.learner else probabilities)

    def derive(self, accuracies: Callable[[Sequence[str]], list[float]], seed: int) -> str | None:
        """Returns `discretized`; None if the relaxation does not read the parameters."""
        return self.discretized() if self.relaxation.reads_parameters else None

    def state_dict(self) -> dict[str, Any]:
        return {
            "parameters": {name: rows.detach() for name, rows in self.parameters.items()},
            "optimizer": None if self.learner is None else self.learner.state_dict(),
            "relaxation": self.relaxation.state_dict(),
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(state["parameters"][name])
        if self.learner is not None:
            self.learner.load_state_dict(state["optimizer"])
        self.relaxation.load_state_dict(state["relaxation"])


def gumbel_noise(like: Tensor, generator: torch.Generator) -> Tensor:
    """Draws from Gumbel(0, 1), with the shape and device of `like`; always finite."""
    uniform = torch.rand(like.shape, generator=generator, device=generator.device, dtype=like.dtype)
    limits = torch.finfo(like.dtype)
    uniform = uniform.clamp(limits.tiny, 1.0 - limits.eps)  # 0 and 1 would lead to infinite noise
    return -(-uniform.log()).log().to(like.device)


def gumbel_weights(logits: Tensor, noise: Tensor, tau: float, hard: bool) -> MixtureWeights:
    """softmax((logits + noise) / tau), Jang et al. 2017, Shu 2022, Eq. 6.16; straight-through if `hard`.

    Args:
        logits, noise: (edges, operations).
        hard: Whether the forward pass uses the exact one-hot argmax, and the backward pass the softmax.
    """
    soft = ((logits + noise) / tau).softmax(-1)  # (E, O)
    if not hard:
        return MixtureWeights(soft)
    chosen = soft.detach().argmax(-1)  # (E,)
    return MixtureWeights(one_hot(chosen, soft.shape[-1], soft.dtype) + (soft - soft.detach()), chosen.cpu())


class Gumbel(Relaxation):
    """One operation per edge, drawn with the parameters' probabilities; gradients as if the draw were soft.

    Without `hard`, SNAS' mixture of all operations (Xie et al. 2019). domain: `logits` (GDAS), or `simplex` (GAEA GDAS:
    the noise is added to the logarithm of the parameters). A parameter of zero is never drawn and has no gradient; the
    floor of `MirrorDescent` keeps parameters above zero.
    """

    def __init__(self, generator: torch.Generator, domain: Domain, settings: GumbelSettings) -> None:
        super().__init__(generator, domain)
        self.settings = settings

    def group_weights(self, group: str, parameters: Tensor, progress: float) -> MixtureWeights:
        logits = parameters
        if self.domain == "simplex":  # -inf where a weight is zero, with a gradient of zero instead of NaN
            positive = parameters > 0
            logits = torch.where(positive, torch.where(positive, parameters, 1.0).log(), -torch.inf)
        noise = gumbel_noise(parameters, self.generator)
        return gumbel_weights(logits, noise, self.settings.temperature(progress), self.settings.hard)


class Path(Relaxation):
    """One uniformly drawn operation per edge and step. SPOS, Guo et al. 2020. It uses only the parameters' shape.

    Args:
        fair: Strict fairness (FairNAS, Chu et al. 2021). In each round of |O| steps of a group, every operation of
            every edge has exactly one step, in an order drawn for each edge and round. FairNAS sums the gradients of
            a round before it updates the weights; the trainer updates them after each step.
    """

    reads_parameters = False

    def __init__(self, generator: torch.Generator, fair: bool = False) -> None:
        super().__init__(generator, "simplex")
        self.fair = fair
        # group -> the order of the current round, (edges, operations) int64, and the number of completed steps
        self._rounds: dict[str, tuple[Tensor, int]] = {}

    def group_weights(self, group: str, parameters: Tensor, progress: float) -> MixtureWeights:
        edges, operations = parameters.shape
        if self.fair:
            chosen = self._next(group, edges, operations)
        else:
            chosen = torch.randint(operations, (edges,), generator=self.generator, device=self.generator.device)
        on_device = chosen.to(parameters.device, non_blocking=True)
        return MixtureWeights(one_hot(on_device, operations, parameters.dtype), chosen.cpu())

    def _next(self, group: str, edges: int, operations: int) -> Tensor:
        """Returns (edges,): the next operation of each edge in the group's current round."""
        order, position = self._rounds.get(group, (None, operations))
        if order is None or position == operations:
            # In float64: equal draws favor the lower index, with a probability below operations^2 / 2^54.
            device = self.generator.device
            keys = torch.rand((edges, operations), generator=self.generator, device=device, dtype=torch.float64)
            order, position = keys.argsort(-1), 0
        self._rounds[group] = (order, position + 1)
        return order[:, position]

    def state_dict(self) -> dict[str, Any]:
        rounds = {group: {"order": order, "position": position} for group, (order, position) in self._rounds.items()}
        return {**super().state_dict(), "rounds": rounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        device = self.generator.device
        self._rounds = {
            group: (saved["order"].to(device), saved["position"]) for group, saved in state["rounds"].items()
        }
