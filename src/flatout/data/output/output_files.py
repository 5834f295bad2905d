"""Predictions on their way to `.npy` files: written beside their place, renamed at the end, gone on with after a crash.

Rows are appended to `predictions.npy.partial`. Every few seconds they are brought to disk, and then a manifest says how
many there are. An interrupted prediction goes on from there, if nothing that determines its bytes has changed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flatout.data.files.npy_files import open_npy
from flatout.data.files.page_cache import drop_from_cache

from . import manifest
from .manifest import FileProgress, Progress
from .output_paths import OutputPaths

# What a crash may cost, and what the disk may have to write at once.
SECONDS_BETWEEN_SYNCS = 2.0
BYTES_BETWEEN_SYNCS = 10**9


def size_on_disk(shape: tuple[int, ...], dtype: Any) -> int:
    """Bytes of a `.npy` file, its header included."""
    return len(_header(shape, np.dtype(dtype))) + math.prod(shape) * np.dtype(dtype).itemsize


def partial(path: Path) -> Path:
    """Where the rows of a file lie until all are there."""
    return path.with_name(f"{path.name}.partial")


class OutputFiles:
    """The files of a prediction, filled step by step.

    As a context: what was appended survives an error, and becomes the finished files without one.

    Args:
        paths: Where they go.
        fingerprint: What determines their bytes, each part under its name.
        obstacle: Why an interrupted prediction cannot be gone on with, or None.

    Attributes:
        started_anew: Why an interrupted prediction is not gone on with, or None if there was none.
    """

    def __init__(self, paths: OutputPaths, fingerprint: dict[str, str], obstacle: str | None = None):
        self.started_anew: str | None = None
        self._paths = paths
        self._fingerprint = fingerprint
        self._obstacle = obstacle
        self._structure: Any = None
        self._files: list[_PartialFile] = []
        # Steps, and rows of each file, that count. Replaced as a whole: a Ctrl-C comes between any two lines.
        self._done: tuple[int, tuple[int, ...]] = (0, ())
        self._unsynced_bytes = 0
        self._synced_at = time.monotonic()
        self._is_open = self._is_saved = False
        before = manifest.load(paths.manifest)
        if before is not None and (before.steps or before.obstacle):
            self.started_anew = obstacle or _difference(before, fingerprint)
            if self.started_anew is None:
                try:
                    self._go_on(before.steps, before.files, before.structure)
                except BaseException:
                    self._close()
                    raise
                self._is_saved = True

    @property
    def steps(self) -> int:
        """Steps whose outputs were appended, also by the interrupted prediction that this one goes on with."""
        return self._done[0]

    def append(self, outputs: Sequence[Any]) -> None:
        """Add the outputs of one step after the other."""
        from keras import tree

        if not outputs:
            return
        steps = [[_storable(leaf) for leaf in tree.flatten(structure)] for structure in outputs]
        if not self._is_open:
            self._open(outputs[0], steps[0])
        done, rows = self._done
        columns = [list(arrays) for arrays in zip(*steps, strict=True)]
        written = [file.write(arrays, row) for file, arrays, row in zip(self._files, columns, rows, strict=True)]
        self._done = (done + len(outputs), tuple(map(sum, zip(rows, written, strict=True))))
        self._unsynced_bytes += sum(array.nbytes for arrays in columns for array in arrays)
        is_late = time.monotonic() - self._synced_at >= SECONDS_BETWEEN_SYNCS
        if is_late or self._unsynced_bytes >= BYTES_BETWEEN_SYNCS:
            self.sync()

    def forbid_going_on(self, why: str) -> None:
        """Say that this prediction could not be gone on with after an interruption."""
        self._obstacle = self._obstacle or why
        self._is_saved = False

    def sync(self) -> None:
        """Bring all rows to disk, and then say so in the manifest."""
        if not self._is_open or (self._obstacle and self._is_saved):
            return
        steps, rows = self._done
        for file in self._files:
            file.sync()
        if not self._is_saved:
            manifest.sync_folders(file.path for file in self._files)
        files = tuple(file.progress(count) for file, count in zip(self._files, rows, strict=True))
        steps = 0 if self._obstacle else steps
        manifest.save(self._paths.manifest, Progress(self._fingerprint, steps, files, self._structure, self._obstacle))
        self._is_saved = True
        self._unsynced_bytes = 0
        self._synced_at = time.monotonic()

    def result(self) -> Any:
        """The finished files as read-only memory maps, in the structure of the outputs."""
        return manifest.unpacked(self._structure, iter([open_npy(file.path, "out") for file in self._files]))

    def __enter__(self) -> OutputFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
            else:
                # The error that led here is the one to see; the last manifest still holds.
                with contextlib.suppress(OSError):
                    self.sync()
        finally:
            self._close()

    def _close(self) -> None:
        for file in self._files:
            file.close()

    def _finish(self) -> None:
        if not self._is_open:
            raise ValueError(
                "Nothing was predicted: there was no step. Expected `x` to have rows, and `steps` above 0."
            )
        _, rows = self._done
        for file, count in zip(self._files, rows, strict=True):
            file.finish(count)
        manifest.sync_folders(file.path for file in self._files)
        self._paths.manifest.unlink(missing_ok=True)

    def _open(self, outputs: Any, arrays: list[np.ndarray]) -> None:
        paths = self._paths.of(outputs)
        self._paths.make_folder()
        # The rows of an earlier prediction go now.
        self._paths.manifest.unlink(missing_ok=True)
        files = [
            FileProgress(str(path), 0, array.shape[1:], array.dtype.str)
            for path, array in zip(paths, arrays, strict=True)
        ]
        self._go_on(0, files, manifest.packed(outputs))

    def _go_on(self, steps: int, files: Sequence[FileProgress], structure: Any) -> None:
        for file in files:
            self._files.append(_PartialFile(file))
        self._done = (steps, tuple(file.rows for file in files))
        self._structure = structure
        self._is_open = True


def _difference(before: Progress, fingerprint: dict[str, str]) -> str | None:
    """Why a prediction must be started anew, or None if it can be gone on with."""
    if before.obstacle is not None:
        return before.obstacle
    changed = [name for name, value in fingerprint.items() if before.fingerprint.get(name) != value]
    if changed:
        return f"not everything is as it was: {', '.join(changed)}"
    for file in before.files:
        path = partial(Path(file.path))
        needed = size_on_disk((file.rows, *file.row_shape), file.dtype)
        if not path.is_file() or path.stat().st_size < needed:
            return f"{str(path)!r} is gone or cut short"
    return None


class _PartialFile:
    """The rows of one output, in a file whose header is written last: only then is it known how many rows there are."""

    def __init__(self, begun: FileProgress):
        self.path = Path(begun.path)
        self._begun = begun
        self._row_shape, self._dtype = begun.row_shape, np.dtype(begun.dtype)
        self._file = os.open(partial(self.path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._lock()
            if begun.rows and os.fstat(self._file).st_size < self._end(begun.rows):
                raise OSError(f"{str(partial(self.path))!r} was changed by another process. Predict again.")
            os.ftruncate(self._file, self._end(begun.rows))
        except BaseException:
            os.close(self._file)
            raise

    def _end(self, rows: int) -> int:
        return size_on_disk((rows, *self._row_shape), self._dtype)

    def progress(self, rows: int) -> FileProgress:
        return replace(self._begun, rows=rows)

    def write(self, arrays: list[np.ndarray], row: int) -> int:
        """Write rows from this one on, and say how many."""
        for array in arrays:
            if array.shape[1:] != self._row_shape or array.dtype != self._dtype:
                raise ValueError(
                    f"The outputs of a step do not fit those before it. Received: rows of shape {array.shape[1:]} and "
                    f"dtype {array.dtype}. Expected {self._row_shape} and {self._dtype}, as in the first step."
                )
        rows = np.concatenate(arrays)
        rest, position = rows.reshape(-1).view(np.uint8).data, self._end(row)
        while rest:
            try:
                count = os.pwrite(self._file, rest, position)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise OSError(
                    error.errno,
                    f"The disk of {str(self.path)!r} is full. Free some space and predict again: it goes on from there",
                ) from error
            rest, position = rest[count:], position + count
        return len(rows)

    def sync(self) -> None:
        os.fsync(self._file)
        drop_from_cache(self._file)

    def finish(self, rows: int) -> None:
        """Complete the file and give it its name."""
        os.ftruncate(self._file, self._end(rows))
        os.pwrite(self._file, _header((rows, *self._row_shape), self._dtype), 0)
        self.sync()
        partial(self.path).replace(self.path)

    def close(self) -> None:
        os.close(self._file)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(
                error.errno,
                f"Another prediction is being written to {str(self.path)!r}. Wait for it, or choose another",
            ) from error
        except OSError:
            # Not every network file system has locks.
            pass


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """NumPy's own; its length leaves room for any number of rows."""
    text = io.BytesIO()
    fields = {"shape": shape, "fortran_order": False, "descr": np.lib.format.dtype_to_descr(dtype)}
    np.lib.format.write_array_header_1_0(text, fields)
    return text.getvalue()


def _storable(leaf: Any) -> np.ndarray:
    """An output as an array that a `.npy` file can hold; what NumPy has no name for (bfloat16) becomes float32."""
    array = leaf if isinstance(leaf, np.ndarray) else None
    if array is not None and array.dtype.kind == "V" and array.dtype.names is None:
        array = array.astype(np.float32)
    if array is None or array.ndim == 0 or array.dtype.kind not in "biufc":
        raise ValueError(
            "Only arrays of numbers with a row for each sample can go to a file. Received: an output of type "
            f"{type(leaf).__name__}, dtype {getattr(leaf, 'dtype', None)} and shape {getattr(leaf, 'shape', None)}. "
            "Call `model.predict` without `out`."
        )
    return array
