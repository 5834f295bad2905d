"""What a rewrite takes for granted of the containers that a loss reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from flatout.vectorize.interpreter.scopes import digest_of

_SAME: list[tuple[Any, Any]] = [
    ({0: 1.0, 1: 2.0}, {0: 3.0, 1: 4.0}),
    ([1, 2, 3], [4, 5, 6]),
    (np.zeros((2, 3)), np.ones((2, 3))),
    (pd.Series([1.0, 2.0], index=[3, 4]), pd.Series([5.0, 6.0], index=[3, 4])),
    ({"a": {0: 1.0}}, {"a": {0: 2.0}}),
]
_OTHER: list[tuple[Any, Any]] = [
    ({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0, 2: 3.0}),
    ({0: 1.0, 1: 2.0}, {1: 2.0, 0: 1.0}),
    ({0: 1, 1: 2}, {0: 1, 1: 2.5}),
    ({"a": {0: 1.0}}, {"a": {1: 1.0}}),
    ([1, 2, 3], [1, 2, 3, 4]),
    ([1, 2, 3], [1, 2, 0.5]),
    ([[1], [2]], [[1], [2, 3]]),
    (np.zeros((2, 3)), np.zeros((3, 3))),
    (np.zeros(3, "int64"), np.zeros(3, "float64")),
    (pd.Series([1.0, 2.0], index=[3, 4]), pd.Series([1.0, 2.0], index=[3, 5])),
    (pd.DataFrame({"a": [1.0]}), pd.DataFrame({"b": [1.0]})),
    ({1, 2}, {1, 2, 3}),
]


@pytest.mark.parametrize(("one", "other"), _SAME)
def test_numbers_are_read_at_every_call(one: Any, other: Any) -> None:
    assert digest_of(one) == digest_of(other)


@pytest.mark.parametrize(("one", "other"), _OTHER)
def test_keys_lengths_and_types_are_not(one: Any, other: Any) -> None:
    assert digest_of(one) != digest_of(other)
