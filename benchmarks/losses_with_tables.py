"""Tables in the loss: what pandas costs there today, and what a join costs. See losses.py."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import keras
import numpy as np
import pandas as pd
from keras import ops

import flatout
from flatout.bench.bench_device import device

CLASSES, PIXELS = 10, 784
SPECIES = pd.DataFrame({"weight": np.linspace(0.5, 3.0, CLASSES), "margin": np.linspace(0.1, 1.0, CLASSES)})
MILLION = 1_000_000
_clock: Callable[[], float] = time.perf_counter


class EpochTimer(keras.callbacks.Callback):
    """When each epoch began and ended."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[float] = []
        self.ends: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.begins.append(_clock())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.ends.append(_clock())


@dataclass(frozen=True)
class Measured:
    """Two ways to the same loss.

    Attributes:
        before: Microseconds a step, of the fastest epoch, without the table: with pandas, or with no join at all.
        after: Microseconds a step with the table.
        first_before: Seconds of the first epoch, which compiles.
        first_after: Likewise.
    """

    name: str
    backend: str
    device: str
    batch_size: int
    before: float
    after: float
    first_before: float
    first_after: float

    @property
    def ratio(self) -> float:
        return self.before / self.after


def pandas_loss(y_true: Any, y_pred: Any) -> Any:
    """As users write it: a row of a data frame for each sample."""
    total = 0.0
    for number in range(y_true.shape[0]):
        label = int(ops.reshape(y_true[number], ()))
        row = SPECIES.iloc[label]
        others = ops.stack([y_pred[number, other] for other in range(CLASSES) if other != label])
        gap = float(row["margin"]) + ops.max(others) - y_pred[number, label]
        total = total + float(row["weight"]) * ops.maximum(0.0, gap)
    return total / y_true.shape[0]


def table_loss(table: flatout.Table) -> Callable[[Any, Any], Any]:
    """The same, joined on the device."""

    def loss(y_true: Any, y_pred: Any) -> Any:
        labels = ops.cast(ops.reshape(y_true, (-1,)), "int32")
        row = table.at(labels)
        # Not `ops.one_hot`: on torch it reads its input on the host.
        own = ops.equal(labels[:, None], ops.arange(CLASSES, dtype="int32")[None, :])
        score = ops.sum(ops.where(own, y_pred, 0.0), axis=1)
        other = ops.max(ops.where(own, -1e9, y_pred), axis=1)
        return ops.mean(row.weight * ops.maximum(0.0, row.margin + other - score))

    return loss


def measure_class_table(batch_size: int = 128, eager_steps: int = 6, steps: int = 300) -> Measured:
    """pandas in the loss with `run_eagerly=True`, against a class table compiled by flatout."""
    keras.utils.set_random_seed(0)
    eager_rows, rows = batch_size * eager_steps, batch_size * steps
    x, y = _pictures(rows), np.random.default_rng(1).integers(0, CLASSES, rows)
    slow = _class_model(pandas_loss, run_eagerly=True)
    try:
        before = _epochs(slow.fit, x[:eager_rows], y[:eager_rows], batch_size=batch_size, epochs=3)
    except Exception as error:
        # On jax Keras traces the loss once even with run_eagerly=True, and a tracer has no value to look up.
        print(f"  pandas in the loss does not run on {keras.backend.backend()}: {type(error).__name__}")
        before = (math.inf, [math.inf])
    fast = _class_model(table_loss(flatout.Table(SPECIES)))
    after = _epochs(_flatout(fast), x, y, batch_size=batch_size, epochs=5)
    return _measured("class table against pandas", batch_size, before, eager_steps, after, steps)


def measure_sample_table(
    batch_size: int = 256, steps: int = 200, rows: int = MILLION, stock: bool = False, repeats: int = 5
) -> Measured:
    """A weight for each sample out of a table of `rows` rows, against the same loss without one."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, rows, batch_size * steps)
    table = flatout.Table({"sample": np.arange(rows), "w": rng.uniform(0.5, 2.0, rows)}, key="sample")

    def plain(y_true: Any, y_pred: Any) -> Any:
        return keras.losses.sparse_categorical_crossentropy(y_true, y_pred)

    @flatout.loss
    def joined(y_true: Any, y_pred: Any, x: Any) -> Any:
        return table.at(x["sample"]).w * keras.losses.sparse_categorical_crossentropy(y_true, y_pred)

    x = {"pictures": _pictures(batch_size * steps)}
    y = rng.integers(0, CLASSES, batch_size * steps)
    runs: dict[str, tuple[list[float], list[float]]] = {"plain": ([], []), "joined": ([], [])}
    models = {"plain": _named_model(plain), "joined": _named_model(joined)}
    for repeat in range(repeats):
        for name in ("plain", "joined") if repeat % 2 == 0 else ("joined", "plain"):
            model = models[name]
            inputs = x if name == "plain" else {**x, "sample": ids}
            first, rest = _epochs(model.fit if stock else _flatout(model), inputs, y, batch_size=batch_size, epochs=4)
            runs[name][0].append(first)
            runs[name][1].extend(rest)
    before, after = ((first[0], rest) for first, rest in runs.values())
    return _measured(f"{rows:,} rows, {'stock fit' if stock else 'flatout'}", batch_size, before, steps, after, steps)


def measure_joins(batch_sizes: tuple[int, ...] = (256, 4096), rows: int = MILLION) -> dict[str, float]:
    """Microseconds of a compiled join alone, by kind and batch size."""
    rng = np.random.default_rng(0)
    weights = rng.uniform(size=rows)
    ids = np.unique(rng.integers(0, 2**31 - 1, rows))
    tables = {
        "dense": flatout.Table({"id": np.arange(rows), "w": weights}, key="id"),
        "codes": flatout.Table({"id": ids, "w": weights[: len(ids)]}, key="id", join="codes"),
        "searchsorted": flatout.Table({"id": ids, "w": weights[: len(ids)]}, key="id"),
    }
    return {
        f"{kind}, batch {size}": table.explain(batch_size=size).microseconds
        for kind, table in tables.items()
        for size in batch_sizes
    }


def _pictures(rows: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, PIXELS)).astype("float32")


def _class_model(loss: Any, **settings: Any) -> keras.Model:
    layers = [keras.Input((PIXELS,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(CLASSES)]
    model = keras.Sequential(layers)
    model.compile("adam", loss, **settings)
    return model


def _named_model(loss: Any) -> keras.Model:
    pictures = keras.Input((PIXELS,), name="pictures")
    hidden = keras.layers.Dense(128, activation="relu")(pictures)
    model = keras.Model({"pictures": pictures}, keras.layers.Dense(CLASSES, activation="softmax")(hidden))
    model.compile("adam", loss)
    return model


def _flatout(model: keras.Model) -> Callable[..., Any]:
    return lambda *args, **kwargs: flatout.fit(model, *args, **kwargs)


def _epochs(fit: Callable[..., Any], x: Any, y: Any, **settings: Any) -> tuple[float, list[float]]:
    """Seconds of the first epoch, from the call on, and of each later one."""
    timer, started = EpochTimer(), _clock()
    fit(x, y, verbose=0, callbacks=[timer], **settings)
    later = zip(timer.begins[1:], timer.ends[1:], strict=True)
    return timer.ends[0] - started, [end - begin for begin, end in later]


def _measured(
    name: str, batch_size: int, before: tuple[float, list[float]], before_steps: int, after: Any, after_steps: int
) -> Measured:
    return Measured(
        name,
        keras.backend.backend(),
        device().name,
        batch_size,
        # The fastest epoch: what else runs on the machine only adds.
        min(before[1]) / before_steps * 1e6,
        min(after[1]) / after_steps * 1e6,
        before[0],
        after[0],
    )


def use_processor_time() -> None:
    """Count processor time instead of wall-clock time, for a machine on which other work runs."""
    global _clock
    _clock = time.process_time


def measure_tables(what: Sequence[str], steps: int) -> dict[str, Any]:
    """Measure `"class"`, `"sample"` and `"join"`, whichever are asked for, and print."""
    results: list[Measured] = []
    if "class" in what:
        results.append(measure_class_table(steps=steps))
        one = results[-1]
        print(
            f"  {one.name}, batch {one.batch_size}: {one.before:,.0f} -> {one.after:,.0f} us a step ({one.ratio:.0f}x)"
        )
    if "sample" in what:
        for stock in (False, True):
            one = measure_sample_table(steps=steps, stock=stock)
            results.append(one)
            print(
                f"  {one.name}, batch {one.batch_size}: {one.before:,.0f} us a step, with the join {one.after:,.0f} "
                f"({one.after / one.before - 1:+.1%})"
            )
    joins = measure_joins() if "join" in what else {}
    for name, microseconds in joins.items():
        print(f"  join {name}: {microseconds:.1f} us")
    return {"measured": [asdict(one) for one in results], "joins": joins}
