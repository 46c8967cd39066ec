"""What every study is told."""

from typing import ClassVar

from archray.platform.config import SearchConfig


class StudyConfig(SearchConfig):
    """A study's configuration: that of a search, without anything that is searched. Its own adds to it."""

    kind: ClassVar[str] = "study"
