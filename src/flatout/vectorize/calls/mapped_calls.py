"""Functions that no table knows: applied as they are if they work element by element, else by `ops.vectorized_map`.

What a function gives, and whether it does so for every element by itself, is found by trying it on a few numbers. A
wrong guess costs the rewrite, not its soundness: it is verified like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from flatout.pysource.library_functions import is_random, library_of
from flatout.vectorize.arrays.algebra import as_constant, elementwise, front, guarded
from flatout.vectorize.arrays.expression_graph import Node
from flatout.vectorize.arrays.lifted_values import Axis, Host, Known, Refused, Tensor, WrongRank
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import reduce

_LIBRARIES = ("keras", "tensorflow", "torch", "jax")
# They take matrices, or stacks of them: no map is needed.
_OF_MATRICES = (
    "det", "inv", "inverse", "cholesky", "solve", "slogdet", "matrix_determinant", "logdet", "eigvalsh", "pinv",
    "lstsq", "matrix_inverse", "self_adjoint_eigvals", "eigh", "expm",
)  # fmt: skip
# Sizes of the arrays, and the type of whole numbers, that a function is tried on to learn the rank of its result.
_TRIED = tuple((size, whole) for whole in ("int32", "int64") for size in (3, 4, 6, 2))


def mapped_call(lift: Lifting, function: Known, path: str, args: list[Any], kwargs: dict[str, Any]) -> Tensor:
    """A library's function as the user calls it: as it is outside every loop, mapped over the steps inside one."""
    if library_of(path) not in _LIBRARIES:
        raise Refused(f"{path} has no array form here.")

    def node(nodes: tuple[Node, ...], words: tuple[tuple[str, Node], ...]) -> Node:
        return lift.graph.make("calling", function.node, nodes, words)

    how = _reduction(function.value, kwargs)
    if how is not None:
        each = {**kwargs, "reduction": Known("none", lift.graph.const("none"))}
        found = _of_each_element(lift, function.value, node, args, each)
        if found is not None:
            return reduce(lift, how, found, found.inner)
    return _applied(lift, function.value, node, path, args, kwargs)


def _reduction(function: Any, kwargs: dict[str, Any]) -> str | None:
    """How a loss of torch's reduces what it gives for each element; None: it is none, or does not."""
    try:
        parameter = inspect.signature(function).parameters["reduction"]
    except (KeyError, TypeError, ValueError):
        return None
    given = kwargs.get("reduction")
    how = parameter.default if given is None else given.value if isinstance(given, Known) else None
    return how if how in ("mean", "sum") else None


def mapped_method(lift: Lifting, of: Tensor, name: str, args: list[Any], kwargs: dict[str, Any]) -> Tensor:
    """A method of an array that no table knows, by the same rule."""
    if of.is_host or name.endswith("_") or is_random(f"torch.{name}"):
        raise Refused(f"A call of .{name}(), which has no array form here.")

    def called(x: Any, *more: Any, **words: Any) -> Any:
        return getattr(x, name)(*more, **words)

    def node(nodes: tuple[Node, ...], words: tuple[tuple[str, Node], ...]) -> Node:
        return lift.graph.make("method", nodes[0], name, nodes[1:], words)

    return _applied(lift, called, node, f".{name}()", [of, *args], kwargs)


def _applied(
    lift: Lifting, function: Any, node: Callable[..., Node], path: str, args: list[Any], kwargs: dict[str, Any]
) -> Tensor:
    args = [as_constant(lift, value) for value in args]
    kwargs = {key: as_constant(lift, value) for key, value in kwargs.items()}
    values = [*args, *kwargs.values()]
    tensors = [value for value in values if isinstance(value, Tensor)]
    known = all(isinstance(value, (Tensor, Known, Host)) for value in values)
    if not tensors or not known or any(value.kind == "number" for value in tensors):
        raise Refused(f"{path} has no array form here.")
    found = _of_each_element(lift, function, node, args, kwargs)
    if found is not None:
        return found
    if any(value.valid is not None or value.is_loose for value in tensors):
        raise Refused(f"{path} of a selection of elements has no masked form here.")
    rank, kind = _result(function, path, args, kwargs)
    axes = tuple(sorted({axis for value in tensors for axis in value.axes}, key=lambda axis: axis.serial))
    fronted = {id(value): front(lift, value).node for value in tensors}
    stacked = path.rpartition(".")[2] in _OF_MATRICES and all(v.rank == 2 and set(v.axes) == set(axes) for v in tensors)
    made = _mapped(lift, node, args, kwargs, fronted, () if stacked else axes)
    inner = tuple(Axis("d", lift.graph.size(made, len(axes) + place)) for place in range(rank))
    return Tensor(made, (*axes, *inner), inner, kind)


def _of_each_element(
    lift: Lifting, function: Any, node: Callable[..., Node], args: list[Any], kwargs: dict[str, Any]
) -> Tensor | None:
    """What a function gives that sees every element by itself; None: it sees several, or is not known."""
    kind = _elementwise_kind(function, args, kwargs)
    if kind is None:
        return None
    words = tuple((key, value.node) for key, value in kwargs.items())
    given = [guarded(lift, value) if isinstance(value, Tensor) else value for value in args]
    return elementwise(lift, lambda *nodes: node(nodes, words), given, kind)


def _mapped(
    lift: Lifting,
    node: Callable[..., Node],
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
        return node(nodes(args), tuple(zip(kwargs, nodes(kwargs.values()), strict=True)))
    first, *rest = axes
    rows = {
        id(value): value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and first in value.axes
    }
    part = graph.name(lift.fresh("part"))
    if len(rows) == 1:
        inside = {**given, **dict.fromkeys(rows, part)}
        elements = given[next(iter(rows))]
    else:
        places = {one: graph.index(part, (graph.const(place),)) for place, one in enumerate(rows)}
        inside = {**given, **places}
        elements = graph.sequence(tuple(given[one] for one in rows))
    body = _mapped(lift, node, args, kwargs, inside, tuple(rest))
    is_itself = body.kind == "calling" and body.parts[1:] == ((part,), ())
    return graph.call("ops.vectorized_map", body.parts[0] if is_itself else graph.make("lambda", part, body), elements)


def _result(function: Any, path: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[int, str]:
    """The rank and the kind of what a function returns for one step, by trial."""
    for attempt in _TRIED:
        try:
            made = _tried(function, args, kwargs, *attempt)
            return len(made.shape), _kind(made)
        except Exception:
            continue
    raise WrongRank(f"{path} does not take arrays of these ranks, or has no array form here.")


def _elementwise_kind(function: Any, args: list[Any], kwargs: dict[str, Any]) -> str | None:
    """The kind of what it gives."""
    if any(isinstance(value, (Tensor, Host)) for value in kwargs.values()):
        return None
    if not all(isinstance(value, Tensor) or isinstance(getattr(value, "value", None), (int, float)) for value in args):
        return None
    looks: tuple[Callable[[Any], Any], ...] = (
        lambda x: x, lambda x: x[1], lambda x: x[:, 1:], lambda x: x[::-1].copy(), lambda x: x[:, ::-1].copy(),
    )  # fmt: skip
    try:
        whole, *parts = (_tried(function, args, kwargs, 3, "int32", look) for look in looks)
        found = np.asarray(whole)
        same = found.shape == (3, 3) and all(
            np.array_equal(look(found), np.asarray(part), equal_nan=True)
            for look, part in zip(looks[1:], parts, strict=True)
        )
    except Exception:
        return None
    return _kind(whole) if same else None


def _kind(made: Any) -> str:
    dtype = str(made.dtype)
    return "float" if "float" in dtype else "bool" if "bool" in dtype else "int"


def _tried(
    function: Any,
    args: list[Any],
    kwargs: dict[str, Any],
    size: int,
    whole: str,
    look: Callable[[Any], Any] | None = None,
) -> Any:
    """What a function gives for drawn numbers: arrays of the ranks that it is given, or parts of square ones."""
    from flatout.vectorize.verify.gradients import on_device, outside_tracing

    def stand_in(value: Any) -> Any:
        if isinstance(value, Host):
            return size
        if isinstance(value, Known):
            return value.value
        drawn = np.random.default_rng(0).uniform(0.5, 1.0, (size,) * (value.rank if look is None else 2))
        dtype = {"int": whole, "bool": "bool"}.get(value.kind, "float32")
        array = (np.ones_like(drawn) if value.kind == "int" else drawn).astype(dtype)
        return on_device({"x": array if look is None else look(array)})["x"]

    with outside_tracing():
        return function(*map(stand_in, args), **{key: stand_in(value) for key, value in kwargs.items()})
