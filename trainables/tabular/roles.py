"""What the columns of a table are for, named by its user or known by their names."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from archray.errors import InvalidInput, InvalidTable, expect
from archray.trainables.proxies import PROXIES

ROW = "row"  # as the architecture: the row's number, of a table whose columns do not identify an architecture

# Names that columns have in the tables people share; the first that a table has is taken.
ARCHITECTURES = ("architecture", "arch")
OBJECTIVES = ("objective", "validation_accuracy", "val_accuracy", "valid_accuracy", "cifar10_valid_12")
RESULTS = ("result", "test_accuracy", "cifar10_test_200")
SECONDS = ("seconds", "training_seconds", "train_seconds", "training_time")
METRICS = ("jacob_cov", "nwot", "zico", "naswot_bayeswatch")  # of NAS-Bench-Suite-Zero, beside archray's
SIZES = ("params", "parameters", "flops", "macs", "multiply_adds")  # costs that say how large a network is
COST = re.compile(rf"({'|'.join(SIZES)})(_.*)?|.*(latency|energy)(_.*)?")
EPOCH = re.compile(r".+@([0-9]+)")  # `accuracy@12`: after 12 epochs
SEED = re.compile(r"(.+)_seed[0-9]+")  # `accuracy_seed0`: one of the trainings whose mean `accuracy` is


@dataclass(frozen=True)
class Roles:
    """The columns of a table by what they are for.

    Args:
        architecture: the columns that together name an architecture, joined by `|`; `row`: the row's number does.
        objective: what a search is told, the value after training.
        result: what a search is judged by; None: the objective.
        mode: whether a larger or a smaller value is better, of objective, result and epochs alike. Values keep
            their sign and unit.
        metrics: training-free metrics. costs: sizes, multiply-adds, latencies. seconds: of the training.
        epochs: of a training's value at some epochs, epoch -> column.
        seeds: of a value that was trained several times, its column -> a column for each training, of which it is the
            mean if the table has no such column.
        space: a registered space whose strings the architectures are; `none`: a space of its own; None: not known.
        encoding: see `encode_rows`; None: the space's decisions, or else `tokens` where they fit, or `none`.
    """

    architecture: tuple[str, ...] = ()
    objective: str | None = None
    result: str | None = None
    mode: Literal["max", "min"] = "max"
    metrics: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()
    seconds: str | None = None
    epochs: Mapping[int, str] = field(default_factory=dict)
    seeds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    space: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        for name in ("objective", "result", "seconds", "space", "encoding"):
            expect(name, getattr(self, name), str, type(None))
        columns = [*self.metrics, *self.costs, *self.values]
        if twice := sorted({column for column in columns if columns.count(column) > 1}):
            raise InvalidInput(
                f"expected columns with one role each, got {', '.join(twice)} as a metric or a cost and once more; "
                "name each column once"
            )
        if self.mode not in ("max", "min"):
            raise InvalidInput(f"mode: expected 'max' or 'min', got {self.mode!r}")

    @property
    def values(self) -> dict[str, str]:
        """Every column that must be there and finite, with its role."""
        named = {self.objective: "objective", self.result: "result", self.seconds: "seconds"}
        named |= dict.fromkeys(self.epochs.values(), "epochs")
        return {column: role for column, role in named.items() if column is not None}

    @property
    def columns(self) -> dict[str, str]:
        """Every column that has a role, with it."""
        named = {**dict.fromkeys(self.metrics, "metrics"), **dict.fromkeys(self.costs, "costs"), **self.values}
        return named | {column: "seeds" for columns in self.seeds.values() for column in columns}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Roles":
        """The roles that `to_json` wrote, or a user's: a column where several may stand is one of them.

        Raises: InvalidInput for a role that there is not.
        """
        unknown = sorted(values.keys() - cls.__dataclass_fields__.keys())
        if unknown:
            raise InvalidInput(
                f"a table has no role {unknown[0]!r}; choose one of {', '.join(cls.__dataclass_fields__)}"
            )
        read = dict(values)
        for name in ("architecture", "metrics", "costs"):
            if name in read:
                read[name] = _listed(read[name])
        if "epochs" in read:
            read["epochs"] = {_epoch(epoch): column for epoch, column in dict(read["epochs"]).items()}
        if "seeds" in read:
            read["seeds"] = {value: _listed(columns) for value, columns in dict(read["seeds"]).items()}
        return cls(**read)


def guess_roles(columns: Sequence[str], useless: Iterable[str] = (), **named: Any) -> Roles:
    """The roles of a table's columns: those that are named, the others by well-known names.

    Architectures are known by `architecture`, `arch`; the objective by `objective`, `validation_accuracy`,
    `val_accuracy`, `valid_accuracy`, `cifar10_valid_12`; the result by `result`, `test_accuracy`, `cifar10_test_200`;
    seconds by `seconds`, `training_seconds`, `train_seconds`, `training_time`; metrics by the names they have in
    archray and NAS-Bench-Suite-Zero; costs by `params`, `flops`, `macs`, ... and whatever has `latency` or `energy` in
    its name; the value after 12 epochs by `NAME@12`; the trainings whose mean is `NAME` by `NAME_seed0`, ....

    Args:
        useless: columns without information, which are no metric and no cost unless they are named so.

    Raises: InvalidTable if a column that is named is not there.
    """
    roles = Roles.of({name: value for name, value in named.items() if value is not None})
    _check_there(roles, columns)
    taken = set(roles.columns)
    usable = [column for column in columns if column not in taken | set(useless)]
    by_epoch = {int(match[1]): match[0] for column in columns if (match := EPOCH.fullmatch(column))}
    guessed: dict[str, Any] = {
        "architecture": tuple(_first(ARCHITECTURES, columns)),
        "objective": next(iter(_first(OBJECTIVES, columns)), by_epoch[max(by_epoch)] if by_epoch else None),
        "result": next(iter(_first(RESULTS, columns)), None),
        "seconds": next(iter(_first(SECONDS, columns)), None),
        "metrics": tuple(column for column in usable if _is_metric(column)),
        "costs": tuple(column for column in usable if COST.fullmatch(column)),
        "epochs": by_epoch,
        "seeds": {},
    }
    roles = replace(roles, **{name: value for name, value in guessed.items() if named.get(name) is None})
    if named.get("seeds") is None:
        trainings: dict[str, list[str]] = {}
        for column in columns:
            match = SEED.fullmatch(column)
            if match and match[1] in roles.values:
                trainings.setdefault(match[1], []).append(column)
        roles = replace(roles, seeds={value: tuple(found) for value, found in trainings.items()})
    return roles


def is_size(cost: str) -> bool:
    """Whether a cost says how large a network is, by one of SIZES in its name, of which the singular will do too."""
    return any(size.removesuffix("s") in cost.lower() for size in SIZES)


def _is_metric(column: str) -> bool:
    return column in METRICS or (column in PROXIES and not COST.fullmatch(column))


def _first(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    return [name for name in names if name in columns][:1]


def _listed(value: Any) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else tuple(value)


def _epoch(value: Any) -> int:
    if not str(value).isdecimal() or int(value) < 1:
        raise InvalidInput(f"epochs: expected a whole number of 1 or more, got {value!r}")
    return int(value)


def _check_there(roles: Roles, columns: Sequence[str]) -> None:
    needed = {**roles.columns, **dict.fromkeys(roles.architecture, "architecture")}
    for column, role in needed.items():
        if column not in (*columns, *roles.seeds) and (role, column) != ("architecture", ROW):
            raise InvalidTable(f"the table has no column {column!r} for {role}; it has {', '.join(columns)}")
