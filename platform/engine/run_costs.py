"""Costs of a run's networks, and the space and the pool under the run's constraints."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import ray

from archray.errors import ArchrayError, InvalidInput
from archray.platform.config import SearchConfig
from archray.platform.engine.settings import ENUMERABLE
from archray.plurals import count
from archray.seeds import named_rng
from archray.trainables.costs import COSTS, LatencySettings, NetworkCosts, Violation, get_cost
from archray.trainables.costs.meter import Latencies, LatencyMeter, Pair, Times, calibration_candidates
from archray.trainables.costs.networks import cost_table
from archray.trainables.data import DataSettings, load_images
from archray.trainables.spaces import ConstrainedSpace, Space, get_space
from archray.trainables.spaces.constrained_space import Constraint, costs_named, parse_constraints, violation
from archray.trainables.spaces.joint_space import JointSpace
from archray.trainables.spaces.space import Decision
from archray.trainables.spaces.table_space import PREFIX

if TYPE_CHECKING:  # a circular import
    from archray.platform.engine.stage import Context


class DeviceMeter:
    """A `LatencyMeter` in an actor on a device, which is a node of the cluster with custom Ray resources.

    The actor reserves all of these resources on its node, so that no other run measures there at the same time. It
    reserves no CPU, since a device may declare none. Trials do not run on a node without CPUs.

    Args:
        resources: minimum resources of the node, such as `{"raspberry": 1}`.
        arguments: arguments of the `LatencyMeter`.

    Raises: InvalidInput without Ray, or if no node has the resources.
    """

    def __init__(self, resources: Mapping[str, float], arguments: Sequence[Any]) -> None:
        amounts = whole_resources(resources)
        meter = ray.remote(LatencyMeter).options(num_cpus=0, resources=amounts, max_restarts=2, max_task_retries=2)
        self._actor: Any = meter.remote(*arguments)

    def whole(self, architecture: str) -> Pair:
        median, iqr = self._answer(self._actor.whole.remote(architecture))
        return float(median), float(iqr)

    def operations(self, architecture: str, timed: list[str]) -> tuple[list[str], dict[str, Pair]]:
        keys, new = self._answer(self._actor.operations.remote(architecture, timed))
        return keys, new

    def _answer(self, answer: Any) -> Any:
        try:
            return ray.get(answer)
        except ray.exceptions.RayError as error:
            raise ArchrayError(f"the latency measurement on the device failed: {error}") from error


def whole_resources(resources: Mapping[str, float]) -> dict[str, float]:
    """Returns the amounts of these resources on the first node (by id) that has enough of them.

    Raises: InvalidInput without Ray, or if no node has the resources.
    """
    if not ray.is_initialized():
        raise InvalidInput("--cost-on requires Ray, which a search on a table does not start. Leave --cost-on out")
    nodes = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: node["NodeID"])
    for node in nodes:
        amounts = node["Resources"]
        if all(amounts.get(name, 0.0) >= amount for name, amount in resources.items()):
            return {name: float(amounts[name]) for name in resources}
    names = sorted({name for node in nodes for name in node["Resources"] if ":" not in name})
    raise InvalidInput(
        f"expected a node with the resources {json.dumps(dict(resources))}, got a cluster with {', '.join(names)}. "
        f"Start Ray on the device with --resources '{json.dumps(dict(resources))}'"
    )


FOLDER = "costs"  # folder of a run for measured latencies and the shape of its images
IMAGES, LATENCY = "images.json", "latency.json"


def run_costs(context: "Context[Any]") -> NetworkCosts:
    """Returns the costs of a run: one object for all stages, which computes each cost once."""
    if context.costs is None:
        config, run = context.config, context.run
        names = tuple(run.resolved(f"cost-{name.rpartition(':')[2]}", name) for name in config.cost_names)
        options: dict[str, Any] = {"network": config.network, "settings": config.costs, **image_sizes(context)}
        costs = NetworkCosts(run.space, names, table=cost_table(config.costs), **options)
        folder = run.folder / FOLDER
        costs.latencies = Latencies(
            partial(_times, costs, config.costs.latency),
            config.costs.model,
            folder.read_json(LATENCY) if folder.exists(LATENCY) else {},
            lambda record: folder.write_json(LATENCY, record),
            candidates=partial(calibration_candidates, costs.space),
            announce=context.say,
            bounded=bool(measured_bounds(context)),
        )
        context.costs = costs
    return context.costs


def _times(costs: NetworkCosts, settings: LatencySettings) -> Times:
    """Returns the latency meter: in this process, or in an actor on the device of the settings."""
    return (
        LatencyMeter(*costs.meter_arguments)
        if settings.resources is None
        else DeviceMeter(settings.resources, costs.meter_arguments)
    )


def device_of(config: SearchConfig) -> Mapping[str, float] | None:
    """Returns the Ray resources of the node that measures latency; None if the driver measures it."""
    costs = getattr(config, "costs", None)
    return None if costs is None else costs.latency.resources


def check_device(config: SearchConfig) -> None:
    """Checks the device on which latency is measured. Raises: InvalidInput if no node of the cluster has it."""
    if (resources := device_of(config)) is not None:
        whole_resources(resources)


def has_costs(context: "Context[Any]") -> bool:
    """Returns whether the run has costs."""
    return bool(getattr(context.config, "cost_names", ()))


def constraints_of(context: "Context[Any]") -> tuple[Constraint, ...]:
    """Returns the constraints of the run. For a custom cost, the run uses its copy of the user's file."""
    constraints = parse_constraints(getattr(context.config, "constraints", ()))
    costs = [context.run.resolved(f"cost-{constraint.column}", constraint.cost) for constraint in constraints]
    return tuple(Constraint(cost, c.relation, c.bound) for cost, c in zip(costs, constraints, strict=True))


def measured_bounds(context: "Context[Any]") -> list[str]:
    """Returns the bounded costs that are measured."""
    return [bound.cost for bound in constraints_of(context) if bound.cost in COSTS and get_cost(bound.cost).measured]


def _words(constraints: Sequence[Constraint]) -> str:
    return " and ".join(f"{constraint.column} {constraint.relation} {constraint.bound:g}" for constraint in constraints)


def searched_space(context: "Context[Any]") -> str | Space:
    """Returns the space of the run, restricted to the constraints if there are any."""
    constraints = constraints_of(context)
    if not constraints:
        return context.run.space
    violation_of = Violation(constraints, run_costs(context))
    return ConstrainedSpace(get_space(context.run.space), violation_of, _words(constraints))


def joint_space(context: "Context[Any]") -> str | Space:
    """Returns the `searched_space` together with the training decisions of the run, if there are any."""
    space, decisions = searched_space(context), context.config.training_decisions
    return with_decisions(get_space(space), decisions) if decisions else space


def with_decisions(space: Space, decisions: Mapping[str, Sequence[Any]]) -> Space:
    """Returns a space together with training decisions, if there are any. decisions: values by key."""
    training = [Decision(name, tuple(map(json.dumps, values))) for name, values in decisions.items()]
    return JointSpace(space, training) if training else space


def check_constraints(context: "Context[Any]") -> None:
    """Checks that an architecture meets the constraints. Raises: InvalidInput with the nearest architecture."""
    _check_met(searched_space(context), context.config)


def check_constraints_without_run(config: SearchConfig) -> None:
    """Like `check_constraints`, for the constraints on costs that need no measurement."""
    constraints = parse_constraints(getattr(config, "constraints", ()))
    if not constraints:
        return
    of_run: Any = config  # a configuration with constraints has a network and costs
    options: dict[str, Any] = {"network": of_run.network, "settings": of_run.costs}
    options |= {"table": cost_table(of_run.costs), **_sizes(config.space, config.data)}
    costs = NetworkCosts(config.space, costs_named(constraints), **options)
    computed = [constraint for constraint in constraints if not costs.is_measured(constraint.cost)]
    if computed:
        space = ConstrainedSpace(costs.space, Violation(computed, costs), _words(computed))
        _check_met(space, config)


def _check_met(space: str | Space, config: SearchConfig) -> None:
    if not isinstance(space, ConstrainedSpace):
        return
    name: str | None = getattr(config, "architecture", None)  # an ensemble of one architecture
    if name is not None and not space.meets(space.decode(name)):
        raise InvalidInput(
            f"expected an architecture that meets {space.description}, got {name}, which has "
            f"{describe(space, name)}. Use another architecture, or relax the constraint"
        )
    space.check_met(named_rng(config.seed, "constraint check"))


def describe(space: ConstrainedSpace, architecture: str) -> str:
    """Formats the constrained costs of an architecture."""
    assert isinstance(space.violation, Violation)  # `searched_space` created it
    return space.violation.describe(architecture)


def feasible_candidates(context: "Context[Any]", size: int | None, seed: int) -> list[str] | None:
    """Returns a pool of distinct canonical forms that meet the constraints, as strings; None without constraints.

    Args:
        size: number of forms to draw; None: all. In a space of up to ENUMERABLE architectures the draw is uniform; in a
            larger space it follows the space's sampler.
        seed: seed of the draw.

    Raises: InvalidInput if no architecture meets the constraints, or without a size in a large space.
    """
    space = searched_space(context)
    if not isinstance(space, ConstrainedSpace):
        return None
    whole, rng = space.unconstrained, np.random.default_rng(seed)
    wanted = "all" if size is None else str(size)
    if whole.size > ENUMERABLE:
        if size is None:
            raise InvalidInput(
                f"{whole.name} has {whole.size:.3g} architectures, too many to score all. Set the pool size"
            )
        drawn: dict[str, None] = {}
        for _ in range(100 * size):
            drawn[whole.encode(whole.canonical(space.sample(rng)))] = None
            if len(drawn) == size:
                return list(drawn)
    else:
        forms = whole.canonical_forms()
        drawn = {}
        for row in range(len(forms)) if size is None else rng.permutation(len(forms)):
            if space.meets(forms[row]):
                drawn[whole.encode(forms[row])] = None
                if len(drawn) == size:
                    break
        if not drawn:
            check_constraints(context)  # raises an error with the nearest architecture
    context.say(f"{count(len(drawn), 'architecture')} that meet {space.description} (requested: {wanted})")
    return list(drawn)


def with_costs(context: "Context[Any]", table: pd.DataFrame, *, fill: bool = False) -> pd.DataFrame:
    """Adds missing cost columns of the run to a table with a column `architecture`.

    Args:
        fill: whether to also fill missing values of existing columns, e.g. for new trials of an extended search.
    """
    if not has_costs(context) or table.empty or "architecture" not in table:
        return table
    costs = run_costs(context)
    empty = pd.DataFrame(index=table.index, columns=list(costs.frame_columns), dtype="float64")
    missing = table.reindex(columns=empty.columns).isna()
    columns = [name for name in costs.frame_columns if (missing[name].any() if fill else missing[name].all())]
    with_architecture = table["architecture"].map(lambda name: isinstance(name, str)) & missing[columns].any(axis=1)
    if not columns or not with_architecture.any():
        return table.assign(**{name: empty[name] for name in columns if name not in table})
    strings = table["architecture"][with_architecture].map(lambda name: context.config.parts(name)[0])
    frame = costs.frame(strings.unique()).set_index("architecture")
    present = {name: pd.to_numeric(table[name]) if name in table else empty[name] for name in columns}
    return table.assign(**{name: present[name].fillna(strings.map(frame[name])) for name in columns})


def feasible_rows(context: "Context[Any]", table: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of a pool that meet the constraints, by its cost columns.

    Raises: InvalidInput with the nearest architecture if no row does.
    """
    constraints = constraints_of(context)
    if not constraints:
        return table
    columns = list(dict.fromkeys(constraint.column for constraint in constraints))
    rows = [dict(zip(columns, row, strict=True)) for row in table[columns].astype("float64").itertuples(index=False)]
    violations = np.array([violation(constraints, row) for row in rows])
    feasible, words = table[violations == 0.0].reset_index(drop=True), _words(constraints)
    if feasible.empty:
        best = int(np.argmin(violations))
        near = ", ".join(f"{column} {rows[best][column]:.5g}" for column in columns)
        raise InvalidInput(
            f"none of {count(len(table), 'architecture')} in the pool meets {words}. The nearest, "
            f"{table['architecture'][best]}, has {near} ({100 * violations[best]:.4g} % over the bound). Relax the "
            "constraint"
        )
    context.say(f"{count(len(feasible), 'architecture')} of {len(table)} meet {words}")
    return feasible


def image_sizes(context: "Context[Any]") -> dict[str, int]:
    """Returns channels, size and classes of the images. archray stores them, since opening a data set takes time."""
    if context.config.space.startswith(PREFIX):
        return _sizes(context.config.space, context.run.data)
    folder = context.run.folder / FOLDER
    if not folder.exists(IMAGES):
        folder.write_json(IMAGES, _sizes(context.config.space, context.run.data))
    return dict(folder.read_json(IMAGES))


def _sizes(space: str, settings: DataSettings) -> dict[str, int]:
    if space.startswith(PREFIX):  # networks of a table without data are for CIFAR-10
        return {"in_channels": 3, "image_size": 32, "num_classes": 10}
    data = load_images(settings)
    return {"in_channels": data.in_channels, "image_size": data.image_size, "num_classes": data.num_classes}
