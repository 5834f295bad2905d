"""The points of a search: every combination of some values, or a random sample of them."""

from __future__ import annotations

import inspect
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from flatout.base.errors import InvalidOption

Point = dict[str, Any]
# A permutation of so many numbers takes 1 GiB.
_MOST_TO_PERMUTE = 2**27


class Grid(Sequence[Point]):
    """All combinations of the values of each axis, the last axis first to change.

    Example:
        >>> import flatout
        >>> points = flatout.grid(seed=range(2), units=[64, 128])
        >>> len(points), points[1]
        (4, {'seed': 0, 'units': 128})
        >>> points.sample(2, seed=1)
        [{'seed': 0, 'units': 64}, {'seed': 0, 'units': 128}]
    """

    def __init__(self, axes: Mapping[str, Any]):
        self.axes: dict[str, Any] = {name: _values(name, values) for name, values in axes.items()}

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Point: ...
    @overload
    def __getitem__(self, index: slice) -> list[Point]: ...
    def __getitem__(self, index: int | slice) -> Point | list[Point]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._size))]
        number, point = range(self._size)[index], {}
        for name, values in reversed(self._listed().items()):
            number, place = divmod(number, len(values))
            point[name] = values[place]
        return dict(reversed(point.items()))

    def __iter__(self) -> Iterator[Point]:
        axes = self._listed()
        return (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))

    def sample(self, count: int, seed: int = 0) -> list[Point]:
        """Draw points: different ones of a grid, any where an axis is a distribution.

        Args:
            count: How many; all of a grid that has fewer.
            seed: The same seed draws the same points.
        """
        if count < 1:
            raise InvalidOption(f"A sample has at least one point. Received: count={count}.")
        generator = np.random.default_rng(seed)
        if not any(map(_is_distribution, self.axes.values())):
            return [self[number] for number in sorted(_chosen(self._size, count, generator))]
        return [{name: _drawn(values, generator) for name, values in self.axes.items()} for _ in range(count)]

    @property
    def _size(self) -> int:
        """What `len` says, which Python limits to 63 bits."""
        return math.prod(len(values) for values in self._listed().values())

    def _listed(self) -> dict[str, list[Any]]:
        drawn = [name for name, values in self.axes.items() if _is_distribution(values)]
        if drawn:
            raise InvalidOption(
                f"A grid has a list of values on each axis. Received: a distribution for {', '.join(drawn)}. Draw from "
                "it: flatout.grid(...).sample(20)."
            )
        return self.axes

    def __repr__(self) -> str:
        return f"flatout.grid({', '.join(f'{name}={values!r}' for name, values in self.axes.items())})"


def grid(**axes: Any) -> Grid:
    """All combinations of some values, as points for `flatout.fit_many`.

    Args:
        **axes: For each argument of `build` its values; or a distribution with a method `rvs`, as scipy.stats has them,
            to `sample` from.

    Example:
        >>> import flatout
        >>> len(flatout.grid(seed=range(8), learning_rate=[1e-3, 3e-4], units=[64, 128]))
        32
    """
    return Grid(axes)


def points_of(given: Any) -> list[Point]:
    """The points of a grid, of a list of dicts, or of what gives dicts, such as scikit-learn's `ParameterGrid`."""
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        hint = "flatout.grid(**axes)" if isinstance(given, Mapping) else "a list of dicts"
        raise InvalidOption(f"`grid` is a list of points, such as {hint}. Received: {type(given).__name__}.")
    points = [dict(point) if isinstance(point, Mapping) else point for point in given]
    for number, point in enumerate(points):
        if not isinstance(point, dict) or not all(isinstance(name, str) for name in point):
            raise InvalidOption(
                f"A point of `grid` is a dict of arguments of `build`. Received: {point!r} as number {number}."
            )
    if not points:
        raise InvalidOption("`grid` has no points. Give at least one, [{}] for a build without arguments.")
    return points


def accepted(function: Callable[..., Any], point: Point) -> Point:
    """Those of a point's arguments that a function takes."""
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return {name: value for name, value in point.items() if takes_any or name in parameters}


def _values(name: str, values: Any) -> Any:
    if _is_distribution(values):
        return values
    if isinstance(values, np.ndarray):
        # A layer's units are no number of NumPy's.
        values = values.tolist()
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidOption(f"An axis of a grid is a list of values. Received: {name}={values!r}. Write [{values!r}].")
    listed = list(values)
    if not listed:
        raise InvalidOption(f"An axis of a grid has at least one value. Received: {name}={values!r}.")
    return listed


def _is_distribution(values: Any) -> bool:
    return callable(getattr(values, "rvs", None))


def _chosen(size: int, count: int, generator: np.random.Generator) -> Iterable[int]:
    """Different numbers below a size; all of them if they are fewer than the count."""
    if size <= _MOST_TO_PERMUTE:
        return generator.permutation(size)[:count].tolist()
    # NumPy draws none above 64 bits.
    drawing = random.Random(generator.bytes(16))
    chosen: set[int] = set()
    while len(chosen) < min(count, size):
        chosen.add(drawing.randrange(size))
    return chosen


def _drawn(values: Any, generator: np.random.Generator) -> Any:
    if not _is_distribution(values):
        return values[int(generator.integers(len(values)))]
    drawn = values.rvs(random_state=generator)
    return drawn.item() if isinstance(drawn, np.generic) else drawn
