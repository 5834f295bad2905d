"""Inputs to verify a rewrite on: ordinary batches of several sizes, and those that natural rewrites get wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.vectorize.arrays.expression_graph import Node

# Sizes of dimensions that nothing is known about, one after the other until the loss runs.
_SIZES = (3, 4, 6, 5, 2, 1)
_LITTLE = 0.01
SPOILT_PREDICTIONS = ("NaN in the predictions", "infinity in the predictions")


@dataclass(frozen=True)
class Recipe:
    """How to make inputs that a loss accepts.

    Attributes:
        ranks: Of the parameters.
        sizes: Of each parameter's dimensions behind the first.
        domains: The integers that a parameter's entries are drawn from, where they are integers.
        predicted: The parameter that is differentiated.
        scale: What predictions are like: `"normal"`, `"unit"` (between 0 and 1), `"softmax"` (rows that sum to 1).
        as_float: Whether integers are handed over as float32, as Keras does.
        one_hot: The parameter that holds rows with a single 1.
        edges: Parameters that are sorted into intervals, with the edges of these.
        counts: Parameters that count rows or steps; 0 of them is a case of its own.
        missing: Parameters with a domain whose entries may be NaN as well: they are compared, but index nothing.
        bounds: Numbers with a fraction that entries of a parameter are compared with.
    """

    ranks: tuple[tuple[str, int], ...]
    sizes: Mapping[str, tuple[int, ...]]
    domains: Mapping[str, tuple[float, ...]]
    predicted: str
    scale: str = "normal"
    as_float: bool = False
    one_hot: str | None = None
    edges: Mapping[str, tuple[float, ...]] | None = None
    counts: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    bounds: Mapping[str, tuple[float, ...]] | None = None


def recipes(
    ranks: Mapping[str, int],
    predicted: str,
    hints: Sequence[tuple[Any, ...]],
    evaluate: Any,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
) -> Iterator[Recipe]:
    """Ways to make inputs, the likelier ones first; the caller takes those that the loss accepts."""
    fixed = {(hint[1], hint[2]): hint[3] for hint in hints if hint[0] == "size"}
    counts = frozenset(hint[1] for hint in hints if hint[0] == "count")
    compared = frozenset(hint[1] for hint in hints if hint[0] == "value")
    compared -= {hint[1] for hint in hints if hint[0] in ("index", "count", "keys")}
    least: dict[tuple[str, int], int] = {}
    for hint in hints:
        if hint[0] == "least":
            least[hint[1], hint[2]] = max(hint[3], least.get((hint[1], hint[2]), 0))
    bounds = _bounds(hints)
    names = list(ranks)
    for base, narrow in itertools.product(_SIZES, (False, True)):
        sizes = {
            name: tuple(
                _known_size(shapes, name, place)
                or fixed.get((name, place))
                or max(1 if narrow and name == names[0] and place == rank - 1 else base, least.get((name, place), 0))
                for place in range(1, rank)
            )
            for name, rank in ranks.items()
        }
        lengths = {(name, place): size for name, known in sizes.items() for place, size in enumerate(known, 1)}
        domains, edges = _domains(hints, lengths, evaluate)
        asked = _with_missing(hints, domains)
        targets = [name for name in names if name != predicted]
        first = targets[0] if targets else None
        options: list[tuple[dict[str, tuple[float, ...]], str | None]] = [(asked, None)] if asked != domains else []
        options.append((domains, None))
        if first and first not in domains:
            classes = sizes[predicted][-1] if sizes.get(predicted) else 3
            options += [
                ({**domains, first: (0.0, 1.0)}, None),
                ({**domains, first: tuple(map(float, range(max(1, classes))))}, None),
            ]
            if ranks[first] >= 2:
                options.append(({**domains, first: (0.0, 1.0)}, first))
        # A target that is compared and indexes nothing comes as Keras hands it over: a float, and perhaps missing.
        types = (True, False) if compared else (False, True)
        for (known, hot), scale, as_float in itertools.product(options, ("normal", "unit", "softmax"), types):
            if as_float and not known:
                continue
            yield Recipe(
                tuple(ranks.items()), sizes, known, predicted, scale, as_float, hot, edges, counts, compared, bounds
            )


def _known_size(shapes: Mapping[str, Sequence[int | None]] | None, name: str, place: int) -> int | None:
    return shapes[name][place] if shapes and name in shapes else None


def _domains(
    hints: Sequence[tuple[Any, ...]], lengths: Mapping[tuple[str, int], int], evaluate: Any
) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[float, ...]]]:
    domains: dict[str, set[float]] = {}
    edges: dict[str, tuple[float, ...]] = {}
    for hint in hints:
        kind, name = hint[0], hint[1]
        allowed: set[float] | None = None
        if kind in ("index", "count"):
            size = _length(hint[2], lengths, evaluate)
            if size is not None:
                allowed = set(map(float, range(size + (kind == "count"))))
        elif kind == "keys":
            allowed = set(map(float, hint[2])) | ({max(hint[2]) + 1.0, 1.0} if hint[3] else set())
        elif kind == "range" and name:
            edges[name] = tuple(edge for edge in hint[2] if np.isfinite(edge))
        if allowed:
            domains[name] = (domains[name] & allowed) or allowed if name in domains else allowed
    values: dict[str, set[float]] = {}
    for hint in hints:
        if hint[0] == "value" and isinstance(hint[2], (int, float)):
            values.setdefault(hint[1], set()).add(float(hint[2]))
    for name, found in values.items():
        if name not in domains and all(value == int(value) for value in found) and found - {0.0}:
            domains[name] = found | {0.0, 1.0}
    for hint in hints:
        if hint[0] == "whole" and hint[1] not in domains:
            domains[hint[1]] = {0.0, 1.0, 2.0}
    return {name: tuple(sorted(found)) for name, found in domains.items()}, edges


def _bounds(hints: Sequence[tuple[Any, ...]]) -> dict[str, tuple[float, ...]]:
    found: dict[str, list[float]] = {}
    for hint in hints:
        if hint[0] == "value" and isinstance(hint[2], float) and np.isfinite(hint[2]) and hint[2] != int(hint[2]):
            found.setdefault(hint[1], []).append(float(hint[2]))
    return {name: tuple(dict.fromkeys(numbers)) for name, numbers in found.items()}


def _with_missing(
    hints: Sequence[tuple[Any, ...]], domains: Mapping[str, tuple[float, ...]]
) -> dict[str, tuple[float, ...]]:
    """The same, with keys that are in no table where the loss asks before it reads: `if key in table`."""
    asked = {hint[1]: max(hint[2]) + 1.0 for hint in hints if hint[0] == "keys" and hint[3]}
    return {name: tuple(sorted({*known, asked[name]})) if name in asked else known for name, known in domains.items()}


def _length(size: Node | None, lengths: Mapping[tuple[str, int], int], evaluate: Any) -> int | None:
    if size is None:
        return None
    if size.kind == "size" and size.parts[0].kind == "name":
        return lengths.get((size.parts[0].parts[0], size.parts[1]))
    found = evaluate(size)
    return int(found) if isinstance(found, (int, np.integer)) else None


def ordinary(recipe: Recipe, batch: int, seed: int = 0) -> dict[str, np.ndarray]:
    """A batch of random inputs."""
    rng = np.random.default_rng([seed, batch])
    arrays = {}
    for name, rank in recipe.ranks:
        shape = (batch, *recipe.sizes[name])[:rank]
        if name == recipe.one_hot:
            classes = shape[-1]
            arrays[name] = np.eye(classes, dtype="float32")[rng.integers(0, classes, shape[:-1])]
        elif name in recipe.domains and name != recipe.predicted:
            allowed = [value for value in recipe.domains[name] if value or name not in recipe.counts]
            drawn = rng.choice(np.asarray(allowed), shape)
            arrays[name] = drawn.astype("float32" if recipe.as_float else "int32")
        elif recipe.edges and name in recipe.edges:
            arrays[name] = _about_edges(rng, recipe.edges[name], shape)
        elif name == recipe.predicted:
            arrays[name] = _predictions(rng, shape, recipe.scale)
        else:
            arrays[name] = rng.normal(size=shape).astype("float32")
    return arrays


def _about_edges(rng: np.random.Generator, edges: tuple[float, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Values on the edges of intervals, and between them."""
    known = np.asarray(sorted(edges))
    between = (known[1:] + known[:-1]) / 2
    return rng.choice(np.concatenate([known, between, known[-1:] + 1]), shape).astype("float32")


def _predictions(rng: np.random.Generator, shape: tuple[int, ...], scale: str) -> np.ndarray:
    drawn = rng.normal(size=shape)
    if scale == "unit":
        drawn = 1 / (1 + np.exp(-drawn))
    elif scale == "softmax" and shape:
        drawn = np.exp(drawn) / np.exp(drawn).sum(-1, keepdims=True)
    return np.asarray(drawn, "float32")


def adversarial(recipe: Recipe, batch: int, larger: int = 7) -> Iterator[tuple[str, dict[str, np.ndarray], bool]]:
    """Inputs that break careless rewrites: name, arrays, and whether entries tie in them.

    Args:
        recipe: How to make inputs.
        batch: The number of samples.
        larger: The number where a few would not do: some groups with, some without a missing target.
    """
    predicted = recipe.predicted
    targets = [name for name, _ in recipe.ranks if name != predicted]
    base = ordinary(recipe, batch, seed=1)

    def but(**changed: np.ndarray) -> dict[str, np.ndarray]:
        return {**base, **changed}

    guess = base[predicted]
    if recipe.scale == "normal":
        yield "zero predictions", but(**{predicted: np.zeros_like(guess)}), True
        yield "ties", but(**{predicted: np.round(guess)}), True
        yield "large values", but(**{predicted: guess * 100}), False
    else:
        yield "ties", but(**{predicted: np.full_like(guess, 1 / max(1, guess.shape[-1]))}), True
    if guess.ndim and batch > 1:
        yield "equal rows", but(**{predicted: np.repeat(guess[:1], batch, axis=0)}), True
    for name in targets:
        value = base[name]
        if name in recipe.domains:
            for edge in (min(recipe.domains[name]), max(recipe.domains[name])):
                yield f"{name} all {edge:g}: empty groups", but(**{name: np.full_like(value, edge)}), True
            if value.ndim and batch > 2:
                mixed = value.copy()
                mixed[0], mixed[1] = min(recipe.domains[name]), max(recipe.domains[name])
                yield f"{name}: rows without a member", but(**{name: mixed}), False
            if name in recipe.missing and value.dtype.kind == "f":
                yield from _missing(recipe, name, larger, but)
        elif value.dtype.kind == "f" and name != recipe.one_hot:
            yield f"{name} all 0", but(**{name: np.zeros_like(value)}), True
            if value.shape == guess.shape:
                yield f"{name} equal to the predictions", but(**{name: guess.copy()}), True
            yield from _missing(recipe, name, larger, but)
    for name, numbers in (recipe.bounds or {}).items():
        if base[name].dtype.kind == "f" and name not in (*recipe.domains, recipe.one_hot):
            yield (
                f"{name} on the bounds that it is compared with",
                but(**{name: _about(numbers, base[name].shape)}),
                True,
            )
    yield SPOILT_PREDICTIONS[0], but(**{predicted: _with_nan(guess, -1)}), False
    spoilt = guess.copy()
    spoilt.flat[0] = np.inf
    yield SPOILT_PREDICTIONS[1], but(**{predicted: spoilt}), False


def _about(numbers: Sequence[float], shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of 32 bits next to those given, and the ones beside these."""
    near = np.asarray(numbers, "float32")
    around = np.concatenate([near, np.nextafter(near, np.float32("inf")), np.nextafter(near, np.float32("-inf"))])
    return np.resize(around, shape)


def _missing(recipe: Recipe, name: str, larger: int, but: Any) -> Iterator[tuple[str, dict[str, np.ndarray], bool]]:
    """NaN in the first entry, and in others: what a comparison with NaN decides depends on which comes first."""
    yield f"NaN in {name}", but(**{name: _with_nan(but()[name], 0)}), False
    more = ordinary(recipe, larger, seed=1)
    spoilt = np.where(np.random.default_rng(4).random(more[name].shape) < 0.4, np.nan, more[name])
    spoilt.flat[0], spoilt.flat[-1] = more[name].flat[0], np.nan
    yield f"NaN in {name}, further on", {**more, name: spoilt.astype("float32")}, False


def _with_nan(value: np.ndarray, place: int) -> np.ndarray:
    spoilt = value.copy()
    spoilt.flat[place] = np.nan
    return spoilt


def offset(recipe: Recipe, batch: int) -> dict[str, np.ndarray]:
    """Predictions that differ in their last digits alone."""
    arrays = ordinary(recipe, batch, seed=2)
    return {**arrays, recipe.predicted: np.asarray(1000 + 0.1 * arrays[recipe.predicted], "float32")}


def in_tenths(recipe: Recipe, batch: int) -> Iterator[dict[str, np.ndarray]]:
    """Targets that are prices or grades, say: 0.1, 0.2, ...; what 64 bits make of these, 32 may round to a bound."""
    arrays = ordinary(recipe, batch, seed=3)
    fixed = (recipe.predicted, recipe.one_hot, *recipe.domains, *(recipe.edges or ()))
    targets = [name for name, value in arrays.items() if value.dtype.kind == "f" and name not in fixed]
    tenths = np.asarray([*range(21), *range(-20, 0)]) / 10
    longest = max((arrays[name].size for name in targets), default=len(tenths))
    for start in range(0, len(tenths), longest):
        yield {**arrays, **{name: np.resize(tenths[start:], arrays[name].shape).astype("float32") for name in targets}}


def without_ties(arrays: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray] | None:
    """The same inputs with a little added to every number, so that none are equal; None: they hold no numbers that tie.

    It is added upwards: what is used as an index is rounded down, to what it was.
    """
    rng = np.random.default_rng([seed, 3])
    tied = {name for name, value in arrays.items() if value.dtype.kind == "f" and np.unique(value).size < value.size}
    if not tied:
        return None
    return {
        name: np.asarray(value + rng.uniform(0, _LITTLE, value.shape), "float32") if name in tied else value
        for name, value in arrays.items()
    }
