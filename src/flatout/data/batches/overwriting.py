"""Batches that their source may overwrite while they wait: copied, and only where that can happen."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

# Batches of a pass that are compared with each other: as many buffers may take turns and will be noticed.
WATCHED = 4


def copied(batch: Any) -> Any:
    """A batch in memory of its own."""
    from keras import tree

    return tree.map_structure(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, batch)


class OverwriteWatch:
    """Finds out whether a dataset writes its batches into the same arrays again, and copies them if it does.

    The first batches of a pass are copied in any case: an earlier one is already overwritten when a later one shows
    it. They are also kept until then, since memory that is free is allocated again.
    """

    def __init__(self) -> None:
        self.overwrites: bool | None = None

    def protected(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches of a pass, those that may be overwritten as copies."""
        # Not a generator, which would hold on to a batch until the next is asked for.
        return map(functools.partial(self._protected, []), batches)

    def _protected(self, kept: list[list[np.ndarray]], batch: Any) -> Any:
        if self.overwrites is None:
            self._compare(kept, batch)
        return batch if self.overwrites is False else copied(batch)

    def _compare(self, kept: list[list[np.ndarray]], batch: Any) -> None:
        from keras import tree

        arrays = [leaf for leaf in tree.flatten(batch) if isinstance(leaf, np.ndarray)]
        if any(np.may_share_memory(array, other) for others in kept for array in arrays for other in others):
            self.overwrites = True
        elif len(kept) == WATCHED:
            self.overwrites = False
        kept.append(arrays)
        if self.overwrites is not None:
            kept.clear()
