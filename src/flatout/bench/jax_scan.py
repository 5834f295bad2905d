"""The yardstick on jax: a plain `lax.scan` over the model's own `train_step`, data resident on the device.

What anybody could write in fifty lines, without callbacks, validation, fallback or progress bar. `flatout bench
--against scan` measures it in the same run, so that what flatout's services cost can be seen.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import jax
import keras
import numpy as np

from .comparison import SEED
from .workloads import Workload


def us_per_step(workload: Workload, steps: int, epochs: int, repeats: int) -> float:
    """The median time of a step, over the epochs after the first of all repeats."""
    measured = [second for _ in range(repeats) for second in _train(workload, steps, epochs)[1:]]
    return statistics.median(measured) / steps * 1e6


def _train(workload: Workload, steps: int, epochs: int) -> list[float]:
    keras.utils.set_random_seed(SEED)
    x, y = workload.data(steps)
    batch_size = workload.batch_size
    model = workload.build()
    # Builds the optimizer's and the metrics' variables, by Keras' public means.
    model.train_on_batch(*jax.tree.map(lambda rows: rows[:batch_size], (x, y)))
    model.reset_metrics()
    data = jax.device_put((x, y))

    def train_epoch(state: Any, data: Any, order: Any) -> Any:
        def step(state: Any, rows: Any) -> Any:
            logs, state = model.train_step(state, jax.tree.map(lambda array: array[rows], data))
            return state, logs

        return jax.lax.scan(step, state, order)

    train_epoch = jax.jit(train_epoch, donate_argnums=0)
    state = tuple(
        [variable.value for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
    )
    seconds = []
    for _ in range(epochs):
        began = time.perf_counter()
        order = np.random.permutation(steps * batch_size).reshape(steps, batch_size).astype(np.int32)
        state, logs = train_epoch(state, data, order)
        float(logs["loss"][-1])
        seconds.append(time.perf_counter() - began)
    return seconds
