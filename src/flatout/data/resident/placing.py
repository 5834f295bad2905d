"""Files straight into device memory: which arrays of a structure lie in files, and how those get there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flatout.data.device.sinks import MakeSink
from flatout.data.direct.load import load
from flatout.data.direct.load_report import DirectReport
from flatout.data.files.file_rows import FileRows
from flatout.data.files.lazy_rows import DecodedRows
from flatout.data.files.npy_files import extents, unmapped
from flatout.data.stream.chunks import leaves_of, packed


def lies_in_files(inputs: Any) -> bool:
    """Whether some of the arrays are rows of files, which need not pass through the host's heap."""
    return any(_in_files(leaf) is not None for leaf in leaves_of(inputs))


def place_files(
    inputs: Any, place: Any, sink_for: Callable[[str], MakeSink], dtypes: list[str]
) -> tuple[Any, list[DirectReport]]:
    """Put a structure of arrays on the device, those in files by reading the files; and how those came there.

    Args:
        inputs: The arrays.
        place: Puts a structure of arrays on the device, as Keras converts them.
        sink_for: Gives a `MakeSink` for an array that becomes a dtype of that name.
        dtypes: What each of the arrays becomes.
    """
    reports: list[DirectReport] = []

    def placed(leaf: Any, dtype: str) -> Any:
        rows = _in_files(leaf)
        if rows is None:
            return place(leaf)
        array, report = load(rows, sink_for(dtype))
        reports.append(report)
        return array

    return packed(inputs, list(map(placed, leaves_of(inputs), dtypes))), reports


def _in_files(leaf: Any) -> list[FileRows] | DecodedRows | None:
    """Where the rows of an array lie in files, or what decodes them."""
    if isinstance(leaf, DecodedRows):
        # Pages of a map would count as this process' memory.
        rows: DecodedRows = unmapped(leaf)
        return rows
    return [part for part in extents(leaf) if part.shape[0]] or None
