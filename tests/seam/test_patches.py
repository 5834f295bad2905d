"""The registry of patches: in whatever order they come and go, Keras ends as it was, and what others put stays."""

from __future__ import annotations

import contextvars
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, get_args

import keras
import numpy as np
import pytest

import flatout
from flatout.seam import patches
from flatout.seam.patches import Patch, replaced_here
from flatout.seam.stock_methods import METHODS
from flatout.seam.trainers import trainer_base, trainer_class

Snapshot = dict[tuple[type, str], Any]
_TABLE_HOOKS = {
    (trainer_base(), "compile"),
    (trainer_base(), "_symbolic_build"),
    (trainer_base(), "compute_loss"),
    (trainer_base(), "_compute_loss"),
    (trainer_base(), "compute_metrics"),
    (trainer_base(), "_get_metrics_result_or_logs"),
    (keras.Model, "stateless_call"),
    (keras.Model, "__call__"),
}


def _snapshot() -> Snapshot:
    """Every attribute of every class that a model derives from."""
    return {(cls, name): value for cls in keras.Model.__mro__ for name, value in vars(cls).items()}


def _changed(before: Snapshot, now: Snapshot) -> set[tuple[type, str]]:
    gone = object()
    # Python itself changes these when a class changes.
    own = {"__dict__", "__weakref__", "__abstractmethods__"}
    return {
        key
        for key in before.keys() | now.keys()
        if before.get(key, gone) is not now.get(key, gone) and key[1] not in own
    }


def _undo_all() -> None:
    for owner in get_args(patches.Owner):
        patches.undo(owner)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    flatout.disable()
    _undo_all()
    before = _snapshot()
    yield
    flatout.disable()
    _undo_all()
    assert _changed(before, _snapshot()) == set()


def _make_table() -> None:
    flatout.Table({"id": np.arange(3), "value": np.arange(3.0)}, key="id")


def _make_loss() -> None:
    flatout.loss(lambda y_true, y_pred, x: keras.ops.mean(y_true - y_pred))


_ACTIONS: dict[str, Callable[[], None]] = {
    "enable": lambda: flatout.enable(),
    "vectorize": lambda: flatout.enable(vectorize=True),
    "table": _make_table,
    "loss": _make_loss,
    "disable": flatout.disable,
}


def test_in_every_order_keras_ends_as_it_was() -> None:
    fits = {(trainer_class(), name) for name in METHODS}
    before = _snapshot()
    for order in itertools.permutations(_ACTIONS):
        expected: dict[str, set[tuple[type, str]]] = {}
        for _ in range(2):
            for name in order:
                _ACTIONS[name]()
                if name == "disable":
                    expected = {owner: found for owner, found in expected.items() if owner == "tables"}
                elif name in ("table", "loss"):
                    expected["tables"] = _TABLE_HOOKS
                else:
                    expected["fits"] = fits
                    if name == "vectorize":
                        expected["vectorize"] = {(trainer_base(), "compile")}
                assert _changed(before, _snapshot()) == set().union(*expected.values()), (order, name)
        flatout.disable()
        _undo_all()
        assert _changed(before, _snapshot()) == set(), order


@pytest.mark.parametrize("first", ["table", "vectorize"])
def test_what_one_takes_away_is_not_the_others(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both wrap `compile`."""
    from flatout.tables.loss import trainer_hooks
    from flatout.vectorize import compile_hook

    heard: list[str] = []
    monkeypatch.setattr(trainer_hooks, "attach_reachable", lambda model: heard.append("tables"))
    monkeypatch.setattr(compile_hook, "vectorize", lambda loss: heard.append("vectorize") or loss)

    def compiled() -> list[str]:
        heard.clear()
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", lambda y_true, y_pred: y_true - y_pred)
        return list(heard)

    for name in (first, "table", "vectorize"):
        _ACTIONS[name]()
    assert compiled() == ["vectorize", "tables"]
    flatout.disable()
    assert compiled() == ["tables"]
    flatout.enable(vectorize=True)
    patches.undo("tables")
    assert compiled() == ["vectorize"]
    _make_table()
    assert compiled() == ["vectorize", "tables"]


def test_once_undone_the_next_table_installs_its_hooks_again() -> None:
    _make_table()
    _undo_all()
    assert not patches.is_applied("tables")
    _make_table()
    assert patches.is_applied("tables")


class _Base:
    def greet(self, name: str) -> str:
        """Greets."""
        return f"hello {name}"


class _Toy(_Base):
    def work(self, times: int = 1) -> list[str]:
        return ["work"] * times


def _saying(word: str) -> Callable[..., Any]:
    return lambda inner, this, *args, **kwargs: [word, *inner(*args, **kwargs)]


def _shout(inner: Callable[..., str], this: Any, name: str) -> str:
    return inner(name).upper()


def test_wrappers_stack_in_one_order_whoever_came_first() -> None:
    owners = ("stock methods", "tables", "vectorize")
    for order in itertools.permutations(owners):
        for owner in order:
            patches.apply(owner, [Patch(_Toy, "work", _saying(owner))])
            patches.apply(owner, [Patch(_Toy, "work", _saying("a second time"))])
        assert _Toy().work(times=2) == [*owners, "work", "work"]
        for gone, owner in enumerate(order, 1):
            patches.undo(owner)
            patches.undo(owner)
            assert _Toy().work() == [*(other for other in owners if other in order[gone:]), "work"]


def test_an_inherited_method_is_inherited_again() -> None:
    class Between:
        def greet(self, name: str) -> str:
            return f"between and {super().greet(name)}"  # type: ignore[misc]

    class Diamond(_Toy, Between, _Base):
        pass

    patches.apply("tables", [Patch(_Toy, "greet", _shout)])
    assert _Toy().greet("you") == "HELLO YOU"
    assert Diamond().greet("you") == "BETWEEN AND HELLO YOU"
    assert _Base().greet("you") == "hello you"
    assert _Toy.greet.__doc__ == "Greets."
    assert patches.beneath(_Toy, "greet") is _Base.greet
    patches.undo("tables")
    assert "greet" not in vars(_Toy)


def test_all_or_none() -> None:
    before = dict(vars(_Toy))
    with pytest.raises(AttributeError):
        patches.apply("tables", [Patch(_Toy, "work", _saying("hook")), Patch(_Toy, "no_such_method", _saying("hook"))])
    assert dict(vars(_Toy)) == before
    assert not patches.is_applied("tables")


def test_what_others_put_over_ours_stays() -> None:
    keras_own = vars(_Toy)["work"]
    patches.apply("tables", [Patch(_Toy, "work", _saying("hook"))])
    ours = _Toy.work

    def theirs(self: Any) -> list[str]:
        return ["theirs", *ours(self)]

    _Toy.work = theirs  # type: ignore[method-assign, assignment]
    assert _Toy().work() == ["theirs", "hook", "work"]
    patches.undo("tables")
    assert vars(_Toy)["work"] is theirs
    assert _Toy().work() == ["theirs", "work"]
    patches.apply("tables", [Patch(_Toy, "work", _saying("hook"))])
    assert _Toy().work() == ["hook", "theirs", "work"]
    assert patches.beneath(_Toy, "work") is theirs
    patches.undo("tables")
    assert vars(_Toy)["work"] is theirs
    # They undo as they did: by what they found.
    _Toy.work = ours  # type: ignore[method-assign]
    assert _Toy().work() == ["work"]
    assert vars(_Toy)["work"] is keras_own


def test_what_others_take_away_with_theirs_comes_back_when_asked_for() -> None:
    keras_own = vars(_Toy)["work"]
    _Toy.work = lambda self: ["theirs", *keras_own(self)]  # type: ignore[method-assign]
    patches.apply("tables", [Patch(_Toy, "work", _saying("hook"))])
    assert _Toy().work() == ["hook", "theirs", "work"]
    _Toy.work = keras_own  # type: ignore[method-assign]
    patches.undo("tables")
    patches.apply("tables", [Patch(_Toy, "work", _saying("hook"))])
    assert _Toy().work() == ["hook", "work"]
    patches.undo("tables")
    assert vars(_Toy)["work"] is keras_own


def test_a_fit_that_was_patched_while_we_were_enabled() -> None:
    """As tools do that log every training."""
    flatout.enable(force=True)
    ours, logged = trainer_class().fit, []  # type: ignore[attr-defined]

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        logged.append(kwargs)
        return ours(self, *args, **kwargs)

    # Undone before the classes are looked at, which the fixture `monkeypatch` may not be.
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(trainer_class(), "fit", fit)
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        recorded = len(flatout.explain())
        model.fit(np.ones((8, 2)), np.ones(8), verbose=0)
        assert len(flatout.explain()) == recorded + 1
        flatout.disable()
        model.fit(np.ones((8, 2)), np.ones(8), verbose=0)
        assert len(flatout.explain()) == recorded + 1
        assert len(logged) == 2


def test_calls_of_other_threads_meanwhile() -> None:
    keras_own = vars(_Toy)["work"]
    seen: set[tuple[str, ...]] = set()
    done = threading.Event()

    def call() -> None:
        while not done.is_set():
            seen.add(tuple(_Toy().work()))

    def change(owner: patches.Owner) -> None:
        for _ in range(200):
            patches.apply(owner, [Patch(_Toy, "work", _saying(owner))])
            patches.undo(owner)

    callers = [threading.Thread(target=call) for _ in range(2)]
    changers = [threading.Thread(target=change, args=(owner,)) for owner in ("tables", "vectorize")]
    for thread in (*callers, *changers):
        thread.start()
    for thread in changers:
        thread.join()
    done.set()
    for thread in callers:
        thread.join()
    assert seen <= {("work",), ("tables", "work"), ("vectorize", "work"), ("tables", "vectorize", "work")}
    assert vars(_Toy)["work"] is keras_own


class _Foreign:
    def read(self) -> str:
        return "original"


def _elsewhere(function: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_here_alone_and_nothing_is_left() -> None:
    original = vars(_Foreign)["read"]
    with replaced_here({(_Foreign, "read"): lambda self: "ours"}):
        assert _Foreign().read() == "ours"
        assert _elsewhere(lambda: _Foreign().read()) == "original"
        assert patches.beneath(_Foreign, "read") is original
        with replaced_here({(_Foreign, "read"): lambda self: "inner"}):
            assert _Foreign().read() == "inner"
        assert _Foreign().read() == "ours"
    assert vars(_Foreign)["read"] is original


def test_the_last_of_several_threads_takes_it_away() -> None:
    original = vars(_Foreign)["read"]
    barrier = threading.Barrier(4)
    seen: list[tuple[int, str]] = []

    def run(number: int) -> None:
        barrier.wait()
        for _ in range(200):
            with replaced_here({(_Foreign, "read"): lambda self: str(number)}):
                seen.append((number, _Foreign().read()))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(word == str(number) for number, word in seen)
    assert vars(_Foreign)["read"] is original


def test_after_an_error() -> None:
    original = vars(_Foreign)["read"]
    with pytest.raises(KeyError), replaced_here({(_Foreign, "read"): lambda self: "ours"}):
        raise KeyError
    assert vars(_Foreign)["read"] is original
    # What is not there cannot be replaced, and what is there is not left behind.
    with pytest.raises(KeyError), replaced_here({(_Foreign, "read"): lambda self: "", (_Foreign, "none"): lambda: ""}):
        pass
    assert vars(_Foreign)["read"] is original


@pytest.mark.backend("jax")
def test_threads_that_verify_losses_on_jax_and_one_that_only_uses_jax() -> None:
    import jax
    import jax.numpy as jnp

    from flatout.vectorize.verify.gradients import by_steps

    names = ("__array__", "__float__", "__int__", "__index__", "item", "tolist")
    before = {name: vars(jax.core.Tracer)[name] for name in names}
    may_go_on, inside = threading.Event(), threading.Barrier(3)
    rows = np.arange(4, dtype="float32")

    def loss(x: Any) -> Any:
        inside.wait(60)
        may_go_on.wait(60)
        return x * float(x[1]) + x.tolist()[2]

    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(by_steps(loss, {"x": rows}, "x")), name=str(number))
        for number in range(2)
    ]
    for thread in threads:
        thread.start()
    # Both are inside; a stranger differentiates in this thread.
    inside.wait(60)
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.grad(lambda x: x * float(x))(jnp.float32(2))
    may_go_on.set()
    for thread in threads:
        thread.join()
    for value, gradient in answers:
        np.testing.assert_array_equal(value, rows + 2)
        np.testing.assert_array_equal(gradient, np.ones(4))
    assert len(answers) == 2
    assert {name: vars(jax.core.Tracer)[name] for name in names} == before


@pytest.mark.backend("torch")
def test_threads_that_probe_losses_on_torch_and_one_that_only_uses_torch() -> None:
    import torch

    from flatout.check.probing.torch_probe import host_reads

    before = dict(vars(torch.Tensor))
    may_go_on, inside = threading.Event(), threading.Barrier(3)

    def loss(x: Any) -> Any:
        inside.wait(60)
        may_go_on.wait(60)
        return x * float(x[0]) if bool(x[1] > 0) else np.asarray(x).sum()

    answers: list[Any] = []
    values = {"x": np.ones(4, "float32")}
    threads = [threading.Thread(target=lambda: answers.append(host_reads(loss, values, {__file__}))) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(60)
    assert dict(vars(torch.Tensor)) == before
    assert torch.ones(3)[1].item() == 1.0
    may_go_on.set()
    for thread in threads:
        thread.join()
    assert [sorted(code for code, _ in reads.elements()) for reads in answers] == [["FO201", "FO202"]] * 2
    assert dict(vars(torch.Tensor)) == before


@pytest.mark.backend("torch")
def test_threads_that_record_a_step_of_torch() -> None:
    """While a step is recorded, `ops.cond` and seeds of Keras are recorded too: not those of other threads."""
    import torch
    from keras import ops
    from keras.src.backend.torch import core

    original = core.cond

    def elsewhere() -> Any:
        return ops.cond(torch.tensor(True), lambda: "yes", lambda: "no")

    with replaced_here({(core, "cond"): lambda *_: "recorded"}):
        assert core.cond(True, None, None) == "recorded"
        assert contextvars.Context().run(elsewhere) == "yes"
        assert _elsewhere(elsewhere) == "yes"
    assert core.cond is original
