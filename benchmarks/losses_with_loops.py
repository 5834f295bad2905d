"""Losses that loop over the batch or over time, inside `fit`: as they are, and with `flatout.vectorize`. See losses.py.

Every figure comes from a process of its own, in turns, and is the best of several: XLA compiles the parts of a small
program on all cores at once and an unrolled loop on one, so that other work on the machine delays the one and not the
other (on two cores 0.30 s became 0.50 s, and 6.0 s stayed 6.0 s).

    KERAS_BACKEND=jax python benchmarks/losses_with_loops.py rows vectorized --fit stock     # one such process, as JSON
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

FORMS = ("loop", "vectorized", "built_in")
TIME_STEPS = 30


def rows(y_true, y_pred):
    """Row by row, by index: case A1 of the corpus."""
    from keras import ops

    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
    return total / y_true.shape[0]


def pairs_of_rows(y_true, y_pred):
    """Row by row, by zip, into a list: TensorFlow does not trace this one."""
    from keras import ops

    terms = []
    for target, guess in zip(y_true, y_pred, strict=True):
        terms.append(ops.sum(ops.abs(target - guess)) / (1.0 + ops.sum(ops.abs(target))))
    return ops.mean(ops.stack(terms))


def correlation(a, b):
    from keras import ops

    a, b = a - ops.mean(a), b - ops.mean(b)
    return ops.sum(a * b) / ops.sqrt(ops.sum(a * a) * ops.sum(b * b) + 1e-6)


def correlations(y_true, y_pred):
    """A helper called for each row, in a comprehension."""
    return 1.0 - sum(correlation(y_true[i], y_pred[i]) for i in range(y_true.shape[0])) / y_true.shape[0]


def time_steps(y_true, y_pred):
    """One distance for each of 30 time steps: case A4 of the corpus. The loop does not grow with the batch."""
    from keras import ops

    total = 0.0
    for t in range(y_pred.shape[1]):
        diff = y_true[:, t, :] - y_pred[:, t, :]
        total = total + ops.mean(ops.sqrt(ops.sum(ops.square(diff), axis=-1) + 1e-6))
    return total / y_pred.shape[1]


LOSSES: dict[str, Callable[..., Any]] = {
    "rows": rows,
    "pairs_of_rows": pairs_of_rows,
    "correlations": correlations,
    "time_steps": time_steps,
}


def make_model(is_sequence: bool, loss: Any) -> Any:
    import keras

    out = [keras.layers.Dense(TIME_STEPS * 5), keras.layers.Reshape((TIME_STEPS, 5))]
    layers = [keras.layers.Dense(64, activation="relu"), *(out if is_sequence else [keras.layers.Dense(6)])]
    model = keras.Sequential([keras.Input((16,)), *layers])
    model.compile("sgd", loss=loss)
    return model


def measure(name: str, form: str, fit: str, batch: int, steps: int) -> dict[str, float]:
    """Seconds to the first step of a model with this loss, and milliseconds of each step after that."""
    import numpy as np

    import flatout

    is_sequence = name == "time_steps"
    rng = np.random.default_rng(0)
    shape = (TIME_STEPS, 5) if is_sequence else (6,)
    x = rng.normal(size=(batch * steps, 16)).astype("float32")
    y = rng.normal(size=(batch * steps, *shape)).astype("float32")

    def train(model: Any, steps: int) -> float:
        run = model.fit if fit == "stock" else lambda *arrays, **options: flatout.fit(model, *arrays, **options)
        began = time.perf_counter()
        run(x[: batch * steps], y[: batch * steps], batch_size=batch, verbose=0)
        return time.perf_counter() - began

    train(make_model(is_sequence, "mae"), 1)  # What the first fit of a process pays is no loss's.
    loss: Any = "mse"
    found = {}
    if form != "built_in":
        loss = LOSSES[name]
    if form == "vectorized":
        loss = flatout.vectorize(loss)
        began = time.perf_counter()
        assert loss.applied, loss.reason
        found["proof_s"] = time.perf_counter() - began
    model = make_model(is_sequence, loss)
    found["first_step_s"] = train(model, 1)
    train(model, 2)  # More than one step may compile once more.
    found["step_ms"] = min(train(model, steps) for _ in range(3)) / steps * 1e3
    return found


def in_own_process(
    name: str, form: str, batch: int, steps: int, fit: str = "stock", cache: str | None = None
) -> dict[str, float] | None:
    """`measure`, elsewhere, with what is kept in `cache`; None if Keras cannot run the loss."""
    if cache is None:
        with tempfile.TemporaryDirectory() as empty:
            return in_own_process(name, form, batch, steps, fit, empty)
    command = [sys.executable, __file__, name, form, "--fit", fit, "--batch", str(batch), "--steps", str(steps)]
    done = subprocess.run(command, env={**os.environ, "XDG_CACHE_HOME": cache}, capture_output=True, text=True)
    if done.returncode:
        if form != "loop":
            raise RuntimeError(done.stderr)
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# Seconds of a first step that are not waited for again.
_LONG = 20.0


def best(found: list[dict[str, float]]) -> dict[str, float]:
    return {key: min(one[key] for one in found) for key in found[0]}


def measure_loop(batch: int, steps: int, repeats: int = 3) -> dict[str, Any]:
    """Each loss as a loop, as array code, and with a loss of Keras' own in its place, in turns; the best of each."""
    report: dict[str, Any] = {}
    print(f"  first step in s and later steps in ms, batch {batch}, the best of {repeats} processes each, stock fit")
    for name in LOSSES:
        turns: dict[str, list[Any]] = {form: [] for form in FORMS}
        for _ in range(repeats):
            for form, found in turns.items():
                if not found or (found[0] is not None and found[0]["first_step_s"] < _LONG):
                    found.append(in_own_process(name, form, batch, steps))
        with tempfile.TemporaryDirectory() as cache:
            # Twice: the second process finds what the first one compiled.
            ours = [in_own_process(name, "vectorized", batch, steps, "flatout", cache) for _ in range(2)]
        runs = {form: best(found) for form, found in turns.items() if found[0] is not None}
        report[name] = {**runs, "flatout_fit": ours[0], "flatout_fit_again": ours[1]}
        _show(name, report[name])
    return report


def _show(name: str, runs: dict[str, Any]) -> None:
    loop, ours = runs.get("loop"), runs["vectorized"]
    print(f"    {name}: {(LOSSES[name].__doc__ or '').strip()}" if LOSSES[name].__doc__ else f"    {name}")
    if loop is None:
        print("      loop         Keras cannot run it on this backend")
    else:
        print(f"      loop         first step {loop['first_step_s']:6.2f}   then {loop['step_ms']:7.2f}")
    for form, label in (("vectorized", "vectorized"), ("built_in", "floor: mse"), ("flatout_fit", "flatout.fit"),
                        ("flatout_fit_again", "  once more")):  # fmt: skip
        one = runs[form]
        ratio = "" if loop is None else f"   {loop['first_step_s'] / one['first_step_s']:5.1f}x sooner"
        later = "" if loop is None else f", {loop['step_ms'] / one['step_ms']:4.1f}x a step"
        print(f"      {label:12} first step {one['first_step_s']:6.2f}   then {one['step_ms']:7.2f}{ratio}{later}")
    if loop is not None:
        for label, one in (("proof", ours), ("  once more", runs["flatout_fit_again"])):
            whole = loop["first_step_s"] / (one["first_step_s"] + one["proof_s"])
            print(f"      {label:12} {one['proof_s']:.2f} s, not in these figures; with it {whole:.1f}x sooner")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loss", choices=LOSSES)
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("--fit", choices=("stock", "flatout"), default="stock")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=30)
    flags = parser.parse_args()
    print(json.dumps(measure(flags.loss, flags.form, flags.fit, flags.batch, flags.steps)))
