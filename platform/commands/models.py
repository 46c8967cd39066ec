"""Commands that use a trained model: `archray export`, `archray predict` and `archray attack`."""

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

ATTACK_KEYS = ("benign_member", "attack", "transfer", "benign", "defense", "noise")  # keys of quantities `KEY_accuracy`
FORMATS_HELP = "Format: onnx, torch-export, safetensors, python or state-dict. Repeatable."
MEMBER_HELP = "Member of a Pareto set, by its number in 'archray show'. Default: the most accurate."


def export(
    run: RunFolder,
    to: Annotated[str | None, typer.Option(help="Output folder, new or empty. Default: DIR/export.")] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help=f"{FORMATS_HELP} Default: torch-export and state-dict.")
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Also write an int8 ONNX graph, and print its test accuracy and size.")
    ] = False,
    member: Annotated[
        int | None, typer.Option(metavar="K", help=f"{MEMBER_HELP} Writes to DIR/export-member-K.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Export the trained model as files that load without archray, with a loader, a README and model.json."""
    paths = archray.export(run, to, formats=formats or None, int8=int8, member=member, trust=trust)
    for path in paths:
        typer.echo(path)
    if int8:
        # heavy imports, which the export has already loaded
        from archray.files import Folder
        from archray.platform.api import export_name
        from archray.platform.models.rebuilt_model import MODEL_CARD

        entry = Folder(to if to is not None else f"{run.rstrip('/')}/{export_name(member)}").read_json(MODEL_CARD)[
            "int8"
        ]
        typer.echo(
            f"int8: test accuracy {entry['test_accuracy']:.4f} instead of {entry['float_test_accuracy']:.4f} "
            f"({entry['test_images']} images), {entry['bytes']:,} bytes instead of {entry['float_bytes']:,}"
        )


def predict(
    model: Annotated[str, typer.Argument(metavar="DIR", help="Folder of a run or an export.")],
    images: Annotated[list[str], typer.Argument(metavar="IMAGES...", help="Image files, or folders of image files.")],
    top: Annotated[int, typer.Option(help="Number of classes per image, the most probable first.", min=1)] = 1,
    export_format: Annotated[
        str | None, typer.Option("--format", help="Format of the export to use, or int8. Default: the first format.")
    ] = None,
    member: Annotated[int | None, typer.Option(metavar="K", help=MEMBER_HELP)] = None,
    trust: Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Classify images with the trained model of a run or an export."""
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
    run: Annotated[str, typer.Argument(metavar="DIR", help="Folder of a finished run with an ensemble.")],
    attacks: Annotated[
        str | None, typer.Option(help=f"Comma-separated attacks: {', '.join(ATTACKS.registered())}. Default: all.")
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(help="Maximum change of a pixel (pixels in 0..1), e.g. 8/255 or 0.03. Default: 8/255."),
    ] = None,
    images: Annotated[int | None, typer.Option(help="Number of test images. Default: up to 1,000.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed for the choice of images, random starts and noise. Default: the run's.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Setting of one attack, e.g. pgd.iterations=20. Repeatable."),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Output folder. Default: DIR/attack. Another folder leaves the report unchanged.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Attack each member of an ensemble in turn, and classify the adversarial images with the whole ensemble.

    To resume an interrupted attack, run the command again, without options or with the same options. Requires the
    packages of the extra 'adversarial'.
    """
    # imports take 0.1 s, and `archray --help` does not need them
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
    """Mean and deviation over rounds, or over repeats if there are several."""
    if len(rows) > 1:
        return Spread.of(rows[key], "repeat")
    row = rows.iloc[0]
    return Spread(float(row[key]), float(row[f"{key}_std"]), int(row["rounds"]), "round")


def _number(text: str | None) -> float | None:
    """Parses `8/255` or `0.03`. Raises: InvalidInput."""
    if text is None:
        return None
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError) as error:
        raise InvalidInput(f"expected epsilon as a number or a fraction such as 8/255, got {text!r}") from error
