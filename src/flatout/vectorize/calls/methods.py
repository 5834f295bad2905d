"""Methods of lifted values: tensors (NumPy's and torch's spelling), lists, and tables; and calls of constants."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flatout.pysource.library_functions import draws, library_of
from flatout.vectorize.arrays.algebra import as_constant, binary, cast, detached, on_host
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
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.arrays.shaping import shape, tensor
from flatout.vectorize.lookups import batch_frames as frames
from flatout.vectorize.lookups.lookups import entry, is_frame, is_series, is_table, lookup, read_at
from flatout.vectorize.loops.loop_totals import join

from . import operations
from .mapped_calls import mapped_method
from .reader import Reader
from .value_parts import attribute, pick

# A file is read once, when the rewrite is made, and not at every call.
_FILE_READERS = ("read_csv", "read_parquet", "read_json", "read_excel", "load", "loadtxt", "genfromtxt", "read_feather")
_PURE = ("numpy", "pandas", "math", "keras", "tensorflow", "torch", "jax", "itertools", "pathlib", "builtins")
_OF_PATHS = ("posixpath", "ntpath", "genericpath")
_EFFECTS = ("open", "print", "input", "exec", "eval", "next", "setattr", "delattr", "Variable")
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
        return operations.array_function(run.lift, f"torch.{name}", [of, *args], kwargs)
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
    if name in ("size", "get_shape"):
        return pick(lift, shape(lift, of), args, False) if args else shape(lift, of)
    if name == "detach":
        return detached(lift, of)
    if name in _NEW:
        return operations.apply(lift, _NEW[name], args, {})
    if name == "unique":
        return run.handlers["torch.unique"](run, [of, *args], kwargs)
    if name == "index" and of.is_host and of.rank == 1 and len(args) == 1 and not kwargs and of.valid is None:
        same = binary(lift, "==", of, args[0])
        return replace(reduce(lift, "argmax", cast(lift, same, "int32"), same.inner), is_host=True, kind="int")
    if name == "t":
        return attribute(lift, of, "T")
    found = operations.array_function(lift, f"{'numpy' if of.is_host else 'torch'}.{name}", [of, *args], kwargs)
    return mapped_method(lift, of, name, args, kwargs) if found is None else found


def _of_known_value(run: Reader, of: Known, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if is_table(of) and name == "get" and len(args) == 2 and isinstance(args[0], Choice) and isinstance(args[1], Known):
        return read_at(run.lift, of, args[0], args[1])
    if is_table(of) and name == "get" and args and isinstance(args[0], (Tensor, Items)):
        keys = list(args[0].values) if isinstance(args[0], Items) else [args[0]]
        default = args[1] if len(args) > 1 else kwargs.get("default")
        if default is None or (isinstance(default, Known) and default.value is None):
            raise Refused("A table is read with get() and no default.", "FO401")
        return lookup(run.lift, of, keys, default)
    if is_series(of) and name == "reindex" and len(args) == 1 and isinstance(args[0], (Tensor, Listing)) and not kwargs:
        return lookup(run.lift, of, [on_host(run.lift, tensor(run.lift, args[0]))])
    is_rows = is_frame(of) and name in ("iterrows", "itertuples") and len(of.value) <= _MOST_ROWS
    is_dict = isinstance(of.value, Mapping) and name in ("keys", "values")
    if (is_rows or is_dict or (is_table(of) and name == "items")) and not args and not kwargs:
        graph = run.lift.graph
        return Known(list(getattr(of.value, name)()), graph.call("list", graph.method(of.node, name)))
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


def constant(run: Reader, function: Known, path: str | None, args: list[Any], kwargs: dict[str, Any]) -> Known:
    """A call whose arguments are all constants, made now; the rewritten source makes it again."""
    name = (path or "").rpartition(".")[2]
    root = (path or "").partition(".")[0]
    if root == "collections":
        raise Refused(f"A {name} is filled or read in a way that has no array form.", "FO106")
    if root not in (*_PURE, *_OF_PATHS) or name in _EFFECTS:
        raise Refused(f"A call to {path or 'an unknown function'}, which may do more than compute.", "FO206")
    graph = run.lift.graph
    given = [as_constant(run.lift, item) for item in args]
    words = {key: as_constant(run.lift, item) for key, item in kwargs.items()}
    try:
        value = function.value(*(item.value for item in given), **{key: item.value for key, item in words.items()})
    except Exception as error:
        raise Refused(f"{path} fails: {error}") from error
    if value is None:  # Such as torch.manual_seed().
        raise Refused(f"A call is made for its effect: {path}().", "FO303")
    nodes = tuple(item.node for item in given)
    node = graph.make("calling", function.node, nodes, tuple((key, item.node) for key, item in words.items()))
    if name in _FILE_READERS:
        run.lift.changes.add("FO301")
        run.lift.note(f"{name}() is called once, when the rewrite is made, and not at every call.")
        return run.made_once(name, value, node)
    return Known(value, node)
