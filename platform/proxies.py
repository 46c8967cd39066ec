"""`archray.proxies`: score architectures into a table without a run. An interrupted scoring can be resumed."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from archray.cluster.settings import ClusterSettings, ResourceSettings, check_address
from archray.errors import ArchrayError, DiskFull, InvalidInput, RunFolderError, RunInterrupted, TrialCrashed, expect
from archray.files import Folder, new_file, write_file
from archray.platform.config import validate
from archray.platform.engine.settings import PoolSettings, candidates, fewer
from archray.platform.methods.configure import check_data_of_space
from archray.platform.methods.method import serves_networks
from archray.platform.run.heartbeat import lock
from archray.platform.run.layout import SHARDS
from archray.platform.run.manifest import digest
from archray.plurals import count
from archray.references import is_reference, reference_file, worker_reference
from archray.trainables.data import DataSettings
from archray.trainables.proxies import ProxySettings, check_proxies
from archray.trainables.spaces import get_space, space_name
from archray.trainables.spaces.table_space import absolute_name

if TYPE_CHECKING:
    import pandas as pd

    from archray.trainables.data import Dataset

OPTIONS = "options.json"  # the options of an unfinished scoring


def proxies(
    space: Any = "nasbench201",
    data: "str | Callable[[DataSettings], Dataset]" = "digits",
    out: str | Path = "pool.parquet",
    *,
    size: int | None = None,
    chunk: int | None = None,
    seed: int = 0,
    data_settings: DataSettings | None = None,
    settings: ProxySettings | None = None,
    resources: ResourceSettings | None = None,
    cluster: ClusterSettings | None = None,
    console: Console | None = None,
) -> "pd.DataFrame":
    """Scores architectures of a space without training, and writes one Parquet table.

    Finished rows are in `<out>.parts` until the end. After an interruption, a second call with the same arguments
    scores only the remaining architectures.

    Args:
        space: name of a space, a reference to a custom one, or a custom space, as in `archray.search`.
        data: name of a data set, or a function from `DataSettings` to a `Dataset`.
        out: Parquet file to write.
        size: number of canonical forms (distinct architectures) to draw uniformly; None, or more than there are: all.
        chunk: architectures per task of an actor; None: as many as it scores in a few seconds.
        seed: seed of the draw of architectures. The data and the metrics are the same for all seeds: the split of the
            data has the seed of `data_settings` (0), and the metrics have the seed of `settings` (42).
        data_settings: settings of the data set, instead of `data`.
        settings: metrics, custom ones as functions or references, and how archray computes them.
        resources: resources per actor.
        cluster: Ray cluster to run on.
        console: terminal for progress lines.

    Returns: a row per architecture.
    Raises: RunFolderError if `out` exists, or its parts belong to another scoring; ArchrayError for a wrong argument,
    before Ray starts; TrialCrashed if no architecture has a value, after the table is written.

    Example:
        ```python
        from archray.trainables.proxies import ProxySettings

        settings = ProxySettings(metrics=("snip", "kappa"))
        table = archray.proxies("nasbench201", "digits", "pool.parquet", size=100, settings=settings)
        ```
    """
    expect("data_settings", data_settings, DataSettings, type(None))
    expect("settings", settings, ProxySettings, type(None))
    expect("resources", resources, ResourceSettings, type(None))
    expect("cluster", cluster, ClusterSettings, type(None))
    expect("seed", seed, int)
    if seed < 0:
        raise InvalidInput(f"seed: expected 0 or more, got {seed}")
    pool = validate(PoolSettings, {"size": size, "chunk": chunk})
    dataset = data_settings or validate(DataSettings, {"name": data})
    scoring = settings or ProxySettings(metrics=("grad_norm", "snip", "ntk_trace", "kappa"))
    resources, cluster, console = resources or ResourceSettings(), cluster or ClusterSettings(), console or Console()
    out = new_file(out, ".parquet")
    space = absolute_name(space_name(space))
    searched = get_space(space)
    if reason := serves_networks(searched):
        raise InvalidInput(f"expected a space of networks for these metrics, got {space}: {reason}")
    searched.check_packages()
    check_proxies(scoring)
    check_data_of_space(dataset, space)
    check_address(cluster)
    from archray.trainables.tune.scorers import batch_of  # torch, after the checks that need no data

    batch_of(dataset, scoring)  # raises an error before Ray starts, for example for a batch larger than the data
    architectures = candidates(space, pool.size, seed)
    if line := fewer(len(architectures), pool.size, space):
        console.print(line, soft_wrap=True, markup=False)
    references = filter(is_reference, (space, dataset.name, *scoring.metrics))
    user_files = [file for file in map(reference_file, references) if file is not None]
    # The names for workers: for a user's file they depend on its content.
    space = worker_reference(space)
    dataset = dataset.model_copy(update={"name": worker_reference(dataset.name)})
    scoring = scoring.model_copy(update={"metrics": tuple(map(worker_reference, scoring.metrics))})
    parts = Folder(f"{out}.parts")
    options = {
        "space": space,
        "data": dataset.model_dump(mode="json"),
        "proxies": scoring.model_dump(mode="json"),
        "size": pool.size,
        "seed": seed,
    }
    with lock(parts, "archray proxies"):
        if (parts / SHARDS).exists() and digest(parts.read_json(OPTIONS)) != digest(options):
            raise RunFolderError(
                f"{parts} contains an unfinished scoring with other options (see its {OPTIONS}). "
                "Pass the same options to resume it, or choose another --out"
            )
        parts.write_json(OPTIONS, options)
        # Ray, after all checks of the arguments
        from archray.cluster.connect import connect
        from archray.cluster.ray_watch import why_stopped
        from archray.platform.durable.failed_trials import stops_when_full
        from archray.platform.engine.pool_scoring import POOL, score_pool

        try:
            with stops_when_full(parts), connect(cluster, user_files=user_files, announce=console.print):
                score_pool(
                    parts,
                    architectures,
                    space=space,
                    data=dataset,
                    proxy=scoring,
                    resources=resources,
                    console=console,
                    chunk=pool.chunk,
                )
        except (KeyboardInterrupt, RunInterrupted) as error:
            kind = DiskFull if isinstance(error, DiskFull) else RunInterrupted
            raise kind(f"{why_stopped(error)}. Run the same command again to resume") from error
        except ArchrayError:
            if not (parts / SHARDS).exists():
                parts.remove()
            raise
        table = parts.read_parquet(POOL)
        write_file(out, parts.read_bytes(POOL))
        parts.remove()
    if table[list(scoring.columns)].isna().to_numpy().all():
        raise TrialCrashed(
            f"none of {count(len(table), 'architecture')} has a value. The first error: "
            f"{table['failure'].iloc[0]}. The column 'failure' of {out} has all errors. "
            "Fix the cause, delete the table, and run the command again"
        )
    return table
