"""On jax most trials run programs that are compiled quickly; what those get wrong lets no wrong rewrite pass."""

from __future__ import annotations

from typing import Any

import pytest
from keras import ops

import flatout

pytestmark = pytest.mark.backend("jax")


def rows(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i])) * 2.0
    return total / y_true.shape[0]


def test_a_slip_in_a_quick_program_costs_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it contradicts the rewrite as `fit` compiles it, jax is asked step by step."""
    from flatout.vectorize.verify import gradients
    from flatout.vectorize.verify.trial_inputs import Recipe
    from flatout.vectorize.verify.verification import verify

    right = gradients.jax_compiled

    def slip(function: Any, arrays: Any, wrt: Any, is_quick: bool) -> Any:
        found = right(function, arrays, wrt, is_quick)
        return found if found is None or not is_quick else (1.5 * found[0], found[1])

    monkeypatch.setattr(gradients, "jax_compiled", slip)
    assert flatout.vectorize(rows).applied

    def wrong(y_true, y_pred):
        return 1.5 * ops.mean(ops.square(y_true - y_pred)) * 2.0

    recipe = Recipe((("y_true", 2), ("y_pred", 2)), {"y_true": (3,), "y_pred": (3,)}, {}, "y_pred")
    verdict = verify(rows, wrong, [recipe])
    assert not verdict.equal
    assert "the original gives" in verdict.reason


@pytest.mark.parametrize("is_even", [False, True])
def test_a_rewrite_that_cannot_be_compiled_is_rejected(is_even: bool) -> None:
    """Also where the original takes even batches alone, and so none of the adversarial inputs that are compiled."""
    import jax

    from flatout.vectorize.verify.trial_inputs import Recipe
    from flatout.vectorize.verify.verification import verify

    def original(y_true, y_pred):
        if is_even and y_true.shape[0] % 2:
            raise ValueError("pairs of samples")
        return 2.0 * ops.mean(ops.square(y_true - y_pred))

    def refuses(y_true, y_pred):
        if isinstance(y_true, jax.core.Tracer):  # As it is in a step of `fit`.
            raise TypeError("not while tracing")
        return 2.0 * ops.mean(ops.square(y_true - y_pred))

    recipe = Recipe((("y_true", 2), ("y_pred", 2)), {"y_true": (4,), "y_pred": (4,)}, {}, "y_pred")
    assert verify(original, original, [recipe]).equal
    verdict = verify(original, refuses, [recipe])
    assert not verdict.equal
    assert "not while tracing" in verdict.reason
    assert "batch of 2" in verdict.compared


def test_every_kind_of_input_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that come when verifying has taken long."""
    import jax

    from flatout.vectorize.verify import verification
    from flatout.vectorize.verify.trial_inputs import Recipe

    monkeypatch.setattr(verification, "_LONG", -1.0)

    def original(y_true, y_pred):
        return 2.0 * ops.mean(ops.square(ops.cast(y_true, "float32")[:, None] - y_pred))

    def refuses(y_true, y_pred):
        if isinstance(y_true, jax.core.Tracer) and "int" in str(y_true.dtype):
            raise TypeError("a value of the data is asked for")
        return original(y_true, y_pred)

    kinds = [
        Recipe(
            (("y_true", 1), ("y_pred", 2)), {"y_true": (), "y_pred": (3,)}, {"y_true": (0.0, 1.0)}, "y_pred", as_float=f
        )
        for f in (True, False)
    ]
    verdict = verification.verify(original, refuses, kinds)
    assert not verdict.equal
    assert "cannot be compiled" in verdict.reason
