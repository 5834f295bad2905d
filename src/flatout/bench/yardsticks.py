"""What people write by hand for speed, without callbacks, validation, fallback or progress bar, on each backend.

Measured in the same run as flatout, so that what its services cost can be seen.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from flatout.base.when_used import jax, torch

from .comparison import SEED
from .workloads import Workload


def lax_scan(workload: Workload, steps: int, epochs: int, repeats: int) -> float:
    """Microseconds a step of a plain `lax.scan` over the model's own `train_step`, data resident on the device.

    The median over the epochs after the first of all repeats.
    """
    measured = [second for _ in range(repeats) for second in _scanned(workload, steps, epochs)[1:]]
    return statistics.median(measured) / steps * 1e6


def _scanned(workload: Workload, steps: int, epochs: int) -> list[float]:
    keras.utils.set_random_seed(SEED)
    x, y = workload.data(steps)
    batch_size = workload.batch_size
    model = workload.build()
    # Builds the optimizer's and the metrics' variables, by Keras' public means.
    model.train_on_batch(*jax.tree.map(lambda rows: rows[:batch_size], (x, y)))
    model.reset_metrics()
    data = jax.device_put((x, y))

    def scan(state: Any, data: Any, order: Any) -> Any:
        def step(state: Any, rows: Any) -> Any:
            logs, state = model.train_step(state, jax.tree.map(lambda array: array[rows], data))
            return state, logs

        return jax.lax.scan(step, state, order)

    scan = jax.jit(scan, donate_argnums=0)
    groups = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
    state: Any = tuple([variable.value for variable in group] for group in (*groups, model.metrics_variables))

    def train_epoch() -> None:
        nonlocal state
        order = np.random.permutation(steps * batch_size).reshape(steps, batch_size).astype(np.int32)
        state, logs = scan(state, data, order)
        float(logs["loss"][-1])

    return [seconds_of(train_epoch) for _ in range(epochs)]


def torch_graph(x: Any, y: Any, batch_size: int, epochs: int) -> float:
    """Microseconds a step of the seed model in plain torch, captured in a CUDA graph.

    Two linear layers, cross-entropy, autograd and torch's own fused Adam, rows gathered by the epoch's order inside the
    graph, so that a step is one launch and nothing else. The median over the epochs after the first.
    """
    steps = len(x) // batch_size
    rows = torch.as_tensor(x, device="cuda").reshape(len(x), -1)
    labels = torch.as_tensor(y, device="cuda").long()
    model = torch.nn.Sequential(torch.nn.Linear(rows.shape[1], 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True, fused=True)
    order = torch.arange(len(x), device="cuda")
    places = torch.arange(batch_size, device="cuda")
    clock = torch.zeros((), dtype=torch.long, device="cuda")
    total, right = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")

    def step() -> None:
        taken = order[clock * batch_size + places]
        target = labels[taken]
        logits = model(rows[taken])
        loss = torch.nn.functional.cross_entropy(logits, target)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        total.add_(loss.detach() * batch_size)
        right.add_((logits.detach().argmax(1) == target).sum())
        clock.add_(1)

    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.cuda.synchronize()

    def train_epoch() -> None:
        order.copy_(torch.randperm(len(x)))
        for counter in (clock, total, right):
            counter.zero_()
        for _ in range(steps):
            graph.replay()
        float(total)

    return statistics.median([seconds_of(train_epoch) for _ in range(epochs)][1:]) / steps * 1e6


def seconds_of(work: Callable[[], Any]) -> float:
    """How long something takes, once."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
