"""What changes from step to step without gradients: the learning rate, and Adam's corrected one, as a table."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from .network import Optimizer


def scalars(optimizer: Any, spec: Optimizer, first: int, count: int) -> np.ndarray:
    """Learning rate and corrected learning rate of the steps from iteration `first` on, as Keras computes them."""
    import keras
    from keras import ops

    rates = _learning_rates(optimizer, first, count)
    table = np.stack([rates, rates], axis=1)
    if spec.kind == "adam":
        # By the backend's own operations: 1 - beta_2 ** 1 magnifies the last bit of the power a thousand times.
        with keras.device("cpu") if keras.config.backend() == "torch" else contextlib.nullcontext():
            steps = ops.cast(np.arange(first + 1, first + count + 1), "float32")
            powers = [ops.power(ops.cast(spec[name], "float32"), steps) for name in ("beta_1", "beta_2")]
            corrected = ops.convert_to_tensor(rates) * ops.sqrt(1 - powers[1]) / (1 - powers[0])
            table[:, 1] = ops.convert_to_numpy(corrected)
    return np.ascontiguousarray(table, np.float32)


def _learning_rates(optimizer: Any, first: int, count: int) -> np.ndarray:
    from keras import ops
    from keras.optimizers.schedules import LearningRateSchedule

    schedule = optimizer._learning_rate
    if not isinstance(schedule, LearningRateSchedule):
        # A variable, which callbacks set between chunks.
        rate = optimizer._get_current_learning_rate()
        return np.full(count, float(ops.convert_to_numpy(getattr(rate, "value", rate))), np.float32)
    together = _all_at_once(schedule, first, count)
    if together is not None:
        return together
    return np.array([_rate(schedule, step) for step in range(first, first + count)], np.float32)


def _rate(schedule: Any, step: int) -> np.float32:
    from keras import ops

    return np.float32(ops.convert_to_numpy(schedule(ops.convert_to_tensor(step, "int32"))))


def _all_at_once(schedule: Any, first: int, count: int) -> np.ndarray | None:
    """The rates of all steps in one call, for a schedule of Keras' that takes them so; None for any other."""
    from keras import ops

    if count < 4 or not type(schedule).__module__.startswith("keras."):
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
