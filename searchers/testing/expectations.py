"""Guarantees that a searcher does not give: the conformance suite expects their tests to fail, and says why."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar


class Expectations:
    """Base of the conformance suite.

    Attributes:
        lacks: by the name of a test of the suite, why the searcher does not pass it. pytest reports it as an expected
            failure (XFAIL) with that reason; a test that is listed and passes is an error: the list is true.
    """

    lacks: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, reason in vars(cls).get("lacks", {}).items():
            test = getattr(cls, name, None)
            if test is None or not name.startswith("test_"):
                raise TypeError(f"{cls.__name__}.lacks: the conformance suite has no test {name!r}")
            setattr(cls, name, _expected_to_fail(test, reason))


def _expected_to_fail(test: Callable[..., None], reason: str) -> Callable[..., None]:
    import pytest  # not above: only who runs the suite needs it

    @functools.wraps(test)
    def expecting(*arguments: Any, **options: Any) -> None:
        try:
            test(*arguments, **options)
        except Exception:
            pytest.xfail(reason)
        raise AssertionError(f"{test.__name__} passes, and is listed in lacks: {reason}")

    return expecting
