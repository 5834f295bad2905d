"""A case trained by stock Keras and by native kernels, and how far their variables are apart."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import pytest

from flatout.engines.stock import original
from flatout.native.lower import lowered
from flatout.native.session import Session, logs_of

# Variables after 1 step and after 20, and the last logs.
Training = tuple[dict[int, dict[str, np.ndarray]], dict[str, float]]


class _Watcher(keras.callbacks.Callback):
    """The variables after the first step and after all."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, dict[str, np.ndarray]] = {}
        self.logs: dict[str, float] = {}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 0:
            self.seen[1] = variables(self.model)
        self.logs = dict(logs)


def variables(model: Any) -> dict[str, np.ndarray]:
    """Weights and optimizer variables, by number and name."""
    both = [*model.variables, *model.optimizer.variables]
    wanted = [
        one for one in both if not any(part in one.path for part in ("seed_generator", "learning_rate", "iteration"))
    ]
    # Keras numbers the layers of one model on from those of the last.
    names = [re.sub(r"_?\d", "", one.path.split("/")[-1]) for one in wanted]
    return {f"{n} {names[n]}": np.array(keras.ops.convert_to_numpy(one.value)) for n, one in enumerate(wanted)}


def by_keras(case: Any) -> Training:
    model, watcher = case.build(), _Watcher()
    x, y, *weight = case.data()
    original("fit")(
        model,
        x,
        y,
        sample_weight=weight[0] if weight else None,
        batch_size=case.batch_size,
        shuffle=False,
        verbose=0,
        callbacks=[watcher],
    )
    return {**watcher.seen, 20: variables(model)}, watcher.logs


def by_kernels(case: Any, launcher: Any) -> Training:
    model = case.build()
    x, y, *weight = case.data()
    model._symbolic_build(data_batch=tuple(part[: case.batch_size] for part in (x, y)))
    program = lowered(model, "train", case.batch_size, x.dtype.name, y.dtype.name, bool(weight))
    session = Session(program, launcher)
    session.bind(x, y, *weight)
    session.run("train", 0, 1, case.rows)
    seen = {1: variables(model)}
    totals = session.run("train", 1, 20, case.rows)
    return {**seen, 20: variables(model)}, {k: float(v) for k, v in logs_of(program.binding, totals[-1]).items()}


def distance(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """How far each kind of variable is apart over the whole model: in norm, and at most; both relative.

    Adam makes a step of a gradient near 0 out of its rounding, so a single weight may be further apart than all are.
    """
    assert one.keys() == other.keys()
    kinds: dict[str, list[str]] = {}
    for name in one:
        of_optimizer = re.search(r"_(kernel|bias|gamma|beta)_(\w+)$", name)
        kind = of_optimizer[2] if of_optimizer else "moving" if "moving" in name else "weights"
        kinds.setdefault(kind, []).append(name)
    apart = {}
    for kind, names in kinds.items():
        found, expected = (np.concatenate([values[name].reshape(-1) for name in names]) for values in (one, other))
        norm, most = np.linalg.norm(expected), np.abs(expected).max()
        apart[kind] = (
            float(np.linalg.norm(found - expected) / max(norm, 1e-9)),
            float(np.abs(found - expected).max() / max(most, 1e-9)),
        )
    return apart


def assert_same_training(found: Training, expected: Training, at_most_elsewhere: float = 1e-3) -> None:
    """Weights within 1e-5 in norm; optimizer variables are as small as gradients, and as near to rounding."""
    for steps in (1, 20):
        apart = distance(found[0][steps], expected[0][steps])
        for kind, (in_norm, at_most) in apart.items():
            norm, most = (1e-5, 1e-4) if kind == "weights" else (1e-3, at_most_elsewhere)
            assert in_norm <= norm, (kind, steps, apart)
            assert at_most <= most, (kind, steps, apart)
    assert found[1] == pytest.approx(expected[1], rel=2e-5, abs=2e-6)
