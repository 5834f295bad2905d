"""FO4xx: lookups, joins and group-bys inside the step, and the keys that they need."""

from __future__ import annotations

import ast
import re

from flatout.check.reading.call_results import LOOKUPS_OF_OBJECTS
from flatout.check.reading.events import Called, Entered, Handlers, Subscripted, Wrote
from flatout.check.reading.walking import Walking
from flatout.check.values.abstract_values import Data, Instance, Sequence, Static, Tuple, Unknown, data_in
from flatout.pysource.trees import FunctionNode, dotted, given_values, index_parts, last_name, number_of, walk

from .rule import Severity

_LOOKUPS = frozenset({
    "get", "loc", "iloc", "at", "iat", "xs", "reindex", "map", "lookup", "query", "isin", "where", "index",
    "searchsorted", "asof", "__getitem__",
})  # fmt: skip
_INTERVALS = frozenset({
    "pandas.cut", "pandas.qcut", "numpy.digitize", "bisect.bisect", "bisect.bisect_left", "bisect.bisect_right",
})  # fmt: skip
_HASHES = ("keras.layers.StringLookup", "keras.layers.IntegerLookup", "keras.layers.Hashing")
_ID = re.compile(
    r"(^|_)(id|ids|idx|index|key|keys|uid|sample|samples|user|item|account|store|customer)s?$", re.IGNORECASE
)
_SPLITTING = frozenset(["split", "unstack", "unbind", "chunk"])
_SHORT_FLOATS = ("float16", "bfloat16", "half")


def _subscripted(event: Subscripted, scene: Walking) -> None:
    if event.written:
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
        scene.report("FO401", event.node, "`{}` is looked up on the host, by a value of the batch.")


def _called(event: Called, scene: Walking) -> None:
    everything = event.everything
    data = [one for one in data_in(everything) if one.origins]
    receiver = event.receiver
    host_receiver = isinstance(receiver, Data) and receiver.on_host
    if event.method in ("merge", "join", "merge_asof") or event.name in ("pandas.merge", "pandas.merge_asof"):
        is_text = isinstance(receiver, Static) and receiver.tag == "text"
        if (data or host_receiver) and not is_text:
            scene.report("FO402", event.node, "`{}` joins a table with the batch, on the host.")
        return
    if (event.method == "groupby" and (host_receiver or data)) or (
        event.name in ("itertools.groupby", "collections.Counter", "collections.defaultdict") and data
    ):
        scene.report("FO406", event.node, "`{}` groups the batch on the host.")
    elif _is_lookup(event, data):
        scene.report("FO401", event.node, "`{}` is a lookup on the host, by a value of the batch.")
        if event.method in ("get", "reindex", "map") and len(everything) == 1:
            scene.report("FO404", event.node, "`{}` has no default for keys that are missing.")
    elif event.name in _INTERVALS and data:
        message = "`{}` finds the interval of each value on the host."
        advice = (
            '`ops.searchsorted(edges, y_true, side="right") - 1` and a gather; `flatout.Table` takes intervals as keys.'
        )
        scene.report("FO401", event.node, message, advice)
    elif event.name.startswith(_HASHES) and event.name.endswith("()"):
        message = "`{}` is a hash table of the host: it does not compile under XLA."
        scene.report("FO401", event.node, message, severity={"tensorflow": "slow"})
    _keys(event, data, scene)


def _is_lookup(event: Called, data: list[Data]) -> bool:
    receiver = event.receiver
    if event.method in ("apply", "map") and isinstance(receiver, Data) and receiver.on_host:
        return event.method == "map"
    if not data or event.method not in _LOOKUPS:
        return False
    if isinstance(receiver, Static):
        is_object = receiver.tag == "object" and event.method in LOOKUPS_OF_OBJECTS
        return receiver.tag in ("dict", "frame") or is_object
    is_object = isinstance(receiver, (Unknown, Instance)) and event.method in ("get", "lookup")
    return is_object and all(one.on_host for one in data)


def _keys(event: Called, data: list[Data], scene: Walking) -> None:
    """Ids that lose digits, and gathers without a check."""
    if event.operation == "take" and event.arguments:
        index = next(iter(given_values(event.node)[1:]), None)
        if isinstance(index, ast.Call) and last_name(index.func) in ("searchsorted", "bucketize", "digitize"):
            scene.report("FO404", event.node, "A key that is not in the table gets the row of another one.")
        target = event.at(1)
        is_truth = isinstance(target, Data) and target.origins == {"true"}
        if is_truth and isinstance(index, ast.Name) and scene.root.is_parameter(index.id):
            severity: dict[str, Severity] = {"jax": "error", "tensorflow": "error"}
            message, advice = (
                f"`{index.id}` arrives as float32 and cannot be an index.",
                f'`ops.cast({index.id}, "int32")`.',
            )
            scene.report("FO403", event.node, message, advice, severity)
    source = event.receiver if isinstance(event.receiver, Data) else event.at(0)
    casts = event.operation in ("cast", "to", "type") or event.name == "builtins.int"
    if not casts or not isinstance(source, Data):
        return
    code = scene.code(event.node)
    name = scene.root.target_of(event.node)
    subject = dotted(next(iter(given_values(event.node)), None))
    if any(short in code for short in _SHORT_FLOATS) and (_ID.search(subject) or _ID.search(name)):
        scene.report("FO403", event.node, f"`{code[:60]}` makes ids collide.", severity="wrong")
    elif source.origins == {"true"} and "int" in code and _ID.search(name):
        scene.report("FO403", event.node, f"`{name}` comes from y_true, which is float32: ids above 2**24 collide.")


def _wrote(event: Wrote, scene: Walking) -> None:
    if event.how == "entry" and any(isinstance(key, Data) and key.origins for key in event.keys):
        scene.report("FO402", event.node, f"`{event.name}` keeps a value for each sample in Python.")


def _entered(event: Entered, scene: Walking) -> None:
    if scene.root.kind != "loss":
        return
    found = _packed_columns(event.node, scene.root.true_name, scene.root.pred_name)
    if found is None:
        return
    node, names = found
    carries_key = any(_ID.search(name) or "weight" in name.lower() for name in names)
    severity: Severity | None = None if scene.root.facts.has_metrics or carries_key else "info"
    message = "y_true is split into columns that y_pred does not have: metrics will read them as targets."
    scene.report("FO405", node, message, severity=severity)


def _packed_columns(function: FunctionNode, true: str, pred: str) -> tuple[ast.expr, tuple[str, ...]] | None:
    """The first place where y_true is taken apart, and the names that its columns are given; None if it is not."""
    if not true or not pred:
        return None
    assignments = [node for node in walk(function) if isinstance(node, ast.Assign)]
    splits = {name: node for node in assignments if (name := _split(node))}
    if true in splits and pred not in splits:
        return splits[true].value, tuple(dotted(one) for one in splits[true].targets[0].elts)  # type: ignore[attr-defined]
    truth, guess = _columns(function, true), _columns(function, pred)
    if len(truth) < 2 or set(guess) == set(truth) or len(guess) > 1:
        return None
    places = set(map(id, truth.values()))
    names = [
        target.id
        for node in assignments
        for whole in node.targets
        for target, value in _pairs(whole, node.value)
        if isinstance(target, ast.Name) and any(id(one) in places for one in walk(value))
    ]
    return next(iter(truth.values())), tuple(names)


def _columns(function: ast.AST, name: str) -> dict[str, ast.Subscript]:
    """The constant selections along the last axis of a name, by how they are written."""
    found = {}
    for node in walk(function):
        if isinstance(node, ast.Subscript) and dotted(node.value) == name and len(index_parts(node)) > 1:
            last = index_parts(node)[-1]
            ends = [one for one in ((last.lower, last.upper) if isinstance(last, ast.Slice) else (last,)) if one]
            if ends and all(map(_is_integer, ends)):
                found[ast.unparse(last)] = node
    return found


def _is_integer(node: ast.expr) -> bool:
    return isinstance(number_of(node.operand if isinstance(node, ast.UnaryOp) else node), int)


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    is_apart = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
    return list(zip(target.elts, value.elts, strict=False)) if is_apart else [(target, value)]  # type: ignore[attr-defined]


def _split(node: ast.Assign) -> str:
    """`y` of `target, weight = ops.split(y, 2, axis=-1)`; empty for anything else."""
    call = node.value
    if not isinstance(call, ast.Call) or last_name(call.func) not in _SPLITTING or not call.args:
        return ""
    axis = [ast.unparse(one) for one in given_values(call)[1:]]
    is_last = isinstance(node.targets[0], ast.Tuple) and ("-1" in axis or "1" in axis[-1:])
    return dotted(call.args[0]) if is_last else ""


HANDLERS: Handlers = {Subscripted: _subscripted, Called: _called, Wrote: _wrote, Entered: _entered}
