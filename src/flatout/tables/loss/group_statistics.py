"""Statistics per group inside a loss: a static number of groups, and right answers for groups without a member.

All are sums over segments, so value and gradient are the same on every backend. A group number that is negative, too
large or no whole number belongs to no group.
"""

from __future__ import annotations

from typing import Any

from flatout.base.when_used import keras, ops
from flatout.tables.joins.device_rows import whole_numbers


def group_sum(values: Any, groups: Any, num_groups: int) -> Any:
    """The sum of each group; 0 for an empty one.

    Args:
        values: An array with an entry for each row, of any further shape.
        groups: The group of each row, a whole number from 0 on; shape `(rows,)` or `(rows, 1)`.
        num_groups: How many groups there are: a Python integer, known when the step is compiled.

    Returns:
        An array with an entry for each group.

    Example:
        >>> import flatout, numpy as np
        >>> flatout.group_sum(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2]), 3).tolist()
        [1.0, 0.0, 6.0]
    """
    values, numbers, _ = _prepared(values, groups, num_groups)
    return ops.segment_sum(values, numbers, num_segments=num_groups + 1)[:num_groups]


def group_count(groups: Any, num_groups: int, dtype: str | None = None) -> Any:
    """The number of rows of each group.

    Example:
        >>> import flatout, numpy as np
        >>> flatout.group_count(np.array([0, 2, 2]), 3).tolist()
        [1.0, 0.0, 2.0]
    """
    numbers, _ = _numbers(groups, num_groups)
    ones = ops.ones_like(numbers, dtype=dtype or keras.config.floatx())
    return ops.segment_sum(ones, numbers, num_segments=num_groups + 1)[:num_groups]


def group_mean(values: Any, groups: Any, num_groups: int, weights: Any = None, empty: float = 0.0) -> Any:
    """The mean of each group, weighted if weights are given.

    Args:
        values: As for `group_sum`.
        groups: As for `group_sum`.
        num_groups: As for `group_sum`.
        weights: One for each row.
        empty: What a group has without a row, or with weights that add up to 0.

    Example:
        >>> import flatout, numpy as np
        >>> flatout.group_mean(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2]), 3).tolist()
        [1.0, 0.0, 3.0]
    """
    values, numbers, _ = _prepared(values, groups, num_groups)
    if weights is None:
        weights = ops.ones_like(numbers, dtype=values.dtype)
    else:
        weights = ops.reshape(ops.cast(ops.convert_to_tensor(weights), values.dtype), (-1,))
    spread = ops.reshape(weights, (-1, *[1] * (len(values.shape) - 1)))
    totals = ops.segment_sum(values * spread, numbers, num_segments=num_groups + 1)[:num_groups]
    sums = ops.segment_sum(weights, numbers, num_segments=num_groups + 1)[:num_groups]
    return _divided(totals, sums, empty)


def group_var(values: Any, groups: Any, num_groups: int, empty: float = 0.0) -> Any:
    """The variance of each group, divided by the number of its rows; 0 for a group of one.

    Example:
        >>> import flatout, numpy as np
        >>> flatout.group_var(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2]), 3).tolist()
        [0.0, 0.0, 1.0]
    """
    values, numbers, inside = _prepared(values, groups, num_groups)
    means = group_mean(values, groups, num_groups)
    own = ops.take(means, ops.where(inside, numbers, 0), axis=0)
    return group_mean(ops.square(values - own), groups, num_groups, empty=empty)


def group_max(values: Any, groups: Any, num_groups: int, empty: float = 0.0) -> Any:
    """The largest value of each group; the gradient is shared by all that are equal to it.

    Example:
        >>> import flatout, numpy as np
        >>> flatout.group_max(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2]), 3).tolist()
        [1.0, 0.0, 4.0]
    """
    return _extreme(values, groups, num_groups, empty, 1.0)


def group_min(values: Any, groups: Any, num_groups: int, empty: float = 0.0) -> Any:
    """The smallest value of each group; the gradient is shared by all that are equal to it.

    Example:
        >>> import flatout, numpy as np
        >>> flatout.group_min(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2]), 3).tolist()
        [1.0, 0.0, 2.0]
    """
    return _extreme(values, groups, num_groups, empty, -1.0)


def _extreme(values: Any, groups: Any, num_groups: int, empty: float, sign: float) -> Any:
    values, numbers, _ = _prepared(values, groups, num_groups)
    # Not the gradient of segment_max: jax has none, and the others differ in ties.
    fixed = ops.stop_gradient(values) * sign
    best = ops.segment_max(fixed, numbers, num_segments=num_groups + 1)
    winners = ops.cast(ops.equal(fixed, ops.take(best, numbers, axis=0)), values.dtype)
    # A value that did not win must not count, not even an infinite one, of which 0 times is NaN.
    kept = ops.where(ops.cast(winners, "bool"), values, ops.zeros_like(values))
    totals = ops.segment_sum(kept, numbers, num_segments=num_groups + 1)[:num_groups]
    counts = ops.segment_sum(winners, numbers, num_segments=num_groups + 1)[:num_groups]
    return _divided(totals, counts, empty)


def _divided(totals: Any, counts: Any, empty: float) -> Any:
    counts = ops.reshape(counts, (*counts.shape, *[1] * (len(totals.shape) - len(counts.shape))))
    is_empty = ops.equal(counts, 0)
    # The divisor of an empty group is made safe first: the gradient of 0 / 0 is NaN even where it is not chosen.
    safe = ops.where(is_empty, ops.ones_like(counts), counts)
    return ops.where(is_empty, ops.cast(empty, totals.dtype), totals / safe)


def _prepared(values: Any, groups: Any, num_groups: int) -> tuple[Any, Any, Any]:
    values = ops.convert_to_tensor(values)
    if not keras.backend.is_float_dtype(values.dtype):
        values = ops.cast(values, keras.config.floatx())
    numbers, inside = _numbers(groups, num_groups)
    rows, members = values.shape[0], numbers.shape[0]
    if len(values.shape) == 0 or (rows is not None and members is not None and rows != members):
        raise ValueError(
            "`values` and `groups` must have an entry for each row. Received: values of shape "
            f"{tuple(values.shape)} and groups of shape {tuple(ops.convert_to_tensor(groups).shape)}."
        )
    return values, numbers, inside


def _numbers(groups: Any, num_groups: int) -> tuple[Any, Any]:
    """The group of each row, the one after the last for rows of none; and which have one."""
    if not isinstance(num_groups, int) or num_groups < 1:
        raise ValueError(f"Invalid value for argument `num_groups`. Received: {num_groups!r}. Expected 1 or more.")
    groups = ops.convert_to_tensor(groups)
    if len(groups.shape) == 2 and groups.shape[1] == 1:
        groups = ops.squeeze(groups, -1)
    if len(groups.shape) != 1:
        raise ValueError(f"`groups` must have the shape (rows,) or (rows, 1). Received: {tuple(groups.shape)}.")
    numbers, inside = whole_numbers(groups, 0, num_groups - 1, "groups")
    return ops.where(inside, numbers, num_groups), inside
