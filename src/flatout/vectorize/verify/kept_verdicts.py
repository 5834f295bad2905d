"""Verdicts of an earlier process, kept on disk: a script that is run again need not wait for them.

A verdict is found again only by a digest of all that it depends on: the original with its helpers and constants, the
rewrite, the sizes that were asked for, flatout's own source, the versions and settings of the libraries, the device.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flatout.base import disk_cache

from .code_digest import LIBRARIES, digest
from .rewrites import Rewrite
from .trial_inputs import Recipe
from .verification import Verdict

_MOST_KEPT = 2000
_VARIABLES = ("XLA_FLAGS", "TF_XLA_FLAGS", "NVIDIA_TF32_OVERRIDE", "TF_ENABLE_ONEDNN_OPTS")


def key_of(
    function: Any, holder: Any, rewrite: Rewrite, shapes: Mapping[str, Sequence[int | None]] | None, lenient: bool
) -> str | None:
    """What a verdict is found by, or None: something that it depends on cannot be told."""
    sizes = None if shapes is None else {name: tuple(shape[1:]) for name, shape in shapes.items()}
    # What else a rewrite holds follows from the function.
    rewritten = (rewrite.source, rewrite.ranks, rewrite.guards, rewrite.notes)
    try:
        return digest(function, holder, rewritten, dict(rewrite.names), sizes, lenient, _surroundings())
    except Exception:
        # Without a key the comparison is made: neither what has no digest nor a fault of ours is the user's.
        return None


def load(key: str) -> tuple[Verdict, Recipe] | None:
    """A verdict that was kept."""
    try:
        verdict, recipe = ast.literal_eval((disk_cache.folder("verdicts") / key).read_text())
        return Verdict(**verdict | {"is_remembered": True}), Recipe(**recipe)
    except (OSError, ValueError, TypeError, SyntaxError):
        return None


def save(key: str, verdict: Verdict, recipe: Recipe) -> None:
    """Keep a verdict, if there is a place for it."""
    with contextlib.suppress(OSError):
        folder = disk_cache.folder("verdicts")
        disk_cache.put(folder / key, repr((vars(verdict), vars(recipe))).encode())
        disk_cache.trim(folder, _MOST_KEPT)


def _surroundings() -> dict[str, Any]:
    """Versions, settings and the device, as they are now."""
    import keras

    backend = keras.config.backend()
    return {
        "flatout": _own_source(),
        "python": sys.version,
        "machine": platform.machine(),
        "versions": {name: str(getattr(sys.modules.get(name), "__version__", None)) for name in LIBRARIES},
        "variables": {name: os.environ.get(name) for name in _VARIABLES},
        "keras": (backend, keras.config.floatx(), keras.config.epsilon(), keras.config.image_data_format()),
        "policy": keras.config.dtype_policy().name,
        "backend": {"jax": _of_jax, "tensorflow": _of_tensorflow, "torch": _of_torch}[backend](),
    }


def _of_jax() -> Any:
    import jax

    return jax.devices()[0].device_kind, {name: str(value) for name, value in sorted(jax.config.values.items())}


def _of_tensorflow() -> Any:
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU")), tf.config.experimental.tensor_float_32_execution_enabled()


def _of_torch() -> Any:
    import torch

    return (
        torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        *(str(torch.get_default_device()), str(torch.get_default_dtype()), torch.get_float32_matmul_precision()),
        torch.are_deterministic_algorithms_enabled(),
    )


@functools.cache
def _own_source() -> str:
    """A digest of the source that rewrites and verifies."""
    made = hashlib.sha256()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        made.update(file.read_bytes())
    return made.hexdigest()
