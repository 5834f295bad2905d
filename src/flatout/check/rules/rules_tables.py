"""FO4xx: lookups, joins and group-bys inside the step, and the keys that they need."""

from __future__ import annotations

import re

import libcst as cst

from flatout.check.reading.abstract_values import Data, Instance, Sequence, Static, Tuple, Unknown, data_in
from flatout.check.reading.events import Called, Entered, Handlers, Scene, Subscripted, Wrote
from flatout.pysource.columns import packed_columns
from flatout.pysource.source_file import dotted

from .rule import Rule, Severity

_TABLE = (
    "`flatout.Table(frame, key=...)` and `table.at(keys)` join inside the compiled step: row codes once on the "
    "host, one gather."
)

RULES = (
    Rule(
        "FO401",
        "lookup per element",
        "A dict, Series, DataFrame or array is asked for one key of the batch after the other.",
        "One read from the device and one Python call per element: 15 ms for 256 rows, against 26 us for a gather. "
        "It cannot be "
        "compiled.",
        'A gather: `ops.take(table, ops.cast(y_true, "int32"), axis=0)` for dense integer keys. ' + _TABLE,
        "WEIGHT = {0: 2.0, 1: 0.5}\n\n\ndef loss(y_true, y_pred):\n"
        "    weight = [WEIGHT[int(c)] for c in ops.convert_to_numpy(y_true)]\n"
        "    return ops.mean(ops.convert_to_tensor(weight) * ops.square(y_true - y_pred))",
        'WEIGHT = np.array([2.0, 0.5], "float32")\n\n\ndef loss(y_true, y_pred):\n'
        '    weight = ops.take(WEIGHT, ops.cast(y_true, "int32"))\n    return ops.mean(weight * ops.square(y_true - '
        "y_pred))",
        "In a callback or in the preparation of the data.",
        "error",
        "error",
        "slow",
    ),
    Rule(
        "FO402",
        "merge by sample, or state per sample",
        "The step merges a frame by sample id, or keeps a value for each sample in a dict or array of the host.",
        "A pandas merge with a million rows takes 100 to 150 ms; state that Python keeps is not part of the compiled "
        "step.",
        'A table keyed by a sample id that travels in x: `table.at(x["id"])`; for state, a mutable table: gather the '
        "old value, "
        "`table.set` the new one. It is saved with the model's weights.",
        "LAST = {}\n\n\ndef loss(y_true, y_pred, sample):\n    error = ops.square(y_true - y_pred)\n"
        "    LAST[int(sample[0])] = float(error[0])\n    return ops.mean(error)",
        'history = flatout.Table({"sample": [0, 1, 2], "last": [0.0, 0.0, 0.0]}, key="sample")',
        "Never inside a loss.",
        "error",
        "error",
        "slow",
    ),
    Rule(
        "FO403",
        "key precision",
        "An id is taken from y_true, or goes through a short float type.",
        "Keras casts y_true to float32 before every loss: 16777216 and 16777217 become one key. In float16 ids "
        "collide from 2049 on.",
        "Let ids travel in x, as integers; or number the rows once (`table.codes(values)`) and keep the codes below "
        "2**24.",
        'TABLE = np.ones(8, "float32")\n\n\ndef loss(y_true, y_pred):\n    sample_id = ops.cast(y_true[:, 1], '
        '"int32")\n'
        "    return ops.mean(ops.take(TABLE, sample_id) * ops.square(y_true[:, 0] - y_pred[:, 0]))",
        '@flatout.loss\ndef loss(y_true, y_pred, x):\n    return ops.mean(costs.at(x["id"]).weight * '
        "ops.square(y_true - y_pred))",
        "The ids are class numbers or row codes, well below 2**24.",
        "info",
        "info",
        "info",
    ),
    Rule(
        "FO404",
        "no policy for missing keys",
        "A lookup says nothing about keys that are not in the table.",
        "A gather out of range raises on torch, gives NaN on jax, and the last row under XLA on TensorFlow (0 on a "
        "GPU without it).",
        'State it: `flatout.Table(..., missing="raise")`, a default per column, or NaN.',
        'KEYS = np.array([3, 7, 9])\nMEAN = np.array([1.0, -2.0, 0.5], "float32")\n\n\ndef loss(y_true, y_pred, '
        "store):\n"
        "    return ops.mean(ops.abs(y_true - ops.take(MEAN, ops.searchsorted(KEYS, store)) - y_pred))",
        'stores = flatout.Table({"store": [3, 7, 9], "mean": [1.0, -2.0, 0.5]}, key="store", missing={"mean": 0.0})',
        "Every key was checked on the host before.",
        "info",
        "info",
        "info",
    ),
    Rule(
        "FO405",
        "data packed into y_true",
        "Columns of y_true hold something else than targets: an id, a weight, a feature.",
        "Metrics read them as targets: `mae` reads 16.25 where the truth is 1.0, without a warning; ids above 2**24 "
        "collide.",
        "Keys and weights travel in x: `@flatout.loss def f(y_true, y_pred, x)`, or `compute_loss`; a plain weight is "
        "`sample_weight`.",
        "def loss(y_true, y_pred):\n    target, weight = y_true[:, 0:1], y_true[:, 1:2]\n"
        "    return ops.mean(weight * ops.square(target - y_pred))",
        "def loss(y_true, y_pred):  # fit(x, y, sample_weight=weight)\n    return ops.square(y_true - y_pred)",
        "No metric is attached, and the columns are numbers that float32 holds.",
        "wrong",
        "wrong",
        "wrong",
    ),
    Rule(
        "FO406",
        "group-by in the loss",
        "A group-by (pandas, itertools, Counter) runs inside the step.",
        "The data are copied to the host at every step, no gradient comes back, and it cannot be compiled.",
        "`ops.segment_sum` with a fixed number of groups (`flatout.group_mean` and family); statistics of the "
        "training data are a "
        "table, computed once.",
        'def metric(y_true, y_pred):\n    frame = pd.DataFrame({"y": ops.convert_to_numpy(y_true)})\n'
        '    return ops.convert_to_tensor(frame.groupby("y").size().max())',
        "def metric(y_true, y_pred):\n    return ops.max(ops.segment_sum(ops.ones_like(y_true), ops.cast(y_true, "
        '"int32"), num_segments=10))',
        "In a callback.",
        "error",
        "error",
        "slow",
    ),
)

_LOOKUPS = frozenset(
    [
        "get",
        "loc",
        "iloc",
        "at",
        "iat",
        "xs",
        "reindex",
        "map",
        "lookup",
        "query",
        "isin",
        "where",
        "index",
        "searchsorted",
        "asof",
        "__getitem__",
    ]
)
_ID = re.compile(
    r"(^|_)(id|ids|idx|index|key|keys|uid|sample|samples|user|item|account|store|customer)s?$", re.IGNORECASE
)
_SHORT_FLOATS = ("float16", "bfloat16", "half")


def _subscripted(event: Subscripted, scene: Scene) -> None:
    if event.written or scene.root.kind == "callback":
        return
    keys = [key for key in event.index if isinstance(key, Data) and key.origins and key.role != "selected"]
    keys += [item for key in event.index if isinstance(key, (Tuple, Sequence)) for item in data_in([key])]
    if not keys:
        return
    base = event.base
    by_host = any(key.on_host for key in keys)
    is_table = isinstance(base, Static) and base.tag in ("dict", "frame", "array", "list", "object")
    is_list = isinstance(base, Tuple) and not data_in([base]) and by_host
    not_on_device = by_host or (isinstance(base, Static) and base.tag != "object")
    if (is_table and not_on_device) or is_list or (isinstance(base, Unknown) and by_host):
        text = scene.file.code(event.node)
        scene.report("FO401", event.node, f"`{text[:60]}` is looked up on the host, by a value of the batch.")


def _called(event: Called, scene: Scene) -> None:
    if scene.root.kind == "callback":
        return
    everything = [*event.arguments, *event.keywords.values()]
    data = [one for one in data_in(everything) if one.origins]
    text = scene.file.code(event.node.func)
    receiver = event.receiver
    host_receiver = isinstance(receiver, Data) and receiver.on_host
    if event.method in ("merge", "join", "merge_asof") or event.name in ("pandas.merge", "pandas.merge_asof"):
        if data or host_receiver:
            scene.report("FO402", event.node, f"`{text}` joins a table with the batch, on the host.")
        return
    if (event.method == "groupby" and (host_receiver or data)) or (
        event.name in ("itertools.groupby", "collections.Counter", "collections.defaultdict") and data
    ):
        scene.report("FO406", event.node, f"`{text}` groups the batch on the host.")
    elif _is_lookup(event, data):
        scene.report("FO401", event.node, f"`{text}` is a lookup on the host, by a value of the batch.")
        if event.method in ("get", "reindex", "map") and len(everything) == 1:
            scene.report("FO404", event.node, f"`{text}` has no default for keys that are missing.")
    elif (
        event.name
        in ("pandas.cut", "pandas.qcut", "numpy.digitize", "bisect.bisect", "bisect.bisect_left", "bisect.bisect_right")
        and data
    ):
        scene.report(
            "FO401",
            event.node,
            f"`{text}` finds the interval of each value on the host.",
            '`ops.searchsorted(edges, y_true, side="right") - 1` and a gather; `flatout.Table` takes intervals as '
            "keys.",
        )
    elif event.name.startswith(
        ("keras.layers.StringLookup", "keras.layers.IntegerLookup", "keras.layers.Hashing")
    ) and event.name.endswith("()"):
        severity: dict[str, Severity] = {"tensorflow": "slow"}
        scene.report(
            "FO401",
            event.node,
            f"`{text}` is a hash table of the host: it does not compile under XLA.",
            severity=severity,
        )
    _keys(event, data, scene)


def _is_lookup(event: Called, data: list[Data]) -> bool:
    receiver = event.receiver
    if event.method == "apply" and isinstance(receiver, Data) and receiver.on_host:
        return False
    if event.method == "map" and isinstance(receiver, Data) and receiver.on_host:
        return True
    if not data or event.method not in _LOOKUPS:
        return False
    if isinstance(receiver, Static):
        return receiver.tag in ("dict", "frame", "object")
    return (
        isinstance(receiver, (Unknown, Instance))
        and event.method in ("get", "lookup")
        and all(one.on_host for one in data)
    )


def _keys(event: Called, data: list[Data], scene: Scene) -> None:
    """Ids that lose digits, and gathers without a check."""
    if event.operation == "take" and event.arguments:
        index = next((argument.value for argument in event.node.args[1:2]), None)
        if isinstance(index, cst.Call) and dotted(index.func).rsplit(".", 1)[-1] in (
            "searchsorted",
            "bucketize",
            "digitize",
        ):
            scene.report("FO404", event.node, "A key that is not in the table gets the row of another one.")
        target = event.arguments[1] if len(event.arguments) > 1 else None
        if (
            isinstance(target, Data)
            and target.origins == {"true"}
            and isinstance(index, cst.Name)
            and scene.root.is_parameter(index.value)
        ):
            severity: dict[str, Severity] = {"jax": "error", "tensorflow": "error"}
            scene.report(
                "FO403",
                event.node,
                f"`{index.value}` arrives as float32 and cannot be an index.",
                f'`ops.cast({index.value}, "int32")`.',
                severity=severity,
            )
    if event.operation not in ("cast", "to", "type") and event.name not in ("builtins.int",):
        return
    source = event.receiver if isinstance(event.receiver, Data) else event.arguments[0] if event.arguments else None
    if not isinstance(source, Data):
        return
    code = scene.file.code(event.node)
    name = scene.root.target_of(event.node)
    subject = dotted(event.node.args[0].value) if event.node.args else ""
    if any(short in code for short in _SHORT_FLOATS) and (_ID.search(subject) or _ID.search(name)):
        scene.report("FO403", event.node, f"`{code[:60]}` makes ids collide.", severity="wrong")
    elif source.origins == {"true"} and "int" in code and _ID.search(name):
        scene.report("FO403", event.node, f"`{name}` comes from y_true, which is float32: ids above 2**24 collide.")


def _wrote(event: Wrote, scene: Scene) -> None:
    if (
        scene.root.kind != "callback"
        and event.how == "entry"
        and any(isinstance(key, Data) and key.origins for key in event.keys)
    ):
        scene.report("FO402", event.node, f"`{event.name}` keeps a value for each sample in Python.")


def _entered(event: Entered, scene: Scene) -> None:
    if scene.root.kind != "loss":
        return
    found = packed_columns(event.node, scene.root)
    if found is None:
        return
    node, names = found
    carries_key = any(_ID.search(name) or "weight" in name.lower() for name in names)
    severity: Severity | None = None if scene.root.has_metrics or carries_key else "info"
    scene.report(
        "FO405",
        node,
        "y_true is split into columns that y_pred does not have: metrics will read them as targets.",
        severity=severity,
    )


HANDLERS: Handlers = {Subscripted: _subscripted, Called: _called, Wrote: _wrote, Entered: _entered}
