"""fit_many: the conductor of many models.

    points x folds ──► candidates ──► groups that can run together ──► waves ──► Many

Each candidate is built, seeded and prepared as a `fit` of its own would be, on rows that all of them share. What
differs is how their steps are run: all in one program, side by side, or one after the other.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from flatout.base.errors import InvalidOption
from flatout.base.options import options
from flatout.base.when_used import keras
from flatout.engines.select import engine_for
from flatout.training.arguments import bound

from .candidate import Candidate, OwnGenerators
from .grid import Point, accepted, points_of
from .many import Many
from .progress import shown
from .shared_call import SharedCall
from .splits import Split, folds_of, subsets_of
from .store import Store
from .waves.run_candidates import run_candidates


def fit_many(
    build: Callable[..., Any],
    grid: Any,
    x: Any = None,
    y: Any = None,
    *,
    folds: Any = None,
    subsets: Any = None,
    callbacks: Any = None,
    seed: int | None = None,
    checkpoint: Any = None,
    verbose: Any = "auto",
    engine: Any = None,
    data: Any = None,
    precision: Any = None,
    **arguments: Any,
) -> Many:
    """Train many independent models on the same data, as many at once as the device holds.

    Each model comes out as from a process of its own that does no more than this:

        keras.utils.set_random_seed(seed)
        model = build(**point)
        flatout.fit(model, x[rows], y[rows], ...)

    Args:
        build: Returns a compiled Keras model; called with the arguments of a point. A `seed` of the point is passed to
            it only if it has such an argument.
        grid: The points: `flatout.grid(...)`, a list of dicts, scikit-learn's `ParameterGrid`. A `seed` in a point is
            that of its model.
        x: Arrays, frames or files, as for `keras.Model.fit`; on the device once.
        y: As for `keras.Model.fit`.
        folds: Train a model of each point on each fold, and validate it on the rest: a number of folds, a splitter such
            as scikit-learn's `StratifiedKFold`, or a list of pairs of row numbers.
        subsets: The rows of each model: `"disjoint"`, or a list of row numbers for each.
        callbacks: A list of callbacks, of which each model has copies (`{number}` in the name of a file is the
            model's), or a function that is called with the arguments of a point and returns such a list.
        seed: Of points that name none; by default one is drawn for all of them from NumPy's generator.
        checkpoint: A folder, which gets every model that is finished. The same call later trains those that are not
            there, as after a crash, or points that were added to the grid.
        verbose: 0 shows nothing; anything else a table of what runs.
        engine: As for `flatout.fit`.
        data: As for `flatout.fit`.
        precision: As for `flatout.fit`.
        **arguments: Every other argument of `keras.Model.fit`: `epochs`, `batch_size`, `validation_data`, ...

    Returns:
        A `Many`: `.frame`, `.best("val_loss")`, `.models[i]`, `.histories[i]`, `.plot()`.

    Example:
        >>> import flatout, keras, numpy as np
        >>> def build(units, learning_rate):
        ...     model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(units), keras.layers.Dense(1)])
        ...     model.compile(keras.optimizers.Adam(learning_rate), "mse")
        ...     return model
        >>> points = flatout.grid(seed=range(2), learning_rate=[1e-2, 1e-3], units=[8])
        >>> many = flatout.fit_many(build, points, np.ones((64, 4)), np.ones(64), epochs=2, verbose=0)
        >>> len(many.models), len(many.histories[0]["loss"])
        (4, 2)
    """
    if not callable(build) or isinstance(build, keras.Model):
        raise InvalidOption(f"`build` is a function that returns a compiled model. Received: {type(build).__name__}.")
    call = bound("fit", (x, y), {**arguments, "verbose": 0})
    points = points_of(grid)
    if isinstance(callbacks, (keras.callbacks.Callback, Iterator)):
        callbacks = [callbacks] if isinstance(callbacks, keras.callbacks.Callback) else list(callbacks)
    if folds is not None and any("fold" in point for point in points):
        raise InvalidOption("With `folds` a model has a number `fold`. Give that argument of `build` another name.")
    if subsets is not None and call["validation_split"]:
        raise InvalidOption("`subsets` have rows of their own to hold out: give validation_data for validation_split.")
    for number, point in enumerate(points):
        _check_arguments("build", build, _arguments_of(build, point), number)
        if callable(callbacks):
            _check_arguments("callbacks", callbacks, accepted(callbacks, point), number)
    with options(engine=engine, data=data, precision=precision, workers=1):
        make = functools.partial(_built, build)
        shared = SharedCall(make, points[0], call, callbacks, validates_on_folds=folds is not None)
        splits = _splits(shared, len(points), folds, subsets)
        common = int(np.random.randint(2**31 - 1)) if seed is None else _whole(seed)
        candidates = _candidates(points, splits, common)
        store = None if checkpoint is None else Store(checkpoint, shared.fingerprint(), common)
        if store is not None and seed is None:
            candidates = _candidates(points, splits, store.seed)
        waiting = candidates if store is None else _not_in(store, candidates, shared)
        with shown(candidates, call["epochs"], verbose):
            ways = run_candidates(waiting, shared) if waiting else {}
    if len(waiting) < len(candidates):
        ways = {"from an earlier run": len(candidates) - len(waiting), **ways}
    return Many(candidates, ways)


def _not_in(store: Store, candidates: list[Candidate], shared: SharedCall) -> list[Candidate]:
    """Those that are to be trained, and kept when they are; the others have their history."""
    waiting = []
    for candidate in candidates:
        if store.load(candidate):
            candidate.restore = functools.partial(shared.restored, store)
        else:
            candidate.keep = store.save
            waiting.append(candidate)
    return waiting


def _splits(shared: SharedCall, points: int, folds: Any, subsets: Any) -> list[list[Split]]:
    """The rows of each model of each point."""
    if folds is None and subsets is None:
        return [[Split()]] * points
    rows = shared.rows
    if folds is not None and subsets is not None:
        raise InvalidOption("`folds` and `subsets` both say which rows a model takes. Give one of them.")
    if folds is not None:
        return [folds_of(folds, rows, shared.call["y"])] * points
    return [[split] for split in subsets_of(subsets, points, rows)]


def _candidates(points: list[Point], splits: list[list[Split]], seed: int) -> list[Candidate]:
    engine = engine_for(keras.config.backend())
    candidates: list[Candidate] = []
    for point, of_point in zip(points, splits, strict=True):
        own = _whole(point.get("seed", seed))
        candidates += [
            Candidate(len(candidates) + number, point, own, split, OwnGenerators(engine))
            for number, split in enumerate(of_point)
        ]
    return candidates


def _whole(seed: Any) -> int:
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise InvalidOption(f"A seed is a whole number from 0 to 2**32 - 1. Received: seed={seed!r}.")
    return int(seed)


def _built(build: Callable[..., Any], point: Point) -> Any:
    """The model of a point, compiled."""
    try:
        model = build(**_fresh(_arguments_of(build, point)))
    except Exception as error:
        error.add_note(f"In `build` of flatout.fit_many, for the point {point!r}.")
        raise
    if not isinstance(model, keras.Model):
        raise InvalidOption(f"`build` returns a compiled Keras model. Received: {type(model).__name__} for {point!r}.")
    if not model.compiled:
        raise InvalidOption(f"`build` returns a compiled model: call model.compile(...) in it. Received: {point!r}.")
    return model


def _check_arguments(name: str, function: Callable[..., Any], given: Point, number: int) -> None:
    try:
        inspect.signature(function).bind(**given)
    except TypeError as error:
        raise InvalidOption(f"Point {number} is not what `{name}` takes: {error}. Received: {given!r}.") from None


def _fresh(value: Any) -> Any:
    """Containers anew: what a `build` does with its own is nothing to the next one."""
    if type(value) is dict:
        return {key: _fresh(one) for key, one in value.items()}
    return type(value)(map(_fresh, value)) if type(value) in (list, tuple, set) else value


def _arguments_of(build: Callable[..., Any], point: Point) -> Point:
    """What `build` is called with: a seed only if it asks for one."""
    return {name: value for name, value in point.items() if name != "seed" or "seed" in accepted(build, point)}
