"""What Keras and its backend keep for a whole process and a fit depends on: settings, and seeds of random numbers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from flatout.base.when_used import keras
from flatout.seam.model_copies import global_seeds, put_global_seeds

_KERAS = ("floatx", "epsilon", "image_data_format", "max_epochs", "max_steps_per_epoch")
_JAX = ("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion", "jax_default_prng_impl")


@dataclass(frozen=True)
class ProcessState:
    """The state of one process, to be put into another.

    Attributes:
        settings: Of `keras.config`, by name.
        dtype_policy: The one for layers that have none.
        seeds: What Keras draws seeds from.
        of_backend: What jax is set to; TensorFlow's seed, and how far its seeds of operations were drawn.
        stand_in: A seed for TensorFlow where the user set none: processes of a group must draw the same.
    """

    settings: dict[str, Any]
    dtype_policy: Any
    seeds: dict[str, Any]
    of_backend: Any
    stand_in: int

    @classmethod
    def now(cls) -> ProcessState:
        settings = {name: getattr(keras.config, name)() for name in _KERAS}
        stand_in = int.from_bytes(os.urandom(4), "little") >> 1
        return cls(settings, keras.config.dtype_policy(), global_seeds(), _backend_state(), stand_in)

    def put(self, in_group: bool = False) -> None:
        """Have it here; `in_group` if other processes put the same."""
        for name, value in self.settings.items():
            if value is not None:
                getattr(keras.config, f"set_{name}")(value)
        keras.config.set_dtype_policy(self.dtype_policy)
        put_global_seeds(self.seeds)
        if keras.config.backend() == "jax":
            import jax

            for name, value in self.of_backend.items():
                jax.config.update(name, value)
        elif keras.config.backend() == "tensorflow":
            self._put_tensorflow_seed(in_group)

    def _put_tensorflow_seed(self, in_group: bool) -> None:
        import tensorflow as tf
        from tensorflow.python.eager.context import context

        seed, drawn = self.of_backend
        if in_group and seed is None:
            tf.random.set_seed(self.stand_in)
        elif in_group or context()._seed is not None:
            context()._seed, context()._rng = seed, drawn


def _backend_state() -> Any:
    if keras.config.backend() == "jax":
        import jax

        return {name: getattr(jax.config, name) for name in _JAX}
    if keras.config.backend() == "tensorflow":
        from tensorflow.python.eager.context import context

        return context()._seed, getattr(context(), "_rng", None)
    return None
