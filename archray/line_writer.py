"""Lines at the end of files, which a thread saves in batches."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from archray.disks import Lines
from archray.files import Folder

INTERVAL = 0.5  # seconds from the first line of a batch until it is saved
LATE = 1.0  # age in seconds of an unsaved line at which new lines wait
THREADS = 8  # files that are saved at the same time


class LineWriter:
    """Context manager that appends lines to files. A thread saves them in batches, and the rest when the block ends.

    A kill of the process loses at most the lines of the last second. On a local disk it loses none, and a loss of power
    loses at most the lines of the last second. If a batch takes longer to save, `append` waits. A journal describes
    lines of other files: in a batch it is saved after them, so that it never describes a line that is lost in a kill.

    After an error, for example of a full disk, every method raises this error, and nothing more is saved.

    Example:
        ```python
        with LineWriter() as writer:
            writer.append(Folder("runs/notes"), "notes.jsonl", b'{"seed": 0}')
        ```
    """

    def __init__(self) -> None:
        self._folders: dict[str, Folder] = {}
        self._files: dict[str, Lines] = {}
        self._batch: dict[Lines, bool] = {}  # files with unsaved lines, and whether they have ended
        self._since = 0.0  # time of the first line of this batch
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

    def append(self, folder: Folder, name: str, line: bytes, *, is_journal: bool = False) -> int:
        """Appends a line, without a line break, to a file or to a new file.

        Returns: a number for `wait`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._error or not self._is_late())
            lines = self._lines(folder, name, is_journal)
            lines.write(line)
            self._appended += 1
            self._to_save(lines)
            return 0 if lines.survives_kill else self._appended

    def end(self, folder: Folder, name: str) -> None:
        """Stores a file on an object store as one object, after its last line. More lines may follow."""
        with self._changed:
            self._to_save(self._lines(folder, name), ended=True)

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

    def _lines(self, folder: Folder, name: str, is_journal: bool = False) -> Lines:
        self._check()
        place = f"{folder.path}/{name}"
        if place not in self._files:
            if folder.path not in self._folders:
                self._folders[folder.path] = folder.create().with_listing()
            self._files[place] = self._folders[folder.path].lines(name, is_journal=is_journal)
        return self._files[place]

    def _to_save(self, lines: Lines, ended: bool = False) -> None:
        if not self._batch:
            self._since = time.monotonic()
            self._changed.notify_all()
        self._batch[lines] = ended

    def _save_batches(self) -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            try:
                while self._save_batch(pool):
                    pass
            except BaseException as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()

    def _save_batch(self, pool: ThreadPoolExecutor) -> bool:
        """Waits for lines and saves them. Returns whether there were any before the end of the writer."""
        with self._changed:
            self._changed.wait_for(lambda: self._batch or self._closed)
            left = self._since + INTERVAL - time.monotonic()
            self._changed.wait_for(lambda: self._urgent or self._closed, timeout=max(left, 0.0))
            batch, appended = self._batch, self._appended
            saves = [(lines.is_journal, lines.cut(ended)) for lines, ended in batch.items()]
            self._batch, self._urgent, self._saving_since = {}, False, self._since if batch else None
        for is_journal in (False, True):
            list(pool.map(_call, [save for journal, save in saves if journal == is_journal]))
        with self._changed:
            self._saved, self._saving_since = appended, None
            self._changed.notify_all()
        list(pool.map(_call, [lines.sweep for lines in batch]))
        return bool(batch)


def _call(function: Callable[[], None]) -> None:
    function()
