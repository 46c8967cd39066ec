"""Studies, which explain and find nothing: their configurations, stages, presets and figures."""

from typing import ClassVar

from archray.platform.config import SearchConfig


class StudyConfig(SearchConfig):
    """The configuration of a study: that of a search without a search. A study adds its own fields."""

    kind: ClassVar[str] = "study"


def problem_flags(*names: str) -> dict[str, str]:
    """Flags for fields of a study's `problem`: `width` sets `problem.width`."""
    return {name: f"problem.{name}" for name in names}
