"""archray: neural architecture search with shared weights, on Ray.

Docstrings cite papers ("Liu et al. 2019") of docs/references.md, and design notes by their code ("note P1") of
docs/notes.md.

Example:
    ```python
    import archray

    result = archray.search("random", data="digits", preset="smoke", out="runs/random")
    print(result.architecture, result.test_accuracy)
    ```
"""

from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# In a checkout the packages are next to this folder, not in it. With the repository's root on the path, archray also
# works uninstalled: from a Ray `working_dir`, or in a worker that has only the files.
_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "searchers").is_dir():
    __path__.append(str(_root))

# Public functions, loaded on first use: `import archray` must not import Ray or torch.
_PUBLIC = dict.fromkeys(("search", "understand", "config", "resume", "report", "export"), "archray.platform.api")
_PUBLIC |= {"list_names": "archray.platform.api"}
_PUBLIC |= dict.fromkeys(("show", "runs"), "archray.platform.show")
_PUBLIC |= {"watch": "archray.platform.watch"}
_PUBLIC |= {"load": "archray.platform.run_result", "RunResult": "archray.platform.run_result"}
_PUBLIC |= {"predict": "archray.platform.predict", "attack": "archray.platform.attack"}
_PUBLIC |= {"compare": "archray.platform.compare", "proxies": "archray.platform.proxies"}
_PUBLIC |= dict.fromkeys(("Choice", "Edges", "ModelSpace", "Repeat", "Width"), "archray.trainables.model_space")
_PUBLIC |= {"DurableTuner": "archray.platform.durable.tuner"}
_PUBLIC |= {"bench": "archray.platform.bench.run", "bench_proxies": "archray.platform.bench.correlations"}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name == "plots":
        return import_module("archray.plots")
    raise AttributeError(f"module 'archray' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "plots"])
