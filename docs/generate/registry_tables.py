"""Tables of pages, from the registries: `<!-- table: NAME -->` is the table NAME of TABLES."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer

from archray import list_names, searchers
from archray.platform.cli import application
from archray.platform.commands.check import reason_against
from archray.platform.methods import METHODS, STUDIES, get_method
from archray.platform.plots import FIGURES, figure_of, methods_of
from archray.platform.quantities import QUANTITIES
from archray.searchers import ArchraySearcher
from archray.trainables.costs import COSTS
from archray.trainables.proxies import PROXIES
from archray.trainables.spaces import SPACES, Space, get_space
from archray.trainables.supernets.networks import SUPERNETS

REPOSITORY = Path(__file__).resolve().parents[2]
ENTRY = re.compile(r'^(- <a id="([\w-]+)"></a>.*?)(?: Cited by .*)?$', re.MULTILINE)  # of references.md
CITATION = re.compile(r"\b([A-Z][\w-]+)(?:\s+et\s+al\.|\s+and\s+[A-Z]\w+)?\s+\(?((?:19|20)\d\d)\b")
EXAMPLES = REPOSITORY / "examples"
# A model without widths, whose alternatives are functions of the channels.
FUNCTIONS = """\
from torch import nn
from archray import Choice

def network(in_channels, num_classes):
    def block(number):
        alternatives = {f"conv{k}": lambda c, k=k: nn.Conv2d(c, c, k, padding=k // 2) for k in (1, 3, 5)}
        return Choice(alternatives, name=f"block{number}", channels=16)

    blocks = map(block, range(6))
    return nn.Sequential(nn.Conv2d(in_channels, 16, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(16, num_classes))
"""
CITING = ("archray", "cluster", "platform", "searchers", "trainables", "benchmarks", "examples")
FEATURES = "method | own model | decisions | table | bench | streaming | constraints | objectives | decide | extend"
OWN_OPTIONS = (
    "`--help` after its name prints them, and [`archray config`](configuration.md) all keys with their meaning."
)
CATALOG = "platform/methods/catalog.py"  # whose summaries name methods


def table(head: str, rows: list[tuple[str, ...]]) -> str:
    """A Markdown table; `head` has its columns, with `|` between them."""
    columns = [column.strip() for column in head.split("|")]
    return "\n".join(f"| {' | '.join(row)} |" for row in [tuple(columns), ("---",) * len(columns), *rows])


def proxies() -> str:
    """A row for each training-free metric, with links to its papers."""

    def link(citation: re.Match[str]) -> str:
        return f"[{citation[0]}](references.md#{citation[1].lower()}-{citation[2]})"

    better = {"max": "larger", "min": "smaller"}
    rows = [
        (f"`{metric.name}`", metric.summary, better[metric.direction], metric.reads, CITATION.sub(link, metric.source))
        for metric in map(PROXIES.get, PROXIES)
    ]
    return table("metric | description | better | reads | source", rows)


def costs() -> str:
    """A row for each cost."""
    rows = [(f"`{cost.name}`", cost.unit, cost.summary) for cost in map(COSTS.get, COSTS)]
    rows.append(("`FILE.py:FUNCTION`", "its attribute `unit`", "Custom function of a network and an image's (C, H, W)"))
    rows.append(("a column of `--cost-table FILE`, or of the table that is searched", "", "See [tables](tables.md)"))
    return table("cost | unit | description", rows)


def figures() -> str:
    """Returns a row per figure of `archray.plots`: a thumbnail, the first paragraph of its docstring, and its data."""
    rows = []
    for name in sorted(FIGURES):  # not in the order of imports
        summary = " ".join((figure_of(name).__doc__ or "").split("\n\n")[0].split())
        methods = [f"`{method}`" for method in methods_of(name)]
        several = {"summaries": "several runs", "progress": "several runs of feature maps", "bench": "a bench"}
        places = several.get(FIGURES[name][0]) or (", ".join(methods) if methods else "every run")
        picture = f"images/plots/{name}.png"
        exists = (REPOSITORY / "docs" / picture).exists()
        thumbnail = f'<img src="{picture}" width="210" loading="lazy" alt="{name}">' if exists else ""
        rows.append((thumbnail, f"`{name}`", summary, places))
    return table("thumbnail | function | content | data", rows)


def quantities() -> str:
    """A row for each quantity, with its label and unit in the terminal and the report."""
    rows = [(f"`{key}`", quantity.label, quantity.unit, quantity.meaning) for key, quantity in QUANTITIES.items()]
    return table("key | label | unit of the label | meaning", rows)


def spaces() -> str:
    """A row for each space: its size, whether it has a supernet, and the first paragraph of its docstring."""
    rows = []
    for name in SPACES:
        kind, size = SPACES.get(name), SPACES.get(name)().size
        number = (
            f"{size:,}"
            if size < 10**9
            else "continuous"
            if math.isinf(size)
            else f"{float(size):.1e}".replace("e+", " x 10^")
        )
        summary = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
        rows.append((f"`{name}`", number, "yes" if name in SUPERNETS else "", summary))
    return table("space | architectures | supernet | description", rows)


def datasets() -> str:
    """A row for each data set."""
    return table("data set | description", [(f"`{name}`", text) for name, text in list_names("datasets").items()])


def searcher_classes() -> list[type[ArchraySearcher]]:
    """The searchers of `archray.searchers`."""
    public = [getattr(searchers, name) for name in searchers.__all__ if name != "ArchraySearcher"]
    return [value for value in public if inspect.isclass(value) and issubclass(value, ArchraySearcher)]


def searcher_table() -> str:
    """A row for each searcher, from the lines `Suggests:`, `Needs:` and `Takes:` of its docstring."""
    rows = []
    for searcher in searcher_classes():
        text, row = inspect.getdoc(searcher) or "", [f"`{searcher.__name__}`"]
        for label in ("Suggests", "Needs", "Takes"):
            line = re.search(rf"^{label}: (.*?)\.(?=\n\n|\n[A-Z]\w+: |\Z)", text, re.MULTILINE | re.DOTALL)
            if line is None:
                raise ValueError(f"expected a line '{label}: ...' in the docstring of {searcher.__name__}")
            row.append(" ".join(line[1].split()))
        rows.append(tuple(row))
    return table("searcher | suggests, in the trial's config | needs back, in its results | takes", rows)


def searcher_entries() -> str:
    """The searchers' entries in the API reference."""
    return "\n\n".join(f"::: {searcher.__module__}.{searcher.__name__}" for searcher in searcher_classes())


def methods() -> str:
    """A row for each method and study."""
    rows = [(f"`{name}`", registry.summary(name)) for registry in (METHODS, STUDIES) for name in registry]
    return table("method or study | summary", rows)


def features() -> str:
    """A row for each set of features, with the methods that declare it."""
    with TemporaryDirectory() as folder:
        model, file = Path(folder) / "functions_of_channels.py", Path(folder) / "table.csv"
        model.write_text(FUNCTIONS, encoding="utf-8")
        file.write_text("architecture,objective\na,1\nb,2\n", encoding="utf-8")
        lookups = get_space(f"table:{file}")
        places = (f"{EXAMPLES}/own_model.py:network", f"{model}:network", f"{EXAMPLES}/own_space.py:ResidualSpace")
        *models, own_space = [(place, get_space(place)) for place in places]
        return table(FEATURES, feature_rows(models, own_space, lookups))


def feature_rows(
    models: list[tuple[str, Space]], own_space: tuple[str, Space], lookups: Space
) -> list[tuple[str, ...]]:
    """The rows of `features`, for models with choices, a list of decisions, and a table of unknown architectures."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name in METHODS:
        method = get_method(name)
        fields = method.config.model_fields
        searched = [reason_against(name, *model) is None for model in models]
        row = (
            "yes" if all(searched) else "some" if any(searched) else "",
            *(
                "yes" if supported else ""
                for supported in (
                    reason_against(name, *own_space) is None,
                    method.serves(lookups) is None,
                    method.searcher_at is not None,
                    method.streams,
                    "constraints" in fields and method.config.unconstrained is None,
                    "objectives" in fields,
                    "decide" in fields and "decide" not in method.rejects,
                    "budget" in method.extendable,
                )
            ),
        )
        rows.setdefault(row, []).append(f"`{name}`")
    return [(", ".join(names), *row) for row, names in rows.items()]


def stages() -> str:
    """A row for each sequence of stages, with the methods and studies that have it."""
    names: dict[str, list[str]] = {}
    for method in (*METHODS, *STUDIES):
        folders = " ".join(f"`{stage.name}/`" for stage in get_method(method).recipe.stages)
        names.setdefault(folders, []).append(f"`{method}`")
    return table("method or study | folders of its stages, in order", [(", ".join(of), f) for f, of in names.items()])


def method_files() -> str:
    """The files of each family's runs, from `files.md` of its package."""
    pages = [page.read_text(encoding="utf-8") for page in sorted(REPOSITORY.glob("platform/methods/**/files.md"))]
    return re.sub(r"\((\.\./)+docs/", "(", "\n".join(pages))


@cache
def citations() -> dict[str, list[str]]:
    """Returns the methods, studies, metrics and files that cite each entry of references.md, by its anchor."""
    texts = {name: registry.summary(name) for registry in (METHODS, STUDIES) for name in registry}
    texts |= {name: PROXIES.get(name).source for name in PROXIES}
    cited: dict[str, list[str]] = {}
    for place, text in texts.items():
        for author, year in CITATION.findall(text):
            cited.setdefault(f"{author.lower()}-{year}", []).append(f"`{place}`")
    files: dict[str, dict[Path, list[Path]]] = {}
    for file in (file for package in CITING for file in sorted((REPOSITORY / package).rglob("*.py"))):
        for author, year in set(CITATION.findall(file.read_text(encoding="utf-8"))):
            path = file.relative_to(REPOSITORY)
            files.setdefault(f"{author.lower()}-{year}", {}).setdefault(path.parent, []).append(path)
    for key, folders in files.items():  # a file, or the folder of several
        names = [f"{folder}/" if len(several) > 1 else str(several[0]) for folder, several in folders.items()]
        cited.setdefault(key, []).extend(f"`{name}`" for name in names if name != CATALOG)
    return cited


def commands() -> str:
    """A section for each command: usage, help, arguments and options. Options of a single method have other pages."""
    app = typer.main.get_command(application([]))
    blocks = []
    for name in app.list_commands(None):
        command, path = app.commands[name], f"archray {name}"
        blocks.append(f"## `{path}`")
        if name == "search":
            blocks += [*usage_of(command, f"{path} [METHOD] [OPTIONS]"), *method_options(name, METHODS)]
        elif name == "understand":
            words = f"A study has the [options of all methods](#options-of-all-methods), and its own. {OWN_OPTIONS}"
            blocks += [*usage_of(command, f"{path} STUDY [OPTIONS]"), words]
        elif name == "config":
            words = "The options are those of `archray search` or `archray understand`."
            blocks += [*usage_of(command, f"{path} METHOD|STUDY [OPTIONS]"), words]
        elif hasattr(command, "commands"):
            blocks += usage_of(command, f"{path} COMMAND [OPTIONS]")
            for inner, subcommand in command.commands.items():
                blocks += [f"### `{path} {inner}`", *parts_of(subcommand, f"{path} {inner}")]
        else:
            blocks += parts_of(command, path)
    return "\n\n".join(blocks)


def parts_of(command: Any, path: str) -> list[str]:
    """The usage, the help, and the tables of arguments and options of a command."""
    context = command.context_class(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    usage = usage.replace("...}...", "...}").replace("...]...", "...]").replace("{", "").replace("}", "")
    blocks = usage_of(command, usage)
    arguments = [parameter for parameter in command.params if not parameter.opts[0].startswith("-")]
    options = [parameter for parameter in command.params if parameter.opts[0].startswith("-")]
    if arguments:
        names = [f"`{argument.metavar or argument.name}`" for argument in arguments]
        rows = [(name, cell(a.help), default_of(a)) for name, a in zip(names, arguments, strict=True)]
        blocks.append(table("argument | meaning | default", rows))
    if options:
        rows = [(option_of(option, context), cell(option.help), default_of(option)) for option in options]
        blocks.append(table("option | meaning | default", rows))
    return blocks


def usage_of(command: Any, usage: str) -> list[str]:
    """The usage of a command, and its help; lines that Click does not wrap become a block of code."""
    paragraphs = [f"```text\n{usage}\n```"]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            paragraphs.append(f"```text\n{inspect.cleandoc(paragraph[1:])}\n```")
        else:
            paragraphs.append(" ".join(paragraph.split()))
    return paragraphs


def method_options(command: str, registry: Any) -> list[str]:
    """Tables of the options that all methods, or more than half of them, have with the same meaning."""
    by_name: dict[str, list[Any]] = {}
    for method in registry:
        app = typer.main.get_command(application([command, method]))
        for option in app.commands[command].commands[method].params:
            by_name.setdefault(option.name, []).append(option)
    context = app.context_class(app)

    def rows(least: float, most: float) -> list[tuple[str, ...]]:
        shared = [options for options in by_name.values() if least < len(options) / len(list(registry)) <= most]
        same = [options[0] for options in shared if len({meaning_and_key(option.help) for option in options}) == 1]
        return [(option_of(option, context), *meaning_and_key(option.help)) for option in same]

    return [
        f"A method has the options below, and its own. {OWN_OPTIONS}",
        "### Options of all methods",
        table("option | meaning | key", rows(0.999, 1)),
        "### Options of most methods",
        table("option | meaning | key", rows(0.5, 0.999)),
    ]


def meaning_and_key(text: str) -> tuple[str, str]:
    """The help of an option of a method, and the key that stands at its end: `Root seed. (seed, default 0)`."""
    match = re.fullmatch(r"(.*?)\s*\(([\w.]+), default .*\)", text, re.DOTALL)
    return (cell(match[1]), f"`{match[2]}`") if match else (cell(text), "")


def option_of(option: Any, context: Any) -> str:
    """The names of an option and its value, as code: `--budget <int>`. A `|` in code does not end a cell."""
    return f"`{option.get_help_record(context)[0]}`"


def default_of(option: Any) -> str:
    """The default of an option; nothing for a flag and for None, which the help explains."""
    if option.required:
        return "required"
    return "" if option.default in (None, "", False) else f"`{option.default}`"


def cell(text: str | None) -> str:
    """`text`, escaped for a cell of a table."""
    return (text or "").replace("|", "\\|").replace("\n", " ")


TABLES: dict[str, Callable[[], str]] = {
    "proxies": proxies,
    "costs": costs,
    "figures": figures,
    "quantities": quantities,
    "spaces": spaces,
    "datasets": datasets,
    "searchers": searcher_table,
    "searcher_entries": searcher_entries,
    "methods": methods,
    "features": features,
    "stages": stages,
    "method_files": method_files,
    "commands": commands,
}


def with_citations(markdown: str) -> str:
    """Returns a page with the places that cite it behind each reference."""

    def entry(match: re.Match[str]) -> str:
        cited = citations().get(match[2])
        return f"{match[1]} Cited by {', '.join(cited)}." if cited else match[1]

    return ENTRY.sub(entry, markdown)
