"""One of several names, chosen by the data: `NAMES[int(y_true[i])]`, and tables that are read with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flatout.vectorize.arrays.algebra import cast, operand
from flatout.vectorize.arrays.indexing import index
from flatout.vectorize.arrays.lifted_values import Choice, Known, Refused, TableRow, Tensor, WrongRank
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.source_printing import text_of

from .lookups import is_frame, is_series, lookup


def chosen_from(lift: Lifting, value: Known, item: Any) -> Choice | None:
    """What a list, array or dict of names gives for a number of the batch; None: it holds numbers."""
    content = value.value
    if not isinstance(item, Tensor):
        return None
    options = list(content.values()) if isinstance(content, Mapping) else content
    if not isinstance(options, (list, tuple, np.ndarray)) or not len(options):
        return None
    if not all(isinstance(option, str) for option in options):
        return None
    if item.rank:
        raise WrongRank("A name is chosen by an array.")
    if not isinstance(content, Mapping):
        return Choice(Known(list(options), value.node), item)
    graph, name = lift.graph, text_of(value.node)
    places = graph.make("raw", f"{{key: place for place, key in enumerate({name})}}")
    code = lookup(lift, Known({key: place for place, key in enumerate(content)}, places), [item])
    return Choice(Known(options, graph.make("raw", f"list({name}.values())")), cast(lift, code, "int32"))


def read_at(lift: Lifting, table: Known, choice: Choice, default: Any = None) -> Any:
    """A dict, Series or DataFrame at the name that was chosen: at the place of that name in a table in their order."""
    lift.changes.add("FO401")
    graph, options = lift.graph, choice.options
    name, names = text_of(table.node), text_of(options.node)
    try:
        if is_frame(table):
            rows = Known(table.value.loc[options.value], graph.make("raw", f"{name}.loc[{names}]"))
            return TableRow(rows, (choice.code,), True)
        if default is not None:
            given = [table.value.get(option, default.value) for option in options.value]
            text = f"[{name}.get(name, {text_of(default.node)}) for name in {names}]"
        else:
            given = [table.value[option] for option in options.value]
            text = f"[{name}[name] for name in {names}]"
    except (KeyError, AttributeError) as error:
        raise Refused(f"A table has no entry for a name that it may be asked for: {error}.", "FO401") from error
    if not is_series(table) and not isinstance(table.value, Mapping):
        raise Refused("Something is read with a name that is no table.", "FO401")
    made = Known([_plain(one) for one in given], graph.make("raw", text))
    again = chosen_from(lift, made, choice.code)
    return index(lift, operand(lift, made), [choice.code]) if again is None else again


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
