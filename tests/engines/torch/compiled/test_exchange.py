"""A step is compiled if what is left of the run is worth it, and told of."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from flatout.engines.torch.compiled import compilation  # noqa: E402
from flatout.engines.torch.compiled.exchange import Exchange  # noqa: E402
from flatout.engines.torch.graph.codegen import Calls, compile_graph  # noqa: E402
from flatout.engines.torch.graph.step_graph import Graph, Instruction, Ref  # noqa: E402

pytestmark = pytest.mark.backend("torch")
needs_compiler = pytest.mark.skipif(
    not (os.environ.get("CXX") or shutil.which("g++")), reason="On a CPU Inductor needs a C++ compiler"
)
aten = torch.ops.aten


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> compilation._Worker:
    made = compilation._Worker()
    monkeypatch.setattr(compilation, "_worker", lambda: made)
    return made


def counting(variable: torch.Tensor) -> Graph:
    graph = Graph()
    number = graph.add_value(variable, "external", 0)
    graph.instructions = [Instruction(aten.add_.Scalar, (Ref(number), 1.0), {}, number)]
    return graph


def test_a_short_run_is_left_alone(worker: compilation._Worker) -> None:
    exchange = Exchange(counting(torch.zeros(4)))
    assert exchange.is_due
    assert exchange.compiled(seconds_left=5.0) is None
    assert exchange.compiled(seconds_left=15.0) is None
    assert worker._process is None
    assert not exchange.is_due, "looks from time to time"
    assert exchange.reasons(None) == ()


@needs_compiler
def test_a_long_run_gets_its_compiled_step(worker: compilation._Worker) -> None:
    variable = torch.zeros(4)
    exchange = Exchange(counting(variable))
    end = time.monotonic() + 300
    while (graph := exchange.compiled(seconds_left=1000.0)) is None:
        assert not exchange.is_over, exchange.reasons(None)
        assert time.monotonic() < end
        time.sleep(0.1)
    compile_graph(graph, Calls().of)()
    assert variable.tolist() == [1.0] * 4
    exchange.succeed(1234, 2e-4)
    assert exchange.is_over
    (told,) = exchange.reasons(5e-5)
    assert told.code == "compiled_behind"
    assert "after 1,234 steps: 200 us a step before, 50 us now" in told.message
    # Another run finds it on disk, but does not load it for seconds.
    again = Exchange(counting(torch.zeros(4)))
    assert again.compiled(seconds_left=5.0) is None
    assert again._begun is None


@pytest.mark.parametrize("problem", [OSError("no room"), MemoryError("out of memory"), TypeError("not JSON")])
def test_whatever_goes_wrong_leaves_the_recorded_step(
    worker: compilation._Worker, problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(*_: object) -> None:
        raise problem

    monkeypatch.setattr(worker, "begin", begin)
    exchange = Exchange(counting(torch.zeros(4)))
    assert exchange.compiled(seconds_left=1000.0) is None
    (told,) = exchange.reasons(None)
    assert told.code == "not_compiled"
    assert str(problem) in told.message
    assert not exchange.is_due


def test_a_step_that_was_rejected_is_not_compiled_again(worker: compilation._Worker) -> None:
    graph = counting(torch.zeros(4))
    exchange = Exchange(graph)
    exchange.compiled(seconds_left=10.0)
    exchange.reject("it does something else")
    again = Exchange(graph)
    assert again.compiled(seconds_left=1000.0) is None
    assert "it does something else" in again.reasons(None)[0].message
    assert worker._process is None


def test_what_cannot_be_compiled_is_told(worker: compilation._Worker) -> None:
    variable = torch.zeros(8)
    graph = counting(variable)
    other = graph.add_value(variable[:4], "external", 0)
    graph.instructions.append(Instruction(aten.add_.Scalar, (Ref(other), 1.0), {}, other))
    exchange = Exchange(graph)
    assert exchange.compiled(seconds_left=1000.0) is None
    assert exchange.is_over
    assert [why.code for why in exchange.reasons(None)] == ["not_compiled"]
    assert worker._process is None
