"""What a report shows: plain tables and values, read from a run folder by whoever calls `render`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd

from archray.trainables.spaces.feature_map import FeatureMapSpace, spelling
from archray.trainables.spaces.space import Space


@dataclass(frozen=True)
class Decided:
    """One decision of the found architecture: its name, what was chosen, and what there was to choose from.

    Args:
        bounds: of a constant, the range it was drawn from; it has no `choices`.
    """

    name: str
    choice: str
    choices: tuple[str, ...]
    bounds: tuple[float, float] | None = None


def decided(space: Space, architecture: str) -> tuple[Decided, ...]:
    """The decisions of `architecture`, a string of `space`; a feature map's constant is the last of them.

    A constant that makes no difference to this map is `unused`.

    Raises: InvalidArchitecture.
    """
    chosen = space.decode(architecture)
    if not isinstance(space, FeatureMapSpace):
        return tuple(Decided(d.name, c, d.choices) for d, c in zip(space.decisions, chosen, strict=True))
    *choices, value = chosen
    constant = space.constant
    ends = {space.canonical((*choices, spelling(end))) for end in (constant.low, constant.high)}
    if len(ends) == 1:
        last = Decided(constant.name, "unused", ())
    else:
        last = Decided(constant.name, value, (), (constant.low, constant.high))
    return (*(Decided(d.name, c, d.choices) for d, c in zip(space.decisions, choices, strict=True)), last)


@dataclass(frozen=True)
class Objective:
    """How HNAS ranks the pool: kappa/M + mu F(M^2 - nu), thesis Eq. 7.7, and where (mu, nu) were searched.

    Args:
        scale: the pool's largest |M|; every M is divided by it (note H1).
        penalty: F by name, `square` or `absolute` (note H2).
        mu_bounds: the range of mu, searched on a logarithmic scale; None takes the range of the trials.
        root_nu_bounds: the range of sqrt(nu), in units of `scale`; drawn on a logarithmic axis unless it begins at 0.
        epsilon: added to M in the quotient: 1e-6 in the preset `paper-code`.
    """

    scale: float
    penalty: str = "square"
    mu_bounds: tuple[float, float] | None = None
    root_nu_bounds: tuple[float, float] = (0.0, 1.0)
    epsilon: float = 0.0


@dataclass(frozen=True)
class RunView:
    """One run, as its report shows it. All but the first three may be missing; a section without data is left out.

    Args:
        method: `hnas`, `halving`, ...
        space: the name or reference of the space.
        data: the name of the data set.
        manifest: config, versions, seeds, hardware, git commit, data checksum: anything that nests and prints.
        architecture: the string of what was found; None if the run found nothing, or an ensemble.
        members: the strings of the ensemble that was found; empty for a search for one architecture.
        decisions: its decisions (`decided`), for the drawing of the cell.
        member_decisions: the decisions of each of `members`, for the drawing of their cells.
        metric, mode: what the search trials were ranked by, and whether `max` or `min` is best.
        proxy: the training-free metric M of the pool.
        objective: HNAS' objective and its ranges.
        seed: the root seed of the run.
        seconds: how long the run took, all stages together.
        started: when it started, as it should be printed.
        pool: a row per scored architecture: `architecture`, the metric called `proxy`, `kappa`, `failure` (reason
            or null).
        evaluated: a row per suggestion of the search, in order: `number` (from 0; below 0 for what the user gave),
            `architecture`, `mu`, `nu`, `value` (the metric), `failure`, `repeat` (true if told a value already
            known, without training).
        baseline: a row per random architecture trained with the same budget: `architecture`, `test_accuracy`,
            `failure`.
        final: a row per final training of the found architecture: `seed`, `test_accuracy`, `failure`, and, where they
            are known, `parameters` and `multiply_adds` (of one image) of the network.
        curves: a row per trial and epoch: `trial_id`, `stage` (`search`, `selection`, `final`, `baseline`),
            `architecture`, `epoch` (from 1), and any of `train_loss`, `validation_accuracy`; of a supernet, also
            `seed` and `discretised_accuracy`. `repeat` may be missing.
        repeats: a mapping per repeat of the whole run: `repeat`, `seed`, `architecture`, `value`, `test_accuracy`
            (a number, or a sequence over final seeds), `baseline` (likewise, over architectures).
        progress: a row per solver call of a search for a feature map, in order: `repeat`, `calls` (so far), `seconds`
            (so far, of featurising, solving and scoring), `architecture` (the best so far), `dimension` (of this
            solve), `candidates` (that shared it), `score`, `test_error` (of the best so far; where solves are shared
            that of an oracle, which solves for it alone at the full dimension; NaN if not known), `final` (whether
            this is the standalone solve that ends the search).
        correlation: a row per `repeat`, `bases` (`shared` or `independent`), `dimension` and `architecture`: the
            validation accuracy with shared weights, `shared`, and solved for on its own, `standalone`.
        rounds: a row per round and candidate of a successive halving, `WeightSharingHalving.rounds()`, and `repeat`.
        found: of a search that trains supernets, a row per search seed: `repeat`, `trial_id`, `seed`, `architecture`,
            `value` (validation accuracy of the architecture with shared weights), `validation_accuracy` (of the
            mixture; NaN if there is none), `failure`.
        entropies: a row per supernet, epoch, group and edge: `repeat`, `trial_id`, `seed`, `epoch`, `group`, `edge`,
            `entropy` of the edge's weights in nats, and, where it is known, `operations`: how many it weighs.
        scores: a row per architecture scored with shared weights: `repeat`, `trial_id`, `seed`, `architecture`,
            `loss`, `accuracy`, `failure`.
        selection: a row per found architecture trained on the final schedule: `repeat`, `architecture`, `epochs` (so
            many were trained), `value` (validation accuracy at the epoch where the worst were dropped),
            `validation_accuracy` (at its end), `kept`, `failure`.
        selection_curves: a row per such training and epoch: `repeat`, `trial_id`, `architecture`, `epoch`,
            `validation_accuracy`.
        posterior: a row per decision and choice of the posterior over architectures: `decision`, `choice`,
            `probability`.
        posterior_curves: a row per epoch and decision of its training: `epoch` (from 1), `decision`, `entropy` (nats),
            and of the epoch as a whole, the same in each of its rows, `elbo` and `kl` (nats) and `scale` (by which the
            ELBO multiplies the mean loss).
        ensembles: a row per sampled ensemble, in order: `number`, `sampler` (a method's name where several are set
            side by side), `delta` (NaN for a sampler without), `temperature`, `members` (a sequence of strings),
            `validation_loss` and `validation_error` of the averaged probabilities, with what weights the search has
            (NESBS: shared ones), `failure`.
            `repeat` may be missing.
        estimated_true: a row per member and per ensemble that was trained: `kind` (`member` or `ensemble`), `name`,
            `estimated` (validation error with shared weights), `true` (test error trained from scratch), and, of
            ensembles of several sizes, `size`.
        diversity: a row per ensemble trained in full: `method`, `members` (how many), `ate` (average test error of
            its members), `ppd` (pairwise predictive disagreement), `test_error`, and, where they are known, `nll` and
            `ece`; several rows of a method are its repeats.
        ensemble: what became of the found ensemble: a row per member, one of the ensemble, and one per baseline:
            `kind` (`member`, `ensemble`, `baseline`), `name`, `architecture` (null of several), `test_error`, `nll`
            (nats), `ece`, of more than one model `ate` and `ppd`, `failure`.

    Accuracies, errors, PPD and ECE are fractions in [0, 1]; they are shown in percent. Frames may be None, which is
    the same as empty.
    """

    method: str
    space: str
    data: str
    manifest: Mapping[str, Any] = field(default_factory=dict)
    architecture: str | None = None
    members: Sequence[str] = ()
    decisions: Sequence[Decided] = ()
    member_decisions: Sequence[Sequence[Decided]] = ()
    metric: str = "validation_accuracy"
    mode: str = "max"
    proxy: str | None = None
    objective: Objective | None = None
    seed: int | None = None
    seconds: float | None = None
    started: str | None = None
    pool: pd.DataFrame = field(default_factory=pd.DataFrame)
    evaluated: pd.DataFrame = field(default_factory=pd.DataFrame)
    baseline: pd.DataFrame = field(default_factory=pd.DataFrame)
    final: pd.DataFrame = field(default_factory=pd.DataFrame)
    curves: pd.DataFrame = field(default_factory=pd.DataFrame)
    repeats: Sequence[Mapping[str, Any]] = ()
    progress: pd.DataFrame = field(default_factory=pd.DataFrame)
    correlation: pd.DataFrame = field(default_factory=pd.DataFrame)
    rounds: pd.DataFrame = field(default_factory=pd.DataFrame)
    found: pd.DataFrame = field(default_factory=pd.DataFrame)
    entropies: pd.DataFrame = field(default_factory=pd.DataFrame)
    scores: pd.DataFrame = field(default_factory=pd.DataFrame)
    selection: pd.DataFrame = field(default_factory=pd.DataFrame)
    selection_curves: pd.DataFrame = field(default_factory=pd.DataFrame)
    posterior: pd.DataFrame = field(default_factory=pd.DataFrame)
    posterior_curves: pd.DataFrame = field(default_factory=pd.DataFrame)
    ensembles: pd.DataFrame = field(default_factory=pd.DataFrame)
    estimated_true: pd.DataFrame = field(default_factory=pd.DataFrame)
    diversity: pd.DataFrame = field(default_factory=pd.DataFrame)
    ensemble: pd.DataFrame = field(default_factory=pd.DataFrame)

    def __post_init__(self) -> None:
        for entry in fields(self):
            if entry.type == "pd.DataFrame":
                frame = getattr(self, entry.name)
                frame = pd.DataFrame() if frame is None else frame.reset_index(drop=True)
                object.__setattr__(self, entry.name, frame)

    def best_trial(self) -> int | None:
        """The position in `evaluated` of the best value, the earliest of equals; None if there is no finite one."""
        values = numbers(self.evaluated, "value").where(failures(self.evaluated).isna() & ~is_repeat(self.evaluated))
        if values.notna().sum() == 0:
            return None
        array = values.to_numpy()
        return int(np.nanargmax(array) if self.mode == "max" else np.nanargmin(array))


def numbers(frame: pd.DataFrame, column: str) -> pd.Series:
    """`column` as floats, one per row of `frame`; NaN where it is missing, infinite, or no number."""
    if column not in frame:
        return pd.Series(float("nan"), index=frame.index, dtype=float)
    values = pd.to_numeric(frame[column], errors="coerce").astype(float)
    return values.where(values.abs() != float("inf"))


def failures(frame: pd.DataFrame) -> pd.Series:
    """The reason of each row's failure, None where there is none; an empty string is none.

    `failure` is a result's own reason, `error` that of a trial that Tune gave up.
    """
    columns = [frame[name].tolist() for name in ("failure", "error") if name in frame]
    given = [[str(v) for v in row if pd.notna(v) and str(v).strip()] for row in zip(*columns, strict=True)]
    reasons = [row[0] if row else None for row in given] or [None] * len(frame)
    return pd.Series(reasons, index=frame.index, dtype=object)


def is_repeat(frame: pd.DataFrame) -> pd.Series:
    """Which rows were answered with a value that was known already, without a training."""
    return flags(frame, "repeat")


def flags(frame: pd.DataFrame, column: str) -> pd.Series:
    """`column` as booleans, one per row of `frame`; false where it is missing."""
    if column not in frame:
        return pd.Series(False, index=frame.index)
    return frame[column].map(lambda value: bool(value) if pd.notna(value) else False).astype(bool)
