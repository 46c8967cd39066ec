"""The page of the site with every quantity that a run tells, from the table that terminal, report and files share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout that is not installed has its docs too

from archray.platform.quantities import QUANTITIES

PAGE = "quantities.md"
TEXT = """# Quantities

What a number of a run is: of which split, and of which weights. Its key is the same in tables and JSON, its label the
same in the terminal and the report. Accuracies are fractions in files, and percent where they are shown. A spread is
the standard deviation (n - 1), and its n is named: `KEY` is a mean, `KEY_std` its standard deviation, `KEY_n` the
number, `KEY_each` what one of them is.

| key | label | unit where it is shown | what it is |
|---|---|---|---|
"""


def on_files(files: Any, config: Any) -> Any:
    """Adds the page."""
    rows = [f"| `{key}` | {each.label} | {each.unit} | {each.meaning} |\n" for key, each in QUANTITIES.items()]
    files.append(File.generated(config, PAGE, content=TEXT + "".join(rows)))
    return files
