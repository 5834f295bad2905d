"""Predictions on their way to `.npy` files: written beside their place, renamed at the end, gone on with after a crash.

Rows are appended to `predictions.npy.partial`. Every few seconds they are brought to disk, and then a manifest says how
many there are. An interrupted prediction goes on from there, if nothing that determines its bytes has changed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.when_used import tree
from flatout.data.files.npy_files import open_npy

from . import manifest
from .manifest import FileProgress, Progress
from .output_paths import OutputPaths
from .partial_file import PartialFile, partial, size_on_disk

# What a crash may cost, and what the disk may have to write at once.
SECONDS_BETWEEN_SYNCS = 2.0
BYTES_BETWEEN_SYNCS = 10**9
_FULL = (errno.ENOSPC, errno.EDQUOT)


class OutputFiles(contextlib.AbstractContextManager["OutputFiles"]):
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
        self._files: list[PartialFile] = []
        # Steps, and rows of each file, that count. Replaced as a whole: a Ctrl-C comes between any two lines.
        self._done: tuple[int, tuple[int, ...]] = (0, ())
        self._unsynced_bytes = 0
        self._synced_at = time.monotonic()
        self._is_saved = False
        before = manifest.load(paths.manifest)
        if before is None:
            if os.path.lexists(paths.manifest):
                self.started_anew = f"{str(paths.manifest)!r}, the record of it, is damaged or a link"
        elif before.steps or before.obstacle:
            places = _places(before, paths)
            self.started_anew = obstacle or _difference(before, fingerprint, places)
            if self.started_anew is None:
                try:
                    self._go_on(before.steps, places, before.files, before.structure)
                except BaseException:
                    self._close()
                    raise
                self._is_saved = True

    @property
    def steps(self) -> int:
        """Steps whose outputs were appended, also by the interrupted prediction that this one goes on with."""
        return self._done[0]

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each file."""
        return self._done[1]

    def start_anew(self, why: str) -> None:
        """Give up what an interrupted prediction has left."""
        self._close()
        self.started_anew = why
        self._files, self._done = [], (0, ())
        self._is_saved = False

    def beside(self, outputs: Sequence[Any], row: int, stop: int) -> list[tuple[np.ndarray, np.ndarray]] | None:
        """What each file has from a row on, and outputs of steps that belong there; None if they are not as many."""
        columns = _columns(outputs)
        if len(columns) != len(self._files):
            return None
        return [
            (file.read(row, stop), np.concatenate(arrays)) for file, arrays in zip(self._files, columns, strict=True)
        ]

    def append(self, outputs: Sequence[Any]) -> None:
        """Add the outputs of one step after the other."""
        if not outputs:
            return
        columns = _columns(outputs)
        with self._told_when_full():
            if not self.rows:
                self._open(outputs[0], [arrays[0] for arrays in columns])
            done, rows = self._done
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
        steps, rows = self._done
        if not rows or (self._obstacle and self._is_saved):
            return
        for file in self._files:
            file.sync()
        if not self._is_saved:
            manifest.sync_folders(file.path for file in self._files)
        files = tuple(replace(file.begun, rows=count) for file, count in zip(self._files, rows, strict=True))
        steps = 0 if self._obstacle else steps
        manifest.save(self._paths.manifest, Progress(self._fingerprint, steps, files, self._structure, self._obstacle))
        self._is_saved = True
        self._unsynced_bytes = 0
        self._synced_at = time.monotonic()

    def result(self) -> Any:
        """The finished files as read-only memory maps, in the structure of the outputs."""
        return manifest.unpacked(self._structure, iter([open_npy(file.path, "out") for file in self._files]))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                with self._told_when_full():
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
        if not self.rows:
            raise ValueError(
                "Nothing was predicted: there was no step. Expected `x` to have rows, and `steps` above 0."
            )
        for file, count in zip(self._files, self.rows, strict=True):
            file.complete(count)
        for file in self._files:
            partial(file.path).replace(file.path)
        manifest.sync_folders(file.path for file in self._files)
        manifest.remove(self._paths.manifest)

    @contextlib.contextmanager
    def _told_when_full(self) -> Iterator[None]:
        """Say of a full disk what becomes of the prediction; what can still be saved is saved before."""
        try:
            yield
        except OSError as error:
            if error.errno not in _FULL:
                raise
            with contextlib.suppress(OSError):
                # What is behind the last whole step makes room for the record.
                for file, count in zip(self._files, self.rows, strict=False):
                    file.cut(count)
                self.sync()
            can_go_on = self._is_saved and self.steps and not self._obstacle
            what_then = "goes on from there" if can_go_on else "starts anew, because nothing is saved to go on from"
            raise OSError(
                error.errno, f"The disk of {self._paths} is full. Free some space and predict again: it {what_then}"
            ) from error

    def _open(self, outputs: Any, arrays: list[np.ndarray]) -> None:
        places = self._paths.of(outputs)
        self._paths.make_folder()
        files = [
            FileProgress(self._paths.seen_from_manifest(path), 0, array.shape[1:], array.dtype.str)
            for path, array in zip(places, arrays, strict=True)
        ]
        self._go_on(0, places, files, manifest.packed(outputs))
        # It spoke of the rows of an earlier prediction, which are gone now.
        manifest.remove(self._paths.manifest)

    def _go_on(self, steps: int, places: list[Path], files: Sequence[FileProgress], structure: Any) -> None:
        for path, file in zip(places, files, strict=True):
            self._files.append(PartialFile(path, file))
        self._structure = structure
        self._done = (steps, tuple(file.rows for file in files))


def _places(before: Progress, paths: OutputPaths) -> list[Path]:
    """The files of an interrupted prediction; none if they are not those of this one."""
    try:
        places = paths.of(manifest.unpacked(before.structure, itertools.repeat(0)))
    except (ValueError, TypeError):
        return []
    return places if [file.path for file in before.files] == list(map(paths.seen_from_manifest, places)) else []


def _difference(before: Progress, fingerprint: dict[str, str], places: list[Path]) -> str | None:
    """Why a prediction must be started anew, or None if it can be gone on with."""
    if before.obstacle is not None:
        return before.obstacle
    changed = [name for name, value in fingerprint.items() if before.fingerprint.get(name) != value]
    if changed:
        return f"not everything is as it was: {', '.join(changed)}"
    if not places:
        return "it went to other files"
    for path, file in zip(map(partial, places), before.files, strict=True):
        needed = size_on_disk((file.rows, *file.row_shape), file.dtype)
        if not manifest.is_plain_file(path) or path.stat().st_size < needed:
            return f"{str(path)!r} is gone or cut short, or a link"
    return None


def _columns(outputs: Sequence[Any]) -> list[list[np.ndarray]]:
    """The outputs of steps, file by file."""
    steps = [[_storable(leaf) for leaf in tree.flatten(structure)] for structure in outputs]
    return [list(arrays) for arrays in zip(*steps, strict=True)]


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
