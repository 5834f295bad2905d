"""Folds: reduce, scan, fori_loop, map, running totals and weights that fade."""

import functools
import operator

from keras import ops


def batch_map(y_true, y_pred):  # rewritten: FO105
    def one(pair):
        return ops.sum(ops.abs(pair[0] - pair[1]))

    return ops.mean(ops.map(one, (y_true, y_pred)))


def reduced_loss(y_true, y_pred):  # rewritten: FO101
    terms = [ops.mean(ops.abs(y_true[i] - y_pred[i])) for i in range(y_true.shape[0])]
    return functools.reduce(lambda a, b: a + b, terms) / len(terms)


def operator_loss(y_true, y_pred):  # rewritten on torch: FO101
    return functools.reduce(operator.add, (ops.sum(ops.square(t - p)) for t, p in zip(y_true, y_pred, strict=False)))


def product_of_rows_loss(y_true, y_pred):  # rewritten on torch: FO101
    like = functools.reduce(operator.mul, [ops.sigmoid(ops.sum(t * p)) for t, p in zip(y_true, y_pred, strict=False)])
    return -ops.log(like + 1e-12)


def discount(y_true, y_pred):  # rewritten: FO102
    total, d = 0.0, 1.0
    for t in range(y_pred.shape[1]):
        total = total + d * ops.mean(ops.square(y_true[:, t] - y_pred[:, t]))
        d *= 0.9
    return total


def decay_weights(y_true, y_pred):  # rewritten on torch: FO102
    w, total, norm = 1.0, 0.0, 0.0
    gamma = 0.8
    for t in range(y_pred.shape[1]):
        total += w * ops.mean(ops.abs(y_true[:, t] - y_pred[:, t]))
        norm += w
        w = w * gamma
    return total / norm


def fori(y_true, y_pred):  # rewritten: FO105|FO101
    def body(i, acc):
        return acc + ops.mean(ops.square(y_true[i] - y_pred[i]))

    return ops.fori_loop(0, y_true.shape[0], body, ops.zeros(())) / y_true.shape[0]


def ops_scan(y_true, y_pred):  # rewritten on torch: FO105|FO101|FO102|FO106
    def body(carry, pair):
        t, p = pair
        return carry + ops.sum(ops.abs(t - p)), ops.max(ops.abs(t - p))

    total, worst = ops.scan(body, ops.zeros(()), (y_true, y_pred), length=None)
    return total / y_true.shape[0] + ops.mean(worst)


def drawdown_loss(y_true, y_pred):  # rewritten on torch: FO102 FO106
    peak = y_pred[:, 0]
    worst = ops.zeros_like(peak)
    for t in range(1, y_pred.shape[1]):
        peak = ops.maximum(peak, y_pred[:, t])
        worst = ops.maximum(worst, peak - y_pred[:, t])
    return ops.mean(worst) + ops.mean(ops.square(y_true - y_pred))


def earth_mover_loss(y_true, y_pred):  # rewritten on torch: FO102|FO104
    total, flow = 0.0, 0.0
    for k in range(y_pred.shape[1]):
        flow = flow + y_pred[:, k] - y_true[:, k]
        total = total + ops.abs(flow)
    return ops.mean(total)


def pair_of_totals_loss(y_true, y_pred):  # rewritten on torch: FO101 FO106
    state = (0.0, 0.0)
    for t, p in zip(y_true, y_pred, strict=False):
        state = (state[0] + ops.sum(ops.square(t - p)), ops.maximum(state[1], ops.max(p)))
    return state[0] / y_true.shape[0] + state[1]


def level_by_helper_loss(y_true, y_pred):  # rewritten on torch: FO102 FO106
    def grown(level, x):
        return level + x

    level, total = 0.0, 0.0
    for t in range(y_pred.shape[1]):
        level = grown(level, y_pred[:, t])
        total = total + ops.mean(ops.square(level - y_true[:, t]))
    return total
