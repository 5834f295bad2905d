"""The torch engine: the model's step, captured once as ATen operations and replayed without Keras' Python."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import torch
from keras.src import tree
from keras.src.trainers.data_adapters import array_slicing

from flatout.base.errors import Reason, reason
from flatout.base.group import joined
from flatout.data.device.sinks import DeviceMemory, nothing_to_wait_for
from flatout.data.stream.sender import Landing
from flatout.engines.contract import (
    Engine,
    OwnStream,
    StepProgram,
    Structure,
    Task,
    company,
    is_on_gpu,
    steps_per_piece,
)
from flatout.engines.kept_functions import Functions
from flatout.engines.torch.capture.captured_step import STEP_NAMES, CapturedStep, capture, leaves_of
from flatout.engines.torch.capture.read_guards import ReadGuards
from flatout.engines.torch.capture.recorder import CaptureFailed, FirstStepDiffers
from flatout.engines.torch.capture.surroundings import cudnn_with, generator_state, set_generator_state
from flatout.engines.torch.replay.cuda_graph import CudaGraphLoop
from flatout.engines.torch.replay.step_loop import EagerLoop, Loop, ReplayLoop, Rows
from flatout.seam.torch_backend import convert_to_tensor, get_device, to_torch_dtype

from .sink import TorchSink

# Captures of one step that are kept, for states of the user's Python between which a script may go to and fro.
_MOST_STATES = 4
# A step that its Python state lets replay less often than this is not worth its capture, which takes about six steps.
_FEWEST_REPLAYS = 12
_MOST_SHORT_LIVED = 3
# A step that is recorded more often than this is not compiled: it will be another one when the compiler is done.
_MOST_COMPILED = 2
# More launches of a graph than a stream takes at once would keep the host from those of other models.
_STEPS_OF_A_TURN = 128
# A trial runs on the model's own variables and puts back random generators that all threads share.
_ONE_CAPTURE = threading.RLock()


class TorchProgram(StepProgram):
    """A loop for each layout of rows, made again when a user's callback has changed what the model's Python reads.

    Stock Keras runs that Python at every step, so a change takes effect at the next one.

    Attributes:
        loop: The one for the rows that are held.
    """

    engine = "torch"

    def __init__(
        self, model: Any, task: Task, data: Structure, rows: int, batch_size: int, any_length: bool, output_bytes: int
    ) -> None:
        self._model, self._task, self._output_bytes = model, task, output_bytes
        self._loops: dict[Any, Loop] = {}
        self._told: tuple[Reason, ...] = ()
        self._to_come = 0
        self._order: Any = None
        # Steps since the last capture, and how many captures in a row did not live for enough of them.
        self._replayed = self._short_lived = 0
        self._recordings = 1
        self._has_begun = False
        # Whether the model's Python was just looked at, which takes a millisecond where there are many layers.
        self._is_fresh = False
        self._has_company = company().models > 1
        self._hold(data, rows, batch_size)

    def _hold(self, data: Structure, rows: int, batch_size: int) -> None:
        leaves = leaves_of(data)
        layout = (rows, batch_size, *((leaf.shape, leaf.dtype) for leaf in leaves))
        for leaf in leaves:
            if leaf.is_cuda:
                # It may come from another stream, to which its memory must not go back too early.
                leaf.record_stream(torch.cuda.current_stream(leaf.device))
        if layout in self._loops:
            self._loops[layout].replace(data)
        else:
            self._loops[layout] = self._loop(Rows(data, rows, batch_size))
        self.loop = self._loops[layout]
        self._held = (data, rows, batch_size)
        self.unit = self.loop.unit

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return tuple(dict.fromkeys((*self._told, *(why for loop in self._loops.values() for why in loop.reasons))))

    def expect(self, steps: int) -> None:
        # What compiling one model's step behind the run gains, it would take from those beside it. And whoever wants
        # the same bits again cannot have a step exchanged when a compiler is done.
        wants_same_bits = torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic
        self._to_come = 0 if self._has_company or wants_same_bits else steps

    @property
    def longest(self) -> int | None:
        if self._task != "predict":
            return _STEPS_OF_A_TURN if self._has_company and self.runs_beside_others else None
        group, size = self._model.steps_per_execution, self.loop.output_size
        # Outputs that nobody has seen yet are looked at first.
        return group if size is None else steps_per_piece(size, self._output_bytes, group)

    @property
    def runs_beside_others(self) -> bool:
        return self.loop.runs_beside_others

    def renew(self) -> None:
        self._is_fresh = True
        if not self.loop.holds():
            self._recordings += 1
            if self._recordings > _MOST_COMPILED:
                self._to_come = 0
            self._short_lived = self._short_lived + 1 if self._replayed < _FEWEST_REPLAYS else 0
            self._replayed = 0
            self._make_loop()

    def _make_loop(self) -> None:
        self._told = self.reasons
        self._loops.clear()
        self._hold(*self._held)
        self.loop.begin_pass(self._order)

    def replace(self, data: Structure, rows: int, batch_size: int, filled: int | None = None) -> None:
        before = self.loop
        self._hold(data, rows, batch_size)
        if self.loop is not before:
            # What was looked at is what the other one's Python reads.
            self._is_fresh = False
        if self.loop is not before or self._order is not None:
            self.begin_pass(None)

    def begin_pass(self, order: np.ndarray | None) -> None:
        self._order = order
        self.loop.begin_pass(order)
        # Metrics may have been reset, and the user's test_step may have run.
        self.look()

    def look(self) -> None:
        if not self._is_fresh:
            self.renew()

    def run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        self._is_fresh = False
        self._replayed += stop - start
        self.loop.steps_to_come = self._to_come
        self._to_come = max(0, self._to_come - (stop - start))
        was_begun, self._has_begun = self._has_begun, True
        if was_begun or not self.loop.is_for_one_step:
            return self.loop.run(start, stop, every_step)
        results = self.loop.run(start, start + 1, every_step)
        self._make_loop()
        self._told = ()
        if start + 1 == stop:
            return results
        rest = self.loop.run(start + 1, stop, every_step)
        return [*results, *rest] if every_step else rest

    def _loop(self, rows: Rows) -> Loop:
        if self._short_lived < _MOST_SHORT_LIVED:
            return _loop(self._model, self._task, rows)
        why = reason("side_effects", STEP_NAMES[self._task], "what its Python reads changes every few steps")
        return EagerLoop(self._model, self._task, rows, reasons=(why,))


def _loop(model: Any, task: Task, rows: Rows) -> Loop:
    """A step that cannot be captured is called as it is, in an `EagerLoop` whose `reasons` say why."""
    if joined() is not None:
        return EagerLoop(model, task, rows, reasons=(reason("in_group"),))
    whole, rest = divmod(rows.rows, rows.batch_size)
    try:
        full = _captured(model, task, [rows.batch(i) for i in {0, whole - 1}]) if whole else None
        last = _captured(model, task, [rows.batch(whole)], full) if rest else None
    except CaptureFailed as failure:
        loop = EagerLoop(model, task, rows, reasons=(failure.reason,))
        loop.is_for_one_step = isinstance(failure, FirstStepDiffers)
        return loop
    if rows.leaves[0].device.type != "cuda":
        return ReplayLoop(model, task, rows, full, last)
    try:
        return CudaGraphLoop(model, task, rows, full, last)
    except CaptureFailed as failure:
        return ReplayLoop(model, task, rows, full, last, (failure.reason,))


def _captured(model: Any, task: Task, batches: list[Structure], other: CapturedStep | None = None) -> CapturedStep:
    """Capture a step, or take it from an earlier call with the same model, compile arguments and shapes."""
    if not all(layer.built for layer in model._flatten_layers()):
        raise FirstStepDiffers(reason("untraceable", STEP_NAMES[task], "the model is built by its first step"))
    shapes = tuple((tuple(leaf.shape), leaf.dtype, leaf.device) for leaf in leaves_of(batches[0]))
    structure = repr(tree.map_structure(lambda _: 0, batches[0]))
    kept: list[tuple[ReadGuards, CapturedStep | Reason]] = Functions(model, task).get((shapes, structure), list)
    found = next((made for reads, made in kept if reads.hold()), None)
    if found is None:
        # A recording is verified by its replay; cuDNN's fastest kernels do not give the same result twice.
        with _ONE_CAPTURE, cudnn_with("deterministic"):
            reads, found = capture(model, task, batches, other)
        kept[:] = [(reads, found), *kept[: _MOST_STATES - 1]]
    if isinstance(found, Reason):
        raise CaptureFailed(found)
    return found


class TorchEngine(Engine):
    """Runs the steps of models on Keras' torch backend."""

    name = "torch"
    program = TorchProgram
    make_sink = TorchSink
    generator_state = staticmethod(generator_state)
    set_generator_state = staticmethod(set_generator_state)

    @property
    def processes(self) -> int:
        return torch.cuda.device_count() or 1

    def begin_epoch(self, model: Any, task: Task) -> None:
        model.train(task == "train")

    def end_epoch(self, model: Any, task: Task) -> None:
        model.eval()

    def place(self, inputs: Structure) -> Structure:
        def convert(sliceable: Any) -> torch.Tensor:
            rows = sliceable.convert_to_torch_compatible(sliceable[0 : sliceable.array.shape[0]])
            if self.reuses_memory and isinstance(rows, np.ndarray) and rows.flags.writeable:
                # Keras would copy it on the host first. torch warns of arrays that it must not write to.
                rows = _as_tensor(rows)
            return convert_to_tensor(rows)

        def native(leaf: Any) -> Any:
            # Keras would take an array of another library through the host.
            return torch.from_dlpack(leaf) if is_on_gpu(leaf) and not isinstance(leaf, torch.Tensor) else leaf

        with torch.no_grad():
            inputs = tree.map_structure(native, inputs)
            sliceables = array_slicing.convert_to_sliceable(inputs, target_backend="torch")
            return tree.map_structure(convert, sliceables, none_is_leaf=False)

    @property
    def reuses_memory(self) -> bool:
        return str(get_device()).startswith("cuda")

    def send(self, arrays: Structure) -> Structure:
        """On a GPU by a stream of its own, so that copies from pinned memory run beside the steps."""
        if not self.reuses_memory:
            return tree.map_structure(_as_tensor, arrays, none_is_leaf=False)
        device = torch.device(get_device())

        def copy(array: np.ndarray) -> torch.Tensor:
            return _as_tensor(array).to(device, non_blocking=True)

        stream = _stream_of_copies(device)
        with torch.no_grad(), torch.cuda.stream(stream):
            placed = tree.map_structure(copy, arrays, none_is_leaf=False)
        stream.synchronize()
        return placed

    @property
    def landing(self) -> Landing | None:
        device = torch.device(get_device())
        return _Landing(device) if device.type == "cuda" and not device.index else None

    def mark(self, values: list[Any]) -> Callable[[], object]:
        """An event: reading the values would wait for all that the stream has to do."""
        if not self.reuses_memory:
            return nothing_to_wait_for
        event = torch.cuda.Event(blocking=True)
        event.record(torch.cuda.current_stream(torch.device(get_device())))
        return event.synchronize

    def stream_of_its_own(self) -> OwnStream:
        return _TorchStream() if self.reuses_memory else super().stream_of_its_own()

    def free_memory(self) -> int | None:
        return torch.cuda.mem_get_info()[0] if self.reuses_memory else super().free_memory()


def _as_tensor(array: np.ndarray) -> torch.Tensor:
    """Keras' `convert_to_tensor` to the CPU, without its copy where the dtype stays as it is."""
    if _is_kept(array.dtype):
        return torch.as_tensor(array)
    with keras.device("cpu"):
        return convert_to_tensor(array)


@functools.cache
def _is_kept(dtype: np.dtype[Any]) -> bool:
    """Whether Keras leaves arrays of this dtype as they are."""
    empty = np.empty(0, dtype)
    with keras.device("cpu"):
        return dtype.kind in "biuf" and bool(torch.as_tensor(empty).dtype == convert_to_tensor(empty).dtype)


@functools.cache
def _stream_of_copies(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class _TorchStream(OwnStream):
    """A stream that begins after all that torch was given so far."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream(torch.device(get_device()))
        self._stream.wait_stream(torch.cuda.current_stream())
        self._entered: list[Any] = []

    def __enter__(self) -> None:
        self._entered.append(torch.cuda.stream(self._stream))
        self._entered[-1].__enter__()

    def __exit__(self, *_: object) -> None:
        self._entered.pop().__exit__(None, None, None)

    def join(self) -> None:
        torch.cuda.current_stream().wait_stream(self._stream)


class _Landing:
    """Memory that torch's allocator gives to the stream of copies: nothing that is under way there uses it."""

    def __init__(self, device: torch.device):
        self._device = device

    def takes(self, dtype: np.dtype[Any]) -> bool:
        return _is_kept(dtype)

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[torch.Tensor, DeviceMemory]:
        with torch.no_grad(), torch.cuda.stream(_stream_of_copies(self._device)):
            tensor = torch.empty(shape, dtype=to_torch_dtype(dtype.name), device=self._device)
        return tensor, DeviceMemory(tensor.data_ptr(), tensor.nbytes)

    def give_back(self, array: torch.Tensor) -> None:
        """Torch's allocator knows when it is no longer used."""
