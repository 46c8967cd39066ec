"""The configuration of a search that chooses from a pool of architectures, scored without training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from archray.errors import InvalidInput, InvalidPool
from archray.platform.engine.pool_settings import PoolSettings, candidates
from archray.platform.methods.trained_config import TrainedSearchConfig
from archray.trainables.proxies import PROXIES, ProxySettings, check_proxies, column_of, get_proxy, low_is_good
from archray.trainables.spaces import get_space
from archray.trainables.spaces.table_space import PREFIX

if TYPE_CHECKING:  # what reads tables is imported once there is one
    from archray.searchers.pool_file import PoolFile


class PooledConfig(TrainedSearchConfig):
    """The configuration of a search that chooses from a pool.

    Fields:
        proxies: how the pool is scored: its metrics are those listed, and those that the search looks at.
        pool: which architectures are scored.
    """

    proxies: ProxySettings = ProxySettings()
    pool: PoolSettings = PoolSettings()

    @property
    def needed(self) -> tuple[str, ...]:
        """The metrics that the search looks at, by name or reference."""
        raise NotImplementedError

    def low_is_good(self, metric: str) -> bool:
        """Whether a smaller value of a metric promises more. Of a column of the user's that is not known: no."""
        own = metric not in PROXIES and self.pool.table is None and not self.space.startswith(PREFIX)
        return get_proxy(metric).direction == "min" if own else low_is_good(metric)

    @property
    def scored(self) -> ProxySettings:
        """The metrics that the pool is scored with."""
        return self.proxies.model_copy(update={"metrics": tuple(dict.fromkeys((*self.proxies.metrics, *self.needed)))})

    def check(self) -> None:
        super().check()
        if self.pool.table is None:
            check_proxies(self.scored)
            if self.data.limit is not None and self.data.limit < self.proxies.batch_size:
                raise InvalidInput(
                    f"expected data.limit to be at least proxies.batch_size ({self.proxies.batch_size}), the images in "
                    f"the batch that scores architectures, got {self.data.limit}; raise the one or lower the other"
                )
            candidates(self.space, self.pool.size, self.seed)
            return
        if not Path(self.pool.table).is_file():
            raise InvalidPool(f"there is no pool {self.pool.table}; give a table that 'archray proxies' has written")
        from archray.searchers.pool_file import PoolFile

        space = get_space(self.space)
        for architecture in self.architectures_of(PoolFile.of(self.pool.table)):
            space.decode(architecture)

    def architectures_of(self, file: PoolFile) -> Sequence[str]:
        """Those of a pool that was scored elsewhere. Raises: InvalidPool if it cannot serve the search."""
        from archray.searchers.pool_file import check_names

        names = file.read(["architecture", *map(column_of, self.needed)])["architecture"]
        check_names(names, file.location)
        return names.tolist()

    def references(self) -> dict[str, str]:
        metrics = self.scored.metrics if self.pool.table is None else ()
        return super().references() | {file_role(name): name for name in metrics}


def file_role(metric: str) -> str:
    """Of a metric's file in the run, where it is the user's own."""
    return f"proxy-{column_of(metric)}"
