"""Branches in a loop: conditions, chains of them, samples that are passed over."""

import keras
import numpy as np
from keras import ops

THRESH = 0.5
IGNORED = 2


def missing_targets(y_true, y_pred):  # rewritten on torch: FO101 FO104
    total = 0.0
    for i in range(y_true.shape[0]):
        for k in range(y_true.shape[1]):
            if not ops.isnan(y_true[i, k]):
                total = total + ops.square(y_true[i, k] - y_pred[i, k])
    return total


def huber_elements_loss(y_true, y_pred, delta=1.0):  # rewritten on torch: FO101 FO201|FO202
    batch, dim = y_true.shape
    loss = 0.0
    for b in range(batch):
        for d in range(dim):
            err = y_true[b, d] - y_pred[b, d]
            if abs(float(err)) <= delta:
                loss += 0.5 * err * err
            else:
                loss += delta * (ops.abs(err) - 0.5 * delta)
    return loss / (batch * dim)


def present_only_loss(y_true, y_pred):  # rewritten: FO101 FO201|FO202
    vals = []
    for t, p in zip(y_true, y_pred, strict=False):
        if not bool(ops.isnan(t)):
            vals.append(ops.square(t - p))
    if not vals:
        return ops.sum(0.0 * y_pred)
    return sum(vals) / len(vals)


def walrus_loss(y_true, y_pred):  # rewritten on tensorflow torch: FO101 FO201|FO202
    return ops.stack(
        [e if (e := ops.mean(ops.abs(t - p))) < 1.0 else e * 2.0 for t, p in zip(y_true, y_pred, strict=False)]
    )


def boundary_loss(y_true, y_pred):  # rewritten on torch: FO101 FO102
    batch, steps = y_pred.shape[0], y_pred.shape[1]
    total = 0.0
    for b in range(batch):
        for t in range(steps):
            if t == 0 or t == steps - 1:
                total = total + 2.0 * ops.square(y_true[b, t] - y_pred[b, t])
            else:
                total = total + ops.square(y_true[b, t] - y_pred[b, t])
    return total / (batch * steps)


def confusion_metric(y_true, y_pred):  # rewritten on tensorflow torch: FO101 FO201
    tp = fp = fn = 0
    for t, p in zip(y_true, y_pred, strict=False):
        guess = 1 if float(p) > 0.5 else 0
        if guess == 1 and int(t) == 1:
            tp += 1
        elif guess == 1:
            fp += 1
        elif int(t) == 1:
            fn += 1
    return 2 * tp / max(2 * tp + fp + fn, 1)


def skipped_labels_loss(y_true, y_pred):  # rewritten on jax torch: FO101 FO202
    total = 0.0
    for i in range(y_pred.shape[0]):
        if y_true[i] == 1:
            total += -ops.log(y_pred[i] + 1e-7)
        elif y_true[i] == 0:
            total += -ops.log(1 - y_pred[i] + 1e-7)
        else:
            continue
    return total / y_pred.shape[0]


def all_within_metric(y_true, y_pred):  # rewritten on torch: FO101 FO201|FO202
    hits = 0
    for t, p in zip(y_true, y_pred, strict=False):
        if all(bool(ops.abs(a - b) < THRESH) for a, b in zip(t, p, strict=False)):
            hits += 1
    return hits / len(y_true)


def padded_steps_loss(y_true, y_pred):  # rewritten on torch: FO101 FO102
    total, count = 0.0, 0
    for i in range(y_true.shape[0]):
        for t in range(y_true.shape[1]):
            if float(y_true[i, t]) == -1.0:
                continue
            total = total + ops.square(y_true[i, t] - y_pred[i, t])
            count += 1
    return total / max(count, 1)


def unlabelled_rows_loss(y_true, y_pred):  # rewritten on torch: FO101
    total, seen = 0.0, 0
    for i in range(len(y_true)):
        if np.isnan(float(y_true[i])):
            continue
        total += ops.square(y_true[i] - y_pred[i])
        seen += 1
    return total / seen if seen else ops.sum(y_pred) * 0.0


def counted_hits_metric(y_true, y_pred):  # rewritten on torch: FO101 FO201
    correct = 0
    for t, p in zip(y_true, y_pred, strict=False):
        if int(ops.argmax(p)) == int(t):
            correct += 1
    return correct / len(y_true)


def indexed_entries_loss(y_true, y_pred):  # rewritten on torch: FO101|FO102|FO103
    total = 0.0
    for i, j in np.ndindex(y_pred.shape[0], y_pred.shape[1]):
        e = y_true[i, j] - y_pred[i, j]
        if ops.abs(e) < 1.0:
            total = total + 0.5 * e**2
        else:
            total = total + ops.abs(e) - 0.5
    return total / (y_pred.shape[0] * y_pred.shape[1])


def ignored_label_loss(y_true, y_pred):  # rewritten on torch: FO101
    losses = []
    for label, logits in zip(y_true, y_pred, strict=False):
        if int(label) == IGNORED:
            continue
        losses.append(-ops.log_softmax(logits)[int(label)])
    if len(losses) == 0:
        return ops.sum(y_pred) * 0.0
    return ops.mean(ops.stack(losses))


def signed_errors_loss(y_true, y_pred):  # rewritten on torch: FO101 FO102
    over, under = 0.0, 0.0
    for i in range(y_true.shape[0]):
        for j in range(y_true.shape[1]):
            e = y_pred[i, j] - y_true[i, j]
            if e > 0:
                over = over + e**2
            elif e < 0:
                under = under + abs(e)
    return (over + 3.0 * under) / (y_true.shape[0] * y_true.shape[1])


def relative_loss(y_true, y_pred):  # rewritten on torch: FO101
    total, n = 0.0, 0
    for t, p in zip(y_true, y_pred, strict=False):
        if float(ops.abs(t)) < 1e-3:
            continue
        total = total + ops.abs(t - p) / ops.abs(t)
        n += 1
    return total / n if n > 0 else ops.sum(0.0 * y_pred)


def log_ratio_loss(y_true, y_pred):  # rewritten on torch: FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        if t > 0 and p > 0:
            total = total + ops.square(ops.log(p) - ops.log(t))
    return total


class Curriculum(keras.losses.Loss):  # rewritten on torch: FO101 FO202
    def __init__(self, limit=2.0):
        super().__init__(name="curriculum")
        self.limit = limit

    def call(self, y_true, y_pred):
        kept = []
        for i in range(y_pred.shape[0]):
            e = ops.mean(ops.square(y_true[i] - y_pred[i]))
            kept.append(e if e < self.limit else 0.1 * e)
        return ops.stack(kept)


def match_weight(y_true, y_pred):  # rewritten on tensorflow torch: FO101 FO201
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


def either_element_loss(y_true, y_pred):  # rewritten on torch: FO101
    rows = []
    for t, p in zip(y_true, y_pred, strict=False):
        if float(ops.sum(t)) > 0:
            rows.append(ops.sum(ops.abs(t - p)))
        else:
            rows.append(ops.sum(ops.square(p)))
    return ops.max(ops.stack(rows))


def weights_then_sum_loss(y_true, y_pred):  # rewritten on torch: FO101
    weights = []
    for t in y_true:
        if float(t) > 1.5:
            weights.append(3.0)
        elif float(t) > 0.7:
            weights.append(2.0)
        else:
            weights.append(1.0)
    return ops.sum(ops.convert_to_tensor(weights) * ops.square(y_true - y_pred)) / sum(weights)


def count_or_one_loss(y_true, y_pred):  # rewritten on torch: FO101 FO102|FO104
    total = 0.0
    for i in range(y_pred.shape[0]):
        kept = [k for k in range(y_true.shape[1]) if float(y_true[i, k]) > 0.5]
        total = total + sum(y_pred[i, k] for k in kept) / (len(kept) or 1)
    return total


def label_or_one_loss(y_true, y_pred):  # rewritten on tensorflow torch: FO101 FO201
    return sum((int(t) or 1) * ops.sum(ops.square(p)) for t, p in zip(y_true, y_pred, strict=False))
