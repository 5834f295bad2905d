"""Refused: what one step does depends on the ones before."""

import functools

import keras
from keras import ops


def moving_average_loss(y_true, y_pred):  # refused: FO106
    smooth = y_pred[:, 0]
    total = ops.mean(ops.square(smooth - y_true[:, 0]))
    for t in range(1, y_pred.shape[1]):
        smooth = 0.8 * smooth + 0.2 * y_pred[:, t]
        total = total + ops.mean(ops.square(smooth - y_true[:, t]))
    return total


def previous_error_loss(y_true, y_pred):  # refused: FO106
    last = 0.0
    total = 0.0
    for i in range(y_pred.shape[0]):
        error = ops.mean(ops.square(y_true[i] - y_pred[i])) + 0.5 * last * last
        total = total + error
        last = error
    return total


def survival_loss(y_true, y_pred):  # refused: FO106
    alive = ops.ones_like(y_pred[:, 0])
    total = 0.0
    for t in range(y_pred.shape[1]):
        total = total + ops.mean(y_true[:, t] * alive * y_pred[:, t])
        alive = ops.sin(alive * (1.0 - y_pred[:, t]))
    return total


def fibonacci_like_loss(y_true, y_pred):  # refused: FO106
    a, b = y_pred[:, 0], y_true[:, 0]
    for t in range(1, y_pred.shape[1]):
        a, b = b, 0.5 * (a + b) * y_pred[:, t]
    return ops.mean(b)


def longest_run_metric(y_true, y_pred):  # refused: FO106
    best = run = 0
    for i in range(y_pred.shape[0]):
        run = run + 1 if float(y_pred[i]) > float(y_true[i]) else 0
        best = max(best, run)
    return float(best)


def ema_while_loss(y_true, y_pred):  # refused: FO106
    t, s, total = 0, 0.0, 0.0
    while t < y_pred.shape[1]:
        s = 0.9 * s + 0.1 * ops.tanh(y_pred[:, t])
        total = total + ops.mean(ops.square(s - y_true[:, t]) * s)
        t += 1
    return total


def helper_step(h, x):
    return ops.tanh(h + x)


def carried_through_helper_loss(y_true, y_pred):  # refused: FO106
    h = ops.zeros_like(y_pred[:, 0])
    for t in range(y_pred.shape[1]):
        h = helper_step(h, y_pred[:, t])
    return ops.mean(ops.square(h - y_true[:, -1]))


def reduce_recurrence_loss(y_true, y_pred):  # refused: FO106 FO101 FO102
    h = functools.reduce(lambda s, t: ops.tanh(s + y_pred[:, t]), range(y_pred.shape[1]), ops.zeros_like(y_pred[:, 0]))
    return ops.mean(h * y_true[:, 0])


def kalman_loss(y_true, y_pred):  # refused: FO106
    x, p, nll = y_pred[:, 0], 1.0, 0.0
    for t in range(1, y_pred.shape[1]):
        p = p + 0.1
        k = p / (p + 0.5)
        x = x + k * (y_true[:, t] - x)
        p = (1 - k) * p
        nll = nll + ops.mean(ops.square(x - y_pred[:, t]))
    return nll


def running_best(y_true, y_pred):  # refused: FO106 FO101 FO102 FO107 FO303
    best, total = 0.0, 0.0
    for i in range(len(y_true)):
        best = ops.maximum(0.9 * best, ops.abs(y_true[i] - y_pred[i]))
        total = total + best
    return total


def scan_recurrence(y_true, y_pred):  # refused: FO106 FO101 FO102 FO107 FO303
    def body(h, x):
        h = ops.tanh(0.5 * h + ops.mean(x))
        return h, h

    _, hs = ops.scan(body, ops.zeros(()), y_pred)
    return ops.mean(hs)


def shared_iterator(y_true, y_pred):  # refused: FO106 FO101 FO102 FO107 FO303
    it = iter(y_pred)
    total = 0.0
    for t in y_true:
        total = total + ops.square(t - next(it))
    return total


def argbest(y_true, y_pred):  # refused: FO106 FO101 FO102 FO107 FO303
    best, at = None, 0
    for i in range(len(y_true)):
        if best is None or float(y_true[i]) > best:
            best = float(y_true[i])
            at = i
    return ops.square(y_pred[at])


def steady_branch(y_true, y_pred):  # refused: FO106 FO101 FO102 FO107 FO303
    n, total = 0, 0.0
    for i in range(len(y_true)):
        if float(y_true[i]) > 0:
            n += 1
            total = total + y_pred[i] / n
    return total


def viterbi_loss(y_true, y_pred):  # refused: FO106 FO102 FO101
    score = y_pred[:, 0]
    for t in range(1, y_pred.shape[1]):
        best = ops.max(score[:, :, None] + y_pred[:, t][:, None, :], axis=1)
        score = best + y_pred[:, t]
    return ops.mean(ops.max(score, axis=-1)) + 0.0 * ops.sum(y_true)


def momentum_loss(y_true, y_pred):  # refused: FO106
    velocity = 0.0
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        velocity = 0.9 * velocity + ops.mean(t - p)
        total = total + velocity**2
    return total


def clipped_budget_loss(y_true, y_pred):  # refused: FO106 FO101
    budget = 1.0
    total = 0.0
    for i in range(y_pred.shape[0]):
        spent = ops.minimum(ops.abs(y_pred[i, 0]), budget)
        budget = budget - spent
        total = total + spent * ops.mean(y_true[i])
    return total


class Streak(keras.losses.Loss):  # refused: FO106 FO101
    def call(self, y_true, y_pred):
        streak, total = 0.0, 0.0
        for i in range(y_pred.shape[0]):
            right = ops.cast(ops.abs(y_true[i, 0] - y_pred[i, 0]) < 0.5, "float32")
            streak = (streak + 1.0) * right
            total = total + streak * ops.mean(ops.abs(y_true[i] - y_pred[i]))
        return total


def nonlocal_decay_loss(y_true, y_pred):  # refused: FO106 FO303, reported: FO102 FO106
    level = 0.0

    def push(x):
        nonlocal level
        level = 0.8 * level + x

    for t in range(y_pred.shape[1]):
        push(ops.mean(ops.square(y_pred[:, t] - y_true[:, t])))
    return level


def swapped_rows_loss(y_true, y_pred):  # refused: FO106 FO101
    last = y_pred[0]
    total = 0.0
    for i in range(1, y_pred.shape[0]):
        if float(ops.mean(y_pred[i])) > float(ops.mean(last)):
            last = y_pred[i]
        total = total + ops.mean(ops.square(last - y_true[i]))
    return total


def discounted_return_loss(y_true, y_pred):  # refused: FO106
    g = 0.0
    total = 0.0
    for t in reversed(range(y_pred.shape[1])):
        g = y_true[:, t] + 0.99 * g
        total = total + ops.mean(ops.square(g - y_pred[:, t]))
    return total


def records_counted_loss(y_true, y_pred):  # refused: FO106
    best, count = 1e9, 0
    for t, p in zip(y_true, y_pred, strict=False):
        size = float(ops.sum(ops.abs(t - p)))
        if size < best:
            best = size
            count = count + 1
    return count * ops.mean(ops.square(y_true - y_pred))


def rnn_helper_loss(y_true, y_pred):  # refused: FO106
    def cell(h, x):
        return ops.tanh(h * 0.5 + x)

    h = ops.zeros_like(y_pred[:, 0])
    for t in range(y_pred.shape[1]):
        h = cell(h, y_pred[:, t])
    return ops.mean(ops.square(h - y_true[:, -1]))


def fading_loss(y_true, y_pred):  # refused: FO106, reported: FO102 FO106
    s = y_pred[:, 0]
    for t in range(1, y_pred.shape[1]):
        s = 0.9 * s + 0.1 * y_pred[:, t]
    return ops.mean(ops.square(s - y_true[:, -1]))


def halved_loss(y_true, y_pred):  # refused: FO106, reported: FO102 FO106
    s = 0.0
    for t in range(y_pred.shape[1]):
        s = (s + y_pred[:, t]) * 0.5
    return ops.mean(ops.square(s - y_true[:, -1]))


def two_statements_loss(y_true, y_pred):  # refused: FO106, reported: FO102 FO106
    s = 0.0
    for t in range(y_pred.shape[1]):
        s *= 0.9
        s += ops.mean(ops.square(y_pred[:, t] - y_true[:, t]))
    return s


def smooth(acc, x):
    return 0.9 * acc + 0.1 * x


def helper_fades_loss(y_true, y_pred):  # refused: FO106, reported: FO102 FO106
    acc = 0.0
    for t in range(y_pred.shape[1]):
        acc = smooth(acc, y_pred[:, t])
    return ops.mean(ops.square(acc - y_true[:, -1]))


def gated_cell_loss(y_true, y_pred):  # refused: FO106, reported: FO102 FO106
    def cell(state, x):
        gate = ops.sigmoid(x)
        new = gate * state + (1 - gate) * x
        return new, new

    state, total = 0.0, 0.0
    for t in range(y_pred.shape[1]):
        state, out = cell(state, y_pred[:, t])
        total = total + ops.mean(ops.square(out - y_true[:, t]))
    return total


def previous_row(y_true, y_pred):  # refused: FO106
    last, total = y_pred[0], 0.0
    for i in range(y_pred.shape[0]):
        total = total + ops.sum(ops.abs(y_pred[i] - last))
        last = y_pred[i]
    return total
