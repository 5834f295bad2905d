"""Masks, places of a mask, and lengths."""

import numpy as np
from keras import ops


def lengths_inner_loop(y_true, y_pred, steps):  # rewritten on torch: FO101 FO102
    total = 0.0
    for i in range(y_true.shape[0]):
        for t in range(int(steps[i])):
            total = total + ops.square(y_true[i, t] - y_pred[i, t])
    return total / y_true.shape[0]


def lengths_slice(y_true, y_pred, steps):  # rewritten: FO101 FO108
    parts = [ops.sum(ops.abs(y_true[i][: int(steps[i])] - y_pred[i][: int(steps[i])])) for i in range(y_true.shape[0])]
    return ops.mean(ops.stack(parts))


def lengths_continue(y_true, y_pred, steps):  # rewritten on torch: FO101 FO102
    total = 0.0
    for i in range(y_true.shape[0]):
        for t in range(y_true.shape[1]):
            if t >= int(steps[i]):
                continue
            total = total + ops.log(1.0 + ops.square(y_true[i, t] - y_pred[i, t]))
    return total


def mask_select_loss(y_true, y_pred):  # rewritten: FO108
    keep = ops.not_equal(y_true, -1.0)
    return ops.mean(ops.square(y_true[keep] - y_pred[keep]))


def from_a_start_loss(y_true, y_pred, start):  # rewritten on torch: FO101 FO108 FO201
    total = 0.0
    for i in range(y_true.shape[0]):
        s = int(start[i])
        total = total + ops.sum(ops.square(y_true[i, s:] - y_pred[i, s:]))
    return total / y_true.shape[0]


def counted_lengths_loss(y_true, y_pred, lens):  # rewritten on torch: FO101 FO201
    i, out = 0, []
    while i < len(y_true):
        k = int(lens[i])
        err = ops.abs(y_pred[i][:k] - y_true[i][:k])
        out.append(ops.sum(err) / max(k, 1))
        i += 1
    return sum(out) / len(out)


def two_sides_loss(y_true, y_pred):  # rewritten on torch: FO101 FO108
    total = 0.0
    for i in range(y_pred.shape[0]):
        high, low = y_pred[i][y_true[i] > 0], y_pred[i][y_true[i] <= 0]
        total = total + ops.sum(ops.relu(1.0 - high)) + ops.sum(ops.relu(1.0 + low))
    return total


def positives_where(y_true, y_pred):  # rewritten on jax torch: FO205
    total = 0.0
    picked = np.where(ops.convert_to_numpy(y_true) > 0.5)[0]
    for i in picked:
        total = total + ops.log(1e-6 + ops.sigmoid(y_pred[int(i)]))
    return -total / max(1, len(picked))


def flatnonzero_take(y_true, y_pred):  # rewritten on torch: FO205|FO108
    pos = np.flatnonzero(ops.convert_to_numpy(y_true))
    neg = np.flatnonzero(ops.convert_to_numpy(y_true) == 0)
    if len(pos) == 0 or len(neg) == 0:
        return ops.sum(y_pred) * 0.0
    return ops.mean(ops.take(y_pred, neg)) - ops.mean(ops.take(y_pred, pos))


def nonzero_ops(y_true, y_pred):  # rewritten on torch: FO108
    (index,) = ops.nonzero(y_true > 0.5)
    return ops.sum(ops.square(ops.take(y_pred, index) - 1.0))


def where_2d(y_true, y_pred):  # rewritten on torch: FO108|FO205
    rows, cols = np.where(~np.isnan(ops.convert_to_numpy(y_true)))
    diff = y_true[rows, cols] - y_pred[rows, cols]
    return ops.sum(ops.square(diff)) / max(1, len(rows))


def last_steps_loss(y_true, y_pred, length):  # rewritten on torch: FO101 FO108
    rows = []
    for i in range(len(y_pred)):
        n = int(length[i])
        rows.append(ops.sum(ops.abs(y_true[i, -n:] - y_pred[i, -n:])))
    return sum(rows) / len(rows)


def gathered_by_list_loss(y_true, y_pred):  # rewritten on torch: FO101 FO201
    hard = [i for i in range(y_true.shape[0]) if float(ops.abs(y_true[i] - y_pred[i])) > 0.5]
    if not hard:
        return 0.0 * ops.sum(y_pred)
    return ops.mean(ops.stack([ops.square(y_true[i] - y_pred[i]) for i in hard]))
