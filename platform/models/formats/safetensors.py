"""safetensors: the weights by name, in a file that holds no code; `network.py` beside it, where there is a source."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from archray.errors import InvalidInput, MissingExtra
from archray.platform.models.export_format import (
    SOURCE,
    ExportFormat,
    Portable,
    Predict,
    prediction_of,
)
from archray.platform.models.rebuilt_model import build_exported

FILE = "model.safetensors"

LOADER = '''
def load_safetensors():
    """A torch.nn.Module in evaluation mode. Needs torch and safetensors; archray where there is no network.py."""
    import runpy

    from safetensors.torch import load_file

    weights = load_file(here / "model.safetensors")
    if not (here / "network.py").exists():
        from archray.platform.models.rebuilt_model import build_exported

        return build_exported(here, weights)
    model = runpy.run_path(str(here / "network.py"))["build"]()
    model.load_state_dict(weights)
    return model
'''


def check() -> None:
    """Raises: MissingExtra without safetensors."""
    if find_spec("safetensors") is None:
        raise MissingExtra(
            "this format needs safetensors, which cannot be imported; install it with: pip install 'archray[export]'"
        )


def write(model: Portable) -> dict[str, bytes]:
    """`model.safetensors`, and `network.py` if the model has a plain source."""
    from safetensors.torch import save

    weights = {name: tensor.detach().contiguous().clone() for name, tensor in model.network.state_dict().items()}
    files = {FILE: save(weights, metadata={"format": "pt"})}
    try:
        return files | {SOURCE: model.source()}
    except InvalidInput:  # of a space without one: archray builds the network
        return files


def read(folder: Path, card: dict[str, Any]) -> Predict:
    check()
    from safetensors.torch import load_file

    model: Any = build_exported(folder, load_file(folder / FILE))
    return prediction_of(model)


SAFETENSORS = ExportFormat(
    check=check,
    write=write,
    function="load_safetensors",
    loader=LOADER,
    needs="torch and safetensors",
    holds="the weights by name, without any code",
    open=read,
)
