"""Searches that keep the best so far and its place, weights that are set under a condition, tables of names."""

import numpy as np
from keras import ops

WEIGHTS = {"cat": 1.0, "dog": 2.0, "eel": 4.0}
NAMES = ["cat", "dog", "eel"]


def nearest_to_half_loss(y_true, y_pred):  # codes: FO101 FO102|FO104
    total = 0.0
    for i in range(y_pred.shape[0]):
        best, at = 1e9, 0
        for j in range(y_true.shape[1]):
            d = abs(float(y_true[i, j]) - 0.5)
            if d < best:
                best, at = d, j
        total = total + ops.square(y_pred[i, at])
    return total


def nearest_other_loss(y_true, y_pred):  # codes: FO103
    total = 0.0
    n = y_pred.shape[0]
    for i in range(n):
        best, who = 1e9, i
        for j in range(n):
            if j == i:
                continue
            d = float(ops.sum(ops.square(y_pred[i] - y_pred[j])))
            if d < best:
                best = d
                who = j
        total = total + ops.sum(ops.square(y_true[i] - y_true[who])) * ops.sum(y_pred[i])
    return total / n


def nearest_with_its_distance_loss(y_true, y_pred):  # codes: FO101 FO102|FO104
    total = 0.0
    for i in range(y_pred.shape[0]):
        best, at = 1e9, 0
        for j in range(y_true.shape[1]):
            d = ops.square(y_true[i, j] - y_pred[i, 0])
            if j != 1 and d < best:
                best, at = d, j
        total = total + best + ops.abs(y_pred[i, at])
    return total


def weights_listed_loss(y_true, y_pred):  # codes: FO101
    n = y_true.shape[0]
    w = [1.0] * n
    for i in range(n):
        if float(y_true[i]) > 0:
            w[i] = 2.0
    return sum(w[i] * ops.square(y_true[i] - y_pred[i]) for i in range(n)) / n


def weights_masked_loss(y_true, y_pred):  # codes: FO205|FO201
    target = ops.convert_to_numpy(y_true)
    w = np.ones(len(target), dtype="float32")
    w[target > 0.5] = 3.0
    w[target < -0.5] = 0.1
    return ops.mean(ops.convert_to_tensor(w) * ops.square(y_true - y_pred))


def weights_named_loss(y_true, y_pred):  # codes: FO101 FO401
    total = 0.0
    for i, c in enumerate(ops.convert_to_numpy(y_true).astype(int).tolist()):
        total = total + WEIGHTS[NAMES[c]] * ops.sum(ops.square(y_pred[i]))
    return total


def own_table_of_pairs_loss(y_true, y_pred, group):  # codes: FO101 FO401
    table = {(0, 0): 1.0, (0, 1): 2.0, (1, 0): 3.0, (1, 1): 4.0}
    total = 0.0
    for t, p, g in zip(y_true, y_pred, group, strict=False):
        total = total + table[(int(t), int(g))] * ops.sum(p)
    return total
