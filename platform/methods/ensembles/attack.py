"""The rounds of an attack on a trained ensemble: each member attacked by each attack, by actors over the cluster.

A round is a file as soon as it comes back; asked again, only what is missing is done.
"""

import time
from contextlib import closing
from typing import Any

import pandas as pd
from pydantic import Field
from rich.console import Console

from archray.errors import ArchrayError, InvalidInput, RunFolderError, RunInterrupted
from archray.files import Folder
from archray.platform.engine.interrupt import INTERRUPT, stop_gracefully
from archray.platform.methods.ensembles.final import map_over_cluster
from archray.platform.methods.ensembles.tables import ENDED, PARTS, QUESTION, round_of, write_tables
from archray.platform.models.model_files import DESCRIPTION, trained
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import command, now
from archray.platform.run.manifest import digest
from archray.platform.run.run import Run
from archray.plurals import count
from archray.settings import Settings
from archray.trainables.adversarial.attacks import ATTACKS, AttackSettings, check_toolbox
from archray.trainables.adversarial.defence import AttackWorker, check_defenders, check_pixels
from archray.trainables.data import load_images
from archray.trainables.ensembles.ensemble import KIND, STATE_DICT, load_ensemble

MOST_IMAGES = 1000  # by default; AutoAttack takes hours for more, on a CPU


class AttackQuestion(Settings):
    """What is asked of an ensemble.

    Fields:
        attacks: by name.
        images: of the test split, at most; None: 1,000, or all of fewer.
        seed: of the choice of images, of random starts and of noise; None: the run's.
        settings: how strong the attacks are.
    """

    attacks: tuple[str, ...] = ("fgsm", "pgd", "cw", "autoattack")
    images: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=0)
    settings: AttackSettings = AttackSettings()


def check_attack(run: Run[Any], question: AttackQuestion) -> AttackQuestion:
    """The question with images and seed as they are for this run, of one repeat.

    Raises: RunFolderError for a run that has not ended; InvalidInput for one that found no ensemble of two members or
    more, weights of other networks, images that there are not, or a data set without pixels; UnknownName;
    MissingExtra. Nothing has begun then.
    """
    for name in question.attacks:
        ATTACKS.check(name)
    if not question.attacks:
        raise InvalidInput(f"expected an attack or several, got none; choose of {', '.join(ATTACKS)}")
    check_toolbox()
    if not run.ended:
        raise RunFolderError(
            f"{run.folder} has not ended, and only a trained ensemble is attacked; finish it with: "
            f"{command('resume', run.folder)}"
        )
    _, model, described = trained(run)
    if described.get("kind") != KIND:
        raise InvalidInput(
            f"expected the run of an ensemble, of which one member is attacked and all defend, got {run.folder}, which "
            "found one architecture; attack a run of nesbs, deep-ensemble or another search for an ensemble"
        )
    check_defenders(len(described["members"]))
    load_ensemble(model.read_bytes, run.space)
    data = load_images(run.data)
    check_pixels(data)
    available = len(data.test)
    if question.images is not None and question.images > available:
        raise InvalidInput(
            f"expected at most {count(available, 'image')}, the test split of {run.config.data.name}, got "
            f"{question.images}; lower --images"
        )
    update = {
        "attacks": tuple(dict.fromkeys(question.attacks)),
        "images": question.images or min(available, MOST_IMAGES),
        "seed": run.config.seed if question.seed is None else question.seed,
    }
    return question.model_copy(update=update)


def attack_run(run: Run[Any], question: AttackQuestion, folder: Folder, console: Console) -> pd.DataFrame:
    """Does the rounds that are missing in `folder`, on Ray, and writes its tables; returns that of attacks.

    run: one repeat. question: as `check_attack` gives it. Raises: RunInterrupted after Ctrl-C; ArchrayError if a round
    fails twice.
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
    console.print(f"{count(len(names), 'round')}, {len(names) - len(missing)} done before", highlight=False)
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
    """The rounds `missing`, each written under its name as it comes."""
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
    with stop_gracefully(console, "the rounds under way have ended"), closing(answers):
        for outcome in (outcome for outcomes in answers for outcome in outcomes):
            attack, member = outcome.item
            if outcome.error is not None:
                errors.append(f"{attack} of member {member + 1}: {outcome.error.splitlines()[0]}")
                continue
            (folder / PARTS).write_parquet(names[outcome.item], outcome.value)
            done += 1
            measures = round_of(outcome.value)
            accuracies = [quantity_of(key).text(measures[key]) for key in ("attack_accuracy", "defence_accuracy")]
            console.print(
                f"    {done}/{len(names)}  {ATTACKS.get(attack).title}, member {member + 1}: {', '.join(accuracies)}  "
                f"{measures['seconds']:.0f} s",
                soft_wrap=True,
                highlight=False,
            )
    if errors:
        raise ArchrayError(f"{count(len(errors), 'round')} failed, twice each; the first is {errors[0]}")
    if done < len(names):
        raise RunInterrupted(f"stopped with {done} of {count(len(names), 'round')} done; they are saved")
