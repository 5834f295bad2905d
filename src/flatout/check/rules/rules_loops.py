"""FO1xx: Python loops over samples, time, pairs, classes and groups, and shapes that depend on the data."""

from __future__ import annotations

import re

import libcst as cst

from flatout.check.reading.abstract_values import BATCH, CLASSES, GROUPS, LAST, STATIC, Function, data_in
from flatout.check.reading.events import Called, Handlers, Loop, Looped, Scene, Subscripted, Tested
from flatout.check.reading.loop_domains import settled
from flatout.pysource.carried import only_reduces
from flatout.pysource.source_file import walk

from . import lengths
from .rule import Rule, Severity

# Below this many iterations the vectorized form gained 0.9x to 1.6x on a CPU: worth knowing, not worth failing a build.
_FEW = 8

RULES = (
    Rule(
        "FO101",
        "loop over the samples",
        "A Python loop or comprehension runs over the samples of the batch.",
        "The loop is unrolled: at batch 128 the first step took 40.7 s instead of 1 s on jax, and each step 94 ms "
        "instead of 12 ms "
        "on torch.",
        "Compute on the whole arrays and reduce along the axes behind the first; where the body needs one sample, "
        "`ops.vectorized_map(body, (y_true, y_pred))`.",
        "def loss(y_true, y_pred):\n    total = 0.0\n    for i in range(y_true.shape[0]):\n"
        "        total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))\n    return total / y_true.shape[0]",
        "def loss(y_true, y_pred):\n    return ops.mean(ops.mean(ops.square(y_true - y_pred), axis=-1))",
        "The body draws random numbers, has side effects or a gradient of its own: one call for the whole batch "
        "gives other values.",
        "slow",
        "slow",
        "slow",
    ),
    Rule(
        "FO102",
        "loop over time or over a row",
        "A Python loop runs over time steps, or over the elements of a row.",
        "Every iteration becomes operations of its own, in the graph or in the step: one sequence of 5000 steps took "
        "5 minutes in a "
        "public report.",
        "Compute on all steps at once, `y_pred[:, t]` becoming `y_pred`, and reduce along axis 1; a state that is "
        "carried needs "
        "`ops.scan` (FO106).",
        "def loss(y_true, y_pred):\n    total = 0.0\n    for t in range(y_pred.shape[1]):\n"
        "        total = total + ops.mean(ops.abs(y_true[:, t] - y_pred[:, t]))\n    return total / y_pred.shape[1]",
        "def loss(y_true, y_pred):\n    return ops.mean(ops.abs(y_true - y_pred))",
        "Each step needs the one before it (FO106).",
        "slow",
        "slow",
        "slow",
    ),
    Rule(
        "FO103",
        "loop over pairs",
        "Nested loops run over pairs (or triples) of samples or of labels.",
        "The number of operations grows with the square of the batch: 48, 224, 960 equations at batch 4, 8, 16 on jax.",
        "Broadcast: `y[:, None] - y[None, :]` is all pairs at once; mask the diagonal, and guard what has no "
        "gradient there (FO502).",
        "def loss(y_true, y_pred):\n    total = 0.0\n    for i in range(y_pred.shape[0]):\n"
        "        for j in range(i + 1, y_pred.shape[0]):\n"
        "            total = total + ops.sum(ops.square(y_pred[i] - y_pred[j]))\n    return total",
        "def loss(y_true, y_pred):\n    square = ops.sum(ops.square(y_pred[:, None] - y_pred[None, :]), axis=-1)\n"
        "    index = ops.arange(y_pred.shape[0])\n"
        "    return ops.sum(ops.where(index[:, None] < index[None, :], square, 0.0))",
        "The (B, B) form does not fit into memory (FO504): work in chunks of rows.",
        "slow",
        "slow",
        "slow",
    ),
    Rule(
        "FO104",
        "loop over classes",
        "A Python loop runs over a small static axis: classes, quantiles, channels.",
        "A handful of iterations costs little: 0.9x to 1.6x on a CPU with torch. With many classes the operations "
        "add up, and a "
        "bound that is read from the data stops the device at every step.",
        "One axis for the loop: `ops.one_hot(y_true, n)`, the constants as an array of that axis, one reduction.",
        "QUANTILES = [0.1, 0.5, 0.9]\n\n\ndef loss(y_true, y_pred):\n    total = 0.0\n    for k, q in "
        "enumerate(QUANTILES):\n"
        "        error = y_true[:, 0] - y_pred[:, k]\n        total = total + ops.mean(ops.maximum(q * error, (q - "
        "1) * error))\n"
        "    return total / len(QUANTILES)",
        "QUANTILES = [0.1, 0.5, 0.9]\n\n\ndef loss(y_true, y_pred):\n    q = ops.convert_to_tensor(QUANTILES)[None, "
        ":]\n"
        "    error = y_true - y_pred\n    return ops.mean(ops.maximum(q * error, (q - 1) * error))",
        "The iterations work on arrays of different shapes, such as the outputs of deep supervision.",
        "slow",
        "slow",
        "slow",
    ),
    Rule(
        "FO105",
        "sequential map",
        "`tf.map_fn`, `ops.map` or `lax.map` runs the function for one sample after the other.",
        "The device is given one sample at a time; the batch could be computed at once.",
        "`ops.vectorized_map(function, elements)` computes the samples together.",
        "def loss(y_true, y_pred):\n    return ops.mean(ops.map(lambda pair: ops.sum(ops.abs(pair[0] - pair[1])), "
        "(y_true, y_pred)))",
        "def loss(y_true, y_pred):\n"
        "    return ops.mean(ops.vectorized_map(lambda pair: ops.sum(ops.abs(pair[0] - pair[1])), (y_true, y_pred)))",
        "One sample alone fills the device, or the samples together do not fit into memory. `tf.vectorized_map` "
        "falls back to a "
        "loop, with a warning, for operations without a converter.",
        "slow",
        "slow",
        "slow",
    ),
    Rule(
        "FO106",
        "state carried from step to step",
        "An iteration needs the result of the one before: a running value, a recurrence, dynamic programming.",
        "It is not a map, so computing all iterations at once gives other numbers. As a Python loop it is unrolled.",
        "`ops.scan` over the axis, vectorized over the samples; for dynamic programming, one wavefront of cells at a "
        "time.",
        "def loss(y_true, y_pred):\n    state = ops.zeros_like(y_pred[:, 0])\n    total = 0.0\n"
        "    for t in range(y_pred.shape[1]):\n        state = ops.tanh(0.5 * state + y_pred[:, t])\n"
        "        total = total + ops.mean(ops.square(state - y_true[:, t]))\n    return total / y_pred.shape[1]",
        "def step(state, frame):\n    state = ops.tanh(0.5 * state + frame)\n    return state, state\n\n\n"
        "def loss(y_true, y_pred):\n    frames = ops.transpose(y_pred)\n"
        "    _, states = ops.scan(step, ops.zeros_like(frames[0]), frames)\n"
        "    return ops.mean(ops.square(ops.transpose(states) - y_true))",
        "Never turn it into a map. A linear recurrence or a running sum has a closed form (`ops.cumsum`).",
        "slow",
        "slow",
        "slow",
    ),
    Rule(
        "FO107",
        "loop over the groups of the batch",
        "A loop runs over the distinct ids or groups that the batch happens to hold.",
        "How many there are is known only after the values were read on the host, and differs from batch to batch: "
        "no graph can be "
        "kept.",
        "Number the groups once on the host (0 to n - 1) and use `ops.segment_sum` with a fixed `num_segments` "
        "(`flatout.group_mean` and family); an absent group must not divide by zero.",
        "def loss(y_true, y_pred, group):\n    total = 0.0\n    for g in np.unique(ops.convert_to_numpy(group)):\n"
        "        total = total + ops.mean(ops.square(y_true - y_pred)[group == g])\n    return total",
        "GROUPS = 4\n\n\ndef loss(y_true, y_pred, group):\n"
        "    square = ops.segment_sum(ops.square(y_true - y_pred), group, num_segments=GROUPS)\n"
        "    count = ops.segment_sum(ops.ones_like(y_true), group, num_segments=GROUPS)\n"
        "    return ops.sum(square / ops.maximum(count, 1.0))",
        "Never inside a loss; in a callback at the end of an epoch it is fine.",
        "error",
        "error",
        "slow",
    ),
    Rule(
        "FO108",
        "shape that depends on the data",
        "The result has a length that depends on values: a boolean mask, a slice with a computed bound, a selection.",
        "A compiled step has fixed shapes: jax raises NonConcreteBooleanIndexError, XLA refuses, torch waits for the "
        "device to "
        "learn the length.",
        "Keep the shape and use a mask: `ops.where(mask, value, 0.0)` and, for a mean, division by `ops.sum(mask)` "
        "(not by the "
        "padded length, and guarded against 0).",
        "def loss(y_true, y_pred):\n    error = ops.square(y_true - y_pred)\n    return ops.mean(error[y_true > 0])",
        'def loss(y_true, y_pred):\n    keep = ops.cast(y_true > 0, "float32")\n'
        "    return ops.sum(keep * ops.square(y_true - y_pred)) / ops.maximum(ops.sum(keep), 1.0)",
        "The selection is so small that computing everything would be far dearer: then `ops.top_k` with a fixed k.",
        "error",
        "slow",
        "slow",
    ),
)

# `y_true[name] for name in names`: a dict of outputs.
_MAPPING_COUNTER = re.compile(r"(^|_)(name|key|field|output)s?$")
_SEQUENTIAL = frozenset(
    [
        "tensorflow.map_fn",
        "keras.ops.map",
        "jax.lax.map",
        "keras.backend.map_fn",
        "tensorflow.compat.v1.map_fn",
        "tensorflow.foldl",
        "tensorflow.foldr",
        "keras.backend.foldl",
        "keras.backend.foldr",
    ]
)


def _looped(event: Looped, scene: Scene) -> None:
    loop = event.loop
    lengths.filters(loop, scene)
    code = _code_of(loop, scene)
    if not code:
        return
    growing = _label(loop) not in (STATIC, CLASSES)
    if loop.carries and growing and code in ("FO101", "FO102", "FO103"):
        names = " and ".join(f"`{name}`" for name in loop.carries[:3])
        verb = "is" if len(loop.carries) == 1 else "are"
        scene.report(
            "FO106", loop.node, f"{names} {verb} carried from one iteration of this loop to the next.", about=loop
        )
        code = "FO102" if code == "FO103" and _label(loop) != BATCH else code
    severity: Severity | dict[str, Severity] | None = None
    if code == "FO104":
        severity = _weight_of_classes(loop)
    elif loop.direct and loop.how != "map":
        severity = {"tensorflow": "error"}
    scene.report(code, loop.node, _sentence(code, loop), _advice(code, loop), severity=severity, about=loop)


def _label(loop: Loop) -> str:
    label = settled(loop.labels[0], loop.variables)
    return loop.labels[0] if label == CLASSES and _is_time(loop) else label


def _is_time(loop: Loop) -> bool:
    """Whether the body says that the loop runs along time, not classes: `y[:, k, :]`, `y[:, k]` reduced, `y[k:]`."""
    text = "".join(loop.file.code(loop.node).split()) if loop.variables else ""
    for name in loop.variables:
        if (
            f"[:,{name},:" in text
            or f"[{name}:]" in text
            or (f"[:,{name}]" in text and re.search(r"(axis|dim)=-1\b", text))
        ):
            return True
    return False


def _code_of(loop: Loop, scene: Scene) -> str:
    label = _label(loop)
    if loop.whole:
        return ""
    if loop.is_inner:
        # It belongs to a pair that the loop around it is named for.
        return "FO102" if loop.carries and loop.touched else ""
    if loop.pairs or loop.paired:
        return "FO103" if loop.touched else ""
    if label == GROUPS:
        return "FO107" if loop.touched else ""
    if not loop.touched:
        return ""
    if label == BATCH:
        return "FO101"
    if label in (STATIC, CLASSES, LAST, "constant"):
        if any(_MAPPING_COUNTER.search(name) for name in loop.variables) and not _counts_columns(loop):
            return ""
        if loop.indexed or loop.compared or label == LAST or (label == CLASSES and loop.scaled):
            return "FO104"
        return "FO104" if loop.scaled and loop.how != "while" and loop.text and not _is_range(loop) else ""
    return "FO102"


def _counts_columns(loop: Loop) -> bool:
    """Whether another variable than the name of an output indexes the last axis: `y[..., k]`."""
    text = "".join(loop.file.code(loop.node).split())
    others = [name for name in loop.variables if not _MAPPING_COUNTER.search(name)]
    return any(re.search(rf"(:|\.\.\.),{name}\]", text) for name in others)


def _is_range(loop: Loop) -> bool:
    return loop.text.startswith("range(")


def _weight_of_classes(loop: Loop) -> Severity | None:
    if loop.bounded_by_data:
        return None
    if not (loop.indexed or loop.compared):
        return "info"
    return "info" if loop.length is not None and loop.length <= _FEW else None


def _sentence(code: str, loop: Loop) -> str:
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
    more = (
        " It draws random numbers in every iteration, so one draw for the batch would give other values."
        if loop.draws
        else ""
    )
    return f"{kind} {where}{times} (`{over}`).{more}"


def _advice(code: str, loop: Loop) -> str:
    if loop.draws:
        return (
            "Not rewritten: one draw for the whole batch changes the number and the order of the draws. If other "
            "values are "
            "welcome, draw once with the shape of y_pred, before the loop, and compute on the whole arrays."
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
    if code == "FO101" and _accumulates_in_float64(loop):
        return (
            "The loop accumulates in float64 on purpose: cast the whole array first, "
            '`ops.sum(ops.cast(y_pred, "float64"))`. In float32 the result differs.'
        )
    if code == "FO104" and loop.bounded_by_data:
        return (
            "The bound depends on the data, and a class that the batch lacks is skipped: loop to the number of "
            "classes, or "
            "`ops.one_hot(y_true, y_pred.shape[-1])` and one sum along each class's axis."
        )
    return ""


def _accumulates_in_float64(loop: Loop) -> bool:
    return isinstance(loop.node, cst.For) and any(
        isinstance(node, cst.SimpleString) and node.evaluated_value == "float64" for node in walk(loop.node.body)
    )


# They are what a recurrence needs, and too much for a sum.
_STEPPING = {
    "keras.ops.scan": "scan",
    "jax.lax.scan": "scan",
    "tensorflow.scan": "fold",
    "keras.ops.fori_loop": "fori_loop",
    "jax.lax.fori_loop": "fori_loop",
    "keras.ops.while_loop": "while_loop",
    "tensorflow.while_loop": "while_loop",
}


def _called(event: Called, scene: Scene) -> None:
    if event.name in _STEPPING:
        functions = [one for one in (*event.arguments, *event.keywords.values()) if isinstance(one, Function)]
        # Of a while loop's two functions the second is its body.
        if functions and only_reduces(functions[-1].node, _STEPPING[event.name]):
            scene.report(
                "FO105",
                event.node,
                f"`{scene.file.code(event.node.func)}` runs one step after the other, and only adds up what they give.",
                "Compute all steps at once and reduce: `ops.sum`, `ops.max`, `ops.cumsum` for a running total.",
            )
        return
    if event.name in _SEQUENTIAL and data_in([*event.arguments[1:], *event.keywords.values()]):
        scene.report(
            "FO105",
            event.node,
            f"`{scene.file.code(event.node.func)}` calls its function for one sample after the other.",
        )
        return
    lengths.called(event, scene)


HANDLERS: Handlers = {Looped: _looped, Called: _called, Subscripted: lengths.subscripted, Tested: lengths.tested}
