"""Temporary, thread-safe changes of Ray, with an error for a version of Ray that they do not fit."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, _GeneratorContextManager, contextmanager
from functools import wraps
from typing import Any

from ray._private import worker as ray_worker

from archray.errors import IncompatibleRay, tested_versions

logger = logging.getLogger(__name__)


def process_wide(manager: Callable[[], AbstractContextManager[None]]) -> Callable[[], _GeneratorContextManager[None]]:
    """Decorates a context manager for a change of the whole process, such as an environment variable.

    If blocks overlap in several threads, the first block makes the change and the last block undoes it.
    """
    lock = threading.Lock()
    users = 0
    change: AbstractContextManager[None]

    @contextmanager
    @wraps(manager)
    def shared() -> Iterator[None]:
        nonlocal users, change
        with lock:
            if users == 0:
                change = manager()
                change.__enter__()
            users += 1
        try:
            yield
        finally:
            with lock:
                users -= 1
                if users == 0:
                    change.__exit__(None, None, None)

    return shared


class _Hook:
    """A hook in place of a function of Ray. Each thread inside a block has its own replacements.

    Attributes:
        original: Ray's function.
        users: the number of blocks in all threads.
    """

    def __init__(self, original: Callable[..., Any]) -> None:
        self.original = original
        self.users = 0
        self._local = threading.local()

    @property
    def replacements(self) -> list[Callable[..., Any]]:
        """The replacements of this thread; the last one is active."""
        if not hasattr(self._local, "replacements"):
            self._local.replacements = []
        return self._local.replacements

    @property
    def here(self) -> Callable[..., Any]:
        """The function that this thread calls."""
        return (self.replacements or [self.original])[-1]

    def function(self) -> Callable[..., Any]:
        """Returns a plain function, which is bound like the original if it is a method of a class."""

        @wraps(self.original, updated=())
        def call(*arguments: Any, **options: Any) -> Any:
            return self.here(*arguments, **options)

        return call


_LOCK = threading.Lock()
_HOOKS: dict[tuple[Any, str], _Hook] = {}


@contextmanager
def replaced(
    owner: Any, name: str, replacement: Callable[[Callable[..., Any]], Callable[..., Any]], *, needed: bool = False
) -> Iterator[None]:
    """Replaces a function of Ray for calls by this thread inside the block.

    Other threads call Ray's function, or their own replacement. The last block restores Ray's function.

    Args:
        owner: a module or a class of Ray.
        name: the name of its function, or of a class that is called.
        replacement: returns the new function for a given current function.
        needed: whether results depend on the replacement. If not, a Ray without that function only causes a warning.

    Raises: IncompatibleRay if Ray lacks a needed function.
    """
    key = (owner, name)
    with _LOCK:
        hook = _HOOKS.get(key)
        if hook is None and name in vars(owner):
            hook = _HOOKS[key] = _Hook(vars(owner)[name])
            setattr(owner, name, hook.function())
        if hook is not None:
            hook.users += 1
    if hook is None:
        problem = tested_versions(f"Expected {owner.__name__}.{name} in Ray, got none")
        if needed:
            raise IncompatibleRay(problem)
        logger.warning("%s", problem)
        yield
        return
    hook.replacements.append(replacement(hook.here))
    try:
        yield
    finally:
        hook.replacements.pop()
        with _LOCK:
            hook.users -= 1
            if hook.users == 0:
                setattr(owner, name, hook.original)
                del _HOOKS[key]


_HIDES: list[Callable[[str], bool]] = []


@process_wide
@contextmanager
def _filtered_lines() -> Iterator[None]:
    # Ray prints these lines in its own thread, where `replaced` has no effect, and has no option for it (Ray 2.60).
    print_lines = ray_worker.print_to_stdstream

    def print_others(data: Any, *arguments: Any, **options: Any) -> None:
        if not any(hides(line) for hides in tuple(_HIDES) for line in data["lines"]):
            print_lines(data, *arguments, **options)

    ray_worker.print_to_stdstream = print_others
    try:
        yield
    finally:
        ray_worker.print_to_stdstream = print_lines


@contextmanager
def hidden_lines(hides: Callable[[str], bool]) -> Iterator[None]:
    """Hides messages of Ray's processes, in all threads, if `hides` is True for one of their lines."""
    with _filtered_lines():
        _HIDES.append(hides)
        try:
            yield
        finally:
            _HIDES.remove(hides)
