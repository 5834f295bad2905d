"""Losses as they stand in forum posts, in `keras.ops`, NumPy and pandas: each is rewritten, its codes are reported."""

import collections
import itertools

import keras
import numpy as np
import pandas as pd
from keras import ops

from . import forum_parts
from .forum_parts import Weighting, hinge, rows_of

PRICES = pd.DataFrame({"sku": [3, 5, 9], "price": [1.0, 2.5, 0.5], "tax": [0.1, 0.2, 0.0]})
BY_SKU = PRICES.set_index("sku")
PARENT = {0: 0, 1: 0, 2: 1}
CLASS_NAMES = ["cat", "dog", "bird"]
NAME_WEIGHTS = {"cat": 1.0, "dog": 2.0, "bird": 0.5}
HEADS = (1.0, 0.3, 2.0)
weigh = Weighting([0.5, 1.0, 2.0])


def drawdown_loss(y_true, y_pred):  # codes: FO102 FO106
    peak = y_pred[:, 0]
    worst = ops.zeros_like(peak)
    for t in range(1, y_pred.shape[1]):
        peak = ops.maximum(peak, y_pred[:, t])
        worst = ops.maximum(worst, peak - y_pred[:, t])
    return ops.mean(worst) + ops.mean(ops.square(y_true - y_pred))


def macro_f1_loss(y_true, y_pred):  # codes: FO104
    scores = []
    for c in range(y_pred.shape[1]):
        tp = ops.sum(y_true[:, c] * y_pred[:, c])
        fp = ops.sum((1 - y_true[:, c]) * y_pred[:, c])
        fn = ops.sum(y_true[:, c] * (1 - y_pred[:, c]))
        precision = tp / (tp + fp + 1e-7)
        recall = tp / (tp + fn + 1e-7)
        scores.append(2 * precision * recall / (precision + recall + 1e-7))
    return 1 - sum(scores) / len(scores)


def padded_steps_loss(y_true, y_pred):  # codes: FO101 FO102
    total, count = 0.0, 0
    for i in range(y_true.shape[0]):
        for t in range(y_true.shape[1]):
            if float(y_true[i, t]) == -1.0:
                continue
            total = total + ops.square(y_true[i, t] - y_pred[i, t])
            count += 1
    return total / max(count, 1)


def supervised_contrastive_loss(y_true, y_pred, temperature=0.5):  # codes: FO103
    n = y_pred.shape[0]
    total = 0.0
    for i in range(n):
        denominator, positives = 0.0, []
        for j in range(n):
            if i == j:
                continue
            similarity = ops.sum(y_pred[i] * y_pred[j]) / temperature
            denominator = denominator + ops.exp(similarity)
            if int(y_true[i]) == int(y_true[j]):
                positives.append(similarity)
        if positives:
            total = total + ops.log(denominator) - ops.mean(ops.stack(positives))
    return total / n


def discounted_rows_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for rank, (t, p) in enumerate(zip(y_true, y_pred, strict=True), start=1):
        total += ops.mean(ops.abs(t - p)) / rank
    return total


def mapped_pairs_loss(y_true, y_pred):  # codes: FO101
    def worst(pair):
        return ops.max(ops.square(pair[0] - pair[1]))

    return sum(map(worst, zip(y_true, y_pred, strict=False))) / len(y_pred)


def series_map_loss(y_true, y_pred):  # codes: FO205
    labels = pd.Series(ops.convert_to_numpy(y_true).astype(int))
    w = labels.map({0: 1.0, 1: 2.0, 2: 4.0}).to_numpy(dtype="float32")
    return ops.mean(ops.convert_to_tensor(w) * ops.square(y_pred))


def merged_prices_loss(y_true, y_pred, sku):  # codes: FO402|FO205|FO401
    left = pd.DataFrame({"sku": ops.convert_to_numpy(sku)})
    row = left.merge(PRICES, on="sku", how="left")
    w = ops.convert_to_tensor(row["price"].to_numpy(dtype="float32"))
    return ops.mean(w * ops.abs(y_true - y_pred))


def row_of_frame_loss(y_true, y_pred, sku):  # codes: FO101 FO401
    total = 0.0
    for i in range(len(y_pred)):
        row = BY_SKU.loc[int(sku[i])]
        total = total + row["price"] * ops.square(y_true[i] - y_pred[i]) + row["tax"] * ops.abs(y_pred[i])
    return total / len(y_pred)


def iloc_by_label_loss(y_true, y_pred):  # codes: FO101 FO401
    rows = [PRICES.iloc[int(y_true[i])]["price"] * ops.sum(ops.square(y_pred[i])) for i in range(y_pred.shape[0])]
    return ops.mean(ops.stack(rows))


def grouped_error_metric(y_true, y_pred, group):  # codes: FO406|FO205
    error = ops.convert_to_numpy(ops.abs(y_true - y_pred))
    frame = pd.DataFrame({"g": ops.convert_to_numpy(group), "e": error})
    return float(frame.groupby("g")["e"].mean().mean())


def kappa_metric(y_true, y_pred):  # codes: FO101 FO201|FO205
    observed = np.zeros((3, 3))
    for a, b in zip(ops.convert_to_numpy(y_true), ops.convert_to_numpy(ops.argmax(y_pred, axis=-1)), strict=False):
        observed[int(a)][int(b)] += 1
    return float(np.trace(observed) / observed.sum())


def crps_loss(y_true, y_pred):  # codes: FO101 FO102|FO103
    total = 0.0
    members = y_pred.shape[1]
    for i in range(y_pred.shape[0]):
        first = sum(ops.abs(y_pred[i, m] - y_true[i]) for m in range(members)) / members
        second = 0.0
        for m in range(members):
            for k in range(members):
                second = second + ops.abs(y_pred[i, m] - y_pred[i, k])
        total = total + first - second / (2 * members**2)
    return total / y_pred.shape[0]


def concordance_metric(y_true, y_pred):  # codes: FO103
    right, comparable = 0.0, 0
    for i in range(y_true.shape[0]):
        for j in range(y_true.shape[0]):
            if float(y_true[i]) < float(y_true[j]):
                comparable += 1
                if float(y_pred[i]) < float(y_pred[j]):
                    right += 1.0
                elif float(y_pred[i]) == float(y_pred[j]):
                    right += 0.5
    return right / max(comparable, 1)


def neighbours_on_a_grid_loss(y_true, y_pred):  # codes: FO102|FO103|FO104
    h, w = y_pred.shape[1], y_pred.shape[2]
    total = ops.mean(ops.square(y_true - y_pred))
    for r in range(h - 1):
        for c in range(w - 1):
            total = total + 0.1 * ops.mean(
                ops.abs(y_pred[:, r + 1, c] - y_pred[:, r, c]) + ops.abs(y_pred[:, r, c + 1] - y_pred[:, r, c])
            )
    return total


def smoothed_labels_loss(y_true, y_pred):  # codes: FO101 FO201 FO104
    c = y_pred.shape[1]
    soft = [[0.9 if k == int(label) else 0.1 / (c - 1) for k in range(c)] for label in y_true]
    return -ops.mean(ops.sum(ops.convert_to_tensor(soft) * ops.log_softmax(y_pred, axis=-1), axis=-1))


def hard_examples_loss(y_true, y_pred):  # codes: FO101
    losses = [ops.mean(ops.square(t - p)) for t, p in zip(y_true, y_pred, strict=False)]
    losses.sort(key=float, reverse=True)
    hardest = losses[: max(1, len(losses) // 3)]
    return sum(hardest) / len(hardest)


def weighted_heads_loss(y_true, y_pred):  # codes: FO104
    parts = []
    for k, w in zip(range(y_pred.shape[-1]), HEADS, strict=False):
        parts.append(w * ops.mean(ops.square(y_true[..., k] - y_pred[..., k])))
    return ops.sum(ops.stack(parts))


def counted_classes_loss(y_true, y_pred):  # codes: FO101 FO201 FO406|FO101
    counts = collections.Counter(ops.convert_to_numpy(y_true).astype(int).tolist())
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + ops.square(y_pred[i]) / counts[int(y_true[i])]
    return total


def inverse_frequency_loss(y_true, y_pred):  # codes: FO205
    labels = ops.convert_to_numpy(y_true).astype("int64")
    counts = np.bincount(labels, minlength=y_pred.shape[1])
    w = 1.0 / np.maximum(counts, 1)
    picked = ops.sum(ops.one_hot(ops.cast(y_true, "int32"), y_pred.shape[1]) * ops.log_softmax(y_pred), axis=-1)
    return -ops.mean(ops.convert_to_tensor(w[labels].astype("float32")) * picked)


def earth_mover_loss(y_true, y_pred):  # codes: FO102|FO104
    total, flow = 0.0, 0.0
    for k in range(y_pred.shape[1]):
        flow = flow + y_pred[:, k] - y_true[:, k]
        total = total + ops.abs(flow)
    return ops.mean(total)


def two_whiles_loss(y_true, y_pred):  # codes: FO103
    n, i, total = y_pred.shape[0], 0, 0.0
    while i < n:
        j = i + 1
        while j < n:
            d = ops.sum(ops.square(y_pred[i] - y_pred[j]))
            same = ops.cast(y_true[i] == y_true[j], "float32")
            total = total + same * d + (1 - same) * ops.maximum(0.0, 1.0 - d)
            j += 1
        i += 1
    return total / max(n * (n - 1) / 2, 1)


def curvature_loss(y_true, y_pred):  # codes: FO101 FO102
    rows = []
    for p in y_pred:
        rows.append(sum(ops.abs(p[t + 1] - 2 * p[t] + p[t - 1]) for t in range(1, p.shape[0] - 1)))
    return ops.mean(ops.square(y_true - y_pred)) + 0.01 * ops.mean(ops.stack(rows))


def unlabelled_rows_loss(y_true, y_pred):  # codes: FO101
    total, seen = 0.0, 0
    for i in range(len(y_true)):
        if np.isnan(float(y_true[i])):
            continue
        total += ops.square(y_true[i] - y_pred[i])
        seen += 1
    return total / seen if seen else ops.sum(y_pred) * 0.0


def counted_hits_metric(y_true, y_pred):  # codes: FO101 FO201
    correct = 0
    for t, p in zip(y_true, y_pred, strict=False):
        if int(ops.argmax(p)) == int(t):
            correct += 1
    return correct / len(y_true)


def present_classes_loss(y_true, y_pred):  # codes: FO104
    losses = []
    for c in range(3):
        mask = ops.cast(ops.equal(y_true, c), "float32")
        if float(ops.sum(mask)) == 0:
            continue
        losses.append(ops.sum(mask * ops.square(y_pred)) / ops.sum(mask))
    return ops.mean(ops.stack(losses))


def parent_class_loss(y_true, y_pred):  # codes: FO101 FO401
    total = 0.0
    for i in range(y_pred.shape[0]):
        child, parent = int(y_true[i]), PARENT[int(y_true[i])]
        total = total + ops.square(y_pred[i, child]) + 0.5 * ops.abs(y_pred[i, parent])
    return total / y_pred.shape[0]


def named_classes_loss(y_true, y_pred):  # codes: FO101 FO401
    rows = []
    for label, p in zip(y_true, y_pred, strict=False):
        name = CLASS_NAMES[int(label)]
        rows.append(NAME_WEIGHTS[name] * ops.mean(ops.square(p)))
    return ops.mean(ops.stack(rows))


def indexed_entries_loss(y_true, y_pred):  # codes: FO101|FO102|FO103
    total = 0.0
    for i, j in np.ndindex(y_pred.shape[0], y_pred.shape[1]):
        e = y_true[i, j] - y_pred[i, j]
        if ops.abs(e) < 1.0:
            total = total + 0.5 * e**2
        else:
            total = total + ops.abs(e) - 0.5
    return total / (y_pred.shape[0] * y_pred.shape[1])


def positives_above_negatives_loss(y_true, y_pred):  # codes: FO103|FO101
    pos = [p for t, p in zip(y_true, y_pred, strict=False) if t > 0.5]
    neg = [p for t, p in zip(y_true, y_pred, strict=False) if t <= 0.5]
    terms = [ops.softplus(n - p) for p in pos for n in neg]
    return ops.mean(ops.stack(terms)) if terms else 0.0 * ops.sum(y_pred)


def worst_row_loss(y_true, y_pred):  # codes: FO101
    worst = None
    for t, p in zip(y_true, y_pred, strict=False):
        e = ops.mean(ops.abs(t - p))
        worst = e if worst is None else ops.maximum(worst, e)
    return worst


def permutation_invariant_loss(y_true, y_pred):  # codes: FO101|FO104|FO102
    best = []
    for order in itertools.permutations(range(3)):
        e = sum(ops.mean(ops.square(y_true[:, k] - y_pred[:, order[k]]), axis=-1) for k in range(3))
        best.append(e)
    return ops.mean(ops.min(ops.stack(best), axis=0))


def chamfer_loss(y_true, y_pred):  # codes: FO101 FO103|FO102
    total = 0.0
    for a, b in zip(y_true, y_pred, strict=False):
        for p in range(b.shape[0]):
            total = total + ops.min(ops.stack([ops.sum(ops.square(b[p] - a[q])) for q in range(a.shape[0])]))
    return total / y_pred.shape[0]


def helper_module_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for t, p in rows_of(y_true, y_pred):
        total = total + 1.0 - forum_parts.overlap(t, p)
    return total / y_true.shape[0]


def callable_object_loss(y_true, y_pred):  # codes: FO101 FO401
    return sum(weigh(y_true[i]) * hinge(y_pred[i], 1.0) for i in range(y_pred.shape[0])) / y_pred.shape[0]


def written_cells_loss(y_true, y_pred):  # codes: FO101
    out = [0.0] * y_pred.shape[0]
    for i in range(y_pred.shape[0]):
        out[i] = ops.logsumexp(y_pred[i]) - ops.sum(y_true[i] * y_pred[i])
    return ops.mean(ops.stack(out))


class Focal(keras.losses.Loss):  # codes: FO101
    gamma = 2.0

    @staticmethod
    def pick(p, label):
        return p[int(label)]

    @property
    def power(self):
        return self.gamma

    def call(self, y_true, y_pred):
        rows = []
        for i in range(y_pred.shape[0]):
            p = self.pick(ops.softmax(y_pred[i]), y_true[i])
            rows.append(-((1 - p) ** self.power) * ops.log(p + 1e-7))
        return ops.stack(rows)
