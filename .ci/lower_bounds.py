"""Print the oldest versions that pyproject.toml allows as requirements: `numpy>=1.26` becomes `numpy==1.26`."""

import re
import sys
import tomllib
from pathlib import Path

BOUND = re.compile(r"^(?P<name>[\w.-]+)(?P<extras>\[[\w,]+\])?>=(?P<version>[\w.]+)$")

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
for requirement in project["dependencies"]:
    match = BOUND.match(requirement)
    if match is None:
        sys.exit(f"Expected every dependency in pyproject.toml as name>=version, got {requirement!r}")
    sys.stdout.write(f"{match['name']}{match['extras'] or ''}=={match['version']}\n")
