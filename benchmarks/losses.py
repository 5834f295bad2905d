"""A loss that loops over the batch, inside `fit`: stock Keras as it is, and with `flatout.vectorize`, in one run.

    KERAS_BACKEND=jax python benchmarks/losses.py            # also tensorflow, torch
    KERAS_BACKEND=torch python benchmarks/losses.py --batch 128 --steps 20 --json losses.json

Prints the time to the first step (compilation included), the time of a step after that, and the ratios. The second
row also says how long the proof took, which is not part of `fit`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", type=Path)
    flags = parser.parse_args()

    import keras

    import flatout

    measure("mse", flags.batch, 2)  # What the first fit of a process pays is neither's.
    quick = flatout.vectorize(make_loss())
    began = time.perf_counter()
    assert quick.applied, quick.reason
    proof = time.perf_counter() - began
    stock = measure(make_loss(), flags.batch, flags.steps)
    ours = measure(quick, flags.batch, flags.steps)
    ratios = {name: stock[name] / ours[name] for name in stock}
    report = {"backend": keras.backend.backend(), "batch": flags.batch, "loop": stock, "vectorized": ours} | {
        "ratio": ratios,
        "proof_s": proof,
    }
    print(f"{report['backend']}, batch {flags.batch}, {flags.steps} steps")
    print(f"  loop        first step {stock['first_step_s']:7.2f} s   then {stock['step_ms']:8.2f} ms a step")
    print(f"  vectorized  first step {ours['first_step_s']:7.2f} s   then {ours['step_ms']:8.2f} ms a step")
    print(f"  ratio                  {ratios['first_step_s']:7.1f}          {ratios['step_ms']:8.1f}")
    print(f"  proof, once, before fit {proof:.2f} s")
    if flags.json:
        flags.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
