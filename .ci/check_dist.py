"""Checks the metadata of wheel and sdist: python .ci/check_dist.py dist. Uses readme_renderer if it is installed."""

import re
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

from packaging.metadata import Metadata

RELATIVE = re.compile(r"\]\((?!https?://)[^)]*\)|\bsrc=\"(?!https?://)")  # links and images


def contents(folder: Path) -> dict[str, bytes]:
    """Returns the metadata of each distribution in a folder, by file name."""
    metadata = {}
    for file in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(file) as wheel:
            metadata[file.name] = wheel.read(next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")))
    for file in sorted(folder.glob("*.tar.gz")):
        with tarfile.open(file) as sdist:
            stream = sdist.extractfile(f"{file.name.removesuffix('.tar.gz')}/PKG-INFO")
            assert stream is not None
            metadata[file.name] = stream.read()
    return metadata


def problems(content: bytes) -> list[str]:
    """Returns the problems of one distribution. Raises: an ExceptionGroup of packaging for invalid fields."""
    metadata = Metadata.from_email(content, validate=True)
    readme = metadata.description or ""
    failures = [f"relative link in the readme: {link[0]}" for link in RELATIVE.finditer(readme)]
    for field in ("summary", "license_expression", "requires_python", "keywords", "classifiers", "requires_dist"):
        if not getattr(metadata, field):
            failures.append(f"no {field}")
    if metadata.description_content_type != "text/markdown":
        failures.append(f"readme of type {metadata.description_content_type}, expected text/markdown")
    if find_spec("readme_renderer"):
        from readme_renderer import markdown  # optional

        if markdown.render(readme) is None:
            failures.append("readme_renderer cannot render the readme")
    return failures


def main(arguments: list[str]) -> int:
    """Prints the problems of all distributions. Returns the exit status."""
    checked = contents(Path(arguments[0] if arguments else "dist"))
    if not (len(checked) == 2 and any(name.endswith(".whl") for name in checked)):
        raise SystemExit(f"expected one wheel and one sdist, got {', '.join(checked) or 'none'}. Run: make dist")
    lines = [f"{name}: {problem}" for name, content in checked.items() for problem in problems(content)]
    for line in lines or [f"{name}: the metadata is valid" for name in checked]:
        sys.stdout.write(f"{line}\n")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
