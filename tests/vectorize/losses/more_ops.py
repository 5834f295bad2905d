"""Further losses as people post them: less usual Python around the same habits."""

import functools
import math
import operator
from itertools import combinations

import keras
import numpy as np
from keras import ops

MARGINS = {"near": 0.2, "far": 1.0}
HORIZON = (1.0, 0.7, 0.4)
mse = keras.losses.MeanSquaredError()


def reduced_loss(y_true, y_pred):  # codes: FO101
    terms = [ops.mean(ops.abs(y_true[i] - y_pred[i])) for i in range(y_true.shape[0])]
    return functools.reduce(lambda a, b: a + b, terms) / len(terms)


def operator_loss(y_true, y_pred):  # codes: FO101
    return functools.reduce(operator.add, (ops.sum(ops.square(t - p)) for t, p in zip(y_true, y_pred, strict=False)))


def taken_rows_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for i in range(ops.shape(y_true)[0]):
        row, guess = ops.take(y_true, i, axis=0), ops.take(y_pred, i, axis=0)
        total = total + ops.max(ops.abs(row - guess))
    return total / ops.shape(y_true)[0]


def kept_dimension_loss(y_true, y_pred):  # codes: FO101
    parts = []
    for i in range(y_pred.shape[0]):
        parts.append(ops.mean(ops.square(y_true[i : i + 1] - y_pred[i : i + 1])))
    return ops.mean(ops.stack(parts))


def backwards_loss(y_true, y_pred):  # codes: FO102
    total = 0.0
    for t in reversed(range(y_pred.shape[1])):
        total = total + ops.mean(ops.square(y_true[:, t] - y_pred[:, t]))
    return total


def closure_loss(y_true, y_pred):  # codes: FO101
    scale = 1.0 / y_true.shape[-1]

    def one(i):
        gap = y_true[i] - y_pred[i]
        return ops.sum(gap * gap) * scale

    return ops.mean(ops.stack([one(i) for i in range(y_true.shape[0])]))


def mapped_list_loss(y_true, y_pred):  # codes: FO101
    each = list(map(lambda t, p: ops.sqrt(ops.sum(ops.square(t - p)) + 1e-6), y_true, y_pred))
    return sum(each) / len(each)


def numbered_from_one_loss(y_true, y_pred):  # codes: FO102
    total = 0.0
    for rank, t in enumerate(range(y_pred.shape[1]), start=1):
        total = total + ops.mean(ops.abs(y_true[:, t] - y_pred[:, t])) / rank
    return total


def discounted_loss(y_true, y_pred):  # codes: FO102
    total = 0.0
    for t in range(y_pred.shape[1]):
        total += (0.9**t) * ops.mean(ops.square(y_true[:, t] - y_pred[:, t]))
    return total


def log_discount_loss(y_true, y_pred):  # codes: FO102|FO104
    total = 0.0
    for k in range(y_pred.shape[1]):
        gain = ops.sum(y_true[:, k] * y_pred[:, k])
        total = total + gain / math.log2(k + 2)
    return -total


def annotated_loss(y_true, y_pred, *, power: float = 2.0):  # codes: FO101
    total: float = 0.0
    batch, *_ = y_pred.shape
    for i in range(batch):
        total += ops.mean(ops.abs(y_true[i] - y_pred[i]) ** power)
    return total / batch


def walrus_loss(y_true, y_pred):  # codes: FO101 FO201|FO202
    return ops.stack(
        [e if (e := ops.mean(ops.abs(t - p))) < 1.0 else e * 2.0 for t, p in zip(y_true, y_pred, strict=False)]
    )


def combined_pairs_loss(y_true, y_pred):  # codes: FO103
    gaps = [
        ops.relu(MARGINS["near"] - ops.abs(a - b))
        for a, b in combinations([y_pred[i, 0] for i in range(y_pred.shape[0])], 2)
    ]
    return sum(gaps) + ops.mean(ops.abs(y_true))


def keras_object_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + mse(y_true[i], y_pred[i])
    return total / y_true.shape[0]


def keras_function_loss(y_true, y_pred):  # codes: FO101
    rows = [keras.losses.mean_absolute_error(y_true[i], y_pred[i]) for i in range(y_true.shape[0])]
    return sum(rows) / len(rows)


def horizon_loss(y_true, y_pred):  # codes: FO104
    total = 0.0
    for k, w in zip(range(3), HORIZON, strict=True):
        total += w * ops.mean(ops.abs(y_true[:, k] - y_pred[:, k]))
    return total


def boundary_loss(y_true, y_pred):  # codes: FO101 FO102
    batch, steps = y_pred.shape[0], y_pred.shape[1]
    total = 0.0
    for b in range(batch):
        for t in range(steps):
            if t == 0 or t == steps - 1:
                total = total + 2.0 * ops.square(y_true[b, t] - y_pred[b, t])
            else:
                total = total + ops.square(y_true[b, t] - y_pred[b, t])
    return total / (batch * steps)


def confusion_metric(y_true, y_pred):  # codes: FO101 FO201
    tp = fp = fn = 0
    for t, p in zip(y_true, y_pred, strict=False):
        guess = 1 if float(p) > 0.5 else 0
        if guess == 1 and int(t) == 1:
            tp += 1
        elif guess == 1:
            fp += 1
        elif int(t) == 1:
            fn += 1
    return 2 * tp / max(2 * tp + fp + fn, 1)


def nearest_loss(y_true, y_pred):  # codes: FO103
    total = 0.0
    for i in range(y_pred.shape[0]):
        best = ops.min(ops.stack([ops.sum(ops.square(y_pred[i] - y_true[j])) for j in range(y_true.shape[0])]))
        total = total + best
    return total / y_pred.shape[0]


def matrix_loss(y_true, y_pred):  # codes: FO103
    n = y_pred.shape[0]
    rows = []
    for i in range(n):
        rows.append(ops.stack([ops.sum(y_pred[i] * y_pred[j]) for j in range(n)]))
    sim = ops.stack(rows)
    return ops.mean(ops.square(sim - ops.matmul(y_true, ops.transpose(y_true))))


def soft_labels_loss(y_true, y_pred):  # codes: FO101 FO102|FO104
    eps = 0.1
    total = 0.0
    for i in range(y_pred.shape[0]):
        for c in range(y_pred.shape[1]):
            target = (1 - eps) * y_true[i, c] + eps / y_pred.shape[1]
            total -= target * ops.log(ops.clip(y_pred[i, c], 1e-7, 1.0))
    return total / y_pred.shape[0]


def per_image_norm_loss(y_true, y_pred):  # codes: FO101
    out = []
    for img, ref in zip(y_pred, y_true, strict=False):
        img = (img - ops.mean(img)) / (ops.std(img) + 1e-5)
        ref = (ref - ops.mean(ref)) / (ops.std(ref) + 1e-5)
        out.append(ops.mean(img * ref))
    return 1.0 - ops.mean(ops.stack(out))


def mean_of_floats_metric(y_true, y_pred):  # codes: FO101 FO201
    return np.mean([abs(float(t) - float(p)) for t, p in zip(y_true, y_pred, strict=False)])


class HingeMargin(keras.losses.Loss):  # codes: FO101
    margin = 0.5

    def call(self, y_true, y_pred):
        total = 0.0
        for i in range(y_true.shape[0]):
            total = total + self.one(y_true[i], y_pred[i])
        return total / y_true.shape[0]

    def one(self, truth, guess):
        return ops.mean(ops.maximum(self.margin - truth * guess, 0.0))
