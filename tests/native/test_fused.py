"""The fused form, executed on the CPU through the shim: all steps in one kernel end where Keras ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, reject, settings

import flatout
from flatout.base.errors import Refusal
from flatout.native.fused import fused_plan as fused_module
from flatout.native.fused.fused_plan import FusedPlan, Precision, plans
from flatout.native.run.fused_runner import candidates, remember_shape
from flatout.native.staged.staged_program import staged_program

from .cases import Block, Case
from .fused_cases import OTHERS, SMALL, STACKS, Pixels, by_fused, case_of, fused_session, hidden
from .networks import fused_cases
from .parity import assert_ends_where_keras_ends, by_keras, distance

pytestmark = [pytest.mark.slow, pytest.mark.turns]
# The kernels are the same for all of them; Keras, whose results are wanted, compiles nothing on torch.
_QUICKEST = pytest.mark.backend("torch")


def _check(case: Case, launcher: Any, cluster: int | None = None) -> None:
    found = by_fused(case, launcher, cluster=cluster)
    assert_ends_where_keras_ends(case, found, at_most_elsewhere=float("inf"))


_ALWAYS = ("rescaling", "momentum", "32 units a block")


# 8 units a block, and 16.
@pytest.mark.parametrize("cluster", [4, 2])
def test_the_small_model(emulated: Any, cluster: int) -> None:
    _check(SMALL, emulated, cluster)


@pytest.mark.slow
@_QUICKEST
def test_the_reference_model(emulated: Any) -> None:
    """784-128-10 with batches of 32, in the very shape that a GPU runs: 16 blocks of 8 warps."""
    _check(
        case_of(shape=(28, 28), blocks=(Block(128, "relu", "inside", 0.0, 0.0),), batch_size=32, rows=4 * 32), emulated
    )


@_QUICKEST
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in _ALWAYS else [pytest.mark.slow]) for name in OTHERS]
)
def test_others_of_its_family(emulated: Any, name: str) -> None:
    _check(OTHERS[name], emulated, 2 if "units a block" in name else None)


@pytest.mark.slow
@_QUICKEST
@pytest.mark.timeout(600)
@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
# A row for each block, and a cluster of sixteen.
@example(case=case_of(blocks=(Block(128, "relu", "inside", 0.0, 0.0),), rows=64, shape=(20,), outputs=7))
@given(case=fused_cases())
def test_models_of_its_family_drawn_at_random(emulated: Any, case: Case) -> None:
    try:
        _check(case, emulated)
    except Refusal:
        # Too many units for the registers of so few warps: one kernel a stage takes it.
        reject()


@_QUICKEST
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "two layers" else [pytest.mark.slow]) for name in STACKS]
)
def test_several_hidden_layers(emulated: Any, name: str) -> None:
    cluster, case = STACKS[name]
    _check(case, emulated, cluster)


@_QUICKEST
def test_a_batch_is_fetched_when_the_last_is_used_up(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where shared memory holds one batch, as it does for 784 floats in batches of 32."""
    _, case = STACKS["two layers"]
    plan = _plans(case)[0]
    assert plan.buffers == 2
    monkeypatch.setattr(fused_module, "SHARED_BYTES", plan.shared_bytes - 128)
    runner = fused_session(case, emulated).fused
    assert runner is not None
    assert (runner.plan.cluster, runner.plan.buffers) == (plan.cluster, 1)
    _check(case, emulated)


@_QUICKEST
def test_pixels_are_one_plane(emulated: Any) -> None:
    case = Pixels(**{**vars(SMALL), "shape": (9, 9)})
    runner = fused_session(case, emulated).fused
    assert runner is not None
    assert runner.plan.is_raw
    assert runner.plan.planes == 1
    _check(case, emulated)


@_QUICKEST
def test_fast_precision_is_near(emulated: Any) -> None:
    expected, expected_logs = by_keras(SMALL)
    found, logs = by_fused(SMALL, emulated, precision="fast")
    in_norm, _ = distance(found[20], expected[20])["weights"]
    # Eleven bits, not twenty-two: it is another kernel that ran.
    assert 1e-7 < in_norm < 5e-3
    assert logs["loss"] == pytest.approx(expected_logs["loss"], rel=1e-3)


@pytest.mark.backend("jax")
def test_the_same_bits_every_time(emulated: Any) -> None:
    runs = [by_fused(SMALL, emulated) for _ in range(2)]
    for name, value in runs[0][0][20].items():
        np.testing.assert_array_equal(value, runs[1][0][20][name], err_msg=name)
    assert runs[0][1] == runs[1][1]


# Widths of the hidden layers; a Dense layer's number, its variable and a value in it.
_OUT_OF_RANGE = {
    "first kernel": ((32,), 0, "kernel", 300.0),
    "second kernel": ((32,), 1, "kernel", 7e4),
    "hidden units": ((32,), 0, "bias", 6e5),
    "gradient": ((32,), 1, "kernel", 3e3),
    "first units of two": ((16, 16), 0, "bias", 5e3),
    "second kernel of two": ((16, 16), 1, "kernel", 300.0),
    "second units of two": ((16, 16), 1, "bias", 6e5),
    "gradient of two": ((16, 16), 2, "kernel", 3e3),
}


@pytest.mark.backend("jax")
@pytest.mark.parametrize("kind", _OUT_OF_RANGE)
def test_numbers_out_of_range_are_left_to_the_stages(emulated: Any, kind: str) -> None:
    """The kernel notices, changes nothing, and the same steps are taken kernel by kernel."""
    # A probability of 1 would be clipped, and have no gradient.
    widths, layer, name, value = _OUT_OF_RANGE[kind]
    case = case_of(loss="sparse_logits", blocks=hidden(*widths))
    weights: list[Any] = []
    for by_one_kernel in (True, False):
        model = case.build()
        dense = [one for one in model.layers if isinstance(one, keras.layers.Dense)][layer]
        variable = getattr(dense, name)
        changed = np.array(keras.ops.convert_to_numpy(variable))
        changed[..., 0] = value
        variable.assign(changed)
        session = fused_session(case, emulated, model=model)
        if not by_one_kernel:
            session.fused = None
        session.run("train", 0, 3, case.rows)
        if by_one_kernel:
            assert session.fused is None
            assert session.form is not None
            assert "range of half precision" in session.form.message
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.backend("jax")
@pytest.mark.parametrize("problem", ["sizes", "not finite"])
def test_data_out_of_range_are_left_to_the_stages(emulated: Any, problem: str) -> None:
    session = fused_session(SMALL, emulated)
    x, y = (np.array(part) for part in SMALL.data())
    if problem == "sizes":
        x[:, 3] *= 1e-6
    else:
        x[7, 3] = np.nan
    session.bind(x, y)
    session.run("train", 0, 1, SMALL.rows)
    assert session.fused is None
    assert session.form is not None
    assert ("differ too much" if problem == "sizes" else "finite") in session.form.message


def _plans(case: Case, precision: Precision = "exact", weighted: bool = False) -> list[FusedPlan]:
    model, (x, y, *_) = case.build(), case.data()
    model._symbolic_build(data_batch=(x[:4], y[:4]))
    program = staged_program(model, "train", case.batch_size, x.dtype.name, y.dtype.name, weighted)
    return plans(program.network, case.batch_size, x.dtype.name, weighted, precision)


@pytest.mark.backend("jax")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"batch_size": 20, "rows": 400}, "batch size is 20"),
        ({"blocks": hidden(2000)}, "32 to 2000 values with a batch of 16 do not fit a cluster"),
        ({"blocks": hidden(32, 600, 600)}, "32 to 32 to 600 to 600 values with a batch of 16 do not fit a cluster"),
        ({"blocks": hidden(*[16] * 7)}, "7 hidden layers, more than 6"),
        ({"blocks": ()}, "not a chain of Dense layers"),
        ({"blocks": (Block(32, "relu", "norm", 0.0, 0.0),)}, "not a chain of Dense layers"),
        ({"blocks": (*hidden(32), Block(32, "softmax", "inside", 0.0, 0.0))}, "not a chain of Dense layers"),
        ({"blocks": (Block(32, "relu", "inside", 1e-3, 0.0),)}, "penalties"),
        ({"outputs": 17}, "17 classes"),
        ({"loss": "mse", "outputs": 3}, "sparse cross-entropy"),
        ({"optimizer": "rmsprop"}, "neither Adam nor SGD"),
        ({"optimizer": "amsgrad"}, "neither Adam nor SGD"),
        ({"optimizer": "adamw"}, "decays"),
        ({"clip": ("clipnorm", 1.0)}, "clips"),
        ({"shape": (4000,)}, "do not fit a cluster"),
    ],
)
def test_what_it_does_not_serve_has_a_reason(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Refusal) as caught:
        _plans(case_of(**changes))
    assert caught.value.reason.code == "native_form"
    assert why in caught.value.reason.message


@pytest.mark.backend("jax")
def test_the_reference_model_gets_a_cluster_of_sixteen() -> None:
    seed = case_of(shape=(28, 28), blocks=(Block(128, "relu", "inside", 0.0, 0.0),), batch_size=32)
    assert [(plan.cluster, plan.warps, plan.planes) for plan in _plans(seed)][:2] == [(16, 8, 2), (8, 8, 2)]
    assert next((plan.cluster, plan.warps, plan.planes) for plan in _plans(seed, "fast")) == (16, 12, 1)


@pytest.mark.backend("jax")
@pytest.mark.parametrize(
    ("widths", "shape", "units"),
    [
        ((128, 64), (16, 8), [8, 8]),
        ((128, 128), (16, 8), [8, 8]),
        ((256, 128), (16, 8), [16, 8]),
        ((64, 64, 64), (8, 8), [8, 8, 8]),
        ((128, 128, 128, 128), (16, 8), [8, 8, 8, 8]),
        ((100,), (16, 8), [8]),
        ((20, 10), (4, 8), [8, 8]),
    ],
)
def test_hidden_layers_get_as_many_blocks_as_the_first_fills(
    widths: tuple[int, ...], shape: tuple[int, int], units: list[int]
) -> None:
    plan = _plans(case_of(shape=(28, 28), blocks=hidden(*widths), batch_size=32))[0]
    assert (plan.cluster, plan.warps) == shape
    assert [layer.units for layer in plan.layers] == units
    assert ("hidden layers" in plan.title) == (len(widths) > 1)


@pytest.mark.parametrize(("batch_size", "form"), [(16, "one kernel, 4 blocks"), (20, "one kernel a stage")])
def test_fit_says_which_form_trained(emulated: Any, batch_size: int, form: str) -> None:
    case = case_of(rows=330)
    x, y = case.data()
    results = []
    for engine in ("native", "stock"):
        model = case.build()
        history = flatout.fit(
            model, x, y, epochs=5, batch_size=batch_size, validation_split=0.1, verbose=0, engine=engine
        )
        results.append((history.history, model.get_weights(), flatout.explain()[-1]))
    (history, weights, report), (expected, expected_weights, _) = results
    assert report.engine == "native"
    assert form in next(why.message for why in report.reasons if why.code == "native_form")
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-4, err_msg=name)
    for one, other in zip(weights, expected_weights, strict=True):
        assert np.linalg.norm(one - other) <= 1e-4 * np.linalg.norm(other) + 1e-6


@_QUICKEST
def test_the_fastest_shape_is_remembered(emulated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, (x, y) = SMALL.build(), SMALL.data()
    before = model.get_weights()
    timings = flatout.lower(model, batch_size=SMALL.batch_size).tune(x, y)
    assert len(timings) > 1
    times = [one.us_per_step for one in timings if one.us_per_step is not None]
    assert times == sorted(times)
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)
    # Whatever was the fastest in the emulation, the next session takes it; a file that is not ours does no harm.
    assert fused_session(SMALL, emulated).fused.plan == timings[0].plan
    (slowest,) = [one for one in timings if one.us_per_step == times[-1]]
    remember_shape(emulated.device_name, slowest.plan)
    assert fused_session(SMALL, emulated).fused.plan == slowest.plan
    for file in tmp_path.rglob("tuned.json"):
        file.write_text("[1, 2")
    session = fused_session(SMALL, emulated)
    assert session.fused.plan == candidates(session.launcher, session.program, "exact")[0]


@_QUICKEST
def test_a_launcher_without_clusters_takes_no_shape(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = fused_session(SMALL, emulated)
    plan = session.fused.plan
    monkeypatch.setattr(emulated, "why_no_clusters", lambda: "it has no clusters")
    with pytest.raises(Refusal, match="it has no clusters"):
        session.fuse("exact", plan)


@_QUICKEST
def test_a_model_that_no_single_kernel_serves_cannot_be_tuned(emulated: Any) -> None:
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(flatout.CannotLower, match="one kernel a stage"):
        flatout.lower(model, batch_size=8).tune(np.zeros((16, 4), "float32"), np.zeros((16, 1), "float32"))
