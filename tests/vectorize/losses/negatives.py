"""Losses that must stay as they are: what one step does depends on the ones before, or it does more than compute."""

import random

import keras
import numpy as np
from keras import ops

HISTORY = []
SEEN = {}
CALLS = 0
SEED = keras.random.SeedGenerator(3)


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


def first_bad_loss(y_true, y_pred):  # refused: FO101
    total = 0.0
    for i in range(y_pred.shape[0]):
        error = ops.mean(ops.abs(y_true[i] - y_pred[i]))
        if float(error) > 1.5:
            break
        total = total + error
    return total


def returns_early_loss(y_true, y_pred):  # refused: FO101
    for i in range(y_pred.shape[0]):
        error = ops.mean(ops.abs(y_true[i] - y_pred[i]))
        if float(error) > 0.5:
            return error
    return ops.mean(ops.abs(y_true - y_pred))


def numpy_noise_loss(y_true, y_pred):  # refused: FO304
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        total = total + ops.mean(ops.square(t - p + np.random.normal(0.0, 0.1)))
    return total


def chosen_sample_loss(y_true, y_pred):  # refused: FO304
    total = 0.0
    for _ in range(4):
        i = random.randrange(y_pred.shape[0])
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
    return total


def dropped_rows_loss(y_true, y_pred):  # refused: FO304
    rows = []
    for i in range(y_pred.shape[0]):
        keep = ops.cast(keras.random.uniform((), seed=SEED) > 0.2, "float32")
        rows.append(keep * ops.mean(ops.square(y_true[i] - y_pred[i])))
    return ops.mean(ops.stack(rows))


def remembered_loss(y_true, y_pred):  # refused: FO303
    total = 0.0
    for i in range(y_pred.shape[0]):
        error = ops.mean(ops.square(y_true[i] - y_pred[i]))
        HISTORY.append(error)
        total = total + error
    return total


def counted_loss(y_true, y_pred):  # refused: FO303
    global CALLS
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        CALLS += 1
        total = total + ops.sum(ops.abs(t - p))
    return total


def shown_loss(y_true, y_pred):  # refused: FO203
    total = 0.0
    for i in range(y_pred.shape[0]):
        error = ops.mean(ops.square(y_true[i] - y_pred[i]))
        print("row", i)
        total = total + error
    return total


def newton_loss(y_true, y_pred):  # refused: FO101 FO106
    root = ops.mean(y_pred)
    while float(ops.abs(root * root - 2.0)) > 1e-3:
        root = root - (root * root - 2.0) / (2.0 * root)
    return ops.mean(ops.square(y_true - y_pred)) * root


def survival_loss(y_true, y_pred):  # refused: FO106
    alive = ops.ones_like(y_pred[:, 0])
    total = 0.0
    for t in range(y_pred.shape[1]):
        total = total + ops.mean(y_true[:, t] * alive * y_pred[:, t])
        alive = ops.sin(alive * (1.0 - y_pred[:, t]))
    return total


@ops.custom_gradient
def clipped(x):
    def backward(*args, upstream=None):
        return 0.5 * (args[0] if upstream is None else upstream)

    return ops.clip(x, -1.0, 1.0), backward


def own_slope_loss(y_true, y_pred):  # refused: FO101
    return sum(ops.sum(clipped(t - p)) for t, p in zip(y_true, y_pred, strict=False))


class Stateful(keras.losses.Loss):  # refused: FO303
    def __init__(self):
        super().__init__()
        self.worst = 0.0

    def call(self, y_true, y_pred):
        total = 0.0
        for i in range(y_true.shape[0]):
            error = ops.mean(ops.square(y_true[i] - y_pred[i]))
            self.worst = error
            total = total + error
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
