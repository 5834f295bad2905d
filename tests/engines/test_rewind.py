"""Random generators go back to where they were, in this process and in another."""

from __future__ import annotations

import random

import keras
import numpy as np

from flatout.engines.rewind import Generators, generators_kept
from flatout.engines.select import engine_for


def _drawn() -> list[float]:
    # Both keep one normal number of two for the next call.
    return [random.random(), random.gauss(0.0, 1.0), np.random.random_sample(), np.random.normal()]


def test_generators_go_back_as_text_too() -> None:
    engine = engine_for(keras.config.backend())
    _drawn()
    before = Generators.now(engine)
    drawn = _drawn()
    assert Generators.now(engine) != before
    told = Generators.from_text(before.as_text())
    assert told == before
    told.put_back(engine)
    with generators_kept(engine):
        assert _drawn() == drawn
    assert _drawn() == drawn
