"""What NumPy makes of a traced program in a proof is what XLA makes of it; a slip lets no wrong rewrite pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

import flatout

pytestmark = pytest.mark.backend("jax")

_RNG = np.random.default_rng(0)
_PLAIN = _RNG.normal(size=(3, 4)).astype("float32")
_SPOILT = np.array([[0.0, -0.0, np.nan, 1.5], [np.inf, -np.inf, 2.5, -2.5], [1.0, 1.0, -1.0, 0.5]], "float32")
_WHOLE = np.array([[0, 3, -2, 7], [5, 5, -7, 1], [2, 0, 1, -1]], "int32")
_TRUTHS = np.array([[True, False, True, True], [False] * 4, [True] * 4])


def _cases() -> dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]]:
    import jax
    import jax.numpy as jnp
    from jax import lax

    x, nan, whole, truths = _PLAIN, _SPOILT, _WHOLE, _TRUTHS
    ties = np.array([[1, 1, 0, 2], [0, 0, 0, 0], [3, 2, 2, 3]], "float32")
    place, twice, beyond = (np.array(one, "int32") for one in ([2, 0, -1, 1], [1, 1, 7], [5, -9, 1]))
    many: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {}
    for name in ("abs", "sqrt", "exp", "expm1", "log", "log1p", "tanh", "sin", "cos", "tan", "sign", "floor", "ceil",
                 "square", "exp2", "arctan", "arcsinh", "sinh", "cosh", "isfinite", "isnan", "rint"):  # fmt: skip
        many[name] = lambda a, b, name=name: (getattr(jnp, name)(a), getattr(jnp, name)(b)), (nan, x)
    for name in ("arcsin", "arccos", "arctanh"):
        many[name] = getattr(jnp, name), (np.clip(x, -0.9, 0.9),)
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "arctan2", "fmod", "equal",
                 "less", "greater_equal", "not_equal", "heaviside", "hypot", "logaddexp", "floor_divide"):  # fmt: skip
        many[name] = getattr(jnp, name), (nan, x)
    for name in ("sum", "mean", "max", "min", "prod", "argmax", "argmin", "cumsum", "cumprod", "std", "median",
                 "nansum", "nanmean", "nanmax", "sort", "argsort"):  # fmt: skip
        many[name] = (
            lambda a, b, name=name: (getattr(jnp, name)(a, axis=-1), getattr(jnp, name)(b, axis=0)),
            (nan, ties),
        )
    many |= {
        "erf": (jax.scipy.special.erf, (x,)),
        "logistic": (jax.nn.sigmoid, (nan,)),
        "rsqrt": (lax.rsqrt, (nan,)),
        "softmax": (jax.nn.softmax, (x,)),
        "logsumexp": (lambda a: jax.nn.logsumexp(a, -1), (nan,)),
        "integer power": (lambda a: (a**3, a**-2, a**0), (nan,)),
        "power of a negative": (lambda a: jnp.power(a, 0.5), (x,)),
        "rounded away from zero": (lambda a: lax.round(a, lax.RoundingMethod.AWAY_FROM_ZERO), (nan,)),
        "clip": (lambda a: jnp.clip(a, -0.5, 0.5), (nan,)),
        "integers divided": (lambda a: (a // 3, a % 3, lax.div(a, jnp.int32(3)), lax.rem(a, jnp.int32(-3))), (whole,)),
        "to integers": (lambda a: a.astype("int32"), (np.array([1.9, -1.9, np.nan, np.inf, -np.inf, 3e9], "float32"),)),
        "to unsigned": (lambda a: a.astype("uint8"), (np.array([1.9, -1.9, np.nan, 300.0], "float32"),)),
        "to truths": (lambda a: a.astype(bool), (nan,)),
        "truths": (lambda a, b: (a & b, a | b, ~a, a ^ b, a.all(0), a.any(-1)), (truths, ~truths)),
        "bits": (lambda a: (a & 3, a | 8, ~a, a ^ 5), (whole,)),
        "choice": (lambda a, b, c: jnp.where(a, b, c), (truths, x, nan)),
        "choice of three": (lambda a, b: lax.select_n(jnp.clip(a, 0, 2), b, 2 * b, 3 * b), (whole, x)),
        "shapes": (lambda a: (a.T, a.reshape(2, 6), a[:, None], a.ravel(), jnp.broadcast_to(a, (2, 3, 4))), (x,)),
        "slices": (lambda a: (a[1:, ::2], a[::-1], a[-1], a[:, 1], a[1:1]), (x,)),
        "lists": (lambda a, b: (jnp.concatenate([a, b]), jnp.stack([a, b], 1), jnp.split(a, 2, -1), list(a)), (x, nan)),
        "padding": (lambda a: lax.pad(a, jnp.float32(9), [(1, -1, 2), (-2, 3, 0)]), (x,)),
        "a slice from a place": (lambda a, i: lax.dynamic_slice(a, (i, i), (2, 2)), (x, np.int32(2))),
        "an update at a place": (lambda a, i: lax.dynamic_update_slice(a, a[:2, :2], (i, -i)), (x, np.int32(2))),
        "running, backwards": (lambda a: (lax.cumsum(a, 1, True), lax.cummax(a, 0), lax.cummin(a, 1, True)), (x,)),
        "dot": (lambda a, b: (a @ b.T, jnp.einsum("ij,kj->ki", a, b), jnp.tensordot(a, b, 2), a[0] @ b[1]), (x, 2 * x)),
        "batched dot": (lambda a: jnp.einsum("bij,bjk->bik", a, a), (_RNG.normal(size=(2, 3, 3)).astype("float32"),)),
        "counted": (lambda a: a * jnp.arange(4.0) + lax.broadcasted_iota("float32", (3, 4), 0), (x,)),
        "sorted by a key": (lambda a, b: lax.sort((a, b), dimension=1, num_keys=1, is_stable=True), (ties, x)),
        "sorted by two": (lambda a, b: lax.sort((a, b, a * b), dimension=0, num_keys=2), (ties, x)),
        "rows of an index": (lambda a, i: (a[i], a[i, i], a[:, i], a[:, i[0]]), (x, place)),
        "entries beside": (lambda a, i: jnp.take_along_axis(a, jnp.clip(i, 0, 3), 1), (x, _WHOLE)),
        "out of range": (lambda a, i: (jnp.take(a, i, 0), a.at[i].get(mode="clip")), (x, beyond)),
        "integers out of range": (lambda a, i: jnp.take(a, i, 0), (whole, beyond)),
        "set": (lambda a, i: (a.at[i].set(9.0), a.at[0].set(a[1]), a.at[:, 1].add(1.0)), (x, place[:2])),
        "added to": (lambda a, i: (a.at[i].add(a), a.at[i].max(0.0), a.at[i].multiply(2.0)), (x, twice)),
        "sums of groups": (lambda a, i: jax.ops.segment_sum(a, i, 4), (x, np.array([3, 0, 3], "int32"))),
        "norm": (lambda a: jax.grad(lambda b: jnp.linalg.norm(b))(a), (x,)),
        "largest at ties": (lambda a: jax.grad(lambda b: b.max(-1).sum())(a), (ties,)),
        "gradient of a gather": (lambda a, i: jax.grad(lambda b: (b[i] ** 2).sum())(a), (x, twice[:2])),
        "gradient of a sort": (lambda a: jax.grad(lambda b: (jnp.sort(b) * b).sum())(a), (ties,)),
        "gradient of all": (lambda a: jax.grad(lambda b: jnp.log(jax.nn.softmax(b)[:, 1:]).cumsum(1).std())(a), (x,)),
    }  # fmt: skip
    return many


@pytest.mark.parametrize("name", list(_cases()) if __import__("keras").backend.backend() == "jax" else ())
def test_numpy_gives_what_xla_gives(name: str) -> None:
    import jax

    from flatout.vectorize.verify import jaxpr_on_host

    function, arrays = _cases()[name]
    traced = jax.jit(function).trace(*arrays)
    assert jaxpr_on_host.is_known(traced.jaxpr), traced.jaxpr
    wanted = jax.tree.leaves(traced.lower().compile()(*arrays))
    found = jaxpr_on_host.run(traced.jaxpr, arrays)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_windows_that_are_gathered_and_scattered(data: st.DataObject) -> None:
    import jax
    from jax import lax

    from flatout.vectorize.verify import jaxpr_on_host

    shape = data.draw(st.tuples(*[st.integers(1, 4)] * 3))
    sizes = tuple(data.draw(st.integers(1, size)) for size in shape)
    mapped = data.draw(st.permutations(range(3)))[: data.draw(st.integers(1, 3))]
    collapsed = tuple(axis for axis in range(3) if sizes[axis] == 1 and data.draw(st.booleans()))
    batch = data.draw(st.sampled_from([(2,), (2, 3)]))
    rank = len(batch) + 3 - len(collapsed)
    offsets = tuple(sorted(data.draw(st.permutations(range(rank)))[: 3 - len(collapsed)]))
    seed = data.draw(st.integers(0, 99))
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape).astype("float32")
    indices = rng.integers(-2, 5, (*batch, len(mapped))).astype("int32")
    mode = data.draw(st.sampled_from(["clip", "fill"]))
    numbers = lax.GatherDimensionNumbers(offsets, collapsed, tuple(mapped))

    def gather(x: Any, indices: Any) -> Any:
        return lax.gather(x, indices, numbers, sizes, mode=mode)

    def both(x: Any, indices: Any) -> Any:
        return gather(x, indices), jax.grad(lambda x: (gather(x, indices) ** 2).sum())(x)

    traced = jax.jit(both).trace(x, indices)
    found = jaxpr_on_host.run(traced.jaxpr, [x, indices])
    for one, other in zip(found, traced.lower().compile()(x, indices), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_an_unknown_operation_or_type_is_left_to_jax() -> None:
    import jax
    import jax.numpy as jnp

    from flatout.vectorize.verify.jaxpr_on_host import is_known

    def scanned(a: Any) -> Any:
        return jax.lax.scan(lambda total, one: (total + one, total), a[0], a)

    assert not is_known(jax.make_jaxpr(scanned)(_PLAIN))
    assert not is_known(jax.make_jaxpr(lambda a: a.astype("bfloat16") * 2)(_PLAIN))
    assert not is_known(jax.make_jaxpr(lambda a: jax.jit(lambda b: jnp.linalg.qr(b)[0])(a))(_PLAIN))


def test_where_numpy_differs_it_does_not_answer() -> None:
    import jax

    from flatout.vectorize.verify import jaxpr_on_host
    from flatout.vectorize.verify.gathers_on_host import CannotRun

    zeros = np.zeros(3, "int32")
    for function in (lambda a: jax.lax.div(a, a), lambda a: jax.lax.rem(a, a), lambda a: a.at[a].set(a)):
        with pytest.raises(CannotRun):
            jaxpr_on_host.run(jax.jit(function).trace(zeros).jaxpr, [zeros])


def rows(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i])) * 2.0
    return total / y_true.shape[0]


def test_one_program_is_compiled_for_a_proof() -> None:
    """One for the adversarial inputs: none for the original, none for other lengths of the batch."""
    import jax

    seen: list[str] = []

    def listen(event: str, duration: float, **details: Any) -> None:
        seen.append(event.rpartition("/")[2])

    ops.sum(ops.convert_to_tensor(_PLAIN))  # Whatever jax does at first.
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        assert flatout.vectorize(rows).applied
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert seen.count("backend_compile_duration") == 1


@pytest.mark.parametrize("primitive", ["mul", "reduce_sum"])
def test_a_slip_in_numpy_costs_time_only(primitive: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where NumPy contradicts compiled code, jax itself is asked: a right rewrite is proven, a wrong one is not."""
    from flatout.vectorize.verify import jax_programs, primitives_on_host
    from flatout.vectorize.verify.trial_inputs import Recipe
    from flatout.vectorize.verify.verification import verify

    right = primitives_on_host.OPERATIONS[primitive]
    jax_programs._traced.cache_clear()
    monkeypatch.setitem(primitives_on_host.OPERATIONS, primitive, lambda *given: 1.5 * right(*given))  # type: ignore[arg-type]
    assert flatout.vectorize(rows).applied

    def wrong(y_true, y_pred):
        return 1.5 * ops.mean(ops.square(y_true - y_pred)) * 2.0

    recipe = Recipe((("y_true", 2), ("y_pred", 2)), {"y_true": (3,), "y_pred": (3,)}, {}, "y_pred")
    jax_programs._traced.cache_clear()
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
