"""A loss that loops over the batch, inside `fit`: stock Keras as it is, and with `flatout.vectorize`. See losses.py."""

from __future__ import annotations

import statistics
import time
from typing import Any


def make_loss():
    from keras import ops

    def loop(y_true, y_pred):
        total = 0.0
        for i in range(y_true.shape[0]):
            total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
        return total / y_true.shape[0]

    return loop


def measure(loss, batch: int, steps: int) -> dict[str, float]:
    """Seconds to the first step of a fresh model, and per step after that."""
    import keras
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch * steps, 16)).astype("float32")
    y = rng.normal(size=(batch * steps, 6)).astype("float32")
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(6)])
    model.compile("sgd", loss=loss)
    began = time.perf_counter()
    model.fit(x[:batch], y[:batch], batch_size=batch, verbose=0)
    first = time.perf_counter() - began
    model.fit(x[: 2 * batch], y[: 2 * batch], batch_size=batch, verbose=0)  # More than one step may compile once more.
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        model.fit(x, y, batch_size=batch, verbose=0)
        best = min(best, time.perf_counter() - began)
    return {"first_step_s": first, "step_ms": best / steps * 1e3}


def first_steps(losses: dict[str, Any], batch: int, repeats: int) -> dict[str, float]:
    """Seconds to the first step of fresh models with each of these losses, in turns; the median of the repeats."""
    found: dict[str, list[float]] = {name: [] for name in losses}
    for _ in range(repeats):
        for name, loss in losses.items():
            found[name].append(measure(loss, batch, 1)["first_step_s"])
    return {name: statistics.median(times) for name, times in found.items()}


def measure_loop(batch: int, steps: int, repeats: int = 3) -> dict[str, Any]:
    """The loop and its array form, one after the other: first step, later steps, and their ratios."""
    import keras

    import flatout

    measure("mse", batch, 2)  # What the first fit of a process pays is neither's.
    quick = flatout.vectorize(make_loss())
    began = time.perf_counter()
    assert quick.applied, quick.reason
    proof = time.perf_counter() - began
    stock = measure(make_loss(), batch, steps)
    ours = measure(quick, batch, steps)
    several = first_steps({"vectorized": quick, "built_in": "mse"}, batch, repeats)
    ours["first_step_s"] = several["vectorized"]
    ratios = {name: stock[name] / ours[name] for name in stock}
    print(f"  batch loop, batch {batch}, {steps} steps of stock fit")
    print(f"    loop        first step {stock['first_step_s']:7.2f} s   then {stock['step_ms']:8.2f} ms a step")
    print(f"    vectorized  first step {ours['first_step_s']:7.2f} s   then {ours['step_ms']:8.2f} ms a step")
    print(f"    ratio                  {ratios['first_step_s']:7.1f}          {ratios['step_ms']:8.1f}")
    print(f"    floor: Keras' own mse  {several['built_in']:7.2f} s to the first step of the same model")
    print(f"    proof, once, before fit {proof:.2f} s")
    found = {"backend": keras.backend.backend(), "batch": batch, "loop": stock, "vectorized": ours, "ratio": ratios}
    return {**found, "floor_s": several["built_in"], "proof_s": proof}
