"""Losses as people post them: rows of tables, ranks, branches that skip, arrays that are reshaped first."""

import numpy as np
import pandas as pd
from keras import ops

CLASSES = pd.DataFrame({"label": [0, 1, 2], "weight": [1.0, 2.0, 3.0], "margin": [0.1, 0.2, 0.3]})
COSTS = pd.DataFrame(np.arange(9.0).reshape(3, 3))
PAIRS = pd.DataFrame({"a": [0, 0, 1, 1], "b": [0, 1, 0, 1], "v": [1.0, 2.0, 3.0, 4.0]}).set_index(["a", "b"])


def filtered_row_loss(y_true, y_pred):  # codes: FO101 FO401
    total = 0.0
    for i in range(y_true.shape[0]):
        row = CLASSES[CLASSES["label"] == int(y_true[i])].iloc[0]
        total = total + row["weight"] * ops.square(y_pred[i])
    return total


def cost_cell_loss(y_true, y_pred):  # codes: FO101 FO401
    total = 0.0
    for i in range(y_pred.shape[0]):
        for j in range(3):
            total = total + COSTS.iloc[int(y_true[i]), j] * y_pred[i, j]
    return total / y_pred.shape[0]


def two_keys_loss(y_true, y_pred, group):  # codes: FO101 FO401
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + PAIRS.loc[(int(y_true[i]), int(group[i])), "v"] * ops.square(y_pred[i])
    return total


def mapped_series_loss(y_true, y_pred):  # codes: FO205
    weight = pd.Series(ops.convert_to_numpy(y_true).astype(int)).map({0: 1.0, 1: 2.0, 2: 5.0}).values
    return ops.mean(ops.convert_to_tensor(weight, dtype="float32") * ops.square(y_pred))


def gain_metric(y_true, y_pred):  # codes: FO205
    order = np.argsort(-ops.convert_to_numpy(y_pred))
    gains = ops.take(y_true, order)
    discount = 1.0 / np.log2(np.arange(2, y_true.shape[0] + 2))
    return ops.sum(gains * discount.astype("float32"))


def skipped_labels_loss(y_true, y_pred):  # codes: FO101 FO202
    total = 0.0
    for i in range(y_pred.shape[0]):
        if y_true[i] == 1:
            total += -ops.log(y_pred[i] + 1e-7)
        elif y_true[i] == 0:
            total += -ops.log(1 - y_pred[i] + 1e-7)
        else:
            continue
    return total / y_pred.shape[0]


def flattened_rows_loss(y_true, y_pred):  # codes: FO101
    x, y = ops.reshape(y_pred, (y_pred.shape[0], -1)), ops.reshape(y_true, (y_true.shape[0], -1))
    return sum([ops.mean(ops.abs(x[i] - y[i])) for i in range(x.shape[0])]) / x.shape[0]


def folded_rows_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        a, b = ops.reshape(t, (2, -1)), ops.reshape(p, (2, -1))
        total = total + ops.sum(ops.square(ops.matmul(a, ops.transpose(a)) - ops.matmul(b, ops.transpose(b))))
    return total / len(y_true)


def two_sides_loss(y_true, y_pred):  # codes: FO101 FO108
    total = 0.0
    for i in range(y_pred.shape[0]):
        high, low = y_pred[i][y_true[i] > 0], y_pred[i][y_true[i] <= 0]
        total = total + ops.sum(ops.relu(1.0 - high)) + ops.sum(ops.relu(1.0 + low))
    return total


def worst_column_loss(y_true, y_pred):  # codes: FO102|FO104
    out = []
    for t, p in zip(ops.unstack(y_true, axis=-1), ops.unstack(y_pred, axis=-1), strict=False):
        out.append(ops.mean(ops.square(t - p)))
    return ops.max(ops.stack(out))
