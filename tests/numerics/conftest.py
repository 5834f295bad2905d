"""Parity is that of the programs which users get: with all of XLA's optimizations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


# Keras is imported here, not above: this file may be read before jax is told where to keep programs.
@pytest.fixture(autouse=True, scope="module")
def _optimized() -> Iterator[None]:
    import keras

    if keras.config.backend() != "jax":
        yield
        return
    import jax
    from jax._src import compiler

    without = jax.config.read("jax_disable_most_optimizations")
    with pytest.MonkeyPatch.context() as patch:
        # A variable would be read once for the whole process, and jax has no setting for this.
        # From 0.11 on they cannot be switched off.
        if jax.__version_info__ < (0, 11):
            patch.setattr(compiler, "get_compile_options", _with_fusion_emitters(compiler.get_compile_options))
        _disable_optimizations(False)
        yield
    _disable_optimizations(without)


def _with_fusion_emitters(options_of: Callable[..., Any]) -> Callable[..., Any]:
    def options(*arguments: Any, **names: Any) -> Any:
        found = options_of(*arguments, **names)
        found.env_option_overrides = [*found.env_option_overrides, ("xla_cpu_use_fusion_emitters", True)]
        return found

    return options


def _disable_optimizations(disable: bool) -> None:
    import jax

    from flatout.engines.jax import executables as jax_cache

    jax.config.update("jax_disable_most_optimizations", disable)
    # Neither side may meet a program of the other.
    jax.clear_caches()
    jax_cache._executables.clear()
