"""A recorded step is made shorter, and leaves what it left."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from flatout.engines.torch.graph.codegen import Calls, compile_graph  # noqa: E402
from flatout.engines.torch.graph.optimize import optimize  # noqa: E402
from flatout.engines.torch.graph.step_graph import Graph, Instruction, Ref  # noqa: E402

aten = torch.ops.aten
IMAGES = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 4, 5, 3).permute(0, 3, 1, 2)


class Drawn:
    """A graph of calls on `IMAGES`, written as they would be recorded."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.tensors = [IMAGES]
        self.graph.inputs = [self.graph.add_value(IMAGES, "input", 0)]

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Ref:
        real = [self.tensors[arg.index] if isinstance(arg, Ref) else arg for arg in args]
        made = target(*real, **kwargs)
        if target is aten.mul_.Scalar:
            self.graph.instructions.append(Instruction(target, args, kwargs, args[0].index))
            return args[0]
        self.tensors.append(made)
        number = self.graph.add_value(made, "computed", len(self.graph.values))
        self.graph.instructions.append(Instruction(target, args, kwargs, number))
        return Ref(number)

    def optimized(self, *outputs: Ref) -> Graph:
        self.graph.outputs = list(outputs)
        loud, _ = optimize(self.graph)
        return loud


def to_and_fro(drawn: Drawn) -> tuple[Ref, Ref]:
    first = drawn.call(aten.clone.default, Ref(0), memory_format=torch.contiguous_format)
    return first, drawn.call(aten.clone.default, first, memory_format=torch.channels_last)


def results(graph: Graph) -> list[torch.Tensor]:
    return compile_graph(graph, Calls().of)(IMAGES.clone())


def test_copies_to_and_fro_go() -> None:
    drawn = Drawn()
    _, back = to_and_fro(drawn)
    doubled = drawn.call(aten.mul.Scalar, back, 2.0)
    graph = drawn.optimized(doubled)
    assert [one.target for one in graph.instructions] == [aten.mul.Scalar]
    assert graph.instructions[0].args == (Ref(0), 2.0)
    assert torch.equal(results(graph)[0], IMAGES * 2)


def test_a_copy_in_another_layout_stays() -> None:
    drawn = Drawn()
    first, back = to_and_fro(drawn)
    graph = drawn.optimized(drawn.call(aten.view.default, first, [2, 60]), drawn.call(aten.mul.Scalar, back, 2.0))
    assert [one.target for one in graph.instructions] == [aten.clone.default, aten.view.default, aten.mul.Scalar]
    flat, doubled = results(graph)
    assert torch.equal(flat, IMAGES.reshape(2, 60))
    assert torch.equal(doubled, IMAGES * 2)


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_copies_of_what_is_changed_stay(changed: int) -> None:
    drawn = Drawn()
    _, back = to_and_fro(drawn)
    drawn.call(aten.mul_.Scalar, Ref(changed), 3.0)
    graph = drawn.optimized(drawn.call(aten.add.Tensor, Ref(0), back), back)
    together, copy = results(graph)
    expected = {0: IMAGES * 4, 1: IMAGES * 2, 2: IMAGES * 4}[changed]
    assert torch.equal(together, expected)
    assert torch.equal(copy, IMAGES * 3 if changed == 2 else IMAGES)
