"""A file that grows by lines, which a thread saves in batches."""

import threading
import time
from typing import Self

from archray.files import Folder

INTERVAL = 0.5  # seconds from the first line of a batch until it is saved
LATE = 1.0  # age in seconds of an unsaved line at which new lines wait


class LineWriter:
    """Context manager that appends lines to a file. A thread saves them in batches, and the rest when the block ends.

    A kill of the process loses at most the lines of the last second. On a local disk it loses none, and a loss of power
    loses at most the lines of the last second. If a batch takes longer to save, `append` waits.

    After an error, for example of a full disk, every method raises this error, and nothing more is saved.

    Example:
        ```python
        with LineWriter(Folder("runs/notes").create(), "notes.jsonl") as writer:
            writer.append(b'{"seed": 0}')
        ```
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self._lines = folder.lines(name)
        self._since: float | None = None  # time of the first line of this batch
        self._saving_since: float | None = None  # time of the first line of the batch that the thread saves
        self._appended = self._saved = 0  # numbers of lines
        self._urgent = self._closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._save_batches, name="archray-lines", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, raised: object, *rest: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        if raised is None:
            self._check()

    def append(self, line: bytes) -> int:
        """Appends a line, given without a line break.

        Returns: a number for `wait`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._error or not self._is_late())
            self._check()
            self._lines.write(line)
            self._appended += 1
            if self._since is None:
                self._since = time.monotonic()
                self._changed.notify_all()
            return 0 if self._lines.survives_kill else self._appended

    def wait(self, number: int) -> None:
        """Waits until a line survives a kill.

        Args:
            number: the return value of `append`.
        """
        with self._changed:
            self._check()
            if self._saved < number:
                self._urgent = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._error or self._saved >= number)
                self._check()

    def flush(self) -> None:
        """Saves all lines."""
        self.wait(self._appended)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _is_late(self) -> bool:
        return self._saving_since is not None and time.monotonic() - self._saving_since > LATE

    def _save_batches(self) -> None:
        try:
            while self._save_batch():
                pass
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _save_batch(self) -> bool:
        """Waits for lines and saves them. Returns whether there were any before the end of the writer."""
        with self._changed:
            self._changed.wait_for(lambda: self._since is not None or self._closed)
            since = self._since
            if since is None:
                return False
            left = since + INTERVAL - time.monotonic()
            self._changed.wait_for(lambda: self._urgent or self._closed, timeout=max(left, 0.0))
            save, appended = self._lines.cut(), self._appended
            self._since, self._urgent, self._saving_since = None, False, since
        save()
        with self._changed:
            self._saved, self._saving_since = appended, None
            self._changed.notify_all()
        self._lines.merge()
        return True
