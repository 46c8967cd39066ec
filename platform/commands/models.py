"""The commands of a trained model: `archray export`, `archray predict` and `archray attack`."""

import json
from fractions import Fraction
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import archray
from archray.errors import InvalidInput, printable
from archray.platform.commands.runs import RunFolder, Trust
from archray.platform.quantities import Spread, quantity_of
from archray.trainables.adversarial.attacks import ATTACKS

ATTACK_KEYS = ("benign_member", "attack", "transfer", "benign", "defence", "noise")  # of quantities `KEY_accuracy`
FORMATS_HELP = "onnx, torch-export, safetensors, python or state-dict; may be given several times."
MEMBER_HELP = "Of a run that ends with a set: which member, by the number that 'archray show' has. Default: the first."


def export(
    run: RunFolder,
    to: Annotated[str | None, typer.Option(help="A new folder. Default: DIR/export.")] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help=f"{FORMATS_HELP} Default: torch-export and state-dict.")
    ] = None,
    int8: Annotated[bool, typer.Option("--int8", help="With onnx: an int8 graph too, and what it costs.")] = False,
    member: Annotated[int | None, typer.Option(metavar="K", help=f"{MEMBER_HELP} To: DIR/export-member-K.")] = None,
    trust: Trust = False,
) -> None:
    """Write the trained model as files that load elsewhere, with a loader, a README and model.json."""
    paths = archray.export(run, to, formats=formats or None, int8=int8, member=member, trust=trust)
    for path in paths:
        typer.echo(path)
    if int8:
        # heavy, but loaded by the export
        from archray.files import Folder
        from archray.platform.api import export_name
        from archray.platform.models.rebuilt_model import CARD

        entry = Folder(to if to is not None else f"{run.rstrip('/')}/{export_name(member)}").read_json(CARD)["int8"]
        typer.echo(
            f"int8: test accuracy {entry['test_accuracy']:.4f} instead of {entry['float_test_accuracy']:.4f} "
            f"({entry['test_images']} images), {entry['bytes']:,} bytes instead of {entry['float_bytes']:,}"
        )


def predict(
    model: Annotated[str, typer.Argument(metavar="DIR", help="The folder of a run, or of an export.")],
    images: Annotated[list[str], typer.Argument(metavar="IMAGES...", help="Image files, and folders of them.")],
    top: Annotated[int, typer.Option(help="How many classes of each image, the most probable first.", min=1)] = 1,
    export_format: Annotated[
        str | None, typer.Option("--format", help="Of an export with several; also int8. Default: the first.")
    ] = None,
    member: Annotated[int | None, typer.Option(metavar="K", help=MEMBER_HELP)] = None,
    trust: Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Print the classes of images by the trained model of a run or of an export."""
    table = archray.predict(model, images, top=top, export_format=export_format, member=member, trust=trust)
    rows = table.to_dict("records")
    if as_json:
        typer.echo(printable(json.dumps(rows, indent=2, ensure_ascii=False)))
        return
    value = next(name for name in rows[0] if name in ("probability", "decision_value"))
    printed = Table("image", "class", value.replace("_", " "), box=None, pad_edge=False)
    for row in rows:
        image = str(row["image"]) if row["rank"] == 1 else ""
        printed.add_row(*(Text(printable(cell)) for cell in (image, str(row["class"]), f"{row[value]:.4f}")))
    Console(soft_wrap=True).print(printed)


def attack(
    run: Annotated[str, typer.Argument(metavar="DIR", help="The folder of a run that ended with an ensemble.")],
    attacks: Annotated[
        str | None, typer.Option(help="Attacks, separated by commas: fgsm, pgd, cw, autoattack. Default: all.")
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="The largest change of a pixel in 0..1, 8/255 or 0.03. Default: 8/255.")
    ] = None,
    images: Annotated[int | None, typer.Option(help="Number of test images. Default: up to 1,000.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of images, random starts, noise. Default: the run's.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of one attack: pgd.iterations=20. Repeatable."),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Another folder than DIR/attack; the report then stays as it is.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Attack each member of an ensemble in turn, and predict the adversarial images with the whole ensemble.

    A second call resumes an interrupted one: without options, with the same ones. Needs
    pip install 'archray[adversarial]'.
    """
    # 0.1 s, which `archray --help` does without
    from archray.platform.config import merge, parse_assignment
    from archray.platform.show import aligned

    options = merge(*map(parse_assignment, settings)) if settings else None
    names = None if attacks is None else [name.strip() for name in attacks.split(",") if name.strip()]
    table = archray.attack(
        run, names, epsilon=_number(epsilon), images=images, seed=seed, settings=options, out=out, trust=trust
    )
    names = [str(name) for name in table["attack"].unique()]
    lines = [["", *(ATTACKS.get(name).title for name in names)]]
    for key in (f"{key}_accuracy" for key in ATTACK_KEYS):
        quantity, spreads = quantity_of(key), [_spread(table[table["attack"] == name], key) for name in names]
        lines.append([quantity.axis, *(quantity.spread(spread).removesuffix(" %") for spread in spreads)])
    for line in aligned(lines):
        typer.echo(line)


def _spread(rows: Any, key: str) -> Spread | None:
    """Mean and deviation over rounds; of several repeats, over repeats."""
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
