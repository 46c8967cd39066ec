"""Maps the rooms at the top of the repository to archray.*; everything else is in pyproject.toml."""

from setuptools import find_namespace_packages, setup

ROOMS = ("platform", "searchers", "trainables", "cluster")

packages = ["archray"]
package_dir = {"archray": "archray"}
for room in ROOMS:
    package_dir[f"archray.{room}"] = room
    packages += [f"archray.{room}", *(f"archray.{room}.{name}" for name in find_namespace_packages(room))]

setup(packages=packages, package_dir=package_dir, package_data={"": ["*"]})
