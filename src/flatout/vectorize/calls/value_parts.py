"""Attributes and subscripts of lifted values: arrays, lists that a loop filled, and tables."""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.vectorize.arrays.algebra import all_of, as_constant, binary, detached, not_, operand, relabelled_value
from flatout.vectorize.arrays.indexing import index, listing_to_tensor
from flatout.vectorize.arrays.lifted_values import (
    Bag,
    Choice,
    Groups,
    Host,
    Items,
    Known,
    Listing,
    Match,
    Method,
    Places,
    Record,
    Refused,
    Sum,
    TableRow,
    Tensor,
    WrongRank,
)
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.arrays.shaping import SHAPES, tensor
from flatout.vectorize.lookups.batch_frames import column_of
from flatout.vectorize.lookups.lookups import (
    check_keys,
    chosen_from,
    entry,
    is_frame,
    is_nested,
    is_series,
    is_table,
    lookup,
    nested_entry,
    read_at,
)

from .mask_places import picked_places, selects_at
from .reader import Reader


def attribute(lift: Lifting, value: Any, name: str) -> Any:
    """`value.name`."""
    graph = lift.graph
    if isinstance(value, Tensor):
        if name in ("shape", "ndim"):
            return SHAPES[name](lift, value)
        if name in ("T", "mT"):
            return replace(value, inner=value.inner[::-1])
        if name == "dtype":
            return Known("dtype", graph.make("attribute", value.node, "dtype"), "dtype")
        if name == "data":
            return detached(lift, value)
        if name == "values":
            return replace(value, is_series=False)
        return Method(value, name)
    if isinstance(value, Match):
        if name in ("iloc", "values", "iat", "item", "squeeze", "to_numpy"):
            return Method(value, name)
        return pick(lift, value, [Known(name, graph.const(name))], False)
    if isinstance(value, (Record, Groups)):
        return value.columns[name] if isinstance(value, Record) and name in value.columns else Method(value, name)
    if isinstance(value, TableRow):
        return Method(value, name) if name in ("item", "to_dict") else column_of_row(lift, value, name)
    if isinstance(value, Items) and name in ("values", "indices") and len(value.values) == 2:
        return value.values[name == "indices"]  # Of what torch's max, min, sort and topk give.
    if isinstance(value, Places) and name == "shape":
        return SHAPES[name](lift, value)
    is_array_of_tensors = isinstance(value, Sum) and name == "write"  # Of TensorFlow's, filled as a list is.
    if is_array_of_tensors or isinstance(value, (Items, Listing, Bag, Method, Places)):
        return Method(value, name)
    if isinstance(value, Sum):
        raise Refused(f"{value.name!r} is read while a loop carries it from step to step.", "FO106")
    if isinstance(value, Host):
        raise Refused(f"The attribute {name!r} of a number.")
    if isinstance(value, Known):
        return _of_known(lift, value, name)
    raise Refused(f"The attribute {name!r} of something that has none.")


def _of_known(lift: Lifting, value: Known, name: str) -> Any:
    graph, content, is_pandas = lift.graph, value.value, is_frame(value) or is_series(value)
    if is_pandas and name == "values":
        return Known(content.to_numpy(), graph.make("attribute", value.node, "values"))
    is_indexer = is_pandas and name in ("loc", "iloc", "at", "iat", "get", "map")
    if is_indexer or (isinstance(content, (dict, list)) and callable(getattr(content, name, None))):
        return Method(value, name)
    try:
        found = getattr(content, name)
    except AttributeError as error:
        raise Refused(f"There is no attribute {name!r}.") from error
    if isinstance(content, type) and name == "apply" and "autograd" in str(content.__mro__):
        raise Refused("A function has a gradient that the user defined: it cannot be derived from the body.", "FO101")
    is_module = isinstance(content, types.ModuleType)
    is_method = callable(found) and not isinstance(content, type) and not isinstance(found, types.FunctionType)
    if not is_module and (is_method or isinstance(found, types.MethodType)):
        return Method(value, name)
    is_plain = is_module and (found is None or isinstance(found, bool))
    node = graph.const(found) if is_plain else graph.make("attribute", value.node, name)
    return Known(found, node, f"{content.__name__}.{name}" if is_module else None)


def subscript(run: Reader, value: Any, at: ast.expr, scope: Any) -> Any:
    """`value[at]`."""
    parts = at.elts if isinstance(at, ast.Tuple) else [at]
    items = [item(run, part, scope) for part in parts]
    return pick(run.lift, value, items, isinstance(at, ast.Tuple))


def item(run: Reader, node: ast.expr, scope: Any) -> Any:
    """An index, or one of several: a value, None, Ellipsis, or a slice of values."""
    if isinstance(node, ast.Slice):
        bounds = (node.lower, node.upper, node.step)
        values = [None if bound is None else run.expression(bound, scope) for bound in bounds]
        return slice(*(None if getattr(value, "value", value) is None else value for value in values))
    value = run.expression(node, scope)
    if isinstance(value, Known) and value.value in (None, Ellipsis) and not hasattr(value.value, "shape"):
        return value.value
    return value


def pick(lift: Lifting, value: Any, items: list[Any], is_tuple: bool) -> Any:
    if isinstance(value, Tensor):
        mask = selects_at(list(items[0].values) if isinstance(items[0], Items) and len(items) == 1 else items)
        if mask is not None:
            return index(lift, value, [mask])
        return index(lift, value, [_index_item(lift, item) for item in items])
    if isinstance(value, Places):
        return picked_places(lift, value, items)
    if isinstance(value, (Record, Groups)):
        return column_of(value, items[0])
    if isinstance(value, Items):
        return _of_items(lift, value, items[0])
    if isinstance(value, Listing):
        return _of_listing(lift, value, items)
    if isinstance(value, Match):
        return _of_match(lift, value, items)
    if is_frame(value) and isinstance(items[0], Match):
        return replace(items[0], table=value)
    if isinstance(value, TableRow) and is_nested(value.table):
        return nested_entry(lift, value, items[0])
    if isinstance(value, TableRow):
        return column_of_row(lift, value, items[0].value)
    if isinstance(value, Method):
        return _of_indexer(lift, value, items, is_tuple)
    if isinstance(value, Sum):
        raise Refused(f"{value.name!r} is read at one step and written at another.", "FO106")
    if isinstance(value, Host):
        raise WrongRank("A number is indexed.")
    if not isinstance(value, Known):
        raise Refused("Something is indexed that is no array, list or table.")
    known = _known(lift, value, items, is_tuple)
    if known is not None:
        return known
    if isinstance(items[0], Choice):
        return read_at(lift, value, items[0])
    chosen = chosen_from(lift, value, items[0]) if len(items) == 1 else None
    if chosen is not None:
        return chosen
    if is_nested(value):
        return TableRow(value, (items[0],), False)
    if isinstance(value.value, Mapping) or is_series(value):
        keys = items[0].values if isinstance(items[0], Items) else items
        return lookup(lift, value, [_index_item(lift, key) if isinstance(key, Listing) else key for key in keys])
    if is_frame(value):
        raise Refused("A DataFrame is indexed by a tensor.", "FO401")
    return index(lift, operand(lift, value), [_index_item(lift, item) for item in items])


def _index_item(lift: Lifting, item: Any) -> Any:
    if isinstance(item, Listing):
        return listing_to_tensor(lift, item)
    if isinstance(item, Items) and len(item.values) == 1 and isinstance(item.values[0], Tensor):
        only = item.values[0]
        if item.is_list and only.position is not None and not only.rank:
            after = replace(only, position=(only.position[0], only.position[1] + 1))
            return slice(only, after)  # `a[:, [i]]` keeps the dimension, as `a[:, i : i + 1]` does.
        return only  # `a[np.where(mask)]`.
    if isinstance(item, Items) or (isinstance(item, Known) and isinstance(item.value, (list, np.ndarray))):
        raise Refused("An array is indexed by a list.", "FO108")
    return item


def _known(lift: Lifting, value: Known, items: list[Any], is_tuple: bool) -> Known | None:
    """A constant indexed by constants; None: these are none."""
    known = [_known_item(lift, item) for item in items]
    if None in known:
        return None
    keys, nodes = zip(*known, strict=True)  # type: ignore[arg-type]
    try:
        found = value.value[keys if is_tuple else keys[0]]
    except Exception as error:
        raise Refused(f"A constant is read at {keys}, which fails: {error}") from error
    return Known(found, lift.graph.index(value.node, nodes))


def _known_item(lift: Lifting, item: Any) -> tuple[Any, Any] | None:
    """The value of an index, and how the source has it; None: it is not known now."""
    if isinstance(item, slice):
        bounds = [_known_item(lift, bound) for bound in (item.start, item.stop, item.step)]
        if None in bounds:
            return None
        values, nodes = zip(*bounds, strict=True)  # type: ignore[arg-type]
        return slice(*values), nodes
    if item is None or item is Ellipsis:
        return item, None if item is None else "..."
    item = as_constant(lift, item)
    return (item.value, item.node) if isinstance(item, Known) else None


def _of_items(lift: Lifting, value: Items, item: Any) -> Any:
    if isinstance(item, Tensor):
        return index(lift, tensor(lift, value), [item])
    known = _known_item(lift, item)
    if known is None:
        raise Refused("A list is read at a place that is not known.")
    try:
        found = value.values[known[0]]
    except IndexError as error:
        raise WrongRank(f"Place {known[0]} of {len(value.values)}.") from error
    return Items(found, value.is_list) if isinstance(item, slice) else found


def _of_listing(lift: Lifting, value: Listing, items: list[Any]) -> Any:
    item, rest = items[0], items[1:]
    if len(value.axes) != 1:
        raise Refused("A list that nested loops filled is indexed.")
    (axis,) = value.axes
    if isinstance(item, Tensor) and item.position and item.position[1] == 0 and value.keep is None:
        loop = item.position[0]
        if (
            loop.size is axis.size
            and loop.start is axis.start is None
            and loop not in getattr(value.element, "dims", ())
        ):
            picked = relabelled_value(value.element, {axis: loop})
            return pick(lift, picked, rest, True) if rest else picked
    if value.keep is not None:
        raise Refused("An element of a selection is read; which one depends on the data.", "FO108")
    if isinstance(value.element, Listing):  # A list of lists: the element of each.
        row = value.element
        if row.keep is not None or not isinstance(item, (Known, Host)):
            raise Refused("A list of lists is read at a place that is not known.", "FO108")
        picked = _of_listing(lift, Listing(row.element, value.axes), [item])
        return pick(lift, Listing(picked, row.axes), rest, True) if rest else Listing(picked, row.axes)
    stacked = listing_to_tensor(lift, value)
    return index(lift, stacked, [_index_item(lift, part) for part in items])


def _of_indexer(lift: Lifting, method: Method, items: list[Any], is_tuple: bool) -> Any:
    """`table.loc[...]`, `.iloc[...]`, `.at[...]`."""
    table, name = method.of, method.name
    if isinstance(table, Match) and name in ("iloc", "values", "iat") and table.column is not None:
        return _of_match(lift, table, items)
    if isinstance(table, Match) and name == "iloc" and isinstance(items[0], Known) and items[0].value == 0:
        return replace(table, is_row=True)
    if is_frame(table) and name == "loc" and isinstance(items[0], Match):
        match = replace(items[0], table=table)
        return _of_match(lift, match, items[1:]) if len(items) > 1 else match
    if not is_table(table) or name not in ("loc", "iloc", "at", "iat"):
        raise Refused(f"Something is indexed that cannot be: .{name}")
    by_position = name in ("iloc", "iat")
    indexer = Known(getattr(table.value, name), lift.graph.make("attribute", table.node, name))
    known = _known(lift, indexer, items, is_tuple)
    if known is not None:
        return known
    if isinstance(items[0], Choice) and name in ("loc", "at"):
        found = read_at(lift, table, items[0])
        return column_of_row(lift, found, items[1].value) if len(items) > 1 and isinstance(found, TableRow) else found
    items = [listing_to_tensor(lift, item) if isinstance(item, Listing) else item for item in items]
    keys = items[0].values if isinstance(items[0], Items) else (items[0],)
    if is_frame(table):
        if is_tuple and len(items) == 2 and isinstance(items[1], Tensor):
            return _cell(lift, table, items, by_position)
        if is_tuple and len(items) == 2:
            return column_of_row(lift, TableRow(table, keys, by_position), items[1].value)
        return TableRow(table, tuple(items) if is_tuple else keys, by_position)
    return lookup(lift, table, list(items if is_tuple else keys), by_position=by_position)


def _cell(lift: Lifting, frame: Known, items: list[Any], by_position: bool) -> Tensor:
    """`frame.iloc[i, j]` with both from the data: the frame is a matrix."""
    counted = all(list(labels) == list(range(len(labels))) for labels in (frame.value.index, frame.value.columns))
    if not (by_position or counted):
        raise Refused("A row and a column of a DataFrame are picked by labels from the data.", "FO401")
    lift.changes.add("FO401")
    matrix = operand(lift, Known(frame.value.to_numpy(), lift.graph.method(frame.node, "to_numpy")))
    return index(lift, matrix, items)


def _of_match(lift: Lifting, match: Match, items: list[Any]) -> Any:
    """A column of the rows that match, or the first entry of such a column."""
    at = items[0].value if isinstance(items[0], Known) else None
    if match.column is not None:
        if at == 0:
            return entry(lift, match)
        raise Refused("Other than the first of the rows that match is read.", "FO401")
    if match.table is None or at not in match.table.value.columns:
        raise Refused("The rows of a table that match are used as a table of their own.", "FO401")
    node = lift.graph.index(match.table.node, (lift.graph.const(at),))
    chosen = replace(match, column=Known(match.table.value[at], node))
    return entry(lift, chosen) if match.is_row else chosen


def column_of_row(lift: Lifting, row: TableRow, column: Any) -> Tensor:
    """`table.loc[key][column]`."""
    graph, table = lift.graph, row.table
    if isinstance(column, (int, np.integer)) and column not in table.value.columns:
        column = table.value.columns[column]
    if column not in table.value.columns:
        raise Refused(f"A table has no column {column!r}.", "FO401")
    node = graph.index(table.node, (graph.const(column),))
    series = Known(table.value[column], node)
    return lookup(lift, series, list(row.keys), by_position=row.by_position, frame=table)


def contains(lift: Lifting, item: Any, group: Any, negate: bool) -> Any:
    """`item in group`."""
    if isinstance(item, Known) and isinstance(group, Known):
        symbol = "not in" if negate else "in"
        return Known((item.value in group.value) != negate, lift.graph.binary(symbol, item.node, group.node))
    if isinstance(group, Known) and isinstance(item, Tensor):
        content = list(group.value)
        if not content or not all(isinstance(entry, (int, float, np.number)) for entry in content):
            raise Refused("Membership in a group that holds other than numbers.")
        lift.learn("keys", item, tuple(content), True)
        check_keys(lift, item, np.asarray(content))
        group = operand(lift, Known(content, lift.graph.call("list", group.node)))
    if isinstance(group, Bag) and not group.others:
        group = group.entries
    if not isinstance(group, (Listing, Tensor)) or not isinstance(item, Tensor):
        raise Refused("Membership in something that is no list of numbers.")
    entries = tensor(lift, group)
    if entries.rank != 1:
        raise Refused("Membership in a list of arrays.")
    equal = all_of(lift, binary(lift, "==", item, replace(entries, inner=(), valid=None)), entries.valid)
    found = reduce(lift, "any", equal, entries.inner)  # type: ignore[arg-type]
    return not_(lift, found) if negate else found
