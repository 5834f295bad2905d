"""What determines the bytes of a prediction, as short texts to compare: the model, its weights, its input."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import sys
import warnings
from typing import Any

import numpy as np

from flatout.base.when_used import keras, tree
from flatout.data.columnar.table_rows import TableRows
from flatout.data.files.file_rows import files_of
from flatout.data.files.npy_files import SideBySide, extents
from flatout.data.stream.chunks import as_host_array, leaves_of
from flatout.seam.keras_names import is_of_keras
from flatout.seam.layers import all_layers

# Arrays in memory are looked at as a whole up to this size (about a second), and larger ones at as many bytes of rows
# spread over them.
_MOST_BYTES = 2**30
_SAMPLES = 1024


def of_model(model: Any) -> str:
    """A hash of a model's architecture, and of the Python of classes that are not Keras'."""
    digest = hashlib.sha256(_class_name(type(model)).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # A class of the user may have no `get_config`; its source says more.
        with contextlib.suppress(Exception):
            config = keras.saving.serialize_keras_object(model)
            described = {key: value for key, value in config.items() if not key.startswith(("compile", "build"))}
            digest.update(json.dumps(described, sort_keys=True).encode())
    classes = {type(layer) for layer in (model, *all_layers(model))}
    for kind in sorted((kind for kind in classes if not is_of_keras(kind)), key=_class_name):
        digest.update(_class_name(kind).encode())
        # There is none of what was typed into an interpreter.
        with contextlib.suppress(OSError, TypeError):
            digest.update(inspect.getsource(kind).encode())
    return digest.hexdigest()


def of_variables(variables: list[Any]) -> str:
    """A hash of the values of variables."""
    digest = hashlib.sha256()
    for variable in variables:
        _add_array(digest, keras.ops.convert_to_numpy(variable.value))
    return digest.hexdigest()


def of_arrays(inputs: Any) -> str:
    """A hash of arrays: of where they lie, for files, and of what they hold, for arrays in memory."""
    digest = hashlib.sha256(str(tree.map_structure(lambda _: 0, inputs)).encode())
    for leaf in leaves_of(inputs):
        _add_leaf(digest, leaf)
    return digest.hexdigest()


def of_software(backend: str) -> str:
    """The versions of what computes."""
    from flatout.base.version import __version__

    return f"flatout {__version__}, Keras {keras.__version__}, {backend} {sys.modules[backend].__version__}"


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _add_leaf(digest: Any, leaf: Any) -> None:
    digest.update(f"{tuple(leaf.shape)} {getattr(leaf, 'dtype', None)}".encode())
    if isinstance(leaf, SideBySide):
        for array in leaf.arrays:
            _add_leaf(digest, array)
        return
    parts = extents(leaf)
    for part in parts:
        digest.update(f"{part.path.absolute()} {part.offset} {part.shape[0]}".encode())
    if isinstance(leaf, TableRows):
        digest.update(leaf.description.encode())
    if parts or isinstance(leaf, TableRows):
        for path in files_of(leaf):
            status = path.stat()
            digest.update(f"{path.absolute()} {status.st_size} {status.st_mtime_ns}".encode())
        return
    array = as_host_array(leaf)
    if array.nbytes <= _MOST_BYTES:
        _add_array(digest, array)
        return
    rows_each = max(1, _MOST_BYTES // _SAMPLES // max(1, array.nbytes // len(array)))
    for start in np.linspace(0, max(0, len(array) - rows_each), _SAMPLES).astype(int):
        _add_array(digest, array[start : start + rows_each])


def _add_array(digest: Any, array: np.ndarray) -> None:
    digest.update(f"{array.shape} {array.dtype}".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
