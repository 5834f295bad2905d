"""Loops as functions: foldl, scan, fori_loop, while_loop, starmap. What they carry must be a sum, maximum or total."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from flatout.vectorize.arrays.indexing import listing_to_tensor
from flatout.vectorize.arrays.lifted_values import (
    Host,
    Items,
    Known,
    Listing,
    Local,
    Range,
    Refused,
    Several,
    Stream,
    Sum,
    Tensor,
)
from flatout.vectorize.arrays.lifting import Masked
from flatout.vectorize.arrays.shaping import tensor
from flatout.vectorize.loops.iterated_axes import stream
from flatout.vectorize.loops.loop_totals import finished
from flatout.vectorize.loops.running_totals import Running, advanced

from .bindings import unpacked
from .scopes import Scope

_CARRIED = "what the loop carries"


def _words(names: tuple[str, ...], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return {name: value for name, value in given.items() if not (isinstance(value, Known) and value.value is None)}


def _rows(run: Any, value: Any) -> Stream:
    """The rows of an array, or of several side by side."""
    flow = stream(run.lift, Several("zip", value.values) if isinstance(value, Items) else value)
    if isinstance(flow, Items):
        raise Refused("A loop runs over a list of constants.")
    return flow


def _carried(value: Any, name: str = _CARRIED) -> Any:
    if isinstance(value, Items):
        return Items(tuple(_carried(one, f"{name} ({k})") for k, one in enumerate(value.values)), value.is_list)
    return Sum(name)


def _behind(run: Any, before: Any, after: Any, flow: Stream, name: str = _CARRIED) -> Any:
    """What is carried, behind the loop."""
    if isinstance(before, Items):
        if not isinstance(after, Items) or len(after.values) != len(before.values):
            raise Refused("A loop gives something else on than it was given.", "FO106")
        pairs = zip(before.values, after.values, strict=True)
        return Items(tuple(_behind(run, a, b, flow, f"{name} ({k})") for k, (a, b) in enumerate(pairs)))
    if not isinstance(after, Sum) or after.name != name or after.how == "list":
        raise Refused("A loop carries on what is no sum, product, maximum or minimum: a recurrence.", "FO106")
    return finished(run, before, after, name, flow)


def _fold(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`tf.foldl(f, rows, initializer)`; the order does not matter to a sum or a maximum."""
    words = _words(("fn", "elems", "initializer"), args, kwargs)
    flow = _rows(run, words["elems"])
    run.lift.changes.add("FO105")
    begin = words.get("initializer")
    after = run.each_step(flow, lambda: run.call(words["fn"], [_carried(begin), flow.element]))
    if begin is None:
        is_own = isinstance(after, Sum) and len(after.terms) == 1 and after.terms[0] is flow.element
        begin = Known(None, run.lift.graph.const(None))
        if not is_own:
            raise Refused("foldl() begins with the first row, which is not what its function makes of a row.", "FO106")
    return _behind(run, begin, after, flow)


def _scan(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`ops.scan(f, first, rows)`: what is carried, and what was given for every row."""
    words = _words(("f", "init", "xs"), args, kwargs)
    if set(words) - {"f", "init", "xs"} or "xs" not in words:
        raise Refused("scan() with further arguments, or without rows.")
    flow = _rows(run, words["xs"])
    run.lift.changes.add("FO105")
    after = run.each_step(flow, lambda: run.call(words["f"], [_carried(words["init"]), flow.element]))
    if not isinstance(after, Items) or len(after.values) != 2:
        raise Refused("scan() of a function that does not give two values.")
    carry, each = after.values
    last = _behind(run, words["init"], carry, flow)
    if isinstance(each, Known) and each.value is None:
        return Items((last, each))
    return Items((last, _every(run, each, flow)))


def _every(run: Any, each: Any, flow: Stream) -> Any:
    if isinstance(each, Items):
        return Items(tuple(_every(run, one, flow) for one in each.values))
    if isinstance(each, Sum):
        raise Refused("A loop gives what it carries at every step: a recurrence is not a map.", "FO106")
    return listing_to_tensor(run.lift, Listing(tensor(run.lift, each), flow.axes, flow.keep))


def _running(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`tf.scan(f, rows)`: the running total, where f adds or multiplies."""
    words = _words(("fn", "elems", "initializer"), args, kwargs)
    if set(words) - {"fn", "elems", "initializer"}:
        raise Refused("scan() with further arguments.")
    flow = _rows(run, words["elems"])
    run.lift.changes.add("FO105")
    after = run.each_step(flow, lambda: run.call(words["fn"], [_carried(None), flow.element]))
    begin = words.get("initializer")
    is_plain = isinstance(after, Sum) and after.name == _CARRIED and after.how in ("sum", "prod")
    if not is_plain or len(after.terms) != 1 or (begin is None and after.terms[0] is not flow.element):
        raise Refused("scan() by other than a sum or product: a recurrence is not a map.", "FO106")
    before = Known(None, run.lift.graph.const(None)) if begin is None else begin
    one = Running(_CARRIED, after.how, ast.Constant(None))
    each, _ = advanced(run.lift, one, before, after.terms[0], flow)
    return listing_to_tensor(run.lift, Listing(each, flow.axes, None))


def _fori(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    words = _words(("lower", "upper", "body_fun", "init_val"), args, kwargs)
    return _counting(run, Range(words["lower"], words["upper"]), words["init_val"], lambda at, held: run.call(
        words["body_fun"], [at, held]
    ))  # fmt: skip


def _counting(run: Any, steps: Range, begin: Any, body: Callable[[Any, Any], Any]) -> Any:
    flow = stream(run.lift, steps)
    if isinstance(flow, Items) or any(axis.size is not None and axis.size.kind == "pending" for axis in flow.axes):
        raise Refused("The number of steps depends on the data.", "FO104")
    run.lift.changes.add("FO105")
    after = run.each_step(flow, lambda: body(flow.element, _carried(begin)))
    return _behind(run, begin, after, flow)


def _while(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`while_loop(lambda i, s: i < n, body, (0, s))`: a loop that counts by one."""
    words = _words(("cond", "body", "loop_vars"), args, kwargs)
    words |= {"cond": words.pop("cond_fun")} if "cond_fun" in words else {}
    words |= {"body": words.pop("body_fun")} if "body_fun" in words else {}
    words |= {"loop_vars": words.pop("init_val")} if "init_val" in words else {}
    begin, test = words["loop_vars"], words["cond"]
    if isinstance(begin, Known) and isinstance(begin.value, (tuple, list)):
        begin = Items(tuple(unpacked(run, begin, len(begin.value))))
    if not isinstance(begin, Items) or not isinstance(test, Local):
        raise Refused("A while loop that does not count: how many steps it takes depends on the data.")
    place, stop = _bound(run, test, len(begin.values))
    others = Items(tuple(value for k, value in enumerate(begin.values) if k != place))

    def body(at: Any, held: Any) -> Any:
        given = list(held.values)
        given.insert(place, at)
        made = run.call(words["body"], given)
        if not isinstance(made, Items) or len(made.values) != len(begin.values):
            raise Refused("A loop gives something else on than it was given.", "FO106")
        moved = made.values[place]
        if not isinstance(moved, Tensor) or moved.position != (at.position[0], 1):
            raise Refused("A while loop whose counter does not rise by one.")
        return Items(tuple(value for k, value in enumerate(made.values) if k != place))

    first = _number(begin.values[place])
    result = list(_counting(run, Range(first, stop), others, body).values)
    result.insert(place, stop)
    return Items(tuple(result))


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
    refused = Refused("A while loop that does not count: how many steps it takes depends on the data.")
    if not isinstance(body, ast.Compare) or len(body.ops) != 1 or not isinstance(body.ops[0], ast.Lt):
        raise refused
    if not isinstance(body.left, ast.Name) or body.left.id not in names or len(names) != count:
        raise refused
    other = body.comparators[0]
    if {part.id for part in ast.walk(other) if isinstance(part, ast.Name)} & set(names):
        raise Refused("A while loop whose bound changes from step to step.")
    return names.index(body.left.id), run.expression(other, Scope(parent=test.scope))


def _cond(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`tf.cond(test, f, g)`, `ops.cond`: both sides, and the condition decides."""
    words = _words(("pred", "true_fn", "false_fn"), args, kwargs)
    if set(words) != {"pred", "true_fn", "false_fn"}:
        raise Refused("cond() with further arguments.", "FO202")
    test = run.truth(words["pred"])
    if isinstance(test, bool):
        return run.call(words["true_fn" if test else "false_fn"], [])
    run.lift.changes.add("FO202")
    sides = []
    for function, condition in ((words["true_fn"], test), (words["false_fn"], run.inverse(test))):
        with Masked(run.lift, condition):
            sides.append(run.call(function, []))
    return run.choose(test, *sides)


def _starmap(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`itertools.starmap(f, rows)`."""
    function, value = args
    flow = stream(run.lift, value)
    if isinstance(flow, Items):
        return Items(tuple(run.call(function, list(item.values)) for item in flow.values), True)
    if not isinstance(flow.element, Items):
        raise Refused("starmap() of rows that are not written out.")
    run.lift.changes.add("FO101")
    given = list(flow.element.values)
    return Listing(run.each_step(flow, lambda: run.call(function, given)), flow.axes, flow.keep)


HANDLERS: dict[str, Callable[..., Any]] = {
    "tensorflow.foldl": _fold, "tensorflow.foldr": _fold, "keras.backend.foldl": _fold, "keras.backend.foldr": _fold,
    "keras.ops.scan": _scan, "jax.lax.scan": _scan, "tensorflow.scan": _running,
    "keras.ops.fori_loop": _fori, "jax.lax.fori_loop": _fori,
    "keras.ops.while_loop": _while, "tensorflow.while_loop": _while,
    "itertools.starmap": _starmap, "tensorflow.cond": _cond, "keras.ops.cond": _cond,
}  # fmt: skip
