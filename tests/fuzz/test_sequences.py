"""A few of the random sequences; `python -m tests.fuzz.sequences` runs as many as one likes."""

from __future__ import annotations

import pytest

pytest.importorskip("keras")

from .sequences import difference


@pytest.mark.backend("torch")
@pytest.mark.parametrize("seed", range(5))
def test_a_random_sequence_gives_what_stock_keras_gives(forced, seed):
    assert difference(seed) is None
