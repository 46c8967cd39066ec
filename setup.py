"""Maps the packages at the top of the repository to archray.*, and adapts the readme; the rest is in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_namespace_packages, setup

PACKAGES = ("platform", "searchers", "trainables", "cluster")
CACHES = ("__pycache__", "*.__pycache__")  # find_namespace_packages would include these folders
NOTE = "The source distribution contains this page with its links, and the documentation in the folder `docs`."


def package_readme() -> str:
    """Returns README.md for a package index, on which relative links, images and comments do not work."""
    text = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\((?!https?://)[^)]*\)\n*", "", text)
    text = re.sub(r"<img\b[^>]*\bsrc=\"(?!https?://)[^>]*>\n*", "", text)
    text = re.sub(r"(?<!!)\[([^\[\]]+)\]\((?!https?://)[^)]*\)", r"\1", text)  # a relative link becomes its text
    return f"{text.rstrip()}\n\n{NOTE}\n"


package_dir = {"archray": "archray"}
packages = ["archray", *(f"archray.{name}" for name in find_namespace_packages("archray", exclude=CACHES))]
for package in PACKAGES:
    package_dir[f"archray.{package}"] = package
    packages += [
        f"archray.{package}",
        *(f"archray.{package}.{name}" for name in find_namespace_packages(package, exclude=CACHES)),
    ]

# The packages contain templates, manifests and py.typed. Every file that is not a cache belongs to its package.
setup(
    long_description=package_readme(),
    long_description_content_type="text/markdown",
    packages=packages,
    package_dir=package_dir,
    package_data={"": ["*"]},
    exclude_package_data={"": ["*.py[cod]"]},
)
