"""What changes from step to step without gradients: the learning rate, and Adam's corrected one, as a table."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from flatout.native.model.network import Optimizer
from flatout.seam.compiled_parts import current_learning_rate, given_learning_rate
from flatout.seam.keras_names import is_of_keras

# Steps whose corrections are computed at once.
_BLOCK = 8192


class RateTable:
    """Learning rates of an optimizer, as Keras computes them."""

    def __init__(self, optimizer: Any, spec: Optimizer):
        self._optimizer = optimizer
        self._spec = spec
        # An array of jax that was the learning rate, and what is in it: asking the device takes as long as many steps.
        self._asked: tuple[Any, float] = (None, 0.0)

    def rows(self, first: int, count: int) -> np.ndarray:
        """Learning rate and corrected learning rate of the steps from iteration `first` on."""
        is_adam = self._spec.kind == "adam"
        betas = (self._spec["beta_1"], self._spec["beta_2"]) if is_adam else None
        schedule = _schedule(self._optimizer)
        if schedule is None:
            # A variable, which callbacks set between chunks.
            return _constant_rows(self._current_rate(), betas, first, count)
        rates = _all_at_once(schedule, first, count)
        if rates is None:
            rates = np.array([_rate(schedule, step) for step in range(first, first + count)], np.float32)
        return _corrected(rates, betas, first)

    def _current_rate(self) -> float:
        rate = current_learning_rate(self._optimizer)
        value = getattr(rate, "value", rate)
        # An array of jax never changes.
        if keras.config.backend() != "jax" or value is not self._asked[0]:
            self._asked = (value, float(keras.ops.convert_to_numpy(value)))
        return self._asked[1]


def has_users_schedule(optimizer: Any) -> bool:
    """Whether its rates come from a class of the user's, whose Python runs for each chunk."""
    schedule = _schedule(optimizer)
    return schedule is not None and not is_of_keras(type(schedule))


def _schedule(optimizer: Any) -> Any:
    given = given_learning_rate(optimizer)
    return given if isinstance(given, keras.optimizers.schedules.LearningRateSchedule) else None


# Of many models at once, each has its own rate and is somewhere else in its epochs.
@functools.lru_cache(maxsize=64)
def _constant_rows(rate: float, betas: tuple[float, float] | None, first: int, count: int) -> np.ndarray:
    return _corrected(np.full(count, rate, np.float32), betas, first)


def _corrected(rates: np.ndarray, betas: tuple[float, float] | None, first: int) -> np.ndarray:
    table = np.stack([rates, rates], axis=1)
    if betas is not None:
        end = first + len(rates)
        for number in range(first // _BLOCK, (end - 1) // _BLOCK + 1):
            start, stop = max(first, number * _BLOCK), min(end, (number + 1) * _BLOCK)
            roots, rests = _corrections(*betas, number)[:, start - number * _BLOCK : stop - number * _BLOCK]
            part = table[start - first : stop - first, 1]
            # In Keras' order: the product is rounded before it is divided.
            part *= roots
            part /= rests
    table.flags.writeable = False
    return table


@functools.lru_cache(maxsize=16)
def _corrections(beta_1: float, beta_2: float, block: int) -> np.ndarray:
    """`sqrt(1 - beta_2 ** t)` and `1 - beta_1 ** t` of a block of steps."""
    if max(beta_1, beta_2) ** (block * _BLOCK) < 2**-30:
        # The powers vanish beside 1.
        return np.ones((2, _BLOCK), np.float32)
    # By the backend's own operations: 1 - beta_2 ** 1 magnifies the last bit of the power a thousand times.
    with keras.device("cpu") if keras.config.backend() == "torch" else contextlib.nullcontext():
        steps = ops.cast(np.arange(block * _BLOCK + 1, (block + 1) * _BLOCK + 1), "float32")
        powers = [ops.power(ops.cast(beta, "float32"), steps) for beta in (beta_1, beta_2)]
        return np.stack([ops.convert_to_numpy(ops.sqrt(1 - powers[1])), ops.convert_to_numpy(1 - powers[0])])


def _rate(schedule: Any, step: int) -> np.float32:
    return np.float32(ops.convert_to_numpy(schedule(ops.convert_to_tensor(step, "int32"))))


def _all_at_once(schedule: Any, first: int, count: int) -> np.ndarray | None:
    """The rates of all steps in one call, for a schedule of Keras' that takes them so; None for any other."""
    if count < 4 or not is_of_keras(type(schedule)):
        return None
    try:
        rates = np.asarray(
            ops.convert_to_numpy(schedule(ops.convert_to_tensor(np.arange(first, first + count, dtype="int32"))))
        )
    except Exception:
        # Schedules with conditions take one step at a time.
        return None
    if rates.shape != (count,):
        return None
    probes = {0, count // 2, count - 1}
    return rates.astype(np.float32) if all(rates[n] == _rate(schedule, first + n) for n in probes) else None
