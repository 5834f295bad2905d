"""Several keys at once, and which join a table gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from flatout.base.errors import TableError
from flatout.tables.columns.keys import Keys

from .join import CodedJoin, DenseJoin, IntervalJoin, Join, SearchJoin

# Up to this many slots a table with gaps is held without an index; a larger one if at least a quarter is filled.
_SMALL = 65_536
_MOST_GAPS = 4


class ProductJoin(Join):
    """One join for each key: the slot is the number of the combination, the first key counting most."""

    def __init__(self, parts: Sequence[Join]):
        self.parts = tuple(parts)
        self.size = math.prod(part.size for part in parts)
        self.kind = " x ".join(part.kind for part in parts)

    def variables(self) -> list[Any]:
        return [variable for part in self.parts for variable in part.variables()]

    def assign(self, keys: Sequence[Keys]) -> np.ndarray:
        return self._combined([part.assign(column) for part, column in zip(self.parts, keys, strict=True)])

    def slots(self, keys: Sequence[Keys]) -> np.ndarray:
        return self._combined([part.slots(column) for part, column in zip(self.parts, keys, strict=True)])

    def _combined(self, slots: Sequence[np.ndarray]) -> np.ndarray:
        """The slot of each combination; -1 where one of its keys has none."""
        sizes = tuple(part.size for part in self.parts)
        return np.where(np.min(slots, axis=0) < 0, -1, np.ravel_multi_index(tuple(slots), sizes, mode="clip"))

    def locate(self, keys: Sequence[Any]) -> tuple[Any, Any]:
        from keras import ops

        slots, possible = self.parts[0].locate(keys[0])
        for part, column in zip(self.parts[1:], keys[1:], strict=True):
            own, own_possible = part.locate(column)
            slots = slots * part.size + own
            possible = ops.logical_and(possible, own_possible)
        return slots, possible


def choose_join(names: Sequence[str], keys: Sequence[Keys], capacity: int | None, wish: str) -> Join:
    """The join of a table: of one key, of the combinations of several, or of combinations coded as a whole."""
    if len(names) == 1:
        return _single_join(names[0], keys[0], capacity, wish)
    most = _most_slots(max(len(keys[0].values), capacity or 0))
    if wish == "codes" or math.prod(len(np.unique(column.values)) for column in keys) > most:
        return CodedJoin(" and ".join(names), keys, capacity)
    parts = [_single_join(name, column, None, wish) for name, column in zip(names, keys, strict=True)]
    if math.prod(part.size for part in parts) > most:
        # Gaps multiply; without them the combinations are few.
        parts = [_single_join(name, column, None, _gapless(column)) for name, column in zip(names, keys, strict=True)]
    return ProductJoin(parts)


def _single_join(name: str, keys: Keys, capacity: int | None, wish: str) -> Join:
    """The cheapest join that is right for these keys."""
    if keys.intervals is not None:
        return IntervalJoin(name, keys.intervals, capacity)
    if not keys.fits_int32 or wish == "codes":
        if wish in ("dense", "searchsorted"):
            raise TableError(
                f"join={wish!r} needs integers of 32 bits. Received: the key {name!r} of kind {keys.kind}. Leave "
                "`join` out: such keys are coded on the host with `table.codes(values)`."
            )
        return CodedJoin(name, keys, capacity)
    rows = max(capacity or 0, len(keys.values))
    if wish == "dense" or (wish == "auto" and _span(keys) <= _most_slots(rows)):
        return DenseJoin(name, int(keys.values.min()), max(_span(keys), capacity or 0))
    return SearchJoin(name, rows)


def _gapless(keys: Keys) -> str:
    if not keys.fits_int32:
        return "auto"
    return "dense" if _span(keys) == len(np.unique(keys.values)) else "searchsorted"


def _span(keys: Keys) -> int:
    return int(keys.values.max()) - int(keys.values.min()) + 1


def _most_slots(rows: int) -> int:
    return max(_SMALL, _MOST_GAPS * rows)
