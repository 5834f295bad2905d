"""Which rows of the data each model trains on, and which it is validated on: numbers of rows, never copies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.base.errors import InvalidOption


@dataclass(frozen=True, eq=False)
class Split:
    """The rows of one model; None for all of `train`, and for a `held_out` that is validation data of its own."""

    train: np.ndarray | None = None
    held_out: np.ndarray | None = None
    fold: int | None = None


@dataclass(frozen=True)
class KFold:
    """Rows in `count` parts of about the same size, each of which is held out once.

    Attributes:
        count: Of parts.
        stratified: Whether each part has about the same share of every class.
        seed: Rows are shuffled by it first.

    Example:
        >>> import numpy as np
        >>> [held_out.size for _, held_out in KFold(3).split(np.zeros((10, 2)))]
        [4, 3, 3]
    """

    count: int
    stratified: bool = False
    seed: int = 0

    def split(self, x: Any, y: Any = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """The numbers of rows to train on and of those held out, for each fold."""
        rows = len(x)
        if not 2 <= self.count <= rows:
            raise InvalidOption(f"`folds` is from 2 to the number of rows, {rows}. Received: folds={self.count}.")
        part = np.empty(rows, np.int64)
        order = np.random.default_rng(self.seed).permutation(rows)
        if self.stratified:
            # Rows of a class lie together, so that dealing them out gives each part its share.
            order = order[np.argsort(_classes(y)[order], kind="stable")]
        part[order] = np.arange(rows) % self.count
        return [(np.flatnonzero(part != number), np.flatnonzero(part == number)) for number in range(self.count)]


def folds_of(folds: Any, rows: int, y: Any) -> list[Split]:
    """The folds that the user asked for; one split of everything without."""
    if folds is None:
        return [Split()]
    if isinstance(folds, (int, np.integer)) and not isinstance(folds, bool):
        folds = KFold(int(folds))
    zeros = np.broadcast_to(np.int8(0), (rows, 1))
    is_splitter = hasattr(folds, "split") and not isinstance(folds, str)
    pairs = folds.split(zeros, _labels(y)) if is_splitter else folds
    if not isinstance(pairs, Iterable) or isinstance(folds, str):
        raise InvalidOption(
            "`folds` is a number, a splitter such as scikit-learn's KFold, or a list of pairs of row numbers. "
            f"Received: {type(folds).__name__}."
        )
    splits = []
    for fold, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InvalidOption(
                f"A fold is a pair: rows to train on, rows to hold out. Received: {type(pair).__name__} as {fold}."
            )
        train, held_out = (_numbers(part, rows, f"fold {fold}") for part in pair)
        splits.append(Split(train, held_out, fold))
    if not splits:
        raise InvalidOption("`folds` has no folds.")
    return splits


def subsets_of(subsets: Any, models: int, rows: int) -> list[Split]:
    """The rows of each model: disjoint parts of about the same size, or those that the user lists."""
    if not isinstance(subsets, Iterable) or (isinstance(subsets, str) and subsets != "disjoint"):
        raise InvalidOption(f"`subsets` is 'disjoint' or a list of row numbers for each model. Received: {subsets!r}.")
    if isinstance(subsets, str):
        if rows < models:
            raise InvalidOption(f"{models} models cannot have rows of their own: there are {rows} rows.")
        return [Split(np.sort(part)) for part in np.array_split(np.random.default_rng(0).permutation(rows), models)]
    listed = list(subsets)
    if len(listed) != models:
        raise InvalidOption(f"`subsets` has row numbers for each of {models} models. Received: {len(listed)} lists.")
    return [Split(_numbers(part, rows, f"subset {number}")) for number, part in enumerate(listed)]


def _numbers(part: Any, rows: int, name: str) -> np.ndarray:
    numbers = np.asarray(part)
    if numbers.dtype == bool and numbers.shape == (rows,):
        numbers = np.flatnonzero(numbers)
    if numbers.ndim != 1 or numbers.size == 0 or numbers.dtype.kind not in "iu":
        raise InvalidOption(f"Rows are a list of whole numbers. Received: {name} of {numbers.dtype} {numbers.shape}.")
    if numbers.min() < 0 or numbers.max() >= rows:
        raise InvalidOption(
            f"Rows are numbered from 0 to {rows - 1}. Received: {name} with {numbers.min()} to {numbers.max()}."
        )
    return numbers


def _labels(y: Any) -> Any:
    """One label a row, as splitters want them; None if there is none."""
    return None if y is None or isinstance(y, (dict, list, tuple)) else _classes(y)


def _classes(y: Any) -> np.ndarray:
    if y is None or isinstance(y, (dict, list, tuple)):
        raise InvalidOption("Stratified folds want one label for each row in `y`.")
    labels = np.asarray(y)
    if labels.ndim > 1:
        labels = np.argmax(labels, axis=-1) if labels.shape[-1] > 1 else labels.reshape(len(labels), -1)[:, 0]
    return labels
