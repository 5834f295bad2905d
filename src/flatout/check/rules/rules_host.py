"""FO2xx: work on the host inside the step: values read, Python branches, log lines, callbacks, NumPy, files."""

from __future__ import annotations

import ast
import re

from flatout.check.reading.call_results import HOST_CALLBACKS
from flatout.check.reading.events import Called, Handlers, Tested
from flatout.check.reading.walking import Walking
from flatout.check.values import abstract_values as av
from flatout.check.values.abstract_values import Data
from flatout.check.values.array_results import TO_HOST
from flatout.pysource.spellings import is_host_library
from flatout.pysource.trees import dotted

from .rule import Severity

_READS = frozenset(["item", "numpy", "tolist"])
_NUMBERS = frozenset(["builtins.float", "builtins.int", "builtins.bool", "builtins.complex"])
_RUNS_THE_MODEL = frozenset(["predict", "evaluate", "predict_on_batch", "test_on_batch"])
_LOGGING = re.compile(r"^(debug|info|warning|warn|error|critical|exception|log)$")
_MEASURES = re.compile(r"loss|acc|err|norm|grad|metric|pred", re.IGNORECASE)
_LOGGER = re.compile(r"log", re.IGNORECASE)
_PRINTS = frozenset({
    "builtins.print", "tensorflow.print", "jax.debug.print", "sys.stdout.write", "sys.stderr.write",
    "tensorflow.debugging.assert_all_finite",
})  # fmt: skip
_COMPILED_PRINTS = frozenset(["tensorflow.print", "jax.debug.print"])
FILES = re.compile(
    r"^(builtins\.open|io\.open|os\.(system|popen|remove|makedirs|mkdir|listdir|rename|replace|stat|path\.(exists|isfile|isdir|getsize|getmtime))|subprocess\..*|shutil\..*"
    r"|numpy\.(load|save|savez|savez_compressed|loadtxt|savetxt|genfromtxt|fromfile|memmap)"
    r"|pandas\.(read_\w+|HDFStore|ExcelFile)|polars\.(read_\w+|scan_\w+)|json\.(load|dump)|pickle\.(load|dump)|joblib\.(load|dump)"
    r"|yaml\.(load|safe_load|dump)|torch\.(load|save)|keras\.(saving\.load_model|models\.load_model|models\.save_model)|h5py\.File"
    r"|sqlite3\.connect|requests\..*|urllib\..*|socket\..*|scipy\.io\..*|soundfile\.(read|write)|cv2\.(imread|imwrite)"
    r"|matplotlib\.pyplot\.savefig|PIL\.Image\.open|tensorflow\.(io\.read_file|io\.write_file|io\.gfile\..*|saved_model\.load)|time\.sleep"
    r"|pathlib\.Path\.(read|write)_\w+)$"
)
_FILE_METHODS = frozenset({
    "read_text", "write_text", "read_bytes", "write_bytes", "to_csv", "to_parquet", "to_pickle", "to_json", "savefig",
    "save_weights",
})  # fmt: skip
_GIVEN = "`{}` is given data of the batch, on the host."


def _called(event: Called, scene: Walking) -> None:
    _reads(event, scene)
    _runs_a_model(event, scene)
    _logs(event, scene)
    _files(event, scene)
    if event.name in HOST_CALLBACKS:
        scene.report("FO204", event.node, "`{}` leaves the compiled step: it runs on the host, once per batch.")
        _library_as_argument(event, scene)
    elif is_host_library(event.name):
        _library(event, scene)


def _reads(event: Called, scene: Walking) -> None:
    if scene.in_callback:
        return
    to_host = event.operation in TO_HOST
    if not (
        ((event.name in _NUMBERS or to_host) and _on_device(event.first))
        or (event.method in _READS and _on_device(event.receiver))
        or (to_host and isinstance(event.first, (av.Tuple, av.Sequence)))
    ):
        return
    message = f"`{scene.excerpt(event.node)}` reads a value on the host."
    advice = (
        "Keep it on the device: the whole column at once, by `ops.take`, `ops.where` or a mask, in the "
        "place of one value at a time."
    )
    scene.report("FO201", event.node, message, advice if scene.loops else "")


def _runs_a_model(event: Called, scene: Walking) -> None:
    """`predict` and the like: a loop of Keras' own over NumPy arrays, which no compiled step can hold."""
    is_model = isinstance(event.receiver, (av.Unknown, av.Instance, av.Static)) or event.name.startswith("keras.")
    if event.method in _RUNS_THE_MODEL and is_model and not scene.in_callback:
        message = "`{}` reads its inputs on the host, and gives NumPy arrays without a gradient."
        model = scene.code(event.node.func).rpartition(".")[0]
        advice = f"Call the model, `{model}(x, training=False)`; what depends on the data alone, before training."
        scene.report("FO201", event.node, message, advice)


def _on_device(value: av.AbstractValue | None) -> bool:
    return (isinstance(value, Data) and not value.on_host) or isinstance(value, av.Variable)


def _logs(event: Called, scene: Walking) -> None:
    logger = isinstance(event.node.func, ast.Attribute) and _LOGGER.search(dotted(event.node.func.value))
    is_log = bool(_LOGGING.match(event.method)) and (bool(logger) or event.name.startswith("logging."))
    asserts = event.name.startswith(
        ("tensorflow.debugging.assert", "numpy.testing.", "torch.testing.assert", "jax.debug.breakpoint")
    )
    if event.name not in _PRINTS and not is_log and not asserts:
        return
    severity: Severity | dict[str, Severity] | None = None
    if event.name in _COMPILED_PRINTS or asserts:
        severity = "slow"
    elif not av.origins_of(event.everything):
        severity = {"jax": "wrong", "tensorflow": "wrong", "torch": "slow"}
    scene.report("FO203", event.node, "`{}` is called inside the step.", severity=severity)


def _files(event: Called, scene: Walking) -> None:
    if FILES.match(event.name) or (event.method in _FILE_METHODS and not isinstance(event.receiver, Data)):
        traced: dict[str, Severity] = {"jax": "error", "tensorflow": "error"} if av.origins_of(event.everything) else {}
        scene.report("FO206", event.node, "`{}` uses a file or a process inside the step.", severity=traced)


def _library(event: Called, scene: Walking) -> None:
    is_sklearn = event.name.startswith("sklearn.")
    unclear = is_sklearn and any(isinstance(one, av.Unknown) for one in event.everything)
    if not unclear and not any(one.origins for one in av.data_in(event.everything)):
        return
    advice = (
        "A `keras.metrics` class with additive state (AUC, F1Score, a confusion matrix), or the exact score once per "
        "epoch in a callback."
    )
    severity: Severity | None = "slow" if scene.in_callback else None
    scene.report("FO205", event.node, _GIVEN, advice if is_sklearn else "", severity=severity)


def _library_as_argument(event: Called, scene: Walking) -> None:
    """`tf.py_function(roc_auc_score, ...)`: the library's function is handed over by name."""
    function = event.arguments[0] if event.arguments else event.keywords.get("func")
    if isinstance(function, av.External) and is_host_library(function.name):
        scene.report("FO205", event.node, _GIVEN.format(function.name.rpartition(".")[2]), severity="slow")


def _in_callback(event: Called, scene: Walking) -> None:
    """What costs in every batch; an epoch's end may do as it likes."""
    if not scene.root.every_batch or scene.in_branch:
        return
    if FILES.match(event.name) or event.method in _FILE_METHODS:
        code, does, advice = "FO206", "uses a file or a process", "Collect in memory, and write in on_epoch_end."
    elif event.method in _RUNS_THE_MODEL and "model" in dotted(event.node.func):
        code, does = "FO201", "runs the model once more, and reads its outputs,"
        advice = "Run it in on_epoch_end, or every n-th batch."
    elif event.name.startswith("sklearn."):
        code, does, advice = "FO205", "is called on the host", "Compute it in on_epoch_end."
    elif event.method in ("numpy", "get_weights") or event.operation in TO_HOST or _waits_for_loss(event, scene):
        code, does, advice = "FO201", "reads from the device", "Read in on_epoch_end, or every n-th batch."
    else:
        return
    scene.report(code, event.node, f"`{{}}` {does} after every batch.", advice, severity="slow")


def _waits_for_loss(event: Called, scene: Walking) -> bool:
    """`loss.item()` or `float(loss)` in a training loop: the device stands still until the host has it."""
    if scene.root.kind != "loop":
        return False
    is_number = event.name in _NUMBERS and isinstance(event.first, (Data, av.Unknown))
    return event.method in ("item", "tolist") or (is_number and bool(_MEASURES.search(scene.code(event.node))))


def _tested(event: Tested, scene: Walking) -> None:
    value = event.value
    if isinstance(event.node, ast.Assert):
        if isinstance(value, Data):
            scene.report("FO203", event.node, "`assert` needs a value of the batch.")
        return
    if scene.in_callback or not isinstance(value, (Data, av.Variable)):
        return
    if isinstance(value, Data) and (
        value.mapping or value.role == "all_but_one" or (value.on_host and not value.origins)
    ):
        return
    node = event.node
    if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Match)):
        node = node.subject if isinstance(node, ast.Match) else node.test
    scene.report("FO202", event.node, f"Python decides by a value of the batch: `{scene.code(node)[:60]}`.")


HANDLERS: Handlers = {Called: _called, Tested: _tested}
IN_CALLBACKS: Handlers = {Called: _in_callback}
