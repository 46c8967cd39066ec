"""Studies, which test theory and do not select an architecture: configurations, stages, presets and figures."""

from typing import ClassVar

from archray.platform.config import SearchConfig


class StudyConfig(SearchConfig):
    """The base class of the configurations of studies. A study adds its own fields."""

    kind: ClassVar[str] = "study"


def problem_flags(*names: str) -> dict[str, str]:
    """Flags for the fields of a study's `problem`: `width` sets `problem.width`."""
    return {name: f"problem.{name}" for name in names}
