"""Searches: the best so far, its place, the worst of all."""

import math

from keras import ops


def nearest_to_half_loss(y_true, y_pred):  # rewritten: FO101 FO102|FO104
    total = 0.0
    for i in range(y_pred.shape[0]):
        best, at = 1e9, 0
        for j in range(y_true.shape[1]):
            d = abs(float(y_true[i, j]) - 0.5)
            if d < best:
                best, at = d, j
        total = total + ops.square(y_pred[i, at])
    return total


def nearest_other_loss(y_true, y_pred):  # rewritten on torch: FO103
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


def nearest_with_its_distance_loss(y_true, y_pred):  # rewritten on torch: FO101 FO102|FO104
    total = 0.0
    for i in range(y_pred.shape[0]):
        best, at = 1e9, 0
        for j in range(y_true.shape[1]):
            d = ops.square(y_true[i, j] - y_pred[i, 0])
            if j != 1 and d < best:
                best, at = d, j
        total = total + best + ops.abs(y_pred[i, at])
    return total


def nearest_row_loss(y_true, y_pred):  # rewritten on torch: FO101
    best, who = float("inf"), y_pred[0]
    for i in range(y_pred.shape[0]):
        d = ops.sum(ops.square(y_pred[i] - y_true[i]))
        if d < best:
            best, who = d, y_pred[i]
    return best + ops.sum(who)


def hardest_negative(y_true, y_pred):  # rewritten on torch: FO103 FO201
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


def farthest_positive(y_true, y_pred):  # rewritten on torch: FO103 FO201
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


def worst_by_key_loss(y_true, y_pred):  # rewritten on torch: FO101 FO201
    e = ops.mean(ops.square(y_true - y_pred), axis=1)
    worst = max(range(e.shape[0]), key=lambda i: float(e[i]))
    return e[worst]


def smallest_pair_loss(y_true, y_pred):  # rewritten on jax torch: FO101 FO201
    t, p = min(zip(y_true, y_pred, strict=False), key=lambda pair: float(pair[0]))
    return ops.square(t - p)


def _iou(a, b):
    low = ops.maximum(a[:2], b[:2])
    high = ops.minimum(a[2:], b[2:])
    side = ops.relu(high - low)
    inter = side[0] * side[1]
    area = lambda r: (r[2] - r[0]) * (r[3] - r[1])  # noqa: E731
    return inter / (area(a) + area(b) - inter + 1e-9)


def padded_boxes_loss(y_true, y_pred, n_boxes):  # rewritten on torch: FO101 FO101|FO103
    losses = []
    for img in range(y_pred.shape[0]):
        for box in y_pred[img]:
            best = 0.0
            for j in range(int(n_boxes[img])):
                best = ops.maximum(best, _iou(box, y_true[img, j]))
            losses.append(1.0 - best)
    return sum(losses) / len(losses)


def worst_row_loss(y_true, y_pred):  # rewritten: FO101
    best = None
    for t, p in zip(y_true, y_pred, strict=False):
        e = ops.mean(ops.square(t - p))
        best = e if best is None else ops.maximum(best, e)
    return best


def largest_by_lambda_loss(y_true, y_pred):  # rewritten: FO101
    step = lambda s, i: ops.maximum(s, ops.mean(y_pred[i] - y_true[i]))  # noqa: E731
    s = -1e9
    i = 0
    while i < y_pred.shape[0]:
        s = step(s, i)
        i += 1
    return s


def nearest_target_loss(y_true, y_pred):  # rewritten on torch: FO103
    total = 0.0
    for i in range(y_pred.shape[0]):
        best = math.inf
        for j in range(y_true.shape[0]):
            d = ops.sum(ops.square(y_pred[i] - y_true[j]))
            best = ops.minimum(best, d)
        total = total + best
    return total / y_pred.shape[0]


def nearest_loss(y_true, y_pred):  # rewritten on torch: FO103
    total = 0.0
    for i in range(y_pred.shape[0]):
        best = ops.min(ops.stack([ops.sum(ops.square(y_pred[i] - y_true[j])) for j in range(y_true.shape[0])]))
        total = total + best
    return total / y_pred.shape[0]


def nearest_by_expression_loss(y_true, y_pred):  # rewritten on torch: FO103 FO106
    total = 0.0
    for i in range(y_pred.shape[0]):
        best = 1e9
        for j in range(y_pred.shape[0]):
            d = ops.sum(ops.square(y_pred[i] - 2.0 * y_pred[j]))
            best = d if d < best else best
        total = total + best * ops.sum(y_true[i])
    return total / y_pred.shape[0]
