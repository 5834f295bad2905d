"""Diagnoses to show: a realistic one with every section, and one whose every string is an attack."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from flatout.doctor.diagnosis import Diagnosis
from flatout.doctor.diagnosis_facts import (
    Change,
    Gain,
    HotLine,
    Interval,
    Memory,
    Part,
    Span,
    Variant,
)

_LONG = "n" * 2000
HOSTILE = (
    "<script>alert(1)</script> \"><img src=x onerror=alert(2)> ' onload='alert(3) & &lt; </style></title></svg>-->"
    "\n[bold]x[/] [/] [link=http://example.com]y[/link] 日本語の名前 مرحبا بالعالم "
    f"\x1b[31mred\x07 \u202egnp.exe \udcff {_LONG}"
)
_BEFORE = """class SlowWindows(keras.utils.PyDataset):
    def __getitem__(self, index):
        rows = range(index * 32, (index + 1) * 32)
        return np.stack([self.series[row : row + 64] for row in rows]), np.stack([self.target[row] for row in rows])
"""
_AFTER = """windows = np.lib.stride_tricks.sliding_window_view(series, 64)
model.fit(windows, target, batch_size=32)
"""


def diagnosis(**changes: Any) -> Diagnosis:
    """A fit that waits for its input, with everything that a diagnosis can say."""
    return replace(_FULL, **changes)


def filled(text: str) -> Diagnosis:
    """The same with `text` in the place of every string."""
    return _filled(_FULL, text)


def hostile() -> Diagnosis:
    """The same with markup, quotes, very long words, other scripts, controls and newlines in every string."""
    return filled(HOSTILE)


def bare() -> Diagnosis:
    """No more than a verdict and a step."""
    return Diagnosis("not separable", "Noise hides every part of the step.", {}, Interval.of([0.0004]), (), (), (), ())


def _filled(value: Any, text: str) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _filled(getattr(value, one.name), text) for one in fields(value)})
    if isinstance(value, tuple):
        return tuple(_filled(one, text) for one in value)
    if isinstance(value, dict):
        return {text: text}
    return text if isinstance(value, str) else value


def _timeline() -> tuple[Span, ...]:
    found: list[Span] = []
    for step in range(5):
        start = step * 0.0412
        found += [
            Span("input", f"batch {step}", start, 0.0268 + 0.001 * (step % 3)),
            Span("transfer", f"copy {step}", start + 0.029, 0.0016),
            Span("launch", f"launch {step}", start + 0.0306, 0.0009),
            Span("compute", f"step {step}", start + 0.0315, 0.0061),
            Span("callbacks", "on_train_batch_end", start + 0.0377, 0.0034),
        ]
    return tuple(found)


def _ms(low: float, mid: float, high: float) -> Interval:
    return Interval(low / 1e3, mid / 1e3, high / 1e3)


_FULL = Diagnosis(
    kind="input-bound",
    verdict="Training waits for its input: 66 % of a step goes into SlowWindows.__getitem__, which stacks windows "
    "row by row.",
    facts={
        "script": "examples/forecast/train.py",
        "model": "Sequential, 1,204,737 parameters",
        "backend": "jax 0.10.1, Keras 3.12.0",
        "device": "NVIDIA H200",
        "batch size": "32",
        "steps an epoch": "1,250",
        "epochs": "20",
    },
    step=_ms(39.8, 41.2, 43.0),
    parts=(
        Part("input", "Input: the next batch", _ms(26.1, 27.4, 28.9), 0.664),
        Part("callbacks", "Callbacks", _ms(3.1, 3.4, 3.9), 0.082),
        Part("loss", "Loss and its gradient", _ms(1.2, 1.5, 1.7), 0.036),
        Part("metrics", "Metrics", _ms(-0.1, 0.05, 0.3), 0.0, is_separable=False),
        Part("host", "Keras’ own Python", _ms(0.9, 1.1, 1.2), 0.026),
        Part("launch", "Launching kernels", _ms(0.7, 0.9, 1.0), 0.022),
        Part("compute", "Compute on the device", _ms(5.0, 5.3, 5.5), 0.129),
        Part("transfer", "Copying to the device", _ms(1.5, 1.6, 1.8), 0.039),
    ),
    epoch=(
        Part("steps", "Steps", Interval(49.8, 51.5, 53.8), 0.79),
        Part("validation", "Validation", Interval(8.9, 9.2, 9.8), 0.14),
        Part("compile", "Compiling, once", Interval(4.4, 4.6, 4.7), 0.07),
    ),
    variants=(
        Variant("stock", "Stock Keras", _ms(39.8, 41.2, 43.0)),
        Variant("no-input", "The same batch again", _ms(13.4, 13.8, 14.1)),
        Variant("no-callbacks", "Without callbacks", _ms(36.9, 37.8, 38.8)),
        Variant("flatout", "On flatout", _ms(0.61, 0.64, 0.7)),
    ),
    findings=(
        Change(
            "FO901",
            "A PyDataset makes every batch in Python",
            "`SlowWindows.__getitem__` took 27.4 ms of a step of 41.2 ms; its workers share one core with training.",
            "Give `fit` the array of windows; it is a view and takes no memory.",
            "examples/forecast/train.py",
            42,
            _BEFORE,
            _AFTER,
            Gain(3.1, 2.8, 3.4, True),
        ),
        Change(
            "FO911",
            "A callback reads the logs after every batch",
            "`LossPrinter.on_train_batch_end` turned the loss into a float, which waits for the device.",
            "Read the loss in `on_epoch_end`, or print each hundredth batch.",
            "examples/forecast/callbacks.py",
            17,
            "def on_train_batch_end(self, batch, logs=None):\n    print(float(logs['loss']))\n",
            "def on_epoch_end(self, epoch, logs=None):\n    print(float(logs['loss']))\n",
            Gain(1.09, 1.05, 1.12, True),
        ),
        Change(
            "FO921",
            "Steps are launched one by one",
            "The device idled 2.0 ms of each step between launches.",
            "Run the script by `python -m flatout`: it runs whole epochs as one program.",
            gain=Gain(3.0, 1.0, 3.0, False),
            is_automatic=True,
        ),
    ),
    hot_lines=(
        HotLine("input", "examples/forecast/train.py", 45, "SlowWindows.__getitem__", _BEFORE.splitlines()[3], 0.71),
        HotLine("input", "examples/forecast/train.py", 44, "SlowWindows.__getitem__", _BEFORE.splitlines()[2], 0.12),
        HotLine(
            "callbacks",
            "examples/forecast/callbacks.py",
            18,
            "LossPrinter.on_train_batch_end",
            "        print(float(logs['loss']))",
            0.93,
        ),
    ),
    timeline=_timeline(),
    memory=(
        Memory("Most that was used on the device", 1_904_000_000),
        Memory("Training data", 655_360_000),
        Memory("Weights and the optimizer’s state", 14_456_844),
    ),
    plan=(
        "The data go to the device once, 655 MB.",
        "An epoch is one program; the callback is called with values of the whole epoch.",
    ),
    unchecked=(
        "Several GPUs: this machine has one.",
        "Kernels of the step: the profiler of jax is not there.",
    ),
    seconds=18.6,
)
