"""FO5xx: gradients that are missing or NaN, shapes that broadcast by accident, memory."""

from __future__ import annotations

import ast
import re

from flatout.check.reading.events import Called, Handlers, Operated, Returned
from flatout.check.reading.walking import Walking
from flatout.check.values.abstract_values import BATCH, Data, Static
from flatout.check.values.operation_results import elementwise
from flatout.pysource.trees import FunctionNode, given_values, last_name, names_in, number_of, walk

from .rule import Severity

_SINGULAR = frozenset({
    "log", "sqrt", "rsqrt", "reciprocal", "arccos", "arcsin", "acos", "asin", "norm", "log2", "log10", "divide",
    "power",
})  # fmt: skip
_GUARD = re.compile(r"eps|1e-|maximum|clip|clamp|where|relu|safe|finfo|tiny|nan_to_num|max\(", re.IGNORECASE)
_NAN_TESTS = re.compile(r"(isnan|is_nan|isfinite|is_finite)\(\s*(?P<name>[\w.\[\]:, ]+?)\s*\)")


def _returned(event: Returned, scene: Walking) -> None:
    if scene.root.kind != "loss" or not scene.root.must_learn or not event.complete:
        return
    value = event.value
    constant = isinstance(value, Static) and value.tag == "number"
    if constant or (isinstance(value, Data) and not value.differentiable):
        # A loss that is nothing else than a constant is there for an output that shall not be trained.
        is_meant = not getattr(value, "origins", ()) and _is_single_return(scene.root.function.node)
        severity: Severity | None = "info" if is_meant else None
        scene.report("FO501", event.node, "No gradient can flow from this value to y_pred.", severity=severity)


def _is_single_return(node: FunctionNode) -> bool:
    body = node.body if isinstance(node.body, list) else [node.body]
    return isinstance(node, ast.Lambda) or [type(one) for one in body if not isinstance(one, ast.Expr)] == [ast.Return]


_ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "squared_difference", "mse_loss"})


def _called(event: Called, scene: Walking) -> None:
    if event.operation in _ARITHMETIC and len(event.arguments) == 2:
        _operated(Operated(event.node, "Sub", *event.arguments), scene)
    if event.operation == "where" and len(given_values(event.node)) == 3:
        _guarded_too_late(event, scene)
    elif event.operation in ("sqrt", "norm") and event.arguments:
        _distance(event, scene)


def _guarded_too_late(event: Called, scene: Walking) -> None:
    test, *sides = given_values(event.node)
    condition = scene.code(test)
    for argument, value in zip(sides, event.arguments[1:], strict=False):
        if not isinstance(value, Data) or not value.differentiable:
            continue
        text = scene.excerpt(argument)
        missing = _NAN_TESTS.search(condition)
        if missing and _nonlinear_in(argument, missing["name"]):
            name = missing["name"]
            message = f"Where `{name}` is NaN, the gradient of `{text}` is NaN, although `where` drops its value."
            advice = f"Replace the NaN first: `ops.where(ops.isnan({name}), 0.0, {name})`."
            scene.report("FO502", event.node, message, advice)
            return
        for inner in _singular_arguments(argument):
            source = scene.code(inner)
            is_free = not _GUARD.search(source) and re.search(r"[A-Za-z]", source) and not scene.root.is_setting(inner)
            if is_free and source in condition:
                fails = f"`{text}` is computed for every `{source}`, and its gradient is NaN where the condition fails."
                scene.report("FO502", event.node, fails)
                return


def _singular_arguments(node: ast.expr) -> list[ast.expr]:
    found: list[ast.expr] = []
    for one in walk(node):
        if isinstance(one, ast.Call) and last_name(one.func).removeprefix("reduce_") in _SINGULAR:
            found += given_values(one)[:1]
        elif isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div):
            found.append(one.right)
        elif isinstance(one, ast.BinOp) and isinstance(one.op, ast.Pow) and isinstance(number_of(one.right), float):
            found.append(one.left)
    return found


def _nonlinear_in(node: ast.expr, name: str) -> bool:
    """Whether the derivative of an expression still contains `name`."""
    for one in walk(node):
        inside = isinstance(one, ast.Call) and last_name(one.func) not in ("sum", "mean", "reduce_sum", "cast")
        power = isinstance(one, ast.BinOp) and isinstance(one.op, (ast.Pow, ast.Mult))
        if (inside or power) and name in names_in(one):
            return True
    return False


def _distance(event: Called, scene: Walking) -> None:
    value = event.arguments[0]
    if not isinstance(value, Data) or not value.differentiable or value.on_host or value.axes[:2] != (BATCH, BATCH):
        return
    if not _GUARD.search(scene.code(event.node)) and not scene.root.is_guarded(event.node):
        message = (
            f"`{scene.excerpt(event.node)}` has an infinite gradient on the diagonal, where a sample meets itself."
        )
        advice = (
            "Mask first: `ops.sqrt(ops.where(pair, square, 1.0))` with `pair` false on the diagonal, then mask the "
            "result again."
        )
        scene.report("FO502", event.node, message, advice)


def _operated(event: Operated, scene: Walking) -> None:
    left, right = event.left, event.right
    if not isinstance(left, Data) or not isinstance(right, Data) or left.on_host or right.on_host:
        return
    if event.operator in ("Add", "Sub", "Mult", "Div"):
        _broadcast_by_accident(event.node, left, right, scene)
    if elementwise([left, right]).axes.count(BATCH) > 2 and max(left.axes.count(BATCH), right.axes.count(BATCH)) <= 2:
        scene.report("FO504", event.node, "This has the batch's axis three times: B * B * B numbers.")


def _broadcast_by_accident(node: ast.expr, left: Data, right: Data, scene: Walking) -> None:
    if left.rank is None or right.rank is None or abs(left.rank - right.rank) != 1:
        return
    low, high = (left, right) if left.rank < right.rank else (right, left)
    if low.axes[:1] != (BATCH,) or high.axes[:1] != (BATCH,) or low.rank != -1:
        return
    text = scene.excerpt(node)
    if high.thin or (low.origins == {"true"} and high.origins == {"pred"} and high.rank == 0):
        scene.report("FO503", node, f"`{text}` combines (B,) with (B, 1): the result is (B, B).")
    elif low.squeezed and low.origins == {"pred"} and high.origins == {"true"} and scene.root.gets_equal_ranks:
        message = f"`{text}` combines (B,) with y_true, which Keras hands over as (B, 1): the result is (B, B)."
        advice = "Keras gives a loss function y_true of the rank of y_pred: squeeze both, or none."
        scene.report("FO503", node, message, advice)


HANDLERS: Handlers = {Returned: _returned, Called: _called, Operated: _operated}
IN_CALLBACKS: Handlers = {Operated: _operated}
