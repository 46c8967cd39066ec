"""Figures of a run, for a notebook or a paper.

Each function takes a run's folder, an `archray.RunResult` or a run, and returns a matplotlib `Figure`; see
docs/plots.md. The functions are loaded on first use: `import archray.plots` imports neither matplotlib nor Ray.

Example:
    ```python
    figure = archray.plots.hnas_landscape("runs/hnas")
    figure.savefig("landscape.pdf")
    ```
"""

from importlib import import_module
from typing import Any

_PLOTS = "archray.platform.plots"


def __getattr__(name: str) -> Any:
    table = import_module(_PLOTS)
    if name == "__all__":
        return list(table.FIGURES)
    if name in table.FIGURES:
        return table.figure_of(name)
    if name.startswith("_"):
        raise AttributeError(f"module 'archray.plots' has no attribute {name!r}")
    raise AttributeError(f"There is no figure {name!r}. Choose one of {', '.join(table.FIGURES)}.")


def __dir__() -> list[str]:
    return sorted(import_module(_PLOTS).FIGURES)
