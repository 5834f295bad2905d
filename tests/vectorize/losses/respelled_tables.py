"""Kinds of losses that public questions are about, in other words: boxes, lengths, households, stores, ranks."""

import collections
import functools
import itertools
import operator

import keras
import numpy as np
import pandas as pd
from keras import ops
from sklearn import metrics as skm

HOUSE = {0: 0, 1: 1, 2: 2, 3: 1, 4: 3, 5: 0}
SPEC = pd.DataFrame({"w": [1.0, 2.5, 0.2, 4.0], "m": [0.1, 0.2, 0.3, 0.4]}, index=[0, 1, 2, 3])
COST = pd.DataFrame(
    [(g, t, q, 1.0 + g + 2 * t + 3 * q) for g in range(3) for t in range(2) for q in range(2)],
    columns=["g", "t", "q", "c"],
)
COSTS = COST.set_index(["g", "t", "q"])["c"]
STORES = pd.DataFrame({"store": [3, 7, 9], "mean": [1.0, -2.0, 0.5], "std": [2.0, 0.5, 1.0]})
EDGES = np.array([0.0, 1.0, 5.0, 20.0])
W = np.array([0.1, 1.0, 4.0, 10.0], "float32")
MATRIX = [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
DEFAULTS = collections.defaultdict(lambda: 1.0, {0: 2.0, 2: 3.0})
COUNTS = collections.Counter({0: 3, 2: 1})
THRESH = 0.5


def counted_lengths_loss(y_true, y_pred, lens):  # codes: FO101 FO201
    i, out = 0, []
    while i < len(y_true):
        k = int(lens[i])
        err = ops.abs(y_pred[i][:k] - y_true[i][:k])
        out.append(ops.sum(err) / max(k, 1))
        i += 1
    return sum(out) / len(out)


def frames_loss(y_true, y_pred):  # codes: FO102
    steps = y_pred.shape[1]
    frames = [ops.sqrt(ops.sum((y_true[:, k] - y_pred[:, k]) ** 2, axis=-1) + 1e-6) for k in range(steps)]
    return ops.mean(ops.stack(frames, axis=1))


def _iou(a, b):
    low = ops.maximum(a[:2], b[:2])
    high = ops.minimum(a[2:], b[2:])
    side = ops.relu(high - low)
    inter = side[0] * side[1]
    area = lambda r: (r[2] - r[0]) * (r[3] - r[1])  # noqa: E731
    return inter / (area(a) + area(b) - inter + 1e-9)


def padded_boxes_loss(y_true, y_pred, n_boxes):  # codes: FO101 FO101|FO103
    losses = []
    for img in range(y_pred.shape[0]):
        for box in y_pred[img]:
            best = 0.0
            for j in range(int(n_boxes[img])):
                best = ops.maximum(best, _iou(box, y_true[img, j]))
            losses.append(1.0 - best)
    return sum(losses) / len(losses)


def changes_metric(y_true, y_pred):  # codes: FO101|FO102 FO201|FO205
    def changes(rows):
        return [sum(int(a != b) for a, b in zip(row[1:], row[:-1], strict=False)) for row in rows]

    t, p = changes(ops.convert_to_numpy(y_true)), changes(ops.convert_to_numpy(y_pred))
    return float(np.mean([abs(a - b) for a, b in zip(t, p, strict=False)]))


def household_loss(y_true, y_pred):  # codes: FO103 FO401
    loss = 0.0
    for i in range(len(y_pred)):
        for j in range(len(y_pred)):
            if j <= i:
                continue
            d = ops.norm(y_pred[i] - y_pred[j])
            if HOUSE[int(y_true[i])] == HOUSE[int(y_true[j])]:
                loss += d
            else:
                loss -= d
    return loss


def label_pairs_loss(y_true, y_pred):  # codes: FO103 FO201 FO101|FO104
    rows = []
    for t, p in zip(y_true, y_pred, strict=False):
        pos = [p[k] for k in range(len(t)) if float(t[k]) > 0.5]
        neg = [p[k] for k in range(len(t)) if float(t[k]) <= 0.5]
        pairs = [ops.relu(1.0 - a + b) for a, b in itertools.product(pos, neg)]
        rows.append(sum(pairs) / max(1, len(pairs)) if pairs else ops.zeros(()))
    return ops.mean(ops.stack(rows))


def largest_label_loss(y_true, y_pred):  # codes: FO104|FO107 FO201
    score = 0.0
    n = int(ops.max(y_true)) + 1
    for c in range(n):
        t = ops.cast(ops.equal(y_true, c), "float32")
        p = y_pred[..., c]
        score = score + (2 * ops.sum(t * p) + 1.0) / (ops.sum(t) + ops.sum(p) + 1.0)
    return 1 - score / n


def chosen_weights_loss(y_true, y_pred):  # codes: FO205|FO201
    labels = ops.convert_to_numpy(y_true).astype("int32")
    weights = np.array([2.0 if c == 0 else 0.5 if c == 2 else 1.0 for c in labels], dtype=np.float32)
    return ops.mean(ops.convert_to_tensor(weights) * ops.square(y_pred))


def partition_loss(y_true, y_pred):  # codes: FO205|FO201
    e = ops.square(y_true - y_pred)
    k = max(1, y_pred.shape[0] // 3)
    cut = np.partition(ops.convert_to_numpy(e), -k)[-k]
    return ops.sum(ops.where(e >= cut, e, 0.0)) / k


def shared_top_metric(y_true, y_pred):  # codes: FO101 FO205
    share = 0.0
    t_np, p_np = ops.convert_to_numpy(y_true), ops.convert_to_numpy(y_pred)
    for t, p in zip(t_np, p_np, strict=False):
        a = set(np.argsort(t)[-3:].tolist())
        b = set(np.argsort(p)[-3:].tolist())
        share += len(a.intersection(b)) / 3
    return share / len(t_np)


def area_metric(y_true, y_pred):  # codes: FO205
    return skm.roc_auc_score(np.asarray(y_true), np.asarray(y_pred))


def species_loss(y_true, y_pred):  # codes: FO101 FO401
    total = 0.0
    for c, scores in zip(y_true, y_pred, strict=False):
        row = SPEC.loc[int(c)]
        others = [scores[k] for k in range(4) if k != int(c)]
        gap = row["m"] + max(others) - scores[int(c)]
        total += row["w"] * ops.relu(gap)
    return total / len(y_true)


def three_keys_loss(y_true, y_pred, group):  # codes: FO401 FO101|FO104
    rows = []
    for i in range(y_true.shape[0]):
        expected = 0.0
        for k in range(2):
            expected = expected + COSTS[int(group[i]), int(y_true[i]), k] * y_pred[i, k]
        rows.append(expected)
    return ops.mean(ops.stack(rows))


def matching_row_loss(y_true, y_pred, store):  # codes: FO401 FO101
    total = 0.0
    for s, t, p in zip(store, y_true, y_pred, strict=False):
        row = STORES[STORES.store == int(s)].iloc[0]
        total += ops.square((t - row["mean"]) / row["std"] - p)
    return total / len(y_true)


def dict_of_columns_loss(y_true, y_pred, store):  # codes: FO401 FO101
    means = dict(zip(STORES.store, STORES["mean"], strict=False))
    total = 0.0
    for i in range(y_true.shape[0]):
        total += ops.abs(y_true[i] - means[int(store[i])] - y_pred[i])
    return total


def interval_weights_loss(y_true, y_pred):  # codes: FO205
    k = np.searchsorted(EDGES, ops.convert_to_numpy(y_true), side="right") - 1
    w = ops.convert_to_tensor(W[k])
    return ops.mean(w * ops.square(y_true - y_pred))


def cut_series_loss(y_true, y_pred):  # codes: FO205
    level = pd.cut(pd.Series(ops.convert_to_numpy(y_true)), [-np.inf, 0.0, 1.0, np.inf], labels=False)
    w = np.array([1.0, 2.0, 3.0], "float32")[level.to_numpy()]
    return ops.mean(ops.convert_to_tensor(w) * ops.square(y_true - y_pred))


def list_mle_loss(y_true, y_pred):  # codes: FO101 FO205
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        order = np.argsort(ops.convert_to_numpy(t))[::-1]
        ranked = ops.stack([p[int(k)] for k in order])
        for i in range(len(order)):
            total = total + ops.logsumexp(ranked[i:]) - ranked[i]
    return total / len(y_true)


def list_mle_ops_loss(y_true, y_pred):  # codes: FO101
    rows = []
    for i in range(y_true.shape[0]):
        order = ops.argsort(-y_true[i])
        ranked = ops.take(y_pred[i], order)
        tails = [ops.logsumexp(ranked[k:]) for k in range(y_true.shape[1])]
        rows.append(ops.sum(ops.stack(tails) - ranked))
    return ops.mean(ops.stack(rows))


def next_round_loss(y_true, y_pred):  # codes: FO101
    n = y_pred.shape[0]
    total = 0.0
    for i in range(n):
        total += ops.sum(ops.square(y_pred[i] - y_pred[(i + 1) % n] - y_true[i]))
    return total / n


def two_totals_loss(y_true, y_pred):  # codes: FO101
    num, den = 0.0, 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        num, den = num + ops.sum(t * p), den + ops.sum(t) + ops.sum(p)
    return 1.0 - 2.0 * num / (den + 10.0)


def worst_row_loss(y_true, y_pred):  # codes: FO101
    best = None
    for t, p in zip(y_true, y_pred, strict=False):
        e = ops.mean(ops.square(t - p))
        best = e if best is None else ops.maximum(best, e)
    return best


def growing_slices_loss(y_true, y_pred):  # codes: FO102
    loss = 0.0
    for t in range(1, y_pred.shape[1] + 1):
        loss += ops.mean(ops.abs(ops.sum(y_pred[:, :t], axis=1) - ops.sum(y_true[:, :t], axis=1)))
    return loss / y_pred.shape[1]


def list_of_lists_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for i in range(y_pred.shape[0]):
        row = MATRIX[int(y_true[i])]
        for c in range(3):
            total = total + row[c] * y_pred[i, c]
    return total / y_pred.shape[0]


def matrix_of_lists_loss(y_true, y_pred):  # codes: FO103
    n = y_pred.shape[0]
    d = ops.stack([ops.stack([ops.sum(ops.abs(y_pred[i] - y_pred[j])) for j in range(n)]) for i in range(n)])
    s = ops.cast(y_true[:, None] == y_true[None, :], "float32")
    return ops.sum(s * d) / n


def worst_by_key_loss(y_true, y_pred):  # codes: FO101 FO201
    e = ops.mean(ops.square(y_true - y_pred), axis=1)
    worst = max(range(e.shape[0]), key=lambda i: float(e[i]))
    return e[worst]


def windows_loss(y_true, y_pred):  # codes: FO102
    k = 2
    out = []
    for s in range(y_pred.shape[1] - k + 1):
        a = ops.mean(y_pred[:, s : s + k], axis=1)
        b = ops.mean(y_true[:, s : s + k], axis=1)
        out.append(ops.mean(ops.square(a - b)))
    return ops.mean(ops.stack(out))


def covariance_loss(y_true, y_pred):  # codes: FO101
    mean = ops.mean(y_pred, axis=0)
    cov = ops.zeros((y_pred.shape[1], y_pred.shape[1]))
    for row in y_pred:
        d = row - mean
        cov = cov + ops.outer(d, d)
    return ops.sum(ops.square(cov / len(y_pred))) + ops.mean(y_true)


def members_of_classes_loss(y_true, y_pred):  # codes: FO107|FO101
    total = 0.0
    for c in sorted({int(v) for v in y_true}):
        members = [y_pred[i] for i in range(len(y_true)) if int(y_true[i]) == c]
        centre = sum(members) / len(members)
        total = total + sum(ops.square(m - centre) for m in members)
    return total


def default_dict_loss(y_true, y_pred):  # codes: FO101 FO401
    return ops.mean(ops.stack([DEFAULTS[int(c)] * ops.square(p) for c, p in zip(y_true, y_pred, strict=False)]))


def counter_table_loss(y_true, y_pred):  # codes: FO101 FO401
    total = 0.0
    for c, p in zip(y_true, y_pred, strict=False):
        total = total + (1.0 + COUNTS[int(c)]) * ops.square(p)
    return total


def smallest_pair_loss(y_true, y_pred):  # codes: FO101 FO201
    t, p = min(zip(y_true, y_pred, strict=False), key=lambda pair: float(pair[0]))
    return ops.square(t - p)


def product_of_rows_loss(y_true, y_pred):  # codes: FO101
    like = functools.reduce(operator.mul, [ops.sigmoid(ops.sum(t * p)) for t, p in zip(y_true, y_pred, strict=False)])
    return -ops.log(like + 1e-12)


def all_within_metric(y_true, y_pred):  # codes: FO101 FO201|FO202
    hits = 0
    for t, p in zip(y_true, y_pred, strict=False):
        if all(bool(ops.abs(a - b) < THRESH) for a, b in zip(t, p, strict=False)):
            hits += 1
    return hits / len(y_true)


class RankingPairs(keras.losses.Loss):  # codes: FO103
    margin = 0.1

    def pair(self, i, j, y_true, y_pred):
        sign = ops.sign(y_true[i] - y_true[j])
        return ops.relu(self.margin - sign * (y_pred[i] - y_pred[j]))

    def call(self, y_true, y_pred):
        n = y_pred.shape[0]
        return sum(self.pair(i, j, y_true, y_pred) for i in range(n) for j in range(i)) / max(1, n * (n - 1) // 2)
