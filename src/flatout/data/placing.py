"""Files straight into device memory: which arrays of a structure lie in files, and how those get there."""

from __future__ import annotations

from typing import Any

from ..errors import UnreadableFile
from . import direct_npy
from .direct import load
from .direct_report import DirectReport
from .direct_sinks import MakeSink
from .files import extents


def lies_in_files(inputs: Any) -> bool:
    """Whether some of the arrays are rows of .npy files, which need not pass through the host's heap."""
    from keras import tree

    return any(_rows_in_files(leaf) is not None for leaf in tree.flatten(inputs) if leaf is not None)


def place_files(inputs: Any, place: Any, sink_for: Any, dtypes: list[str]) -> tuple[Any, list[DirectReport]]:
    """Put a structure of arrays on the device, those in files by reading the files.

    Args:
        inputs: The arrays.
        place: Puts a structure of arrays on the device, as Keras converts them.
        sink_for: Gives a `MakeSink` for an array that becomes a dtype of that name.
        dtypes: What each of the arrays becomes.

    Returns:
        The structure on the device, and how the bytes of each file came there.
    """
    from keras import tree

    names = iter(dtypes)
    reports: list[DirectReport] = []

    def placed(leaf: Any) -> Any:
        if leaf is None:
            return None
        name, rows = next(names), _rows_in_files(leaf)
        if rows is None:
            return place(leaf)
        make_sink: MakeSink = sink_for(name)
        array, report = load(rows[0], make_sink, start=rows[1], stop=rows[2])
        reports.append(report)
        return array

    return tree.map_structure(placed, inputs), reports


def _rows_in_files(leaf: Any) -> tuple[list[Any], int, int] | None:
    """The files, the first row and the row after the last."""
    parts = extents(leaf)
    if not parts or any(part.path.suffix != ".npy" for part in parts):
        return None
    try:
        files = [direct_npy.describe(part.path) for part in parts]
    except UnreadableFile:
        return None
    starts = [(part.offset - file.offset) // part.row_bytes for part, file in zip(parts, files, strict=True)]
    # Shards follow each other whole; of a single file any rows will do.
    is_whole = all(
        start == 0 and part.rows == file.shape[0] for start, part, file in zip(starts, parts, files, strict=True)
    )
    if len(parts) > 1 and not is_whole:
        return None
    return [part.path for part in parts], starts[0], starts[0] + sum(part.rows for part in parts)
