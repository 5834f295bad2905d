"""Functions of foreign classes that are replaced in one context: other threads never see it, and nothing is left."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flatout.seam.local_patches import replaced_here, unpatched


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
        assert unpatched(_Foreign, "read") is original
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
