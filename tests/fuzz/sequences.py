"""Random sequences of calls, models, callbacks and changes of Python state, run by stock Keras and by flatout.

    KERAS_BACKEND=torch python -m tests.fuzz.sequences --sequences 2000 --seed 0

Every number of the sequence is drawn from its seed, so that a difference is found again by `--seed N --sequences 1`.
Both sides begin in the same state and must give the same: results, weights, optimizer, random generators and errors.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import sys
import time
import warnings
from typing import Any

import keras
import numpy as np
from keras import layers, ops

import flatout

ROWS, FEATURES = 48, 5
X = np.random.default_rng(7).normal(size=(ROWS, FEATURES)).astype("float32")
Y = (X[:, :1] * 0.5 + X[:, 1:2] ** 2).astype("float32")
METHODS = ("fit", "evaluate", "predict")
STOCK = {name: getattr(keras.Model, name) for name in METHODS}
ACCELERATED = {name: getattr(flatout, name) for name in METHODS}

WEIGHT = 1.0


@dataclasses.dataclass
class Settings:
    weight: float = 1.0


class Holder:
    rate = 1.0

    def __init__(self) -> None:
        self.settings = Settings()


class State:
    """All that the Python of a step may read, and ways to change it."""

    def __init__(self) -> None:
        self.table = {"a": {"b": 1.0}, "names": ["x"]}
        self.items = [1.0, 2.0]
        self.array = np.ones(3, "float32")
        self.holder = Holder()
        self.count = 0
        Holder.rate = 1.0
        _set_global(1.0)

    def change(self, what: str, value: float) -> None:
        if what == "global":
            _set_global(value)
        elif what == "dict":
            self.table["a"]["b"] = value
        elif what == "list":
            self.items[0] = value
        elif what == "longer list":
            self.items.append(value)
        elif what == "array":
            self.array[1] = value
        elif what == "attribute":
            self.holder.settings.weight = value
        elif what == "new object":
            self.holder.settings = Settings(value)
        elif what == "class":
            Holder.rate = value
        elif what == "instance over class":
            self.holder.rate = value


CHANGES = ("global", "dict", "list", "longer list", "array", "attribute", "new object", "class", "instance over class")


def _set_global(value: float) -> None:
    global WEIGHT
    WEIGHT = value


def reader(kind: str, state: State) -> Any:
    """A function that gives a number that the state says."""
    return {
        "none": lambda: 1.0,
        "global": lambda: WEIGHT,
        "dict": lambda: state.table["a"]["b"],
        "list": lambda: sum(state.items) / len(state.items),
        "array": lambda: float(state.array.mean()),
        "attribute": lambda: state.holder.settings.weight,
        "class": lambda: state.holder.rate,
        "getattr": lambda: getattr(state.holder, "rate") * getattr(state.holder.settings, "weight"),  # noqa: B009
    }[kind]


READERS = ("none", "global", "dict", "list", "array", "attribute", "class", "getattr")


class Scale(layers.Layer):
    def __init__(self, read: Any) -> None:
        super().__init__()
        self.read, self.factor = read, 1.0

    def call(self, x: Any) -> Any:
        return x * self.factor * self.read()


class Counted(keras.Model):
    """A model with a step of its own, that may count its calls."""

    def setup(self, state: State, counts: bool) -> Counted:
        self.state, self.counts = state, counts
        return self

    def train_step(self, *args: Any, **kwargs: Any) -> Any:
        if self.counts:
            self.state.count += 1
        return super().train_step(*args, **kwargs)


def build(draw: random.Random, state: State) -> Any:
    """A model, compiled, and the objects of it whose attributes a callback may change."""
    regularizer = keras.regularizers.L2(0.01) if draw.random() < 0.3 else None
    stack: list[Any] = [layers.Dense(4, activation=draw.choice(["relu", "tanh", None]), kernel_regularizer=regularizer)]
    if draw.random() < 0.4:
        stack.append(Scale(reader(draw.choice(READERS), state)))
    if draw.random() < 0.3:
        stack.append(layers.Dropout(0.4, seed=draw.choice([3, None])))
    if draw.random() < 0.2:
        stack.append(layers.BatchNormalization())
    inputs = keras.Input((FEATURES,))
    outputs = inputs
    for layer in [*stack, layers.Dense(1)]:
        outputs = layer(outputs)
    if draw.random() < 0.3:
        model = Counted(inputs, outputs).setup(state, draw.random() < 0.5)
    else:
        model = keras.Model(inputs, outputs)
    compile_model(draw, state, model)
    return model, regularizer


def compile_model(draw: random.Random, state: State, model: Any) -> None:
    read = reader(draw.choice(READERS), state)
    loss = draw.choice(["mse", lambda t, p: read() * ops.mean(ops.square(t - p), axis=-1)])
    metrics = draw.choice([[], ["mae"], [lambda t, p: read() * ops.mean(ops.abs(t - p))]])
    optimizer = draw.choice(["sgd", "adam", "rmsprop"])
    model.compile(optimizer, loss, metrics=metrics)


class Changing(keras.callbacks.Callback):
    """Changes something at an event of its choice."""

    def __init__(self, event: str, change: Any) -> None:
        super().__init__()
        setattr(self, event, lambda *args, **kwargs: change())


def calls(draw: random.Random, state: State, model: Any, regularizer: Any) -> Any:
    """One call after the other: functions of the methods to use."""

    def change() -> Any:
        what, value = draw.choice(CHANGES), draw.choice([0.25, 0.5, 2.0])
        which = draw.randrange(5)
        if which == 0 and regularizer is not None:
            return lambda: setattr(regularizer, "l2", value / 10)
        if which == 1:
            layer = draw.choice(model.layers[1:])
            name = {"Dropout": "rate", "Scale": "factor"}.get(type(layer).__name__)
            return (lambda: setattr(layer, name, value / 4)) if name else (lambda: None)
        if which == 2:
            rate = draw.choice([0.1, 0.01])
            return lambda: setattr(model.optimizer, "learning_rate", rate)
        return lambda: state.change(what, value)

    def callbacks() -> list[Any]:
        found: list[Any] = []
        for _ in range(draw.choice([0, 0, 1, 1, 2])):
            which = draw.randrange(6)
            if which == 0:
                found.append(keras.callbacks.EarlyStopping("loss", patience=0, min_delta=draw.choice([0.0, 0.2])))
            elif which == 1:
                found.append(keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr * 0.5))
            else:
                events = ["on_epoch_end", "on_epoch_begin", "on_train_begin", "on_train_batch_end", "on_test_begin"]
                found.append(Changing(draw.choice(events), change()))
        return found

    def one() -> Any:
        which = draw.randrange(8)
        size = draw.choice([8, 16, 20])
        if which <= 2:
            split, shuffle, epochs = draw.choice([0.0, 0.25]), draw.choice([True, False]), draw.randint(1, 3)
            told = callbacks()
            words = {"batch_size": size, "epochs": epochs, "shuffle": shuffle, "validation_split": split}
            return lambda use: use["fit"](model, X, Y, verbose=0, callbacks=told, **words).history
        if which == 3:
            return lambda use: use["evaluate"](model, X, Y, batch_size=size, verbose=0)
        if which == 4:
            return lambda use: use["predict"](model, X, batch_size=size, verbose=0)
        if which == 5:
            return lambda use: model.train_on_batch(X[:size], Y[:size])
        if which == 6:
            seed = draw.randrange(1000)

            def again(use: Any) -> None:
                compile_model(random.Random(seed), state, model)

            return again
        changed = change()
        return lambda use: changed()

    return [one() for _ in range(draw.randint(2, 5))]


def outcome(seed: int, use: dict[str, Any]) -> list[tuple[str, Any]]:
    """All that can be seen of a sequence."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    draw, state = random.Random(seed), State()
    model, regularizer = build(draw, state)
    # The same draws on both sides: none is made while the calls run.
    planned = calls(draw, state, model, regularizer)
    found: list[tuple[str, Any]] = []
    for number, call in enumerate(planned):
        try:
            found.append((f"call {number}", call(use)))
        except Exception as error:
            found.append((f"call {number} raised", f"{type(error).__name__}: {str(error)[:100]}"))
    found.append(("weights", model.get_weights()))
    found.append(("optimizer", [keras.ops.convert_to_numpy(v) for v in model.optimizer.variables]))
    if keras.config.backend() == "torch":
        # Elsewhere it says how often the step was traced, which nobody promises.
        found.append(("steps counted", state.count))
    found.append(("random numbers", (random.random(), float(np.random.random()), float(keras.random.uniform(())))))
    return found


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, (float, np.ndarray, np.generic)):
        exact = keras.config.backend() == "torch"
        close = np.array_equal if exact else lambda x, y, equal_nan: np.allclose(x, y, 1e-5, 1e-6, equal_nan=equal_nan)
        return bool(close(np.asarray(a), np.asarray(b), equal_nan=True))
    return bool(a == b)


def difference(seed: int) -> str | None:
    """What differs between stock Keras and flatout; None if nothing does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, found = outcome(seed, STOCK), outcome(seed, ACCELERATED)
    for (name, theirs), (_, ours) in zip(expected, found, strict=True):
        if not equal(theirs, ours):
            return f"seed {seed}: {name}: stock {theirs!r:.300}, flatout {ours!r:.300}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("FLATOUT_FORCE", "1")
    began, failures = time.monotonic(), 0
    for seed in range(options.seed, options.seed + options.sequences):
        if (found := difference(seed)) is not None:
            failures += 1
            print(found, flush=True)
    accelerated = [run for run in flatout.explain() if run.engine == keras.config.backend()]
    print(
        f"{options.sequences} sequences from seed {options.seed} on {keras.config.backend()}: {failures} differ; "
        f"{len(accelerated)} accelerated calls are remembered; {time.monotonic() - began:.0f} s"
    )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
