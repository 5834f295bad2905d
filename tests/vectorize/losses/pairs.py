"""Loops over pairs and triplets."""

import itertools
from itertools import combinations

import keras
from keras import ops

MARGINS = {"near": 0.2, "far": 1.0}
HOUSE = {0: 0, 1: 1, 2: 2, 3: 1, 4: 3, 5: 0}


def pairs_combinations(y_true, y_pred):  # rewritten: FO103
    total = 0.0
    for i, j in itertools.combinations(range(y_pred.shape[0]), 2):
        distance = ops.sqrt(ops.sum(ops.square(y_pred[i] - y_pred[j])))
        if int(y_true[i]) == int(y_true[j]):
            total = total + distance
        else:
            total = total + ops.maximum(0.0, 1.0 - distance)
    return total


def pairs_skip_same(y_true, y_pred):  # rewritten on torch: FO103
    total, count = 0.0, 0
    for i in range(y_pred.shape[0]):
        for j in range(y_pred.shape[0]):
            if i == j:
                continue
            total = total + ops.exp(-ops.sum(ops.abs(y_pred[i] - y_pred[j])))
            count += 1
    return total / max(count, 1)


def pairs_ranking(y_true, y_pred):  # rewritten on torch: FO101 FO103
    total, pairs = 0.0, 0
    for row in range(y_true.shape[0]):
        for a in range(y_true.shape[1]):
            for b in range(y_true.shape[1]):
                if float(y_true[row, a]) > float(y_true[row, b]):
                    total = total + ops.softplus(y_pred[row, b] - y_pred[row, a])
                    pairs += 1
    return total / max(1, pairs)


def pairs_triangle(y_true, y_pred):  # rewritten on jax torch: FO103
    total = 0.0
    for i in range(y_pred.shape[0]):
        for j in range(i):
            total += ops.sum(y_pred[i] * y_pred[j])
    return total


def triplets(y_true, y_pred):  # rewritten on torch: FO103
    total, count, n = 0.0, 0, y_pred.shape[0]
    for a in range(n):
        for p in range(n):
            for q in range(n):
                if a != p and int(y_true[a]) == int(y_true[p]) and int(y_true[a]) != int(y_true[q]):
                    near = ops.sum(ops.square(y_pred[a] - y_pred[p]))
                    total = total + ops.maximum(0.0, near - ops.sum(ops.square(y_pred[a] - y_pred[q])) + 0.2)
                    count += 1
    return total / max(count, 1)


def shape_guard(y_true, y_pred):  # rewritten on jax torch: FO103
    n = y_true.shape[0]
    if n < 2:
        return 0.0 * ops.sum(y_pred)
    return sum(ops.sum(ops.abs(y_pred[i] - y_pred[j])) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))


def margin_rank_loss(y_true, y_pred):  # rewritten on torch: FO103 FO201|FO202
    losses = []
    for i, j in itertools.product(range(y_true.shape[0]), repeat=2):
        if y_true[i] > y_true[j]:
            losses.append(ops.relu(0.3 - (y_pred[i] - y_pred[j])))
    return sum(losses)


def combined_pairs_loss(y_true, y_pred):  # rewritten on torch: FO103
    gaps = [
        ops.relu(MARGINS["near"] - ops.abs(a - b))
        for a, b in combinations([y_pred[i, 0] for i in range(y_pred.shape[0])], 2)
    ]
    return sum(gaps) + ops.mean(ops.abs(y_true))


def matrix_loss(y_true, y_pred):  # rewritten on torch: FO103
    n = y_pred.shape[0]
    rows = []
    for i in range(n):
        rows.append(ops.stack([ops.sum(y_pred[i] * y_pred[j]) for j in range(n)]))
    sim = ops.stack(rows)
    return ops.mean(ops.square(sim - ops.matmul(y_true, ops.transpose(y_true))))


def pairs_in_a_list_loss(y_true, y_pred):  # rewritten: FO103
    n = y_pred.shape[0]
    pairs = [(i, j) for i in range(n) for j in range(n) if i < j]
    total = 0.0
    for i, j in pairs:
        total += ops.exp(-ops.sum(ops.square(y_pred[i] - y_pred[j])))
    return total / max(len(pairs), 1)


def rows_of_rows_loss(y_true, y_pred):  # rewritten on torch: FO103
    total = 0.0
    for a in y_pred:
        for b in y_true:
            total = total + ops.max(ops.abs(a - b))
    return total / (len(y_pred) * len(y_true))


def permutations_loss(y_true, y_pred):  # rewritten on torch: FO103
    total = 0.0
    for i, j in itertools.permutations(range(y_pred.shape[0]), 2):
        total = total + ops.relu(0.5 - (y_pred[i] - y_pred[j]) * ops.sign(y_true[i] - y_true[j]))
    return total


def hardest_pairs_loss(y_true, y_pred):  # rewritten on torch: FO103
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


def household_loss(y_true, y_pred):  # rewritten on torch: FO103 FO401
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


def label_pairs_loss(y_true, y_pred):  # rewritten on torch: FO103 FO201 FO101|FO104
    rows = []
    for t, p in zip(y_true, y_pred, strict=False):
        pos = [p[k] for k in range(len(t)) if float(t[k]) > 0.5]
        neg = [p[k] for k in range(len(t)) if float(t[k]) <= 0.5]
        pairs = [ops.relu(1.0 - a + b) for a, b in itertools.product(pos, neg)]
        rows.append(sum(pairs) / max(1, len(pairs)) if pairs else ops.zeros(()))
    return ops.mean(ops.stack(rows))


class RankingPairs(keras.losses.Loss):  # rewritten on torch: FO103
    margin = 0.1

    def pair(self, i, j, y_true, y_pred):
        sign = ops.sign(y_true[i] - y_true[j])
        return ops.relu(self.margin - sign * (y_pred[i] - y_pred[j]))

    def call(self, y_true, y_pred):
        n = y_pred.shape[0]
        return sum(self.pair(i, j, y_true, y_pred) for i in range(n) for j in range(i)) / max(1, n * (n - 1) // 2)


def supervised_contrastive_loss(y_true, y_pred, temperature=0.5):  # rewritten on torch: FO103
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


def crps_loss(y_true, y_pred):  # rewritten on torch: FO101 FO102|FO103
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


def concordance_metric(y_true, y_pred):  # rewritten on torch: FO103
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


def two_whiles_loss(y_true, y_pred):  # rewritten on torch: FO103
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


def positives_above_negatives_loss(y_true, y_pred):  # rewritten on torch: FO103|FO101
    pos = [p for t, p in zip(y_true, y_pred, strict=False) if t > 0.5]
    neg = [p for t, p in zip(y_true, y_pred, strict=False) if t <= 0.5]
    terms = [ops.softplus(n - p) for p in pos for n in neg]
    return ops.mean(ops.stack(terms)) if terms else 0.0 * ops.sum(y_pred)


def chamfer_loss(y_true, y_pred):  # rewritten on torch: FO101 FO103|FO102
    total = 0.0
    for a, b in zip(y_true, y_pred, strict=False):
        for p in range(b.shape[0]):
            total = total + ops.min(ops.stack([ops.sum(ops.square(b[p] - a[q])) for q in range(a.shape[0])]))
    return total / y_pred.shape[0]


def margin_ranking_loss(y_true, y_pred):  # rewritten on torch: FO103
    total, count = 0.0, 0
    for i in range(y_true.shape[0]):
        for j in range(i + 1, y_true.shape[0]):
            if y_true[i] == y_true[j]:
                continue
            sign = 1.0 if y_true[i] > y_true[j] else -1.0
            total = total + ops.relu(0.2 - sign * (y_pred[i] - y_pred[j]))
            count += 1
    return total / max(1, count)


def supervised_contrast_loss(y_true, y_pred):  # rewritten on torch: FO103
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
