"""Methods of lifted values: tensors (NumPy's and torch's spelling), lists, and tables."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flatout.pysource import spellings
from flatout.pysource.library_functions import draws, library_of
from flatout.vectorize.arrays.algebra import cast, elementwise
from flatout.vectorize.arrays.lifted_values import (
    Bag,
    Choice,
    Groups,
    Items,
    Known,
    Listing,
    Match,
    Method,
    Places,
    Record,
    Refused,
    Splice,
    Sum,
    TableRow,
    Tensor,
)
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.arrays.shaping import tensor
from flatout.vectorize.lookups import batch_frames as frames
from flatout.vectorize.lookups import choices
from flatout.vectorize.lookups.host_values import on_host
from flatout.vectorize.lookups.lookups import entry, is_frame, is_series, is_table, lookup
from flatout.vectorize.loops.loop_totals import join

from . import mask_places as places
from . import operations
from .attributes import attribute, detached
from .constants import constant
from .mapped_calls import mapped_method
from .reader import Reader
from .shapes import SHAPES, shape
from .subscripts import pick
from .torch_functions import pair

# Rows of a table that are written out, one by one.
_MOST_ROWS = 16
# They give the same numbers, elsewhere or otherwise typed.
_NOTHING = ("cpu", "cuda", "to", "contiguous", "clone", "copy", "requires_grad_", "squeeze_", "get_shape_", "double_")
_NEW = {"new_zeros": "zeros", "new_ones": "ones", "new_tensor": "convert_to_tensor"}
_READS = ("numpy", "item", "tolist", "to_numpy")
_CASTS = {"float": "float32", "double": "float64", "int": "int32", "long": "int64", "bool": "bool", "half": "float16"}


def method(run: Reader, of: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`of.name(*args, **kwargs)`."""
    if isinstance(of, Listing) and name not in ("append", "extend"):
        of = tensor(run.lift, of)
    if isinstance(of, (Record, Groups)):
        return frames.method_of(run.lift, of, name, args, kwargs)
    if isinstance(of, Places):
        if name in ("size", "numel"):
            return SHAPES["size"](run.lift, of)
        return places.function_of_places(run.lift, name, [of, *args], kwargs)
    if isinstance(of, Tensor):
        return _of_tensor(run, of, name, args, kwargs)
    if isinstance(of, Known):
        return _of_known_value(run, of, name, args, kwargs)
    if isinstance(of, Bag) and name == "intersection" and args and all(isinstance(value, Bag) for value in args):
        return Bag(of.entries, (*of.others, *(one for value in args for one in (value.entries, *value.others))))
    if isinstance(of, Match) and name in ("item", "squeeze") and of.column is not None:
        return entry(run.lift, of)
    if isinstance(of, Match) and name == "to_numpy":
        return of
    if isinstance(of, TableRow):
        raise Refused(f"A row of a table is used by .{name}().", "FO401")
    if isinstance(of, Sum) and name == "item":
        return of
    if isinstance(of, Sum) and name == "write" and len(args) == 2 and of.how is None:
        at = args[0]
        if isinstance(at, Tensor) and at.position and at.position[1] == 0:
            return join(run.lift, "entries", of, Splice(Listing(args[1], ()), (at.position[0],)))
    raise Refused(f"A call of .{name}(), which has no array form here.")


def _of_tensor(run: Reader, of: Tensor, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    lift = run.lift
    if name in _READS:
        return replace(on_host(run.lift, of), is_series=False, is_wide=name in ("item", "tolist") or of.is_wide)
    if name in _CASTS:
        return operations.apply(lift, "cast", [of, Known(_CASTS[name], lift.graph.const(_CASTS[name]))], {})
    if name == "astype":
        return operations.apply(lift, "cast", [of, *args], kwargs)
    if name in _NOTHING:
        return of
    if name == "map" and len(args) == 1 and not kwargs and is_table(args[0]) and of.is_host:
        return lookup(lift, args[0], [of])
    if name == "fillna" and len(args) == 1 and not kwargs and of.is_host:
        return frames.filled(run.lift, of, args[0])
    if name == "groupby" and len(args) == 1 and not kwargs and of.is_host:
        return frames.grouped_by(run.lift, of, args[0])
    if name in ("dim", "numel"):
        return SHAPES[name](lift, of)
    if name in ("size", "get_shape"):
        return pick(lift, shape(lift, of), args, False) if args else shape(lift, of)
    if name == "detach":
        return detached(lift, of)
    if name in _NEW:
        return operations.apply(lift, _NEW[name], args, {})
    if name == "unique":
        return run.handlers["torch.unique"](run, [of, *args], kwargs)
    if name == "index" and of.is_host and of.rank == 1 and len(args) == 1 and not kwargs and of.valid is None:
        same = elementwise(lift, "equal", (of, args[0]), "bool", "==")
        return replace(reduce(lift, "argmax", cast(lift, same, "int32"), same.inner), is_host=True, kind="int")
    if name == "t":
        return attribute(lift, of, "T")
    if places.asks_for_places(name, [of, *args], kwargs):
        return places.places_of(run.lift, f"{'numpy' if of.is_host else 'torch'}.{name}", of, kwargs)
    canonical = spellings.canonical(f"torch.{name}")
    both = None if of.is_host else pair(lift, canonical, [of, *args], spellings.keywords(kwargs))
    if both is not None:
        return both
    if operations.known(canonical):
        return operations.apply(lift, canonical, [of, *args], spellings.keywords(kwargs))
    return mapped_method(lift, of, name, args, kwargs)


def _of_known_value(run: Reader, of: Known, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if is_table(of) and name == "get" and len(args) == 2 and isinstance(args[0], Choice) and isinstance(args[1], Known):
        return choices.read_at(run.lift, of, args[0], args[1])
    if is_table(of) and name == "get" and args and isinstance(args[0], (Tensor, Items)):
        keys = list(args[0].values) if isinstance(args[0], Items) else [args[0]]
        default = args[1] if len(args) > 1 else kwargs.get("default")
        if default is None or (isinstance(default, Known) and default.value is None):
            raise Refused("A table is read with get() and no default.", "FO401")
        return lookup(run.lift, of, keys, default)
    if is_series(of) and name == "reindex" and len(args) == 1 and isinstance(args[0], (Tensor, Listing)) and not kwargs:
        return lookup(run.lift, of, [on_host(run.lift, tensor(run.lift, args[0]))])
    if is_frame(of) and name in ("iterrows", "itertuples") and not args and len(of.value) <= _MOST_ROWS:
        return _rows(run.lift, of, name, kwargs)
    if isinstance(of.value, Mapping) and name in ("keys", "values") and not args:
        return _listed(run.lift, of, name)
    if is_table(of) and name == "items" and not args:
        graph, pairs = run.lift.graph, of.value.items()
        found = [(Known(key, graph.const(key)), graph.index(of.node, (graph.const(key),)), one) for key, one in pairs]
        return Items(tuple(Items((key, Known(one, node))) for key, node, one in found))
    if draws(of.value):
        raise Refused(
            f"Random numbers are drawn (.{name}()): one draw for the whole batch would change their number and order.",
            "FO304",
        )
    function = getattr(getattr(of.value, name, None), "__func__", None)
    module = getattr(function, "__module__", None) or ""
    if isinstance(function, types.FunctionType) and library_of(module) is None and not module.startswith("pandas"):
        return run.users_function(function, [of, *args], kwargs)
    if name in ("append", "extend", "update", "add", "pop", "assign", "assign_add", "write", "setdefault", "insert"):
        raise Refused(f"Something outside the function is changed: .{name}()", "FO303")
    if is_series(of) and name == "item":
        raise Refused("A Series is read by .item().", "FO401")
    if any(isinstance(value, (Tensor, Listing, Sum, Method)) for value in (*args, *kwargs.values())):
        raise Refused(f"A call of {getattr(getattr(of.value, name, None), '__qualname__', name)} on tensors.", "FO205")
    graph = run.lift.graph
    bound = Known(getattr(of.value, name), graph.make("attribute", of.node, name))
    path = f"{type(of.value).__module__}.{name}"
    return constant(run, bound, path, args, kwargs)


def _listed(lift: Lifting, of: Known, name: str) -> Known:
    """`table.keys()`, `table.values()` of a dict, as a list."""
    graph = lift.graph
    return Known(list(getattr(of.value, name)()), graph.call("list", graph.method(of.node, name)))


def _rows(lift: Lifting, of: Known, name: str, kwargs: dict[str, Any]) -> Items:
    """The rows of a short table, one by one: `for key, row in table.iterrows()`."""
    graph = lift.graph
    if kwargs:
        raise Refused(f"{name}() with arguments.", "FO401")
    if name == "itertuples":
        every = graph.call("list", graph.method(of.node, "itertuples"))
        rows = enumerate(of.value.itertuples())
        return Items(tuple(Known(row, graph.index(every, (graph.const(at),))) for at, row in rows))
    pairs = []
    for at, (key, row) in enumerate(of.value.iterrows()):
        place = graph.index(graph.make("attribute", of.node, "index"), (graph.const(at),))
        found = graph.index(graph.make("attribute", of.node, "iloc"), (graph.const(at),))
        pairs.append(Items((Known(key, place), Known(row, found))))
    return Items(tuple(pairs))
