"""`archray proxies`: a table of scored architectures outside a run, continued where it was left."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.console import Console

from archray.cluster.connect import ClusterSettings, check_address, connect, worker_reference
from archray.cluster.resources import ResourceSettings
from archray.errors import InvalidInput, RunFolderError, RunInterrupted
from archray.files import Folder, write_file
from archray.platform.engine.pool_scoring import POOL, PoolSettings, candidates, score_pool
from archray.platform.run.manifest import digest
from archray.registry import is_reference, split_reference
from archray.trainables.data import DataSettings, check_data
from archray.trainables.proxies import ProxySettings, check_proxies
from archray.trainables.spaces import get_space


def score_to_file(
    out: Path,
    *,
    space: str,
    data: DataSettings,
    proxies: ProxySettings,
    pool: PoolSettings,
    seed: int,
    resources: ResourceSettings,
    cluster: ClusterSettings,
    console: Console,
) -> pd.DataFrame:
    """Scores canonical forms of a space into the Parquet table `out`.

    What is finished lies in `<out>.parts` until all is; the same call continues from there.

    Raises: RunFolderError if `out` exists, or its parts are of another scoring; InvalidInput.
    """
    if out.exists():
        raise RunFolderError(f"{out} exists already; choose another --out")
    if not out.parent.is_dir():
        raise InvalidInput(f"there is no folder {out.parent}; create it, or choose another --out")
    get_space(space)
    check_proxies(proxies)
    check_data(data)
    check_address(cluster)
    architectures = candidates(space, pool.size, seed)
    places = [split_reference(name)[0] for name in (space, data.name, *proxies.metrics) if is_reference(name)]
    user_files = [Path(place) for place in places if place.endswith(".py")]
    # from here on as workers load them; what a user's file is called then depends on what is in it
    space = worker_reference(space)
    data = data.model_copy(update={"name": worker_reference(data.name)})
    proxies = proxies.model_copy(update={"metrics": tuple(map(worker_reference, proxies.metrics))})
    parts = Folder(f"{out}.parts")
    scoring = {
        "space": space,
        "data": data.model_dump(mode="json"),
        "proxies": proxies.model_dump(mode="json"),
        "size": pool.size,
        "seed": seed,
    }
    if parts.exists("scoring.json") and digest(parts.read_json("scoring.json")) != digest(scoring):
        raise RunFolderError(
            f"{parts} holds the beginning of another scoring (see its scoring.json); "
            "give the same options to continue it, or choose another --out"
        )
    parts.write_json("scoring.json", scoring)
    try:
        with connect(cluster, user_files=user_files, announce=console.print):
            score_pool(
                parts,
                architectures,
                space=space,
                data=data,
                proxy=proxies,
                resources=resources,
                console=console,
                chunk=pool.chunk,
            )
    except (KeyboardInterrupt, RunInterrupted) as error:
        raise RunInterrupted(f"{error or 'stopped'}. The same command continues") from error
    table = parts.read_parquet(POOL)
    write_file(out, parts.read_bytes(POOL))
    parts.remove()
    return table
