"""Losses as people post them, in `keras.ops`: carried by helpers, read from the end, of ten outputs and more."""

import logging

import numpy as np
from keras import ops

LOG = logging.getLogger(__name__)


def supervised_contrast_loss(y_true, y_pred):  # codes: FO103
    z = y_pred / (ops.norm(y_pred, axis=-1, keepdims=True) + 1e-6)
    total, anchors = 0.0, 0
    for i in range(len(z)):
        same = [j for j in range(len(z)) if j != i and int(y_true[j]) == int(y_true[i])]
        if not same:
            continue
        logits = ops.stack([ops.sum(z[i] * z[k]) / 0.1 for k in range(len(z)) if k != i])
        for j in same:
            total = total - (ops.sum(z[i] * z[j]) / 0.1 - ops.logsumexp(logits)) / len(same)
        anchors += 1
    return total / max(anchors, 1)


def reciprocal_rank_metric(y_true, y_pred):  # codes: FO205
    best = []
    for t, p in zip(ops.convert_to_numpy(y_true), ops.convert_to_numpy(y_pred), strict=False):
        rank = list(np.argsort(-p))
        best.append(1.0 / (rank.index(int(np.argmax(t))) + 1))
    return float(np.mean(best))


def adding_helper_loss(y_true, y_pred):  # codes: FO101
    def step(carry, count, k):
        return carry + ops.mean(ops.square(y_true[k] - y_pred[k])), count + 1

    total, count = 0.0, 0
    for k in range(y_true.shape[0]):
        total, count = step(total, count, k)
    return total / count


def logs_if_wanted_loss(y_true, y_pred):  # codes: FO203 FO201
    per = ops.mean(ops.square(y_true - y_pred), axis=-1)
    if LOG.isEnabledFor(logging.DEBUG):
        LOG.debug("worst %s", float(ops.max(per)))
    return ops.mean(per)


def turned_list_loss(y_true, y_pred):  # codes: FO101
    out = []
    for k in range(y_pred.shape[0] - 1, -1, -1):
        out.append(ops.max(y_pred[k] - y_true[k]))
    return ops.max(ops.cumsum(ops.stack(out[::-1])))


def boxes_and_classes_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for i in range(y_pred.shape[0]):
        box = ops.sum(ops.square(y_true[i, 0:4] - y_pred[i, 0:4]))
        cls = -ops.sum(y_true[i, 8:] * ops.log_softmax(y_pred[i, 8:]))
        total = total + 5.0 * box + ops.square(y_true[i, 7] - y_pred[i, 7]) + cls
    return total / y_pred.shape[0]


def last_steps_loss(y_true, y_pred, length):  # codes: FO101 FO108
    rows = []
    for i in range(len(y_pred)):
        n = int(length[i])
        rows.append(ops.sum(ops.abs(y_true[i, -n:] - y_pred[i, -n:])))
    return sum(rows) / len(rows)


def either_element_loss(y_true, y_pred):  # codes: FO101
    rows = []
    for t, p in zip(y_true, y_pred, strict=False):
        if float(ops.sum(t)) > 0:
            rows.append(ops.sum(ops.abs(t - p)))
        else:
            rows.append(ops.sum(ops.square(p)))
    return ops.max(ops.stack(rows))
