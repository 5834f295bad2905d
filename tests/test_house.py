"""House rules that a reader of one file cannot see: where imports point, lazy ones included, and that none circle."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import flatout

_ROOT = Path(flatout.__file__).parent
# Which rooms a room may import from (docs/ARCHITECTURE.md); itself always.
_BELOW: dict[str, set[str]] = {
    "base": set(),
    "seam": {"base"},
    "pysource": {"base"},
    "data": {"seam", "base"},
    "tables": {"pysource", "seam", "base"},
    "vectorize": {"pysource", "seam", "base"},
    "engines": {"data", "seam", "base"},
    "native": {"engines", "data", "seam", "base"},
    "training": {"native", "engines", "data", "vectorize", "tables", "seam", "base"},
    "cluster": {"training", "engines", "seam", "base"},
    "fit": {"cluster", "training", "engines", "data", "seam", "base"},
    "many": {"fit", "training", "engines", "data", "seam", "base"},
    "check": {"vectorize", "pysource", "seam", "base"},
    "runner": {"check", "fit", "training", "vectorize", "seam", "base"},
    "doctor": {"runner", "bench", "check", "fit", "training", "vectorize", "engines", "seam", "base"},
    "bench": {"fit", "native", "base"},
    "cli": {"runner", "bench", "check", "doctor", "base"},
}
_EVERYTHING = ("__init__", "__main__")
_FILES_IN_A_FOLDER = 16
_LINES_OF_A_FILE = 400


def _module_name(path: Path) -> str:
    parts = path.relative_to(_ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


@functools.cache
def _files() -> dict[str, Path]:
    return {_module_name(path): path for path in _ROOT.rglob("*.py")}


def _imports(path: Path) -> Iterator[str]:
    """The modules of flatout that a file imports from, anywhere in it, type checking included."""
    package = ["flatout", *path.relative_to(_ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            named = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = base + (node.module.split(".") if node.module else [])
            named = [[*start, alias.name] for alias in node.names]
        elif isinstance(node, (ast.Constant, ast.JoinedStr)):
            # `importlib.import_module(f"flatout.check.probing.{backend}_probe")`
            named = _named_in_text(node)
        else:
            continue
        for parts in named:
            if parts[0] == "flatout":
                yield _longest_module(parts[1:])


def _named_in_text(node: ast.Constant | ast.JoinedStr) -> list[list[str]]:
    start = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    text = start.value if isinstance(start, ast.Constant) else None
    is_module = isinstance(text, str) and text.startswith("flatout.") and text.replace(".", "").isidentifier()
    return [text.rstrip(".").split(".")] if is_module and isinstance(text, str) else []


def _longest_module(parts: list[str]) -> str:
    while parts and ".".join(parts) not in _files():
        parts = parts[:-1]
    return ".".join(parts) or "__init__"


@functools.cache
def _edges() -> dict[str, set[str]]:
    return {name: set(_imports(path)) - {name} for name, path in _files().items()}


def _circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of names that reach each other (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in edges.get(name, ()):
            if other not in number:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            at = stack.index(name)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for name in edges:
        if name not in number:
            visit(name)
    return [group for group in found if len(group) > 1]


def _room(module: str) -> str:
    return module.partition(".")[0]


def test_imports_point_down() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in sorted(_edges().items())
        for other in sorted(others)
        if _room(name) not in _EVERYTHING and _room(other) != _room(name) and _room(other) not in _BELOW[_room(name)]
    ]
    assert wrong == []


def test_the_picture_itself_has_no_circle() -> None:
    assert _circles(_BELOW) == []


def test_no_circle_of_more_than_two_files() -> None:
    # A package's own __init__ only re-exports.
    edges = {name: others - {"__init__"} for name, others in _edges().items() if name not in _EVERYTHING}
    assert [group for group in _circles(edges) if len(group) > 2] == []


def test_rooms_inside_a_room_do_not_circle() -> None:
    """Of the folders beside each other in a room; the files of the room itself put them together."""
    rooms: dict[str, set[str]] = {}
    for name, others in _edges().items():
        folder = _folder(name)
        beside = (_folder(other) for other in others if _room(other) == _room(name))
        rooms.setdefault(folder, set()).update(
            other for other in beside if not folder.startswith(other) and not other.startswith(folder)
        )
    assert _circles(rooms) == []


def _folder(module: str) -> str:
    return module.rpartition(".")[0] if _files()[module].name != "__init__.py" else module


def test_folders_are_small_enough_to_be_read_at_a_glance() -> None:
    counts = Counter(path.parent.relative_to(_ROOT) for path in _ROOT.rglob("*") if path.is_file() and _is_ours(path))
    assert {str(folder): count for folder, count in counts.items() if count > _FILES_IN_A_FOLDER} == {}


def test_files_are_small_enough_to_be_read_in_one_go() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in _files().items()}
    assert {name: length for name, length in lengths.items() if length > _LINES_OF_A_FILE} == {}


def test_a_file_name_means_one_thing() -> None:
    # Every backend's engine has the same two files.
    per_backend = {"engine", "sink"}
    names = Counter(path.stem for path in _files().values() if path.name != "__init__.py")
    assert {name for name, count in names.items() if count > 1} <= per_backend


def test_a_class_name_means_one_thing() -> None:
    names: Counter[str] = Counter()
    for path in _files().values():
        public = (node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))
        names.update(name for name in public if not name.startswith("_"))
    assert {name for name, count in names.items() if count > 1} == set()


def test_keras_internals_are_touched_in_the_seam_and_the_engines_alone() -> None:
    touching = {
        name: found
        for name, path in _files().items()
        if _room(name) not in ("seam", "engines") and (found := sorted(_internals(ast.parse(path.read_text()))))
    }
    assert touching == {}


# Attributes that Keras keeps to itself, of what a `fit` meets: models, optimizers, losses, adapters, callbacks.
_PRIVATE_NAMES = """
    _assert_compile_called _async_ _average_gradients _called_in_fit _compile_loss
    _compile_metrics _compute_loss _current_iterator _distribute_strategy _distribution _enumerate_iterator
    _epoch_iterator _eval_epoch_iterator _first_batches _flat_losses _flat_metrics _flat_weighted_metrics
    _flatten_layers _flatten_metrics_in_order _flush_futures _fn _fn_kwargs _functional _get_current_learning_rate
    _get_iterator _get_jax_state _get_metrics_result_or_logs _get_own_losses _get_variable_index _inbound_nodes
    _initial_epoch _inputs_struct _is_default _iterations _jax_state _jax_state_synced _jit_compile _keras_history
    _layers _learning_rate _loss_tracker _losses _metrics _momentums _num_batches _num_samples _outputs_struct
    _run_eagerly _should_eval _should_save_on_batch _should_trace _standardize_batch _steps_seen _symbolic_build
    _torchdynamo_orig_callable _tracker _trainable_variables _use_cached_eval_dataset _use_weight_decay _user_loss
    _user_metrics _user_weighted_metrics _velocities _velocity_hats
"""
_PRIVATE_TO_KERAS = frozenset(_PRIVATE_NAMES.split())
# What is called so is Keras', and so are all its private attributes.
_OF_KERAS = ("adapter", "callback", "callbacks", "iterator", "layer", "metric", "model", "optimizer", "variable")


def _internals(tree: ast.Module) -> Iterator[str]:
    """What a file says of Keras' internals: modules and private attributes of others' objects, in strings too."""
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("keras.src"))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in full if name.startswith("keras.src"))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            if "keras.src" in node.value or node.value in _PRIVATE_TO_KERAS:
                yield node.value
        elif isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            of = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if of in _OF_KERAS or (node.attr in _PRIVATE_TO_KERAS and of not in ("self", "cls")):
                yield node.attr
        elif isinstance(node, ast.keyword) and node.arg in _PRIVATE_TO_KERAS:
            yield str(node.arg)


def test_what_is_internal_is_found_however_it_is_spelled() -> None:
    spelled = """
import keras.src.trainers
from keras.src import utils
from keras import src as keras_src, ops
path = f"keras.src.backend.{backend}.trainer"
model._symbolic_build(batch)
getattr(model, "_compile_loss")
model.evaluate(x, _use_cached_eval_dataset=True)
self._losses = self.adapter._dataset
def f():
    "A docstring may say keras.src."
"""
    assert sorted(_internals(ast.parse(spelled))) == [
        "_compile_loss",
        "_dataset",
        "_symbolic_build",
        "_use_cached_eval_dataset",
        "keras.src",
        "keras.src.backend.",
        "keras.src.trainers",
        "keras.src.utils",
    ]


def _is_ours(path: Path) -> bool:
    return "__pycache__" not in path.parts
