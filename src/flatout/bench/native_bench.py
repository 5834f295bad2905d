"""`flatout bench native`: the seed model under stock Keras, the backend's engine and native kernels, in one run."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import keras
import numpy as np

from flatout.base.options import options
from flatout.fit import fit
from flatout.native.fused.fused_plan import Precision
from flatout.native.launch.launcher import default_launcher, make_launcher, why_not_here
from flatout.native.lower import lower
from flatout.native.program.kernel_program import KernelProgram
from flatout.native.run.session import Session
from flatout.native.staged.staged_program import staged_program

from .bench_device import device
from .comparison import SEED, train
from .workloads import WORKLOADS, Workload
from .yardsticks import lax_scan, seconds_of, torch_graph


@dataclass(frozen=True)
class MeasuredWay:
    """One way to train the model; None is what was not measured, `note` says why, or in which form it ran."""

    way: str
    us_per_step: float | None
    first_epoch_seconds: float | None
    loss: float | None
    note: str = ""


def measure(steps: int | None, epochs: int, repeats: int) -> list[MeasuredWay]:
    """Train the seed model each way, in turns, from the same seed."""
    workload = WORKLOADS["seed"]
    steps = steps or workload.gpu_steps
    x, y = workload.data(steps)
    batch_size = workload.batch_size
    backend = keras.config.backend()
    engines = {"stock Keras": ("stock", "exact"), f"flatout, engine {backend}": (backend, "exact")}
    if (why := why_not_here()) is None:
        engines |= {"flatout, native, exact": ("native", "exact"), "flatout, native, fast": ("native", "fast")}
    seconds: dict[str, list[float]] = {way: [] for way in engines}
    first: dict[str, tuple[float, float, str]] = {}
    for repeat in range(repeats):
        for way in engines if repeat % 2 == 0 else reversed(engines):
            engine, precision = engines[way]
            with options(force=True):
                run = train(engine, workload, x, y, epochs, precision=precision)
            seconds[way] += run.epoch_seconds[1:]
            ran_on = run.report.engine
            form = next((why.message for why in run.report.reasons if why.code == "native_form"), "")
            note = form if ran_on == engine else f"ran on {ran_on}"
            first.setdefault(way, (run.epoch_ends[0], float(run.history["loss"][-1]), note))
    lines = [MeasuredWay(way, statistics.median(seconds[way]) / steps * 1e6, *first[way]) for way in engines]
    if why is not None:
        return [*lines, MeasuredWay("flatout, native", None, None, None, str(why))]
    lines.append(_kernels_alone(x, y, batch_size, steps, epochs))
    kernels: tuple[tuple[Precision, str], ...] = (("exact", "float32"), ("exact", "pixels"), ("fast", "float32"))
    for precision, data in kernels:
        lines.append(_one_kernel_alone(precision, data, x, y, batch_size, steps, epochs))
    if backend == "jax":
        lines.append(MeasuredWay("plain lax.scan", lax_scan(workload, steps, epochs, repeats), None, None))
    if default_launcher() == "cpu":
        # The emulation is for tests; what comes now needs a GPU, or its speed.
        return lines
    if importlib.util.find_spec("torch") is not None:
        by_hand = torch_graph(x, y, batch_size, epochs)
        lines.append(MeasuredWay("torch by hand, a CUDA graph", by_hand, None, None))
    lines.append(_whole_training(workload, x, y, steps))
    return lines


def _whole_training(workload: Workload, x: Any, y: Any, steps: int) -> MeasuredWay:
    """100 epochs with validation, from the call of `fit` to its return, after one epoch that compiles."""
    held_out = min(10_000, len(x) // 6)
    arguments = {"batch_size": workload.batch_size, "validation_data": (x[:held_out], y[:held_out]), "verbose": 0}
    seconds: list[float] = []
    for epochs in (1, 100, 100, 100):
        keras.utils.set_random_seed(SEED)
        model = workload.build()
        began = time.perf_counter()
        # Without a callback: one of the user's own may look at the weights, which are in their variables for it then.
        history = fit(model, x, y, epochs=epochs, engine="native", **arguments).history
        seconds.append(time.perf_counter() - began)
    whole = statistics.median(seconds[1:])
    note = f"{whole:.3f} s for 100 epochs, each validated on {held_out:,} rows"
    return MeasuredWay("100 epochs, native, exact", whole / (100 * steps) * 1e6, None, float(history["loss"][-1]), note)


def _kernels_alone(x: Any, y: Any, batch_size: int, steps: int, epochs: int) -> MeasuredWay:
    """The kernels without Keras around them: no callbacks, and no state copied between epochs."""
    keras.utils.set_random_seed(SEED)
    program = lower(WORKLOADS["seed"].build(), batch_size=batch_size)
    began = time.perf_counter()
    program.run(x, y)
    until_first = time.perf_counter() - began
    session, random = program.load(), np.random.default_rng(SEED)

    def train_epoch() -> None:
        session.set_order(random.permutation(len(x)))
        session.advance("train", 0, steps, len(x))

    return MeasuredWay("a kernel a stage, alone", _us_per_step(train_epoch, steps, epochs), until_first, None)


def _one_kernel_alone(
    precision: Precision, data: str, x: Any, y: Any, batch_size: int, steps: int, epochs: int
) -> MeasuredWay:
    """The fused kernel from its launch to its end; `data` is "float32", or "pixels" with a Rescaling in the model."""
    way = f"one kernel alone, {precision}, {data}"
    keras.utils.set_random_seed(SEED)
    model = WORKLOADS["seed"].build()
    if data == "pixels":
        model = keras.Sequential([keras.Input(model.input_shape[1:]), keras.layers.Rescaling(1 / 255), *model.layers])
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        x = np.round(np.asarray(x) * 255).astype("uint8")
    began = time.perf_counter()
    program: KernelProgram = lower(model, batch_size=batch_size)
    if data == "pixels":
        program = staged_program(model, "train", batch_size, "uint8", str(np.asarray(y).dtype), False)
    session = Session(program, make_launcher(default_launcher()), precision)
    session.bind(x, y)
    session.run("train", 0, steps, len(x))
    until_first = time.perf_counter() - began
    runner = session.fused
    if runner is None:
        return MeasuredWay(way, None, None, None, str(session.form))
    session.launcher.synchronize()

    def train_epoch() -> None:
        runner.launch_steps()
        session.launcher.synchronize()

    return MeasuredWay(way, _us_per_step(train_epoch, steps, epochs), until_first, None, runner.plan.title)


def _us_per_step(train_epoch: Callable[[], None], steps: int, epochs: int) -> float:
    return statistics.median(seconds_of(train_epoch) for _ in range(max(3, epochs))) / steps * 1e6


def as_json(lines: list[MeasuredWay], steps: int | None) -> dict[str, Any]:
    """What `--json` writes."""
    about = {"format": 1, "workload": "native", "backend": keras.config.backend(), "device": device().name}
    return {**about, "steps": steps, "results": [asdict(line) for line in lines]}


def print_lines(console: Any, lines: list[MeasuredWay]) -> None:
    """One line for each way."""
    console.print(f"{'':<34}{'us/step':>10}{'1st epoch':>12}{'end loss':>11}", highlight=False)
    for line in lines:
        time_of_step = "" if line.us_per_step is None else f"{line.us_per_step:,.2f}"
        first = "" if line.first_epoch_seconds is None else f"{line.first_epoch_seconds:.2f} s"
        loss = "" if line.loss is None else f"{line.loss:.5f}"
        text = f"{line.way:<34}{time_of_step:>10}{first:>12}{loss:>11}  {line.note}".rstrip()
        console.print(text, highlight=False, markup=False)
