"""Losses as users spell them, by habit: each must be rewritten and equal. Those of one habit mean the same."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import pandas as pd
from keras import ops

WEIGHTS = {0: 1.0, 1: 2.5, 2: 0.5}
SPARSE_WEIGHTS = {1: 3.0, 7: 0.5}
PRICES = pd.DataFrame({"weight": [1.0, 0.2, 3.0], "margin": [0.1, 0.3, 0.2]})
CITIES = pd.DataFrame({"city": [11, 5, 8], "scale": [2.0, 1.0, 4.0]})
COST = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]], "float32")
LEVELS = [0.1, 0.5, 0.9]
EDGES = [0.0, 1.0, 3.0]


# Batch loops.
def batch_zip(y_true, y_pred):
    losses = []
    for target, guess in zip(y_true, y_pred):  # noqa: B905
        losses.append(ops.mean(ops.abs(target - guess)))
    return sum(losses) / len(losses)


def batch_comprehension(y_true, y_pred):
    rows = [ops.sum(ops.square(y_true[k] - y_pred[k])) for k in range(len(y_true))]
    return ops.mean(ops.stack(rows))


def batch_while(y_true, y_pred):
    at, total, count = 0, 0.0, ops.shape(y_true)[0]
    while at < count:
        total += ops.mean(ops.square(y_true[at, :] - y_pred[at, :]))
        at += 1
    return total / count


def _row_error(a, b):
    difference = a - b
    return ops.sqrt(ops.sum(difference * difference) + 1e-6)


def batch_helper(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        total += _row_error(y_true[i], y_pred[i])
    return total / y_true.shape[0]


batch_lambda = lambda y_true, y_pred: sum(ops.max(ops.abs(y_true[i] - y_pred[i])) for i in range(y_pred.shape[0]))  # noqa: E731


def batch_enumerate(y_true, y_pred):
    rows = []
    for i, row in enumerate(y_pred):
        error = ops.abs(row - y_true[i])
        rows += [ops.max(error) - ops.min(error)]
    return ops.sum(ops.stack(rows))


def batch_map(y_true, y_pred):
    def one(pair):
        return ops.sum(ops.abs(pair[0] - pair[1]))

    return ops.mean(ops.map(one, (y_true, y_pred)))


# Lengths.
def lengths_inner_loop(y_true, y_pred, steps):
    total = 0.0
    for i in range(y_true.shape[0]):
        for t in range(int(steps[i])):
            total = total + ops.square(y_true[i, t] - y_pred[i, t])
    return total / y_true.shape[0]


def lengths_slice(y_true, y_pred, steps):
    parts = [ops.sum(ops.abs(y_true[i][: int(steps[i])] - y_pred[i][: int(steps[i])])) for i in range(y_true.shape[0])]
    return ops.mean(ops.stack(parts))


def lengths_continue(y_true, y_pred, steps):
    total = 0.0
    for i in range(y_true.shape[0]):
        for t in range(y_true.shape[1]):
            if t >= int(steps[i]):
                continue
            total = total + ops.log(1.0 + ops.square(y_true[i, t] - y_pred[i, t]))
    return total


# Missing targets.
def missing_targets(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        for k in range(y_true.shape[1]):
            if not ops.isnan(y_true[i, k]):
                total = total + ops.square(y_true[i, k] - y_pred[i, k])
    return total


# Time and neighbours.
def time_steps(y_true, y_pred):
    total = 0.0
    for t in range(1, y_pred.shape[1]):
        total = total + ops.mean(ops.abs(y_pred[:, t] - y_pred[:, t - 1] - y_true[:, t]))
    return total


def neighbour(y_true, y_pred):
    rows = [ops.sum(ops.square(y_pred[i] - y_pred[i - 1] - y_true[i])) for i in range(y_pred.shape[0])]
    return ops.mean(ops.stack(rows))


def centred(y_true, y_pred):
    rows = []
    for i in range(y_pred.shape[0]):
        rows.append(ops.square(y_pred[i] - ops.mean(y_pred) - y_true[i]))
    return ops.mean(ops.stack(rows))


# Pairs.
def pairs_combinations(y_true, y_pred):
    total = 0.0
    for i, j in itertools.combinations(range(y_pred.shape[0]), 2):
        distance = ops.sqrt(ops.sum(ops.square(y_pred[i] - y_pred[j])))
        if int(y_true[i]) == int(y_true[j]):
            total = total + distance
        else:
            total = total + ops.maximum(0.0, 1.0 - distance)
    return total


def pairs_skip_same(y_true, y_pred):
    total, count = 0.0, 0
    for i in range(y_pred.shape[0]):
        for j in range(y_pred.shape[0]):
            if i == j:
                continue
            total = total + ops.exp(-ops.sum(ops.abs(y_pred[i] - y_pred[j])))
            count += 1
    return total / max(count, 1)


def pairs_ranking(y_true, y_pred):
    total, pairs = 0.0, 0
    for row in range(y_true.shape[0]):
        for a in range(y_true.shape[1]):
            for b in range(y_true.shape[1]):
                if float(y_true[row, a]) > float(y_true[row, b]):
                    total = total + ops.softplus(y_pred[row, b] - y_pred[row, a])
                    pairs += 1
    return total / max(1, pairs)


def pairs_triangle(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        for j in range(i):
            total += ops.sum(y_pred[i] * y_pred[j])
    return total


# Classes.
def classes_dice(y_true, y_pred):
    total = 0.0
    for c in range(y_pred.shape[-1]):
        truth = ops.cast(ops.equal(y_true, c), "float32")
        score = y_pred[:, c]
        total += 1.0 - (2.0 * ops.sum(truth * score) + 1.0) / (ops.sum(truth) + ops.sum(score) + 1.0)
    return total / y_pred.shape[-1]


def classes_cost(y_true, y_pred):
    total = 0.0
    for i in range(3):
        for j in range(3):
            total = total + COST[i, j] * ops.mean(y_true[:, i] * y_pred[:, j])
    return total


def quantiles(y_true, y_pred):
    parts = []
    for k, level in enumerate(LEVELS):
        error = y_true[:, 0] - y_pred[:, k]
        parts.append(ops.mean(ops.maximum(level * error, (level - 1.0) * error)))
    return sum(parts)


# Groups.
def group_means(y_true, y_pred):
    total = 0.0
    for g in range(3):
        members = [y_pred[i] for i in range(y_pred.shape[0]) if int(y_true[i]) == g]
        if members:
            total = total + ops.square(ops.mean(ops.stack(members)) - float(g))
    return total


def group_boolean_mask(y_true, y_pred):
    total = 0.0
    for g in range(3):
        total = total + ops.sum(ops.square(y_pred[y_true == g]))
    return total


# Tables.
def table_dict(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + WEIGHTS[int(y_true[i])] * ops.square(y_pred[i])
    return total


def table_dict_default(y_true, y_pred):
    weights = [SPARSE_WEIGHTS.get(int(label), 1.0) for label in y_true]
    return ops.mean(ops.convert_to_tensor(np.array(weights, "float32")) * ops.square(y_pred))


def table_frame(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        row = PRICES.loc[int(y_true[i])]
        total = total + row.weight * ops.maximum(0.0, row["margin"] - y_pred[i])
    return total / y_true.shape[0]


def table_column(y_true, y_pred):
    terms = []
    for label, guess in zip(y_true, y_pred):  # noqa: B905
        terms.append(float(PRICES.at[int(label), "weight"]) * ops.abs(guess))
    return ops.mean(ops.stack(terms))


def table_index(y_true, y_pred, city):
    scale = CITIES.set_index("city")["scale"]
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + ops.abs(y_true[i] - y_pred[i]) / float(scale.loc[int(city[i])])
    return total / y_true.shape[0]


def table_intervals(y_true, y_pred):
    level = np.digitize(ops.convert_to_numpy(y_true), EDGES)
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + (1.0 + float(level[i])) * ops.square(y_true[i] - y_pred[i])
    return total


# Host values.
def host_threshold(y_true, y_pred):
    error = ops.abs(y_true - y_pred)
    limit = float(ops.mean(error))
    kept = [error[i] for i in range(error.shape[0]) if float(error[i]) <= limit]
    return sum(kept) / len(kept)


def host_log(y_true, y_pred):
    loss = ops.mean(ops.square(y_true - y_pred))
    print("loss", float(loss))
    return loss


def host_branch(y_true, y_pred):
    loss = ops.mean(ops.abs(y_true - y_pred))
    if float(loss) > 1.0:
        loss = ops.square(loss)
    return loss


def host_top(y_true, y_pred):
    order = np.argsort(-ops.convert_to_numpy(y_pred), axis=1)
    hits = 0.0
    for i in range(y_true.shape[0]):
        if int(y_true[i]) in set(order[i][:2]):
            hits += 1
    return ops.convert_to_tensor(np.float32(hits / y_true.shape[0]))


def repeated_work(y_true, y_pred):
    def gram():
        return ops.matmul(y_pred, ops.transpose(y_pred))

    return ops.mean(ops.square(gram())) + ops.sum(ops.diagonal(gram()))


def groups_found(y_true, y_pred):
    total = 0.0
    for value in np.unique(ops.convert_to_numpy(y_true)):
        member = ops.cast(y_true == value, "float32")
        total = total + ops.sum(member * y_pred) / ops.sum(member)
    return total


def groups_absent(y_true, y_pred, group):
    total = 0.0
    for k in range(4):
        member = ops.cast(group == k, "float32")
        if float(ops.sum(member)) > 0:
            total = total + ops.sum(member * ops.square(y_true - y_pred)) / ops.sum(member)
    return total


def table_filter(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        scale = CITIES[CITIES["city"] == 5 + 3 * int(y_true[i] > 0)]["scale"].iloc[0]
        total = total + scale * ops.square(y_true[i] - y_pred[i])
    return total


def host_sorted(y_true, y_pred):
    error = ops.square(y_true - y_pred)
    ranked = sorted([float(value) for value in error], reverse=True)
    limit = ranked[max(1, len(ranked) // 4) - 1]
    total, count = 0.0, 0
    for i in range(error.shape[0]):
        if float(error[i]) >= limit:
            total, count = total + error[i], count + 1
    return total / count


def host_percentile(y_true, y_pred):
    error = ops.abs(y_true - y_pred)
    limit = np.percentile(ops.convert_to_numpy(error), 75)
    return ops.mean(ops.where(error > limit, 0.0, error))


def triplets(y_true, y_pred):
    total, count, n = 0.0, 0, y_pred.shape[0]
    for a in range(n):
        for p in range(n):
            for q in range(n):
                if a != p and int(y_true[a]) == int(y_true[p]) and int(y_true[a]) != int(y_true[q]):
                    near = ops.sum(ops.square(y_pred[a] - y_pred[p]))
                    total = total + ops.maximum(0.0, near - ops.sum(ops.square(y_pred[a] - y_pred[q])) + 0.2)
                    count += 1
    return total / max(count, 1)


def shape_guard(y_true, y_pred):
    n = y_true.shape[0]
    if n < 2:
        return 0.0 * ops.sum(y_pred)
    return sum(ops.sum(ops.abs(y_pred[i] - y_pred[j])) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))


def loss_object(y_true, y_pred):
    error = keras.losses.MeanSquaredError()
    return sum(error(y_true[i : i + 1], y_pred[i : i + 1]) for i in range(y_true.shape[0])) / y_true.shape[0]


class MarginLoss(keras.losses.Loss):
    def __init__(self, margin=0.5, name="margin"):
        super().__init__(name=name)
        self.margin = margin

    def call(self, y_true, y_pred):
        rows = []
        for i in range(y_true.shape[0]):
            rows.append(ops.maximum(0.0, self.margin - ops.sum(y_true[i] * y_pred[i])))
        return ops.stack(rows)


FUNCTIONS = [
    batch_zip, batch_comprehension, batch_while, batch_helper, batch_lambda, batch_enumerate, batch_map,
    lengths_inner_loop, lengths_slice, lengths_continue, missing_targets, time_steps, neighbour, centred,
    pairs_combinations, pairs_skip_same, pairs_ranking, pairs_triangle, classes_dice, classes_cost, quantiles,
    group_means, group_boolean_mask, table_dict, table_dict_default, table_frame, table_column, table_index,
    table_intervals, host_threshold, host_log, host_branch, host_top, repeated_work,
    groups_found,
    groups_absent,
    table_filter,
    host_sorted,
    host_percentile,
    triplets,
    shape_guard,
    loss_object,
]  # fmt: skip
