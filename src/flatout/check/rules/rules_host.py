"""FO2xx: work on the host inside the step: values read, Python branches, log lines, callbacks, NumPy, files."""

from __future__ import annotations

import re

import libcst as cst

from flatout.check.reading.abstract_values import Data, Sequence, Tuple, Unknown, Value, Variable, data_in, origins_of
from flatout.check.reading.array_results import TO_HOST
from flatout.check.reading.call_results import HOST_CALLBACKS
from flatout.check.reading.events import Asserted, Called, Handlers, Scene, Tested
from flatout.pysource.operation_names import is_host_library
from flatout.pysource.source_file import dotted

from .rule import Rule, Severity

_SYNC = (
    "jax and TensorFlow cannot trace it; torch waits for the device at every step, and the queue of work runs empty."
)

RULES = (
    Rule(
        "FO201",
        "value read on the host",
        "A number of the batch is read in Python: float, int, bool, item, numpy, tolist, convert_to_numpy.",
        _SYNC,
        "Keep the number on the device: `ops.where` for a choice, `ops.take` for a lookup, a metric for a number to "
        "look at.",
        "def loss(y_true, y_pred):\n    error = ops.abs(y_true - y_pred)\n    scale = float(ops.max(error))\n"
        "    return ops.mean(error) / scale",
        "def loss(y_true, y_pred):\n    error = ops.abs(y_true - y_pred)\n    return ops.mean(error) / ops.max(error)",
        "In a callback at the end of an epoch, where one wait costs nothing.",
        "error",
        "error",
        "slow",
    ),
    Rule(
        "FO202",
        "Python branch on a tensor",
        "`if`, `while`, `and`, `or`, `not` or a conditional expression decides by a value of the batch.",
        "The branch has to be taken before the value exists: an error on jax and TensorFlow (AutoGraph is not "
        "applied to losses "
        "and train steps), a wait for the device on torch.",
        "Compute both sides and choose: `ops.where(condition, a, b)`. Guard the input of the side that is not taken "
        "(FO502).",
        "def loss(y_true, y_pred):\n    error = ops.mean(ops.abs(y_true - y_pred))\n    if error > 1.0:\n"
        "        return ops.square(error)\n    return error",
        "def loss(y_true, y_pred):\n    error = ops.mean(ops.abs(y_true - y_pred))\n"
        "    return ops.where(error > 1.0, ops.square(error), error)",
        "The condition is about shapes, dtypes or options: those are known while tracing, and are not reported.",
        "error",
        "error",
        "slow",
    ),
    Rule(
        "FO203",
        "print, log, assert",
        "A log line, a print or an assertion inside the step.",
        "On jax and TensorFlow it runs once, while tracing, and shows no value; with one, it fails. On torch it "
        "waits for the "
        "device at every step.",
        "Drop it, or keep the number in a metric and print it once per epoch.",
        'def loss(y_true, y_pred):\n    error = ops.mean(ops.square(y_true - y_pred))\n    print("loss", '
        "float(error))\n"
        "    return error",
        "def loss(y_true, y_pred):\n    return ops.mean(ops.square(y_true - y_pred))",
        "While you debug.",
        "error",
        "error",
        "slow",
    ),
    Rule(
        "FO204",
        "callback to the host",
        "`tf.py_function`, `tf.numpy_function` or `jax.pure_callback` leaves the compiled step.",
        "The call runs on the host, outside XLA, once per batch: the data are copied there and back, it cannot be "
        "compiled for a "
        "GPU, and scikit-learn in py_function has been seen to hang a training.",
        "Write it with array operations, or compute it once per epoch in a callback.",
        "def metric(y_true, y_pred):\n    return tf.py_function(roc_auc_score, (y_true, y_pred), tf.float64)",
        "metric = keras.metrics.AUC()",
        "There is no array form and the run is short.",
        "slow",
        "slow",
        "slow",
    ),
    Rule(
        "FO205",
        "tensors handed to a host library",
        "NumPy, SciPy, scikit-learn or pandas is given data of the batch.",
        "The tracers of jax and TensorFlow are refused; on torch the data are copied to the host, and no gradient "
        "comes back.",
        "The same from `keras.ops` (`ops.sort`, `ops.argsort`, `ops.top_k`, `ops.searchsorted`), or a "
        "`keras.metrics` class; what "
        "needs all samples, once per epoch in a callback.",
        "def loss(y_true, y_pred):\n    return np.mean(np.abs(y_true - y_pred))",
        "def loss(y_true, y_pred):\n    return ops.mean(ops.abs(y_true - y_pred))",
        "The values are constants that do not come from the batch: those are not reported.",
        "error",
        "error",
        "slow",
    ),
    Rule(
        "FO206",
        "file or process",
        "A file is read or written, or a program is started, inside the step.",
        "On torch it happens at every step (31 reads in 30 steps); on jax and TensorFlow once while tracing, and "
        "what was read is "
        "then stale.",
        "Read it once, outside, and use the array; write from a callback. A score from another program has no "
        "gradient: train a "
        "surrogate, or look at it in a callback.",
        'def loss(y_true, y_pred):\n    weight = np.load("weights.npy")\n    return ops.mean(weight * '
        "ops.square(y_true - y_pred))",
        'WEIGHT = np.ones(3, "float32")  # np.load("weights.npy"), once\n\n\ndef loss(y_true, y_pred):\n'
        "    return ops.mean(WEIGHT * ops.square(y_true - y_pred))",
        "Never inside a loss.",
        "wrong",
        "wrong",
        "slow",
    ),
)

_READS = frozenset(["item", "numpy", "tolist"])
_NUMBERS = frozenset(["builtins.float", "builtins.int", "builtins.bool", "builtins.complex"])
_LOGGING = re.compile(r"^(debug|info|warning|warn|error|critical|exception|log)$")
_LOGGER = re.compile(r"log", re.IGNORECASE)
_PRINTS = frozenset(
    [
        "builtins.print",
        "tensorflow.print",
        "jax.debug.print",
        "sys.stdout.write",
        "sys.stderr.write",
        "tensorflow.debugging.assert_all_finite",
    ]
)
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
_FILE_METHODS = frozenset(
    [
        "read_text",
        "write_text",
        "read_bytes",
        "write_bytes",
        "to_csv",
        "to_parquet",
        "to_pickle",
        "to_json",
        "savefig",
        "save_weights",
    ]
)


def _called(event: Called, scene: Scene) -> None:
    kind = scene.root.kind
    if kind == "callback":
        _in_callback(event, scene)
        return
    _reads(event, scene)
    _logs(event, scene)
    _files(event, scene)
    if event.name in HOST_CALLBACKS:
        scene.report(
            "FO204",
            event.node,
            f"`{_function(event, scene)}` leaves the compiled step: it runs on the host, once per batch.",
        )
        _library_as_argument(event, scene)
    elif is_host_library(event.name):
        _library(event, scene)


def _function(event: Called, scene: Scene) -> str:
    return scene.file.code(event.node.func)


def _reads(event: Called, scene: Scene) -> None:
    if scene.in_callback:
        return
    text = scene.file.code(event.node)
    text = text if len(text) <= 60 and "\n" not in text else _function(event, scene) + "(...)"
    advice = ""
    if (
        (event.name in _NUMBERS and event.arguments and _on_device(event.arguments[0]))
        or (event.method in _READS and event.receiver is not None and _on_device(event.receiver))
        or (event.operation in TO_HOST and event.arguments and _on_device(event.arguments[0]))
        or (event.operation in TO_HOST and event.arguments and isinstance(event.arguments[0], (Tuple, Sequence)))
    ):
        pass
    else:
        return
    if scene.loops:
        advice = (
            "Keep it on the device: the whole column at once, by `ops.take`, `ops.where` or a mask, in the "
            "place of one value at a time."
        )
    scene.report("FO201", event.node, f"`{text}` reads a value on the host.", advice)


def _on_device(value: Value) -> bool:
    return (isinstance(value, Data) and not value.on_host) or isinstance(value, Variable)


def _logs(event: Called, scene: Scene) -> None:
    logger = isinstance(event.node.func, cst.Attribute) and _LOGGER.search(dotted(event.node.func.value))
    is_log = bool(_LOGGING.match(event.method)) and (bool(logger) or event.name.startswith("logging."))
    asserts = event.name.startswith(
        ("tensorflow.debugging.assert", "numpy.testing.", "torch.testing.assert", "jax.debug.breakpoint")
    )
    if event.name not in _PRINTS and not is_log and not asserts:
        return
    everything = [*event.arguments, *event.keywords.values()]
    severity: Severity | dict[str, Severity] | None = None
    if event.name in _COMPILED_PRINTS or asserts:
        severity = "slow"
    elif not origins_of(everything):
        severity = {"jax": "wrong", "tensorflow": "wrong", "torch": "slow"}
    scene.report("FO203", event.node, f"`{_function(event, scene)}` is called inside the step.", severity=severity)


def _files(event: Called, scene: Scene) -> None:
    if FILES.match(event.name) or (event.method in _FILE_METHODS and not isinstance(event.receiver, Data)):
        writes = origins_of([*event.arguments, *event.keywords.values()])
        severity: Severity | None = "error" if writes and scene.root.backend != "torch" else None
        scene.report(
            "FO206",
            event.node,
            f"`{_function(event, scene)}` uses a file or a process inside the step.",
            severity=severity,
        )


def _library(event: Called, scene: Scene) -> None:
    everything = [*event.arguments, *event.keywords.values()]
    data = [one for one in data_in(everything) if one.origins]
    library = event.name.split(".")[0]
    unclear = library in ("sklearn",) and any(isinstance(one, Unknown) for one in everything)
    if not data and not unclear:
        return
    severity: Severity | None = None
    if scene.in_callback:
        severity = "slow"
    advice = ""
    if library == "sklearn":
        advice = (
            "A `keras.metrics` class with additive state (AUC, F1Score, a confusion matrix), or the exact score once "
            "per "
            "epoch in a callback."
        )
    scene.report(
        "FO205",
        event.node,
        f"`{_function(event, scene)}` is given data of the batch, on the host.",
        advice,
        severity=severity,
    )


def _library_as_argument(event: Called, scene: Scene) -> None:
    """`tf.py_function(roc_auc_score, ...)`: the library's function is handed over by name."""
    from flatout.check.reading.abstract_values import External

    function = event.arguments[0] if event.arguments else event.keywords.get("func")
    if isinstance(function, External) and is_host_library(function.name):
        short = function.name.rsplit(".", 1)[-1]
        scene.report("FO205", event.node, f"`{short}` is given data of the batch, on the host.", severity="slow")


_RUNS_THE_MODEL = ("predict", "evaluate", "predict_on_batch", "test_on_batch")


def _in_callback(event: Called, scene: Scene) -> None:
    """What costs in every batch; an epoch's end may do as it likes."""
    if not scene.root.every_batch or scene.in_branch:
        return
    if FILES.match(event.name) or event.method in _FILE_METHODS:
        message = f"`{_function(event, scene)}` uses a file or a process after every batch."
        scene.report("FO206", event.node, message, "Collect in memory, and write in on_epoch_end.", severity="slow")
    elif event.method in _RUNS_THE_MODEL and "model" in dotted(event.node.func):
        message = f"`{_function(event, scene)}` runs the model once more, and reads its outputs, after every batch."
        scene.report("FO201", event.node, message, "Run it in on_epoch_end, or every n-th batch.", severity="slow")
    elif event.name.startswith("sklearn."):
        message = f"`{_function(event, scene)}` is called on the host after every batch."
        scene.report("FO205", event.node, message, "Compute it in on_epoch_end.", severity="slow")
    elif event.method in ("numpy", "get_weights") or event.operation in TO_HOST:
        message = f"`{_function(event, scene)}` reads from the device after every batch."
        scene.report("FO201", event.node, message, "Read in on_epoch_end, or every n-th batch.", severity="slow")


def _tested(event: Tested, scene: Scene) -> None:
    if scene.root.kind == "callback" or not isinstance(event.value, (Data, Variable)):
        return
    if isinstance(event.value, Data) and (event.value.mapping or event.value.role == "all_but_one"):
        return
    if isinstance(event.value, Data) and event.value.on_host and not event.value.origins:
        return
    if scene.in_callback:
        return
    severity: Severity | None = None
    node = event.node.test if isinstance(event.node, (cst.If, cst.While, cst.IfExp)) else event.node
    text = scene.file.code(node)
    scene.report("FO202", event.node, f"Python decides by a value of the batch: `{text[:60]}`.", severity=severity)


def _asserted(event: Asserted, scene: Scene) -> None:
    if scene.root.kind != "callback" and isinstance(event.value, Data):
        scene.report("FO203", event.node, "`assert` needs a value of the batch.")


HANDLERS: Handlers = {Called: _called, Tested: _tested, Asserted: _asserted}
