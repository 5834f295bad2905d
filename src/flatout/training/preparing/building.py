"""Building a model before its first step: what is not built yet, with the random numbers that stock Keras draws for it.

It comes between planning, which changes nothing, and the choice of the engine, which looks at the built model.
"""

from __future__ import annotations

from typing import Any

from flatout.base.errors import Refusal, reason
from flatout.data.order.row_order import Order
from flatout.data.sources.description import ArraySource
from flatout.data.stream.chunks import Chunk
from flatout.engines.contract import Engine
from flatout.seam.symbolic_build import build_on_batch, is_unbuilt


def build_on_rows(model: Any, engine: Engine, source: ArraySource, order: Order) -> None:
    """Build on the first rows of arrays, whose order stock Keras may draw for that.

    Raises:
        Refusal: The model's Python cannot be traced; where stock Keras traces it too, the error is its own.
    """
    unbuilt = is_unbuilt(model)
    if unbuilt and engine.peeks_to_build:
        order.peek()
    _build(model, engine, engine.place(source.head(source.batch_size)) if unbuilt else ())


def build_on_chunk(model: Any, engine: Engine, chunk: Chunk) -> None:
    """Build on the first batch that was read, which is trained on later."""
    from keras import tree

    _build(
        model, engine, tree.map_structure(lambda leaf: leaf if leaf is None else leaf[: chunk.batch_size], chunk.data)
    )


def _build(model: Any, engine: Engine, batch: Any) -> None:
    try:
        build_on_batch(model, batch)
    except Exception as error:
        if engine.peeks_to_build:
            # Stock Keras builds in the same way here: the error is the user's to see.
            raise
        raise Refusal(reason("untraceable", "the model", str(error).partition("\n")[0])) from error
