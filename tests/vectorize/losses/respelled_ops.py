"""Losses in further spellings, of `keras.ops`, NumPy and pandas: each is rewritten, and its codes are reported."""

import bisect
import itertools
from functools import partial

import keras
import numpy as np
import pandas as pd
from keras import ops

CLASS_COST = {0: 1.0, 1: 3.0, 2: 0.5}
TABLE = pd.DataFrame({"id": [10, 20, 30], "w": [1.0, 2.0, 4.0], "bias": [0.0, 0.5, -0.5]})
TABLE2 = TABLE.set_index("id")
NESTED = {0: {0: 0.0, 1: 2.0}, 1: {0: 1.0, 1: 0.0}}
PAIRCOST = {(0, 0): 0.0, (0, 1): 1.0, (1, 0): 4.0, (1, 1): 0.0}
BINS = [0.0, 1.0, 3.0]
BINW = [0.5, 1.0, 2.0, 4.0]


def rows_backwards_loss(y_true, y_pred):  # codes: FO101
    out = []
    for _, (t, p) in reversed(list(enumerate(zip(y_true, y_pred, strict=False)))):
        out.append(ops.mean(ops.square(t - p)))
    return sum(out) / len(out)


def tensor_total_loss(y_true, y_pred):  # codes: FO101
    acc = ops.zeros((y_pred.shape[1],))
    for i in range(y_pred.shape[0]):
        acc = acc + ops.square(y_true[i] - y_pred[i])
    return ops.max(acc / y_pred.shape[0])


def joined_rows_loss(y_true, y_pred):  # codes: FO101
    rows = []
    for i in range(len(y_pred)):
        p = y_pred[i] / (ops.sum(ops.abs(y_pred[i])) + 1e-6)
        rows.append(ops.expand_dims(p, 0))
    normed = ops.concatenate(rows, axis=0)
    return ops.mean(ops.square(normed - y_true))


def _squared(a, b, power=2):
    return ops.sum(ops.abs(a - b) ** power)


def partial_helper_loss(y_true, y_pred):  # codes: FO101
    one = partial(_squared, power=3)
    return sum(one(y_true[i], y_pred[i]) for i in range(y_true.shape[0])) / y_true.shape[0]


def text_argument_loss(y_true, y_pred, smooth=1e-3, reduce="mean"):  # codes: FO101
    values = []
    for t, p in zip(y_true, y_pred, strict=False):
        values.append(ops.log(smooth + ops.sum(ops.square(t - p))))
    return ops.mean(ops.stack(values)) if reduce == "mean" else ops.sum(ops.stack(values))


def helpers_inside_loss(y_true, y_pred):  # codes: FO101
    def rows(values):
        return [values[i] for i in range(values.shape[0])]

    def total(pairs):
        result = 0.0
        for a, b in pairs:
            result = result + ops.max(ops.abs(a - b))
        return result

    return total(zip(rows(y_true), rows(y_pred), strict=False))


def counting_down_loss(y_true, y_pred):  # codes: FO101
    i = y_true.shape[0]
    total = 0.0
    while i > 0:
        i -= 1
        total = total + ops.mean(ops.abs(y_true[i] - y_pred[i]))
    return total


def every_other_row_loss(y_true, y_pred):  # codes: FO101
    total, count = 0.0, 0
    for i in range(0, y_pred.shape[0], 2):
        total += ops.sum(ops.square(y_pred[i] - y_true[i]))
        count += 1
    return total / count


def dict_of_lists_loss(y_true, y_pred):  # codes: FO101
    parts = {"value": [], "slope": []}
    for t, p in zip(y_true, y_pred, strict=False):
        parts["value"].append(ops.mean(ops.square(t - p)))
        parts["slope"].append(ops.mean(ops.abs((t[1:] - t[:-1]) - (p[1:] - p[:-1]))))
    return ops.mean(ops.stack(parts["value"])) + 0.5 * ops.mean(ops.stack(parts["slope"]))


def two_results_loss(y_true, y_pred):  # codes: FO101
    def both(t, p):
        e = t - p
        return ops.mean(e), ops.mean(ops.square(e))

    bias = var = 0.0
    for i in range(y_true.shape[0]):
        m, s = both(y_true[i], y_pred[i])
        bias += m
        var += s
    n = y_true.shape[0]
    return ops.square(bias / n) + var / n


def star_argument_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for pair in zip(y_true, y_pred, strict=False):
        total += _squared(*pair)
    return total


def from_a_start_loss(y_true, y_pred, start):  # codes: FO101 FO108 FO201
    total = 0.0
    for i in range(y_true.shape[0]):
        s = int(start[i])
        total = total + ops.sum(ops.square(y_true[i, s:] - y_pred[i, s:]))
    return total / y_true.shape[0]


def split_steps_loss(y_true, y_pred):  # codes: FO102
    total = 0.0
    steps = y_pred.shape[1]
    for a, b in zip(ops.split(y_true, steps, axis=1), ops.split(y_pred, steps, axis=1), strict=False):
        total = total + ops.mean(ops.square(a - b))
    return total / steps


def transposed_rows_loss(y_true, y_pred):  # codes: FO102|FO101
    total = 0.0
    for a, b in zip(ops.transpose(y_true), ops.transpose(y_pred), strict=False):
        total = total + ops.sqrt(ops.mean(ops.square(a - b)) + 1e-6)
    return total


def zipped_ranges_loss(y_true, y_pred):  # codes: FO102
    losses = []
    for prev, nxt in zip(range(y_pred.shape[1] - 1), range(1, y_pred.shape[1]), strict=False):
        d_true = y_true[:, nxt] - y_true[:, prev]
        d_pred = y_pred[:, nxt] - y_pred[:, prev]
        losses.append(ops.mean(ops.square(d_true - d_pred)))
    return ops.sum(ops.stack(losses))


def pairs_in_a_list_loss(y_true, y_pred):  # codes: FO103
    n = y_pred.shape[0]
    pairs = [(i, j) for i in range(n) for j in range(n) if i < j]
    total = 0.0
    for i, j in pairs:
        total += ops.exp(-ops.sum(ops.square(y_pred[i] - y_pred[j])))
    return total / max(len(pairs), 1)


def rows_of_rows_loss(y_true, y_pred):  # codes: FO103
    total = 0.0
    for a in y_pred:
        for b in y_true:
            total = total + ops.max(ops.abs(a - b))
    return total / (len(y_pred) * len(y_true))


def permutations_loss(y_true, y_pred):  # codes: FO103
    total = 0.0
    for i, j in itertools.permutations(range(y_pred.shape[0]), 2):
        total = total + ops.relu(0.5 - (y_pred[i] - y_pred[j]) * ops.sign(y_true[i] - y_true[j]))
    return total


def hardest_pairs_loss(y_true, y_pred):  # codes: FO103
    n = y_pred.shape[0]
    out = []
    for i in range(n):
        pos, neg = [], []
        for j in range(n):
            d = ops.sum(ops.square(y_pred[i] - y_pred[j]))
            if int(y_true[i]) == int(y_true[j]):
                pos.append(d)
            else:
                neg.append(d)
        if pos and neg:
            out.append(ops.relu(ops.max(ops.stack(pos)) - ops.min(ops.stack(neg)) + 0.2))
    return sum(out) / max(len(out), 1)


def tversky_loss(y_true, y_pred, alpha=0.3, beta=0.7):  # codes: FO104
    score = 0
    num_classes = y_pred.shape[-1]
    for c in range(num_classes):
        t = ops.reshape(y_true[..., c], (-1,))
        p = ops.reshape(y_pred[..., c], (-1,))
        tp = ops.sum(t * p)
        score += (tp + 1) / (tp + alpha * ops.sum(p * (1 - t)) + beta * ops.sum((1 - p) * t) + 1)
    return num_classes - score


def confusion_rows_metric(y_true, y_pred):  # codes: FO104
    guess = ops.argmax(y_pred, axis=-1)
    label = ops.cast(y_true, "int32")
    matrix = [
        [ops.sum(ops.cast((label == i) & (ops.cast(guess, "int32") == j), "float32")) for j in range(3)]
        for i in range(3)
    ]
    return sum(matrix[i][i] for i in range(3)) / y_true.shape[0]


def nested_dict_loss(y_true, y_pred, group):  # codes: FO101 FO401
    total = 0.0
    for i in range(y_true.shape[0]):
        total += NESTED[int(y_true[i])][int(group[i])] * ops.square(y_pred[i])
    return total


def tuple_keys_loss(y_true, y_pred, group):  # codes: FO101 FO401
    total = 0.0
    for i in range(y_true.shape[0]):
        total += PAIRCOST[(int(y_true[i]), int(group[i]))] * ops.square(y_pred[i])
    return total


def two_cells_loss(y_true, y_pred, store):  # codes: FO101 FO401
    rows = []
    for i in range(y_pred.shape[0]):
        w = TABLE2.loc[int(store[i]), "w"]
        b = TABLE2.at[int(store[i]), "bias"]
        rows.append(w * ops.abs(y_pred[i] - y_true[i] - b))
    return ops.mean(ops.stack(rows))


def series_by_array_loss(y_true, y_pred, store):  # codes: FO205|FO401
    w = TABLE2["w"].loc[ops.convert_to_numpy(store)].to_numpy()
    return ops.mean(ops.convert_to_tensor(w.astype("float32")) * ops.square(y_true - y_pred))


def bisected_loss(y_true, y_pred):  # codes: FO101 FO201
    total = 0.0
    for i in range(y_true.shape[0]):
        k = bisect.bisect_right(BINS, float(y_true[i]))
        total += BINW[k] * ops.square(y_true[i] - y_pred[i])
    return total / y_true.shape[0]


def numpy_vectorize_loss(y_true, y_pred):  # codes: FO205
    w = np.vectorize(lambda c: CLASS_COST[int(c)])(ops.convert_to_numpy(y_true))
    return ops.mean(ops.convert_to_tensor(w.astype("float32")) * ops.square(y_pred))


def numpy_select_loss(y_true, y_pred):  # codes: FO205
    t = np.asarray(y_true)
    w = np.select([t < 0, t < 1], [0.5, 1.0], default=2.0).astype("float32")
    return ops.mean(ops.convert_to_tensor(w) * ops.square(y_true - y_pred))


def above_median_loss(y_true, y_pred):  # codes: FO205|FO201
    e = ops.abs(y_true - y_pred)
    med = np.median(ops.convert_to_numpy(e))
    return ops.mean(ops.where(e > med, e, 0.0))


def sorted_by_key_loss(y_true, y_pred):  # codes: FO101 FO201
    e = ops.square(y_true - y_pred)
    order = sorted(range(e.shape[0]), key=lambda i: float(e[i]), reverse=True)
    k = max(1, len(order) // 2)
    return sum(e[i] for i in order[:k]) / k


def rank_correlation_metric(y_true, y_pred):  # codes: FO205
    a = np.argsort(np.argsort(ops.convert_to_numpy(y_true)))
    b = np.argsort(np.argsort(ops.convert_to_numpy(y_pred)))
    n = len(a)
    d = (a - b).astype("float64")
    return 1.0 - 6.0 * float(np.sum(d * d)) / max(n * (n * n - 1), 1)


def precision_at_three_metric(y_true, y_pred):  # codes: FO101 FO205
    hits = []
    for t, p in zip(ops.convert_to_numpy(y_true), ops.convert_to_numpy(y_pred), strict=False):
        top = np.argsort(p)[::-1][:3]
        hits.append(t[top].sum() / 3)
    return float(np.mean(hits))


class SampleDice(keras.losses.Loss):  # codes: FO101
    def __init__(self, smooth=1.0, name="dice"):
        super().__init__(name=name)
        self.smooth = smooth

    def call(self, y_true, y_pred):
        scores = []
        for t, p in zip(y_true, y_pred, strict=False):
            scores.append(self.dice(t, p))
        return ops.stack(scores)

    def dice(self, t, p):
        inter = ops.sum(t * p)
        return 1.0 - (2.0 * inter + self.smooth) / (ops.sum(t * t) + ops.sum(p * p) + self.smooth)


class DictWeights(keras.losses.Loss):  # codes: FO101 FO401
    def __init__(self, weights=None):
        super().__init__()
        self.weights = weights or {0: 1.0, 1: 4.0, 2: 0.5}

    def call(self, y_true, y_pred):
        total = 0.0
        for i in range(y_true.shape[0]):
            total += self.weights[int(y_true[i])] * ops.square(y_pred[i])
        return total / y_true.shape[0]
