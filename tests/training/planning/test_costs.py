"""The planner counts seconds: what a step saves, and what starting costs more than stock Keras does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.engines.select import engine_for
from flatout.training.planning import call_facts
from flatout.training.planning.call_facts import plan_call
from flatout.training.planning.costs import Costs, Side, estimate, one_kernel_saves
from flatout.training.planning.known_programs import is_known, note

BACKENDS = ("jax", "tensorflow", "torch")
NEW, READY, ON_DISK = Side(), Side(is_ready=True), Side(is_on_disk=True)


def _costs(backend: str = "jax", on_gpu: bool = False, number: int = 4, stock: Side = NEW, own: Side = NEW) -> Costs:
    return estimate(backend, on_gpu, True, number, False, stock, own)


def _break_even(costs: Costs) -> float:
    return costs.more_to_start / costs.saved_by_step


@pytest.mark.parametrize(("backend", "on_gpu"), list(itertools.product(BACKENDS, [False, True])))
def test_a_small_network_breaks_even_after_some_dozens_or_hundreds_of_steps(backend: str, on_gpu: bool) -> None:
    assert 20 < _break_even(_costs(backend, on_gpu)) < 1000


@pytest.mark.parametrize(("backend", "on_gpu"), list(itertools.product(BACKENDS, [False, True])))
def test_what_is_compiled_in_this_process_costs_nothing(backend: str, on_gpu: bool) -> None:
    new = _costs(backend, on_gpu)
    assert _costs(backend, on_gpu, own=READY).own_start == 0
    assert _costs(backend, on_gpu, own=READY).saved_by(1) > 0
    # Stock Keras has paid already, and the engine would have to.
    assert _costs(backend, on_gpu, stock=READY).more_to_start == new.own_start


def test_a_program_on_disk_need_only_be_traced() -> None:
    assert _costs(own=ON_DISK).more_to_start < _costs().more_to_start < _costs(stock=ON_DISK).more_to_start
    # Whichever side ran first is not left for that in the next process.
    assert _costs(own=ON_DISK).saved_by(1) > _costs().saved_by(1)
    assert _costs(stock=ON_DISK).saved_by(1) < _costs().saved_by(1)


def test_deep_models_and_several_programs_take_longer_to_start() -> None:
    assert _costs(number=40).more_to_start > _costs(number=4).more_to_start
    assert _costs(own=Side(programs=2)).more_to_start > _costs().more_to_start


@pytest.mark.parametrize("steps", [1, 12])
def test_a_few_steps_of_a_model_that_keras_leaves_uncompiled_are_worth_compiling(steps: int) -> None:
    uncompiled = estimate("jax", True, True, 30, True, NEW, NEW)
    compiled = estimate("jax", True, True, 30, False, NEW, NEW)
    assert uncompiled.saved_by(steps) > 0 > compiled.saved_by(steps)


def test_one_kernel_pays_sooner_where_the_engine_it_replaces_is_slower_and_where_it_is_on_disk() -> None:
    costs = {backend: _costs(backend, True) for backend in ("jax", "torch")}
    assert (
        one_kernel_saves("jax", 100, 4, costs["jax"], False)
        < 0
        < one_kernel_saves("jax", 10**5, 4, costs["jax"], False)
    )
    assert one_kernel_saves("jax", 100, 4, costs["jax"], True) > one_kernel_saves("jax", 100, 4, costs["jax"], False)
    assert one_kernel_saves("torch", 10**4, 4, costs["torch"], False) > one_kernel_saves(
        "jax", 10**4, 4, costs["jax"], False
    )
    assert one_kernel_saves("tensorflow", 10**6, 4, costs["jax"], False) < 10


def _model() -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([layers.Input((6,)), layers.Dense(4), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


X, Y = np.ones((64, 6), "float32"), np.ones((64, 1), "float32")


def _plan(model: Any, rows: int = 64, **arguments: Any) -> flatout.Plan:
    return flatout.plan(model, X[:rows], Y[:rows], **arguments)


def test_a_short_fit_runs_on_what_a_long_one_has_compiled() -> None:
    model = _model()
    assert [why.code for why in _plan(model).reasons] == ["small"]
    flatout.fit(model, np.tile(X, (400, 1)), np.tile(Y, (400, 1)), batch_size=16, verbose=0)
    assert flatout.explain()[-1].accelerated
    assert _plan(model).accelerated
    # What is compiled belongs to Keras' own function, which `compile` replaces.
    model.compile("sgd", "mse")
    assert not _plan(model).accelerated


def test_what_stock_keras_has_compiled_counts_for_it() -> None:
    model = _model()
    before = _plan(model).facts.costs
    flatout.fit(model, X, Y, verbose=0)
    assert not flatout.explain()[-1].accelerated
    after = _plan(model).facts.costs
    assert before is not None
    assert after is not None
    assert after.stock_start == 0
    assert after.more_to_start >= before.more_to_start


@pytest.mark.backend("jax")
def test_the_next_process_knows_which_programs_are_on_disk(programs_are_known: None) -> None:
    cold = _plan(_model()).facts
    with flatout.options(force=True):
        flatout.fit(_model(), X, Y, verbose=0)
    # Another model of the same kind stands for one in another process: it has nothing compiled itself.
    warm = _plan(_model()).facts
    assert cold.program == warm.program
    assert is_known(warm.program, "jax")
    assert not is_known(warm.program, "stock")
    assert cold.costs is not None
    assert warm.costs is not None
    assert warm.costs.own_start < cold.costs.own_start
    assert _plan(_model(), 32).facts.program != warm.program
    note(warm.program, "stock")
    assert is_known(warm.program, "stock")


def _batches(steps: int) -> Iterator[Any]:
    for _ in range(steps):
        yield X, Y


@pytest.mark.backend("jax")
def test_a_generator_whose_steps_do_not_repay_several_programs_is_left_to_stock_keras() -> None:
    """600 steps of a small network took twice as long as with stock Keras: chunks of each length were compiled."""
    model = _model()
    flatout.fit(model, _batches(600), steps_per_epoch=600, verbose=0)
    report = flatout.explain()[-1]
    assert (report.accelerated, [why.code for why in report.reasons]) == (False, ["small"])
    assert flatout.plan(model, _batches(1), steps_per_epoch=100_000).accelerated


def test_a_call_that_is_left_to_stock_keras_does_not_ask_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `predict` in a loop took four times as long as with stock Keras, half of it for that."""
    asked: list[str] = []
    monkeypatch.setattr(call_facts, "available_memory", lambda: asked.append("host"))
    monkeypatch.setattr(type(engine_for(keras.config.backend())), "free_memory", lambda _: asked.append("device"))
    assert not _plan(_model()).accelerated
    assert not asked
    with flatout.options(force=True):
        assert _plan(_model()).accelerated
    assert sorted(asked) == ["device", "host"]


@pytest.mark.backend("tensorflow")
def test_what_the_step_of_stock_keras_reads_itself_is_left_to_it() -> None:
    """310 steps from a tf.data pipeline took 3.3 s instead of 2.0 on two cores."""
    import tensorflow as tf

    model, data = _model(), tf.data.Dataset.from_tensors((X, Y)).repeat()
    why = flatout.plan(model, data, steps_per_epoch=100_000).reasons
    assert [one.code for one in why] == ["nothing_to_save"]
    flatout.fit(model, data, steps_per_epoch=2, verbose=0)
    assert not flatout.explain()[-1].accelerated
    for wish in ({"force": True}, {"strict": True}, {"precision": "fast"}, {"engine": "tensorflow"}):
        with flatout.options(**wish):
            assert flatout.plan(model, data, steps_per_epoch=100_000).accelerated
    assert flatout.plan(model, data.map(lambda x, y: x), method="predict", steps=100_000).accelerated


@pytest.mark.backend("jax")
def test_an_uncompiled_model_is_compiled_for_a_few_steps() -> None:
    model = keras.Sequential([layers.Input((8, 8, 3)), layers.RandomRotation(0.1), layers.Flatten(), layers.Dense(1)])
    model.compile("sgd", "mse")
    assert not model.jit_compile
    call = {"x": np.ones((32, 8, 8, 3), "float32"), "y": np.ones((32, 1), "float32"), "epochs": 4}
    with flatout.options(precision="fast") as wishes:
        plan, _ = plan_call("fit", model, call, wishes)
    assert plan.accelerated
    assert plan.facts.steps == 4
