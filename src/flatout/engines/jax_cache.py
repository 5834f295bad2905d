"""Compiled jax programs, shared by models of the same architecture, and kept on disk between processes.

Keras compiles once for each model object, so a k-fold or a grid search compiles the same program again and again.
Here the traced program itself is the key: two models whose steps lower to the same HLO, with the same constants, run
the same executable. No configuration is compared, so nothing can be overlooked in it.
"""

from __future__ import annotations

import collections
import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

# Executables hold memory on the device; a search over architectures must not fill it.
_KEPT = 64
_executables: collections.OrderedDict[str, Callable[..., Any]] = collections.OrderedDict()


def compile_shared(
    function: Callable[..., Any], arguments: tuple[Any, ...], donate: tuple[int, ...] = ()
) -> Callable[..., Any]:
    """Compile `function` for the shapes of `arguments`, or return an executable that is the same."""
    traced = jax.jit(function, donate_argnums=donate).trace(*arguments)
    lowered = traced.lower()
    digest = hashlib.sha256(lowered.as_text().encode())
    for constant in traced.jaxpr.consts:
        digest.update(np.asarray(constant).tobytes())
    digest.update(repr((jax.tree.structure((arguments, traced.out_info)), donate, jax.default_backend())).encode())
    key = digest.hexdigest()
    if key not in _executables:
        _executables[key] = lowered.compile()
        if len(_executables) > _KEPT:
            _executables.popitem(last=False)
    _executables.move_to_end(key)
    return _executables[key]


def use_persistent_cache() -> None:
    """Let jax keep compiled programs on disk, unless the user has said where or switched it off."""
    if jax.config.jax_compilation_cache_dir is not None or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    if "JAX_ENABLE_COMPILATION_CACHE" in os.environ:
        return
    root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(root) / "flatout" / "jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if not os.access(folder, os.W_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
