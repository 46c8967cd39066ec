"""Adversarial attacks on a finished ensemble: `archray.attack`. Shu 2022, section 5.3.6."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console

from archray.cluster.connect import connect
from archray.cluster.ray_watch import why_stopped
from archray.errors import InvalidInput, RunInterrupted
from archray.files import Folder
from archray.platform.api import report
from archray.platform.config import merge, validate
from archray.platform.engine.stage import run_name
from archray.platform.methods import open_run
from archray.platform.methods.ensembles.attack import AttackQuestion, attack_run, check_attack
from archray.platform.methods.ensembles.tables import ATTACK, ENDED, QUESTION
from archray.platform.run.heartbeat import lock
from archray.platform.run.layout import command


def attack(
    path: str | os.PathLike[str],
    attacks: str | Sequence[str] | None = None,
    *,
    epsilon: float | None = None,
    images: int | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    trust: bool = False,
) -> pd.DataFrame:
    """Attacks each member of a run's ensemble in turn, and classifies the adversarial images with the whole ensemble.

    The function writes `attack/` in the run's folder, and rewrites the report. It attacks all repeats. A second call,
    with the same arguments or none, resumes an interrupted attack without repeating its finished rounds.

    Args:
        path: folder of a finished run with an ensemble, a path or a pyarrow URI.
        attacks: one or several names of `ATTACKS`, such as `fgsm`, `pgd`, `cw`, `autoattack`; None: all.
        epsilon: maximum change of a pixel in 0..1, for bounded attacks; None: 8/255.
        images: number of test images; None: up to 1,000.
        seed: seed for the choice of images, random starts and noise; None: the run's seed.
        settings: settings of single attacks, nested as `AttackSettings`: `{"pgd": {"iterations": 20}}`. They override
            `epsilon`.
        out: another folder for the tables; the report then stays unchanged.
        trust: whether the run's code may execute although you did not start the run on this machine; see
            docs/trust.md.

    Returns: a row per attack (and per `repeat`, if there are several): `attack`, `rounds`, `images`, and mean and
    standard deviation over rounds of the accuracies of the attacked member and of the ensemble, see docs/attack.md.
    Raises: UntrustedCode; RunFolderError for a run that has not ended; InvalidInput for a run without an ensemble of
    two members or more, epsilon not between 0 and 1, too many images, or data without pixels; UnknownName;
    MissingExtra, all before the attack starts; RunInterrupted.

    Example:
        ```python
        table = archray.attack("runs/nesbs", ["fgsm", "pgd"], epsilon=8 / 255, images=200)
        ```
    """
    run = open_run(path, trust=trust, uses="cluster")
    place = run.folder / ATTACK if out is None else Folder(out)
    targets = {target.folder.name: target for target in run.repeats} or {"": run}
    if out is None:
        folders = {name: target.folder / ATTACK for name, target in targets.items()}
    else:
        folders = {name: place / name if name else place for name in targets}
    question = _question(attacks, epsilon, images, seed, settings, list(folders.values()))
    questions = {name: check_attack(target, question) for name, target in targets.items()}
    console = Console()
    tables = []
    options: dict[str, Any] = {"user_files": run.user_files, "name": f"attack {run_name(run.folder)}"}
    try:
        with (
            lock(run.folder if out is None else place, "archray attack"),
            connect(run.config.cluster, announce=console.print, **options),
        ):
            for number, (name, target) in enumerate(targets.items()):
                table = attack_run(target, questions[name], folders[name], console)
                tables.append(table.assign(repeat=number) if run.repeats else table)
    except (KeyboardInterrupt, RunInterrupted) as error:
        again = command("attack", run.folder, *(() if out is None else ("--out", place)))
        raise RunInterrupted(f"{why_stopped(error)}. Continue with: {again}") from error
    if out is None:
        report(str(run.folder), trust=trust)
    return pd.concat(tables, ignore_index=True)


def _question(
    attacks: str | Sequence[str] | None,
    epsilon: float | None,
    images: int | None,
    seed: int | None,
    settings: Mapping[str, Any] | None,
    folders: Sequence[Folder],
) -> AttackQuestion:
    """Returns the question of these arguments; without arguments, the question of an unfinished attack in a folder."""
    unfinished = next((f for f in folders if f.exists(QUESTION) and not f.exists(ENDED)), None)
    if unfinished is not None and (attacks, epsilon, images, seed, settings) == (None,) * 5:
        return AttackQuestion.model_validate(unfinished.read_json(QUESTION))
    if epsilon is not None and not 0 < epsilon < 1:
        raise InvalidInput(
            f"expected epsilon between 0 and 1, the maximum change of a pixel in 0..1 (8/255 is 0.031), got {epsilon:g}"
        )
    if images is not None and images < 1:
        raise InvalidInput(f"images: expected 1 or more, got {images}")
    names = [attacks] if isinstance(attacks, str) else attacks
    options = merge({} if epsilon is None else {"epsilon": epsilon}, settings or {})
    values = {"attacks": names, "images": images, "seed": seed, "settings": options}
    return validate(AttackQuestion, {key: value for key, value in values.items() if value is not None})
