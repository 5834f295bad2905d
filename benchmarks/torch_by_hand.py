"""Stock Keras, flatout and plain PyTorch by hand, side by side, on the models of `flatout bench`.

    python benchmarks/torch_by_hand.py
    python benchmarks/torch_by_hand.py seed tabular --steps 100 --repeats 5 --no-compile

By hand (`torch_models_by_hand.py`, `torch_training_by_hand.py`) is tried three ways: eager; the whole step in a CUDA
graph, with forward, loss, backward, optimizer and the sums of the metrics; and the same with all but the optimizer,
which is torch's fused one, through `torch.compile` first. Data lie on the device, and an epoch's order is drawn there.
flatout runs without its native kernels: as the step is recorded, and as it is compiled behind a longer run. Stock
Keras trains on few batches. Before anything is timed, a model by hand gets the weights of Keras' one and must agree
with it. Times are medians over the epochs after the third of all repeats, in which the ways take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
from keras import layers
from torch import nn
from torch_models_by_hand import MODELS, ByHand
from torch_training_by_hand import captured, training_of

import flatout
from flatout.bench.bench_device import device
from flatout.bench.comparison import SEED, train
from flatout.bench.models import CATEGORIES, NUMBERS, VOCABULARY
from flatout.bench.workloads import WORKLOADS, Workload
from flatout.bench.yardsticks import seconds_of

EPOCHS = 6
# A compiled step that is there is exchanged in the second epoch, or in the third where an epoch is over in no time.
TIMED = slice(3, None)
WAYS = ("stock", "recorded", "flatout", "eager", "graph", "compiled")
COLUMNS = ("model", "stock us/step", "flatout, recorded", "flatout, compiled", "by hand, eager", "by hand, CUDA graph")
COLUMNS += ("by hand, compiled + graph", "flatout / fastest by hand")
_STEPS_CHECKED = 3
# Stock Keras' steps take as long in a short epoch as in a long one, and most of the time here would be theirs.
_MOST_STOCK_STEPS = 60
_MOST_SECONDS = 150
# flatout weighs compiling against the whole training: the few epochs are judged as the first of so many.
_LONG = 100_000
_SAME_OUTPUTS = 1e-4
# Adam divides gradients of nearly zero by their own size, and torch adds its epsilon elsewhere than Keras.
_SAME_LOSS = 1e-3
# Rows near the border between two classes may fall on either side, and there are 96 in three batches of 32.
_SAME_METRIC = 0.025


class JoinedTabular(Workload):
    """`tabular` with one embedding that all columns share, each with rows of its own."""

    def build(self) -> keras.Model:
        numbers = keras.Input((NUMBERS,), name="numbers")
        categories = keras.Input((CATEGORIES,), dtype="int32", name="categories")
        rows = categories + np.arange(CATEGORIES, dtype=np.int32) * VOCABULARY
        embedded = layers.Flatten()(layers.Embedding(CATEGORIES * VOCABULARY, 16)(rows))
        hidden = layers.Concatenate()([layers.BatchNormalization()(numbers), embedded])
        for width in (256, 128):
            hidden = layers.BatchNormalization()(layers.Dense(width, activation="relu")(hidden))
        output = layers.Dense(1, activation="sigmoid")(hidden)
        model = keras.Model({"numbers": numbers, "categories": categories}, output)
        model.compile("adam", "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")])
        return model


def workload_named(name: str) -> Workload:
    if name in WORKLOADS:
        return WORKLOADS[name]
    return JoinedTabular(name, "tabular, one embedding of 26 columns", 1024, 40, 200, WORKLOADS["tabular"].rows)


def disagreement(workload: Workload, by_hand: ByHand) -> str:
    """How a model by hand differs from Keras' one, dropout aside: in a batch's outputs, or in a few steps' logs."""
    keras.utils.set_random_seed(SEED)
    keras_model, size = workload.build(), workload.batch_size
    x, y = workload.data(_STEPS_CHECKED)
    training = training_of(by_hand, keras_model, x, y, size)
    for layer in keras_model.layers:
        if isinstance(layer, layers.Dropout):
            layer.rate = 0.0
    for module in training.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    with torch.no_grad(), _without_tf32():
        logits = training.model(*[array[:size] for array in training.inputs])
        mine = logits.sigmoid() if by_hand.is_binary else logits.softmax(1)
        theirs = keras_model(keras.tree.map_structure(lambda array: array[:size], x), training=True)
    difference = (mine - theirs).abs().max().item()
    if not difference < _SAME_OUTPUTS:
        return f"outputs by hand differ from Keras' by {difference:.2g}"
    with _without_tf32():
        for _ in range(_STEPS_CHECKED):
            training.step()
        history = keras_model.fit(x, y, batch_size=size, shuffle=False, verbose=0).history
    for name, value in training.results().items():
        if not abs(value - history[name][0]) < (_SAME_LOSS if name == "loss" else _SAME_METRIC):
            return f"after {_STEPS_CHECKED} steps, {name} is {value:.5f} by hand and {history[name][0]:.5f} in Keras"
    return ""


@contextlib.contextmanager
def _without_tf32() -> Iterator[None]:
    """Convolutions and cuDNN's LSTM round to TF32 by default, by far more than the two may differ."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def _fastest_convolutions() -> AbstractContextManager[None]:
    """As who writes for speed asks of cuDNN, which goes by rules of thumb else; so does flatout."""
    cudnn = torch.backends.cudnn
    return cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=cudnn.allow_tf32)


@dataclass
class Measured:
    """Microseconds a step of each way, the loss at the end of its first training, and what is to be said besides."""

    times: dict[str, list[float]]
    losses: dict[str, float]
    notes: list[str]


def measure(workload: Workload, steps: int, repeats: int, hand_ways: tuple[str, ...]) -> Measured:
    """All ways in turns. Models by hand are captured and compiled once, and go on where the last repeat ended."""
    x, y = workload.data(steps)
    few = min(steps, _MOST_STOCK_STEPS)
    measured = Measured({}, {}, [])
    runs: dict[str, Callable[[], tuple[list[float], float]]] = {
        # "torch" rather than "auto", which may take native kernels.
        "stock": partial(_fit, workload, "stock", *workload.data(few), EPOCHS, measured.notes),
        "recorded": partial(_fit, workload, "torch", x, y, EPOCHS, measured.notes),
    }
    if device().is_gpu:
        measured.notes.append(_await_compiled(workload, x, y))
        runs["flatout"] = partial(_fit, workload, "torch", x, y, _LONG, measured.notes)
    for way in hand_ways:
        try:
            runs[way] = _hand_written(workload, way, x, y)
        except RuntimeError as error:
            measured.notes.append(f"{way} by hand failed: {str(error).strip().splitlines()[0]}")
    for repeat in range(repeats):
        for way in runs if repeat % 2 == 0 else reversed(runs):
            seconds, loss = runs[way]()
            taken = few if way == "stock" else steps
            measured.times.setdefault(way, []).extend(1e6 * second / taken for second in seconds[TIMED])
            if way != "stock":
                measured.losses.setdefault(way, loss)
    return measured


def _await_compiled(workload: Workload, x: Any, y: Any) -> str:
    """Train until the step is compiled, and what flatout says of it."""
    began = time.monotonic()
    while time.monotonic() < began + _MOST_SECONDS:
        run = train("torch", workload, x, y, 2 * EPOCHS, _LONG)
        for why in run.report.reasons:
            if why.code in ("compiled_behind", "not_compiled"):
                return f"{why.message.rstrip('.')}, {time.monotonic() - began:.0f} s after the first fit began"
    return f"the step was not compiled in {_MOST_SECONDS} s"


def _fit(workload: Workload, engine: str, x: Any, y: Any, planned: int, notes: list[str]) -> tuple[list[float], float]:
    """Seconds of each epoch of Keras' fit, and the last loss."""
    run = train(engine, workload, x, y, EPOCHS, planned)
    codes, note = [why.code for why in run.report.reasons], ""
    if engine != "stock" and not run.report.accelerated:
        note = f"flatout left it to stock Keras: {', '.join(codes)}"
    elif planned > EPOCHS and "compiled_behind" not in codes:
        note = "in a timed training the compiled step did not take the place of the recorded one"
    if note and note not in notes:
        notes.append(note)
    return run.epoch_seconds, run.history["loss"][-1]


def _hand_written(workload: Workload, way: str, x: Any, y: Any) -> Callable[[], tuple[list[float], float]]:
    """Epochs by hand, ready to be timed."""
    keras.utils.set_random_seed(SEED)
    training = training_of(MODELS[workload.name], workload.build(), x, y, workload.batch_size)
    if way == "compiled":
        # Each model would count as one more recompilation of the same function.
        torch.compiler.reset()
        training.forward = torch.compile(training.forward_with_sums)
    with _fastest_convolutions():
        step = training.step if way == "eager" else captured(training)

    def run() -> tuple[list[float], float]:
        with _fastest_convolutions():
            seconds = [seconds_of(partial(training.train_epoch, step)) for _ in range(EPOCHS)]
        return seconds, training.results()["loss"]

    return run


def row(title: str, measured: Measured) -> str:
    """A line of the table."""
    medians = {way: statistics.median(times) for way, times in measured.times.items()}
    by_hand = [medians[way] for way in WAYS[3:] if way in medians]
    # What a user gets: compiled behind a long run, if it was.
    ours = medians.get("flatout", medians["recorded"])
    cells = [f"{medians[way]:,.1f}" if way in medians else "-" for way in WAYS]
    ratio = f"{ours / min(by_hand):.2f}" if by_hand else "-"
    return _line(title, *cells, ratio)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _about() -> str:
    versions = f"torch {torch.__version__}, Keras {keras.__version__}, flatout {flatout.__version__}"
    if not device().is_gpu:
        return f"{device().name}; {versions}"
    tf32 = [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]
    return (
        f"{device().name}; {versions}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}; "
        f"TF32 in products: {tf32[0]}, in cuDNN: {tf32[1]}, for all ways"
    )


def main() -> int:
    given = _arguments()
    ways = ("eager", "graph", "compiled") if device().is_gpu else ("eager",)
    hand_ways = tuple(way for way in ways if way != "compiled" or given.compile)
    print(f"{_about()}; medians of {given.repeats} repeats\n")
    if not device().is_gpu:
        print("Without CUDA there are no graphs: by hand is eager alone.\n")
    print(_line(*COLUMNS))
    print(_line("---", *["---:"] * (len(COLUMNS) - 1)), flush=True)
    failed = False
    for name in given.names:
        workload = workload_named(name)
        steps = given.steps or (workload.gpu_steps if device().is_gpu else workload.cpu_steps)
        wrong = disagreement(workload, MODELS[name])
        if wrong:
            failed = True
            _tell(name, [f"not timed: {wrong}"])
            continue
        measured = measure(workload, steps, given.repeats, hand_ways)
        print(row(workload.title, measured), flush=True)
        losses = ", ".join(f"{way} {loss:.4f}" for way, loss in measured.losses.items())
        _tell(name, [*measured.notes, f"loss after {EPOCHS} epochs: {losses}"])
    return int(failed)


def _tell(name: str, notes: list[str]) -> None:
    """Beside the table, as they come: a run of minutes may be stopped."""
    for note in notes:
        print(f"{name}: {note}.", file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(MODELS), help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--steps", type=int, help="of an epoch; default: as in `flatout bench`")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(MODELS))
    if unknown:
        parser.error(f"Unknown models. Received: {', '.join(unknown)}. Expected some of {', '.join(MODELS)}.")
    return given


if __name__ == "__main__":
    raise SystemExit(main())
