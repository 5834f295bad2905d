"""Functions, methods, partials and Loss objects that a loop calls for each sample."""

from functools import partial

import keras
from keras import ops

from . import other_file
from .other_file import rows_of

squared_error = keras.losses.MeanSquaredError()


def _row_error(a, b):
    difference = a - b
    return ops.sqrt(ops.sum(difference * difference) + 1e-6)


def batch_helper(y_true, y_pred):  # rewritten: FO101
    total = 0.0
    for i in range(y_true.shape[0]):
        total += _row_error(y_true[i], y_pred[i])
    return total / y_true.shape[0]


def loss_object(y_true, y_pred):  # rewritten on torch: FO101
    error = keras.losses.MeanSquaredError()
    return sum(error(y_true[i : i + 1], y_pred[i : i + 1]) for i in range(y_true.shape[0])) / y_true.shape[0]


class MarginLoss(keras.losses.Loss):  # rewritten: FO101
    def __init__(self, margin=0.5, name="margin"):
        super().__init__(name=name)
        self.margin = margin

    def call(self, y_true, y_pred):
        rows = []
        for i in range(y_true.shape[0]):
            rows.append(ops.maximum(0.0, self.margin - ops.sum(y_true[i] * y_pred[i])))
        return ops.stack(rows)


def _row_kl(t, p):
    t, p = (ops.clip(v, 1e-6, 1.0) for v in (t, p))
    return ops.sum(t * (ops.log(t) - ops.log(p)))


def helper_kl_loss(y_true, y_pred):  # rewritten on torch: FO101
    i, acc = 0, []
    while i < y_true.shape[0]:
        acc.append(_row_kl(y_true[i], y_pred[i]))
        i += 1
    return ops.mean(ops.stack(acc))


class AsymmetricLoss(keras.losses.Loss):  # rewritten on torch: FO101
    def __init__(self, over=2.0, under=1.0, **kwargs):
        super().__init__(**kwargs)
        self.over, self.under = over, under

    def _side(self, error):
        return ops.where(error > 0, self.under * error, -self.over * error)

    def call(self, y_true, y_pred):
        return ops.stack([ops.mean(self._side(y_true[n] - y_pred[n])) for n in range(y_true.shape[0])])


def closure_loss(y_true, y_pred):  # rewritten on torch: FO101
    scale = 1.0 / y_true.shape[-1]

    def one(i):
        gap = y_true[i] - y_pred[i]
        return ops.sum(gap * gap) * scale

    return ops.mean(ops.stack([one(i) for i in range(y_true.shape[0])]))


def keras_object_loss(y_true, y_pred):  # rewritten: FO101
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + squared_error(y_true[i], y_pred[i])
    return total / y_true.shape[0]


def keras_function_loss(y_true, y_pred):  # rewritten on torch: FO101
    rows = [keras.losses.mean_absolute_error(y_true[i], y_pred[i]) for i in range(y_true.shape[0])]
    return sum(rows) / len(rows)


def _squared(a, b, power=2):
    return ops.sum(ops.abs(a - b) ** power)


def partial_helper_loss(y_true, y_pred):  # rewritten on torch: FO101
    one = partial(_squared, power=3)
    return sum(one(y_true[i], y_pred[i]) for i in range(y_true.shape[0])) / y_true.shape[0]


def helpers_inside_loss(y_true, y_pred):  # rewritten: FO101
    def rows(values):
        return [values[i] for i in range(values.shape[0])]

    def total(pairs):
        result = 0.0
        for a, b in pairs:
            result = result + ops.max(ops.abs(a - b))
        return result

    return total(zip(rows(y_true), rows(y_pred), strict=False))


def two_results_loss(y_true, y_pred):  # rewritten on torch: FO101
    def both(t, p):
        e = t - p
        return ops.mean(e), ops.mean(ops.square(e))

    bias = var = 0.0
    for i in range(y_true.shape[0]):
        m, s = both(y_true[i], y_pred[i])
        bias += m
        var += s
    n = y_true.shape[0]
    return ops.square(bias / n) + var / n


def star_argument_loss(y_true, y_pred):  # rewritten on torch: FO101
    total = 0.0
    for pair in zip(y_true, y_pred, strict=False):
        total += _squared(*pair)
    return total


def mapped_pairs_loss(y_true, y_pred):  # rewritten on torch: FO101
    def worst(pair):
        return ops.max(ops.square(pair[0] - pair[1]))

    return sum(map(worst, zip(y_true, y_pred, strict=False))) / len(y_pred)


def helper_module_loss(y_true, y_pred):  # rewritten on torch: FO101
    total = 0.0
    for t, p in rows_of(y_true, y_pred):
        total = total + 1.0 - other_file.overlap(t, p)
    return total / y_true.shape[0]


class Focal(keras.losses.Loss):  # rewritten on torch: FO101
    gamma = 2.0

    @staticmethod
    def pick(p, label):
        return p[int(label)]

    @property
    def power(self):
        return self.gamma

    def call(self, y_true, y_pred):
        rows = []
        for i in range(y_pred.shape[0]):
            p = self.pick(ops.softmax(y_pred[i]), y_true[i])
            rows.append(-((1 - p) ** self.power) * ops.log(p + 1e-7))
        return ops.stack(rows)


def nested_helper_loss(y_true, y_pred):  # rewritten on torch: FO101 FO102|FO104
    def penalty(value, limit=1.0):
        return ops.where(ops.abs(value) > limit, ops.abs(value) - 0.5, 0.5 * value * value)

    def of_row(t, p):
        return [penalty(t[k] - p[k]) for k in range(t.shape[0])]

    return ops.mean(ops.stack([ops.stack(of_row(t, p)) for t, p in zip(y_true, y_pred, strict=False)]))


def add(acc, t, p):
    err = ops.square(t - p)
    acc += ops.mean(err)
    return acc


def module_helper_loss(y_true, y_pred):  # rewritten on torch: FO101
    acc = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        acc = add(acc, t, p)
    return acc


def row_helper_loss(y_true, y_pred):  # rewritten on torch: FO101
    def row(total, t, p):
        for k in range(3):
            total += ops.abs(t[k] - p[k])
        return total

    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        total = row(total, t, p)
    return total


class ByPower(keras.losses.Loss):  # rewritten: FO101
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
