"""What a trial of a step has drawn is put back."""

from __future__ import annotations

import keras
import pytest

from flatout.seam.variable_state import global_seeds

pytestmark = pytest.mark.backend("torch")


def test_the_global_seed_generator_that_a_trial_makes_is_gone_afterwards() -> None:
    from flatout.engines.torch.capture.surroundings import Surroundings

    keras.utils.set_random_seed(1)
    surroundings = Surroundings(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    keras.random.uniform((1,))
    assert global_seeds()
    surroundings.restore()
    assert not global_seeds()
