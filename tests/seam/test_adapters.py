"""Keras' data adapters and epoch iterators, asked through the seam."""

from __future__ import annotations

import os
from typing import Any

import keras
import numpy as np

from flatout.seam import adapters, epoch_iterators
from flatout.seam.trainers import strategy_arguments, trainer_module

BACKEND = os.environ.get("KERAS_BACKEND", "jax")
X, Y = np.arange(20, dtype="float32").reshape(10, 2), np.arange(10, dtype="float32")


def _model() -> Any:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_arrays_as_keras_adapts_them() -> None:
    adapted = adapters.adapted_arrays(X, Y, sample_weight=Y)
    assert (adapted.rows, adapted.batch_size) == (10, 32)
    assert [leaf.shape for leaf in adapted.inputs] == [(10, 2), (10,), (10,)]
    assert adapters.adapted_arrays(X, None, batch_size=4).batch_size == 4


def test_which_data_have_rows_with_numbers() -> None:
    assert adapters.are_arrays((X, Y, None))
    assert not adapters.are_arrays(((batch for batch in [X]), None, None))
    assert adapters.arrays_behind(epoch_iterators.adapter_of(X)) is X
    assert adapters.arrays_behind(epoch_iterators.adapter_of(batch for batch in [(X, Y)])) is None


def test_the_last_rows_are_held_out() -> None:
    train, held_out = adapters.train_validation_split((X, Y, None), 0.3)
    assert [part[0].shape[0] for part in (train, held_out)] == [7, 3]
    np.testing.assert_array_equal(held_out[1], Y[7:])


def test_batches_that_are_foreseen_take_the_place_of_those_that_are_drawn() -> None:
    class Adapter(adapters.adapter_class_drawing_ahead()):  # type: ignore[misc]
        passes = 0

        def drawn_batches(self) -> Any:
            Adapter.passes += 1
            return [("foreseen",)] if Adapter.passes == 1 else None

    adapter = Adapter(X, batch_size=5)
    assert list(adapter.get_numpy_iterator()) == [("foreseen",)]
    assert [batch.shape for batch in adapter.get_numpy_iterator()] == [(5, 2), (5, 2)]


def test_a_generators_adapter_has_looked_at_its_first_batches() -> None:
    adapter = epoch_iterators.adapter_of((X[:2], Y[:2]) for _ in range(3))
    assert len(adapters.looked_at(adapter)) >= 1
    assert adapters.looked_at(adapter)[0][0].shape == (2, 2)


def test_an_epoch_counts_its_steps() -> None:
    kind = epoch_iterators.iterator_class(trainer_module(BACKEND))
    assert issubclass(kind, epoch_iterators.plain_iterator_class())
    iterator = kind(x=X, y=Y, batch_size=4, **strategy_arguments(_model()))
    assert epoch_iterators.batches_of_pass(iterator) == 3
    seen = [(first, epoch_iterators.steps_seen(iterator)) for first, _, _ in epoch_iterators.passes(iterator)]
    assert seen == [(0, 1), (1, 2), (2, 3)]


def test_an_iterator_that_reads_otherwise() -> None:
    kind = epoch_iterators.read_by(
        epoch_iterators.plain_iterator_class(), lambda adapter, begin: [f"{adapter.num_batches} of", *begin()]
    )
    _, _, batches = next(epoch_iterators.passes(kind(X, batch_size=5)))
    assert next(batches) == "2 of"
    assert next(batches).shape == (5, 2)


def test_the_iterator_that_a_fit_keeps_for_its_validation() -> None:
    model = _model()
    assert epoch_iterators.kept_validation(model) is None
    evaluation = {"x": X, "y": Y, "sample_weight": None, "batch_size": 5, "steps": None}
    iterator = epoch_iterators.validation_iterator(model, evaluation)
    assert iterator.num_batches == 2
    epoch_iterators.keep_validation(model, iterator)
    assert epoch_iterators.kept_validation(model) is iterator
    # Keras' own `evaluate` takes it, and looks at nothing else.
    loss = model.evaluate(**{epoch_iterators.KEPT_VALIDATION: True}, verbose=0)
    assert np.isfinite(loss)
    epoch_iterators.forget_validation(model)
    epoch_iterators.forget_validation(model)
    assert epoch_iterators.kept_validation(model) is None
