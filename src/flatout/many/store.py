"""Finished models on disk: a grid that is killed goes on with those that are not there.

    runs/a/grid.json             what all models have in common: the data, the arguments of `fit`, the common seed
    runs/a/3f9c....npz           the variables of a model and of its optimizer
    runs/a/3f9c....json          its point, its history and the hash of the file beside it; written last

A model is known by its point, seed and fold, so that a grid may grow between two runs.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base import disk_cache
from flatout.base.errors import InvalidOption
from flatout.base.when_used import keras
from flatout.data.output.manifest import sync_folders

from .candidate import Candidate
from .point_words import in_words

_GRID = "grid.json"


class Store:
    """A folder of finished models.

    Attributes:
        seed: Of points that name none.
    """

    def __init__(self, folder: Any, common: dict[str, str], seed: int):
        if not isinstance(folder, (str, os.PathLike)) or (Path(folder).exists() and not Path(folder).is_dir()):
            raise InvalidOption(f"`checkpoint` is a folder. Received: {folder!r}.")
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / _GRID
        known: dict[str, Any] = _read(file) if file.exists() else {}
        # What a folder of an earlier version has no word of was the same for all.
        other = [name for name, value in common.items() if known.get(name, value) != value]
        if not known or (other and not any(self._folder.glob("*.npz"))):
            known, other = {**common, "seed": seed}, []
            disk_cache.put(file, json.dumps(known, indent=1).encode())
            sync_folders([file])
        if other:
            raise InvalidOption(
                f"The folder {str(self._folder)!r} holds models that were trained otherwise: {', '.join(other)} "
                f"changed. Received: checkpoint={str(folder)!r}. Give another folder, or the same data and arguments."
            )
        self.seed = int(known["seed"])
        # What points of this run have functions and classes for, by their files.
        self._named: dict[Path, list[Any]] = {}

    def save(self, candidate: Candidate) -> None:
        """Keep a finished model."""
        values = [np.asarray(keras.ops.convert_to_numpy(variable.value)) for variable in _variables(candidate.model)]
        # As bytes: NumPy's files know no bfloat16.
        arrays_of: dict[str, Any] = {
            f"v{place}": np.frombuffer(value.tobytes(), np.uint8) for place, value in enumerate(values)
        }
        content = io.BytesIO()
        np.savez(content, **arrays_of)
        record = {
            "point": _described(candidate),
            "history": {name: [_plain(value) for value in one] for name, one in (candidate.history or {}).items()},
            "seconds": candidate.seconds,
            "sha256": hashlib.sha256(content.getvalue()).hexdigest(),
        }
        arrays, about = self._files(candidate)
        disk_cache.put(arrays, content.getvalue())
        disk_cache.put(about, json.dumps(record, indent=1).encode())
        sync_folders([about])

    def load(self, candidate: Candidate) -> bool:
        """Whether a model is there: the candidate has its history then, and its values when they are asked for."""
        arrays, about = self._files(candidate)
        named: list[Any] = []
        words = _described(candidate, named)
        if (other := self._named.setdefault(arrays, named)) != named:
            raise InvalidOption(
                "`checkpoint` knows functions and classes in points by their names. Received the same names for "
                f"{other!r} and {named!r}."
            )
        if not arrays.exists() or not about.exists():
            return False
        record, content = _read(about), arrays.read_bytes()
        if record.get("sha256") != hashlib.sha256(content).hexdigest() or record.get("point") != words:
            return False
        candidate.history, candidate.seconds = record["history"], record["seconds"]
        return True

    def give_values(self, candidate: Candidate, model: Any) -> None:
        """Have the values of a finished model in one that was built anew."""
        variables = _variables(model)
        values = [np.asarray(keras.ops.convert_to_numpy(variable.value)) for variable in variables]
        with np.load(self._files(candidate)[0], allow_pickle=False) as stored:
            contents = [stored[f"v{place}"].tobytes() for place in range(len(stored.files))]
        if [len(content) for content in contents] != [value.nbytes for value in values]:
            raise InvalidOption(
                f"The model that was kept for {candidate.coordinates!r} has other variables than what `build` makes "
                "of that point now. Give another folder as `checkpoint`."
            )
        for variable, value, content in zip(variables, values, contents, strict=True):
            variable.assign(np.frombuffer(content, value.dtype).reshape(value.shape))

    def _files(self, candidate: Candidate) -> tuple[Path, Path]:
        name = hashlib.sha256(json.dumps(_described(candidate), sort_keys=True).encode()).hexdigest()[:20]
        return self._folder / f"{name}.npz", self._folder / f"{name}.json"


def _variables(model: Any) -> list[Any]:
    return [*model.variables, *model.optimizer.variables]


def _described(candidate: Candidate, named: list[Any] | None = None) -> dict[str, str]:
    """What tells a candidate from others, in words; `named` gets what is known by its name alone."""
    named = [] if named is None else named
    words = {name: in_words(value, named) for name, value in candidate.coordinates.items()}
    for name, rows in (("rows", candidate.split.train), ("rows held out", candidate.split.held_out)):
        if rows is not None:
            words[name] = hashlib.sha256(np.ascontiguousarray(rows, np.int64).tobytes()).hexdigest()[:20]
    return words


def _plain(value: Any) -> Any:
    """A value of a history as JSON has it: a number, several of them, or words of a callback's."""
    return value if isinstance(value, str) else np.asarray(value).tolist()


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise InvalidOption(f"{str(file)!r} is no record of flatout.fit_many: {error}. Remove it.") from error
    return found if isinstance(found, dict) else {}
