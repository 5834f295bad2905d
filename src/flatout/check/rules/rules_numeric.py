"""FO5xx: gradients that are missing or NaN, shapes that broadcast by accident, memory."""

from __future__ import annotations

import re

import libcst as cst

from flatout.check.reading.abstract_values import BATCH, Data, Static
from flatout.check.reading.events import Called, Handlers, Operated, Returned, Scene
from flatout.pysource.source_file import dotted, walk

from .rule import Rule

RULES = (
    Rule(
        "FO501",
        "no gradient",
        "Nothing in the value of the loss depends on y_pred in a way that has a gradient.",
        "The model cannot learn: TensorFlow and torch raise, jax trains with zeros. argmax, round, comparisons, "
        "integer casts, NumPy and "
        "files have no gradient.",
        "A differentiable stand-in (softmax for argmax, sigmoid for a step, a surrogate for an external score), or a "
        "metric or callback.",
        "def loss(y_true, y_pred):\n    guess = ops.argmax(y_pred, axis=-1)\n    return ops.mean(ops.cast(guess != "
        'y_true, "float32"))',
        "def loss(y_true, y_pred):\n    return ops.mean(keras.losses.sparse_categorical_crossentropy(y_true, y_pred))",
        "The function is a metric.",
        "wrong",
        "error",
        "error",
    ),
    Rule(
        "FO502",
        "NaN gradient",
        "The gradient is NaN for an input that occurs, although the value is right.",
        "The gradient of sqrt at 0 is infinite, and of log and division at 0 too; `where` multiplies it by 0 for the "
        "side that was not "
        "taken, and infinity times 0 is NaN. One such element makes all weights NaN.",
        "Guard the input, not the result: `safe = ops.where(mask, x, 1.0)`, then `ops.where(mask, ops.sqrt(safe), "
        "0.0)`.",
        "def loss(y_true, y_pred):\n    square = ops.sum(ops.square(y_true - y_pred), axis=-1)\n"
        "    return ops.mean(ops.where(square > 0, ops.sqrt(square), 0.0))",
        "def loss(y_true, y_pred):\n    square = ops.sum(ops.square(y_true - y_pred), axis=-1)\n"
        "    safe = ops.where(square > 0, square, 1.0)\n    return ops.mean(ops.where(square > 0, ops.sqrt(safe), "
        "0.0))",
        "The input cannot be reached, because it is bounded away from the singular point.",
        "wrong",
        "wrong",
        "wrong",
    ),
    Rule(
        "FO503",
        "(B,) against (B, 1)",
        "An array of shape (B,) meets one of shape (B, 1).",
        "They broadcast to (B, B): every sample is compared with every other. The value is wrong, and nothing warns. "
        "Keras hands a loss function y_true with the rank of y_pred, so that an axis that is squeezed from one of them "
        "alone is such a case as well: `ops.squeeze(y_pred, -1) - y_true`.",
        "Give both the same shape: `y_true[:, 0:1]`, or `ops.squeeze` both.",
        "def loss(y_true, y_pred):\n    return ops.mean(ops.square(y_true[:, 0] - y_pred))",
        "def loss(y_true, y_pred):\n    return ops.mean(ops.square(y_true[:, 0:1] - y_pred))",
        "All pairs are meant; then `a[:, None] - b[None, :]` says so. In `call` of a Loss object y_true has the shape "
        "that `fit` was given: a squeezed y_pred is not reported there.",
        "wrong",
        "wrong",
        "wrong",
    ),
    Rule(
        "FO504",
        "memory of all triples",
        "An intermediate result has an axis of samples three times: (B, B, B).",
        "At batch 1024 it takes 4 GB in float32, and the gradient as much again.",
        "Reduce one axis at a time, or work through the rows in chunks.",
        "def loss(y_true, y_pred):\n    far = ops.sum(ops.square(y_pred[:, None] - y_pred[None, :]), axis=-1)\n"
        "    return ops.mean(ops.maximum(far[:, :, None] - far[:, None, :] + 1.0, 0.0))",
        "def loss(y_true, y_pred):\n    far = ops.sum(ops.square(y_pred[:, None] - y_pred[None, :]), axis=-1)\n"
        "    hardest = ops.max(far, axis=1) - ops.min(far, axis=1)\n    return ops.mean(ops.maximum(hardest + 1.0, "
        "0.0))",
        "The batch is small.",
        "info",
        "info",
        "info",
    ),
)

_SINGULAR = frozenset(
    [
        "log",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "arccos",
        "arcsin",
        "acos",
        "asin",
        "norm",
        "log2",
        "log10",
        "divide",
        "power",
    ]
)
_GUARD = re.compile(r"eps|1e-|maximum|clip|clamp|where|relu|safe|finfo|tiny|nan_to_num|max\(", re.IGNORECASE)
_NAN_TESTS = re.compile(r"(isnan|is_nan|isfinite|is_finite)\(\s*(?P<name>[\w.\[\]:, ]+?)\s*\)")


def _returned(event: Returned, scene: Scene) -> None:
    if scene.root.kind != "loss" or not scene.root.must_learn or not event.complete:
        return
    value = event.value
    constant = isinstance(value, Static) and value.tag == "number"
    if constant or (isinstance(value, Data) and not value.differentiable):
        scene.report("FO501", event.node, "No gradient can flow from this value to y_pred.")


_ARITHMETIC = frozenset(
    ["add", "subtract", "multiply", "divide", "sub", "mul", "div", "true_divide", "squared_difference", "mse_loss"]
)


def _called(event: Called, scene: Scene) -> None:
    if scene.root.kind == "callback":
        return
    if event.operation in _ARITHMETIC and len(event.arguments) == 2:
        left, right = event.arguments
        if isinstance(left, Data) and isinstance(right, Data) and not left.on_host and not right.on_host:
            _broadcast_by_accident(event.node, left, right, scene)
    if event.operation == "where" and len(event.node.args) == 3:
        _guarded_too_late(event, scene)
    elif event.operation in ("sqrt", "norm") and event.arguments:
        _distance(event, scene)


def _guarded_too_late(event: Called, scene: Scene) -> None:
    condition = scene.file.code(event.node.args[0].value)
    for argument, value in zip(event.node.args[1:], event.arguments[1:], strict=False):
        if not isinstance(value, Data) or not value.differentiable:
            continue
        text = scene.file.code(argument.value)
        missing = _NAN_TESTS.search(condition)
        if missing and _nonlinear_in(argument.value, missing["name"]):
            message = (
                f"Where `{missing['name']}` is NaN, the gradient of `{text[:50]}` is NaN, although `where` "
                "drops its value."
            )
            scene.report(
                "FO502",
                event.node,
                message,
                f"Replace the NaN first: `ops.where(ops.isnan({missing['name']}), 0.0, {missing['name']})`.",
            )
            return
        for inner in _singular_arguments(argument.value):
            source = scene.file.code(inner)
            if scene.root.is_setting(inner):
                continue
            if source in condition and not _GUARD.search(source) and re.search(r"[A-Za-z]", source):
                scene.report(
                    "FO502",
                    event.node,
                    f"`{text[:50]}` is computed for every `{source}`, and its gradient is NaN where the condition "
                    "fails.",
                )
                return


def _singular_arguments(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    found: list[cst.BaseExpression] = []
    for one in walk(node):
        if (
            isinstance(one, cst.Call)
            and one.args
            and dotted(one.func).rsplit(".", 1)[-1].removeprefix("reduce_") in _SINGULAR
        ):
            found.append(one.args[0].value)
        elif isinstance(one, cst.BinaryOperation) and isinstance(one.operator, cst.Divide):
            found.append(one.right)
        elif (
            isinstance(one, cst.BinaryOperation)
            and isinstance(one.operator, cst.Power)
            and isinstance(one.right, cst.Float)
        ):
            found.append(one.left)
    return found


def _nonlinear_in(node: cst.BaseExpression, name: str) -> bool:
    """Whether the derivative of an expression still contains `name`."""
    for one in walk(node):
        inside = isinstance(one, cst.Call) and dotted(one.func).rsplit(".", 1)[-1] not in (
            "sum",
            "mean",
            "reduce_sum",
            "cast",
        )
        power = isinstance(one, cst.BinaryOperation) and isinstance(one.operator, (cst.Power, cst.Multiply))
        if (inside or power) and any(isinstance(leaf, cst.Name) and leaf.value == name for leaf in walk(one)):
            return True
    return False


def _distance(event: Called, scene: Scene) -> None:
    value = event.arguments[0]
    if not isinstance(value, Data) or not value.differentiable or value.on_host or value.axes[:2] != (BATCH, BATCH):
        return
    text = scene.file.code(event.node)
    if not _GUARD.search(text) and value.role != "guarded" and not scene.root.is_guarded(event.node):
        scene.report(
            "FO502",
            event.node,
            f"`{text[:60]}` has an infinite gradient on the diagonal, where a sample meets itself.",
            "Mask first: `ops.sqrt(ops.where(pair, square, 1.0))` with `pair` false on the diagonal, then mask the "
            "result again.",
        )


def _operated(event: Operated, scene: Scene) -> None:
    left, right = event.left, event.right
    if not isinstance(left, Data) or not isinstance(right, Data) or left.on_host or right.on_host:
        return
    if event.operator in ("Add", "Subtract", "Multiply", "Divide"):
        _broadcast_by_accident(event.node, left, right, scene)
    from flatout.check.reading.operation_results import elementwise

    if elementwise([left, right]).axes.count(BATCH) > 2 and max(left.axes.count(BATCH), right.axes.count(BATCH)) <= 2:
        scene.report("FO504", event.node, "This has the batch's axis three times: B * B * B numbers.")


def _broadcast_by_accident(node: cst.BaseExpression, left: Data, right: Data, scene: Scene) -> None:
    if left.rank is None or right.rank is None or abs(left.rank - right.rank) != 1:
        return
    low, high = (left, right) if left.rank < right.rank else (right, left)
    if low.axes[:1] != (BATCH,) or high.axes[:1] != (BATCH,) or low.rank != -1:
        return
    text = scene.file.code(node)[:60]
    if high.thin or (low.origins == {"true"} and high.origins == {"pred"} and high.rank == 0):
        scene.report("FO503", node, f"`{text}` combines (B,) with (B, 1): the result is (B, B).")
    elif low.squeezed and low.origins == {"pred"} and high.origins == {"true"} and scene.root.gets_equal_ranks:
        scene.report(
            "FO503",
            node,
            f"`{text}` combines (B,) with y_true, which Keras hands over as (B, 1): the result is (B, B).",
            "Keras gives a loss function y_true of the rank of y_pred: squeeze both, or none.",
        )


HANDLERS: Handlers = {Returned: _returned, Called: _called, Operated: _operated}
