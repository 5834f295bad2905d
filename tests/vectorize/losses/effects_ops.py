"""Inner functions that are called for their effect, entries that are set under a condition, fields and methods."""

from collections import defaultdict

import keras
import numpy as np
from keras import ops


def closure_total_loss(y_true, y_pred):  # codes: FO101
    rows = []

    def visit(i):
        rows.append(ops.mean(ops.square(y_true[i] - y_pred[i])))

    for i in range(y_true.shape[0]):
        visit(i)
    return ops.mean(ops.stack(rows))


def nonlocal_total_loss(y_true, y_pred):  # codes: FO101
    total = 0.0

    def visit(t, p):
        nonlocal total
        total = total + ops.mean(ops.square(t - p))

    for t, p in zip(y_true, y_pred, strict=False):
        visit(t, p)
    return total / len(y_true)


def filled_array_loss(y_true, y_pred):  # codes: FO101
    w = np.ones(y_true.shape[0], "float32")
    for i in range(y_true.shape[0]):
        if float(y_true[i]) < 0:
            w[i] = 3.0
    return ops.mean(ops.convert_to_tensor(w) * ops.square(y_true - y_pred))


def group_mean_dict_loss(y_true, y_pred):  # codes: FO101 FO401
    buckets = defaultdict(list)
    for i in range(y_pred.shape[0]):
        buckets[int(y_true[i])].append(ops.square(y_pred[i]))
    means = [ops.mean(ops.stack(rows)) for rows in buckets.values()]
    return sum(means) / len(means)


class Margin(keras.losses.Loss):  # codes: FO101
    """Fields, helper methods, a list of rows."""

    def __init__(self, margin=1.0, scale=2.0, name="margin"):
        super().__init__(name=name)
        self.margin, self.scale = margin, scale

    def score(self, row):
        return ops.sum(row) / self.scale

    def row_loss(self, t, p):
        return ops.relu(self.margin - self.score(t * p))

    def call(self, y_true, y_pred):
        rows = []
        for i in range(ops.shape(y_true)[0]):
            rows.append(self.row_loss(y_true[i], y_pred[i]))
        return ops.mean(ops.stack(rows))


def helper_mutates_dict_loss(y_true, y_pred):  # codes: FO101
    sums = {"loss": 0.0, "n": 0}

    def record(t, p, weight=1.0):
        if float(t) < 0:
            return
        sums["loss"] = sums["loss"] + weight * ops.square(t - p)
        sums["n"] += 1

    for t, p in zip(y_true, y_pred, strict=False):
        record(t, p, weight=0.5)
    return sums["loss"] / max(sums["n"], 1)


def numpy_fill_loss(y_true, y_pred):  # codes: FO101
    w = np.zeros(len(y_true), dtype="float32")
    for i, t in enumerate(ops.convert_to_numpy(y_true)):
        if t > 0.7:
            w[i] = 2.0
        elif t > 0.3:
            w[i] = 1.0
    return ops.mean(ops.convert_to_tensor(w) * ops.abs(y_true - y_pred))


def weights_then_sum_loss(y_true, y_pred):  # codes: FO101
    weights = []
    for t in y_true:
        if float(t) > 1.5:
            weights.append(3.0)
        elif float(t) > 0.7:
            weights.append(2.0)
        else:
            weights.append(1.0)
    return ops.sum(ops.convert_to_tensor(weights) * ops.square(y_true - y_pred)) / sum(weights)


def soft_f1_dict_loss(y_true, y_pred):  # codes: FO104
    stats = {"tp": 0.0, "fp": 0.0, "fn": 0.0}
    for c in range(y_pred.shape[1]):
        stats["tp"] += ops.sum(y_true[:, c] * y_pred[:, c])
        stats["fp"] += ops.sum((1 - y_true[:, c]) * y_pred[:, c])
        stats["fn"] += ops.sum(y_true[:, c] * (1 - y_pred[:, c]))
    return 1 - 2 * stats["tp"] / (2 * stats["tp"] + stats["fp"] + stats["fn"] + 1e-7)


def positives_of_row_loss(y_true, y_pred):  # codes: FO101
    rows = []
    for t, p in zip(y_true, y_pred, strict=False):
        pos = [p[k] for k in range(3) if int(t[k]) == 1]
        neg = [p[k] for k in range(3) if int(t[k]) == 0]
        rows.append(sum(ops.exp(n - q) for q in pos for n in neg) / max(len(pos) * len(neg), 1))
    return sum(rows) / len(rows)


def closed_over_list_loss(y_true, y_pred):  # codes: FO101
    rows = []

    def push(i):
        rows.append(ops.mean(ops.abs(y_true[i] - y_pred[i])))

    for i in range(y_pred.shape[0]):
        push(i)
    return ops.mean(ops.stack(rows))


def handed_list_loss(y_true, y_pred):  # codes: FO101
    def push(rows, i):
        rows.append(ops.mean(ops.abs(y_true[i] - y_pred[i])))

    rows = []
    for i in range(y_pred.shape[0]):
        push(rows, i)
    return ops.mean(ops.stack(rows))


def two_slots_loss(y_true, y_pred):  # codes: FO101
    parts = [0.0, 0.0]
    for i in range(y_pred.shape[0]):
        parts[0] = parts[0] + ops.mean(y_pred[i])
        parts[1] += ops.mean(y_true[i] - y_pred[i])
    return parts[0] + parts[1]


def state_dict_loss(y_true, y_pred):  # codes: FO101
    state = {"total": 0.0}

    def add(v):
        state["total"] = state["total"] + v

    for i in range(y_pred.shape[0]):
        add(ops.mean(ops.square(y_pred[i] - y_true[i])))
    return state["total"]


def filled_dict_loss(y_true, y_pred):  # codes: FO104
    def fill(table):
        for c in range(3):
            table[c] = ops.mean(ops.square(y_pred[:, c] - y_true[:, c]))

    table = {}
    fill(table)
    return sum(table.values())


def count_or_one_loss(y_true, y_pred):  # codes: FO101 FO102|FO104
    total = 0.0
    for i in range(y_pred.shape[0]):
        kept = [k for k in range(y_true.shape[1]) if float(y_true[i, k]) > 0.5]
        total = total + sum(y_pred[i, k] for k in kept) / (len(kept) or 1)
    return total


def label_or_one_loss(y_true, y_pred):  # codes: FO101 FO201
    return sum((int(t) or 1) * ops.sum(ops.square(p)) for t, p in zip(y_true, y_pred, strict=False))
