"""Further losses that must stay as they are: states in lists, dicts and helpers, ends that the data decide, effects."""

import functools
import random
import time

import keras
import numpy as np
from keras import ops

RNG = np.random.default_rng(0)
STATE = {"n": 0}


def ema_while_loss(y_true, y_pred):  # refused: FO106
    t, s, total = 0, 0.0, 0.0
    while t < y_pred.shape[1]:
        s = 0.9 * s + 0.1 * ops.tanh(y_pred[:, t])
        total = total + ops.mean(ops.square(s - y_true[:, t]) * s)
        t += 1
    return total


def carried_in_list_loss(y_true, y_pred):  # refused: FO106
    states = [y_pred[:, 0]]
    for t in range(1, y_pred.shape[1]):
        states.append(ops.sin(states[-1] + y_pred[:, t]))
    return ops.mean(ops.square(ops.stack(states, axis=1) - y_true))


def carried_in_dict_loss(y_true, y_pred):  # refused: FO106 FO101 FO102
    box = {"h": ops.zeros_like(y_pred[:, 0])}
    for t in range(y_pred.shape[1]):
        box["h"] = ops.tanh(box["h"] * 0.5 + y_pred[:, t])
    return ops.mean(box["h"] * y_true[:, 0])


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


def row_in_place_loss(y_true, y_pred):  # refused: FO106 FO101 FO102
    rows = [y_pred[i] for i in range(y_pred.shape[0])]
    for i in range(1, len(rows)):
        rows[i] = ops.tanh(rows[i] + rows[i - 1])
    return ops.mean(ops.square(ops.stack(rows) - y_true))


def until_full_loss(y_true, y_pred):  # refused: FO101 FO106
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        total = total + ops.mean(ops.abs(t - p))
        if float(total) > 2.0:
            break
    return total


def while_limit_loss(y_true, y_pred):  # refused: FO101 FO106 FO102
    i, total = 0, 0.0
    while i < y_pred.shape[0] and float(total) < 1.5:
        total = total + ops.mean(ops.abs(y_true[i] - y_pred[i]))
        i += 1
    return total


def for_else_loss(y_true, y_pred):  # refused: FO101
    for i in range(y_pred.shape[0]):
        if float(y_pred[i, 0]) > 1.0:
            found = ops.sum(y_pred[i])
            break
    else:
        found = ops.sum(y_true)
    return found


def first_hit_next_loss(y_true, y_pred):  # refused: FO101
    return next((ops.sum(p) for t, p in zip(y_true, y_pred, strict=False) if float(ops.sum(t)) > 0), ops.sum(y_pred))


def generator_noise_loss(y_true, y_pred):  # refused: FO304
    return sum(ops.mean(ops.square(y_pred[i] + RNG.normal() - y_true[i])) for i in range(y_pred.shape[0]))


def shuffled_loss(y_true, y_pred):  # refused: FO304
    order = list(range(y_pred.shape[0]))
    random.shuffle(order)
    total = 0.0
    for i in order[:2]:
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
    return total


def writes_dict_loss(y_true, y_pred):  # refused: FO303 FO402
    total = 0.0
    for i in range(y_pred.shape[0]):
        e = ops.mean(ops.square(y_true[i] - y_pred[i]))
        STATE["n"] = STATE["n"] + 1
        total = total + e
    return total


def clocked_loss(y_true, y_pred):  # refused: FO101 FO303 FO206 FO203
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i])) * (time.time() % 1.0)
    return total


def writes_file_loss(y_true, y_pred):  # refused: FO101 FO206
    total = 0.0
    for i in range(y_pred.shape[0]):
        with open("/dev/null", "a") as f:  # noqa: PTH123
            f.write(str(i))
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
    return total


def raises_loss(y_true, y_pred):  # refused: FO101 FO203 FO202
    total = 0.0
    for i in range(y_pred.shape[0]):
        if float(y_pred[i, 0]) > 1e6:
            raise ValueError("diverged")
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
    return total


def kalman_loss(y_true, y_pred):  # refused: FO106
    x, p, nll = y_pred[:, 0], 1.0, 0.0
    for t in range(1, y_pred.shape[1]):
        p = p + 0.1
        k = p / (p + 0.5)
        x = x + k * (y_true[:, t] - x)
        p = (1 - k) * p
        nll = nll + ops.mean(ops.square(x - y_pred[:, t]))
    return nll


def edit_distance_loss(y_true, y_pred):  # refused: FO106 FO101 FO102 FO103
    total = 0.0
    for b in range(y_true.shape[0]):
        prev = list(range(y_true.shape[1] + 1))
        for i in range(1, y_pred.shape[1] + 1):
            cur = [i]
            for j in range(1, y_true.shape[1] + 1):
                cost = 0 if int(y_true[b, j - 1]) == int(y_pred[b, i - 1]) else 1
                cur.append(min(prev[j] + 1, cur[j - 1] + 1, prev[j - 1] + cost))
            prev = cur
        total += prev[-1]
    return total / y_true.shape[0]


@ops.custom_gradient
def straight(x):
    def backward(*args, upstream=None):
        return args[0] if upstream is None else upstream

    return ops.sign(x), backward


def custom_in_helper_loss(y_true, y_pred):  # refused: FO101
    def one(t, p):
        return ops.mean(ops.square(straight(p) - t))

    return ops.mean(ops.stack([one(t, p) for t, p in zip(y_true, y_pred, strict=False)]))


class Counting(keras.losses.Loss):  # refused: FO303
    def __init__(self):
        super().__init__()
        self.count = 0

    def call(self, y_true, y_pred):
        rows = []
        for t, p in zip(y_true, y_pred, strict=False):
            self.count += 1
            rows.append(ops.mean(ops.abs(t - p)))
        return ops.stack(rows)


class Remember(keras.losses.Loss):  # refused: FO106 FO303
    def __init__(self):
        super().__init__()
        self.seen = []

    def call(self, y_true, y_pred):
        rows = []
        for t, p in zip(y_true, y_pred, strict=False):
            rows.append(ops.mean(ops.abs(t - p)))
            self.seen.append(rows[-1])
        return ops.stack(rows)
