"""The captured step as a CUDA graph: the rows are gathered on the device, and the host only says "again".

A device counter holds the number of the step; it selects a row of the order matrix, which selects the batch.
"""

from __future__ import annotations

import functools
import math
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from flatout.base.errors import Reason, reason
from flatout.engines.contract import Structure, Task, in_short
from flatout.engines.torch.capture.captured_step import STEP_NAMES, CapturedStep, leaves_of
from flatout.engines.torch.capture.recordable_keras import Reseed
from flatout.engines.torch.capture.recorder import CaptureFailed, Undo
from flatout.engines.torch.capture.surroundings import cudnn_with, no_collection
from flatout.engines.torch.compiled.exchange import Exchange
from flatout.engines.torch.compiled.same_effect import difference, off_in_last_bits
from flatout.engines.torch.graph.codegen import compile_graph
from flatout.engines.torch.graph.step_graph import Graph, is_random

from .device_clock import DeviceClock
from .graph_outputs import GraphOutputs
from .host_seeds import HostSeeds
from .step_loop import Loop, Rows
from .tuned import in_tuned_thread

_WARM_UP_STEPS = 3
# Several steps in one graph save the gaps between launches.
_STEPS_PER_LAUNCH = 8
_MOST_OPERATIONS_PER_LAUNCH = 4000
# Of all that a step changes, while a compiled one is compared with the recorded one.
_COPIES = 7
# Of each of two launches, before one takes the other's place.
_TRIALS = 5
# Seconds of the run that must be left for cuDNN to try its kernels: 4 for all convolutions of ResNet-20 (H200).
_WORTH_TUNING = 30.0

# Calls a function, in this thread or another.
_Tried = Callable[[Callable[[], Any]], Any]


def _here(work: Callable[[], Any]) -> Any:
    return work()


# Streams in which graphs were captured that are still there, by their addresses.
_captured_in: set[int] = set()
# Torch has so many, and gives them out in turns.
_STREAMS = 32


def _stream_for_capture(loop: Loop, device: torch.device) -> tuple[torch.cuda.Stream, bool]:
    """A stream, and whether no other loop has captured in it.

    A graph remembers the memory in which cuBLAS worked for that stream: two of one stream must not run at once.
    """
    for _ in range(_STREAMS):
        stream = torch.cuda.Stream(device)
        if stream.cuda_stream not in _captured_in:
            _captured_in.add(stream.cuda_stream)
            weakref.finalize(loop, _captured_in.discard, stream.cuda_stream)
            return stream, True
    return stream, False


class CudaGraphLoop(Loop):
    """Launches CUDA graphs of a captured step.

    Raises:
        CaptureFailed: Something in the step needs the host. Nothing has been changed.
    """

    def __init__(
        self, model: Any, task: Task, rows: Rows, full: CapturedStep | None, last: CapturedStep | None
    ) -> None:
        super().__init__(model, task, rows, full, last)
        self.unit = _STEPS_PER_LAUNCH
        whole, size = self.whole_batches, rows.batch_size
        device = rows.leaves[0].device
        self.stream, self._has_own_stream = _stream_for_capture(self, device)
        self.pool = torch.cuda.graph_pool_handle()
        self.position = position = torch.zeros(1, dtype=torch.int64, device=device)
        self._order = torch.arange(rows.rows, device=device)
        matrix, rest = self._order[: whole * size].view(whole, size), self._order[whole * size :]

        # Not through `self`: memory of the device must not wait for Python's garbage collector.
        def full_batch() -> list[torch.Tensor]:
            index = matrix.index_select(0, position).view(size)
            return [leaf.index_select(0, index) for leaf in rows.leaves]

        def last_batch() -> list[torch.Tensor]:
            return [leaf.index_select(0, rest) for leaf in rows.leaves]

        self._full = _Launches(self, full, full_batch, whole) if full else None
        self._last = _Launches(self, last, last_batch, 1) if last else None
        self._clock = DeviceClock()

    @property
    def runs_beside_others(self) -> bool:
        """Not where graphs draw: what torch has for that on the device is one thing for all streams."""
        draws = any(launches.draws for launches in (self._full, self._last) if launches)
        return self._has_own_stream and not draws

    @property
    def reasons(self) -> tuple[Reason, ...]:
        told = (one.reasons(self._clock.seconds) for one in self._full.exchanges) if self._full else ()
        return (*super().reasons, *(why for reasons in told for why in reasons))

    def replace(self, data: Structure) -> None:
        # The graphs read the rows where they were when they were captured.
        for held, new in zip(self.rows.leaves, leaves_of(data), strict=True):
            held.copy_(new)

    def begin_pass(self, order: np.ndarray | None) -> None:
        if order is None:
            order = np.arange(self.rows.rows)
        self._order.copy_(torch.from_numpy(np.ascontiguousarray(order, dtype=np.int64)))

    def _run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        results: list[Any] = []
        current, step = None, start
        with torch.no_grad():
            self.position.fill_(start)
            self._clock.begin()
            while step < stop:
                launches = self._full if step < self.whole_batches else self._last
                assert launches is not None
                if launches is not current:
                    launches.seeds.load()
                    current = launches
                if launches is self._full and self.steps_to_come and launches.exchanges[every_step].is_due:
                    self._clock.end()
                    launches.look_for_compiled(every_step, self._clock, self.steps_to_come - (step - start))
                first = step
                if every_step or step == stop - 1:
                    results.append(launches.run_one())
                    step += 1
                else:
                    most = min(stop - 1, self.whole_batches) - step if step < self.whole_batches else 1
                    step += launches.run_some(most)
                self._clock.count(step - first)
            self._clock.end()
        return results


class _Launches:
    """The CUDA graphs for one shape of batch: a step with results, and one or several without."""

    def __init__(
        self, loop: CudaGraphLoop, captured: CapturedStep, batch: Callable[[], list[torch.Tensor]], steps: int
    ) -> None:
        self._captured, self._batch = captured, batch
        # Of the steps without results, and with them.
        self.exchanges = Exchange(_without_reseeds(captured.quiet_graph)), Exchange(_without_reseeds(captured.graph))
        # What took the place of these, likewise.
        self._compiled: dict[bool, Graph] = {}
        self._taken = 0
        self._position, self._stream, self._pool = loop.position, loop.stream, loop.pool
        place = STEP_NAMES[loop.task]
        self.seeds = HostSeeds(captured.graph, place)
        self.draws = self.seeds.are_used or any(is_random(one.target) for one in captured.graph.instructions)
        operations = len(captured.quiet_graph.instructions)
        joins = not self.seeds.are_used and steps > _STEPS_PER_LAUNCH
        joins = joins and operations * _STEPS_PER_LAUNCH <= _MOST_OPERATIONS_PER_LAUNCH
        self._steps = _STEPS_PER_LAUNCH if joins else 1
        _check_is_on_device(captured.graph, place)
        with _unchanged(captured.graph), warnings.catch_warnings(action="ignore"):
            try:
                self._warm_up()
                self._one, self._outputs = self._build(captured.graph, 1)
                self._quiet, _ = self._build(captured.quiet_graph, self._steps)
                # Another graph, for the few steps that are left over, would take longer to build than it saves.
                self._single = self._one
            except RuntimeError as error:
                why = reason("untraceable", f"the CUDA graph of {place}", in_short(error))
                raise CaptureFailed(why) from error

    def run_one(self) -> Any:
        """Run a step; its results, in memory of their own."""
        self.seeds.advance()
        self._one.replay()
        self._taken += 1
        return self._captured.pack(self._outputs.copy())

    def run_some(self, most: int) -> int:
        """Run up to `most` steps without results; how many it were."""
        self.seeds.advance()
        if most < self._steps:
            self._single.replay()
            self._taken += 1
            return 1
        self._quiet.replay()
        self._taken += self._steps
        return self._steps

    def look_for_compiled(self, is_loud: bool, clock: DeviceClock, steps_left: int) -> None:
        """Take the compiled step, if it is there and does what the recorded one does; else see to it."""
        if (seconds := clock.seconds) is None:
            return
        exchange = self.exchanges[is_loud]
        if (graph := exchange.compiled(steps_left * seconds)) is None:
            return
        recorded = self._captured.graph if is_loud else self._captured.quiet_graph
        has_time = steps_left * seconds >= _WORTH_TUNING
        now_on = torch.cuda.current_stream(self._stream.device)
        tried = functools.partial(in_tuned_thread, stream=now_on) if has_time else _here
        try:
            with warnings.catch_warnings(action="ignore"):
                if problem := self._difference(recorded, graph, tried):
                    exchange.reject(problem)
                elif problem := self._exchange(is_loud, recorded, graph, tried):
                    exchange.fail(problem)
                else:
                    exchange.succeed(self._taken, seconds)
        except Exception as error:  # Whatever a compiler's code may raise: the recorded step is there.
            exchange.fail(in_short(error))
        # What that took is no step.
        clock.begin()

    def _exchange(self, is_loud: bool, recorded: Graph, compiled: Graph, tried: _Tried) -> str:
        """Launch the compiled step from now on; or why not."""
        with cudnn_with("benchmark"), _unchanged(recorded):
            single, outputs = tried(lambda: self._build(compiled, 1))
            several = single if is_loud else tried(lambda: self._build(compiled, self._steps)[0])
            before, after = self._seconds(self._one if is_loud else self._quiet, several)
        if after > before:
            return f"it is slower, {1e6 * after:,.0f} us instead of {1e6 * before:,.0f} for as many steps"
        # The graphs read memory that it has.
        self._compiled[is_loud] = compiled
        self._single = single
        if is_loud:
            self._one, self._outputs = single, outputs
        else:
            self._quiet = several
        return ""

    def _seconds(self, *launches: torch.cuda.CUDAGraph) -> list[float]:
        """What each takes, at best; the steps are those at the beginning of a pass."""
        best = [math.inf] * len(launches)
        position = self._position.clone()
        for _ in range(_TRIALS):
            for number, launch in enumerate(launches):
                began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                self._position.zero_()
                began.record()
                launch.replay()
                ended.record()
                ended.synchronize()
                best[number] = min(best[number], began.elapsed_time(ended) / 1000)
        self._position.copy_(position)
        return best

    def _difference(self, recorded: Graph, compiled: Graph, tried: _Tried) -> str:
        """How the effects of the compiled step on this batch differ from those of the recorded one."""
        written = recorded.written_storages(*recorded.instructions)
        outside = [value for value in recorded.values if value.kind == "external" and value.storage in written]
        tensors = [value.tensor.detach() for value in outside if value.tensor is not None]
        if torch.cuda.mem_get_info()[0] < _COPIES * sum(tensor.nbytes for tensor in tensors):
            raise MemoryError("too little is free on the device to compare the compiled step with the recorded one")

        def effect(graph: Graph, is_astray: bool = False) -> list[torch.Tensor]:
            step = compile_graph(_without_reseeds(graph), self._captured.calls.of)
            with _unchanged(recorded), self._on_stream():
                if is_astray:
                    for tensor, start in zip(tensors, off, strict=False):
                        tensor.copy_(start)
                outputs = step(*self._batch())
                return [item.clone() for item in (*tensors, *outputs) if isinstance(item, torch.Tensor)]

        wanted = effect(recorded)
        nothing = [torch.zeros_like(output) for output in wanted[len(tensors) :]]
        before = [*(tensor.clone() for tensor in tensors), *nothing]
        off = [*map(off_in_last_bits, tensors), *nothing]
        is_half = any(value.dtype in (torch.float16, torch.bfloat16) for value in recorded.values)
        astray = effect(recorded, is_astray=True)
        # What cuDNN chooses here it finds again in the capture.
        with cudnn_with("benchmark"):
            problem = difference(before, wanted, off, astray, tried(lambda: effect(compiled)), is_half)
            if not problem:
                with _unchanged(recorded):
                    tried(lambda: self._check_compiled_for_waits(compiled))
        return problem

    def _check_compiled_for_waits(self, compiled: Graph) -> None:
        with self._on_stream():
            self._check_for_waits(compiled)

    def _warm_up(self) -> None:
        """Let libraries allocate and choose their kernels; then find out whether a step waits for the device."""
        with self._on_stream():
            for _ in range(_WARM_UP_STEPS):
                self._captured.step(*self._batch())
                self._captured.quiet_step(*self._batch())
            self._check_for_waits(self._captured.graph)

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Compute in the stream of the captures, between what was launched before and what will be."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream), torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
            yield
        torch.cuda.current_stream().wait_stream(self._stream)

    def _check_for_waits(self, graph: Graph) -> None:
        """A capture that fails half-way leaves the default generator unusable: look for waits before."""
        step = compile_graph(_without_reseeds(graph), self._captured.calls.of)
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            step(*self._batch())
        finally:
            torch.cuda.set_sync_debug_mode(mode)

    def _build(self, graph: Graph, steps: int) -> tuple[torch.cuda.CUDAGraph, GraphOutputs]:
        step = compile_graph(_without_reseeds(graph), self._captured.calls.of)
        launch = torch.cuda.CUDAGraph()
        for generator in _generators(graph):
            launch.register_generator_state(generator)
        torch.cuda.synchronize()
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd(), torch.cuda.stream(self._stream), no_collection():
            # Keras' callbacks may use the device from other threads meanwhile.
            launch.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                for _ in range(steps):
                    results = step(*self._batch())
                    self._position.add_(1)
                outputs = GraphOutputs(results)
            finally:
                launch.capture_end()
        return launch, outputs


@contextmanager
def _unchanged(graph: Graph) -> Iterator[None]:
    """Put everything that the step changes back afterwards."""
    undo, random_state = Undo(), torch.cuda.get_rng_state()
    written = graph.written_storages(*graph.instructions)
    for value in graph.values:
        if value.kind == "external" and value.storage in written and value.tensor is not None:
            undo.save(value.tensor)
    for generator in _generators(graph):
        undo.save_generator(generator)
    try:
        yield
    finally:
        torch.cuda.synchronize()
        undo.restore()
        torch.cuda.set_rng_state(random_state)


def _without_reseeds(graph: Graph) -> Graph:
    graph = graph.copy()
    graph.instructions = [i for i in graph.instructions if not isinstance(i.target, Reseed)]
    return graph


def _generators(graph: Graph) -> list[torch.Generator]:
    found = [i.kwargs.get("generator") for i in graph.instructions]
    return list({id(generator): generator for generator in found if generator is not None}.values())


def _check_is_on_device(graph: Graph, place: str) -> None:
    """A CPU tensor that changes would stay as it was at capture.

    What an operation on the device returns beside its result may be on the CPU (the random state of fused attention):
    inside a capture the operation puts it on the device.
    """
    made_by_device: set[int] = set()
    for instruction in graph.instructions:
        used = instruction.refs
        values = [graph.values[ref.index] for ref in used]
        for ref, value in zip(used, values, strict=True):
            if value.device.type != "cuda" and value.kind != "constant" and ref.index not in made_by_device:
                raise CaptureFailed(reason("untraceable", f"the CUDA graph of {place}", "it uses a CPU tensor"))
        if any(value.device.type == "cuda" for value in values):
            made_by_device.update(instruction.numbers)
