"""REINFORCE over architectures. Williams 1992; Zoph and Le 2017; as in Dong and Yang 2020 (NAS-Bench-201)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Unpack

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import FloatArray, IntArray, SearcherOptions, is_finite_number
from archray.searchers.base import Proposal
from archray.searchers.config_space import DRAWS, SpaceSource
from archray.searchers.space_search import NOT_READ, DecisionSearch

LEARNING_RATE, MOMENTUM = 0.01, 0.9  # in Dong and Yang's code (NATS-Bench): of Adam, and of the moving average
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's; Kingma and Ba 2015


@dataclass
class Policy:
    """A trainable policy: independent categorical distributions over D decisions with at most C choices.

    Args:
        logits: (D, C); minus infinity where a decision has fewer choices.
        learning_rate: learning rate of Adam.
        momentum: momentum of the moving average of rewards.
        entropy: weight of the policy's entropy.
        steps: number of gradient steps so far.

    Example:
        ```python
        policy, rng = Policy.uniform([2, 3]), np.random.default_rng(0)
        chosen = policy.sample(rng)  # (2,)
        policy.learn(chosen, reward=0.9)
        print(policy.probabilities)  # (2, 3)
        ```
    """

    logits: FloatArray
    learning_rate: float = LEARNING_RATE
    momentum: float = MOMENTUM
    entropy: float = 0.0
    steps: int = 0
    _average: tuple[float, float] = (0.0, 0.0)  # numerator and denominator
    _moments: tuple[FloatArray, FloatArray] = field(default=(np.zeros(0), np.zeros(0)), repr=False)

    @classmethod
    def uniform(cls, sizes: Sequence[int], **options: float) -> "Policy":
        """Returns a policy with equally likely choices. sizes: (D,) numbers of choices."""
        exists = np.arange(max(sizes)) < np.asarray(sizes)[:, None]  # (D, C)
        return cls(np.where(exists, 0.0, -np.inf), **options)  # type: ignore[arg-type]  # all are numbers

    @property
    def probabilities(self) -> FloatArray:
        """(D, C); each row sums to one."""
        shifted = np.exp(self.logits - self.logits.max(axis=1, keepdims=True))
        return shifted / shifted.sum(axis=1, keepdims=True)

    def sample(self, rng: np.random.Generator, combinations: IntArray | None = None) -> IntArray:
        """Draws the index of a choice for each decision, (D,).

        combinations: (n, D) the possible combinations of indices; the draw is conditional on them.
        """
        if combinations is not None:
            with np.errstate(divide="ignore"):  # padding has probability 0
                logarithms = np.log(self.probabilities)
            logarithms = logarithms[np.arange(combinations.shape[1]), combinations].sum(axis=1)  # (n,)
            below = np.exp(logarithms - logarithms.max()).cumsum()
            return combinations[int((below / below[-1] <= rng.random()).sum())]
        below = self.probabilities.cumsum(axis=1)  # (D, C)
        return (below / below[:, -1:] <= rng.random((len(below), 1))).sum(axis=1)

    def learn(self, chosen: IntArray, reward: float) -> None:
        """Takes one ascent step of Adam on E[(reward - baseline) log p(chosen)] + entropy H(p).

        The baseline is the moving average of the rewards so far, this one included, as in Dong and Yang's code.

        Args:
            chosen: (D,) the indices of the choices; -1 for a decision without a gradient.
            reward: the value to maximize.
        """
        numerator, denominator = (
            self.momentum * old + (1 - self.momentum) * new
            for old, new in zip(self._average, (reward, 1.0), strict=True)
        )
        self._average = (numerator, denominator)
        gradient = policy_gradient(self.probabilities, chosen, reward - numerator / denominator, self.entropy)
        self.steps += 1
        first, second = (moment if moment.size else np.zeros_like(gradient) for moment in self._moments)
        first = BETA1 * first + (1 - BETA1) * gradient
        second = BETA2 * second + (1 - BETA2) * gradient**2
        self._moments = (first, second)
        step = first / (1 - BETA1**self.steps) / (np.sqrt(second / (1 - BETA2**self.steps)) + EPSILON)
        self.logits = self.logits + self.learning_rate * step


def policy_gradient(probabilities: FloatArray, chosen: IntArray, advantage: float, entropy: float = 0.0) -> FloatArray:
    """Returns the gradient of advantage log p(chosen) + entropy H(p) in the logits. Shapes (D, C), (D,) -> (D, C).

    Williams 1992: d log p(a) / d logit_j = 1[j = a] - p_j. The gradient of the entropy is -p_j (log p_j + H).
    """
    read = (chosen != NOT_READ)[:, None]  # (D, 1)
    hit = np.arange(probabilities.shape[1]) == chosen[:, None]  # (D, C)
    logarithms = np.log(np.where(probabilities > 0, probabilities, 1.0))
    of_entropy = -probabilities * (logarithms - (probabilities * logarithms).sum(axis=1, keepdims=True))
    return advantage * read * (hit - probabilities) + entropy * of_entropy


class ReinforceSearch(DecisionSearch):
    """REINFORCE: samples architectures from a policy that policy gradients train.

    Suggests: `architecture`, `seed`; or the keys of the dict, `seed`.
    Needs: the metric.
    Takes: a space, a list of candidates, a dict of `tune.choice` and `tune.randint`, or a custom space object with
    `decisions`.

    The policy is an independent categorical distribution per decision, uniform at the start. Suggestion k is a draw
    from the policy after one step for each of the results 1 to k - q, in the order of suggestion:
    1. The baseline b is the moving average of the rewards so far.
    2. The gradient is (reward - b) d log p(architecture), plus the gradient of the weighted entropy.
    3. Adam takes an ascent step along the gradient.
    The reward is the metric; in mode `min` its negative.

    Deviations from Dong and Yang's code: Logits start at zero, not near zero. With q > 1 the policy that learns is
    q - 1 steps ahead of the policy that drew. A trial without a value causes no step. Architectures that a table lacks
    are drawn again; the decisions of a table are those of its strings' space, or the columns of its encoding.
    As in that code, an architecture may be suggested again, with another seed.

    Args:
        space, budget, points_to_evaluate: see `DecisionSearch`.
        learning_rate: learning rate of Adam; 0.01 is the value in the paper's code. On NAS-Bench-201 the best of 100
            (of 300) training runs has a 12-epoch validation accuracy of 84.30 (84.67) % with 0.1, of 84.02 (84.43) %
            with 0.01, and of 83.79 (84.28) % for random search; means over 20 seeds.
        momentum: momentum of the moving average of rewards.
        entropy: the weight of the policy's entropy, in units of the metric; a positive weight prolongs exploration.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: see `DecisionSearch`.

    Example:
        ```python
        search = ReinforceSearch(
            "nasbench201", budget=100, learning_rate=0.1, metric="convolutions", mode="max"
        )
        drive(search, lambda config: config["architecture"].count("nor_conv_3x3"))
        print(search.best())
        ```
    """

    identity_fields: ClassVar[tuple[str, ...]] = ("learning_rate", "momentum", "entropy")

    def __init__(
        self,
        space: SpaceSource | Sequence[str],
        budget: int,
        learning_rate: float = LEARNING_RATE,
        momentum: float = MOMENTUM,
        entropy: float = 0.0,
        **options: Unpack[SearcherOptions],
    ) -> None:
        if not is_finite_number(learning_rate) or learning_rate <= 0:
            raise InvalidInput(f"learning_rate: expected a positive number, got {learning_rate!r}")
        if not is_finite_number(momentum) or not 0 <= momentum < 1:
            raise InvalidInput(f"momentum: expected a number in [0, 1), got {momentum!r}")
        if not is_finite_number(entropy) or entropy < 0:
            raise InvalidInput(f"entropy: expected a non-negative number, got {entropy!r}")
        self.learning_rate, self.momentum, self.entropy = float(learning_rate), float(momentum), float(entropy)
        self._policy: tuple[list[int], Policy] | None = None  # the numbers of its results in order, and the policy
        super().__init__(space, budget, **options)

    def propose(self, number: int) -> Proposal:
        policy = self.policy(number)
        rng = self.rng("reinforce", number)
        combinations = self._space.combinations()
        for _ in range(DRAWS):
            places = policy.sample(rng, combinations)  # (D,)
            config = self.config_of(places)
            if config is not None:
                self._places[number] = places.tolist()
                return config
        return self._space.sample(rng)  # the table lacks the architectures that the policy prefers

    def policy(self, number: int) -> Policy:
        """Returns the policy from which suggestion `number` is drawn."""
        records = self.usable_records(number)
        numbers = [k for k, record in records.items() if record.value is not None]
        previous, policy = self._policy or ([], None)
        if policy is None or numbers[: len(previous)] != previous:
            options = {"learning_rate": self.learning_rate, "momentum": self.momentum, "entropy": self.entropy}
            previous, policy = [], Policy.uniform(self.sizes, **options)
        for k in numbers[len(previous) :]:
            loss = self.loss(records[k])
            assert loss is not None and math.isfinite(loss)
            policy.learn(self.places(k, records[k].config), -loss)
        self._policy = (numbers, policy)
        return policy

    def set_search_state(self, state: dict[str, Any]) -> None:
        super().set_search_state(state)
        self._policy = None
