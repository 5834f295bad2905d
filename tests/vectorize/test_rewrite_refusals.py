"""What must be left alone: a rewrite would be wrong, or cannot be proven."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import ops
from same_loss import assert_same_loss

import flatout
from flatout.vectorize.rewrite import rewrite_function
from flatout.vectorize.verify import trial_inputs as inputs
from flatout.vectorize.verify import verification as verify

DRAWS = keras.random.SeedGenerator(7)
SEEN: dict[int, float] = {}
COUNT = 0


def exponential_average(y_true, y_pred):
    running, total = 0.0, 0.0
    for t in range(y_pred.shape[1]):
        running = 0.9 * running + 0.1 * ops.mean(y_pred[:, t] - y_true[:, t])
        total = total + ops.square(running)
    return total


def previous_row(y_true, y_pred):
    last, total = y_pred[0], 0.0
    for i in range(y_pred.shape[0]):
        total = total + ops.sum(ops.abs(y_pred[i] - last))
        last = y_pred[i]
    return total


def edit_distance(y_true, y_pred):
    rows = []
    for b in range(y_true.shape[0]):
        table = [[0.0] * 3 for _ in range(3)]
        for i in range(1, 3):
            for j in range(1, 3):
                table[i][j] = ops.minimum(table[i - 1][j], table[i][j - 1]) + ops.abs(y_true[b, i] - y_pred[b, j])
        rows.append(table[2][2])
    return ops.mean(ops.stack(rows))


def early_exit(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        if float(y_true[i, 0]) < 0:
            break
        total = total + ops.sum(ops.square(y_pred[i]))
    return total


def first_match(y_true, y_pred):
    for i in range(y_true.shape[0]):
        if float(y_true[i, 0]) > 0:
            return ops.sum(y_pred[i])
    return ops.sum(y_pred)


def noisy(y_true, y_pred):
    rows = []
    for i in range(y_pred.shape[0]):
        noise = keras.random.normal(y_pred[i].shape, seed=DRAWS)
        rows.append(ops.mean(ops.square(y_pred[i] + noise - y_true[i])))
    return ops.mean(ops.stack(rows))


def numpy_noise(y_true, y_pred):
    return sum(ops.sum(y_pred[i]) * np.random.uniform() for i in range(y_pred.shape[0]))


def remembers(y_true, y_pred):
    rows = []
    for i in range(y_true.shape[0]):
        error = ops.sum(ops.square(y_true[i] - y_pred[i]))
        SEEN[i] = float(error)
        rows.append(error)
    return ops.mean(ops.stack(rows))


def counts(y_true, y_pred):
    global COUNT
    COUNT += 1
    return sum(ops.sum(ops.abs(y_true[i] - y_pred[i])) for i in range(y_true.shape[0])) / COUNT


def prints_rows(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        error = ops.sum(ops.abs(y_true[i] - y_pred[i]))
        print(i, error)
        total = total + error
    return total


def until_small(y_true, y_pred):
    error = ops.mean(ops.abs(y_true - y_pred))
    while float(error) > 1.0:
        error = error / 2.0
    return error


@ops.custom_gradient
def _rounded(x):
    def backward(*args, upstream=None):
        return args[0] if upstream is None else upstream

    return ops.round(x), backward


def straight_through(y_true, y_pred):
    rows = [ops.mean(ops.square(_rounded(y_pred[i]) - y_true[i])) for i in range(y_pred.shape[0])]
    return ops.mean(ops.stack(rows))


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
        (exponential_average, "FO106: 'running' is carried from one step to the next"),
        (previous_row, "FO106"),
        (edit_distance, "FO106"),
        (early_exit, "ends early"),
        (first_match, "early exit"),
        (noisy, "Random numbers are drawn"),
        (numpy_noise, "Random numbers are drawn"),
        (remembers, "An entry is changed: SEEN[i]"),
        (counts, "A variable outside the function is changed: COUNT"),
        (prints_rows, "printed or logged at every step"),
        (until_small, "while loop that does not count"),
        (straight_through, "gradient"),
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
    return verify.verify(slow, fast, recipes, "")


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


@pytest.mark.slow
def test_missing_targets_never_spoil_the_gradient() -> None:
    """NaN fails the comparison, and the loop leaves missing targets out: so must the rewrite, in the gradient too."""

    def present(y_true, y_pred):
        total = 0.0
        for i in range(y_true.shape[0]):
            if float(y_true[i]) > -100.0:
                total = total + ops.square(y_true[i] - y_pred[i])
        return total

    quick = flatout.vectorize(present)
    y_true, y_pred = np.random.default_rng(0).normal(size=(2, 5)).astype("float32")
    y_true[1] = np.nan
    assert_same_loss(quick, present, {"y_true": y_true, "y_pred": y_pred})
