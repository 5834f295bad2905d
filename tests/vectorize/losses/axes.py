"""Loops over time steps, classes, outputs and other axes."""

import itertools
import math

import numpy as np
from keras import ops

COST = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]], "float32")
LEVELS = [0.1, 0.5, 0.9]
PENALTY = [[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]]
HORIZON = (1.0, 0.7, 0.4)
NAMED_LEVELS = {"low": 0.1, "mid": 0.5, "high": 0.9}


def classes_dice(y_true, y_pred):  # rewritten on torch: FO104
    total = 0.0
    for c in range(y_pred.shape[-1]):
        truth = ops.cast(ops.equal(y_true, c), "float32")
        score = y_pred[:, c]
        total += 1.0 - (2.0 * ops.sum(truth * score) + 1.0) / (ops.sum(truth) + ops.sum(score) + 1.0)
    return total / y_pred.shape[-1]


def classes_cost(y_true, y_pred):  # rewritten on torch: FO104
    total = 0.0
    for i in range(3):
        for j in range(3):
            total = total + COST[i, j] * ops.mean(y_true[:, i] * y_pred[:, j])
    return total


def quadratic_form_loss(y_true, y_pred):  # rewritten on torch: FO101
    total = 0.0
    for i in range(y_true.shape[0]):
        error = y_true[i] - y_pred[i]
        total = total + error @ ops.convert_to_tensor(COST) @ error
    return total / y_true.shape[0]


def quantiles(y_true, y_pred):  # rewritten on torch: FO104
    parts = []
    for k, level in enumerate(LEVELS):
        error = y_true[:, 0] - y_pred[:, k]
        parts.append(ops.mean(ops.maximum(level * error, (level - 1.0) * error)))
    return sum(parts)


def total_variation_loss(y_true, y_pred):  # rewritten on torch: FO102
    tv = 0
    for t in range(y_pred.shape[1] - 1):
        tv += ops.mean(ops.abs(y_pred[:, t + 1] - y_pred[:, t]))
    return tv + ops.mean(ops.square(y_true - y_pred))


def weighted_horizon_loss(y_true, y_pred):  # rewritten on torch: FO102|FO104
    steps = y_pred.shape[1]
    weights = [0.9**k for k in range(steps)]
    return sum(w * ops.mean(ops.square(y_true[:, k] - y_pred[:, k])) for k, w in enumerate(weights)) / steps


def expected_cost_loss(y_true, y_pred):  # rewritten on torch: FO104
    labels = ops.cast(y_true, "int32")
    total = 0.0
    for true in range(3):
        for guess in range(3):
            hit = ops.cast(labels == true, "float32")
            total = total + ops.sum(hit * y_pred[:, guess]) * PENALTY[true][guess]
    return total / y_true.shape[0]


def backwards_loss(y_true, y_pred):  # rewritten: FO102
    total = 0.0
    for t in reversed(range(y_pred.shape[1])):
        total = total + ops.mean(ops.square(y_true[:, t] - y_pred[:, t]))
    return total


def discounted_loss(y_true, y_pred):  # rewritten on torch: FO102
    total = 0.0
    for t in range(y_pred.shape[1]):
        total += (0.9**t) * ops.mean(ops.square(y_true[:, t] - y_pred[:, t]))
    return total


def log_discount_loss(y_true, y_pred):  # rewritten: FO102|FO104
    total = 0.0
    for k in range(y_pred.shape[1]):
        gain = ops.sum(y_true[:, k] * y_pred[:, k])
        total = total + gain / math.log2(k + 2)
    return -total


def horizon_loss(y_true, y_pred):  # rewritten on torch: FO104
    total = 0.0
    for k, w in zip(range(3), HORIZON, strict=True):
        total += w * ops.mean(ops.abs(y_true[:, k] - y_pred[:, k]))
    return total


def split_steps_loss(y_true, y_pred):  # rewritten: FO102
    total = 0.0
    steps = y_pred.shape[1]
    for a, b in zip(ops.split(y_true, steps, axis=1), ops.split(y_pred, steps, axis=1), strict=False):
        total = total + ops.mean(ops.square(a - b))
    return total / steps


def transposed_rows_loss(y_true, y_pred):  # rewritten on torch: FO102|FO101
    total = 0.0
    for a, b in zip(ops.transpose(y_true), ops.transpose(y_pred), strict=False):
        total = total + ops.sqrt(ops.mean(ops.square(a - b)) + 1e-6)
    return total


def zipped_ranges_loss(y_true, y_pred):  # rewritten: FO102
    losses = []
    for prev, nxt in zip(range(y_pred.shape[1] - 1), range(1, y_pred.shape[1]), strict=False):
        d_true = y_true[:, nxt] - y_true[:, prev]
        d_pred = y_pred[:, nxt] - y_pred[:, prev]
        losses.append(ops.mean(ops.square(d_true - d_pred)))
    return ops.sum(ops.stack(losses))


def tversky_loss(y_true, y_pred, alpha=0.3, beta=0.7):  # rewritten on torch: FO104
    score = 0
    num_classes = y_pred.shape[-1]
    for c in range(num_classes):
        t = ops.reshape(y_true[..., c], (-1,))
        p = ops.reshape(y_pred[..., c], (-1,))
        tp = ops.sum(t * p)
        score += (tp + 1) / (tp + alpha * ops.sum(p * (1 - t)) + beta * ops.sum((1 - p) * t) + 1)
    return num_classes - score


def confusion_rows_metric(y_true, y_pred):  # rewritten on torch: FO104
    guess = ops.argmax(y_pred, axis=-1)
    label = ops.cast(y_true, "int32")
    matrix = [
        [ops.sum(ops.cast((label == i) & (ops.cast(guess, "int32") == j), "float32")) for j in range(3)]
        for i in range(3)
    ]
    return sum(matrix[i][i] for i in range(3)) / y_true.shape[0]


def frames_loss(y_true, y_pred):  # rewritten on torch: FO102
    steps = y_pred.shape[1]
    frames = [ops.sqrt(ops.sum((y_true[:, k] - y_pred[:, k]) ** 2, axis=-1) + 1e-6) for k in range(steps)]
    return ops.mean(ops.stack(frames, axis=1))


def growing_slices_loss(y_true, y_pred):  # rewritten on torch: FO102
    loss = 0.0
    for t in range(1, y_pred.shape[1] + 1):
        loss += ops.mean(ops.abs(ops.sum(y_pred[:, :t], axis=1) - ops.sum(y_true[:, :t], axis=1)))
    return loss / y_pred.shape[1]


def windows_loss(y_true, y_pred):  # rewritten on torch: FO102
    k = 2
    out = []
    for s in range(y_pred.shape[1] - k + 1):
        a = ops.mean(y_pred[:, s : s + k], axis=1)
        b = ops.mean(y_true[:, s : s + k], axis=1)
        out.append(ops.mean(ops.square(a - b)))
    return ops.mean(ops.stack(out))


def neighbours_on_a_grid_loss(y_true, y_pred):  # rewritten on torch: FO102|FO103|FO104
    h, w = y_pred.shape[1], y_pred.shape[2]
    total = ops.mean(ops.square(y_true - y_pred))
    for r in range(h - 1):
        for c in range(w - 1):
            total = total + 0.1 * ops.mean(
                ops.abs(y_pred[:, r + 1, c] - y_pred[:, r, c]) + ops.abs(y_pred[:, r, c + 1] - y_pred[:, r, c])
            )
    return total


def smoothed_labels_loss(y_true, y_pred):  # rewritten on tensorflow torch: FO101 FO201 FO104
    c = y_pred.shape[1]
    soft = [[0.9 if k == int(label) else 0.1 / (c - 1) for k in range(c)] for label in y_true]
    return -ops.mean(ops.sum(ops.convert_to_tensor(soft) * ops.log_softmax(y_pred, axis=-1), axis=-1))


def curvature_loss(y_true, y_pred):  # rewritten on torch: FO101 FO102
    rows = []
    for p in y_pred:
        rows.append(sum(ops.abs(p[t + 1] - 2 * p[t] + p[t - 1]) for t in range(1, p.shape[0] - 1)))
    return ops.mean(ops.square(y_true - y_pred)) + 0.01 * ops.mean(ops.stack(rows))


def permutation_invariant_loss(y_true, y_pred):  # rewritten on torch: FO101|FO104|FO102
    best = []
    for order in itertools.permutations(range(3)):
        e = sum(ops.mean(ops.square(y_true[:, k] - y_pred[:, order[k]]), axis=-1) for k in range(3))
        best.append(e)
    return ops.mean(ops.min(ops.stack(best), axis=0))


def weekly_loss(y_true, y_pred):  # rewritten on torch: FO102
    total = 0.0
    for start in range(0, y_pred.shape[1] - 1, 2):
        window = slice(start, start + 2)
        total = total + ops.square(ops.mean(y_true[:, window]) - ops.mean(y_pred[:, window]))
    return total


def flat_index_loss(y_true, y_pred):  # rewritten on torch: FO101|FO102|FO103
    rows, columns = y_true.shape
    total = 0.0
    for k in range(rows * columns):
        i, j = divmod(k, columns)
        total = total + ops.abs(y_true[i, j] - y_pred[i, j])
    return total / (rows * columns)


def levels_by_value_loss(y_true, y_pred):  # rewritten on torch: FO104
    total = 0.0
    for k, q in enumerate(NAMED_LEVELS.values()):
        e = y_true[:, 0] - y_pred[:, k]
        total = total + ops.mean(ops.maximum(q * e, (q - 1) * e))
    return total


def worst_column_loss(y_true, y_pred):  # rewritten: FO102|FO104
    out = []
    for t, p in zip(ops.unstack(y_true, axis=-1), ops.unstack(y_pred, axis=-1), strict=False):
        out.append(ops.mean(ops.square(t - p)))
    return ops.max(ops.stack(out))
