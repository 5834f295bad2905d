"""What a call costs with stock Keras and with an engine, in seconds, estimated before anything is compiled.

A step of stock Keras costs its Python beside what the device computes, and all of it where Keras leaves a model
uncompiled. Both sides trace and compile before their first step: nothing where they have done so in this process, and
less where a cache on disk has the program. `benchmarks/break_even.py` measures what the rates are taken from.
"""

from __future__ import annotations

from typing import NamedTuple


class Side(NamedTuple):
    """What stock Keras, or an engine, has behind it for the step of a model."""

    # It has compiled the step in this process, or a cache on disk has the program.
    is_ready: bool = False
    is_on_disk: bool = False
    # How many it needs: for a full batch, a smaller last one, chunks of another length.
    programs: int = 1
    # The compiled step reads its batches itself.
    reads_data: bool = False


class Costs(NamedTuple):
    """Seconds: what the engine saves in each step, and what either side takes before its first one."""

    saved_by_step: float
    stock_start: float
    own_start: float

    @property
    def more_to_start(self) -> float:
        return self.own_start - self.stock_start

    def __str__(self) -> str:
        return f"about {1e3 * self.saved_by_step:.1f} ms saved in a step, {self.more_to_start:.2f} s more to start"

    def saved_by(self, steps: int) -> float:
        """By how much the engine is faster over so many steps; negative if it is slower."""
        return steps * self.saved_by_step - self.more_to_start


class _Line(NamedTuple):
    """Seconds that grow with the number of layers."""

    always: float = 0.0
    each_layer: float = 0.0

    def at(self, layers: int) -> float:
        return self.always + self.each_layer * layers


class _Rates(NamedTuple):
    # What stock Keras does in a step and a loop of steps does not.
    step: _Line
    # What stock Keras does once to a step: run its Python symbolically, and have it compiled.
    tracing: _Line = _Line()
    compiling: _Line = _Line()
    # How many times that a loop takes.
    looped: float = 1.0
    # Recording a step that stock Keras never traces.
    recording: _Line = _Line()

    def start(self, layers: int, side: Side) -> float:
        """What compiling a step takes."""
        return side.programs * (self.tracing.at(layers) + (0.0 if side.is_on_disk else self.compiling.at(layers)))


# By backend, and whether the device is a GPU. On two cores; on an H200.
_RATES = {
    ("jax", False): _Rates(_Line(4e-4, 0.0), _Line(0.06, 0.015), _Line(0.45, 0.025), looped=1.5),
    ("jax", True): _Rates(_Line(9e-4, 2e-5), _Line(0.06, 0.015), _Line(0.1, 0.1), looped=1.5),
    ("tensorflow", False): _Rates(_Line(1.6e-3, 0.0), _Line(0.02, 0.02), looped=2.0),
    ("tensorflow", True): _Rates(_Line(2e-3, 0.0), _Line(0.02, 0.02), _Line(0.1, 0.1), looped=2.0),
    ("torch", False): _Rates(_Line(7e-4, 4e-4), recording=_Line(0.04, 0.02)),
    ("torch", True): _Rates(_Line(2e-3, 1e-3), recording=_Line(0.35, 0.08)),
}
# Operation by operation: 12 steps of a mixer of about 30 layers took 59 s, most of it to compile single operations.
_UNCOMPILED_STEP = _Line(0.0, 2e-3)
_UNCOMPILED_START = 2.0
# One kernel for all steps, in the place of the backend's engine: what it saves in each, and what compiling it takes.
_ONE_KERNEL_STEP = {"jax": 2.8e-5, "torch": 2.1e-4}
_ONE_KERNEL_START = _Line(0.2, 0.2)
# A step that trains has a backward pass and an optimizer.
_SHARE_WITHOUT_TRAINING = 0.4


def estimate(
    backend: str, on_gpu: bool, trains: bool, layers: int, is_uncompiled: bool, stock: Side, own: Side
) -> Costs:
    """Estimate both sides of a call; `is_uncompiled` if stock Keras runs the model operation by operation."""
    rates = _RATES[backend, on_gpu]
    share = 1.0 if trains else _SHARE_WITHOUT_TRAINING
    stock_start = 0.0 if stock.is_ready else share * rates.start(layers, stock)
    own_start = 0.0 if own.is_ready else share * (rates.looped * rates.start(layers, own) + rates.recording.at(layers))
    saved = share * rates.step.at(layers) if backend == "torch" else rates.step.at(layers)
    if stock.reads_data:
        # As fast as ours on two cores: 2.5 ms against 2.2 for a small network, 4.1 against 4.6 for a convolutional one.
        saved = 0.0
    if is_uncompiled:
        saved += share * _UNCOMPILED_STEP.at(layers)
        stock_start *= _UNCOMPILED_START * rates.looped
    return Costs(saved, stock_start, own_start)


def one_kernel_saves(backend: str, steps: int, layers: int, costs: Costs, is_on_disk: bool) -> float:
    """Seconds that a single native kernel saves over the engine of the backend, whose program is not needed then."""
    start = _ONE_KERNEL_START.always if is_on_disk else _ONE_KERNEL_START.at(layers)
    return steps * _ONE_KERNEL_STEP.get(backend, 0.0) + costs.own_start - start
