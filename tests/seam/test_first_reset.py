"""A metric begins its first epoch with what stock Keras begins it with, on every backend: reset, or as it was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

import flatout

BACKEND = keras.config.backend()
X = np.random.default_rng(0).random((96, 4)).astype("float32")
HELD_OUT = (X[:32] * 2, X[:32, 1:2])


class Smallest(keras.metrics.Metric):
    """The smallest prediction so far; Keras' own `reset_state` makes it 0."""

    def __init__(self, name: str = "smallest", first: float = 1e9):
        super().__init__(name=name)
        self.resets = 0
        self.value = self.add_weight(shape=(), initializer=keras.initializers.Constant(first), name="value")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign(ops.minimum(self.value, ops.min(y_pred)))

    def result(self) -> Any:
        return ops.convert_to_tensor(self.value)


class Negative(Smallest):
    """Begins at 0 and is reset to another value."""

    def __init__(self) -> None:
        super().__init__("negative", 0.0)

    def reset_state(self) -> None:
        self.resets += 1
        self.value.assign(-7.0 * self.resets)


class Late(Smallest):
    """Makes its variable when it is first updated."""

    def __init__(self) -> None:
        keras.metrics.Metric.__init__(self, name="late")
        self.value: Any = None

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        if self.value is None:
            self.value = self.add_weight(shape=(), initializer=keras.initializers.Constant(1e9), name="value")
        super().update_state(y_true, y_pred)


class Watching(layers.Layer):
    """A layer with a metric that is there once it is built."""

    def build(self, shape: Any) -> None:
        self.seen = Smallest("seen")

    def call(self, inputs: Any) -> Any:
        self.seen.update_state(None, inputs)
        return inputs


def _model(kind: str) -> keras.Model:
    keras.utils.set_random_seed(1)
    dense = layers.Dense(1, bias_initializer=keras.initializers.Constant(50.0))
    if kind == "unbuilt":
        model = keras.Sequential([Watching(), dense])
    else:
        model = keras.Sequential([keras.Input((4,)), dense])
    metrics = {"weighted": [], "late": [Late()], "negative": [Negative()]}.get(kind, [Smallest()])
    weighted = [Smallest("weighted"), "mae"] if kind == "weighted" else None
    model.compile(keras.optimizers.SGD(0.01), "mse", metrics=metrics, weighted_metrics=weighted)
    return model


def _run(engine: str, kind: str, steps: list[Callable[..., Any]]) -> list[Any]:
    model = _model(kind)
    with flatout.options(force=True, engine=engine):
        return [step(model) for step in steps]


def _fit(**arguments: Any) -> Callable[..., Any]:
    settings = {"epochs": 2, "batch_size": 16, "verbose": 0, **arguments}
    return lambda model: flatout.fit(model, X, X[:, :1], **settings).history


def _evaluate(model: Any) -> Any:
    return flatout.evaluate(model, X, X[:, :1], batch_size=16, verbose=0, return_dict=True)


def _compile_again(model: Any) -> None:
    used = model._compile_metrics._user_metrics
    model.compile(keras.optimizers.SGD(0.01), "mse", metrics=used)


class StepsFirst(keras.callbacks.Callback):
    """Takes a step before the first epoch, which builds everything."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.model.train_on_batch(X[:8] * 3, X[:8, :1])


class EvaluatesFirst(keras.callbacks.Callback):
    def on_train_begin(self, logs: Any = None) -> None:
        self.model.evaluate(X, X[:, :1], verbose=0)


SEQUENCES = {
    "fit": [_fit()],
    "fit twice": [_fit(), _fit()],
    "validation": [_fit(validation_data=HELD_OUT)],
    "evaluate first": [_evaluate, _fit(), _evaluate],
    "compiled again with a used metric": [_fit(), _compile_again, _fit()],
    "a step before the first epoch": [_fit(callbacks=[StepsFirst()])],
    "an evaluation before the first epoch": [_fit(callbacks=[EvaluatesFirst()])],
}


# Each kind of metric in a plain fit, and each sequence with one kind.
_CASES = [
    *(("fit", kind) for kind in ("built", "negative", "weighted", "late", "unbuilt")),
    *((sequence, "built") for sequence in list(SEQUENCES)[1:]),
    ("validation", "unbuilt"),
    ("fit twice", "negative"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sequence", "kind"), _CASES)
def test_the_first_epoch_is_that_of_stock_keras(sequence: str, kind: str) -> None:
    if (kind == "late" and BACKEND != "tensorflow") or (kind == "unbuilt" and BACKEND == "jax"):
        pytest.skip("a variable that is made in a step, or in a layer's `build`, fails with stock Keras there")
    expected, got = (_run(engine, kind, SEQUENCES[sequence]) for engine in ("stock", "auto"))
    assert flatout.explain()[-1].accelerated
    for one, other in zip(expected, got, strict=True):
        assert (one is None) == (other is None)
        for name, values in (one or {}).items():
            np.testing.assert_allclose(other[name], values, rtol=1e-5, err_msg=name)


def test_a_refusal_after_building_leaves_the_first_epoch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from flatout.base.errors import Refusal, reason
    from flatout.training.preparing import prepare

    expected = _run("stock", "built", [_fit()])

    def refuse(*_: Any) -> None:
        raise Refusal(reason("no_gain"))

    monkeypatch.setattr(prepare, "hold_rows", refuse)
    got = _run("auto", "built", [_fit()])
    assert flatout.explain()[-1].reasons[0].code == "no_gain"
    np.testing.assert_allclose(got[0]["smallest"], expected[0]["smallest"], rtol=1e-5)


@pytest.mark.backend("tensorflow")
@pytest.mark.parametrize("engine", ["stock", "auto"])
def test_evaluate_builds_no_optimizer(engine: str) -> None:
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    with flatout.options(force=True):
        flatout.evaluate(model, np.ones((16, 4)), np.ones(16), verbose=0, engine=engine)
    assert not model.optimizer.built
