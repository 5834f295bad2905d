"""Records a model's step once, and verifies on two batches that the recording does what the step does.

A trial changes nothing: variables, gradients, random generators and Python attributes are put back. The step is
recorded twice, on different rows and states; recordings that differ depend on something outside the graph. The
recording is then replayed on both, and must end in the same state. A step that does more than compute is refused.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from keras.src import tree

from flatout.base.errors import Reason, reason
from flatout.base.options import current
from flatout.engines.contract import Structure, Task, in_short
from flatout.engines.torch.graph.codegen import Calls, Step, late_step
from flatout.engines.torch.graph.optimize import optimize
from flatout.engines.torch.graph.step_graph import Graph, Ref, all_in

from .reach import SideEffect
from .read_guards import ReadGuards
from .recordable_keras import Reseed, replaced_for
from .recorder import CaptureFailed, FirstStepDiffers, HostReads, Recorder, Undo
from .side_effects import Watch
from .surroundings import Surroundings, no_collection

STEP_NAMES: dict[Task, str] = {"train": "train_step", "test": "test_step", "predict": "predict_step"}
# A step whose operations take longer than this on a CPU is all arithmetic: sparing Keras' Python would gain a few per
# cent, and recording it costs six such steps.
_MOST_ARITHMETIC = 1.0
# Bits are equal on a CPU; on a GPU some kernels add up in no fixed order.
_TOLERANCE = {"cpu": 1e-5, "cuda": 1e-2}


@dataclass
class CapturedStep:
    """A step ready to replay.

    Attributes:
        graph: The whole step with its outputs; `quiet_graph` changes the state alone.
        step: The graph as a function of the batch's leaves; `quiet_step` likewise.
        calls: The callables chosen for the operations.
        reads: Guards on the Python state that the step reads: while they hold, the recording is the step.
        is_all_keras: Whether nothing but Keras' Python ran, which reads the same for batches of any length.
    """

    graph: Graph
    quiet_graph: Graph
    step: Step
    quiet_step: Step
    calls: Calls
    reads: ReadGuards
    is_all_keras: bool

    @functools.cached_property
    def changes_inputs(self) -> bool:
        """Whether the step writes to the memory of its batch."""
        written = self.graph.written_storages(*self.graph.instructions)
        return bool(written & {self.graph.values[index].storage for index in self.graph.inputs})

    @property
    def output_size(self) -> int:
        """Bytes of what the step returns."""
        return sum(self.graph.values[ref.index].nbytes for ref in all_in(Ref, self.graph.outputs))

    def pack(self, outputs: list[Any]) -> Any:
        """The outputs as the step returns them."""
        return tree.map_structure(lambda number: outputs[number], self.graph.output_structure)


def leaves_of(batch: Structure) -> list[torch.Tensor]:
    """The tensors of a batch, in Keras' order."""
    return [leaf for leaf in tree.flatten(batch) if leaf is not None]


def capture(
    model: Any, task: Task, batches: list[Structure], other: CapturedStep | None = None
) -> tuple[ReadGuards, CapturedStep | Reason]:
    """Record the step on the first batch; `batches` may hold a second one of the same shapes.

    `other` is the same step for batches of another length. Where nothing but Keras' Python ran, it is watched once:
    that takes most of the time of a recording.

    Returns:
        The step, or why it cannot be recorded; it is so while the guards hold. Nothing has been changed.

    Raises:
        FirstStepDiffers: It can be recorded when it has run once.
    """
    watch = Watch(model)
    for owner in (model, *type(model).__mro__):
        watch.reach.guards.keep_names(owner, {STEP_NAMES[task]})
    known = other.reads if other is not None and other.is_all_keras else None
    try:
        step: CapturedStep | Reason = _capture(model, task, batches, watch, known)
    except FirstStepDiffers:
        raise
    except CaptureFailed as failure:
        step = failure.reason
    if known is not None:
        return known, step
    guards = watch.reach.guards
    guards.settle(step.graph.outside_tensors if isinstance(step, CapturedStep) else [])
    return guards, step


def _capture(model: Any, task: Task, batches: list[Structure], watch: Watch, known: ReadGuards | None) -> CapturedStep:
    place = STEP_NAMES[task]
    surroundings, undo = Surroundings(model), Undo()
    reseeds: list[Reseed] = []
    try:
        graphs: list[Graph] = []
        seconds = 0.0
        for batch in batches:
            is_watched = known is None and (not graphs or watch.has_seen_others)
            recorder = _record(model, task, batch, undo, reseeds, watch if is_watched else nullcontext())
            graphs.append(recorder.graph)
            seconds += recorder.seconds
            watch.reach.end_recording()
            watch.end_recording()
            is_on_cpu = leaves_of(batch)[0].device.type == "cpu"
            if is_on_cpu and not current().force and seconds > _MOST_ARITHMETIC:
                raise CaptureFailed(reason("no_gain"))
        if change := watch.change():
            raise CaptureFailed(reason("side_effects", place, change))
        if len(graphs) > 1 and (difference := _difference(*graphs)):
            third = _record(model, task, batches[0], undo, reseeds, watch).graph
            kind = CaptureFailed if _difference(graphs[1], third) else FirstStepDiffers
            raise kind(reason("data_dependent", place, difference))
        (loud, quiet), calls = optimize(graphs[0]), Calls()
        steps = late_step(loud, calls), late_step(quiet, calls)
        expected, random_state = undo.current(), torch.get_rng_state()
        undo.restore()
        surroundings.restore_random()
        for step, batch in zip(steps, batches, strict=False):
            step(*leaves_of(batch))
        if not all(map(_close, expected, undo.current())):
            raise CaptureFailed(reason("untraceable", place, "its replay does not end in the same state"))
        if graphs[0].draws and not torch.equal(random_state, torch.get_rng_state()):
            raise CaptureFailed(reason("untraceable", place, "its replay draws other random numbers"))
        return CapturedStep(loud, quiet, *steps, calls, known or watch.reach.guards, not watch.has_seen_others)
    except BaseException:
        surroundings.attributes.restore()
        watch.restore()
        raise
    finally:
        undo.restore()
        surroundings.restore()


def _record(
    model: Any,
    task: Task,
    batch: Structure,
    undo: Undo,
    reseeds: list[Reseed],
    watch: AbstractContextManager[None],
) -> Recorder:
    place = STEP_NAMES[task]
    recorder = Recorder(place, undo)
    batch = tree.map_structure(torch.clone, batch, none_is_leaf=False)
    for leaf in leaves_of(batch):
        recorder.add_input(leaf)
    model.train(task == "train")
    try:
        with (
            replaced_for(recorder, reseeds),
            torch.autograd.set_multithreading_enabled(False),
            torch.set_grad_enabled(task == "train"),
            recorder,
            HostReads(recorder),
            no_collection(),
            watch,
        ):
            outputs = getattr(model, place)(batch)
    except SideEffect as effect:
        raise CaptureFailed(reason("side_effects", place, effect)) from None
    except Exception as error:
        # Keras re-raises errors of layers as new ones, so a failure is taken from the recorder.
        if recorder.failure is None:
            raise CaptureFailed(reason("untraceable", place, in_short(error))) from error
    if recorder.failure is not None:
        raise CaptureFailed(recorder.failure)
    leaves = tree.flatten(outputs)
    recorder.graph.outputs = [recorder.refs(getattr(leaf, "value", leaf)) for leaf in leaves]
    recorder.graph.output_structure = tree.pack_sequence_as(outputs, list(range(len(leaves))))
    return recorder


def _difference(first: Graph, second: Graph) -> str | None:
    """What differs between two recordings of one step, or None."""
    if len(first.instructions) != len(second.instructions):
        return f"it ran {len(first.instructions)} operations at one step and {len(second.instructions)} at the next"
    for a, b in zip(first.instructions, second.instructions, strict=True):
        if a.target != b.target or repr((a.args, a.kwargs)) != repr((b.args, b.kwargs)) or a.results != b.results:
            return f"{a.target} differs from one step to the next"
    if len(first.values) != len(second.values):
        return "it uses other tensors at each step"
    for one, other in zip(first.values, second.values, strict=True):
        if one.kind != other.kind or (one.kind == "external" and one.tensor is not other.tensor):
            return "it uses other tensors at each step"
        if one.kind == "constant" and not _same_bits(one.tensor, other.tensor):
            return "a number that comes from Python changes from step to step"
    if repr(first.outputs) != repr(second.outputs):
        return "it returns other values at each step"
    return None


def _same_bits(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))


def _close(wanted: torch.Tensor, got: torch.Tensor) -> bool:
    if not wanted.is_floating_point():
        return torch.equal(wanted, got)
    wanted, got = torch.nan_to_num(wanted.float()), torch.nan_to_num(got.float())
    tolerance = _TOLERANCE.get(wanted.device.type, 1e-2)
    scale = wanted.abs().max() if wanted.numel() else 0.0
    return bool(((wanted - got).abs() <= tolerance * scale + 1e-30).all())
