"""Losses of forum posts that must stay as they are: recurrences, early ends, draws, effects, own gradients, order."""

import collections
import random

import keras
import numpy as np
from keras import ops

HISTORY = collections.deque(maxlen=4)
SEEN = set()
TOTALS = np.zeros(3)
LEVELS = {"low": 0.1, "mid": 0.5, "high": 0.9}


def viterbi_loss(y_true, y_pred):  # refused: FO106 FO102 FO101
    score = y_pred[:, 0]
    for t in range(1, y_pred.shape[1]):
        best = ops.max(score[:, :, None] + y_pred[:, t][:, None, :], axis=1)
        score = best + y_pred[:, t]
    return ops.mean(ops.max(score, axis=-1)) + 0.0 * ops.sum(y_true)


def alpha_recursion_loss(y_true, y_pred):  # refused: FO106 FO102 FO101
    alpha = [1.0] + [0.0] * (y_pred.shape[1] - 1)
    for t in range(1, y_pred.shape[1]):
        alpha[t] = ops.mean(y_pred[:, t]) * (alpha[t - 1] + 0.5)
    return sum(alpha) + 0.0 * ops.sum(y_true)


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


def greedy_matching_loss(y_true, y_pred):  # refused: FO106 FO101 FO102 FO103 FO303 FO205 FO202
    total = 0.0
    for b in range(y_pred.shape[0]):
        used = []
        for i in range(y_pred.shape[1]):
            best, at = 1e9, -1
            for j in range(y_true.shape[1]):
                d = abs(float(y_pred[b, i]) - float(y_true[b, j]))
                if j not in used and d < best:
                    best, at = d, j
            used.append(at)
            total = total + ops.square(y_pred[b, i] - y_true[b, at])
    return total


def first_mistake_loss(y_true, y_pred):  # refused: FO101
    for t, p in zip(y_true, y_pred, strict=False):
        if int(ops.argmax(p)) != int(ops.argmax(t)):
            return ops.sum(ops.square(t - p))
    return 0.0 * ops.sum(y_pred)


def patience_loss(y_true, y_pred):  # refused: FO101 FO106
    bad, total = 0, 0.0
    for i in range(y_pred.shape[0]):
        e = ops.mean(ops.square(y_true[i] - y_pred[i]))
        total = total + e
        bad = bad + 1 if float(e) > 1.0 else 0
        if bad == 2:
            break
    return total


def mixup_loss(y_true, y_pred):  # refused: FO304
    total = 0.0
    for i in range(y_pred.shape[0]):
        lam = random.betavariate(0.4, 0.4)
        total = total + ops.mean(ops.square(lam * y_pred[i] - lam * y_true[i]))
    return total


def dropped_rows_loss(y_true, y_pred):  # refused: FO304
    kept = [ops.mean(ops.abs(t - p)) for t, p in zip(y_true, y_pred, strict=False) if np.random.rand() < 0.9]
    return sum(kept) / max(len(kept), 1)


def queue_loss(y_true, y_pred):  # refused: FO303 FO402 FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        HISTORY.append(float(ops.mean(ops.abs(t - p))))
        total = total + ops.mean(ops.square(t - p)) * len(HISTORY)
    return total


def first_seen_loss(y_true, y_pred):  # refused: FO303 FO402 FO401 FO101
    total = 0.0
    for i in range(y_pred.shape[0]):
        label = int(y_true[i])
        if label not in SEEN:
            SEEN.add(label)
            total = total + ops.square(y_pred[i])
    return total


def written_totals_loss(y_true, y_pred):  # refused: FO303 FO402 FO106 FO101
    for i in range(y_pred.shape[0]):
        TOTALS[int(y_true[i])] += float(y_pred[i])
    return ops.mean(ops.square(y_pred)) + float(TOTALS.sum()) * 0.0


@ops.custom_gradient
def reversed_gradient(x):
    def backward(*args, upstream=None):
        return -(args[0] if upstream is None else upstream)

    return x, backward


def adversarial_rows_loss(y_true, y_pred):  # refused: FO101
    return sum(ops.mean(ops.square(reversed_gradient(p) - t)) for t, p in zip(y_true, y_pred, strict=False))


class Streak(keras.losses.Loss):  # refused: FO106 FO101
    def call(self, y_true, y_pred):
        streak, total = 0.0, 0.0
        for i in range(y_pred.shape[0]):
            right = ops.cast(ops.abs(y_true[i, 0] - y_pred[i, 0]) < 0.5, "float32")
            streak = (streak + 1.0) * right
            total = total + streak * ops.mean(ops.abs(y_true[i] - y_pred[i]))
        return total


def pinball_levels_loss(y_true, y_pred):  # refused: FO100
    total = 0.0
    for k, (_, q) in enumerate(LEVELS.items()):
        e = y_true[:, 0] - y_pred[:, k]
        total = total + ops.mean(ops.maximum(q * e, (q - 1) * e))
    return total


def variance_in_python_metric(y_true, y_pred):  # refused: FO101 FO201
    first = second = 0.0
    for p in y_pred:
        value = float(p)  # Of 64 bits; in 32 the difference below is noise where the signal is large.
        first, second = first + value, second + value * value
    n = len(y_pred)
    return second / n - (first / n) ** 2
