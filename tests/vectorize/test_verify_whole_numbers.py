"""Whole numbers of Python have no bound, those of a backend do: what it cannot hold is not rewritten."""

from __future__ import annotations

import bisect
import math
from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
from keras import ops
from same_loss import assert_same_loss

import flatout
from flatout.vectorize.rewrite import rewrite_function
from flatout.vectorize.verify.verification import NoRewrite

pytestmark = pytest.mark.turns

WEIGHT = {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0, 4: 5.0, 5: 6.0}
PRICE = {5_000_000_000: 2.0, 5_000_000_001: 3.0, 5_000_000_005: 7.0}
SERIES = pd.Series([1.0, 2.0, 4.0], index=[3, 5, 1_700_000_003])
STARTS = [1_700_000_000, 1_700_000_001, 1_700_000_003]


def by_customer(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + WEIGHT.get(int(y_true[i]), 0.0) * ops.sum(ops.square(y_pred[i]))
    return total


def known_only(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        if int(y_true[i]) in WEIGHT:
            total = total + ops.sum(ops.square(y_pred[i]))
    return total + ops.sum(y_pred)


def mean_time(y_true, y_pred):
    seconds = 0
    for i in range(y_pred.shape[0]):
        seconds += int(y_true[i])
    return seconds / y_pred.shape[0] * 1e-9 * ops.sum(ops.square(y_pred))


def later(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        if int(y_true[i]) * 1000 > 1_700_000_002_000:
            total = total + ops.sum(ops.square(y_pred[i]))
    return total + ops.sum(y_pred)


def earliest(y_true, y_pred):
    first = min(range(y_pred.shape[0]), key=lambda k: int(y_true[k]))
    return ops.sum(ops.square(y_pred[first]))


def weekday(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + (int(y_true[i]) // 86400 + 4) % 7 * ops.sum(ops.square(y_pred[i]))
    return total


def bucket(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + (int(y_true[i]) * 31 % 10) * ops.sum(ops.square(y_pred[i]))
    return total


def big_keys(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + PRICE.get(int(y_true[i]), 0.5) * ops.sum(ops.square(y_pred[i]))
    return total


def in_series(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + SERIES.get(int(y_true[i]), 0.25) * ops.sum(ops.square(y_pred[i]))
    return total


def interval(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + (1 + bisect.bisect_right(STARTS, int(y_true[i]))) * ops.sum(ops.square(y_pred[i]))
    return total


def signed(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + (2 * int(y_true[i]) - 1) * ops.sum(y_pred[i])
    return total * 1e-9


def gaps(y_true, y_pred):
    total = 0.0
    for i in range(1, y_pred.shape[0]):
        total = total + (1 + abs(int(y_true[i]) - int(y_true[i - 1]))) * ops.sum(ops.square(y_pred[i]))
    return total


def above_half(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + (2.0 if int(y_true[i]) > 1_700_000_002.5 else 1.0) * ops.sum(ops.square(y_pred[i]))
    return total


def thousands(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + y_true[i].item() * 1000 % 7 * ops.sum(ops.square(y_pred[i]))
    return total


def floored(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + math.floor(float(y_true[i])) % 7 * ops.sum(ops.square(y_pred[i]))
    return total


def of_numpy(y_true, y_pred):
    numbers = np.asarray(y_true).astype(int)
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + float(numbers[i] * 10 % 7) * ops.sum(ops.square(y_pred[i]))
    return total


def alike(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        for j in range(y_pred.shape[0]):
            if int(y_true[i]) == int(y_true[j]):
                total = total + ops.sum(y_pred[i] * y_pred[j])
    return total


def squares(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + int(y_true[i]) ** 2 * ops.sum(y_pred[i])
    return total * 1e-20


LOSSES = [
    *(by_customer, known_only, mean_time, later, earliest, weekday, bucket, big_keys, in_series, interval, signed),
    *(gaps, above_half, thousands, alike, squares, floored, of_numpy),
]
_SMALL = np.asarray([0, 1, 2, 3, 1, 4])
_DATA = {
    "small": _SMALL.astype("int32"),
    "clock in 32 bits": (1_700_000_000 + _SMALL).astype("int32"),
    "end of 32 bits": (2**31 - 5 + _SMALL).astype("int32"),
    "clock as floats": (1_700_000_000 + 128 * _SMALL).astype("float32"),
    "identifiers as floats": (2**40 + 2**17 * _SMALL).astype("float32"),
    "identifiers": 2**40 + _SMALL,
    "keys": 5_000_000_000 + _SMALL,
    "clock in 64 bits": 1_700_000_000 + _SMALL,
    "milliseconds": 1_700_000_000_000 + 1000 * _SMALL,
    "nanoseconds": 1_700_000_000 * 10**9 + _SMALL,
    "negative": -(2**40) - _SMALL,
}


@pytest.mark.turns(4)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_whole_numbers_of_any_size_give_what_the_original_gives(loss: Any) -> None:
    quick = flatout.vectorize(loss)
    guess = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    for what, numbers in _DATA.items():
        if numbers.dtype == np.int64 and keras.backend.backend() == "jax":
            continue  # It has no such numbers.
        given = [ops.convert_to_tensor(numbers), ops.convert_to_tensor(guess)]
        try:
            value = ops.convert_to_numpy(loss(*given))
        except Exception:  # A library takes no whole number that large beside a tensor, each with an error of its own.
            continue
        np.testing.assert_allclose(ops.convert_to_numpy(quick(*given)), value, rtol=1e-4, err_msg=what)


@pytest.mark.turns(4)
@pytest.mark.parametrize(
    "loss", [by_customer, known_only, earliest, mean_time, signed, gaps, alike, squares], ids=lambda loss: loss.__name__
)
def test_what_any_backend_holds_is_rewritten(loss: Any) -> None:
    quick = flatout.vectorize(loss)
    assert quick.applied, quick.reason
    guess = np.random.default_rng(1).normal(size=(6, 3)).astype("float32")
    # jax itself takes no whole number beyond 32 bits beside a tensor.
    is_beyond = loss in (signed, squares) and keras.backend.backend() == "jax"
    numbers = _DATA["small" if is_beyond else "clock in 32 bits"]
    assert_same_loss(quick, loss, {"y_true": numbers, "y_pred": guess})


@pytest.mark.backend("tensorflow", "torch")
@pytest.mark.turns
@pytest.mark.parametrize("loss", [big_keys, in_series, interval], ids=lambda loss: loss.__name__)
def test_64_bits_are_used_where_there_are_some(loss: Any) -> None:
    quick = flatout.vectorize(loss)
    assert quick.applied, quick.reason


@pytest.mark.backend("torch")
@pytest.mark.parametrize("loss", [bucket, later], ids=lambda loss: loss.__name__)
def test_what_no_backend_holds_is_refused_with_the_numbers_that_show_it(loss: Any) -> None:
    quick = flatout.vectorize(loss)
    assert not quick.applied
    assert "whole numbers about" in quick.reason or "bits" in quick.reason


@pytest.mark.backend("jax")
def test_keys_beyond_32_bits_are_refused_where_there_are_no_more() -> None:
    made = rewrite_function(big_keys, {"y_true": 1, "y_pred": 2})
    assert isinstance(made, NoRewrite)
    assert "32 bits" in made.reason


RATE = {0: 1.0, 1: 2.0}
FACTOR = 3


def rated(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + RATE.get(int(y_true[i]), 0.0) * ops.sum(ops.square(y_pred[i]))
    return total


def scaled(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + int(y_true[i]) * FACTOR % 10 * ops.sum(ops.square(y_pred[i]))
    return total


def test_a_key_that_comes_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = flatout.vectorize(rated)
    assert quick.applied, quick.reason
    given = [ops.convert_to_tensor(_DATA["small"]), ops.ones((6, 3))]
    np.testing.assert_allclose(float(quick(*given)), float(rated(*given)))
    monkeypatch.setitem(RATE, 1, 5.0)  # Read at every call.
    np.testing.assert_allclose(float(quick(*given)), float(rated(*given)))
    for key, rate in ((2, 7.0), (3, 1)):
        monkeypatch.setitem(RATE, key, rate)
        np.testing.assert_allclose(float(quick(*given)), float(rated(*given)))
    monkeypatch.delitem(RATE, 0)
    np.testing.assert_allclose(float(quick(*given)), float(rated(*given)))


def test_a_factor_that_grows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = flatout.vectorize(scaled)
    given = [ops.convert_to_tensor(_DATA["clock in 32 bits"]), ops.ones((6, 3))]
    for factor in (3, 7, 10**12 + 1):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        np.testing.assert_allclose(float(quick(*given)), float(scaled(*given)))


def multiplied(y_true, y_pred, factor=3):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + int(y_true[i]) * factor % 10 * ops.sum(ops.square(y_pred[i]))
    return total


def test_a_factor_that_is_given_is_seen() -> None:
    quick = flatout.vectorize(multiplied)
    given = [ops.convert_to_tensor(_DATA["clock in 32 bits"]), ops.ones((6, 3))]
    for factor in (3, 10**12 + 1):
        np.testing.assert_allclose(float(quick(*given, factor=factor)), float(multiplied(*given, factor=factor)))


def above_given(y_true, y_pred, bound=1_700_000_002.5):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + (2.0 if int(y_true[i]) > bound else 1.0) * ops.sum(ops.square(y_pred[i]))
    return total


def near_given(y_true, y_pred, bound=0.3):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + (2.0 if float(y_true[i]) > bound else 1.0) * ops.sum(ops.square(y_pred[i]))
    return total


def steps_given(y_true, y_pred, width=0.3):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + float(y_true[i]) // width * ops.sum(ops.square(y_pred[i]))
    return total


@pytest.mark.parametrize(
    ("loss", "numbers"),
    [
        (above_given, _DATA["clock in 32 bits"]),
        (near_given, np.asarray([0.2, 0.3, np.nextafter(np.float32(0.3), 0), 0.5, 0.6, 0.7], "float32")),
        (steps_given, np.asarray([0.3, 0.6, 0.9, 1.2, 1.5, 1.8], "float32")),
    ],
)
def test_a_default_is_compared_as_a_constant_is(loss: Any, numbers: np.ndarray) -> None:
    quick = flatout.vectorize(loss)
    given = [ops.convert_to_tensor(numbers), ops.ones((6, 3))]
    for more in ((), (0.6,), (1_700_000_001.5,)):
        np.testing.assert_allclose(float(quick(*given, *more)), float(loss(*given, *more)))


def repeated(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        for _ in range(int(y_true[i])):
            total = total + ops.sum(y_pred[i])
    return total + 2.0 ** int(y_true[0]) * ops.sum(y_pred)


def test_nothing_is_tried_that_would_never_end() -> None:
    quick = flatout.vectorize(repeated)
    given = [ops.convert_to_tensor(_DATA["small"]), ops.ones((6, 3))]
    np.testing.assert_allclose(float(quick(*given)), float(repeated(*given)))
