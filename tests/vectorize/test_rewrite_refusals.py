"""What must be left alone: a rewrite would be wrong, or cannot be verified."""

from __future__ import annotations

import numpy as np
import pytest
from keras import ops

import flatout
from flatout.vectorize.rewrite import rewrite_function
from flatout.vectorize.verify import trial_inputs as inputs
from flatout.vectorize.verify import verification as verify

from .losses import refused_carried, refused_effects, refused_ends


def several_outputs(y_true, y_pred):
    total = 0.0
    for weight, image in zip([1.0, 0.5, 0.25], y_pred):  # noqa: B905
        small = ops.image.resize(y_true, (image.shape[1], image.shape[2]))
        total = total + weight * ops.mean(ops.square(small - image))
    return total


def unknown_library(y_true, y_pred):
    from scipy.stats import rankdata

    return ops.mean(ops.convert_to_tensor(rankdata(ops.convert_to_numpy(y_pred)))) + ops.mean(y_pred)


def plain(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (refused_carried.moving_average_loss, "FO106: 'smooth' is carried from one step to the next"),
        (refused_ends.first_bad_loss, "ends early"),
        (refused_ends.returns_early_loss, "early exit"),
        (refused_ends.newton_loss, "while loop that does not count"),
        (refused_effects.dropped_rows_loss, "Random numbers are drawn (keras.random.uniform)"),
        (refused_effects.numpy_noise_loss, "Random numbers are drawn (numpy.random.normal)"),
        (refused_effects.writes_dict_loss, "An entry is changed: COUNTS_OF_CALLS['n']"),
        (refused_effects.counted_loss, "A variable outside the function is changed: CALLS"),
        (refused_effects.shown_loss, "printed or logged at every step"),
        (refused_effects.own_slope_loss, "gradient that the user defined"),
        (several_outputs, "FO101"),
        (unknown_library, "FO205"),
        (plain, "nothing to rewrite"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_is_left_alone(function, reason: str) -> None:
    quick = flatout.vectorize(function)
    assert not quick.applied
    assert reason in quick.reason


def distances(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        for j in range(i + 1, y_pred.shape[0]):
            total = total + ops.sqrt(ops.sum(ops.square(y_pred[i] - y_pred[j])))
    return total


def naive_distances(y_true, y_pred):
    """The right value, and NaN gradients because of the diagonal."""
    distance = ops.sqrt(ops.sum(ops.square(y_pred[:, None] - y_pred[None]), axis=-1))
    index = ops.arange(y_pred.shape[0])
    return ops.sum(ops.where(index[:, None] < index[None], distance, 0.0))


def _verdict(slow, fast, ranks=None):
    recipes = verify.find_recipes(slow, ranks or {"y_true": 2, "y_pred": 2}, "y_pred")
    return verify.verify(slow, fast, recipes)


@pytest.mark.slow
def test_a_nan_gradient_is_rejected() -> None:
    verdict = _verdict(distances, naive_distances)
    assert not verdict.equal
    assert "gradient" in verdict.reason
    ours = rewrite_function(distances, {"y_true": 2, "y_pred": 2})
    assert "ops.sqrt(ops.where(" in ours.source
    assert flatout.vectorize(distances).applied


def test_another_value_shape_or_gradient_is_rejected() -> None:
    def halved(y_true, y_pred):
        return plain(y_true, y_pred) * 0.5

    def stopped(y_true, y_pred):
        return plain(ops.stop_gradient(y_pred), y_true)

    def per_row(y_true, y_pred):
        return ops.mean(ops.square(y_true - y_pred), axis=-1)

    def ignores_nan(y_true, y_pred):
        return ops.mean(ops.square(y_true - ops.where(ops.isnan(y_pred), 0.0, y_pred)))

    def wrong_for_one(y_true, y_pred):
        return plain(y_true, y_pred) + (1.0 if y_true.shape[0] == 1 else 0.0)

    assert _verdict(plain, plain).equal
    assert "the original gives" in _verdict(plain, halved).reason
    assert "gradient" in _verdict(plain, stopped).reason
    assert "shape" in _verdict(plain, per_row).reason
    assert "NaN in the predictions" in _verdict(plain, ignores_nan).reason
    assert "batch of 1" in _verdict(plain, wrong_for_one).reason


def test_inputs_cover_empty_groups_ties_and_nan() -> None:
    recipe = inputs.Recipe(
        (("y_true", 1), ("y_pred", 2)), {"y_true": (), "y_pred": (3,)}, {"y_true": (0.0, 2.0)}, "y_pred"
    )
    made = {name: arrays for name, arrays, _ in inputs.adversarial(recipe, 4)}
    assert set(made["y_true all 0: empty groups"]["y_true"]) == {0}
    assert np.isnan(made["NaN in the predictions"]["y_pred"]).sum() == 1
    assert len(np.unique(made["equal rows"]["y_pred"], axis=0)) == 1
    assert not made["zero predictions"]["y_pred"].any()
