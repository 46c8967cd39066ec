"""The errors a user of archray can meet; every message says what was expected, what was got, what to do."""

from __future__ import annotations


class ArchrayError(Exception):
    """Base of all errors that archray raises on purpose. The command line prints it and exits with code 2."""


class InvalidInput(ArchrayError, ValueError):
    """A value from the user that cannot be used: a wrong budget, option or configuration key."""


class UnknownName(InvalidInput):
    """A name that a registry does not hold, or a `module:attribute` reference that does not resolve."""


class InvalidArchitecture(InvalidInput):
    """An architecture string that its space cannot decode."""


class InvalidPool(InvalidInput):
    """A table of scored architectures that lacks a column, or has no finite row."""


class InvalidTable(InvalidInput):
    """A table of trained architectures that lacks a column, contradicts itself, or has no usable row."""


class DataNotFound(InvalidInput):
    """A data set whose files are not where the user said."""


class MissingExtra(InvalidInput):
    """What was asked for needs packages that come with an extra of archray's, and are not installed."""


class RunFolderError(ArchrayError):
    """A run folder that exists already, is not a run, or belongs to other versions."""


class RunInterrupted(ArchrayError):
    """A stage ended before its work was done; `archray resume` continues it."""


class TrialCrashed(ArchrayError):
    """The processes of a stage's trials died, and no trial ended well. The command line exits with code 1."""
