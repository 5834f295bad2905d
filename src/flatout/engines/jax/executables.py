"""Compiled jax programs, shared by models of the same architecture, and kept on disk between processes.

Keras compiles once for each model object, so a k-fold or a grid search compiles the same program again and again.
Here the traced program itself is the key: two models whose steps lower to the same HLO, with the same constants, run
the same executable. No configuration is compared, so nothing can be overlooked in it.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from flatout.base import disk_cache

# Executables hold memory on the device; a search over architectures must not fill it.
_KEPT = 64
# A search over architectures must not fill the user's disk either; a program has some 100 kB.
_MOST_ON_DISK, _MOST_BYTES_ON_DISK = 10_000, 2 * 2**30
_executables: collections.OrderedDict[str, Future[Any]] = collections.OrderedDict()


def compile_shared(
    function: Callable[..., Any], arguments: tuple[Any, ...], donate: tuple[int, ...] = ()
) -> Callable[[], Callable[..., Any]]:
    """Compile `function` for the shapes of `arguments`, or take an executable that does the same.

    Returns what waits until it is compiled, and gives it; until then others can be traced and compiled beside it.
    The executable takes and returns flat lists: the names in a model's logs (`auc`, `auc_1`) are no part of it.
    """
    structure = jax.tree.structure(arguments)
    structure_of_result: Any = None

    def flat(*leaves: Any) -> list[Any]:
        nonlocal structure_of_result
        results, structure_of_result = jax.tree.flatten(function(*jax.tree.unflatten(structure, leaves)))
        return results

    sizes = [jax.tree.structure(argument).num_leaves for argument in arguments]
    donated = [n for number in donate for n in range(sum(sizes[:number]), sum(sizes[: number + 1]))]
    traced = jax.jit(flat, donate_argnums=donated).trace(*jax.tree.leaves(arguments))
    lowered = traced.lower()
    digest = hashlib.sha256(lowered.as_text().encode())
    for constant in traced.jaxpr.consts:
        digest.update(bytes_of(constant))
    places = [_place(leaf) for leaf in jax.tree.leaves(arguments)]
    # An argument that is not used is no part of the text.
    digest.update(repr((donated, jax.default_backend(), traced.jaxpr.in_avals, places)).encode())
    key = digest.hexdigest()
    # The program's text does not tell one Python function from another.
    is_own = traced.jaxpr.effects or any("callback" in name for name in primitives(traced.jaxpr.jaxpr))
    executable = _begun(lowered.compile) if is_own or key not in _executables else _executables[key]
    if not is_own:
        _executables[key] = executable
        _executables.move_to_end(key)
        if len(_executables) > _KEPT:
            _executables.popitem(last=False)

    def wait() -> Callable[..., Any]:
        try:
            run = executable.result()
        except Exception:
            _executables.pop(key, None)
            raise
        return lambda *arguments: jax.tree.unflatten(structure_of_result, run(*jax.tree.leaves(arguments)))

    return wait


def bytes_of(constant: Any) -> bytes:
    """What a constant of a program is, random keys among them."""
    if jax.dtypes.issubdtype(getattr(constant, "dtype", np.float32), jax.dtypes.prng_key):
        constant = jax.random.key_data(constant)
    return np.asarray(constant).tobytes()


def signature_of(state: Any) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten(state)
    return (structure, *((tuple(leaf.shape), jnp.dtype(leaf.dtype)) for leaf in leaves))


def unshared(state: Any, kept: list[Any]) -> Any:
    """Copy arrays that occur twice, or also in `kept`: a donated buffer may be given once only, and is gone then.

    Keras' exponential moving average leaves a weight and its average in one buffer, and stock `evaluate` after
    `fit` then fails with "Array has been deleted".
    """
    seen = {id(value) for value in kept}

    def once(leaf: Any) -> Any:
        if id(leaf) in seen:
            return jnp.copy(leaf)
        seen.add(id(leaf))
        return leaf

    return jax.tree.map(once, state)


def _place(leaf: Any) -> Any:
    """Where an argument is: a mesh does not say of which devices it is."""
    sharding = getattr(leaf, "sharding", None)
    mesh = getattr(sharding, "mesh", None)
    return sharding, None if mesh is None else [device.id for device in mesh.devices.flat]


def _begun(compile_it: Callable[[], Any]) -> Future[Any]:
    """What is compiled beside all that Python does: XLA needs none of it."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(compile_it())
        except BaseException as error:
            future.set_exception(error)

    try:
        # No pool, whose threads a forked process would miss.
        threading.Thread(target=work, name="flatout-compiler").start()
    except RuntimeError:  # No thread is to be had, as when Python is about to end.
        work()
    return future


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, those inside its loops and branches too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def primitives(jaxpr: Any) -> set[str]:
    return {equation.primitive.name for equation in equations(jaxpr)}


def use_persistent_cache() -> None:
    """Let jax keep compiled programs on disk, unless the user has said where or switched it off."""
    names = {"JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"}
    if jax.config.jax_compilation_cache_dir is not None or not names.isdisjoint(os.environ):
        return
    try:
        folder = disk_cache.folder("jax")
    except OSError:
        return
    if not os.access(folder, os.W_OK):
        return
    with contextlib.suppress(OSError):
        disk_cache.trim(folder, _MOST_ON_DISK, _MOST_BYTES_ON_DISK)
    _write_whole_files(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # A single operation takes 15 ms to compile on a CPU and 60 on a GPU, and 10 ms to find.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.01)


def _write_whole_files(folder: Path) -> None:
    """Have programs appear in our folder as a whole.

    jax writes them in place: a process that reads meanwhile gets half of one, and what a killed process has left stays
    there, with a warning in every process that comes after it.
    """
    try:
        from jax._src.lru_cache import LRUCache
    except ImportError:
        return
    put_in_place = LRUCache.put

    def put(cache: Any, key: str, value: bytes) -> None:
        if str(cache.path) != str(folder) or cache.eviction_enabled:
            put_in_place(cache, key, value)
        elif not (file := folder / f"{key}-cache").exists():
            disk_cache.put(file, value)

    LRUCache.put = put  # type: ignore[method-assign]
