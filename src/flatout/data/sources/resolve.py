"""The first look at what the user passes as data: paths and frames become arrays, all else is left as it is.

A name such as `y="label"` is a column of `x` where `x` is a table or an archive of named arrays. Everything that is
wrong with files, columns and names is said here, before step 0.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.foreign_columns import is_series
from flatout.base.when_used import keras, tree
from flatout.data.columnar import frame_columns as frames
from flatout.data.columnar.frame_columns import Frame, codes_of_model, shortened
from flatout.data.columnar.stored_tables import SUFFIXES as TABLES
from flatout.data.columnar.stored_tables import open_tables
from flatout.data.columnar.table_rows import TableFrame
from flatout.data.files.npy_files import Archive, joined, open_npy

from . import images

_SUFFIXES = (".npy", ".npz", *TABLES)
# Arrays that have names.
Named = Frame | Archive
_EXPECTED = f"Expected a file that ends in {', '.join(_SUFFIXES)}, a pattern such as 'x-*.npy', or a folder of images."


def resolve(model: Any, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
    """Turn paths, frames and names of columns into arrays that Keras takes.

    What it takes as it is comes back untouched, the same objects. The names and shapes of the model's inputs decide
    what becomes of columns. For a folder of images with class subfolders `y` holds their labels if it was None.
    """
    takes_names = any(isinstance(leaf, str) for leaf in tree.flatten((y, sample_weight)))
    wants_columns = frames.is_frame(x) and (takes_names or len(_inputs_of(model)) > 1)
    if not wants_columns and not any(_needs_work(leaf) for leaf in tree.flatten((x, y, sample_weight))):
        return x, y, sample_weight
    if is_series(x):
        source = frames.as_array(x, "x", model) if _needs_work(x) else x
    else:
        source = frames.open_frame(x, model) if wants_columns else _opened(x, "x", model)
    targets = tuple(
        _target(value, argument, source, model) for argument, value in (("y", y), ("sample_weight", sample_weight))
    )
    if isinstance(source, images.ImageFolder):
        pixels = _images(source, model)
        if y is None and source.classes:
            return pixels, codes_of_model(model, ("y", "class folders"), source.classes, source.labels), targets[1]
        return pixels, *targets
    if isinstance(source, Named):
        taken = {leaf for leaf in tree.flatten((y, sample_weight)) if isinstance(leaf, str)}
        source = _inputs(source, [name for name in source.names if name not in taken], model)
    return source, *targets


def _needs_work(leaf: Any) -> bool:
    return isinstance(leaf, (str, os.PathLike)) or (frames.is_frame(leaf) and not frames.is_plain(leaf))


def _opened(value: Any, argument: str, model: Any) -> Any:
    """What a path or a frame holds: an array, something `Named`, or an `ImageFolder`. Structures hold arrays."""
    if isinstance(value, (dict, list, tuple)):
        return _each(value, lambda key, part: _as_array(part, f"{argument}[{key!r}]", model))
    if not _needs_work(value):
        return value
    if isinstance(value, (str, os.PathLike)):
        return _opened_path(Path(value).expanduser(), argument, model)
    return frames.open_frame(value, model)


def _each(structure: Any, of: Callable[[Any, Any], Any]) -> Any:
    """A dict, list or tuple of what becomes of each key, or number, and part."""
    if isinstance(structure, dict):
        return {key: of(key, part) for key, part in structure.items()}
    parts = [of(number, part) for number, part in enumerate(structure)]
    return parts if isinstance(structure, list) else tuple(parts)


def _as_array(value: Any, argument: str, model: Any) -> Any:
    if not isinstance(value, (str, os.PathLike)) and _needs_work(value):
        return frames.as_array(value, argument, model, integers=not argument.startswith("x"))
    opened = _opened(value, argument, model)
    if isinstance(opened, images.ImageFolder):
        raise ValueError(f"`{argument}` is the folder {value!r} of images. Expected it as `x` itself.")
    if isinstance(opened, Named):
        return opened.matrix(opened.names, argument, integers=not argument.startswith("x"))
    return opened


def _opened_path(path: Path, argument: str, model: Any) -> Any:
    try:
        is_folder, is_file = path.is_dir(), path.exists()
    except OSError:
        # Longer than any path: a text.
        is_folder = is_file = False
    if is_folder:
        return _opened_folder(path, argument, model)
    text = str(path)
    paths = [path] if is_file else [Path(match) for match in sorted(glob.glob(text))]  # noqa: PTH207 (may be absolute)
    if not paths:
        shown = repr(text if len(text) < 200 else f"{text[:100]}...")
        raise FileNotFoundError(
            f"`{argument}` is {shown}, {'and no file matches it' if _is_pattern(text) else 'which does not exist'}. "
            f"{_EXPECTED} The working directory is {str(Path.cwd())!r}."
        )
    suffixes = sorted({match.suffix.lower() for match in paths})
    if suffixes == [".npy"]:
        arrays = [open_npy(match, argument) for match in paths]
        return arrays[0] if is_file else joined(arrays, f"The files of `{argument}`")
    if suffixes == [".npz"] and len(paths) == 1:
        return Archive(paths[0], argument)
    if len(suffixes) == 1 and suffixes[0] in TABLES:
        return TableFrame(open_tables(paths, argument), model)
    raise ValueError(f"`{argument}` is {text!r}, {len(paths)} file(s) ending in {suffixes}. {_EXPECTED}")


def _opened_folder(folder: Path, argument: str, model: Any) -> Any:
    """The first file that we can read says what is in a folder."""
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            suffix = Path(name).suffix.lower()
            if suffix in images.SUFFIXES:
                return images.find_images(folder)
            if suffix in TABLES and not name.startswith(("_", ".")):
                paths = [path for path in sorted(folder.rglob(f"*{suffix}")) if not path.name.startswith(("_", "."))]
                return TableFrame(open_tables(paths, argument, folder), model)
            if suffix == ".npy":
                raise ValueError(
                    f"`{argument}` is {str(folder)!r}, a folder of .npy files. Say which of them: "
                    f"{str(Path(root, '*.npy'))!r}."
                )
    raise ValueError(f"`{argument}` is {str(folder)!r}, a folder without images or tables. {_EXPECTED}")


def _target(value: Any, argument: str, source: Any, model: Any) -> Any:
    """`y` or `sample_weight`: names of columns of `x`, paths and frames become arrays."""
    named = source if isinstance(source, Named) else None
    if isinstance(value, (dict, list, tuple)):
        parts = _each(value, lambda _, part: _target(part, argument, source, model))
        has_outputs = len(getattr(model, "outputs", None) or [None]) > 1
        are_names = value and not isinstance(value, dict) and all(map(_is_name, value))
        if named is None or has_outputs or argument != "y" or not are_names:
            return parts
        return named.matrix(list(value), argument, integers=True)
    if isinstance(value, str) and named is not None and value in named.names:
        return named.array(value, argument, integers=True)
    if not _is_name(value):
        return _as_array(value, argument, model)
    if named is None:
        kind = "an image folder" if isinstance(source, images.ImageFolder) else f"of type {type(source).__name__}"
        raise ValueError(
            f"`{argument}={value!r}` names a column, but `x` is {kind}, which has none. Expected `x` to be a frame, "
            f"a .npz archive or a table in a file, or `{argument}` to be an array or a path."
        )
    raise ValueError(f"`{argument}={value!r}` is no column of `x`. Its columns are {shortened(named.names)}.")


def _is_name(value: Any) -> bool:
    """Whether a string is more like the name of a column than like a path."""
    if not isinstance(value, str):
        return False
    return os.sep not in value and not _is_pattern(value) and Path(value).suffix.lower() not in _SUFFIXES


def _is_pattern(text: str) -> bool:
    return any(mark in text for mark in "*?[")


def _inputs_of(model: Any) -> dict[str, Any]:
    """The model's symbolic inputs by name, in order; empty if nobody can say before it is built."""
    inputs = getattr(model, "input", None)
    if not isinstance(inputs, dict):
        inputs = {getattr(tensor, "name", ""): tensor for tensor in getattr(model, "inputs", None) or []}
    return inputs if all(isinstance(tensor, keras.KerasTensor) for tensor in inputs.values()) else {}


def _inputs(source: Named, names: Sequence[str], model: Any) -> Any:
    """The columns as the model takes them: by name, or side by side in one matrix."""
    inputs = _inputs_of(model)
    if len(inputs) > 1:
        missing = [name for name in inputs if name not in names]
        if missing:
            raise ValueError(
                f"The model has inputs named {list(inputs)}, and `x` has no column {missing}. Its columns are "
                f"{shortened(names)}. Rename them, or the inputs."
            )
        return {name: source.array(name, "x", _takes_integers(tensor)) for name, tensor in inputs.items()}
    if not inputs:
        return source.matrix(names, "x")
    ((name, tensor),) = inputs.items()
    array = _single_input(source, names, name, tensor)
    return {name: array} if isinstance(getattr(model, "input", None), dict) else array


def _single_input(source: Named, names: Sequence[str], name: str, tensor: Any) -> Any:
    """The column of the input's name if it is what the input takes, else all columns."""
    integers = _takes_integers(tensor)
    if name in names and len(names) > 1:
        column = source.array(name, "x", integers)
        if _fits(column, tensor):
            return column
    matrix = source.matrix(names, "x", integers)
    if isinstance(source, Frame) and not _fits(matrix, tensor):
        raise ValueError(
            f"`x` has the columns {shortened(names)}, together {matrix.shape[1]} number(s) a row, and the model takes "
            f"{_row_shape(tensor)}. Name the label (`y='...'`), select other columns, or change the model's input."
        )
    return matrix


def _takes_integers(tensor: Any) -> bool:
    return str(tensor.dtype).startswith(("int", "uint"))


def _row_shape(tensor: Any) -> tuple[int | None, ...]:
    return tuple(tensor.shape[1:])


def _fits(array: Any, tensor: Any) -> bool:
    """Whether Keras takes rows of an array for an input; it adds or drops a last axis of length 1."""
    wanted, row = _row_shape(tensor), array.shape[1:]
    shapes = [row, (*row, 1), *([row[:-1]] if row[-1:] == (1,) else [])]
    return any(
        len(shape) == len(wanted) and all(size in (None, have) for size, have in zip(wanted, shape, strict=True))
        for shape in shapes
    )


def _images(folder: images.ImageFolder, model: Any) -> np.ndarray:
    """The images of a folder in the size and colours that the model takes."""
    inputs = list(_inputs_of(model).values())
    shape = _row_shape(inputs[0]) if len(inputs) == 1 else ()
    is_first = keras.config.image_data_format() == "channels_first"
    height, width, channels = (*shape[1:], shape[0]) if is_first and len(shape) == 3 else (*shape, None, None, None)[:3]
    if height is None or width is None or channels not in (1, 3, 4) or len(shape) != 3:
        raise ValueError(
            "`x` is a folder of images, and their size is taken from the model. Received: a model "
            + (f"with the input shape {shape}. " if inputs else "that is not built. ")
            + "Expected one input of height, width and 1, 3 or 4 channels, such as `keras.Input((224, 224, 3))`."
        )
    pixels = images.read_images(folder.paths, height, width, channels)
    return pixels.transpose(0, 3, 1, 2) if is_first else pixels
