"""The command `archray attack`: a finished ensemble, one member attacked at a time."""

from fractions import Fraction
from typing import Annotated, Any

import typer

import archray
from archray.errors import InvalidInput
from archray.platform.quantities import Spread, quantity_of
from archray.platform.run.trust import TRUST_HELP
from archray.trainables.adversarial.attacks import ATTACKS

SHOWN = (
    "benign_member_accuracy",
    "attack_accuracy",
    "transfer_accuracy",
    "benign_accuracy",
    "defence_accuracy",
    "noise_accuracy",
)


def attack(
    run: Annotated[str, typer.Argument(metavar="DIR", help="The folder of a run that ended with an ensemble.")],
    attacks: Annotated[
        str | None, typer.Option(help="Of fgsm, pgd, cw, autoattack, with commas between. Default: all.")
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="The largest change of a pixel in 0..1, 8/255 or 0.03. Default: 8/255.")
    ] = None,
    images: Annotated[int | None, typer.Option(help="Of the test images. Default: 1,000, or all of fewer.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of images, random starts, noise. Default: the run's.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of one attack: pgd.iterations=20. Repeatable."),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Another folder than DIR/attack; the report then stays as it is.")
    ] = None,
    trust: Annotated[bool, typer.Option("--trust", help=TRUST_HELP)] = False,
) -> None:
    """Attack each member of an ensemble in turn, and let all of them predict what came of it.

    Given again it continues: without options, what was begun. Needs pip install 'archray[adversarial]'.
    """
    # 0.1 s, which `archray --help` does without
    from archray.platform.config import merge, parse_assignment
    from archray.platform.show import aligned

    options = merge(*map(parse_assignment, settings)) if settings else None
    names = None if attacks is None else [name.strip() for name in attacks.split(",") if name.strip()]
    table = archray.attack(
        run, names, epsilon=_number(epsilon), images=images, seed=seed, settings=options, out=out, trust=trust
    )
    attacks_told = [str(name) for name in table["attack"].unique()]
    lines = [["", *(ATTACKS.get(name).title for name in attacks_told)]]
    for key in SHOWN:
        spreads = [_spread(table[table["attack"] == name], key) for name in attacks_told]
        lines.append(
            [quantity_of(key).axis, *(quantity_of(key).spread(spread).removesuffix(" %") for spread in spreads)]
        )
    for line in aligned(lines):
        typer.echo(line)


def _spread(rows: Any, key: str) -> Spread | None:
    """Mean and deviation over rounds; of several repeats, over these."""
    if len(rows) > 1:
        return Spread.of(rows[key], "repeat")
    row = rows.iloc[0]
    return Spread(float(row[key]), float(row[f"{key}_std"]), int(row["rounds"]), "round")


def _number(text: str | None) -> float | None:
    """`8/255` and `0.03` as numbers. Raises: InvalidInput."""
    if text is None:
        return None
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError) as error:
        raise InvalidInput(f"expected epsilon as a number or a fraction such as 8/255, got {text!r}") from error
