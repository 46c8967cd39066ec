"""Maps the packages at the top of the repository to archray.*; everything else is in pyproject.toml."""

from setuptools import find_namespace_packages, setup

PACKAGES = ("platform", "searchers", "trainables", "cluster")
CACHES = ("__pycache__", "*.__pycache__")  # find_namespace_packages would include these folders

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
    packages=packages,
    package_dir=package_dir,
    package_data={"": ["*"]},
    exclude_package_data={"": ["*.py[cod]"]},
)
