"""Mixings whose step is one architecture's path: of a candidate, a uniform draw, or a sample of ENAS' controller."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.trainables.spaces import Architecture, Decision, Space
from archray.trainables.supernets.mixing import Lesson, Mixing, Mixture
from archray.trainables.supernets.networks.supernet import Group, Supernet, possible_choices
from archray.trainables.supernets.settings import (
    DECISIONS,
    ControllerSettings,
    ReinforceSettings,
    SupernetTrainingSettings,
)

INITIAL = 0.1  # weights are uniform in [-0.1, 0.1] (section 3.2)
ENTROPY_SAMPLES = 100  # samples for the mean of a decision's conditional entropy
ENTROPY_SEED = 0


class OpenDecisions:
    """The decisions of a space with two or more possible choices in a supernet with these groups.

    Attributes:
        decisions: In the space's order, with the possible choices.
    """

    def __init__(self, space: Space, groups: Sequence[Group]) -> None:
        possible = [Decision(decision.name, possible_choices(decision, groups)) for decision in space.decisions]
        self._first = [decision.choices[0] for decision in space.decisions]
        self._places = [place for place, decision in enumerate(possible) if len(decision.choices) > 1]
        self.decisions = tuple(possible[place] for place in self._places)

    def architecture(self, numbers: Sequence[int]) -> Architecture:
        """Returns an architecture. numbers: indices of the choices of `decisions`."""
        choices = self._first.copy()
        for place, decision, number in zip(self._places, self.decisions, numbers, strict=True):
            choices[place] = decision.choices[number]
        return tuple(choices)


class DrawnPaths(Mixing):
    """Base class of mixings whose step is the path of a new architecture. A subclass draws the architectures."""

    def __init__(self, supernet: Supernet) -> None:
        self._supernet = supernet
        self._generator = torch.Generator()

    @abstractmethod
    def sample(self, generator: torch.Generator) -> Architecture:
        """Draws an architecture of the supernet's space."""

    def reseed(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    @torch.no_grad()
    def draw(self, progress: float) -> Mixture:
        return self._supernet.path(self.sample(self._generator))

    def evaluation(self, progress: float, seed: int) -> Callable[[], Mixture]:
        generator = torch.Generator().manual_seed(seed)
        return torch.no_grad()(lambda: self._supernet.path(self.sample(generator)))


class CandidatePaths(DrawnPaths):
    """Draws candidates uniformly and independently, one for each step. Khodak et al. 2020, Algorithm 1.

    Algorithm 1 draws a candidate for each data point, not for each batch.

    Raises: InvalidInput without candidates; InvalidArchitecture.
    """

    def __init__(self, supernet: Supernet, candidates: Sequence[str]) -> None:
        if not candidates:
            raise InvalidInput("expected at least one candidate, got none")
        super().__init__(supernet)
        self._architectures = [supernet.space.decode(candidate) for candidate in candidates]

    def sample(self, generator: torch.Generator) -> Architecture:
        return self._architectures[int(torch.randint(len(self._architectures), (), generator=generator))]


class UniformArchitectures(DrawnPaths):
    """Trains the path of one uniformly drawn architecture of the space in each step. Shu 2022, 5.2.1, App. B.1.

    In DARTS a path has two inputs for each node, so an edge into node t is drawn in a share of 2 / t of the steps. Shu
    (2022) does not define partial channels; here an edge has weight 1 if the path takes it, else 0, in training and in
    scoring. `none` is drawn only if the supernet's groups contain it.
    """

    def __init__(self, supernet: Supernet) -> None:
        super().__init__(supernet)
        self._open = OpenDecisions(supernet.space, supernet.groups)

    def sample(self, generator: torch.Generator) -> Architecture:
        sizes = [len(decision.choices) for decision in self._open.decisions]
        return self._open.architecture([int(torch.randint(size, (), generator=generator)) for size in sizes])

    def entropies(self) -> dict[str, list[float]]:
        return {DECISIONS: [math.log(len(decision.choices)) for decision in self._open.decisions]}


class Sampled(NamedTuple):
    """n samples of D decisions."""

    choices: Tensor  # (n, D) int64, the index of each choice
    log_probabilities: Tensor  # (n,), of whole samples, differentiable
    entropies: Tensor  # (n, D) in nats, of each decision given the previous ones, without gradient


class Reinforce:
    """The policy gradient, with a baseline, and with the entropy in the reward. Williams 1992; ENAS, section 3.2.

    1. reward <- reward + entropy weight x the entropies along the sample, which are not differentiated.
    2. theta <- Adam by -(reward - baseline) grad log p(sample).
    3. baseline <- decay baseline + (1 - decay) reward.

    The first reward is the first baseline. The authors' program starts with 0, which reinforces the first sample,
    and updates the baseline before step 2.
    """

    def __init__(self, parameters: Iterable[Tensor], settings: ReinforceSettings) -> None:
        self._settings = settings
        self.baseline: float | None = None
        self.optimizer = torch.optim.Adam(parameters, lr=settings.lr)

    def update(self, sampled: Sampled, rewards: Tensor) -> None:
        """Makes one step with n samples of the policy and their rewards, (n,)."""
        rewards = rewards + self._settings.entropy * sampled.entropies.sum(1)
        mean = float(rewards.mean())
        baseline = mean if self.baseline is None else self.baseline
        loss = -((rewards - baseline) * sampled.log_probabilities).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        decay = self._settings.baseline_decay
        self.baseline = decay * baseline + (1.0 - decay) * mean

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "baseline": self.baseline}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.baseline = state["baseline"]


class Controller(nn.Module):
    """p(a) = prod_d p(a_d | a_1 ... a_{d-1}) over the decisions of a space, by one layer of an LSTM. Sections 2.1, 2.3.

    1. The first input is a trained vector; each later input is the embedding of the previous choice.
    2. Logits of a decision are a linear function of the state, bounded: tanh_constant tanh(logits / temperature).
    3. The choice is drawn from their softmax.

    Unlike in ENAS, the decisions are those of the space: a pair of inputs is one choice, whereas ENAS draws the inputs
    one by one with attention over states of earlier nodes. Decisions with the same choices share the embedding and the
    weights of the logits, as operations do in ENAS. No combination of choices has to be masked.

    Args:
        decisions: Decisions with two or more choices each.
        seed: Seed of the initial weights; the global generator does not change.
    """

    def __init__(self, decisions: Sequence[Decision], settings: ControllerSettings, *, seed: int) -> None:
        super().__init__()
        self._temperature, self._tanh_constant, units = settings.temperature, settings.tanh_constant, settings.units
        kinds = list(dict.fromkeys(decision.choices for decision in decisions))
        self._kinds = [kinds.index(decision.choices) for decision in decisions]
        with torch.random.fork_rng(devices=[]):  # torch first draws its default weights
            self.cell = nn.LSTMCell(units, units)
            self.embeddings = nn.ModuleList(nn.Embedding(len(choices), units) for choices in kinds)
            self.logits = nn.ModuleList(nn.Linear(units, len(choices)) for choices in kinds)
        self.start = nn.Parameter(torch.empty(1, units))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-INITIAL, INITIAL, generator=generator)

    def forward(self, count: int, generator: torch.Generator) -> Sampled:
        """Draws `count` independent samples."""
        x = self.start.expand(count, -1)  # (n, units)
        state: tuple[Tensor, Tensor] | None = None
        choices, entropies = [], []
        log_probabilities = torch.zeros(count)
        for kind in self._kinds:
            state = self.cell(x, state)
            logits = self.logits[kind](state[0])  # (n, choices)
            if self._temperature is not None:
                logits = logits / self._temperature
            if self._tanh_constant is not None:
                logits = self._tanh_constant * logits.tanh()
            log_p = logits.log_softmax(-1)
            p = log_p.detach().exp()
            chosen = torch.multinomial(p, 1, generator=generator)  # (n, 1)
            log_probabilities = log_probabilities + log_p.gather(1, chosen)[:, 0]
            choices.append(chosen[:, 0])
            entropies.append(torch.special.entr(p).sum(-1))
            x = self.embeddings[kind](chosen[:, 0])
        return Sampled(torch.stack(choices, 1), log_probabilities, torch.stack(entropies, 1))


class ReinforcedController(DrawnPaths):
    """Samples the path of each step from a controller that learns from rewards. ENAS, 2.2.

    - `learn`: the reward of a sample is its accuracy on the batch, from a forward pass only. Networks are in training
      mode, as in the authors' program: normalization uses the batch's statistics.
    - `derive`: the most accurate of some samples with shared weights, the first of equals. The paper scores them on one
      minibatch; here on all validation data. The accuracy of the best is a biased estimate.
    - `entropies`: of each decision given the previous ones, the mean over 100 samples.

    The controller is on the CPU for every device of the supernet.

    Args:
        seed: Seed of the controller's initial weights.
    """

    learns = True

    def __init__(
        self, supernet: Supernet, controller: ControllerSettings, optimizer: ReinforceSettings, *, seed: int
    ) -> None:
        super().__init__(supernet)
        self._samples, self._optimizer = controller.samples, optimizer
        self._open = OpenDecisions(supernet.space, supernet.groups)
        self.controller = Controller(self._open.decisions, controller, seed=seed)
        self.reinforce = Reinforce(self.controller.parameters(), optimizer)

    def prepare(self, training: SupernetTrainingSettings, points: int) -> None:
        self._optimizer.check_objective(training.objective)

    def sample(self, generator: torch.Generator) -> Architecture:
        [architecture] = self.architectures(self.controller(1, generator))
        return architecture

    def learn(self, lesson: Lesson, progress: float) -> Tensor:
        sampled = self.controller(1, self._generator)
        [architecture] = self.architectures(sampled)
        with torch.no_grad():
            losses, correct = lesson.outcome(self._supernet.path(architecture))
        self.reinforce.update(sampled, correct.float().mean(0, keepdim=True).cpu())
        return losses.mean()

    def architectures(self, sampled: Sampled) -> list[Architecture]:
        return [self._open.architecture(numbers) for numbers in sampled.choices.tolist()]

    @torch.no_grad()
    def derive(self, accuracies: Callable[[Sequence[str]], list[float]], seed: int) -> str:
        sampled = self.controller(self._samples, torch.Generator().manual_seed(seed))
        encode = self._supernet.space.encode
        strings = list(dict.fromkeys(encode(architecture) for architecture in self.architectures(sampled)))
        return strings[int(np.argmax(accuracies(strings)))]

    @torch.no_grad()
    def entropies(self) -> dict[str, list[float]]:
        sampled = self.controller(ENTROPY_SAMPLES, torch.Generator().manual_seed(ENTROPY_SEED))
        return {DECISIONS: sampled.entropies.mean(0).tolist()}

    def state_dict(self) -> dict[str, Any]:
        return {"controller": self.controller.state_dict(), "reinforce": self.reinforce.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.controller.load_state_dict(state["controller"])
        self.reinforce.load_state_dict(state["reinforce"])
