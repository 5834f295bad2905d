"""Writes down every ATen operation that runs while it is active: the recorder of a step.

It sits below autograd, so the backward pass and the optimizer's in-place updates are seen as well. Tensors are
real; a value that Python reads (`float(loss)`, `if tensor:`) would be baked into the recording and stops it.
"""

from __future__ import annotations

import time
from typing import Any, NoReturn

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from flatout.base.errors import Reason, reason
from flatout.engines.torch.graph.step_graph import (
    Graph,
    Instruction,
    Ref,
    all_in,
    is_pure,
    is_random,
    map_in,
    written_among,
)

_aten = torch.ops.aten
_READS_A_VALUE = {_aten._local_scalar_dense.default, _aten.item.default, _aten.equal.default, _aten.is_nonzero.default}
_SHAPE_FROM_VALUES = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
# The tensor carries its number itself, so that recording keeps no intermediate result alive.
_NUMBER = "_flatout_number"
_LOOKS_AT_MEMORY = frozenset({_aten.set_.source_Storage, _aten.set_.source_Storage_storage_offset})
_VIEWS_OF_A_LOOK = frozenset({_aten.slice.Tensor, _aten.narrow.default, _aten.resize_.default, _aten.view.default})
# Outside tensors that a branch of `ops.cond` changed, each with its (recorded) copy from before.
Changes = dict[int, tuple[torch.Tensor, torch.Tensor]]


class CaptureFailed(Exception):
    """The step cannot be recorded; carries the `Reason`."""

    def __init__(self, why: Reason):
        super().__init__(str(why))
        self.reason = why


class FirstStepDiffers(CaptureFailed):
    """It builds what the others find built: the steps after it may be recorded."""


class Undo:
    """The first contents of all outside memory that was written to, to put back."""

    def __init__(self) -> None:
        self.tensors: dict[int, tuple[torch.Tensor, torch.UntypedStorage]] = {}
        self.generators: dict[int, tuple[torch.Generator, torch.Tensor]] = {}

    def save(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.tensors:
            self.tensors[storage._cdata] = (tensor, storage.clone())

    def save_generator(self, generator: torch.Generator) -> None:
        if id(generator) not in self.generators:
            self.generators[id(generator)] = (generator, generator.get_state())

    def restore(self) -> None:
        for tensor, first in self.tensors.values():
            tensor.untyped_storage().copy_(first)
        for generator, state in self.generators.values():
            generator.set_state(state)

    def current(self) -> list[torch.Tensor]:
        return [tensor.detach().clone() for tensor, _ in self.tensors.values()]


class Recorder(TorchDispatchMode):
    """Builds a `Graph` of what runs inside `with recorder:`."""

    def __init__(self, place: str, undo: Undo) -> None:
        super().__init__()
        self.graph = Graph()
        self.place = place
        self.undo = undo
        self.failure: Reason | None = None
        # What the branches of `ops.cond` that are running change, and the first storage that is a branch's own.
        self.journals: list[tuple[int, Changes]] = []
        self.storage_count = 0
        # Of the processor, inside operations.
        self.seconds = 0.0
        self._changed_storages: set[int] = set()
        self._constants: set[int] = set()
        self._outside: dict[int, int] = {}
        self._outside_memory: dict[int, int] = {}
        self._outside_tensor: dict[int, torch.Tensor] = {}
        self._looks: dict[int, torch.Tensor] = {}

    def fail(self, code: str, detail: str) -> NoReturn:
        """Stop the recording; remembered even if the user's code swallows the exception."""
        if self.failure is None:
            self.failure = reason(code, self.place, detail)
        raise CaptureFailed(self.failure)

    def _new_storage(self) -> int:
        self.storage_count += 1
        return self.storage_count - 1

    def add_input(self, tensor: torch.Tensor) -> None:
        self.graph.inputs.append(self._add(tensor, "input", self._new_storage()))

    def _add(self, tensor: torch.Tensor, kind: str, storage: int) -> int:
        index = self.graph.add_value(tensor, kind, storage)
        setattr(tensor, _NUMBER, (self, index))
        return index

    def _known(self, tensor: torch.Tensor) -> int | None:
        owner, index = getattr(tensor, _NUMBER, (None, -1))
        return index if owner is self else self._outside.get(id(tensor))

    def index_of(self, tensor: torch.Tensor) -> int:
        """The number of a tensor; one never seen before comes from outside."""
        known = self._known(tensor)
        if known is not None:
            return known
        if tensor.layout != torch.strided:
            self.fail("untraceable", f"a tensor with layout {tensor.layout}")
        # The graph keeps outside tensors alive, so that neither ids nor memory are reused.
        memory = tensor.untyped_storage()._cdata
        if memory not in self._outside_memory:
            self._outside_memory[memory] = self._new_storage()
            self._outside_tensor[self._outside_memory[memory]] = tensor
        index = self.graph.add_value(tensor, "external", self._outside_memory[memory])
        self._outside[id(tensor)] = index
        return index

    def is_constant(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor was computed from Python's numbers alone."""
        index = self.index_of(tensor)
        return index in self._constants and self.graph.values[index].storage not in self._changed_storages

    def refs(self, structure: Any) -> Any:
        """The structure with a `Ref` for each tensor."""
        return map_in(torch.Tensor, lambda tensor: Ref(self.index_of(tensor)), structure)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = all_in(torch.Tensor, (args, kwargs))
        if str(kwargs.get("device")) == "meta" or any(tensor.is_meta for tensor in tensors):
            return func(*args, **kwargs)
        if func is _aten.lift_fresh.default:
            return self._lift(args[0])
        if func in _LOOKS_AT_MEMORY or any(id(tensor) in self._looks for tensor in tensors):
            return self._look(func, tuple(args), kwargs)
        if func in _READS_A_VALUE:
            if not all(map(self.is_constant, tensors)):
                self.fail("data_dependent", f"{func} of a computed tensor")
            return func(*args, **kwargs)
        if _takes_shape_from_values(func, args) and not all(map(self.is_constant, tensors)):
            self.fail("data_dependent", f"the shape of {func} depends on values")
        return self.record(func, tuple(args), kwargs, tensors)

    def _look(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run what torch's recurrent layers do to find out whether their weights lie in one piece of memory.

        They point a tensor at the weights' storage and measure it. It may not be used for anything else: at the next
        step that storage is another one.
        """
        if func not in _LOOKS_AT_MEMORY and func not in _VIEWS_OF_A_LOOK:
            self.fail("untraceable", f"{func} of a tensor that was pointed at other memory")
        out = func(*args, **kwargs)
        self._looks[id(out)] = out
        return out

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> Any:
        """Run an operation and write it down."""
        if is_random(func):
            if self.journals:
                self.fail("untraceable", f"{func} draws random numbers inside a branch of ops.cond")
            if kwargs.get("generator") is not None:
                self.undo.save_generator(kwargs["generator"])
        for tensor in all_in(torch.Tensor, written_among(func, args, kwargs)):
            self._before_write(tensor)
        refs, keyword_refs = self.refs(args), self.refs(kwargs)
        constant = is_pure(func) and "empty" not in func.__name__ and all(map(self.is_constant, tensors))
        began = time.process_time()
        out = func(*args, **kwargs)
        self.seconds += time.process_time() - began
        results = self._number(out, tensors, constant)
        self.graph.instructions.append(Instruction(func, refs, keyword_refs, results))
        return out

    def _number(self, out: Any, tensors: list[torch.Tensor], constant: bool) -> Any:
        if isinstance(out, (list, tuple)):
            return [self._number(item, tensors, constant) for item in out]
        if not isinstance(out, torch.Tensor):
            return None
        known = self._known(out)
        if known is not None:
            return known
        index = self._add(out, "computed", self._storage_of(out, tensors))
        if constant:
            self._constants.add(index)
        return index

    def _storage_of(self, out: torch.Tensor, tensors: list[torch.Tensor]) -> int:
        memory = out.untyped_storage()._cdata
        for tensor in tensors:
            if tensor.untyped_storage()._cdata == memory:
                return self.graph.values[self.index_of(tensor)].storage
        return self._new_storage()

    def _lift(self, tensor: torch.Tensor) -> torch.Tensor:
        """Take a tensor made of Python's numbers as a constant, and hand on a copy of it.

        `torch.as_tensor(array)` shares the user's memory, hence the copy; `optimize.py` removes it again.
        """
        constant = tensor.detach().clone()
        index = self.graph.add_value(constant, "constant", self._new_storage())
        out = _aten.lift_fresh.default(tensor)
        result = self._add(out, "computed", self._new_storage())
        self.graph.instructions.append(Instruction(_aten.clone.default, (Ref(index),), {}, result))
        self._constants.update((index, result))
        return out

    def _before_write(self, tensor: torch.Tensor) -> None:
        storage = self.graph.values[self.index_of(tensor)].storage
        self._changed_storages.add(storage)
        outside = self._outside_tensor.get(storage)
        if outside is not None:
            self.undo.save(outside)
        for first_storage, changes in self.journals:
            if storage in changes or (storage >= first_storage and outside is None):
                continue
            if outside is None or outside.numel() * outside.element_size() != outside.untyped_storage().nbytes():
                self.fail("untraceable", "a branch of ops.cond changes a tensor that is not a variable")
            changes[storage] = (outside, self.record(_aten.clone.default, (outside,), {}, [outside]))


class HostReads(TorchFunctionMode):
    """Catches reads of a tensor's memory that are no operation (`.numpy()`, `.tolist()`), or that we can spare."""

    _READERS = frozenset({torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__array__})

    def __init__(self, recorder: Recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self._READERS and not args[0].is_meta and not self.recorder.is_constant(args[0]):
            self.recorder.fail("data_dependent", f"{func.__name__}() of a computed tensor")
        if func is torch._foreach_add_ and len(args) == 2 and isinstance(kwargs.get("alpha"), torch.Tensor):
            with _disable_current_modes(), torch.no_grad():
                arguments = (list(args[0]), list(args[1]), kwargs["alpha"])
                return self.recorder.record(add_scaled_, arguments, {}, all_in(torch.Tensor, arguments))
        return func(*args, **kwargs)


def add_scaled_(variables: list[torch.Tensor], updates: list[torch.Tensor], alpha: torch.Tensor) -> None:
    """`torch._foreach_add_(variables, updates, alpha=tensor)`, as Keras' SGD and Adadelta call it.

    ATen takes `alpha` as a number, so torch reads the tensor on the host at every step. A recording keeps the tensor.
    """
    if alpha.device.type == "cpu":
        torch._foreach_add_(variables, updates, alpha=alpha.item())
    else:
        torch._foreach_add_(variables, torch._foreach_mul(updates, alpha))


add_scaled_.written_arguments = ((0, "variables", False),)  # type: ignore[attr-defined]


def _takes_shape_from_values(func: Any, args: Any) -> bool:
    if func is _aten.index.Tensor:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return bool(_SHAPE_FROM_VALUES.intersection(func.tags))
