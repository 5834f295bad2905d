"""Running totals become prefix sums; every other value that a loop carries from step to step is refused."""

from __future__ import annotations

import pytest
from keras import ops
from same_loss import assert_same_loss

import flatout
from flatout.vectorize.verify import trial_inputs as inputs

pytestmark = pytest.mark.slow


def earth_movers(y_true, y_pred):
    ahead, total = 0.0, 0.0
    for k in range(y_pred.shape[1]):
        ahead = ahead + y_true[:, k] - y_pred[:, k]
        total = total + ops.mean(ops.abs(ahead))
    return total


def ranked_probability(y_true, y_pred):
    score = 0.0
    for i in range(y_true.shape[0]):
        truth = guess = 0.0
        for k in range(y_true.shape[1]):
            truth += y_true[i, k]
            guess += y_pred[i, k]
            score += ops.square(truth - guess)
    return score / y_true.shape[0]


def drawdown(y_true, y_pred):
    wealth = ops.ones_like(y_pred[:, 0])
    total = 0.0
    for t in range(y_pred.shape[1]):
        wealth = wealth * (1.5 + ops.tanh(y_pred[:, t] * y_true[:, t]))
        total = total - ops.mean(ops.log(wealth))
    return total + ops.mean(wealth)


@pytest.mark.turns
@pytest.mark.parametrize(
    ("loss", "function"), [(earth_movers, "cumsum"), (ranked_probability, "cumsum"), (drawdown, "cumprod")]
)
def test_becomes_a_prefix_sum_and_is_equal(loss, function: str) -> None:
    quick = flatout.vectorize(loss)
    assert quick.applied, f"{quick.reason}\n{quick.source}"
    assert f"ops.{function}(" in quick.source
    recipe = quick._answer().recipe
    for batch in (1, 6):
        assert_same_loss(quick, loss, inputs.ordinary(recipe, batch, seed=3), compiled=True)


def read_before_it_changes(y_true, y_pred):
    level, total = 0.0, 0.0
    for t in range(y_pred.shape[1]):
        total = total + ops.mean(level * y_true[:, t])
        level = level + y_pred[:, t]
    return total


def changed_twice(y_true, y_pred):
    level, total = 0.0, 0.0
    for t in range(y_pred.shape[1]):
        level = level + y_pred[:, t]
        level = level * 0.5
        total = total + ops.mean(level * y_true[:, t])
    return total


def changed_sometimes(y_true, y_pred):
    level, total = 0.0, 0.0
    for i in range(y_pred.shape[0]):
        if float(y_true[i, 0]) > 0:
            level = level + ops.sum(y_pred[i])
        total = total + level
    return total


def feeds_itself(y_true, y_pred):
    level, total = 0.0, 0.0
    for t in range(y_pred.shape[1]):
        level = level + ops.tanh(level) * y_pred[:, t]
        total = total + ops.mean(level * y_true[:, t])
    return total


@pytest.mark.backend("torch")
@pytest.mark.parametrize("loss", [read_before_it_changes, changed_twice, changed_sometimes, feeds_itself])
def test_what_is_no_plain_running_total_is_refused(loss) -> None:
    quick = flatout.vectorize(loss)
    assert not quick.applied, quick.source
    assert quick.reason.startswith("FO106"), quick.reason
