"""A recorded step through Inductor: in stages, compiled by another process, with the same effects."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

keras = pytest.importorskip("keras")
if keras.backend.backend() != "torch":
    pytest.skip("needs KERAS_BACKEND=torch", allow_module_level=True)

import torch  # noqa: E402
from keras import layers  # noqa: E402

from flatout.engines.torch.capture.captured_step import CapturedStep, leaves_of  # noqa: E402
from flatout.engines.torch.capture.recordable_keras import Reseed  # noqa: E402
from flatout.engines.torch.capture.recorder import add_scaled_  # noqa: E402
from flatout.engines.torch.compiled import compilation  # noqa: E402
from flatout.engines.torch.compiled.compilation import Compilation  # noqa: E402
from flatout.engines.torch.compiled.segment import CannotCompile, segmented  # noqa: E402
from flatout.engines.torch.compiled.stages import in_stages, with_early_draws, with_updates_as_operations  # noqa: E402
from flatout.engines.torch.engine import TorchEngine  # noqa: E402
from flatout.engines.torch.graph.codegen import Calls, compile_graph  # noqa: E402
from flatout.engines.torch.graph.step_graph import Graph, Instruction, Ref, is_random  # noqa: E402

pytestmark = pytest.mark.usefixtures("forced")

needs_compiler = pytest.mark.skipif(
    not (os.environ.get("CXX") or shutil.which("g++")), reason="On a CPU Inductor needs a C++ compiler"
)
aten = torch.ops.aten
X = np.random.default_rng(0).normal(size=(32, 6)).astype("float32")
Y = np.random.default_rng(1).integers(0, 3, 32)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def recorded(*hidden: keras.layers.Layer, optimizer: str = "adam") -> CapturedStep:
    """The training step of a model with these layers, which has taken a step."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([layers.Input((6,)), *hidden, layers.Dense(3)])
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    model.train_on_batch(X[:16], Y[:16])
    engine = TorchEngine()
    program = engine.prepare(model, "train", engine.place((X, Y, None)), 32, 16)
    program.begin_pass(None)
    program.run(0, 1, True)
    step = program.loop.full
    assert isinstance(step, CapturedStep)
    return step


def without_reseeds(graph: Graph) -> Graph:
    graph = graph.copy()
    graph.instructions = [one for one in graph.instructions if not isinstance(one.target, Reseed)]
    return graph


def effects(graph: Graph, calls: Calls, batch: list[torch.Tensor]) -> list[torch.Tensor]:
    """What a graph leaves in the variables that it writes to, and its outputs; the variables are put back."""
    written = graph.written_storages(*graph.instructions)
    tensors = [value.tensor.detach() for value in graph.values if value.kind == "external" and value.storage in written]
    before = [tensor.clone() for tensor in tensors]
    generators = {id(g): g for one in graph.instructions if (g := one.kwargs.get("generator")) is not None}
    for generator in (torch.default_generator, *generators.values()):
        generator.manual_seed(3)
    with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
        outputs = compile_graph(graph, calls.of)(*batch)
        after = [tensor.clone() for tensor in tensors] + outputs
        for tensor, old in zip(tensors, before, strict=True):
            tensor.copy_(old)
    return after


class Tables(layers.Layer):
    """Three embeddings, one of them of several columns."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = [layers.Embedding(rows, 4) for rows in (5, 7, 9)]

    def call(self, x: torch.Tensor) -> torch.Tensor:
        numbers = keras.ops.cast(keras.ops.abs(2 * x), "int32") % 5
        one, several, other = self.tables
        several = keras.ops.reshape(several(numbers[:, 1:4]), (-1, 12))
        return keras.ops.concatenate([one(numbers[:, 0]), several, other(numbers[:, 5])], axis=-1)


@needs_compiler
def test_a_compiled_step_has_the_effects_of_the_recorded_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    step = recorded(Tables(), layers.Dense(8, "relu"), layers.BatchNormalization(), layers.Dropout(0.5))
    graph = without_reseeds(step.graph)
    divided = segmented(graph)
    compiled = Compilation(divided)
    assert not compiled.is_on_disk
    compiled.begin()
    wait_for(lambda: compiled.is_on_disk or compiled.begin() or compiled.failure)
    assert compiled.failure == ""
    again = Compilation(segmented(without_reseeds(step.graph)))
    assert again.is_on_disk, "found by what it computes"
    again.load()
    wait_for(lambda: again.functions is not None or again.failure)
    third = Compilation(segmented(without_reseeds(step.graph)))
    third.load()
    assert third.functions == again.functions, "nobody waits for what is loaded"
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ, "the user's own compilations stay where they are"
    batch = leaves_of((torch.from_numpy(X[:16]), torch.from_numpy(Y[:16])))
    wanted, got = effects(graph, step.calls, batch), effects(divided.with_compiled(again.functions), step.calls, batch)
    assert len(wanted) == len(got) > 12
    for right, new in zip(wanted, got, strict=True):
        torch.testing.assert_close(new, right, rtol=1e-5, atol=1e-6)
    assert sum(path.stat().st_mode & 0o077 for path in cache.rglob("flatout/*") if path.is_dir()) == 0


def test_what_cannot_be_compiled_is_told() -> None:
    step = segmented(_graph_of_additions())
    broken = Compilation(step)
    broken._job["parts"][0]["calls"][0][0] = "aten::no_such_operation"
    broken.begin()
    wait_for(lambda: broken.begin() or broken.failure)
    assert "no_such_operation" in broken.failure
    assert not broken.is_on_disk


def test_a_damaged_file_is_removed_and_the_step_not_tried_again() -> None:
    step = segmented(_graph_of_additions())
    compiled = Compilation(step)
    for file in compiled._files:
        file.write_bytes(b"nothing of Inductor's")
    compiled.load()
    wait_for(lambda: compiled.failure)
    assert compiled.functions is None
    assert not compiled.is_on_disk
    assert Compilation(step).failure == compiled.failure


def test_a_step_that_is_finished_while_somebody_looks_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Compilation(segmented(_graph_of_additions()))
    worker = compilation._Worker()
    worker._job = compiled._job
    monkeypatch.setattr(compilation, "_worker", lambda: worker)
    for file in compiled._files:
        file.write_bytes(b"written by the process that has just ended")
    compiled.begin()
    assert compiled.is_on_disk
    assert compiled.failure == ""


def test_settings_of_float32_are_those_of_the_user_by_either_name() -> None:
    script = """
import torch
from flatout.engines.torch.compiled.compilation import _float32_settings
print(_float32_settings())
torch.backends.cuda.matmul.fp32_precision = "tf32"
print(_float32_settings())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    older, newer = map(ast.literal_eval, done.stdout.splitlines())
    assert older == {"set_float32_matmul_precision": "highest", "backends.cudnn.allow_tf32": True}
    assert newer["backends.cuda.matmul.fp32_precision"] == "tf32"


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "rmsprop", "adamw"])
def test_all_variables_are_updated_in_one_part(optimizer: str) -> None:
    step = recorded(layers.Dense(8), optimizer=optimizer)
    divided = segmented(without_reseeds(step.graph))
    assert len(divided.parts) == 1
    assert [stage.as_they_are for stage, _ in divided.stages] == [[]]


def test_sgd_as_operations_has_its_effects() -> None:
    step = recorded(layers.Dense(8), optimizer="sgd")
    graph, batch = without_reseeds(step.graph), leaves_of((torch.from_numpy(X[:16]), torch.from_numpy(Y[:16])))
    as_operations = with_updates_as_operations(graph)
    assert add_scaled_ in [one.target for one in graph.instructions]
    assert add_scaled_ not in [one.target for one in as_operations.instructions]
    for wanted, got in zip(effects(graph, step.calls, batch), effects(as_operations, step.calls, batch), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-8)


def test_steps_are_told_from_each_other_by_what_compiles_them(monkeypatch: pytest.MonkeyPatch) -> None:
    step = segmented(_graph_of_additions())
    plain = Compilation(step)._files
    assert Compilation(step)._files == plain
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")
    # As Inductor does when it compiles or loads for the first time.
    monkeypatch.setenv("TRITON_LIBDEVICE_PATH", "elsewhere")
    assert Compilation(step)._files == plain
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    assert Compilation(step)._files != plain


def test_the_process_ends_with_whoever_started_it() -> None:
    compiled = Compilation(segmented(_graph_of_additions()))
    compiled.begin()
    process = compilation._worker()._process
    process.stdin.close()
    process.wait(300)
    assert process.returncode == 1


def test_draws_come_first_and_keep_their_order() -> None:
    step = recorded(layers.Dropout(0.2), layers.Dense(8), layers.Dropout(0.5))
    graph = without_reseeds(step.graph)
    stages = in_stages(graph)
    assert len(stages) == 1
    drawn = [one for one in graph.instructions if is_random(one.target)]
    assert [one for one in stages[0].as_they_are if is_random(one.target)] == drawn
    assert len(drawn) == 2


def test_a_draw_of_what_was_computed_divides_the_step() -> None:
    graph = Graph()
    number = graph.add_value(torch.ones(4), "input", 0)
    graph.inputs = [number]
    doubled, drawn, used = (graph.add_value(torch.ones(4), "computed", storage) for storage in (1, 2, 3))
    graph.instructions = [
        Instruction(aten.mul.Scalar, (Ref(number), 0.5), {}, doubled),
        Instruction(aten.bernoulli.default, (Ref(doubled),), {}, drawn),
        Instruction(aten.add.Tensor, (Ref(drawn), Ref(number)), {}, used),
    ]
    graph.outputs = [Ref(used)]
    (first, one), (second, other) = segmented(graph).stages
    assert (first.as_they_are, one.inputs, one.outputs) == ([], [number], [doubled])
    assert (second.as_they_are, other.inputs, other.outputs) == ([graph.instructions[1]], [number, drawn], [used])


def test_dropout_is_drawn_first_with_the_same_bits() -> None:
    graph = Graph()
    number = graph.add_value(torch.ones(64, 9), "input", 0)
    graph.inputs = [number]
    doubled, dropped, mask = (graph.add_value(torch.ones(64, 9), "computed", storage) for storage in (1, 2, 3))
    graph.instructions = [
        Instruction(aten.mul.Scalar, (Ref(number), 2.0), {}, doubled),
        Instruction(aten.native_dropout.default, (Ref(doubled), 0.3, True), {}, [dropped, mask]),
    ]
    graph.outputs = [Ref(dropped), Ref(mask)]
    early = with_early_draws(graph)
    (stage,) = in_stages(early)
    assert [one.target for one in stage.as_they_are] == [aten.native_dropout.default]
    batch = [torch.randn(64, 9)]
    for wanted, got in zip(effects(graph, Calls(), batch), effects(early, Calls(), batch), strict=True):
        assert torch.equal(wanted, got)


def test_a_draw_at_the_end_has_nothing_to_compile_after_it() -> None:
    graph = Graph()
    number = graph.add_value(torch.ones(4), "input", 0)
    graph.inputs = [number]
    halved, drawn = (graph.add_value(torch.ones(4), "computed", storage) for storage in (1, 2))
    graph.instructions = [
        Instruction(aten.mul.Scalar, (Ref(number), 0.5), {}, halved),
        Instruction(aten.bernoulli.default, (Ref(halved),), {}, drawn),
    ]
    graph.outputs = [Ref(drawn)]
    divided = segmented(graph)
    assert len(divided.parts) == 1
    whole = divided.with_compiled([lambda values: [values * 0.5]])
    batch = [torch.rand(4)]
    (wanted,), (got,) = effects(graph, Calls(), batch), effects(whole, Calls(), batch)
    assert torch.equal(wanted, got)


def test_views_do_not_pass_from_part_to_part() -> None:
    graph, variable = Graph(), torch.ones(4, 4)
    weight = graph.add_value(variable, "external", 0)
    turned = graph.add_value(variable.t(), "computed", 0)
    product, drawn, after = (graph.add_value(torch.ones(4, 4), "computed", storage) for storage in (1, 2, 3))
    graph.instructions = [
        Instruction(aten.t.default, (Ref(weight),), {}, turned),
        Instruction(aten.mm.default, (Ref(turned), Ref(weight)), {}, product),
        Instruction(aten.bernoulli.default, (Ref(product),), {}, drawn),
        Instruction(aten.mm.default, (Ref(drawn), Ref(turned)), {}, after),
        Instruction(aten.add_.Tensor, (Ref(weight), Ref(after)), {}, weight),
    ]
    (_, first), (_, second) = segmented(graph).stages
    assert (first.inputs, second.inputs) == ([weight], [weight, drawn])
    assert (first.outputs, second.outputs) == ([product], [])
    assert [one.target for one in second.instructions] == [aten.t.default, aten.mm.default, aten.add_.Tensor]


def test_memory_that_tensors_share_is_not_compiled() -> None:
    graph, variable = Graph(), torch.ones(8)
    whole = graph.add_value(variable, "external", 0)
    part = graph.add_value(variable[4:], "external", 0)
    graph.instructions = [Instruction(aten.add_.Tensor, (Ref(whole), Ref(part)), {}, whole)]
    with pytest.raises(CannotCompile, match="share"):
        segmented(graph)


def _graph_of_additions() -> Graph:
    graph = Graph()
    variable = graph.add_value(torch.ones(8), "external", 0)
    size = float(int.from_bytes(os.urandom(3), "big"))
    graph.instructions = [Instruction(aten.add_.Scalar, (Ref(variable), size), {}, variable)]
    return graph


def wait_for(happened) -> None:
    end = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.1)
