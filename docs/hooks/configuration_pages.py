"""The pages of the site with every configuration key of a method, from the docstrings and defaults of its models."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout that is not installed has its docs too

from archray.platform.config import description_of, field_kinds
from archray.platform.methods import METHODS, STUDIES, get_method
from archray.platform.methods.configure import make_config
from archray.settings import RegisteredSettings

PRESETS = ("smoke", "demo", "paper")
FOLDER = "configuration"
ABSENT = object()


@dataclass(frozen=True)
class Key:
    """One key of a configuration."""

    path: str
    meaning: str
    values: str


def on_config(config: Any) -> None:
    """Puts the pages under the page "Configuration" of the navigation."""
    reference = next(entry["Reference"] for entry in config["nav"] if "Reference" in entry)
    at = reference.index("configuration.md")
    pages: list[Any] = ["configuration.md", *({name: f"{FOLDER}/{name}.md"} for name in (*METHODS, *STUDIES))]
    reference[at : at + 1] = [{"Configuration": pages}]


def on_files(files: Any, config: Any) -> Any:
    """Adds a page for each method and study."""
    for name in (*METHODS, *STUDIES):
        files.append(File.generated(config, f"{FOLDER}/{name}.md", content=page_of(name)))
    return files


def page_of(name: str) -> str:
    """All keys of a method, as Markdown."""
    method = get_method(name)
    values = {preset: make_config(name, preset, None, {}).model_dump(mode="json") for preset in PRESETS}
    flags: dict[str, list[str]] = {}
    for flag, path in method.flags.items():
        flags.setdefault(path, []).append(f"`--{flag.replace('_', '-')}`")
    registry, command = (METHODS, "search") if name in METHODS else (STUDIES, "understand")
    summary = registry.summary(name)
    front = "---\nsearch:\n  boost: 0.3\n---\n\n"  # the pages that explain come first
    blocks = [f"{front}# {name}\n\n{summary}.\n\n`archray {command} {name} --help` shows the short flags.\n"]
    section = None
    for key in keys(method.config):
        head = key.path.partition(".")[0] if "." in key.path else ""
        if head != section:
            title = f"## {head}\n\n{first_line(method.config, head)}" if head else "## The run"
            blocks.append(f"{title}\n\n| key | meaning | values | default |\n|---|---|---|---|")
            section = head
        short = " ".join(flags.get(key.path, []))
        shown = f"`{key.path}`" + (f"<br>{short}" if short else "")
        blocks.append(f"| {shown} | {cell(key.meaning)} | {cell(key.values)} | {cell(default(values, key.path))} |")
    return "\n".join(blocks).replace("|\n## ", "|\n\n## ") + "\n"


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[Key]:
    """Every key of a model: its own keys first, then the keys of nested models."""
    nested = []
    for name, field in model.model_fields.items():
        path, kinds = prefix + name, field_kinds(field.annotation)
        models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if models and not issubclass(models[0], RegisteredSettings):
            nested += [(path, inner) for inner in models]
            continue
        yield Key(path, description_of(model, name), values_of(kinds))
        for family in models:
            for member in family.registry.names():
                for inner in keys(family.registry.get(member), f"{path}."):
                    if not inner.path.endswith(".name"):
                        yield Key(inner.path, f"`{member}`: {inner.meaning}", inner.values)
    for path, inner in nested:
        yield from keys(inner, f"{path}.")


def values_of(kinds: list[Any]) -> str:
    """The types of a field, or the values or names to choose from."""
    names = {int: "integer", float: "number", bool: "true, false", str: "text", tuple: "list", dict: "table"}
    texts = []
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, RegisteredSettings):
            texts += [f"`{name}`" for name in kind.registry.names()]
        elif isinstance(kind, type):
            texts.append(names.get(kind, kind.__name__))
        else:
            texts.append(f"`{kind}`")
    return ", ".join(dict.fromkeys(texts))


def first_line(model: type[BaseModel], name: str) -> str:
    """The meaning of the configuration's field that holds these keys."""
    text = description_of(model, name)
    return f"{text}\n" if text else ""


def default(values: dict[str, dict[str, Any]], path: str) -> str:
    """The value in each preset; a single value if they are the same."""
    by_preset = {preset: value_of(config, path) for preset, config in values.items()}
    shown = {
        preset: "none" if value is None else json.dumps(value)
        for preset, value in by_preset.items()
        if value is not ABSENT
    }
    if len(set(shown.values())) == 1 and len(shown) == len(values):
        return f"`{next(iter(shown.values()))}`"
    return "<br>".join(f"{preset}:&nbsp;`{value}`" for preset, value in shown.items())


def value_of(config: Any, path: str) -> Any:
    """The value at a path; the name of settings that have one."""
    for key in path.split("."):
        if not isinstance(config, dict) or key not in config:
            return ABSENT
        config = config[key]
    return config.get("name", config) if isinstance(config, dict) else config


def cell(text: str) -> str:
    """`text`, escaped for a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")
