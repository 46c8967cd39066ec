"""The commands `archray export` and `archray predict`: a run's model as files, and what it makes of images."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import archray
from archray.errors import printable
from archray.platform.run.trust import TRUST_HELP

FORMATS_HELP = "onnx, torch-export, safetensors, python or state-dict; may be given several times."
MEMBER_HELP = "Of a run that ends with a set: which member, by the number that 'archray show' has. Default: the first."


def export(
    run: Annotated[str, typer.Argument(metavar="DIR", help="The folder of a run.")],
    to: Annotated[str | None, typer.Option(help="Where to; a new folder. Default: DIR/export.")] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help=f"{FORMATS_HELP} Default: torch-export and state-dict.")
    ] = None,
    int8: Annotated[bool, typer.Option("--int8", help="With onnx: an int8 graph too, and what it costs.")] = False,
    member: Annotated[int | None, typer.Option(metavar="K", help=f"{MEMBER_HELP} To: DIR/export-member-K.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help=TRUST_HELP)] = False,
) -> None:
    """Write the trained model as files that load elsewhere, with a loader, a README and model.json."""
    paths = archray.export(run, to, formats=formats or None, int8=int8, member=member, trust=trust)
    for path in paths:
        typer.echo(path)
    if int8:
        # read once a model was written
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
    trust: Annotated[bool, typer.Option("--trust", help=TRUST_HELP)] = False,
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
