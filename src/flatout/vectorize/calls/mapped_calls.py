"""Functions without an array form here, called for every step of a loop: `ops.vectorized_map` of the call."""

from __future__ import annotations

from typing import Any

import numpy as np

from flatout.pysource.library_functions import library_of
from flatout.vectorize.arrays.algebra import front
from flatout.vectorize.arrays.expression_graph import Node
from flatout.vectorize.arrays.lifted_values import Axis, Host, Items, Refused, Static, Tensor, WrongRank
from flatout.vectorize.arrays.lifting import Lifting

_LIBRARIES = ("keras", "tensorflow", "torch", "jax")
# They take matrices, or stacks of them: no map is needed.
_OF_MATRICES = (
    "det", "inv", "inverse", "cholesky", "solve", "slogdet", "matrix_determinant", "logdet", "eigvalsh", "pinv",
    "lstsq", "matrix_inverse", "self_adjoint_eigvals", "eigh", "expm",
)  # fmt: skip
# Sizes of the arrays, and the type of whole numbers, that a function is tried on to learn the rank of its result.
_TRIED = tuple((size, whole) for whole in ("int32", "int64") for size in (3, 4, 6, 2))


def mapped_call(run: Any, function: Static, path: str, args: list[Any], kwargs: dict[str, Any]) -> Tensor:
    """A library's function as the user calls it: as it is outside every loop, mapped over the steps inside one."""
    lift: Lifting = run.lift
    args = [_constant(lift, value) for value in args]
    kwargs = {key: _constant(lift, value) for key, value in kwargs.items()}
    values = [*args, *kwargs.values()]
    tensors = [value for value in values if isinstance(value, Tensor)]
    fits = all(value.valid is None and not value.is_loose and value.kind != "number" for value in tensors)
    known = all(isinstance(value, (Tensor, Static, Host)) for value in values)
    if library_of(path) not in _LIBRARIES or not tensors or not fits or not known:
        raise Refused(f"{path} has no array form here.")
    rank, kind = _result(function.value, path, args, kwargs)
    axes = tuple(sorted({axis for value in tensors for axis in value.axes}, key=lambda axis: axis.serial))
    given = {id(value): front(lift, value).node for value in tensors}
    stacked = path.rpartition(".")[2] in _OF_MATRICES and all(v.rank == 2 and set(v.axes) == set(axes) for v in tensors)
    node = _mapped(lift, function.node, args, kwargs, given, () if stacked else axes)
    inner = tuple(Axis("d", lift.graph.size(node, len(axes) + place)) for place in range(rank))
    return Tensor(node, (*axes, *inner), inner, kind)


def _constant(lift: Lifting, value: Any) -> Any:
    """A list of constants as the constant that it is."""
    if not isinstance(value, Items):
        return value
    parts = [_constant(lift, part) for part in value.values]
    if not all(isinstance(part, Static) for part in parts):
        return value
    content = [part.value for part in parts]
    node = lift.graph.sequence(tuple(part.node for part in parts), value.is_list)
    return Static(content if value.is_list else tuple(content), node)


def _mapped(
    lift: Lifting,
    function: Node,
    args: list[Any],
    kwargs: dict[str, Any],
    given: dict[int, Node],
    axes: tuple[Axis, ...],
) -> Node:
    """The call, mapped over its first axis, and inside of that over the others."""
    graph = lift.graph

    def nodes(values: Any) -> tuple[Node, ...]:
        return tuple(given.get(id(value), value.node) for value in values)

    if not axes:
        return graph.make("calling", function, nodes(args), tuple(zip(kwargs, nodes(kwargs.values()), strict=True)))
    first, *rest = axes
    rows = {
        id(value): value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and first in value.axes
    }
    if len(rows) == len(args) == 1 and not rest and not kwargs:
        return graph.call("ops.vectorized_map", function, given[next(iter(rows))])
    part = graph.name(lift.fresh("part"))
    if len(rows) == 1:
        inside = {**given, **dict.fromkeys(rows, part)}
        elements = given[next(iter(rows))]
    else:
        places = {one: graph.index(part, (graph.const(place),)) for place, one in enumerate(rows)}
        inside = {**given, **places}
        elements = graph.sequence(tuple(given[one] for one in rows))
    body = _mapped(lift, function, args, kwargs, inside, tuple(rest))
    return graph.call("ops.vectorized_map", graph.make("lambda", part, body), elements)


def _result(function: Any, path: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[int, str]:
    """The rank and the kind of what a function returns for one step, by trial."""
    for attempt in (None, *_TRIED):
        try:
            made = _symbolic(function, args, kwargs) if attempt is None else _tried(function, args, kwargs, *attempt)
            dtype = str(made.dtype)
            return len(made.shape), "float" if "float" in dtype else "bool" if "bool" in dtype else "int"
        except Exception:
            continue
    raise WrongRank(f"{path} does not take arrays of these ranks, or has no array form here.")


def _symbolic(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    import keras

    def stand_in(value: Any) -> Any:
        if isinstance(value, Tensor):
            return keras.KerasTensor((None,) * value.rank, dtype=_dtype(value))
        return value.value

    return function(*map(stand_in, args), **{key: stand_in(value) for key, value in kwargs.items()})


def _tried(function: Any, args: list[Any], kwargs: dict[str, Any], size: int, whole: str) -> Any:
    from flatout.vectorize.verify.gradients import on_device, outside_tracing

    def stand_in(value: Any) -> Any:
        if isinstance(value, Host):
            return size
        if isinstance(value, Static):
            return value.value
        drawn = np.random.default_rng(0).uniform(0.5, 1.0, (size,) * value.rank)
        dtype = whole if value.kind == "int" else _dtype(value)
        array = (np.ones_like(drawn) if value.kind == "int" else drawn).astype(dtype)
        return on_device({"x": array})["x"]

    with outside_tracing():
        return function(*map(stand_in, args), **{key: stand_in(value) for key, value in kwargs.items()})


def _dtype(value: Tensor) -> str:
    return {"int": "int32", "bool": "bool"}.get(value.kind, "float32")
