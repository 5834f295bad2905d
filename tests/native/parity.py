"""A case trained by stock Keras and by native kernels, and how far their variables are apart."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import pytest

from flatout.native.run.session import Session, logs_of
from flatout.native.staged.staged_program import staged_program
from flatout.seam.stock_methods import original

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


def by_keras(case: Any, nudged: bool = False) -> Training:
    """By stock Keras; `nudged`: from weights whose last bit is another."""
    model, watcher = case.build(), _Watcher()
    if nudged:
        model.set_weights([np.nextafter(weight, np.float32(np.inf)) for weight in model.get_weights()])
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
    program = staged_program(model, "train", case.batch_size, x.dtype.name, y.dtype.name, bool(weight))
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


def assert_ends_where_keras_ends(case: Any, found: Training, at_most_elsewhere: float = 1e-3) -> None:
    """Weights within 2e-5 in norm; optimizer variables are as small as gradients, and as near to rounding.

    A model whose training magnifies rounding may be as far from Keras as Keras is from itself with another last bit.
    """
    expected = by_keras(case)
    nudged: Training | None = None
    for steps in (1, 20):
        apart = distance(found[0][steps], expected[0][steps])
        for kind, values in apart.items():
            limits = (2e-5, 2e-4) if kind == "weights" else (1e-3, at_most_elsewhere)
            if any(value > limit for value, limit in zip(values, limits, strict=True)):
                nudged = nudged or by_keras(case, nudged=True)
                own = distance(nudged[0][steps], expected[0][steps])[kind]
                limits = tuple(max(limit, 2 * value) for limit, value in zip(limits, own, strict=True))
            assert all(value <= limit for value, limit in zip(values, limits, strict=True)), (
                kind,
                steps,
                apart,
                limits,
            )
    assert found[1] == pytest.approx(expected[1], rel=2e-5, abs=2e-6)
