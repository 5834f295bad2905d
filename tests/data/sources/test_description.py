"""What is said of the user's data, and that class weights are Keras' own."""

from __future__ import annotations

import keras
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from keras.src.trainers.data_adapters import data_adapter_utils

from flatout.base.errors import Refusal
from flatout.data.sources.description import describe, weights_of_classes


@settings(max_examples=60, deadline=None)
@given(
    labels=hnp.arrays(np.int64, st.integers(1, 40), elements=st.integers(-2, 6)),
    weights=st.dictionaries(st.integers(-2, 6), st.floats(0, 10, width=32), max_size=5),
    form=st.sampled_from(["flat", "column", "one hot", "float"]),
)
def test_class_weights_equal_those_of_keras(labels: np.ndarray, weights: dict[int, float], form: str) -> None:
    y = {
        "flat": labels,
        "column": labels[:, None],
        "one hot": np.eye(9)[labels + 2],
        "float": labels.astype("float32") + 0.2,
    }[form]
    expected = data_adapter_utils.class_weight_to_sample_weights(y, weights)
    np.testing.assert_array_equal(weights_of_classes(y, weights), expected)


def test_rows_batches_and_bytes_of_nested_arrays() -> None:
    x = {"a": np.zeros((10, 3)), "b": np.zeros((10, 2), "uint8")}
    source = describe(x, np.zeros(10, "int64"), batch_size=4)
    assert (source.rows, source.batch_size, source.batches) == (10, 4, 3)
    assert source.nbytes == 10 * 3 * 4 + 10 * 2 + 10 * 8


def test_batch_size_follows_from_steps_as_in_keras() -> None:
    assert describe(np.zeros((10, 1)), steps=3).batch_size == 4
    assert describe(np.zeros((10, 1))).batch_size == 32


def test_frames_are_arrays() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})
    source = describe(frame, frame["a"])
    assert source.rows == 2
    assert len(source.head(1)[0]) == 1


@pytest.mark.parametrize(
    ("x", "code"),
    [
        (map(str, range(3)), "source"),
        (np.array(["a", "b"], dtype=object), "sparse"),
        (pd.DataFrame({"a": ["x", "y"]}), "sparse"),
        (np.zeros((0, 3)), "no_rows"),
    ],
)
def test_what_only_keras_can_take_is_refused(x: object, code: str) -> None:
    with pytest.raises(Refusal) as refusal:
        describe(x)
    assert refusal.value.reason.code == code


def test_lengths_that_differ_raise_keras_own_error() -> None:
    with pytest.raises(ValueError, match="Data cardinality is ambiguous"):
        describe(np.zeros((3, 1)), np.zeros(4))


def test_sample_weight_and_class_weight_together_raise_keras_own_error() -> None:
    with pytest.raises(ValueError, match="at the same time"):
        describe(np.zeros((3, 1)), np.zeros(3), np.ones(3), class_weight={0: 1.0})
    assert keras.config.backend()
