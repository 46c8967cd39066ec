"""Search spaces: pure Python, no torch."""

from archray.trainables.spaces.space import Architecture, Decision, Space

__all__ = ["Architecture", "Decision", "Space"]
