"""DataFrames that a loss makes of its batch: columns, group-by, and the parts of a partition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.algebra import all_of, binary, cast, elementwise, not_, number, on_host, relabelled, where
from flatout.vectorize.arrays.indexing import listing_to_tensor, select
from flatout.vectorize.arrays.lifted_values import Groups, Items, Known, Listing, Record, Refused, Tensor, WrongRank
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import counted, reduce
from flatout.vectorize.arrays.shaping import tensor

from .lookups import distinct, is_frame, lookup

_REDUCTIONS = ("mean", "sum", "max", "min")
_MOST_PARTS = 16


def frame_of(lift: Lifting, data: Any) -> Record:
    """`pandas.DataFrame({"name": vector, ...})`."""
    if not isinstance(data, Record):
        raise Refused("A DataFrame is made of other than vectors by name.", "FO205")
    columns = {}
    for name, value in data.columns.items():
        column = on_host(lift, tensor(lift, value))
        if column.rank != 1 or column.valid is not None:
            raise WrongRank("A column of a DataFrame that is no vector.")
        columns[name] = replace(column, is_series=True)
    lift.changes.add("FO205")
    return Record(columns)


def column_of(of: Record | Groups, name: Any) -> Any:
    """`frame["name"]`, `groups["name"]`."""
    if not isinstance(name, Known) or name.value not in of.columns:
        raise Refused("A column of a DataFrame is asked for that it has not.", "FO205")
    column = of.columns[name.value]
    return replace(of, column=column) if isinstance(of, Groups) else column


def method_of(lift: Lifting, of: Record | Groups, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A method of a DataFrame, or of its groups."""
    if isinstance(of, Record):
        if name == "groupby" and len(args) == 1 and isinstance(args[0], Known) and args[0].value in of.columns:
            return _groups(lift, of.columns[args[0].value], of.columns)
        if name == "merge" and args and is_frame(args[0]):
            return _merged(lift, of, args[0], dict(zip(("right", "how", "on"), args, strict=False)) | kwargs)
        if name in ("items", "values", "keys") and not args:
            return _listed(lift, of, name)
        raise Refused(f"A DataFrame of the batch is used by .{name}().", "FO205")
    if of.column is None and name in of.columns and not args:
        return replace(of, column=of.columns[name])
    how = args[0].value if name in ("agg", "aggregate") and args and isinstance(args[0], Known) else name
    if (how not in _REDUCTIONS and how not in ("count", "size")) or (of.column is None and how != "size"):
        raise Refused(f"Groups are reduced by .{name}().", "FO406")
    return _reduced(lift, of, how)


def _listed(lift: Lifting, of: Record, name: str) -> Items:
    """`parts.items()`, `.values()` and `.keys()` of a dict of tensors."""
    pairs = [(Known(key, lift.graph.const(key)), value) for key, value in of.columns.items()]
    if name == "items":
        return Items(tuple(Items(pair) for pair in pairs))
    return Items(tuple(pair[name == "values"] for pair in pairs), True)


def _merged(lift: Lifting, of: Record, table: Known, words: dict[str, Any]) -> Record:
    """`frame.merge(table, on="key", how="left")` with a table that has every key once: a lookup for each column."""
    how, on = words.pop("how", None), words.pop("on", None)
    words.pop("right")
    if words or not isinstance(on, Known) or not isinstance(on.value, str) or on.value not in of.columns:
        raise Refused("A merge by other than one column of both frames.", "FO402")
    if how is not None and not (isinstance(how, Known) and how.value in ("left", "inner")):
        raise Refused("A merge that may add rows.", "FO402")
    key, content = on.value, table.value
    if key not in content.columns or content[key].duplicated().any():
        raise Refused("A merge with a table that lacks the key, or has one of them more than once.", "FO402")
    others = [name for name in content.columns if name != key and content[name].dtype.kind in "fiub"]
    if set(others) & set(of.columns) or not all(isinstance(name, str) for name in content.columns):
        raise Refused("A merge of frames that share further columns.", "FO402")
    if how is None or how.value == "inner":
        lift.note("A row whose key is not in the table is left out by the original; the rewrite gives NaN for it.")
    by_key = lift.graph.method(table.node, "set_index", lift.graph.const(key))
    indexed, keys = Known(content.set_index(key), by_key), of.columns[key]
    found = {}
    for name in others:
        column = Known(indexed.value[name], lift.graph.index(by_key, (lift.graph.const(name),)))
        entries = lookup(lift, column, [replace(keys, inner=())], frame=indexed)
        found[name] = replace(entries, inner=keys.inner)
    return Record({**of.columns, **found})


def grouped_by(lift: Lifting, column: Tensor, keys: Any) -> Groups:
    """`series.groupby(keys)`."""
    by = on_host(lift, tensor(lift, keys))
    return replace(_groups(lift, by, {}), column=column)


def _groups(lift: Lifting, keys: Tensor, columns: dict[str, Any]) -> Groups:
    if keys.rank != 1 or keys.valid is not None:
        raise WrongRank("Groups by an array that is no vector.")
    lift.changes.add("FO406")
    lift.learn("whole", keys)
    return Groups(keys, columns)


def parts_of(lift: Lifting, groups: Groups) -> Listing:
    """`for key, part in frame.groupby(name)`: all entries of every column, with a mask."""
    listing = distinct(lift, groups.keys)
    lift.changes.add("FO406")

    def mine(column: Tensor) -> Tensor:
        twin = relabelled(groups.keys, {groups.keys.inner[0]: column.inner[0]})
        same = binary(lift, "==", replace(twin, inner=()), listing.element)
        return replace(column, valid=same, position=None)

    columns = groups.columns if groups.column is None else {}
    part = Record({name: mine(column) for name, column in columns.items()}) if columns else mine(groups.column)  # type: ignore[arg-type]
    return replace(listing, element=Items((listing.element, part)))


def _reduced(lift: Lifting, groups: Groups, how: str) -> Tensor:
    """One number for each group."""
    column = groups.keys if groups.column is None else groups.column
    listing = parts_of(lift, replace(groups, column=column))
    same = listing.element.values[1].valid
    if how != "size" and column.kind in ("float", "any"):  # pandas leaves out what is missing.
        there = not_(lift, elementwise(lift, "isnan", (column,), "bool"))
        same = all_of(lift, same, replace(there, inner=())) or same
    if how in ("count", "size"):
        each = counted(lift, same, column.inner)
    else:
        mine = replace(column, valid=same, position=None, is_series=False)
        each = reduce(lift, how, mine, column.inner)
    keep = listing.keep
    if how in ("mean", "max", "min"):  # Of nothing they are missing, and left out in turn.
        keep = all_of(lift, keep, reduce(lift, "any", same, [axis for axis in column.inner if axis in same.dims]))
    return replace(listing_to_tensor(lift, Listing(each, listing.axes, keep)), is_host=True)


def filled(lift: Lifting, of: Tensor, value: Any) -> Tensor:
    """`series.fillna(value)`."""
    missing = elementwise(lift, "isnan", (of,), "bool")
    return replace(where(lift, missing, tensor(lift, value), of), is_host=True)


def partition(lift: Lifting, data: Any, partitions: Any, count: Any) -> Items:
    """`tf.dynamic_partition(x, labels, k)`: k selections."""
    rows, labels = tensor(lift, data), tensor(lift, partitions)
    if not isinstance(count, Known) or count.value > _MOST_PARTS:
        raise Refused("dynamic_partition() into many parts, or a number of them from the data.", "FO108")
    if labels.rank > rows.rank or not labels.rank:
        raise WrongRank("dynamic_partition() by labels of a higher rank than the data.")
    lift.changes.add("FO108")
    labels = cast(lift, labels, "int32")
    masks = (binary(lift, "==", labels, number(lift, part)) for part in range(count.value))
    return Items(tuple(select(lift, rows, 0, mask) for mask in masks), True)
