"""What Python and libraries offer to loop by: comprehensions, `range`, `zip`, `map`, `reduce`, `scan`, `fori_loop`.

What is a loop or branch of its own is written here as the Python that it stands for, and read like the loss.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.algebra import number, opened
from flatout.vectorize.arrays.indexing import listing_to_tensor
from flatout.vectorize.arrays.lifted_values import (
    CONTENT,
    Items,
    Known,
    Listing,
    Local,
    Mutable,
    Partial,
    Plain,
    Range,
    Record,
    Refused,
    Several,
    Tensor,
)
from flatout.vectorize.calls.reader import bound
from flatout.vectorize.loops.iterated_axes import few_steps, stream
from flatout.vectorize.loops.loop_totals import MOST_UNROLLED

from .heap import Interpreting, is_blank, read
from .scopes import Scope, as_local

# Choices of a few constants are written out, up to this many.
_MOST_WRITTEN = 24
# The list or dict that a comprehension fills, as a variable of the loop that it is.
_FILLED = "<filled>"
# The keys that a dict gets, where they are a few constants.
_STEPS = "<steps>"


def comprehension(run: Interpreting, node: Any, scope: Scope) -> Any:
    """`[f(i) for i in range(n) if c(i)]`: a list that a loop fills."""
    append = ast.Attribute(ast.Name(_FILLED, ast.Load()), "append", ast.Load())
    made = run.heap.make("list", Items((), True))
    before = _filled(run, made, ast.Expr(ast.Call(append, [node.elt], [])), node, scope)
    content = made.variables[CONTENT]
    element = content.element if isinstance(content, Listing) else None
    if not isinstance(element, Mutable):
        return content
    # Of objects that are made here, one stands for all of them.
    is_plain = isinstance(node, ast.ListComp) and len(node.generators) == 1 and not node.generators[0].ifs
    if not is_plain or element in before or element.kind == "object" or not is_blank(element):
        return read(run, content)
    element.is_many = True
    return content


def _filled(run: Interpreting, made: Mutable, filling: ast.stmt, node: Any, scope: Scope) -> Any:
    """Run a comprehension as a loop that fills a list or dict; returns the state before it."""
    # The steps of a dict around this one are not its own.
    inside = replace(scope, variables={**scope.variables, _FILLED: made, _STEPS: None})
    run.heap.add(inside)
    first = node.generators[0]
    if made.kind == "dict" and len(node.generators) == 1 and not first.ifs:
        inside.variables[_STEPS] = few_steps(run.lift, iterated(run, first.iter, inside), MOST_UNROLLED)
    for one in reversed(node.generators):
        if one.ifs:
            filling = ast.If(one.ifs[0] if len(one.ifs) == 1 else ast.BoolOp(ast.And(), one.ifs), [filling], [])
        is_few = inside.variables.get(_STEPS) is not None
        filling = ast.For(one.target, ast.Name(_STEPS, ast.Load()) if is_few else one.iter, [filling], [])
    before = run.heap.snapshot()
    run.statement(ast.fix_missing_locations(ast.copy_location(filling, node)), inside)
    if any(space not in (made, inside) for space, _ in run.heap.changed(before)):
        raise Refused("A comprehension changes what it does not make.", "FO303")
    return before


def iterated(run: Interpreting, node: ast.expr, scope: Scope) -> Any:
    """What a loop runs over; a list of a few objects as these objects, a dict as its keys."""
    over = run.reference(node, scope)
    if isinstance(over, Mutable) and isinstance(over.variables.get(CONTENT), Items):
        return over.variables[CONTENT]
    over = read(run, over)
    if isinstance(over, Record):
        return Items(tuple(Known(key, run.lift.graph.const(key)) for key in over.columns))
    return over


def dictionary(run: Interpreting, node: ast.DictComp, scope: Scope) -> Mutable:
    """`{key: f(k) for k, key in enumerate(names)}`: over a few constants, or as what is set under keys of the data."""
    made = run.heap.make("dict")
    entry = ast.Subscript(ast.Name(_FILLED, ast.Load()), node.key, ast.Store())
    _filled(run, made, ast.Assign([entry], node.value), node, scope)
    return made


def _folded(fn: Any, elems: Any, initializer: Any = None) -> Any:
    total = initializer
    for row in elems:
        total = row if total is None else fn(total, row)
    return total


def _running(fn: Any, elems: Any, initializer: Any = None) -> Any:
    total, rows = initializer, []
    for row in elems:
        total = row if total is None else fn(total, row)
        rows.append(total)
    return rows


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


def _combined(iterable: Any) -> Any:
    return [(one, other) for i, one in enumerate(iterable) for j, other in enumerate(iterable) if i < j]


def _permuted(iterable: Any) -> Any:
    return [(one, other) for i, one in enumerate(iterable) for j, other in enumerate(iterable) if i != j]


def _paired(iterable: Any) -> Any:
    return zip(iterable, iterable[1:], strict=False)  # noqa: RUF007


def _divided(x: Any, y: Any) -> Any:
    return x // y, x % y


def _reading(function: Callable[..., Any], code: str = "") -> Callable[..., Any]:
    """A handler that reads one of these functions; `code`: of a library's, for which lists are arrays."""

    def handler(run: Interpreting, args: list[Any], kwargs: dict[str, Any]) -> Any:
        names = inspect.signature(function).parameters
        # What else a fold is given says how it runs, and None says nothing.
        more = {name for name, value in kwargs.items() if function is _folded or getattr(value, "value", value) is None}
        kwargs = {name: value for name, value in kwargs.items() if name in names or name not in more}
        try:
            given = inspect.signature(function).bind(*args, **kwargs).arguments
        except TypeError as error:
            raise Refused(f"A loop as a function with arguments that are not known here: {error}.") from error
        for name in {"elems", "xs"} & given.keys() if code else ():  # Several arrays are read side by side.
            given[name] = Several("zip", given[name].values) if isinstance(given[name], Items) else given[name]
        return _as_written(run, as_local(function, is_same_module=False), given, code)

    return handler


def _as_written(run: Interpreting, local: Local, given: dict[str, Any], code: str = "") -> Any:
    for node in ast.walk(local.tree):
        node.lineno = None  # type: ignore[attr-defined]  # A reason is given with the line of the loss.
    changes, made = set(run.lift.changes), run.function(local, [], given)
    if code:
        made = _stacked(run, made)
        run.lift.changes = {*changes, *(run.lift.changes - {"FO101"}), code}
    return made


def _stacked(run: Interpreting, made: Any) -> Any:
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


def _map(run: Interpreting, args: list[Any], kwargs: dict[str, Any]) -> Any:
    function, *values = args
    if len(values) == 1:
        return _reading(_mapped)(run, [function, *values], {})
    return _reading(_starmapped)(run, [function, Several("zip", tuple(values))], {})


def _map_rows(run: Interpreting, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`ops.map(f, xs)`, `tf.map_fn`, `vectorized_map`; what else they are given is the type of the result."""
    names = ("fn", "f", "function", "elems", "xs", "elements")
    args = [*args, *(value for name, value in kwargs.items() if name in names)]
    return _reading(_mapped, "FO105")(run, args[:2], {})


def _while(run: Interpreting, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`while_loop(lambda i, s: i < n, body, (0, s))`, with a variable for each that the loop has."""
    kwargs = {{"cond_fun": "cond", "body_fun": "body", "init_val": "loop_vars"}.get(k, k): v for k, v in kwargs.items()}
    given = {**dict(zip(("cond", "body", "loop_vars"), args, strict=False)), **kwargs}
    begin = opened(run.lift, given.pop("loop_vars"))
    if not isinstance(begin, Items):
        raise Refused("A while loop over something that is no tuple.")
    variables = {f"of_loop_{k}": value for k, value in enumerate(begin.values)}
    names = ", ".join(variables)
    text = f"while cond({names}):\n        {names} = body({names})\n    return {names}"
    tree: Any = ast.parse(f"def while_loop(cond, body, {names}):\n    {text}").body[0]
    return _as_written(run, Local(tree, Scope(), "while_loop"), {**given, **variables}, "FO105")


def _range(run: Interpreting, start: Any, stop: Any = None, step: Any = None) -> Range:
    return Range(number(run.lift, 0), start) if stop is None else Range(start, stop, step)


def _enumerate(run: Interpreting, iterable: Any, start: Plain = 0) -> Several:
    return Several("enumerate", (iterable, start))


def _product(run: Interpreting, *iterables: Any, repeat: Plain = 1) -> Several:
    return Several("product", iterables * repeat)


def _choices(how: str, of_two: Callable[..., Any]) -> Callable[..., Any]:
    """`itertools.combinations` and `permutations`: of two, or of more of a few constants, which are written out."""

    def function(run: Interpreting, iterable: Any, r: Any = None) -> Any:
        if isinstance(r, Known) and r.value == 2:
            return _reading(of_two)(run, [iterable], {})
        steps = few_steps(run.lift, iterable, _MOST_WRITTEN) if r is None or isinstance(r, Known) else None
        if steps is not None:
            made = getattr(itertools, how)(steps.values, *([] if r is None else [r.value]))
            chosen = tuple(Items(one) for one in itertools.islice(made, _MOST_WRITTEN + 1))
            if len(chosen) <= _MOST_WRITTEN:
                return Items(chosen)
        raise Refused(f"{how.capitalize()} of other than two.", "FO103")

    return function


def _indices(run: Interpreting, *shape: Any) -> Several:
    """`numpy.ndindex(a, b)`, `numpy.ndindex(x.shape)`: all places of an array, row by row."""
    sizes = shape[0].values if len(shape) == 1 and isinstance(shape[0], Items) else shape
    return Several("product", tuple(Range(number(run.lift, 0), size) for size in sizes))


def _list(run: Interpreting, iterable: Any) -> Any:
    if isinstance(iterable, Known):
        return Known(list(iterable.value), run.lift.graph.call("list", iterable.node))
    if isinstance(iterable, (Items, Listing, Tensor)):
        return iterable
    return stream(run.lift, iterable)


def _slice(run: Interpreting, *bounds: Any) -> Any:
    """`slice(a, b)`, as an index that is written `a:b`."""
    return slice(*(None if isinstance(one, Known) and one.value is None else one for one in bounds))


HANDLERS: dict[str, Callable[..., Any]] = {
    "tensorflow.foldl": _reading(_folded, "FO105"), "tensorflow.foldr": _reading(_folded, "FO105"),
    "keras.backend.foldl": _reading(_folded, "FO105"), "keras.backend.foldr": _reading(_folded, "FO105"),
    "keras.ops.scan": _reading(_scanned, "FO105"), "jax.lax.scan": _reading(_scanned, "FO105"),
    "keras.ops.fori_loop": _reading(_counted, "FO105"), "jax.lax.fori_loop": _reading(_counted, "FO105"),
    "keras.ops.while_loop": _while, "tensorflow.while_loop": _while, "tensorflow.scan": _reading(_running, "FO105"),
    "tensorflow.cond": _reading(_chosen, "FO202"), "keras.ops.cond": _reading(_chosen, "FO202"),
    "builtins.map": _map, "itertools.starmap": _reading(_starmapped),
    "itertools.pairwise": _reading(_paired), "builtins.divmod": _reading(_divided),
    "functools.reduce": _reading(_folded), "_functools.reduce": _reading(_folded),
    "keras.ops.map": _map_rows, "tensorflow.map_fn": _map_rows, "keras.ops.vectorized_map": _map_rows,
    "tensorflow.vectorized_map": _map_rows,
    **bound({
        "builtins.slice": _slice, "builtins.range": _range, "tensorflow.range": _range,
        "functools.partial": lambda run, function, *args, **kwargs: Partial(function, args, kwargs),
        "builtins.zip": lambda run, *iterables, strict=None: Several("zip", iterables),
        "builtins.reversed": lambda run, sequence: Several("reversed", (sequence,)),
        "builtins.enumerate": _enumerate, "builtins.list": _list, "builtins.tuple": _list, "numpy.ndindex": _indices,
        "itertools.product": _product,
        "itertools.combinations": _choices("combinations", _combined),
        "itertools.permutations": _choices("permutations", _permuted),
    }),
}  # fmt: skip
