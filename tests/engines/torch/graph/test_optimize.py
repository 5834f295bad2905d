"""A recorded step is made shorter, and leaves what it left."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from flatout.engines.torch.graph.codegen import Calls, compile_graph  # noqa: E402
from flatout.engines.torch.graph.optimize import optimize  # noqa: E402
from flatout.engines.torch.graph.step_graph import Graph, Instruction, Ref, written_arguments  # noqa: E402

pytestmark = pytest.mark.backend("torch")
aten = torch.ops.aten
IMAGES = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 4, 5, 3).permute(0, 3, 1, 2)


class Drawn:
    """A graph of calls on `IMAGES`, written as they would be recorded."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.tensors = [IMAGES.clone()]
        self.graph.inputs = [self.graph.add_value(self.tensors[0], "input", self.memory(self.tensors[0]))]

    def memory(self, tensor: torch.Tensor) -> int:
        return tensor.untyped_storage().data_ptr()

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Ref:
        real = [self.tensors[arg.index] if isinstance(arg, Ref) else arg for arg in args]
        made = target(*real, **kwargs)
        if written_arguments(target):
            self.graph.instructions.append(Instruction(target, args, kwargs, args[0].index))
            return args[0]
        several = list(made) if isinstance(made, tuple) else [made]
        numbers = [self.graph.add_value(one, "computed", self.memory(one)) for one in several]
        self.tensors += several
        results = numbers if isinstance(made, tuple) else numbers[0]
        self.graph.instructions.append(Instruction(target, args, kwargs, results))
        return Ref(numbers[0])

    def optimized(self, *outputs: Ref) -> Graph:
        self.graph.outputs = list(outputs)
        loud, _ = optimize(self.graph)
        return loud


def to_and_fro(drawn: Drawn) -> tuple[Ref, Ref]:
    first = drawn.call(aten.clone.default, Ref(0), memory_format=torch.contiguous_format)
    return first, drawn.call(aten.clone.default, first, memory_format=torch.channels_last)


def results(graph: Graph) -> list[torch.Tensor]:
    return compile_graph(graph, Calls().of)(IMAGES.clone())


def targets(graph: Graph) -> list[str]:
    return [one.target._schema.name.removeprefix("aten::") for one in graph.instructions]


def test_copies_to_and_fro_go() -> None:
    drawn = Drawn()
    _, back = to_and_fro(drawn)
    doubled = drawn.call(aten.mul.Scalar, back, 2.0)
    graph = drawn.optimized(doubled)
    assert targets(graph) == ["mul"]
    assert graph.instructions[0].args == (Ref(0), 2.0)
    assert torch.equal(results(graph)[0], IMAGES * 2)


def test_a_copy_in_another_layout_stays() -> None:
    drawn = Drawn()
    first, back = to_and_fro(drawn)
    graph = drawn.optimized(drawn.call(aten.view.default, first, [2, 60]), drawn.call(aten.mul.Scalar, back, 2.0))
    assert sorted(targets(graph)) == ["clone", "mul", "view"]
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


def test_pooling_takes_images_as_they_lie() -> None:
    drawn = Drawn()
    first = drawn.call(aten.clone.default, Ref(0), memory_format=torch.contiguous_format)
    pooled = drawn.call(aten.max_pool2d_with_indices.default, first, [2, 2], [2, 2])
    places = Ref(pooled.index + 1)
    back = drawn.call(aten.clone.default, pooled, memory_format=torch.channels_last)
    grown = drawn.call(
        aten.max_pool2d_with_indices_backward.default, back, first, [2, 2], [2, 2], [0, 0], [1, 1], False, places
    )
    last = drawn.call(aten.permute.default, pooled, [0, 2, 3, 1])
    flat = drawn.call(aten.clone.default, last, memory_format=torch.contiguous_format)
    flat = drawn.call(aten.view.default, flat, [2, 12])
    wanted = [drawn.tensors[one.index] for one in (back, grown, flat)]
    graph = drawn.optimized(back, grown, flat)
    assert "clone" not in targets(graph)[:-1]
    for got, tensor in zip(results(graph), wanted, strict=True):
        assert torch.equal(got, tensor)
        assert got.stride() == tensor.stride()


def test_what_is_changed_after_a_copy_is_made_anew() -> None:
    drawn = Drawn()
    centred = drawn.call(aten.sub.Tensor, Ref(0), 1.0)
    kept = drawn.call(aten.clone.default, centred)
    drawn.call(aten.mul_.Tensor, centred, 2.0)
    view = drawn.call(aten.view.default, drawn.call(aten.permute.default, centred, [0, 2, 3, 1]), [-1])
    drawn.call(aten.add_.Tensor, centred, 3.0)
    graph = drawn.optimized(kept, centred, view)
    assert targets(graph) == ["sub", "mul", "permute", "view", "add_"]
    kept, changed, flat = results(graph)
    assert torch.equal(kept, IMAGES - 1)
    assert torch.equal(changed, (IMAGES - 1) * 2 + 3)
    assert torch.equal(flat, changed.permute(0, 2, 3, 1).reshape(-1))


@pytest.mark.parametrize("is_used", ["after", "never"])
def test_a_change_that_an_earlier_view_would_see_stays_in_place(is_used: str) -> None:
    drawn = Drawn()
    centred = drawn.call(aten.sub.Tensor, Ref(0), 1.0)
    view = drawn.call(aten.permute.default, centred, [0, 2, 3, 1])
    kept = drawn.call(aten.clone.default, centred)
    drawn.call(aten.mul_.Tensor, centred, 2.0)
    outputs = [kept, centred, view] if is_used == "after" else [kept, centred]
    graph = drawn.optimized(*outputs)
    assert ("mul_" in targets(graph)) is (is_used == "after")
    kept, changed, *views = results(graph)
    assert torch.equal(kept, IMAGES - 1)
    assert torch.equal(changed, (IMAGES - 1) * 2)
    assert all(torch.equal(one, changed.permute(0, 2, 3, 1)) for one in views)


FORMATS = st.sampled_from([torch.contiguous_format, torch.channels_last, torch.preserve_format])
IN_PLACE = [aten.mul_.Tensor, aten.add_.Tensor, aten.relu_.default, aten.tanh_.default]
APART = [aten.relu.default, aten.neg.default, aten.exp.default, aten.clone.default, aten.sum.default]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_step_leaves_the_same_bits(data: Any) -> None:
    drawn = Drawn()
    for _ in range(data.draw(st.integers(3, 12))):
        one = Ref(data.draw(st.integers(0, len(drawn.tensors) - 1)))
        tensor = drawn.tensors[one.index]
        images = tensor.is_floating_point() and tensor.ndim == 4
        kind = data.draw(st.sampled_from(["apart", "place", "two", "copy", "pool", "permute", "view"]))
        if kind == "copy" and images:
            drawn.call(aten.clone.default, one, memory_format=data.draw(FORMATS))
        elif kind == "pool" and images and min(tensor.shape[2:]) > 1:
            drawn.call(aten.max_pool2d_with_indices.default, one, [2, 2], [1, 1])
        elif kind == "permute" and images:
            drawn.call(aten.permute.default, one, data.draw(st.permutations(range(4))))
        elif kind == "view" and images and tensor.is_contiguous():
            drawn.call(aten.view.default, one, [-1])
        elif kind == "place" and tensor.is_floating_point() and one.index:
            target = data.draw(st.sampled_from(IN_PLACE))
            drawn.call(target, one, *([0.5] if "Tensor" in str(target) else []))
        elif kind == "apart" and tensor.is_floating_point():
            drawn.call(data.draw(st.sampled_from(APART)), one)
        elif kind == "two" and tensor.is_floating_point():
            same = [n for n, other in enumerate(drawn.tensors) if other.shape == tensor.shape]
            drawn.call(aten.sub.Tensor, one, Ref(data.draw(st.sampled_from(same))))
    outputs = [Ref(n) for n in range(1, len(drawn.tensors)) if data.draw(st.booleans())]
    drawn.graph.outputs = outputs
    wanted = compile_graph(drawn.graph, Calls().of)(IMAGES.clone())
    graph = drawn.optimized(*outputs)
    for got, tensor in zip(compile_graph(graph, Calls().of)(IMAGES.clone()), wanted, strict=True):
        torch.testing.assert_close(got, tensor, rtol=0, atol=0, equal_nan=True)
