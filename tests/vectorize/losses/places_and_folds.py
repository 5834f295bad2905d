"""Losses with places of a mask, loops as functions, steady totals and other spellings of loops."""

import functools

import numpy as np
from keras import ops

PARTIAL = {0: 0.5, 2: 2.0}


def along_axis(y_true, y_pred):  # codes: FO205
    err = np.apply_along_axis(lambda row: np.max(row) - np.min(row), 1, ops.convert_to_numpy(y_true - y_pred))
    return ops.convert_to_tensor(np.float32(err.mean()))


def along_axis_norm(y_true, y_pred):  # codes: FO205
    def rms(v):
        return np.sqrt(np.mean(v**2))

    return np.mean(np.apply_along_axis(rms, -1, np.asarray(y_true) - np.asarray(y_pred)))


def reduce_sum(y_true, y_pred):  # codes: FO101
    n = y_true.shape[0]
    return functools.reduce(lambda acc, i: acc + ops.mean(ops.abs(y_true[i] - y_pred[i])), range(n), 0.0) / n


def while_walrus(y_true, y_pred):  # codes: FO101
    i, rows = 0, []
    while True:
        if i >= y_true.shape[0]:
            break
        rows.append(ops.logsumexp(y_pred[i]) - ops.sum(y_true[i] * y_pred[i]))
        i = i + 1
    return ops.mean(ops.stack(rows))


def starmapped(y_true, y_pred):  # codes: FO101
    def one(t, p):
        return ops.mean(ops.square(t - p))

    return ops.mean(ops.stack(list(map(one, y_true, y_pred))))


def positives_where(y_true, y_pred):  # codes: FO205
    total = 0.0
    picked = np.where(ops.convert_to_numpy(y_true) > 0.5)[0]
    for i in picked:
        total = total + ops.log(1e-6 + ops.sigmoid(y_pred[int(i)]))
    return -total / max(1, len(picked))


def flatnonzero_take(y_true, y_pred):  # codes: FO205|FO108
    pos = np.flatnonzero(ops.convert_to_numpy(y_true))
    neg = np.flatnonzero(ops.convert_to_numpy(y_true) == 0)
    if len(pos) == 0 or len(neg) == 0:
        return ops.sum(y_pred) * 0.0
    return ops.mean(ops.take(y_pred, neg)) - ops.mean(ops.take(y_pred, pos))


def nonzero_ops(y_true, y_pred):  # codes: FO108
    (index,) = ops.nonzero(y_true > 0.5)
    return ops.sum(ops.square(ops.take(y_pred, index) - 1.0))


def where_2d(y_true, y_pred):  # codes: FO108|FO205
    rows, cols = np.where(~np.isnan(ops.convert_to_numpy(y_true)))
    diff = y_true[rows, cols] - y_pred[rows, cols]
    return ops.sum(ops.square(diff)) / max(1, len(rows))


def try_key(y_true, y_pred):  # codes: FO401 FO201
    total = 0.0
    for i in range(y_true.shape[0]):
        try:
            w = PARTIAL[int(y_true[i])]
        except KeyError:
            w = 1.0
        total = total + w * ops.abs(y_pred[i])
    return total / y_true.shape[0]


def match_weight(y_true, y_pred):  # codes: FO101 FO201
    total = 0.0
    for i in range(y_true.shape[0]):
        match int(y_true[i]):
            case 0:
                w = 1.0
            case 1 | 2:
                w = 2.0
            case _:
                w = 0.25
        total = total + w * ops.square(y_pred[i])
    return total


def hardest_negative(y_true, y_pred):  # codes: FO103 FO201
    n = len(y_true)
    total = 0.0
    for i in range(n):
        best = None
        for j in range(n):
            if int(y_true[i]) != int(y_true[j]):
                d = ops.sum(ops.square(y_pred[i] - y_pred[j]))
                if best is None or float(d) < float(best):
                    best = d
        if best is not None:
            total = total + ops.maximum(0.0, 1.0 - best)
    return total / n


def farthest_positive(y_true, y_pred):  # codes: FO103 FO201
    total = 0.0
    for i in range(len(y_true)):
        best = 0.0
        for j in range(len(y_true)):
            if int(y_true[i]) == int(y_true[j]):
                d = ops.sum(ops.square(y_pred[i] - y_pred[j]))
                if float(d) > best:
                    best = d
        total = total + best
    return total / len(y_true)


def discount(y_true, y_pred):  # codes: FO102
    total, d = 0.0, 1.0
    for t in range(y_pred.shape[1]):
        total = total + d * ops.mean(ops.square(y_true[:, t] - y_pred[:, t]))
        d *= 0.9
    return total


def decay_weights(y_true, y_pred):  # codes: FO102
    w, total, norm = 1.0, 0.0, 0.0
    gamma = 0.8
    for t in range(y_pred.shape[1]):
        total += w * ops.mean(ops.abs(y_true[:, t] - y_pred[:, t]))
        norm += w
        w = w * gamma
    return total / norm


def manual_counter(y_true, y_pred):  # codes: FO101
    k = 0
    total = 0.0
    for row in y_true:
        total = total + ops.mean(ops.square(row - y_pred[k]))
        k += 1
    return total / k


def loop_variable_after(y_true, y_pred):  # codes: FO101|FO102|FO201
    total = 0.0
    for i in range(len(y_true)):
        e = ops.square(y_true[i] - y_pred[i])
        total = total + e
    return total + 10.0 * e + y_pred[i]


def fori(y_true, y_pred):  # codes: FO105|FO101
    def body(i, acc):
        return acc + ops.mean(ops.square(y_true[i] - y_pred[i]))

    return ops.fori_loop(0, y_true.shape[0], body, ops.zeros(())) / y_true.shape[0]


def ops_scan(y_true, y_pred):  # codes: FO105|FO101|FO102|FO106
    def body(carry, pair):
        t, p = pair
        return carry + ops.sum(ops.abs(t - p)), ops.max(ops.abs(t - p))

    total, worst = ops.scan(body, ops.zeros(()), (y_true, y_pred))
    return total / y_true.shape[0] + ops.mean(worst)
