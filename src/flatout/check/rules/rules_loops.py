"""FO1xx: Python loops over samples, time, pairs, classes and groups, and shapes that depend on the data."""

from __future__ import annotations

import ast
import re

from flatout.check.reading.events import Called, Handlers, Stepped, Subscripted, Tested, WalkedLoop
from flatout.check.reading.loop_domains import settled
from flatout.check.reading.walking import Walking
from flatout.check.values import abstract_values as av
from flatout.check.values.abstract_values import AbstractValue, Data, data_in
from flatout.pysource.trees import dotted, method_name, text_of, walk

from .rule import Severity

# Below this many iterations the vectorized form gained 0.9x to 1.6x on a CPU: worth knowing, not worth failing a build.
_FEW = 8

# `y_true[name] for name in names`: a dict of outputs.
_MAPPING_COUNTER = re.compile(r"(^|_)(name|key|field|output)s?$")
_SEQUENTIAL = frozenset({
    "tensorflow.map_fn", "keras.ops.map", "jax.lax.map", "keras.backend.map_fn", "tensorflow.compat.v1.map_fn",
    "tensorflow.foldl", "tensorflow.foldr", "keras.backend.foldl", "keras.backend.foldr",
})  # fmt: skip


def _looped(loop: WalkedLoop, scene: Walking) -> None:
    _filters(loop, scene)
    code = _code_of(loop, scene)
    if not code:
        return
    growing = _label(loop) not in (av.STATIC, av.CLASSES)
    if loop.carries and growing and code in ("FO101", "FO102", "FO103"):
        names = " and ".join(f"`{name}`" for name in loop.carries[:3])
        carried = "is carried" if len(loop.carries) == 1 else "are carried"
        scene.report("FO106", loop.node, f"{names} {carried} from one iteration of this loop to the next.", about=loop)
        code = "FO102" if code == "FO103" and _label(loop) != av.BATCH else code
    severity: Severity | dict[str, Severity] | None = None
    if code == "FO104":
        severity = _weight_of_classes(loop)
    elif loop.direct and loop.how != "map":
        severity = {"tensorflow": "error"}
    scene.report(code, loop.node, _sentence(code, loop), _advice(code, loop), severity=severity, about=loop)


def _label(loop: WalkedLoop) -> str:
    label = settled(loop.labels[0], loop.variables)
    return loop.labels[0] if label == av.CLASSES and _is_time(loop) else label


def _is_time(loop: WalkedLoop) -> bool:
    """Whether the body says that the loop runs along time, not classes: `y[:, k, :]`, `y[:, k]` reduced, `y[k:]`."""
    text = "".join(loop.file.code(loop.node).split()) if loop.variables else ""
    is_reduced = re.search(r"(axis|dim)=-1\b", text) is not None
    return any(
        f"[:,{name},:" in text or f"[{name}:]" in text or (f"[:,{name}]" in text and is_reduced)
        for name in loop.variables
    )


def _code_of(loop: WalkedLoop, scene: Walking) -> str:
    label = _label(loop)
    if loop.whole or not loop.touched:
        return ""
    if loop.is_inner:
        # It belongs to a pair that the loop around it is named for.
        return "FO102" if loop.carries else ""
    if loop.pairs or loop.paired:
        return "FO103"
    if label == av.GROUPS:
        return "FO107"
    if label == av.BATCH:
        return "FO101"
    if label in (av.STATIC, av.CLASSES, av.LAST, "constant"):
        if any(_MAPPING_COUNTER.search(name) for name in loop.variables) and not _counts_columns(loop):
            return ""
        if loop.indexed or loop.compared or label == av.LAST or (label == av.CLASSES and loop.scaled):
            return "FO104"
        is_counted = loop.how == "while" or not loop.text or loop.text.startswith("range(")
        return "FO104" if loop.scaled and not is_counted else ""
    return "FO102"


def _counts_columns(loop: WalkedLoop) -> bool:
    """Whether another variable than the name of an output indexes the last axis: `y[..., k]`."""
    text = "".join(loop.file.code(loop.node).split())
    others = [name for name in loop.variables if not _MAPPING_COUNTER.search(name)]
    return any(re.search(rf"(:|\.\.\.),{name}\]", text) for name in others)


def _weight_of_classes(loop: WalkedLoop) -> Severity | None:
    is_short = loop.length is not None and loop.length <= _FEW
    is_mild = is_short or not (loop.indexed or loop.compared)
    return "info" if is_mild and not loop.bounded_by_data else None


def _sentence(code: str, loop: WalkedLoop) -> str:
    kind = {"for": "This loop runs", "while": "This while loop runs", "map": "`map` runs"}.get(
        loop.how, "This comprehension runs"
    )
    over = loop.text if len(loop.text) <= 60 else loop.text[:57] + "..."
    where = {
        "FO101": "over the samples of the batch",
        "FO102": "over the steps or elements of a row",
        "FO103": "over pairs",
        "FO104": "over a short static axis",
        "FO107": "over the groups found in the batch",
    }[code]
    times = f", {loop.length} times" if loop.length is not None and code == "FO104" else ""
    draws = " It draws random numbers in every iteration, so one draw for the batch would give other values."
    return f"{kind} {where}{times} (`{over}`).{draws if loop.draws else ''}"


def _advice(code: str, loop: WalkedLoop) -> str:
    if loop.draws:
        return (
            "Not rewritten: one draw for the whole batch changes the number and the order of the draws. If other "
            "values are welcome, draw once with the shape of y_pred, before the loop, and compute on the whole arrays."
        )
    if loop.has_own_gradient:
        return (
            "Not rewritten: a function in the body has a gradient that the user defined, so nothing about it can be "
            "derived from the body. Call that function once, with the whole batch, if it is made for that."
        )
    if loop.carries and code in ("FO101", "FO102", "FO103"):
        return (
            "Not a map, since a state is carried: `ops.scan` along this axis, vectorized over the samples (see FO106)."
        )
    if loop.neighbours and code in ("FO101", "FO102"):
        return (
            "The body reads a neighbour as well, so it is not a map: shift the array, `ops.roll(y_pred, 1, axis=0)` "
            "where index -1 wraps round, or slices such as `y[1:] - y[:-1]`, and compute on the whole."
        )
    in_body = walk(loop.node.body) if isinstance(loop.node, ast.For) else ()
    if code == "FO101" and any(text_of(node) == "float64" for node in in_body):
        return (
            "The loop accumulates in float64 on purpose: cast the whole array first, "
            '`ops.sum(ops.cast(y_pred, "float64"))`. In float32 the result differs.'
        )
    if code == "FO104" and loop.bounded_by_data:
        return (
            "The bound depends on the data, and a class that the batch lacks is skipped: loop to the number of "
            "classes, or `ops.one_hot(y_true, y_pred.shape[-1])` and one sum along each class's axis."
        )
    return ""


def _stepped(event: Stepped, scene: Walking) -> None:
    # A scan is what a recurrence needs, and too much for a sum.
    message = "`{}` runs one step after the other, and only adds up what they give."
    advice = "Compute all steps at once and reduce: `ops.sum`, `ops.max`, `ops.cumsum` for a running total."
    scene.report("FO105", event.node, message, advice)


def _called(event: Called, scene: Walking) -> None:
    if event.name in _SEQUENTIAL and data_in([*event.arguments[1:], *event.keywords.values()]):
        scene.report("FO105", event.node, "`{}` calls its function for one sample after the other.")
    else:
        _lengths(event, scene)


# -- FO108: arrays and lists whose length depends on the data

_MASK = "Compute on all of them and mask: `ops.where(condition, term, 0.0)`"
_DYNAMIC = frozenset({"boolean_mask", "nonzero", "argwhere", "dynamic_partition", "unique", "unique_with_counts"})


def _filters(loop: WalkedLoop, scene: Walking) -> None:
    """A comprehension that keeps some elements."""
    for node, value in loop.filters:
        if isinstance(value, Data) and value.role != "all_but_one":
            message = f"How many elements `{scene.excerpt(node)}` keeps depends on the data."
            scene.report("FO108", node, message, _MASK + ", and count with `ops.sum` of the mask.")


def _lengths(event: Called, scene: Walking) -> None:
    """A call that gives as many elements as the data say."""
    inputs = data_in([*event.arguments, *filter(None, [event.receiver])])
    if all(one.on_host for one in inputs):
        return
    one_argument = event.operation == "where" and len(event.arguments) + len(event.keywords) == 1
    if (event.operation in _DYNAMIC or one_argument) and "size" not in event.keywords:
        scene.report("FO108", event.node, "The length of what `{}` gives depends on the data.")
    elif event.operation == "top_k" and _is_read_number(event.at(0 if isinstance(event.receiver, Data) else 1, "k")):
        message = "How many elements `{}` gives depends on a value of the batch."
        advice = "A fixed k, or a sort of all elements and a mask: `ops.arange(n) < count`."
        scene.report("FO108", event.node, message, advice)


def _subscripted(event: Subscripted, scene: Walking) -> None:
    """A mask, or a slice up to a number of the batch."""
    if event.written or not isinstance(event.base, Data) or event.base.on_host:
        return
    if any(isinstance(one, Data) and one.role == "mask" and one.axes for one in event.index):
        scene.report("FO108", event.node, "`{}` selects by a mask, so its length depends on the data.")
    if any(_is_read_number(end) for pair in event.slices for end in pair):
        advice = (
            "A static mask in the place of the slice: `ops.arange(length)[None, :] < n[:, None]`; a mean divides by "
            "the number of kept elements, at least 1."
        )
        scene.report("FO108", event.node, "The length of `{}` depends on a value of the batch.", advice)


def _is_read_number(value: AbstractValue | None) -> bool:
    return isinstance(value, Data) and bool(value.origins)


def _tested(event: Tested, scene: Walking) -> None:
    """A list that grows under a condition on the data."""
    value = event.value
    by_data = isinstance(value, Data) and value.origins and value.role != "all_but_one"
    if not by_data or not isinstance(event.node, ast.If) or not scene.loops:
        return
    node = next((one for one in walk(event.node.body) if method_name(one) == "append"), None)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        scene.report("FO108", node, f"How long `{dotted(node.func.value)}` gets depends on the data.", _MASK + ".")


HANDLERS: Handlers = {
    WalkedLoop: _looped,
    Called: _called,
    Stepped: _stepped,
    Subscripted: _subscripted,
    Tested: _tested,
}
