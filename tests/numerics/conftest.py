"""Parity is that of the programs which users get: with all of XLA's optimizations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


# Keras is imported here, not above: this file may be read before jax is told where to keep programs.
@pytest.fixture(autouse=True, scope="module")
def _optimized() -> Iterator[None]:
    import keras

    if keras.config.backend() != "jax":
        yield
        return
    import jax

    without = jax.config.read("jax_disable_most_optimizations")
    _disable_optimizations(False)
    yield
    _disable_optimizations(without)


def _disable_optimizations(disable: bool) -> None:
    import jax

    from flatout.engines import jax_cache

    jax.config.update("jax_disable_most_optimizations", disable)
    # Neither side may meet a program of the other.
    jax.clear_caches()
    jax_cache._executables.clear()
