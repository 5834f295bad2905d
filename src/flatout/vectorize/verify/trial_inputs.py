"""Inputs to verify a rewrite on: ordinary batches of several sizes, and those that natural rewrites get wrong."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flatout.vectorize.arrays.expression_graph import Node

# Sizes of dimensions that nothing is known about, one after the other until the loss runs.
_SIZES = (3, 4, 6, 5, 2, 1)
_LITTLE = 0.01
# Whole numbers to read, the distance between them, and the type: seconds of a clock, identifiers, nanoseconds. Those
# of 64 bits are small numbers to whom cuts them to 32; small steps from those of 32 bits stay within these.
_LARGE = (
    (1_700_000_000, 128, "float32"), (2**40, 2**17, "float32"), (2**61, 2**38, "float32"), (2**31 - 5000, 1, "int32"),
    (5000 - 2**31, 1, "int32"), (2**40, 1, "int64"), (-(2**40), 1, "int64"), (2**61, 1, "int64"),
)  # fmt: skip
LARGE_NUMBERS = "whole numbers about"
SPOILT_PREDICTIONS = ("NaN in the predictions", "infinity in the predictions")


@dataclass(frozen=True)
class Recipe:
    """How to make inputs that a loss accepts."""

    ranks: tuple[tuple[str, int], ...]  # Of the parameters.
    sizes: Mapping[str, tuple[int, ...]]  # Of each parameter's dimensions behind the first.
    domains: Mapping[str, tuple[float, ...]]  # The integers that a parameter's entries are drawn from, if they are.
    predicted: str  # The parameter that is differentiated.
    scale: str = "normal"  # Or predictions that are "unit" (between 0 and 1), "softmax" (rows that sum to 1).
    as_float: bool = False  # Whether integers are handed over as float32, as Keras does.
    one_hot: str | None = None  # The parameter that holds rows with a single 1.
    # Parameters that are sorted into intervals, with the edges of these.
    edges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    counts: tuple[str, ...] = ()  # Parameters that count rows or steps; 0 of them is a case of its own.
    missing: tuple[str, ...] = ()  # Those with a domain that may be NaN as well: they are compared, but index nothing.
    whole: tuple[str, ...] = ()  # Those whose entries are read as whole numbers of Python, which have no bound.
    read: tuple[str, ...] = ()  # Those whose entries are, if they are whole numbers.
    # Numbers with a fraction that entries of a parameter are compared with.
    bounds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def recipes(
    ranks: Mapping[str, int],
    predicted: str,
    hints: Sequence[tuple[Any, ...]],
    evaluate: Any,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
) -> Iterator[Recipe]:
    """Ways to make inputs, the likelier ones first; the caller takes those that the loss accepts."""
    said: dict[str, list[Any]] = collections.defaultdict(list)
    for kind, *what in hints:
        said[kind].append(what)
    fixed = {(name, place): size for name, place, size in said["size"]}
    least: dict[tuple[str, int], int] = collections.defaultdict(int)
    for name, place, size in said["least"]:
        least[name, place] = max(size, least[name, place])
    counts = _names(said["count"])
    indexing = {*counts, *_names(said["index"]), *_names(said["keys"])}
    compared = tuple(name for name in _names(said["value"]) if name not in indexing)
    # Of how often a loop runs there must not be too much; what indexes cannot be large.
    small = {*_names(said["steps"]), *counts, *_names(said["index"])}
    whole, read = (
        tuple(name for name in _names(told) if name not in small)
        for told in ([*said["whole"], *said["keys"]], said["read"])
    )
    edges = {name: tuple(filter(np.isfinite, found)) for name, found in said["range"]}
    bounds = _bounds(said)
    names = list(ranks)
    first = next((name for name in names if name != predicted), None)
    for base, narrow in itertools.product(_SIZES, (False, True)):
        sizes = {
            name: tuple(
                (shapes[name][place] if shapes and name in shapes else None)
                or fixed.get((name, place))
                or max(1 if narrow and name == names[0] and place == rank - 1 else base, least[name, place])
                for place in range(1, rank)
            )
            for name, rank in ranks.items()
        }
        domains = _domains(said, sizes, evaluate)
        # Keys that are in no table come first where the loss asks before it reads: `if key in table`.
        asked = {name: max(keys) + 1 for name, keys, is_asked in said["keys"] if is_asked and name in domains}
        wider = domains | {name: tuple(sorted({*domains[name], key})) for name, key in asked.items()}
        options: list[tuple[dict[str, tuple[float, ...]], str | None]] = [(wider, None)] if wider != domains else []
        options.append((domains, None))
        if first and first not in domains:
            classes = sizes[predicted][-1] if sizes.get(predicted) else 3
            options += [({**domains, first: tuple(map(float, range(count)))}, None) for count in (2, max(1, classes))]
            if ranks[first] >= 2:
                options.append(({**domains, first: (0.0, 1.0)}, first))
        # A target that is compared and indexes nothing comes as Keras hands it over: a float, and perhaps missing.
        types = (True, False) if compared else (False, True)
        for (known, hot), scale, as_float in itertools.product(options, ("normal", "unit", "softmax"), types):
            if not as_float or known:
                fixed_parts = (tuple(ranks.items()), sizes, known, predicted)
                yield Recipe(*fixed_parts, scale, as_float, hot, edges, counts, compared, whole, read, bounds)


def _names(said: Sequence[Any]) -> tuple[str, ...]:
    return tuple(sorted({name for name, *_ in said}))


def _domains(
    said: Mapping[str, list[Any]], sizes: Mapping[str, tuple[int, ...]], evaluate: Any
) -> dict[str, tuple[float, ...]]:
    allowed: list[tuple[str, set[float]]] = []
    for kind, more in (("index", 0), ("count", 1)):
        for name, node in said[kind]:
            size = _length(node, sizes, evaluate)
            allowed.append((name, set(map(float, range(0 if size is None else size + more)))))
    for name, keys, is_asked in said["keys"]:
        allowed.append((name, {*keys, *((max(keys) + 1, 1) if is_asked else ())}))
    domains: dict[str, set[float]] = {}
    for name, numbers in allowed:
        if numbers:
            domains[name] = (domains.get(name, numbers) & numbers) or numbers
    for name in _names(said["value"]):
        found = {value for other, value in said["value"] if other == name and isinstance(value, (int, float))}
        found = {value for value in found if np.isfinite(value)}
        if name not in domains and all(value == int(value) for value in found) and found - {0.0}:
            domains[name] = found | {0.0, 1.0}
    for (name,) in said["whole"]:
        domains.setdefault(name, {0.0, 1.0, 2.0})
    for name, value in said["value"]:
        if name in domains and isinstance(value, (int, float)) and 2**24 < abs(value) < math.inf:
            domains[name] = domains[name] | {math.floor(value)}
    for name, edges in said["range"]:
        if name in domains:
            near = {math.floor(edge) + step for edge in edges if np.isfinite(edge) for step in (-1, 0, 1)}
            domains[name] = domains[name] | near
    # As whole numbers where they are: floats have 53 bits.
    kept = {
        name: tuple(sorted(int(one) if one == int(one) else one for one in found if abs(one) < 2**62))
        for name, found in domains.items()
    }
    return {name: found for name, found in kept.items() if found}


def _bounds(said: Mapping[str, list[Any]]) -> dict[str, tuple[float, ...]]:
    found: dict[str, dict[float, None]] = collections.defaultdict(dict)
    for name, value in said["value"]:
        if isinstance(value, float) and np.isfinite(value) and value != int(value):
            found[name][float(value)] = None
    return {name: tuple(numbers) for name, numbers in found.items()}


def _length(size: Node | None, sizes: Mapping[str, tuple[int, ...]], evaluate: Any) -> int | None:
    if size is None:
        return None
    if size.kind == "size" and size.parts[0].kind == "name":
        (name,), place = size.parts[0].parts, size.parts[1]
        return sizes[name][place - 1] if place and name in sizes else None
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
            is_long = max(map(abs, recipe.domains[name])) > np.iinfo("int32").max
            arrays[name] = drawn.astype("float32" if recipe.as_float else "int64" if is_long else "int32")
        elif name in recipe.edges:
            arrays[name] = _about_edges(rng, recipe.edges[name], shape)
        elif name == recipe.predicted:
            arrays[name] = _predictions(rng, shape, recipe.scale)
        else:
            arrays[name] = rng.normal(size=shape).astype("float32")
    return arrays


def wider(recipe: Recipe) -> Recipe:
    """With one more of whatever there are several of, so that sizes relate as they did."""
    sizes = {name: tuple(size + (size > 1) for size in own) for name, own in recipe.sizes.items()}
    return replace(recipe, sizes=sizes)


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

    `larger` is the number of samples where a few would not do: some groups with, some without a missing target.
    """
    predicted = recipe.predicted
    base = ordinary(recipe, batch, seed=1)
    guess = base[predicted]

    def but(name: str, value: np.ndarray) -> dict[str, np.ndarray]:
        return {**base, name: value}

    if recipe.scale == "normal":
        yield "zero predictions", but(predicted, np.zeros_like(guess)), True
        yield "ties", but(predicted, np.round(guess)), True
        yield "large values", but(predicted, guess * 100), False
    else:
        yield "ties", but(predicted, np.full_like(guess, 1 / max(1, guess.shape[-1]))), True
    if guess.ndim and batch > 1:
        yield "equal rows", but(predicted, np.repeat(guess[:1], batch, axis=0)), True
    for name, value in base.items():
        is_float = value.dtype.kind == "f"
        if name == predicted:
            continue
        if name in recipe.domains:
            edges = min(recipe.domains[name]), max(recipe.domains[name])
            for edge in edges:
                yield f"{name} all {edge:g}: empty groups", but(name, np.full_like(value, edge)), True
            if value.ndim and batch > 2:
                mixed = value.copy()
                mixed[0], mixed[1] = edges
                yield f"{name}: rows without a member", but(name, mixed), False
            if name in recipe.missing and is_float:
                yield from _missing(recipe, name, larger, base)
        elif is_float and name != recipe.one_hot:
            yield f"{name} all 0", but(name, np.zeros_like(value)), True
            if value.shape == guess.shape:
                yield f"{name} equal to the predictions", but(name, guess.copy()), True
            yield from _missing(recipe, name, larger, base)
    for name, numbers in recipe.bounds.items():
        if base[name].dtype.kind == "f" and name not in (*recipe.domains, recipe.one_hot):
            near = _about(numbers, base[name].shape)
            yield f"{name} on the bounds that it is compared with", but(name, near), True
    yield SPOILT_PREDICTIONS[0], but(predicted, _with(np.nan, guess, -1)), False
    yield SPOILT_PREDICTIONS[1], but(predicted, _with(np.inf, guess, 0)), False


def large(
    recipe: Recipe, batch: int, integers: str, has_remainders: bool
) -> Iterator[tuple[str, dict[str, np.ndarray], bool]]:
    """Whole numbers near the end of 32 bits and beyond, for whatever is read as a number of Python.

    `integers` is the widest type of the backend's. With remainders floats that are whole numbers count as such.
    """
    base = ordinary(recipe, batch, seed=5)
    for name in dict.fromkeys((*recipe.whole, *recipe.read)):
        value, is_whole = base[name], name in recipe.whole
        if name == recipe.predicted:
            if is_whole:
                yield f"{name}: {LARGE_NUMBERS} {2**40}", {**base, name: value * np.float32(2**40)}, False
            continue
        has_floats = recipe.as_float if is_whole else has_remainders
        types = (*(["float32"] if has_floats else []), *([] if is_whole and recipe.as_float else ["int32", integers]))
        for start, step, dtype in _LARGE:
            if dtype not in types or not (is_whole or start < 2**53):  # Floats of 64 bits have so many.
                continue
            steps = np.resize(np.asarray([0, 1, 1, 3, 2], "int64"), value.shape)
            yield (
                f"{name}: {LARGE_NUMBERS} {start} ({dtype})",
                {**base, name: (start + step * steps).astype(dtype)},
                True,
            )
        far = [number for number in recipe.domains.get(name, ()) if abs(number) > 2**24]
        if far and not recipe.as_float:
            beside = np.asarray([number + step for number in far for step in (0, 1, -1)], "int64")
            yield f"{name}: {LARGE_NUMBERS} those of the code", {**base, name: np.resize(beside, value.shape)}, True


def read_as_whole(recipe: Recipe, trial: str, arrays: Mapping[str, np.ndarray]) -> str | None:
    """The parameter that a trial gave large whole numbers, though it may hold floats as well; None: another trial."""
    name, _, what = trial.partition(": ")
    is_read = what.startswith(LARGE_NUMBERS) and name not in recipe.whole and arrays[name].dtype.kind == "i"
    return name if is_read else None


def _about(numbers: Sequence[float], shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of 32 bits next to those given, and the ones beside these."""
    near = np.asarray(numbers, "float32")
    around = np.concatenate([near, np.nextafter(near, np.float32("inf")), np.nextafter(near, np.float32("-inf"))])
    return np.resize(around, shape)


def _missing(recipe: Recipe, name: str, larger: int, base: Any) -> Iterator[tuple[str, dict[str, np.ndarray], bool]]:
    """NaN in the first entry, and in others: what a comparison with NaN decides depends on which comes first."""
    yield f"NaN in {name}", {**base, name: _with(np.nan, base[name], 0)}, False
    more = ordinary(recipe, larger, seed=1)
    spoilt = np.where(np.random.default_rng(4).random(more[name].shape) < 0.4, np.nan, more[name])
    spoilt.flat[0], spoilt.flat[-1] = more[name].flat[0], np.nan
    yield f"NaN in {name}, further on", {**more, name: spoilt.astype("float32")}, False


def _with(number: float, value: np.ndarray, place: int) -> np.ndarray:
    spoilt = value.copy()
    spoilt.flat[place] = number
    return spoilt


def offset(recipe: Recipe, batch: int) -> dict[str, np.ndarray]:
    """Predictions that differ in their last digits alone."""
    arrays = ordinary(recipe, batch, seed=2)
    return {**arrays, recipe.predicted: np.asarray(1000 + 0.1 * arrays[recipe.predicted], "float32")}


def in_tenths(recipe: Recipe, batch: int) -> Iterator[dict[str, np.ndarray]]:
    """Targets that are prices or grades, say: 0.1, 0.2, ...; what 64 bits make of these, 32 may round to a bound."""
    arrays = ordinary(recipe, batch, seed=3)
    fixed = (recipe.predicted, recipe.one_hot, *recipe.domains, *recipe.edges)
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
    tied = {
        name: np.asarray(value + rng.uniform(0, _LITTLE, value.shape), "float32")
        for name, value in arrays.items()
        if value.dtype.kind == "f" and np.unique(value).size < value.size
    }
    return {**arrays, **tied} if tied else None
