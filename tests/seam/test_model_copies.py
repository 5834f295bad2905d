"""Copies of models, and what Keras keeps for the process while they are made."""

from __future__ import annotations

import random
from typing import Any

import keras
import pytest

from flatout.seam.model_copies import copied, keras_kept, seed_generators, tensorflow_seed_kept


def _loss(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)


def test_a_copy_shares_nothing_but_functions() -> None:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    metric = keras.metrics.MeanSquaredError(name="error")
    model.compile(keras.optimizers.SGD(0.25, momentum=0.5), _loss, metrics=[metric], steps_per_execution=1)
    copy = copied(model)
    assert [weight.shape for weight in copy.weights] == [weight.shape for weight in model.weights]
    assert not {id(weight) for weight in copy.variables} & {id(weight) for weight in model.variables}
    assert copy.optimizer is not model.optimizer
    assert copy.optimizer.get_config() == model.optimizer.get_config()
    assert copy.compiled


def test_subclasses_are_copied_by_their_configuration() -> None:
    class Own(keras.Model):
        def __init__(self, width: int = 2, **names: Any):
            super().__init__(**names)
            self.width = width

        def get_config(self) -> Any:
            return {**super().get_config(), "width": self.width}

    assert copied(Own(5)).width == 5


def test_names_and_seeds_of_keras_are_put_back() -> None:
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(1)
    keras.random.uniform((1,))
    state = random.getstate()
    with keras_kept():
        seed_generators(5)
        inside = keras.ops.convert_to_numpy(keras.random.uniform((3,)))
        assert keras.layers.Dense(1).name == "dense"
    random.setstate(state)
    assert keras.layers.Dense(1).name == "dense"
    next_numbers = keras.ops.convert_to_numpy(keras.random.uniform((3,)))
    keras.utils.set_random_seed(1)
    keras.random.uniform((1,))
    assert (keras.ops.convert_to_numpy(keras.random.uniform((3,))) == next_numbers).all()
    assert (inside != next_numbers).any()


@pytest.mark.backend("tensorflow")
def test_seeds_of_tensorflow_are_put_back() -> None:
    import tensorflow as tf

    tf.random.set_seed(2)
    tf.random.uniform((1,))
    with tensorflow_seed_kept():
        tf.random.set_seed(3)
        tf.random.uniform((4,))
    after = tf.random.uniform((1,)).numpy()
    tf.random.set_seed(2)
    tf.random.uniform((1,))
    assert tf.random.uniform((1,)).numpy() == after
