"""FO3xx: what happens once while tracing and is meant at every step, and what happens at every step and need not."""

from __future__ import annotations

import ast
import re

from flatout.check.reading.call_results import VARIABLES
from flatout.check.reading.events import Called, Decorated, Entered, Handlers, Read, Wrote
from flatout.check.reading.walking import Walking
from flatout.check.values import abstract_values as av
from flatout.pysource.repeats import repeated_work
from flatout.pysource.spellings import is_host_library

from .rule import Severity

_LOADS = re.compile(
    r"^(numpy\.(load|loadtxt|genfromtxt|fromfile|memmap)|pandas\.read_\w+|polars\.(read|scan)_\w+|json\.loads?|pickle\.loads?"
    r"|joblib\.load|yaml\.(safe_)?load|torch\.load|torch\.hub\.load|keras\.(saving|models)\.load_model|tensorflow\.saved_model\.load"
    r"|tensorflow_hub\.load|keras\.applications\.\w+|keras\.layers\.(StringLookup|IntegerLookup|TextVectorization)"
    r"|tensorflow\.lookup\.\w+|transformers\..*from_pretrained)$"
)
_REBUILDS = frozenset({
    "set_index", "reset_index", "sort_values", "sort_index", "merge", "join", "groupby", "pivot", "pivot_table",
    "to_dict", "drop_duplicates", "melt", "stack", "unstack", "explode",
})  # fmt: skip
_LAYERS = re.compile(
    r"^(keras\.layers\.(Dense|Conv\w*|Embedding|LSTM|GRU|SimpleRNN|BatchNormalization|LayerNormalization|PReLU|EinsumDense"
    r"|MultiHeadAttention|\w*Conv\w*)|keras\.(Sequential|models\.Sequential|Model)|torch\.nn\.(Linear|Conv\w*|Embedding|LSTM|GRU))$"
)
_CLOCKS = re.compile(
    r"^(time\.(time|perf_counter|monotonic)|datetime\.(datetime|date)\.(now|today|utcnow)|os\.(getenv|environ\.get))$"
)
# What Python holds, and a trace takes as it is.
_PYTHON_STATE = ("number", "dict", "list", "array", "frame", "none")
_COMPILERS = frozenset(["tensorflow.function", "jax.jit", "torch.compile", "torch.jit.script", "torch.jit.trace"])
_NETWORKS = re.compile(r"^(keras\.(layers|models|applications|Model|Sequential)|torch\.nn)\b.*(?<!Loss)\(\)$")
_SHAPING = frozenset({"conv", "conv2d", "conv3d"})
_SORTING = frozenset({"sort", "argsort", "unique", "lexsort", "histogram", "cut", "qcut", "rankdata", "cumsum"})


def _called(event: Called, scene: Walking) -> None:
    everything = event.everything
    loads = _LOADS.match(event.name) is not None
    if (loads or (event.method in _REBUILDS and _is_tagged(event.receiver, "frame"))) and not av.origins_of(everything):
        message = f"`{{}}` {'loads a constant' if loads else 'builds the same table'} at every call."
        advice = f"Move `{scene.excerpt(event.node)}` to the top of the module and use the result."
        scene.report("FO301", event.node, message, advice)
    adds_weight = event.method in ("add_weight", "add_variable") and scene.root.kind == "loss"
    if event.name in VARIABLES or _LAYERS.match(event.name) or adds_weight:
        scene.report("FO302", event.node, "`{}` creates variables inside the step.")
    if event.name.startswith(("numpy.random.", "random.")) or _is_tagged(event.receiver, "rng"):
        scene.report("FO304", event.node, "`{}` draws on the host: once, while tracing, on jax and TensorFlow.")
    if _CLOCKS.match(event.name):
        message = "`{}` is read while tracing: the same value at every step on jax and TensorFlow."
        scene.report("FO303", event.node, message, severity={"torch": "info"})
    if event.name == "builtins.next" and event.arguments and isinstance(event.arguments[0], (av.Static, av.Unknown)):
        iterator = event.node.args[0]
        if isinstance(iterator, ast.Name) and scene.root.is_outside(iterator.id):
            scene.report("FO303", event.node, f"`{scene.code(event.node)}` advances an iterator while tracing.")
    if _NETWORKS.match(event.name) and av.data_in(everything):
        _runs_another_model(event, scene)
    if event.name in _COMPILERS:
        scene.report("FO308", event.node, "`{}` compiles a new function at every call.")
    _labels_only(event, scene)


def _runs_another_model(event: Called, scene: Walking) -> None:
    """A model or layer from outside is called: its weights are nobody's, and its view of the labels never changes."""
    if scene.root.holds_no_weights:
        message = "`{}` has weights that the trained model does not track: on jax they are constants of the step."
        scene.report("FO305", event.node, message, severity="info")
    if av.origins_of(event.everything) == {"true"}:
        message = "`{}` sees y_true alone here, and computes the same again in every epoch."
        scene.report("FO307", event.node, message, severity="info")


def _decorated(event: Decorated, scene: Walking) -> None:
    if event.name in _COMPILERS:
        sign = ast.copy_location(ast.Pass(), event.node)
        sign.col_offset -= 1
        scene.report("FO308", sign, "`{}` compiles a new function at every call.")


def _is_tagged(value: av.AbstractValue | None, tag: str) -> bool:
    return isinstance(value, av.Static) and value.tag == tag


def _labels_only(event: Called, scene: Walking) -> None:
    """Costly work on y_true alone: filters, and sorting and the like on the host."""
    short = event.name.rsplit(".", 1)[-1]
    on_host = is_host_library(event.name) and (
        short in _SORTING or event.name.startswith(("scipy.", "skimage.", "cv2."))
    )
    if not on_host and event.operation not in _SHAPING:
        return
    if av.origins_of(event.everything) == {"true"}:
        scene.report("FO307", event.node, "`{}` depends on y_true alone, and is computed again in every epoch.")


def _wrote(event: Wrote, scene: Walking) -> None:
    if event.how in ("global", "nonlocal"):
        scene.report(
            "FO303",
            event.node,
            f"`{event.name}` is changed while tracing, not at every step.",
            "Data that belong to a batch travel with it: a table keyed by a sample id in x (`flatout.Table`). A step "
            "counter is a "
            "weight of the model.",
        )
    elif event.how == "attribute":
        if event.counts and _is_tagged(event.before, "number"):
            message = f"`self.{event.name}` is a Python number that is changed while tracing, not at every step."
            scene.report("FO303", event.node, message)
    elif event.how == "grown":
        scene.report("FO303", event.node, f"The list `{event.name}` grows while tracing, not at every step.")
    elif isinstance(event.before, (av.Static, av.Unknown, av.Tuple)) and not av.data_in([*event.keys, event.value]):
        scene.report("FO303", event.node, f"An entry of `{event.name}` is changed while tracing, not at every step.")


def _read(event: Read, scene: Walking) -> None:
    root, value, owner = scene.root, event.value, event.attribute_of
    if any(isinstance(one, av.Variable) for one in av.flat([value])):
        holds_none = root.is_untracked(owner.of) if isinstance(owner, av.Instance) else root.holds_no_weights
        if holds_none:
            message = "`{}` is a variable that the model does not track: on jax its value is frozen."
            severity: Severity | None = None if event.name in root.facts.assigned else "info"
            scene.report("FO305", event.node, message, severity=severity)
        return
    is_constant = isinstance(value, av.Static) and value.tag in _PYTHON_STATE
    is_plain = is_constant or isinstance(value, (av.Tuple, av.Counter))
    if owner is None and event.name in root.facts.bound_late.get(id(root.function.node), ()):
        message = "`{}` is the variable of the loop that made this function, and has its last value in all of them."
        advice = f"Bind it where the function is made: `{event.name}={event.name}`."
        scene.report("FO303", event.node, message, advice, "wrong")
        return
    if owner is None:
        by_loop = isinstance(value, av.Unknown) and event.name in root.facts.changed_between_fits
        changes = (is_plain or by_loop) and root.changes_elsewhere(event.name)
    else:
        by_others = (is_plain or isinstance(value, av.Unknown)) and event.name in root.facts.attributes
        by_methods = is_plain and root.is_changed_by_a_method(event.name, owner)
        changes = (by_others or by_methods) and not (isinstance(owner, av.Instance) and owner.is_fresh)
    if changes:
        message = (
            "`{}` is changed elsewhere, but its value is taken while tracing: jax and TensorFlow never see the change."
        )
        scene.report("FO303", event.node, message, severity={"torch": "info"})


def _entered(event: Entered, scene: Walking) -> None:
    for node, _, count in repeated_work(event.node, scene.file):
        text = scene.excerpt(node)
        message = f"`{text}` is computed {count} times with the same inputs."
        scene.report("FO306", node, message, f"Compute it once: `name = {text}`.")
    # `model.input` in a loss: a symbolic tensor of the model, which no step can give a value.
    for node in scene.root.symbolic_inputs():
        scene.report(
            "FO303",
            node,
            f"`{scene.code(node)}` is the model's symbolic input, which has no value in the loss: Keras raises.",
            "Keras 3 hands x to `compute_loss(x, y, y_pred, ...)`: override it (or write `@flatout.loss def "
            "f(y_true, y_pred, x)`). "
            "An extra key in x must be declared as an Input, because Keras matches a dict by the sorted position of "
            "its keys.",
            severity="info",
        )


IN_CALLBACKS: Handlers = {Entered: _entered}
HANDLERS: Handlers = {Called: _called, Wrote: _wrote, Read: _read, Entered: _entered, Decorated: _decorated}
