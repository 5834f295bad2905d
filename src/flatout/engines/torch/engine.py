"""The torch engine: the model's step, captured once as ATen operations and replayed without Keras' Python."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import torch
from keras.src import tree
from keras.src.backend.torch.core import convert_to_tensor, get_device, to_torch_dtype
from keras.src.trainers.data_adapters import array_slicing

from flatout.base.errors import Reason, reason
from flatout.data.device.sinks import DeviceMemory, MakeSink, nothing_to_wait_for
from flatout.data.stream.sender import Landing
from flatout.engines.contract import OUTPUT_BYTES_PER_CHUNK, StepProgram, Structure, Task, is_on_gpu, steps_per_piece
from flatout.engines.torch.capture.captured_step import STEP_NAMES, CapturedStep, capture, leaves_of
from flatout.engines.torch.capture.recorder import CaptureFailed
from flatout.engines.torch.capture.surroundings import fingerprint, settings
from flatout.engines.torch.replay.cuda_graph import CudaGraphLoop
from flatout.engines.torch.replay.step_loop import EagerLoop, Loop, ReplayLoop, Rows

from .sink import TorchSink

_MOST_STEPS_PER_MODEL = 8


class TorchEngine:
    """Runs the steps of models on Keras' torch backend."""

    name = "torch"
    chunk_stretch = 8
    finalizes_after_errors = False
    peeks_to_build = True

    def begin_epoch(self, model: Any, task: Task) -> None:
        model.train(task == "train")

    def end_epoch(self, model: Any, task: Task) -> None:
        model.eval()

    def end_run(self, model: Any) -> None:
        pass

    def reset_metrics(self, model: Any) -> None:
        model.reset_metrics()

    def epoch_logs(self, model: Any, logs: Any) -> dict[str, Any]:
        return dict(model._get_metrics_result_or_logs(logs))

    def generator_state(self) -> list[torch.Tensor]:
        """The default generators, from which Dropout without a seed draws."""
        states = [torch.get_rng_state()]
        return [*states, torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else states

    def set_generator_state(self, state: list[torch.Tensor]) -> None:
        torch.set_rng_state(state[0])
        if len(state) > 1:
            torch.cuda.set_rng_state(state[1])

    def place(self, inputs: Structure) -> Structure:
        """Put whole arrays on Keras' device, converted as Keras' DataLoader converts each batch of them."""

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

    def sink(self, dtype: str) -> MakeSink:
        return functools.partial(TorchSink, cast_to=dtype)

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

    def free_memory(self) -> int | None:
        """Bytes free on Keras' device."""
        if str(get_device()).startswith("cuda"):
            return torch.cuda.mem_get_info()[0]
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):
            return None

    def prepare(
        self,
        model: Any,
        task: Task,
        data: Structure,
        rows: int,
        batch_size: int,
        any_length: bool = False,
        output_bytes: int = OUTPUT_BYTES_PER_CHUNK,
    ) -> StepProgram:
        """Capture the step for whole batches and for the smaller last one."""
        make = functools.partial(self._loop, model, task)
        return TorchProgram(model, make, data, rows, batch_size, output_bytes if task == "predict" else None)

    def _loop(self, model: Any, task: Task, data: Structure, rows: int, batch_size: int) -> Loop:
        """A step that cannot be captured is called as it is, in an `EagerLoop` whose `reasons` say why."""
        placed = Rows(data, rows, batch_size)
        placed.begin_pass(None)
        whole, rest = divmod(rows, batch_size)
        try:
            full = _captured(model, task, [placed.batch(i) for i in {0, whole - 1}]) if whole else None
            last = _captured(model, task, [placed.batch(whole)]) if rest else None
        except CaptureFailed as failure:
            return EagerLoop(model, task, placed, failure.reason)
        if placed.leaves[0].device.type != "cuda":
            return ReplayLoop(model, task, placed, full, last)
        try:
            return CudaGraphLoop(model, task, placed, full, last)
        except CaptureFailed as failure:
            return ReplayLoop(model, task, placed, full, last, (failure.reason,))


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


class TorchProgram:
    """A loop for each layout of rows, made again when a user's callback has changed what the model's Python reads.

    Stock Keras runs that Python at every step, so a change takes effect at the next one.

    Attributes:
        loop: The one for the rows that are held.
    """

    engine = "torch"

    def __init__(
        self,
        model: Any,
        make: Callable[..., Loop],
        data: Structure,
        rows: int,
        batch_size: int,
        output_bytes: int | None,
    ) -> None:
        self._model, self._make, self._output_bytes = model, make, output_bytes
        self._loops: dict[Any, Loop] = {}
        self._order: Any = None
        self._settings = settings(model)
        self.reasons: tuple[Reason, ...] = ()
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
            self._loops[layout] = self._make(data, rows, batch_size)
            self._settings = settings(self._model)
        self.loop = self._loops[layout]
        self._held = (data, rows, batch_size)
        self.unit, self.pays = self.loop.unit, self.loop.pays
        self.reasons = tuple(dict.fromkeys((*self.reasons, *self.loop.reasons)))

    @property
    def longest(self) -> int | None:
        if self._output_bytes is None:
            return None
        group, size = self._model.steps_per_execution, self.loop.output_size
        # Outputs that nobody has seen yet are looked at first.
        return group if size is None else steps_per_piece(size, self._output_bytes, group)

    def renew(self, is_first: bool) -> None:
        if settings(self._model) != self._settings:
            self._loops.clear()
            self._hold(*self._held)
            self.loop.begin_pass(self._order)

    def replace(self, data: Structure, rows: int, batch_size: int) -> None:
        before = self.loop
        self._hold(data, rows, batch_size)
        if self.loop is not before or self._order is not None:
            self.begin_pass(None)

    def begin_pass(self, order: np.ndarray | None) -> None:
        self._order = order
        self.loop.begin_pass(order)

    def run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        return self.loop.run(start, stop, every_step)

    def end_pass(self) -> None:
        self.loop.end_pass()


# What was captured for a model lives as long as the model does.
_steps: weakref.WeakKeyDictionary[Any, dict[Any, _Entry]] = weakref.WeakKeyDictionary()


class _Entry:
    """A captured step, or why there is none, and the objects that it was captured with."""

    def __init__(self, owners: list[Any], step: CapturedStep | Reason) -> None:
        self._owners = [weakref.ref(owner) for owner in owners]
        self.step = step

    def is_valid_for(self, owners: list[Any]) -> bool:
        mine = [reference() for reference in self._owners]
        return len(mine) == len(owners) and all(a is b for a, b in zip(mine, owners, strict=True))


@contextmanager
def _repeatable_kernels() -> Iterator[None]:
    """A recording is verified by its replay; cuDNN's fastest kernels do not give the same result twice."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


def _captured(model: Any, task: Task, batches: list[Structure]) -> CapturedStep:
    """Capture a step, or take it from an earlier call with the same model, compile arguments and shapes."""
    if not all(layer.built for layer in model._flatten_layers()):
        raise CaptureFailed(reason("untraceable", STEP_NAMES[task], "the model is built by its first step"))
    names = ("optimizer", "_compile_loss", "_compile_metrics", "_loss_tracker")
    owners = [owner for owner in (getattr(model, name, None) for name in names) if owner is not None]
    shapes = tuple((tuple(leaf.shape), leaf.dtype, leaf.device) for leaf in leaves_of(batches[0]))
    structure = repr(tree.map_structure(lambda _: 0, batches[0]))
    key = (task, shapes, structure, getattr(type(model), STEP_NAMES[task]), fingerprint(model))
    entries = _steps.setdefault(model, {})
    for old in [k for k, entry in entries.items() if not entry.is_valid_for(owners)]:
        del entries[old]
    if key not in entries:
        try:
            with _repeatable_kernels():
                step: CapturedStep | Reason = capture(model, task, batches)
        except CaptureFailed as failure:
            step = failure.reason
        if len(entries) >= _MOST_STEPS_PER_MODEL:
            del entries[next(iter(entries))]
        # A first step may set attributes once; the key must describe the model as later calls find it.
        entries[(*key[:-1], fingerprint(model))] = _Entry(owners, step)
        found = step
    else:
        found = entries[key].step
    if isinstance(found, Reason):
        raise CaptureFailed(found)
    return found
