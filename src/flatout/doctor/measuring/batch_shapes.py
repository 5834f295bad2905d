"""The shapes of the batches that a fit gets: where the step is compiled, it is compiled once for each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flatout.base.when_used import keras

from .user_data import UserData

# Two are usual: those of a whole batch, and of the last.
_USUAL = 2


@dataclass(frozen=True)
class BatchShapes:
    """Of the first batches of a fit's data.

    Attributes:
        batches: So many were looked at.
        shapes: Those that came, as text, in that order.
    """

    batches: int = 0
    shapes: tuple[str, ...] = ()

    @property
    def are_many(self) -> bool:
        return len(self.shapes) > _USUAL

    @property
    def again(self) -> int:
        """How often a step is compiled beside the first time."""
        return max(0, len(self.shapes) - 1)


NO_SHAPES = BatchShapes()


def batch_shapes(model: Any, data: UserData) -> BatchShapes:
    """Of a model whose step is compiled for each shape; of another one, none at all."""
    backend = keras.config.backend()
    if backend == "torch" or model.run_eagerly or not model.jit_compile:
        return NO_SHAPES
    found = [_as_text(batch) for batch in data.some_batches()]
    return BatchShapes(len(found), tuple(dict.fromkeys(found)))


def _as_text(batch: Any) -> str:
    leaves = (leaf for leaf in keras.tree.flatten(batch) if leaf is not None)
    return ", ".join(str(tuple(leaf.shape)) if hasattr(leaf, "shape") else str(len(leaf)) for leaf in leaves)
