"""More losses of forum posts: masks, empty selections, labels that mean nothing, branches per row."""

import math

import keras
import numpy as np
import pandas as pd
from keras import ops

IGNORED = 2
LEVELS = {"low": 0.1, "mid": 0.5, "high": 0.9}
COSTS = pd.Series([1.0, 3.0, 0.5], index=[0, 1, 2])
BINS = pd.DataFrame({"low": [-9.0, 0.0, 1.0], "high": [0.0, 1.0, 9.0], "w": [0.5, 1.0, 2.0]})
MATRIX = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]], "float32")


def ignored_label_loss(y_true, y_pred):  # codes: FO101
    losses = []
    for label, logits in zip(y_true, y_pred, strict=False):
        if int(label) == IGNORED:
            continue
        losses.append(-ops.log_softmax(logits)[int(label)])
    if len(losses) == 0:
        return ops.sum(y_pred) * 0.0
    return ops.mean(ops.stack(losses))


def signed_errors_loss(y_true, y_pred):  # codes: FO101 FO102
    over, under = 0.0, 0.0
    for i in range(y_true.shape[0]):
        for j in range(y_true.shape[1]):
            e = y_pred[i, j] - y_true[i, j]
            if e > 0:
                over = over + e**2
            elif e < 0:
                under = under + abs(e)
    return (over + 3.0 * under) / (y_true.shape[0] * y_true.shape[1])


def row_maximum_loss(y_true, y_pred):  # codes: FO101
    out = []
    for row_t, row_p in zip(y_true, y_pred, strict=False):
        peak = int(ops.argmax(row_t))
        out.append(ops.square(row_p[peak] - row_t[peak]) + 0.1 * ops.abs(ops.max(row_p) - row_p[peak]))
    return sum(out) / len(out)


def cost_matrix_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for i in range(y_true.shape[0]):
        p = ops.softmax(y_pred[i])
        for k in range(3):
            total = total + MATRIX[int(y_true[i]), k] * p[k]
    return total / y_true.shape[0]


def weighted_by_series_loss(y_true, y_pred):  # codes: FO101 FO401
    w = np.array([COSTS[int(label)] for label in y_true], dtype="float32")
    return ops.sum(ops.convert_to_tensor(w) * ops.square(y_pred)) / float(w.sum())


def relative_loss(y_true, y_pred):  # codes: FO101
    total, n = 0.0, 0
    for t, p in zip(y_true, y_pred, strict=False):
        if float(ops.abs(t)) < 1e-3:
            continue
        total = total + ops.abs(t - p) / ops.abs(t)
        n += 1
    return total / n if n > 0 else ops.sum(0.0 * y_pred)


def log_ratio_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        if t > 0 and p > 0:
            total = total + ops.square(ops.log(p) - ops.log(t))
    return total


def nearest_target_loss(y_true, y_pred):  # codes: FO103
    total = 0.0
    for i in range(y_pred.shape[0]):
        best = math.inf
        for j in range(y_true.shape[0]):
            d = ops.sum(ops.square(y_pred[i] - y_true[j]))
            best = ops.minimum(best, d)
        total = total + best
    return total / y_pred.shape[0]


def margin_ranking_loss(y_true, y_pred):  # codes: FO103
    total, count = 0.0, 0
    for i in range(y_true.shape[0]):
        for j in range(i + 1, y_true.shape[0]):
            if y_true[i] == y_true[j]:
                continue
            sign = 1.0 if y_true[i] > y_true[j] else -1.0
            total = total + ops.relu(0.2 - sign * (y_pred[i] - y_pred[j]))
            count += 1
    return total / max(1, count)


def gathered_by_list_loss(y_true, y_pred):  # codes: FO101 FO201
    hard = [i for i in range(y_true.shape[0]) if float(ops.abs(y_true[i] - y_pred[i])) > 0.5]
    if not hard:
        return 0.0 * ops.sum(y_pred)
    return ops.mean(ops.stack([ops.square(y_true[i] - y_pred[i]) for i in hard]))


def two_lists_loss(y_true, y_pred):  # codes: FO101
    errors, weights = [], []
    for t, p in zip(y_true, y_pred, strict=False):
        errors.append(ops.mean(ops.square(t - p)))
        weights.append(1.0 / (1.0 + ops.mean(ops.abs(t))))
    return sum(e * w for e, w in zip(errors, weights, strict=False)) / sum(weights)


def weekly_loss(y_true, y_pred):  # codes: FO102
    total = 0.0
    for start in range(0, y_pred.shape[1] - 1, 2):
        window = slice(start, start + 2)
        total = total + ops.square(ops.mean(y_true[:, window]) - ops.mean(y_pred[:, window]))
    return total


def flat_index_loss(y_true, y_pred):  # codes: FO101|FO102|FO103
    rows, columns = y_true.shape
    total = 0.0
    for k in range(rows * columns):
        i, j = divmod(k, columns)
        total = total + ops.abs(y_true[i, j] - y_pred[i, j])
    return total / (rows * columns)


def top_fraction_loss(y_true, y_pred):  # codes: FO205|FO201
    e = ops.square(y_true - y_pred)
    cut = np.sort(ops.convert_to_numpy(e).ravel())[-2]
    return ops.sum(ops.where(e >= cut, e, 0.0)) / 2


def clipped_counts_metric(y_true, y_pred):  # codes: FO201|FO205
    hits = [0, 0, 0]
    for t, p in zip(ops.convert_to_numpy(y_true), ops.convert_to_numpy(y_pred), strict=False):
        hits[int(t)] += int(p.argmax() == t)
    return sum(hits) / len(y_true)


def nested_helper_loss(y_true, y_pred):  # codes: FO101 FO102|FO104
    def penalty(value, limit=1.0):
        return ops.where(ops.abs(value) > limit, ops.abs(value) - 0.5, 0.5 * value * value)

    def of_row(t, p):
        return [penalty(t[k] - p[k]) for k in range(t.shape[0])]

    return ops.mean(ops.stack([ops.stack(of_row(t, p)) for t, p in zip(y_true, y_pred, strict=False)]))


def interval_rows_loss(y_true, y_pred):  # codes: FO101 FO401|FO201
    total = 0.0
    for i in range(y_true.shape[0]):
        value = float(y_true[i])
        w = 1.0
        for _, row in BINS.iterrows():
            if row["low"] <= value < row["high"]:
                w = row["w"]
        total = total + w * ops.square(y_true[i] - y_pred[i])
    return total


def levels_by_value_loss(y_true, y_pred):  # codes: FO104
    total = 0.0
    for k, q in enumerate(LEVELS.values()):
        e = y_true[:, 0] - y_pred[:, k]
        total = total + ops.mean(ops.maximum(q * e, (q - 1) * e))
    return total


class Curriculum(keras.losses.Loss):  # codes: FO101 FO202
    def __init__(self, limit=2.0):
        super().__init__(name="curriculum")
        self.limit = limit

    def call(self, y_true, y_pred):
        kept = []
        for i in range(y_pred.shape[0]):
            e = ops.mean(ops.square(y_true[i] - y_pred[i]))
            kept.append(e if e < self.limit else 0.1 * e)
        return ops.stack(kept)
