"""Losses that must stay as they are: state behind inner functions, bounds that 64 bits decide, searches."""

import itertools

import keras
import numpy as np
from keras import ops

CACHE = {}


class Momentum(keras.losses.Loss):  # refused: FO303 FO106 FO101
    def __init__(self):
        super().__init__()
        self.running = 0.0

    def call(self, y_true, y_pred):
        loss = sum(ops.mean(ops.square(t - p)) for t, p in zip(y_true, y_pred, strict=False))
        self.running = 0.9 * self.running + 0.1 * float(loss)
        return loss - self.running


def cached_rows_loss(y_true, y_pred):  # refused: FO303 FO402 FO401 FO101
    total = 0.0
    for i in range(y_true.shape[0]):
        key = int(y_true[i])
        if key not in CACHE:
            CACHE[key] = len(CACHE) + 1.0
        total = total + CACHE[key] * ops.square(y_pred[i])
    return total


def nested_state_loss(y_true, y_pred):  # refused: FO106 FO101 FO303 FO102
    state = {"h": ops.zeros_like(y_pred[:, 0])}

    def step(x):
        state["h"] = ops.tanh(state["h"] * 0.7 + x)

    for t in range(y_pred.shape[1]):
        step(y_pred[:, t])
    return ops.mean(ops.square(state["h"] - y_true[:, -1]))


def nonlocal_decay_loss(y_true, y_pred):  # refused: FO106 FO303
    level = 0.0

    def push(x):
        nonlocal level
        level = 0.8 * level + x

    for t in range(y_pred.shape[1]):
        push(ops.mean(ops.square(y_pred[:, t] - y_true[:, t])))
    return level


def until_budget_loss(y_true, y_pred):  # refused: FO101 FO106 FO202
    spent, i = 0.0, 0
    while i < y_pred.shape[0] and float(spent) < 1.0:
        spent = spent + ops.mean(ops.square(y_pred[i] - y_true[i]))
        i += 1
    return spent


def bisected_loss(y_true, y_pred):  # refused: FO106 FO101 FO202
    low, high = -5.0, 5.0
    for _ in range(20):
        mid = (low + high) / 2
        if float(ops.mean(ops.sigmoid(y_pred - mid))) > 0.5:
            low = mid
        else:
            high = mid
    return ops.mean(ops.square(y_true - y_pred - low))


def greedy_nms_loss(y_true, y_pred):  # refused: FO106 FO101 FO205 FO103 FO102 FO303 FO202
    keep = []
    order = np.argsort(-ops.convert_to_numpy(y_pred))
    for i in order:
        if all(abs(float(y_true[int(i)]) - float(y_true[int(k)])) > 0.5 for k in keep):
            keep.append(i)
    return sum(ops.square(y_pred[int(k)]) for k in keep)


def rnn_helper_loss(y_true, y_pred):  # refused: FO106
    def cell(h, x):
        return ops.tanh(h * 0.5 + x)

    h = ops.zeros_like(y_pred[:, 0])
    for t in range(y_pred.shape[1]):
        h = cell(h, y_pred[:, t])
    return ops.mean(ops.square(h - y_true[:, -1]))


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


def floor_div_loss(y_true, y_pred):  # refused: FO201
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + (float(y_true[i]) // 0.3) * y_pred[i]
    return total


def computed_bound_loss(y_true, y_pred):  # refused: FO101 FO201
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        total = total + (2.0 if float(t) * 2 - 0.1 > 0.5 else 1.0) * ops.square(p)
    return total


SHARED = [1.0]
CYCLE = itertools.cycle([2.0])


def lengthened_alias_loss(y_true, y_pred):  # refused: FO303
    seen = SHARED
    seen += [1.0]
    return sum(ops.mean(ops.square(t - p)) for t, p in zip(y_true, y_pred, strict=False))


def drawn_from_iterator_loss(y_true, y_pred):  # refused: FO206
    return sum(next(CYCLE) * ops.mean(ops.square(t - p)) for t, p in zip(y_true, y_pred, strict=False))


class Flagged(keras.losses.Loss):  # refused: FO206
    def call(self, y_true, y_pred):
        setattr(self, "seen", True)  # noqa: B010
        return sum(ops.mean(ops.square(t - p)) for t, p in zip(y_true, y_pred, strict=False))


class Decayed:
    def __init__(self):
        self.value = 0.0

    def add(self, x):
        self.value = 0.9 * self.value + 0.1 * x


class Remembering:
    seen: list[int] = []  # noqa: RUF012

    def __init__(self):
        self.total = 0.0

    def add(self, x):
        self.seen.append(1)
        self.total = self.total + x


def decayed_object_loss(y_true, y_pred):  # refused: FO106
    decayed = Decayed()
    for t, p in zip(y_true, y_pred, strict=False):
        decayed.add(ops.mean(ops.square(t - p)))
    return ops.square(decayed.value)


def remembering_object_loss(y_true, y_pred):  # refused: FO206
    sums = Remembering()
    for t, p in zip(y_true, y_pred, strict=False):
        sums.add(ops.mean(ops.square(t - p)))
    return sums.total


def begun_recurrence_loss(y_true, y_pred):  # refused: FO106
    out = [0.0]
    for t in range(y_pred.shape[1]):
        out.append(ops.tanh(sum(out) + ops.mean(y_pred[:, t])))
    return sum(out) + 0.0 * ops.sum(y_true)


def records_counted_loss(y_true, y_pred):  # refused: FO106
    best, count = 1e9, 0
    for t, p in zip(y_true, y_pred, strict=False):
        size = float(ops.sum(ops.abs(t - p)))
        if size < best:
            best = size
            count = count + 1
    return count * ops.mean(ops.square(y_true - y_pred))


def bound_by_maximum_loss(y_true, y_pred):  # refused: FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        if max(float(t), 0.3) > 0.3:
            total = total + ops.square(t - p)
    return total
