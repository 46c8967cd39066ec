"""The packages hide no module of the standard library and import only the modules that they need."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

import archray
from archray.errors import TESTED_RAY

STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"]).resolve()


def run_python(code: str, folder: Path) -> str:
    """Returns the output of `code` in a fresh interpreter started in `folder`, whose modules can be imported (`-c`)."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def loaded_by(statement: str, folder: Path) -> set[str]:
    """Returns the top-level modules in a fresh interpreter after `statement`."""
    code = f"{statement}; import sys; print(' '.join({{name.partition('.')[0] for name in sys.modules}}))"
    return set(run_python(code, folder).split())


def test_platform_is_the_standard_library_module_under_pytest() -> None:
    assert platform.system() == "Linux"
    assert Path(platform.__file__).resolve().parent == STANDARD_LIBRARY


def test_platform_is_the_standard_library_module_from_the_repository_root(repository: Path) -> None:
    file = run_python("import platform; platform.system(); print(platform.__file__)", repository)
    assert Path(file).resolve().parent == STANDARD_LIBRARY


def test_platform_is_the_standard_library_module_in_a_worker(ray_session: None) -> None:
    import ray

    @ray.remote
    def origin() -> dict[str, str]:  # inside the test, so that it is pickled by value: a worker cannot import this file
        import importlib
        import os
        import platform
        from pathlib import Path

        for package in ("platform", "searchers", "trainables", "cluster"):
            importlib.import_module(f"archray.{package}")
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_text()
        return {"file": platform.__file__, "system": platform.system(), "parent": parent}

    seen = ray.get(origin.remote())
    assert Path(seen["file"]).resolve().parent == STANDARD_LIBRARY
    assert seen["system"] == platform.system()
    assert "warm_workers.py" in seen["parent"], "tests would take three times as long"


@pytest.mark.slow
@pytest.mark.ci
def test_platform_is_the_standard_library_module_in_a_worker_of_a_shipped_checkout(
    repository: Path, tmp_path: Path
) -> None:
    # The current folder of a worker and its first entry of sys.path are then a copy of the repository's root. The test
    # uses a separate Ray, since that of the session has another runtime environment, with only the packages of a
    # worker.
    code = """
import logging, sys, ray, platform
ray.init(address="local", num_cpus=1, num_gpus=0, include_dashboard=False, log_to_driver=False,
         object_store_memory=100 * 2**20, logging_level=logging.ERROR,
         runtime_env={"working_dir": sys.argv[1], "excludes": [".git", ".venv", "build", "archray-runs"]})

@ray.remote
def look():
    import platform, archray, archray.searchers, archray.platform
    return [platform.__file__, archray.__file__, *archray.platform.__path__]

print("\\n".join(ray.get(look.remote())))
ray.shutdown()
"""
    # From another folder: the driver must not find the packages by accident.
    done = subprocess.run([sys.executable, "-c", code, str(repository)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    platform_file, archray_file, *platform_package = done.stdout.split()
    shipped = Path(archray_file).parents[1]
    assert Path(platform_file).resolve().parent == STANDARD_LIBRARY
    assert not shipped.is_relative_to(repository)
    assert Path(platform_package[0]) == shipped / "platform"


# Statements that may share a process. Each loads nothing of the second column of its row.
@pytest.mark.parametrize(
    ("statements", "absent"),
    [
        (
            ["import archray, archray.errors, archray.registry, archray.files", "dir(archray)"],
            {"ray", "torch", "numpy", "pandas", "pyarrow"},
        ),
        (
            [
                "import archray.searchers as s; [getattr(s, name) for name in s.__all__]",
                "import archray.trainables.proxies as p; p.ProxySettings(metrics=('snip', 'own.py:metric'))",
                "[p.PROXIES.get(n).summary for n in p.PROXIES]",
                "import archray.cluster",
            ],
            {"torch", "torchvision"},
        ),
        (
            [
                "import archray.searchers, archray.trainables, archray.seeds",
                "import archray.trainables.spaces as s; [s.get_space(n) for n in s.SPACES]",
                "s.NASBench201().canonical(('none',) * 6)",
                "import archray.trainables.data as d; d.check_data(d.DataSettings())",
                "import archray.trainables.nets as n; n.NetworkSettings()",
                "import archray.trainables.supernets as s; s.SupernetTrainingSettings()",
                "import archray.trainables.tune.settings as s; s.SupernetOptions()",
                "import archray.trainables.tune.settings as s; s.PosteriorOptions()",
                "import archray.cluster.settings",
            ],
            {"ray", "torch"},
        ),
        (["import archray.trainables.data.sources as s; s.read_digits(None)"], {"sklearn", "scipy", "pandas", "torch"}),
        (["import archray.platform.models.model_files"], {"sklearn"}),  # of a network
        (["import archray.plots"], {"matplotlib", "ray", "torch"}),
        (["import archray.platform.cli as c; c.application(['--help'])"], {"ray", "torch", "numpy", "pandas"}),
        (  # the methods whose validation builds no network
            [
                "from archray.platform.methods.configure import check_config, make_config",
                "plain = 'asha evolution local-search random reinforce zero-cost zero-cost-evolution robot'",
                "names = ['hnas', 'nsga2', 'pareto-pool', 'rank-surrogate', 'topology', *plain.split()]",
                "[check_config(make_config(name, 'smoke', None, {})) for name in names]",
            ],
            {"torch", "scipy", "matplotlib", "sklearn"},
        ),
        (
            [
                "from archray.platform.methods import METHODS, STUDIES",
                "[registry.get(name).recipe.stages for registry in (METHODS, STUDIES) for name in registry]",
            ],
            {"matplotlib"},
        ),
    ],
)
def test_an_import_loads_only_the_necessary_modules(statements: list[str], absent: set[str], repository: Path) -> None:
    assert not loaded_by("; ".join(statements), repository) & absent


def test_the_top_level_package_offers_existing_names() -> None:
    assert all(callable(getattr(archray, name)) for name in archray.__all__ if not name.startswith("_"))


def test_the_top_level_package_rejects_unknown_names() -> None:
    import archray

    with pytest.raises(AttributeError, match="no attribute 'serach'"):
        _ = archray.serach


def test_the_oldest_and_newest_ray_are_those_of_the_project(repository: Path) -> None:
    oldest, newest = TESTED_RAY
    requirements = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"ray[tune,default]>={oldest}" in requirements
    assert f"\nray=={newest}." in (repository / "constraints.txt").read_text()


def test_no_init_file_hides_the_standard_library(repository: Path) -> None:
    assert not (repository / "platform" / "__init__.py").exists()
    assert list((repository / "tests").rglob("__init__.py")) == []
