"""Keys that can be seen on the host are checked there, before step 0: arrays in x that a loss looks up in a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from flatout.base.errors import TableError
from flatout.seam.adapters import arrays_behind
from flatout.tables.columns.keys import INT32

from .table_state import tables_of


def check_adapter(model: Any, adapter: Any) -> None:
    """Check the arrays behind one of Keras' data adapters, if it has arrays."""
    arrays = arrays_behind(adapter)
    if arrays is not None:
        from keras.utils import unpack_x_y_sample_weight

        check_inputs(model, unpack_x_y_sample_weight(arrays)[0])


def check_inputs(model: Any, x: Any) -> None:
    """Check the entries of x that the loss of a model was seen to look up.

    Raises:
        TableError: Keys are not in a table that says `missing="raise"`, or too large for the device.
    """
    for table in tables_of(model):
        for paths in table.entries:
            arrays = [_entry(x, path) for path in paths]
            if all(isinstance(array, np.ndarray) for array in arrays):
                _check(table, arrays)


def _check(table: Any, arrays: list[np.ndarray]) -> None:
    import keras

    flat = [array.reshape(-1) for array in arrays]
    for name, array in zip(table.key, flat, strict=False):
        too_large = array.dtype.kind in "iu" and len(array) and (array.min() < INT32.min or array.max() > INT32.max)
        if too_large and keras.config.backend() == "jax":
            raise TableError(
                f"The keys {name!r} in x need more than 32 bits, which jax cuts off. Received: {int(array.max())}. Put "
                "`table.codes(values)` into x in their place."
            )
    if table.raises:
        table.index.check_looked_up(flat)


def _entry(x: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        try:
            x = x[part]
        except (KeyError, IndexError, TypeError):
            return None
    return x
