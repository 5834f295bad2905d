"""Steps of a jax program give the same bits one by one, in a loop and in loops of several."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import layers

pytestmark = pytest.mark.backend("jax")

X = np.random.default_rng(1).standard_normal((200, 6)).astype("float32")
Y = np.random.default_rng(2).integers(0, 2, 200)


@pytest.mark.slow
def test_unit_lengths_give_the_same_results() -> None:
    """An inner loop, single steps at its end, and all outputs kept: the forms that a GPU uses."""
    from flatout.engines.jax.engine import JaxEngine

    weights, logs = [], []
    for unit, loops in ((1, True), (5, True), (1, False)):
        keras.utils.set_random_seed(4)
        model = keras.Sequential([layers.Input((6,)), layers.Dense(5), layers.Dense(1, activation="sigmoid")])
        metrics = ["accuracy", keras.metrics.AUC(num_thresholds=10)]
        model.compile(keras.optimizers.Adam(0.1), "binary_crossentropy", metrics=metrics)
        engine = JaxEngine()
        model._symbolic_build(data_batch=(X[:16], Y[:16]))
        program = engine.prepare(model, "train", engine.place((X, Y)), 200, 16)
        program.unit, program._loops = unit, loops
        program.begin_pass(None)
        logs.append([float(log["loss"]) for log in program.run(0, 13, every_step=True)])
        program.end_pass()
        weights.append(model.get_weights())
    assert logs[0] == logs[1] == logs[2]
    for other in weights[1:]:
        for one, two in zip(weights[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
