"""A candidate has random generators of its own, which other processes may draw by."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from flatout.data.order.draw_worker import packed_state
from flatout.engines.select import engine_for
from flatout.many.candidate import OwnGenerators

pytestmark = pytest.mark.backend("jax")


def test_the_state_of_numpy_is_as_numpy_has_it() -> None:
    generators = OwnGenerators(engine_for(keras.config.backend()))
    with generators.seeded(3):
        np.random.normal()
        expected = np.random.get_state()
    assert packed_state(generators.of_numpy) == packed_state(expected)


@pytest.mark.filterwarnings("ignore:get_state and legacy")
def test_numpy_may_have_another_generator() -> None:
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        with OwnGenerators(engine_for(keras.config.backend())).seeded(3):
            np.random.normal()
        assert np.random.random_sample() == np.random.RandomState(np.random.PCG64(1)).random_sample()
    finally:
        np.random.set_bit_generator(before)
