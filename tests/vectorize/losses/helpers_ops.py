"""Helpers that are handed what a loop carries, and only add to it."""

import keras
from keras import ops


def add(acc, t, p):
    err = ops.square(t - p)
    acc += ops.mean(err)
    return acc


def module_helper_loss(y_true, y_pred):  # codes: FO101
    acc = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        acc = add(acc, t, p)
    return acc


def pushing_helper_loss(y_true, y_pred):  # codes: FO101
    def push(rows, i):
        rows.append(ops.mean(ops.abs(y_true[i] - y_pred[i])))
        return rows

    rows = []
    for i in range(y_pred.shape[0]):
        rows = push(rows, i)
    return ops.mean(ops.stack(rows))


class ByPower(keras.losses.Loss):  # codes: FO101
    def __init__(self, power=2, **kwargs):
        super().__init__(**kwargs)
        self.power = power

    def _accumulate(self, total, t, p):
        if self.power == 2:
            return total + ops.mean(ops.square(t - p))
        return total + ops.mean(ops.abs(t - p))

    def call(self, y_true, y_pred):
        total = 0.0
        for t, p in zip(y_true, y_pred, strict=False):
            total = self._accumulate(total, t, p)
        return total


def largest_by_lambda_loss(y_true, y_pred):  # codes: FO101
    step = lambda s, i: ops.maximum(s, ops.mean(y_pred[i] - y_true[i]))  # noqa: E731
    s = -1e9
    i = 0
    while i < y_pred.shape[0]:
        s = step(s, i)
        i += 1
    return s


def row_helper_loss(y_true, y_pred):  # codes: FO101
    def row(total, t, p):
        for k in range(3):
            total += ops.abs(t[k] - p[k])
        return total

    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        total = row(total, t, p)
    return total
