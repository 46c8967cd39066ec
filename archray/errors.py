"""The errors of archray. A message states the expected value, the actual value, and the remedy."""

import re
from typing import Self

from pydantic import ValidationError

TESTED_RAY = ("2.55", "2.60")  # the oldest and the newest version of Ray with which archray is tested

# Control characters except line break and tab, characters that change the direction of text, and surrogates.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Returns the text with control characters escaped as `\\u001b`, as in JSON; other users' runs may contain them."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def first_problem(error: ValidationError) -> str:
    """Returns the first problem of a pydantic error in one line: `training.epochs: Input should be a valid integer`."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return ": ".join(filter(None, [".".join(map(str, first["loc"])), problem_words(first["msg"])]))


def problem_words(message: str) -> str:
    """Returns a message of pydantic in words for users."""
    if message.startswith("Input should be a valid dictionary"):
        return "Input should be a group of options, keys and values"
    return message.removeprefix("Value error, ")


OUT_OF_MEMORY = "out of memory"  # start of a failure's reason; the trial may succeed with a larger share of a GPU
# Texts of torch's other errors: of the CPU's allocator, of the CUDA driver, and of cuBLAS, cuDNN and cuSOLVER.
OUT_OF_MEMORY_TEXTS = ("can't allocate memory", "CUDA error: out of memory", "_STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether the GPU or the CPU ran out of memory; it does not import torch for torch's error class."""
    by_class = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return by_class or any(text in str(error) for text in OUT_OF_MEMORY_TEXTS)


class ArchrayError(Exception):
    """Base class of archray's errors. The command line prints the message and exits with code 2."""

    def __str__(self) -> str:
        return printable(super().__str__())


class InvalidInput(ArchrayError, ValueError):
    """An invalid value from the user, such as a budget, an option or a configuration key."""


def expect(name: str, value: object, *kinds: type) -> None:
    """Raises: InvalidInput unless the argument `name` of a function has one of the types. A bool is not an int."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        words = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise InvalidInput(f"{name}: expected {words}, got {repr(value)[:80]}")


class UnknownName(InvalidInput):
    """A name that is not in a registry, or a `module:attribute` reference that does not resolve."""


class InvalidArchitecture(InvalidInput):
    """An architecture string that its space cannot decode."""


class InvalidPool(InvalidInput):
    """A table of scored architectures that lacks a column, or has no usable row."""


class InvalidTable(InvalidInput):
    """A table of trained architectures that lacks a column, contradicts itself, or has no usable row."""


class DataNotFound(InvalidInput):
    """A data set whose files are not at the given path."""


class MissingExtra(InvalidInput):
    """An optional dependency that a feature needs is not installed."""


def install_command(extra: str) -> str:
    """Returns how to install an optional dependency, for the text of an error; archray is on no package index."""
    return f"pip install '.[{extra}]' in a clone of archray"


class RunFolderError(ArchrayError):
    """A run folder that already exists, is not a run, or belongs to other versions."""


REWRITE = (
    "write it again: 'archray resume RUN' rewrites the missing or damaged files of a run, and 'archray export' writes "
    "a model"
)


class DamagedFile(RunFolderError):
    """A file of a run or an export that cannot be read: incomplete, empty, or changed.

    Attributes:
        place: path or URI of the file.
        reason: the problem in a few words.
        advice: what the user does without a copy of the file.
    """

    _got = "a damaged file"
    place = reason = advice = ""

    @classmethod
    def at(cls, place: str, why: object, advice: str = REWRITE) -> Self:
        """Returns the error for the file at `place`.

        Args:
            why: the problem in words, or the error that reading it raised.
            advice: as the attribute.
        """
        reason = " ".join(f"{type(why).__name__}: {why}".split()) if isinstance(why, Exception) else str(why)
        error = cls(
            f"Expected {place} as archray wrote it, got {cls._got} ({reason[:200]}). Restore it from a copy, or "
            f"{advice}."
        )
        error.place, error.reason, error.advice = place, reason[:200], advice
        return error

    def with_advice(self, advice: str) -> Self:
        """Returns the error with another advice."""
        return self.at(self.place, self.reason, advice)


class MissingFile(DamagedFile, FileNotFoundError):
    """A file that is missing."""

    _got = "no file"


class UnreadableFile(DamagedFile, PermissionError):
    """A file that this user has no permission to read."""

    _got = "a file that you have no permission to read"


class UntrustedCode(RunFolderError):
    """A run or an export that would execute code, and that this user did not create on this machine."""


class RunInterrupted(ArchrayError):
    """A stage ended before its work was complete; `archray resume` resumes it."""


class DiskFull(RunInterrupted):
    """A disk or a quota is full; `archray resume` resumes when space is free. The command line exits with code 1."""


class NotWritable(ArchrayError, OSError):
    """A file or folder that cannot be written at the user's path."""


class StoreError(ArchrayError, OSError):
    """An object store that cannot be reached, or that rejects a request."""

    @classmethod
    def at(cls, place: str, error: OSError) -> Self:
        """Returns the error for the file or folder at `place` from an error of pyarrow."""
        reason = " ".join(str(error).split())[:300].rstrip(".")
        return cls(
            f"Expected access to {place}, got an error of the store ({reason}). Check the URI, the network, and your "
            "credentials."
        )


class TrialCrashed(ArchrayError):
    """No trial of a stage, or no architecture of a pool, has a result. The command line exits with code 1."""
