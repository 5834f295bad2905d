"""Points of a grid: every combination once, samples that repeat, and what is no grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flatout
from flatout.many.grid import points_of

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")

AXES = st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(), min_size=1, max_size=4), max_size=4)


@given(AXES)
def test_a_grid_has_every_combination_in_the_order_of_its_axes(axes: dict[str, list[int]]) -> None:
    grid = flatout.grid(**axes)
    points = list(grid)
    assert len(points) == len(grid) == math.prod(map(len, axes.values()))
    assert points == [grid[number] for number in range(len(grid))] == grid[:]
    assert points[-1] == grid[-1] == {name: values[-1] for name, values in axes.items()}


@given(AXES, st.integers(1, 9), st.integers(0, 3))
def test_a_sample_has_different_points_and_repeats(axes: dict[str, list[int]], count: int, seed: int) -> None:
    grid = flatout.grid(**{name: list(dict.fromkeys(values)) for name, values in axes.items()})
    drawn = grid.sample(count, seed)
    assert drawn == grid.sample(count, seed)
    assert len(drawn) == min(count, len(grid)) == len({tuple(point.items()) for point in drawn})
    assert all(point in list(grid) for point in drawn)


def test_a_seed_draws_the_same_points_in_every_version() -> None:
    drawn = flatout.grid(a=range(9), b=["p", "q", "r"]).sample(4, seed=1)
    assert [(point["a"], point["b"]) for point in drawn] == [(0, "q"), (2, "q"), (5, "p"), (7, "r")]


@pytest.mark.parametrize(("axes", "values"), [(4, 1000), (12, 100)])
def test_a_grid_of_any_size_is_drawn_from_without_listing_it(axes: int, values: int) -> None:
    grid = flatout.grid(**{name: range(values) for name in "abcdefghijkl"[:axes]})
    drawn = grid.sample(5, seed=3)
    assert drawn == grid.sample(5, seed=3) == sorted(drawn, key=lambda point: list(point.values()))
    assert len({tuple(point.items()) for point in drawn}) == 5
    assert set(grid[-1].values()) == {values - 1}
    assert grid[-2:] == [{**grid[-1], list(grid.axes)[-1]: values - 2}, grid[-1]]


class Uniform:
    def rvs(self, random_state: Any) -> Any:
        return random_state.uniform()


def test_a_distribution_is_drawn_from_and_not_listed() -> None:
    grid = flatout.grid(rate=Uniform(), units=[1, 2])
    points = grid.sample(20, seed=3)
    assert points == grid.sample(20, seed=3)
    assert len({point["rate"] for point in points}) == 20
    assert {point["units"] for point in points} == {1, 2}
    assert {type(point["rate"]) for point in points} == {float}
    with pytest.raises(flatout.InvalidOption, match="distribution for rate"):
        len(grid)


def test_what_gives_dicts_is_taken_as_it_is() -> None:
    from sklearn.model_selection import ParameterGrid

    axes = {"seed": [0, 1], "rate": [0.1, 0.2]}
    by_name = sorted(map(repr, (dict(sorted(point.items())) for point in flatout.grid(**axes))))
    assert sorted(map(repr, points_of(ParameterGrid(axes)))) == by_name


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"a": [1]}, "flatout.grid"),
        (3, "list of dicts"),
        ([1], "number 0"),
        ([{"a": 1}, {1: 2}], "number 1"),
        ([], "no points"),
    ],
)
def test_what_is_no_grid_is_refused(given: Any, said: str) -> None:
    with pytest.raises(flatout.InvalidOption, match=said):
        points_of(given)


@pytest.mark.parametrize("axis", ["relu", 3, [], np.array([])])
def test_what_is_no_axis_is_refused(axis: Any) -> None:
    with pytest.raises(flatout.InvalidOption, match="axis"):
        flatout.grid(units=axis)


def test_values_of_numpy_are_numbers_of_python() -> None:
    points = flatout.grid(units=np.array([8, 16]))
    assert [type(point["units"]) for point in points] == [int, int]
