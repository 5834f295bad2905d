"""Loops and branches that libraries offer as functions, read as the Python that they stand for."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from flatout.vectorize.arrays.indexing import listing_to_tensor
from flatout.vectorize.arrays.lifted_values import Host, Items, Known, Listing, Local, Range, Refused, Several, Tensor
from flatout.vectorize.loops.iterated_axes import stream
from flatout.vectorize.loops.loop_totals import carried, finished, opened
from flatout.vectorize.loops.running_totals import advanced

from .heap import read
from .scopes import Scope, as_local

_DOES_NOT_COUNT = "A while loop that does not count: how many steps it takes depends on the data."


def _folded(fn: Any, elems: Any, initializer: Any = None) -> Any:
    total = initializer
    for row in elems:
        total = row if total is None else fn(total, row)
    return total


def _scanned(f: Any, init: Any, xs: Any) -> Any:
    rows = []
    for row in xs:
        init, made = f(init, row)
        rows.append(made)
    return init, rows


def _counted(lower: Any, upper: Any, body_fun: Any, init_val: Any) -> Any:
    for at in range(lower, upper):
        init_val = body_fun(at, init_val)
    return init_val


def _mapped(f: Any, xs: Any) -> Any:
    return [f(row) for row in xs]


def _starmapped(function: Any, rows: Any) -> Any:
    return [function(*row) for row in rows]


def _chosen(pred: Any, true_fn: Any, false_fn: Any) -> Any:
    return true_fn() if pred else false_fn()


def _reading(function: Callable[..., Any]) -> Callable[..., Any]:
    """A handler that reads one of these functions; lists that it gives are arrays, as libraries have them."""

    def handler(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            given = inspect.signature(function).bind(*args, **kwargs).arguments
        except TypeError as error:
            raise Refused(f"A loop as a function with arguments that are not known here: {error}.") from error
        for name in {"elems", "xs"} & given.keys():  # Several arrays are read side by side.
            given[name] = Several("zip", given[name].values) if isinstance(given[name], Items) else given[name]
        changes = set(run.lift.changes)
        made = _stacked(run, _as_written(run, function, given))
        run.lift.changes = {*changes, *(run.lift.changes - {"FO101"}), "FO202" if function is _chosen else "FO105"}
        return made

    return handler


def _as_written(run: Any, function: Callable[..., Any], given: dict[str, Any]) -> Any:
    local = as_local(function, is_same_module=False)
    for node in ast.walk(local.tree):
        node.lineno = None  # type: ignore[attr-defined]  # A reason is given with the line of the loss.
    return run.function(local, [], given)


def _stacked(run: Any, made: Any) -> Any:
    """Lists as arrays; where they hold several values for each step, each of these by itself."""
    made = read(run, made)
    if isinstance(made, Items):
        return Items(tuple(_stacked(run, part) for part in made.values), made.is_list)
    if not isinstance(made, Listing):
        return made
    if isinstance(made.element, Items):
        return Items(tuple(_stacked(run, Listing(part, made.axes, made.keep)) for part in made.element.values))
    is_nothing = isinstance(made.element, Known) and made.element.value is None
    return made.element if is_nothing else listing_to_tensor(run.lift, made)


def _reduce(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return _as_written(run, _folded, dict(zip(("fn", "elems", "initializer"), args, strict=False)))


def _map(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    function, *values = args
    if len(values) == 1:
        return _as_written(run, _mapped, {"f": function, "xs": values[0]})
    return _as_written(run, _starmapped, {"function": function, "rows": Several("zip", tuple(values))})


def _starmap(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return _as_written(run, _starmapped, dict(zip(("function", "rows"), args, strict=True)))


def _map_rows(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`ops.map(f, xs)`, `tf.map_fn`, `vectorized_map`; what else they are given is the type of the result."""
    names = ("fn", "f", "function", "elems", "xs", "elements")
    args = [*args, *(value for name, value in kwargs.items() if name in names)]
    return _reading(_mapped)(run, args[:2], {})


def _running(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`tf.scan(f, rows)`: the running total, where f adds or multiplies."""
    given = inspect.signature(_folded).bind(*args, **kwargs).arguments
    flow, begin = stream(run.lift, given["elems"]), given.get("initializer", Known(None, run.lift.graph.const(None)))
    if isinstance(flow, Items):
        raise Refused("scan() of a list of constants.")
    run.lift.changes.add("FO105")
    after = run.each_step(flow, lambda: run.call(given["fn"], [carried(run.lift, begin, "total"), flow.element]))
    is_plain = getattr(after, "how", None) in ("sum", "prod") and len(after.terms) == 1
    if not is_plain or ("initializer" not in given and after.terms[0] is not flow.element):
        raise Refused("scan() by other than a sum or product: a recurrence is not a map.", "FO106")
    each, _ = advanced(run.lift, after, flow)
    return listing_to_tensor(run.lift, Listing(each, flow.axes, None))


def _while(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`while_loop(lambda i, s: i < n, body, (0, s))`: a loop that counts by one."""
    kwargs = {{"cond_fun": "cond", "body_fun": "body", "init_val": "loop_vars"}.get(k, k): v for k, v in kwargs.items()}
    words = {**dict(zip(("cond", "body", "loop_vars"), args, strict=False)), **kwargs}
    begin, test = opened(run.lift, words["loop_vars"]), words["cond"]
    if not isinstance(begin, Items) or not isinstance(test, Local):
        raise Refused(_DOES_NOT_COUNT)
    place, stop = _bound(run, test, len(begin.values))
    others = Items((*begin.values[:place], *begin.values[place + 1 :]))
    flow = stream(run.lift, Range(_number(begin.values[place]), stop))
    if isinstance(flow, Items) or any(axis.size is not None and axis.size.kind == "pending" for axis in flow.axes):
        raise Refused("The number of steps depends on the data.", "FO104")
    run.lift.changes.add("FO105")
    held = carried(run.lift, others, "what the loop carries").values
    made = run.each_step(flow, lambda: run.call(words["body"], [*held[:place], flow.element, *held[place:]]))
    if not isinstance(made, Items) or len(made.values) != len(begin.values):
        raise Refused("A loop gives something else on than it was given.", "FO106")
    moved = made.values[place]
    if not isinstance(moved, Tensor) or moved.position != (flow.element.position[0], 1):
        raise Refused("A while loop whose counter does not rise by one.")
    after = Items((*made.values[:place], *made.values[place + 1 :]))
    behind = finished(run.lift, others, after, "what the loop carries", flow)
    return Items((*behind.values[:place], stop, *behind.values[place:])) if isinstance(behind, Items) else behind


def _number(value: Any) -> Any:
    """A counter's beginning: a number, also as a tensor of one."""
    if isinstance(value, Tensor) and value.node.kind == "call" and len(value.node.parts[1]) >= 1:
        inside = value.node.parts[1][0]
        if inside.kind == "const" and inside.parts[0].lstrip("-").isdigit():
            return Known(int(inside.parts[0]), inside)
    if not isinstance(value, (Known, Host)):
        raise Refused("A while loop whose counter begins with a value of the data.")
    return value


def _bound(run: Any, test: Local, count: int) -> tuple[int, Any]:
    """Which of the loop's variables counts, and the bound that it must stay below."""
    tree = test.tree
    body = tree.body if isinstance(tree, ast.Lambda) else None
    if body is None and len(tree.body) == 1 and isinstance(tree.body[0], ast.Return):
        body = tree.body[0].value
    if isinstance(body, ast.Call) and ast.unparse(body.func).rpartition(".")[2] == "less" and len(body.args) == 2:
        body = ast.Compare(body.args[0], [ast.Lt()], [body.args[1]])
    names = [arg.arg for arg in tree.args.args]
    match body:
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Lt()], comparators=[other]) if name in names:
            if len(names) != count:
                raise Refused(_DOES_NOT_COUNT)
            if {part.id for part in ast.walk(other) if isinstance(part, ast.Name)} & set(names):
                raise Refused("A while loop whose bound changes from step to step.")
            return names.index(name), run.expression(other, Scope(parent=test.scope))
    raise Refused(_DOES_NOT_COUNT)


HANDLERS: dict[str, Callable[..., Any]] = {
    "tensorflow.foldl": _reading(_folded), "tensorflow.foldr": _reading(_folded),
    "keras.backend.foldl": _reading(_folded), "keras.backend.foldr": _reading(_folded),
    "keras.ops.scan": _reading(_scanned), "jax.lax.scan": _reading(_scanned), "tensorflow.scan": _running,
    "keras.ops.fori_loop": _reading(_counted), "jax.lax.fori_loop": _reading(_counted),
    "keras.ops.while_loop": _while, "tensorflow.while_loop": _while,
    "tensorflow.cond": _reading(_chosen), "keras.ops.cond": _reading(_chosen),
    "builtins.map": _map, "itertools.starmap": _starmap, "functools.reduce": _reduce, "_functools.reduce": _reduce,
    "keras.ops.map": _map_rows, "tensorflow.map_fn": _map_rows, "keras.ops.vectorized_map": _map_rows,
    "tensorflow.vectorized_map": _map_rows,
}  # fmt: skip
