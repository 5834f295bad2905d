"""What is Keras' own, and its public names."""

from __future__ import annotations

import keras
import pytest

from flatout.seam.keras_names import is_loss_wrapper, is_of_keras, public_path


class _OwnLoss(keras.losses.MeanSquaredError):
    pass


def test_keras_own_is_told_from_the_users() -> None:
    assert is_of_keras(keras.layers.Dense)
    assert is_of_keras(keras.ops.map)
    assert not is_of_keras(_OwnLoss)
    assert not is_of_keras(test_keras_own_is_told_from_the_users)
    assert not is_of_keras(object())


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (keras.ops.map, "keras.ops.map"),
        (keras.ops.mean, "keras.ops.mean"),
        (keras.ops.convert_to_numpy, "keras.ops.convert_to_numpy"),
        (keras.losses.mean_squared_error, "keras.losses.mean_squared_error"),
        (keras.metrics.binary_accuracy, "keras.metrics.binary_accuracy"),
        (keras.random.normal, "keras.random.normal"),
        (keras.Loss, "keras.losses.Loss"),
    ],
)
def test_public_names(function: object, name: str) -> None:
    assert public_path(f"{function.__module__}.{function.__name__}") == name  # type: ignore[attr-defined]


def test_names_of_others_stay() -> None:
    for name in ("keras.ops.map", "numpy.mean", "keras_hub.src.models.x", "kerassrc", "builtins.len"):
        assert public_path(name) == name


def test_loss_objects_of_keras_that_wrap_a_function() -> None:
    assert is_loss_wrapper(keras.losses.Huber())
    assert not is_loss_wrapper(_OwnLoss())
    assert not is_loss_wrapper(keras.losses.huber)
    assert not is_loss_wrapper(keras.metrics.MeanSquaredError())
