"""Maps the rooms at the top of the repository to archray.*; everything else is in pyproject.toml."""

from setuptools import find_namespace_packages, setup

ROOMS = ("platform", "searchers", "trainables", "cluster")
CACHES = ("__pycache__", "*.__pycache__")  # folders like any other to find_namespace_packages

package_dir = {"archray": "archray"}
packages = ["archray", *(f"archray.{name}" for name in find_namespace_packages("archray", exclude=CACHES))]
for room in ROOMS:
    package_dir[f"archray.{room}"] = room
    packages += [
        f"archray.{room}",
        *(f"archray.{room}.{name}" for name in find_namespace_packages(room, exclude=CACHES)),
    ]

# The rooms may hold templates, manifests and py.typed: every file that is not a cache belongs to its package.
setup(
    packages=packages,
    package_dir=package_dir,
    package_data={"": ["*"]},
    exclude_package_data={"": ["*.py[cod]"]},
)
