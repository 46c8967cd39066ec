"""The run folder: everything a run made, and from which it resumes."""

from __future__ import annotations

from archray.platform.folder import Folder

__all__ = ["Folder"]
