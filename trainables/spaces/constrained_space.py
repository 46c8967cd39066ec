"""The architectures of a space that meet a constraint: rejected draws, repaired mutations, filtered lists."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from archray.errors import InvalidArchitecture, InvalidInput
from archray.plurals import count
from archray.trainables.spaces.encodings import IntArray
from archray.trainables.spaces.space import Architecture, Decision, Space

# Architectures that make one choice throughout; the cheapest and the most expensive are among them.


def even_architectures(space: Space) -> list[Architecture]:
    """Architecture i takes the choice i of every decision, or its last one where it has fewer; canonical, each once.

    One operation on every edge, or the least and the most of every size: of what is summed over operations, as most
    costs are, the least and the most stand here or near by. Where a space has no such architecture, as a table without
    that row, it is left out.
    """
    most = max((len(decision.choices) for decision in space.decisions), default=0)
    forms: dict[Architecture, None] = {}
    for number in range(most):
        choices = tuple(decision.choices[min(number, len(decision.choices) - 1)] for decision in space.decisions)
        try:
            space.check(choices)
            forms[space.canonical(choices)] = None
        except InvalidArchitecture:
            continue
    return list(forms)


DRAWS = 100  # rejected at random before the nearest of them is repaired
REPAIRS = 500  # mutations tried on the way from an architecture that violates to one that does not
PATIENCE = 100  # mutations in a row that bring it no nearer, before the repair is given up
NEAR_END = 40  # the same on the walk from an end of the space, which begins near what it looks for
TOLD = 4  # significant digits of how near the nearest comes


class ConstrainedSpace(Space):
    """The architectures of another space whose violation is 0, with its strings, decisions and canonical forms.

    A draw that violates is rejected; when 100 have been, the one that violates least is repaired. A mutation that
    violates is repaired too: mutated on, a step back wherever a mutation violates more than what it began with, until
    one does not violate, or else the parent comes back. `size` is that of the whole space: what is left is not counted.

    Args:
        space: the whole space.
        violation: string of a canonical form -> by how much it violates, 0 or more; infinite of one that has no costs.
            It must pickle, and answer the same in a resumed run. Its attribute `one_sided`, if it has one: whether
            all that it bounds is bounded from above, or all from below.
        told: the constraint in words.
    """

    def __init__(self, space: Space, violation: Callable[[str], float], told: str) -> None:
        self.unconstrained, self.violation, self.told = space, violation, told
        self.name = f"{space.name}, {told}"  # type: ignore[misc]  # each has its own
        self.kind, self.data_kind = space.kind, space.data_kind  # type: ignore[misc]
        self.decisions = space.decisions

    def violation_of(self, architecture: Architecture) -> float:
        """By how much it violates the constraint; 0 if it meets it."""
        space = self.unconstrained
        return self.violation(space.encode(space.canonical(architecture)))

    def meets(self, architecture: Architecture) -> bool:
        return self.violation_of(architecture) == 0.0

    def repair(self, architecture: Architecture, rng: np.random.Generator, patience: int = PATIENCE) -> Architecture:
        """The first on a walk of mutations from `architecture` that meets the constraint; itself if it does.

        A mutation that violates more is no step. Where none of 500 meets it, or `patience` in a row came no nearer, the
        last step is returned: nothing on the walk violates less.
        """
        violation = self.violation_of(architecture)
        idle = 0  # mutations since the last that violated less
        for _ in range(REPAIRS):
            if violation == 0.0 or idle == patience:
                break
            child = self.unconstrained.mutate(architecture, rng)
            of_child = self.violation_of(child)
            idle = 0 if of_child < violation else idle + 1
            if of_child <= violation:
                architecture, violation = child, of_child
        return architecture

    def from_the_ends(self, rng: np.random.Generator) -> Architecture | None:
        """An architecture that meets the constraint, or the one that comes nearest to it, of those of one choice
        throughout, the cheapest and the dearest among them, and of what mutations make of the nearest of these; None
        where the space has none of one choice throughout.
        """
        nearest: Architecture | None = None
        least = math.inf
        for architecture in even_architectures(self.unconstrained):
            violation = self.violation_of(architecture)
            if nearest is None or violation < least:
                nearest, least = architecture, violation
            if violation == 0.0:
                return architecture
        if nearest is None or not self._mutable:
            return nearest
        return self.repair(nearest, rng, NEAR_END)

    def check_met(self, rng: np.random.Generator) -> None:
        """Raises: InvalidInput, which says how near the nearest comes, if no architecture is found that meets it.

        Where all that is bounded is bounded from above, or all from below, the ends of the space are its cheapest and
        its dearest architectures: what no walk from there meets is looked for nowhere else.
        """
        nearest = self.from_the_ends(rng)
        if nearest is not None and self.meets(nearest):
            return
        if nearest is None or not getattr(self.violation, "one_sided", False):
            self.sample(rng)
            return
        raise InvalidInput(self.not_met(nearest, "those of one choice throughout"))

    # What every space does -----------------------------------------------------------------------------------------

    @property
    def size(self) -> int | float:
        return self.unconstrained.size

    def sample(self, rng: np.random.Generator) -> Architecture:
        """Raises: InvalidInput, which says how near the nearest comes, if none is found."""
        nearest: Architecture | None = None
        least = math.inf
        for _ in range(DRAWS):
            architecture = self.unconstrained.sample(rng)
            violation = self.violation_of(architecture)
            if violation == 0.0:
                return architecture
            if nearest is None or violation < least:
                nearest, least = architecture, violation
        assert nearest is not None  # there was a draw
        repaired = self.repair(nearest, rng) if self._mutable else nearest
        if self.meets(repaired):
            return repaired
        other = self.from_the_ends(rng)  # where what meets it is rarer than draws and their repair find
        if other is not None and self.meets(other):
            return other
        raise InvalidInput(self.not_met(repaired, f"{count(DRAWS, 'architecture')} drawn at random"))

    def not_met(self, nearest: Architecture, which: str) -> str:
        """An error's text: nothing meets the constraint, and how near the nearest comes."""
        space = self.unconstrained
        name = space.encode(space.canonical(nearest))
        describe = getattr(self.violation, "describe", None)
        costs = f" has {describe(name)}" if describe else ""
        violation = self.violation_of(nearest)
        beyond = "its costs are not known" if math.isinf(violation) else f"{100 * violation:.{TOLD}g} % beyond"
        return (
            f"nothing meets {self.told}: of the architectures of {space.name}, {which}, and of what mutations made of "
            f"them, the nearest, {name},{costs} ({beyond}); loosen it, or choose another space or network"
        )

    @property
    def _mutable(self) -> bool:
        try:
            self.unconstrained.check_mutable()
        except InvalidInput:
            return False
        return True

    def enumerate(self) -> Iterator[Architecture]:
        return filter(self.meets, self.unconstrained.enumerate())

    def mutate(self, architecture: Architecture, rng: np.random.Generator) -> Architecture:
        child = self.repair(self.unconstrained.mutate(architecture, rng), rng)
        return child if self.meets(child) else architecture

    def mutations(self, architecture: Architecture) -> Iterator[Architecture] | None:
        all_of_them = self.unconstrained.mutations(architecture)
        return None if all_of_them is None else filter(self.meets, all_of_them)

    def check_mutable(self) -> None:
        self.unconstrained.check_mutable()

    def canonical(self, architecture: Architecture) -> Architecture:
        return self.unconstrained.canonical(architecture)

    def rank(self, architecture: Sequence[str]) -> tuple[int, ...]:
        return self.unconstrained.rank(architecture)

    @property
    def posterior_decisions(self) -> tuple[Decision, ...]:
        return self.unconstrained.posterior_decisions

    def architecture_of_decisions(self, chosen: Mapping[str, str]) -> Architecture:
        """Raises: InvalidArchitecture for one that violates the constraint."""
        architecture = self.unconstrained.architecture_of_decisions(chosen)
        if not self.meets(architecture):
            raise InvalidArchitecture(f"{self.unconstrained.encode(architecture)} does not meet {self.told}")
        return architecture

    @property
    def rows_of_decisions(self) -> IntArray | None:
        """Of a table, those of the rows that meet the constraint; see `TableSpace`."""
        rows: IntArray | None = getattr(self.unconstrained, "rows_of_decisions", None)
        if rows is None:
            return None
        return rows[[self.meets(architecture) for architecture in self.unconstrained.enumerate()]]

    def condition(self, decision: str) -> tuple[str, tuple[str, ...]] | None:
        return self.unconstrained.condition(decision)

    def encode(self, architecture: Architecture) -> str:
        return self.unconstrained.encode(architecture)

    def decode(self, text: str) -> Architecture:
        return self.unconstrained.decode(text)

    def check(self, architecture: Architecture) -> None:
        self.unconstrained.check(architecture)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstrainedSpace) and (self.unconstrained, self.told) == (
            other.unconstrained,
            other.told,
        )

    def __hash__(self) -> int:
        return hash((self.unconstrained, self.told))
