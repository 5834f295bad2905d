"""Batches of NumPy arrays that every backend takes as they are: what most generators give, so nothing has to be done.

Keras maps a conversion over the structure of each batch, which takes longer than a short step.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def is_plain(batch: Any) -> bool:
    """Whether a batch is made of tuples, lists and dicts of such arrays, and of None, alone.

    Example:
        >>> import numpy as np
        >>> from flatout.data.batches.plain_batches import is_plain
        >>> is_plain(({"a": np.ones((2, 3))}, np.zeros(2), None)), is_plain(([1.0, 2.0],))
        (True, False)
    """
    kind = type(batch)
    if kind is np.ndarray:
        return _is_taken(batch)
    if kind is tuple or kind is list:
        return all(map(is_plain, batch))
    if kind is dict:
        return all(map(is_plain, batch.values()))
    return batch is None


def _is_taken(array: np.ndarray) -> bool:
    dtype, flags = array.dtype, array.flags
    # torch wants arrays that it might write to, in this machine's byte order, and has few unsigned numbers.
    is_of_numbers = (dtype.kind in "bif" or dtype == np.uint8) and bool(dtype.isnative)
    return is_of_numbers and flags.c_contiguous and flags.writeable
