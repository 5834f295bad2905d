"""Lookups in tables that a loss closes over: a dict, Series or DataFrame read by a tensor's values becomes a gather."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.vectorize.arrays import exact_numbers as wide
from flatout.vectorize.arrays.algebra import (
    all_of,
    as_constant,
    binary,
    cast,
    constant_array,
    not_,
    number,
    operand,
    relabelled,
    shielded,
    where,
)
from flatout.vectorize.arrays.expression_graph import text_of
from flatout.vectorize.arrays.indexing import gather, index, positions
from flatout.vectorize.arrays.lifted_values import (
    Axis,
    Choice,
    Known,
    Listing,
    Match,
    Refused,
    TableRow,
    Tensor,
    WrongRank,
)
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import reduce

# Keys that are not 0, 1, 2, ... are compared with all of the table's; beyond this many that costs more than it saves.
_MOST_KEYS = 4096


def is_frame(value: Any) -> bool:
    return isinstance(value, Known) and type(value.value).__name__ == "DataFrame"


def is_series(value: Any) -> bool:
    return isinstance(value, Known) and type(value.value).__name__ == "Series"


def is_table(value: Any) -> bool:
    return is_frame(value) or is_series(value) or (isinstance(value, Known) and isinstance(value.value, Mapping))


def lookup(
    lift: Lifting,
    table: Known,
    keys: Sequence[Any],
    default: Any = None,
    by_position: bool = False,
    frame: Known | None = None,
) -> Tensor:
    """The entries of a Series or dict at the keys, a tensor for each level of the index.

    `frame` is the DataFrame that a Series is a column of: all of its columns share one index.
    """
    values, levels = _columns(lift, table, frame)
    if default is None and hasattr(type(table.value), "__missing__"):
        default = _missing(lift, table.value)
    return _looked_up(lift, values, levels, keys, default, by_position)


def _missing(lift: Lifting, table: Any) -> Known | None:
    """What a `defaultdict` or `Counter` gives for a key that it does not have; None: it raises."""
    if isinstance(table, collections.defaultdict):
        made = None if table.default_factory is None else table.default_factory()
    elif isinstance(table, collections.Counter):
        made = 0
    else:
        raise Refused("A table of a kind that makes entries as they are read.", "FO401")
    if made is not None and not isinstance(made, (int, float)):
        raise Refused("A table makes entries that are no numbers as they are read.", "FO401")
    return None if made is None else number(lift, made)


def entry(lift: Lifting, match: Match) -> Tensor:
    """The first entry of a column among the rows that match a key."""
    graph = lift.graph
    assert match.column is not None
    values = Known(match.column.value.to_numpy(), graph.method(match.column.node, "to_numpy"))
    pairs = ((match.on, match.key), *match.also)
    levels = [Known(on.value.to_numpy(), graph.method(on.node, "to_numpy")) for on, _ in pairs]
    return _looked_up(lift, values, levels, [key for _, key in pairs], None, False)


def _looked_up(
    lift: Lifting, values: Known, levels: Sequence[Known], keys: Sequence[Any], default: Any, by_position: bool
) -> Tensor:
    lift.changes.add("FO401")
    content = np.asarray(values.value)
    if content.dtype.kind not in "fiub":
        raise Refused(f"A table holds values of type {content.dtype}; only numbers can be gathered.", "FO401")
    column = constant_array(lift, content, values.node)
    if by_position:
        made = gather(lift, column, 0, _tensor(keys[0]))
    else:
        made = _by_key(lift, column, levels, keys, default)

    def again(column: Known) -> Tensor:
        return _looked_up(lift, column, levels, keys, default, by_position)

    return wide.remember(lift, made, content, values, again)


def _by_key(lift: Lifting, column: Tensor, levels: Sequence[Known], keys: Sequence[Any], default: Any) -> Tensor:
    if len(keys) != len(levels):
        raise Refused(f"A table with {len(levels)} keys is read with {len(keys)}.", "FO401")
    for level, key in zip(levels, keys, strict=True):
        known = np.asarray(level.value)
        if known.dtype.kind not in "iubf":
            raise Refused(f"The keys of a table are of type {known.dtype}, which no tensor holds.", "FO401")
        if isinstance(key, Tensor):
            lift.learn("keys", key, tuple(np.unique(known).tolist()), default is not None)
            check_keys(lift, key, known)
    first = np.asarray(levels[0].value)
    if len(levels) == 1 and np.array_equal(first, np.arange(len(first))):
        entry, found = _dense(lift, column, _tensor(keys[0]), len(first))
    else:
        entry, found = _compared(lift, column, levels, keys)
    if default is None:
        lift.note("A key that is not in the table raises in the original; the rewrite gives NaN for it.")
        # Where the statement does not run, NaN must not reach a gradient: `if key in table: table[key] * p`.
        made = shielded(lift, where(lift, found, entry, number(lift, float("nan"))))
    else:
        made = where(lift, found, entry, default)
    return replace(made, is_host=True, kind="float")


def check_keys(lift: Lifting, key: Tensor, known: np.ndarray) -> None:
    """Refuse keys that are compared as floats and need more digits than these have."""
    lift.exact(key)
    if key.kind != "int" and known.dtype.kind in "iu" and not all(map(wide.fits, known.ravel().tolist())):
        raise Refused("A table has keys that no float of 32 bits equals: read them by int(key).", "FO401")


def _tensor(key: Any) -> Tensor:
    if isinstance(key, Tensor):
        return key
    raise Refused("A table is read with a key that is no tensor.", "FO401")


def is_nested(table: Any) -> bool:
    """Whether a table is a dict of dicts."""
    content = table.value if isinstance(table, Known) else None
    if hasattr(type(content), "__missing__"):
        return False
    return isinstance(content, Mapping) and bool(content) and all(isinstance(row, Mapping) for row in content.values())


def nested_entry(lift: Lifting, row: TableRow, inner: Any) -> Tensor:
    """`table[key][inner]` of a dict of dicts; `inner` is a constant, or a key from the data as well."""
    graph, content, name = lift.graph, row.table.value, text_of(row.table.node)
    if isinstance(inner, Known):
        if any(inner.value not in one for one in content.values()):
            raise Refused(f"A dict of dicts has no entry {inner.value!r} in some of its rows.", "FO401")
        at = graph.make("raw", f"[row[{inner.value!r}] for row in {name}.values()]")
        values = Known([one[inner.value] for one in content.values()], at)
        levels = [Known(list(content), graph.call("list", row.table.node))]
        return _looked_up(lift, values, levels, row.keys, None, False)
    texts = (
        f"[value for row in {name}.values() for value in row.values()]",
        f"[key for key, row in {name}.items() for _ in row]",
        f"[key for row in {name}.values() for key in row]",
    )
    triples = [(value, key, other) for key, one in content.items() for other, value in one.items()]
    columns = zip(zip(*triples, strict=True), texts, strict=True)
    values, *levels = (Known(list(column), graph.make("raw", text)) for column, text in columns)
    return _looked_up(lift, values, levels, [*row.keys, inner], None, False)


def _columns(lift: Lifting, table: Known, frame: Known | None) -> tuple[Known, list[Known]]:
    """The values, and the keys of each level, as arrays with the expressions that make them."""
    graph, content = lift.graph, table.value
    if isinstance(content, Mapping):
        keys, levels = list(content), [Known(list(content), graph.call("list", table.node))]
        if keys and isinstance(keys[0], tuple):
            texts = [f"[key[{k}] for key in {text_of(table.node)}]" for k in range(len(keys[0]))]
            levels = [Known([key[k] for key in keys], graph.make("raw", text)) for k, text in enumerate(texts)]
        return Known(list(content.values()), graph.call("list", graph.method(table.node, "values"))), levels
    index, at = content.index, graph.make("attribute", (frame or table).node, "index")
    if not index.is_unique:
        raise Refused("A table has the same key more than once.", "FO401")
    nodes = [at]
    if index.nlevels > 1:
        nodes = [graph.method(at, "get_level_values", graph.const(k)) for k in range(index.nlevels)]
    levels = [
        Known(index.get_level_values(k).to_numpy(), graph.method(node, "to_numpy")) for k, node in enumerate(nodes)
    ]
    return Known(content.to_numpy(), graph.method(table.node, "to_numpy")), levels


def _dense(lift: Lifting, column: Tensor, key: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Keys 0, 1, 2, ...: the key is the row; no gather leaves the table, on any backend."""
    code = cast(lift, key, "int32")
    is_key = None if key.kind == "int" else binary(lift, "==", code, key)  # 1.5 is none, and the cast makes it one.
    bounds = binary(lift, ">=", code, number(lift, 0)), binary(lift, "<", code, number(lift, size))
    inside = all_of(lift, *bounds, is_key)
    node = lift.graph.call("ops.clip", code.node, lift.graph.const(0), lift.graph.const(size - 1))
    assert inside is not None
    return gather(lift, column, 0, replace(code, node=node, domain=None, position=None)), inside


def _compared(lift: Lifting, column: Tensor, levels: Sequence[Known], keys: Sequence[Any]) -> tuple[Tensor, Tensor]:
    rows = column.inner[0]
    if np.asarray(levels[0].value).size > _MOST_KEYS:
        raise Refused("A large table is read by keys that are not 0, 1, 2, ...: use flatout.Table.", "FO401")
    columns = (constant_array(lift, np.asarray(level.value), level.node) for level in levels)
    labels = (replace(known, dims=(rows,), inner=()) for known in columns)
    equal = all_of(lift, *(binary(lift, "==", key, known) for key, known in zip(keys, labels, strict=True)))
    assert equal is not None
    found = reduce(lift, "any", equal, (rows,))
    row = reduce(lift, "argmax", cast(lift, equal, "int32"), (rows,))
    return gather(lift, column, 0, row), found


def edges_below(lift: Lifting, edges: Any, values: Tensor, right: bool, nan_is_last: bool) -> Tensor:
    """How many of the rising edges of intervals each value lies above.

    `right`: an interval holds its upper edge. `nan_is_last`: NaN lies above the last edge, not below the first.
    """
    edges = as_constant(lift, edges)
    content = np.asarray(edges.value if isinstance(edges, Known) else None, "float64")
    if content.ndim != 1 or np.any(np.diff(content) <= 0):
        raise Refused("The edges of the intervals are not rising constants.", "FO401")
    lift.learn("range", values, tuple(content.tolist()))
    lift.changes.add("FO205")
    axis = Axis("edge", lift.graph.const(len(content)))
    symbol, opposite = (">", "<=") if right else (">=", "<")
    lift.exact(values)
    is_whole = values.kind == "int" and np.all(np.isfinite(content))
    edges = (wide.whole_bounds if is_whole else wide.rounded)(lift, edges, symbol)
    known = constant_array(lift, np.asarray(edges.value, None if is_whole else "float32"), edges.node)
    sides = replace(values, inner=()), replace(known, dims=(axis,), inner=())
    above = not_(lift, binary(lift, opposite, *sides)) if nan_is_last else binary(lift, symbol, *sides)
    count = reduce(lift, "sum", cast(lift, above, "int32"), (axis,))
    return replace(count, inner=values.inner, is_host=True, kind="int")


def distinct(lift: Lifting, values: Tensor) -> Listing:
    """The distinct entries of a vector, as a list over all entries of which the first of each kind are kept."""
    loop = Axis("value", values.inner[0].size)
    own = replace(relabelled(values, {values.inner[0]: loop}), inner=())
    return Listing(own, (loop,), _is_first(lift, own, loop))


def _is_first(lift: Lifting, own: Tensor, axis: Axis) -> Tensor:
    """Whether an entry along an axis has none like it before it."""
    twin = Axis("twin", axis.size)
    earlier = binary(lift, "<", positions(lift, twin), positions(lift, axis))
    same = all_of(lift, binary(lift, "==", own, relabelled(own, {axis: twin})), earlier)
    assert same is not None
    return not_(lift, reduce(lift, "any", same, (twin,)))


def members(lift: Lifting, entries: Tensor, others: Sequence[Tensor]) -> Tensor:
    """How many distinct entries there are along the last dimension that all the others have too."""
    lift.changes.add("FO205")
    (axis,) = entries.inner
    own = replace(entries, inner=(), valid=None)
    keep = entries.valid if entries.is_distinct else all_of(lift, entries.valid, _is_first(lift, own, axis))
    for other in others:
        fresh = Axis("other", other.inner[0].size)
        theirs = replace(relabelled(other, {other.inner[0]: fresh}), inner=(), valid=None)
        keep = all_of(lift, keep, reduce(lift, "any", binary(lift, "==", own, theirs), (fresh,)))
    if keep is None:
        raise Refused("The size of a set of a whole array is its length.", "FO205")
    return replace(reduce(lift, "sum", cast(lift, keep, "float32"), (axis,)), inner=())


def chosen_from(lift: Lifting, value: Known, item: Any) -> Choice | None:
    """What a list, array or dict of names gives for a number of the batch; None: it holds numbers."""
    content = value.value
    options = list(content.values()) if isinstance(content, Mapping) else content
    is_list = isinstance(options, (list, tuple, np.ndarray)) and len(options)
    if not is_list or not isinstance(item, Tensor) or not all(isinstance(option, str) for option in options):
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
    plain = [one.item() if isinstance(one, np.generic) else one for one in given]
    made = Known(plain, graph.make("raw", text))
    again = chosen_from(lift, made, choice.code)
    return index(lift, operand(lift, made), [choice.code]) if again is None else again
