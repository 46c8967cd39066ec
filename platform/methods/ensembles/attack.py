"""The rounds of an attack on a trained ensemble, one per member and attack, on actors over the cluster.

Each finished round is a file, so that a second call runs only the missing rounds.
"""

import time
from contextlib import closing
from typing import Any

import pandas as pd
from pydantic import Field
from rich.console import Console

from archray.errors import ArchrayError, InvalidInput, RunFolderError, RunInterrupted
from archray.files import Folder
from archray.platform.durable.interrupt import INTERRUPT, stop_gracefully
from archray.platform.methods.ensembles.final import map_over_cluster
from archray.platform.methods.ensembles.tables import ENDED, PARTS, QUESTION, round_of, write_tables
from archray.platform.models.model_files import load_model, trained
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import DESCRIPTION, command, now
from archray.platform.run.manifest import digest
from archray.platform.run.run import Run
from archray.plurals import count
from archray.settings import Settings
from archray.trainables.adversarial.attacks import ATTACKS, AttackSettings, check_toolbox
from archray.trainables.adversarial.defense import AttackWorker, check_defenders, check_pixels
from archray.trainables.data import load_images
from archray.trainables.ensembles.ensemble import KIND, STATE_DICT

MOST_IMAGES = 1000  # default; with more images, AutoAttack takes hours on a CPU


class AttackQuestion(Settings):
    """The settings of an attack on an ensemble.

    Fields:
        attacks: names of the attacks. Default: all.
        images: number of test images. Default: up to 1,000.
        seed: seed of the choice of images, of random starts and of noise. Default: the seed of the run.
        settings: strength of the attacks.
    """

    attacks: tuple[str, ...] = Field(default_factory=lambda: tuple(ATTACKS.registered()))
    images: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=0)
    settings: AttackSettings = AttackSettings()


def check_attack(run: Run[Any], question: AttackQuestion) -> AttackQuestion:
    """Validates an attack and fills in the number of images and the seed.

    Args:
        run: a single run, not repeats.
        question: the settings of the attack.

    Raises: RunFolderError for an unfinished run; InvalidInput for a run without an ensemble of two or more members,
    for weights of other networks, too many images, or a data set without pixels; UnknownName; MissingExtra.
    """
    for name in question.attacks:
        ATTACKS.check(name)
    if not question.attacks:
        raise InvalidInput(f"expected one or more attacks, got none. Choose from {', '.join(ATTACKS)}")
    check_toolbox()
    if not run.ended:
        raise RunFolderError(
            f"expected a finished run with a trained ensemble, got the unfinished run {run.folder}; finish it with: "
            f"{command('resume', run.folder)}"
        )
    _, _, described = trained(run)
    if described.get("kind") != KIND:
        raise InvalidInput(
            f"expected a run with an ensemble, got {run.folder}, which has a single network; attack a run of nesbs, "
            "deep-ensemble or another ensemble method"
        )
    check_defenders(len(described["members"]))
    load_model(run)
    data = load_images(run.data)
    check_pixels(data)
    available = len(data.test)
    if question.images is not None and question.images > available:
        raise InvalidInput(
            f"expected at most {count(available, 'image')}, the size of the test split of {run.config.data.name}, got "
            f"{question.images}. Lower --images"
        )
    update = {
        "attacks": tuple(dict.fromkeys(question.attacks)),
        "images": question.images or min(available, MOST_IMAGES),
        "seed": run.config.seed if question.seed is None else question.seed,
    }
    return question.model_copy(update=update)


def attack_run(run: Run[Any], question: AttackQuestion, folder: Folder, console: Console) -> pd.DataFrame:
    """Runs the rounds that are missing in `folder` on Ray, and writes the tables.

    Args:
        run: a single run, not repeats.
        question: the settings, as `check_attack` returns them.
        folder: folder of the attack.
        console: console for the progress.

    Returns: The table of attacks.

    Raises: RunInterrupted after Ctrl-C; ArchrayError if a round fails twice.
    """
    model = trained(run)[1]
    members = range(len(model.read_json(DESCRIPTION)["members"]))
    common = {"model": model.sha256(STATE_DICT), "images": question.images, "seed": question.seed}
    names = {
        (attack, member): f"{attack}-member-{member}-"
        f"{digest({**common, **ATTACKS.get(attack).reads(question.settings)})}.parquet"
        for attack in question.attacks
        for member in members
    }
    started = time.monotonic()
    if folder.exists(ENDED):
        folder.delete(ENDED)
    folder.write_json(QUESTION, question.model_dump(mode="json"))
    have = set((folder / PARTS).files())
    missing = [item for item, name in names.items() if name not in have]
    console.print(f"{count(len(names), 'round')}, {len(names) - len(missing)} already finished", highlight=False)
    if missing:
        _do(run, question, folder, missing, names, console)
    parts = {item: (folder / PARTS).read_parquet(name) for item, name in names.items()}
    attacks = write_tables(folder, parts)
    folder.write_json(ENDED, {"finished": now(), "seconds": round(time.monotonic() - started, 1)})
    return attacks


def _do(
    run: Run[Any],
    question: AttackQuestion,
    folder: Folder,
    missing: list[tuple[str, int]],
    names: dict[tuple[str, int], str],
    console: Console,
) -> None:
    """Runs the rounds `missing`, and writes each when it finishes."""
    kwargs = {
        "model": str(trained(run)[1]),
        "space": run.space,
        "data": run.data.model_dump(mode="json"),
        "images": question.images,
        "settings": question.settings.model_dump(mode="json"),
        "seed": question.seed,
    }
    options = {"title": f"{run.config.method} attack", "stop": lambda: INTERRUPT.requested}
    answers = map_over_cluster(AttackWorker, missing, kwargs, run.config.resources, **options)
    done, errors = len(names) - len(missing), []
    with stop_gracefully(console, "the rounds in progress have finished"), closing(answers):
        for outcome in (outcome for outcomes in answers for outcome in outcomes):
            attack, member = outcome.item
            if outcome.error is not None:
                errors.append(f"{attack} of member {member + 1}: {outcome.error.splitlines()[0]}")
                continue
            (folder / PARTS).write_parquet(names[outcome.item], outcome.value)
            done += 1
            measures = round_of(outcome.value)
            accuracies = [quantity_of(key).text(measures[key]) for key in ("attack_accuracy", "defense_accuracy")]
            console.print(
                f"    {done}/{len(names)}  {ATTACKS.get(attack).title}, member {member + 1}: {', '.join(accuracies)}  "
                f"{measures['seconds']:.0f} s",
                soft_wrap=True,
                highlight=False,
            )
    if errors:
        raise ArchrayError(f"{count(len(errors), 'round')} failed twice; the first is {errors[0]}")
    if done < len(names):
        raise RunInterrupted(f"stopped after {done} of {count(len(names), 'round')}, which are saved")
