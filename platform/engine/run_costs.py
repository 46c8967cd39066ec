"""Costs of a run's networks, and the space, pool or list that its constraints leave."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import ray
from ray.exceptions import RayError

from archray.errors import ArchrayError, InvalidInput
from archray.platform.config import SearchConfig
from archray.platform.engine.settings import ENUMERABLE
from archray.plurals import count
from archray.seeds import named_rng
from archray.trainables.costs import LatencySettings, NetworkCosts, Violation
from archray.trainables.costs.meter import Latencies, LatencyMeter, Pair, Times, calibration_candidates
from archray.trainables.costs.networks import cost_table
from archray.trainables.data import load_images
from archray.trainables.spaces import ConstrainedSpace, Space, get_space
from archray.trainables.spaces.constraint import Constraint, parse_constraints, violation
from archray.trainables.spaces.table_space import PREFIX

if TYPE_CHECKING:
    from archray.platform.engine.stage import Context

# Latency on a device of the cluster, measured by an actor on a node that the user names by Ray's resources.


class DeviceMeter:
    """A `LatencyMeter` in an actor that holds all that its node has of the resources that name it.

    So no other actor of that name runs on it: networks are timed one at a time, of this run and of others. It takes no
    CPU of Ray's, since a device may have declared none; trials keep away from a node that has declared none.

    Args:
        resources: `{"raspberry": 1}`; the least that the node must have. arguments: of the `LatencyMeter`.

    Raises: InvalidInput without Ray, or if no node has them.
    """

    def __init__(self, resources: Mapping[str, float], arguments: Sequence[Any]) -> None:
        held = whole_resources(resources)
        meter = ray.remote(LatencyMeter).options(num_cpus=0, resources=held, max_restarts=2, max_task_retries=2)
        self._actor: Any = meter.remote(*arguments)

    def whole(self, architecture: str) -> Pair:
        median, iqr = self._asked(self._actor.whole.remote(architecture))
        return float(median), float(iqr)

    def operations(self, architecture: str, known: list[str]) -> tuple[list[str], dict[str, Pair]]:
        keys, new = self._asked(self._actor.operations.remote(architecture, known))
        return keys, new

    def _asked(self, answer: Any) -> Any:
        try:
            return ray.get(answer)
        except RayError as error:
            raise ArchrayError(f"the device timed nothing: {error}") from error


def whole_resources(resources: Mapping[str, float]) -> dict[str, float]:
    """All that one node has of the resources that are named: the first by its id, of those that have enough.

    Raises: InvalidInput without Ray, for a resource of Ray's own, or if no node has them.
    """
    if not resources or any(name in ("CPU", "GPU", "memory") or amount <= 0 for name, amount in resources.items()):
        raise InvalidInput(
            f'expected resources that name a device, {{"raspberry": 1}}, got {json.dumps(dict(resources))}; start its '
            "Ray with --resources"
        )
    if not ray.is_initialized():
        raise InvalidInput("a latency on a device needs Ray, and a search on a table runs without; leave --cost-on out")
    nodes = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: node["NodeID"])
    for node in nodes:
        has = node["Resources"]
        if all(has.get(name, 0.0) >= amount for name, amount in resources.items()):
            return {name: float(has[name]) for name in resources}
    known = sorted({name for node in nodes for name in node["Resources"] if ":" not in name})
    raise InvalidInput(
        f"no node has the resources {json.dumps(dict(resources))}; the cluster has {', '.join(known)}: start Ray on "
        f"the device with --resources '{json.dumps(dict(resources))}'"
    )


COSTS = "costs"  # the folder of a run in which is kept what is measured, and what its images are
IMAGES, LATENCY = "images.json", "latency.json"


def run_costs(context: Context[Any]) -> NetworkCosts:
    """The costs that a run looks at, one object for all stages, so that each is computed once."""
    if context.costs is None:
        config, run = context.config, context.run
        names = tuple(run.resolved(f"cost-{name.rpartition(':')[2]}", name) for name in config.cost_names)
        costs = NetworkCosts(
            run.space,
            names,
            network=config.network,
            table=cost_table(config.costs),
            settings=config.costs,
            **_images(context),
        )
        folder = context.run.folder / COSTS
        written = folder.read_json(LATENCY) if folder.exists(LATENCY) else {}
        costs.use_latencies(
            Latencies(
                partial(_times, costs, config.costs.latency),
                config.costs.model,
                written,
                lambda record: folder.write_json(LATENCY, record),
                candidates=partial(calibration_candidates, costs.space),
                announce=context.say,
            )
        )
        context.costs = costs
    return context.costs


def _times(costs: NetworkCosts, settings: LatencySettings) -> Times:
    """What times the networks: this process, or an actor on the device that the settings name."""
    return costs.meter() if settings.resources is None else DeviceMeter(settings.resources, costs.meter_arguments)


def check_device(config: SearchConfig) -> None:
    """Raises: InvalidInput if no node of the Ray that is connected has the device that the costs are timed on."""
    costs = getattr(config, "costs", None)
    if costs is not None and costs.latency.resources is not None:
        whole_resources(costs.latency.resources)


def has_costs(context: Context[Any]) -> bool:
    """Whether the run looks at any costs."""
    return bool(getattr(context.config, "cost_names", ()))


def constraints_of(context: Context[Any]) -> tuple[Constraint, ...]:
    """Those of the run, whose costs of the user's are the run's own copies."""
    texts = getattr(context.config, "constraints", ())
    return tuple(
        Constraint(context.run.resolved(f"cost-{each.column}", each.cost), each.relation, each.bound)
        for each in parse_constraints(texts)
    )


def searched_space(context: Context[Any]) -> str | Space:
    """What the run searches: its space, or, under constraints, what they leave of it."""
    constraints = constraints_of(context)
    if not constraints:
        return context.run.space
    told = " and ".join(f"{each.column} {each.relation} {each.bound:g}" for each in constraints)
    return ConstrainedSpace(get_space(context.run.space), Violation(constraints, run_costs(context)), told)


def check_constraints(context: Context[Any]) -> None:
    """Raises: InvalidInput, which says how near the nearest comes, if nothing is found that meets the constraints."""
    space = searched_space(context)
    if not isinstance(space, ConstrainedSpace):
        return
    named: str | None = getattr(context.config, "architecture", None)  # of an ensemble of one architecture
    if named is not None and not space.meets(space.decode(named)):
        raise InvalidInput(
            f"expected an architecture that meets {space.told}, got {named}, which has "
            f"{describe(space, named)}; name another, or loosen the constraint"
        )
    space.check_met(named_rng(context.config.seed, "constraint check"))


def describe(space: ConstrainedSpace, architecture: str) -> str:
    """The bounded costs of an architecture, in words."""
    assert isinstance(space.violation, Violation)  # as `searched_space` made it
    return space.violation.describe(architecture)


def feasible_candidates(context: Context[Any], size: int | None, seed: int) -> list[str] | None:
    """A pool of distinct canonical forms that meet the constraints, as strings; None without constraints.

    All of them, or `size` drawn from the seed: in a space of up to a million uniformly, in a larger one as it is
    sampled. Raises: InvalidInput if there are none, or fewer than `size` in a large space.
    """
    space = searched_space(context)
    if not isinstance(space, ConstrainedSpace):
        return None
    whole, rng = space.unconstrained, np.random.default_rng(seed)
    wanted = "all" if size is None else str(size)
    if whole.size > ENUMERABLE:
        if size is None:
            raise InvalidInput(f"{whole.name} has {whole.size:.3g} architectures, too many to score all; give a size")
        drawn: dict[str, None] = {}
        for _ in range(100 * size):
            drawn[whole.encode(whole.canonical(space.sample(rng)))] = None
            if len(drawn) == size:
                return list(drawn)
    else:
        forms = list(dict.fromkeys(whole.canonical(architecture) for architecture in whole.enumerate()))
        drawn = {}
        for row in range(len(forms)) if size is None else rng.permutation(len(forms)):
            if space.meets(forms[row]):
                drawn[whole.encode(forms[row])] = None
                if len(drawn) == size:
                    break
        if not drawn:
            check_constraints(context)  # which says how near the nearest comes
    context.say(f"{count(len(drawn), 'architecture')} that meet {space.told}, of {wanted} asked for")
    return list(drawn)


def with_costs(context: Context[Any], table: pd.DataFrame, *, fill: bool = False) -> pd.DataFrame:
    """A table with a column `architecture`, and the run's costs as columns of their own where it lacks them.

    fill: also in rows that lack what others have, as the new trials of a search that was extended.
    """
    if not has_costs(context) or table.empty or "architecture" not in table:
        return table
    costs = run_costs(context)
    empty = pd.DataFrame(index=table.index, columns=list(costs.frame_columns), dtype="float64")
    missing = table.reindex(columns=empty.columns).isna()
    columns = [name for name in costs.frame_columns if (missing[name].any() if fill else missing[name].all())]
    named = table["architecture"].map(lambda name: isinstance(name, str)) & missing[columns].any(axis=1)
    if not columns or not named.any():
        return table.assign(**{name: empty[name] for name in columns if name not in table})
    frame = costs.frame(table["architecture"][named].unique()).set_index("architecture")
    known = {name: pd.to_numeric(table[name]) if name in table else empty[name] for name in columns}
    return table.assign(**{name: known[name].fillna(table["architecture"].map(frame[name])) for name in columns})


def feasible_rows(context: Context[Any], table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a pool that meet the constraints, by its own columns where it has them.

    Raises: InvalidInput, which says how near the nearest comes, if there are none.
    """
    constraints = constraints_of(context)
    if not constraints:
        return table
    columns = list(dict.fromkeys(each.column for each in constraints))
    rows = [dict(zip(columns, row, strict=True)) for row in table[columns].astype("float64").itertuples(index=False)]
    violations = np.array([violation(constraints, row) for row in rows])
    left = table[violations == 0.0].reset_index(drop=True)
    told = " and ".join(f"{each.column} {each.relation} {each.bound:g}" for each in constraints)
    if left.empty:
        best = int(np.argmin(violations))
        near = ", ".join(f"{column} {rows[best][column]:.5g}" for column in columns)
        raise InvalidInput(
            f"nothing meets {told}: of {count(len(table), 'architecture')} in the pool the nearest, "
            f"{table['architecture'][best]}, has {near} ({100 * violations[best]:.4g} % beyond); loosen the constraint"
        )
    context.say(f"{count(len(left), 'architecture')} of {len(table)} meet {told}")
    return left


def _images(context: Context[Any]) -> dict[str, int]:
    """What networks are built for. Read once, and kept: opening a data set takes time."""
    if context.config.space.startswith(PREFIX):  # a table is its own data; its networks are those of CIFAR-10
        return {"in_channels": 3, "image_size": 32, "num_classes": 10}
    folder = context.run.folder / COSTS
    if not folder.exists(IMAGES):
        data = load_images(context.run.data)
        facts = {"in_channels": data.in_channels, "image_size": data.image_size, "num_classes": data.num_classes}
        folder.write_json(IMAGES, facts)
    facts_read: dict[str, int] = folder.read_json(IMAGES)
    return facts_read
