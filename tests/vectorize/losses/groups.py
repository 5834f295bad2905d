"""Batches that are grouped: in dicts, lists of slots, counters, sets and DataFrames."""

import collections
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
from keras import ops


def group_means(y_true, y_pred):  # rewritten on torch: FO101 FO104
    total = 0.0
    for g in range(3):
        members = [y_pred[i] for i in range(y_pred.shape[0]) if int(y_true[i]) == g]
        if members:
            total = total + ops.square(ops.mean(ops.stack(members)) - float(g))
    return total


def group_boolean_mask(y_true, y_pred):  # rewritten on torch: FO108 FO104
    total = 0.0
    for g in range(3):
        total = total + ops.sum(ops.square(y_pred[y_true == g]))
    return total


def groups_found(y_true, y_pred):  # rewritten: FO107
    total = 0.0
    for value in np.unique(ops.convert_to_numpy(y_true)):
        member = ops.cast(y_true == value, "float32")
        total = total + ops.sum(member * y_pred) / ops.sum(member)
    return total


def groups_absent(y_true, y_pred, group):  # rewritten on torch: FO104 FO202
    total = 0.0
    for k in range(4):
        member = ops.cast(group == k, "float32")
        if float(ops.sum(member)) > 0:
            total = total + ops.sum(member * ops.square(y_true - y_pred)) / ops.sum(member)
    return total


def dict_sums(y_true, y_pred, group):  # rewritten: FO101|FO107|FO406 FO201
    sums, counts = {}, {}
    for i in range(y_true.shape[0]):
        g = int(group[i])
        sums[g] = sums.get(g, 0.0) + ops.square(y_true[i] - y_pred[i])
        counts[g] = counts.get(g, 0) + 1
    total = 0.0
    for g in sums:
        total = total + sums[g] / counts[g]
    return total / len(sums)


def dict_lists(y_true, y_pred, group):  # rewritten on torch: FO101|FO107|FO406 FO201
    by_group = defaultdict(list)
    err = ops.abs(y_true - y_pred)
    for e, g in zip(err, ops.convert_to_numpy(group), strict=False):
        by_group[int(g)].append(e)
    return sum(ops.mean(ops.stack(v)) for v in by_group.values()) / len(by_group)


def dict_lists_worst(y_true, y_pred, group):  # rewritten on torch: FO101|FO107|FO406 FO201
    by_group = {}
    for i in range(len(group)):
        by_group.setdefault(int(group[i]), []).append(ops.square(y_true[i] - y_pred[i]))
    means = [ops.mean(ops.stack(members)) for members in by_group.values()]
    return ops.max(ops.stack(means))


def defaultdict_float(y_true, y_pred):  # rewritten on torch: FO101 FO201
    s = defaultdict(float)
    n = collections.Counter()
    for i in range(y_true.shape[0]):
        c = int(y_true[i])
        s[c] += ops.sum(ops.square(y_pred[i]))
        n[c] += 1
    return sum(s[c] / n[c] for c in s)


def list_slots(y_true, y_pred):  # rewritten: FO101 FO201
    slots = [0.0] * 4
    for i in range(y_true.shape[0]):
        slots[int(y_true[i])] = slots[int(y_true[i])] + y_pred[i]
    return sum(s * s for s in slots)


def list_of_members(y_true, y_pred):  # rewritten on torch: FO101 FO201
    bins = [[] for _ in range(4)]
    for c, p in zip(y_true, y_pred, strict=False):
        bins[int(c)].append(p)
    total = 0.0
    for members in bins:
        if len(members) > 0:
            total = total + ops.square(ops.mean(ops.stack(members)))
    return total


def membership_dict(y_true, y_pred, group):  # rewritten on torch: FO101|FO107|FO406 FO201
    sums, counts = {}, {}
    for i in range(y_true.shape[0]):
        key = int(group[i])
        err = ops.abs(y_true[i] - y_pred[i])
        if key not in sums:
            sums[key] = 0.0
            counts[key] = 0
        sums[key] += err
        counts[key] += 1
    return ops.mean(ops.stack([sums[key] / counts[key] for key in sums]))


def else_dict(y_true, y_pred, group):  # rewritten on torch: FO101|FO107|FO406 FO201
    parts = {}
    for t, p, g in zip(y_true, y_pred, group, strict=False):
        g = int(g)
        if g in parts:
            parts[g].append((t - p) ** 2)
        else:
            parts[g] = [(t - p) ** 2]
    out = 0.0
    for _, members in parts.items():
        out = out + sum(members) / len(members)
    return out / len(parts)


def counter_weight(y_true, y_pred):  # rewritten on torch: FO201 FO406|FO401|FO101
    freq = Counter(int(c) for c in y_true)
    w = [1.0 / freq[int(c)] for c in y_true]
    return sum(wi * ops.square(p) for wi, p in zip(w, y_pred, strict=False)) / len(freq)


def unique_counts(y_true, y_pred):  # rewritten on torch: FO107|FO205
    labels, counts = np.unique(ops.convert_to_numpy(y_true), return_counts=True)
    total = 0.0
    for c, n in zip(labels, counts, strict=False):
        total = total + ops.sum(ops.where(y_true == int(c), ops.square(y_pred), 0.0)) / float(n)
    return total / len(labels)


def set_groups(y_true, y_pred, group):  # rewritten on torch: FO107
    ids = {int(g) for g in group}
    worst = []
    for g in ids:
        mine = [ops.abs(y_true[i] - y_pred[i]) for i in range(len(group)) if int(group[i]) == g]
        worst.append(sum(mine) / len(mine))
    return ops.max(ops.stack(worst))


def pandas_groupby(y_true, y_pred, group):  # rewritten: FO406|FO205
    frame = pd.DataFrame({"g": ops.convert_to_numpy(group), "e": ops.convert_to_numpy(ops.abs(y_true - y_pred))})
    return ops.convert_to_tensor(np.float32(frame.groupby("g")["e"].mean().mean()))


def groupby_loop(y_true, y_pred, group):  # rewritten on torch: FO406|FO205
    df = pd.DataFrame(
        {"t": ops.convert_to_numpy(y_true), "p": ops.convert_to_numpy(y_pred), "g": ops.convert_to_numpy(group)}
    )
    scores = []
    for _, part in df.groupby("g"):
        scores.append(np.abs(part["t"] - part["p"]).mean())
    return ops.convert_to_tensor(np.float32(np.mean(scores)))


def bincount_weight(y_true, y_pred):  # rewritten: FO205
    freq = np.bincount(ops.convert_to_numpy(y_true), minlength=4)
    w = ops.convert_to_tensor((1.0 / np.maximum(freq, 1)).astype("float32"))
    return ops.mean(ops.take(w, y_true) * ops.square(y_pred))


def negative_slots(y_true, y_pred):  # rewritten on torch: FO101|FO102|FO201
    slots = [0.0] * 4
    for i in range(len(y_true)):
        slots[int(y_true[i]) - 2] += y_pred[i]
    return slots[0] + 2 * slots[1] + 3 * slots[2] + 5 * slots[3] ** 2


def members_of_classes_loss(y_true, y_pred):  # rewritten on torch: FO107|FO101
    total = 0.0
    for c in sorted({int(v) for v in y_true}):
        members = [y_pred[i] for i in range(len(y_true)) if int(y_true[i]) == c]
        centre = sum(members) / len(members)
        total = total + sum(ops.square(m - centre) for m in members)
    return total


def largest_label_loss(y_true, y_pred):  # rewritten on torch: FO104|FO107 FO201
    score = 0.0
    n = int(ops.max(y_true)) + 1
    for c in range(n):
        t = ops.cast(ops.equal(y_true, c), "float32")
        p = y_pred[..., c]
        score = score + (2 * ops.sum(t * p) + 1.0) / (ops.sum(t) + ops.sum(p) + 1.0)
    return 1 - score / n


def kappa_metric(y_true, y_pred):  # rewritten on torch: FO101 FO201|FO205
    observed = np.zeros((3, 3))
    for a, b in zip(ops.convert_to_numpy(y_true), ops.convert_to_numpy(ops.argmax(y_pred, axis=-1)), strict=False):
        observed[int(a)][int(b)] += 1
    return float(np.trace(observed) / observed.sum())


def counted_classes_loss(y_true, y_pred):  # rewritten on torch: FO101 FO201 FO406|FO101
    counts = collections.Counter(ops.convert_to_numpy(y_true).astype(int).tolist())
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + ops.square(y_pred[i]) / counts[int(y_true[i])]
    return total


def present_classes_loss(y_true, y_pred):  # rewritten on torch: FO104
    losses = []
    for c in range(3):
        mask = ops.cast(ops.equal(y_true, c), "float32")
        if float(ops.sum(mask)) == 0:
            continue
        losses.append(ops.sum(mask * ops.square(y_pred)) / ops.sum(mask))
    return ops.mean(ops.stack(losses))


def clipped_counts_metric(y_true, y_pred):  # rewritten on torch: FO201|FO205
    hits = [0, 0, 0]
    for t, p in zip(ops.convert_to_numpy(y_true), ops.convert_to_numpy(y_pred), strict=False):
        hits[int(t)] += int(p.argmax() == t)
    return sum(hits) / len(y_true)


def last_write(y_true, y_pred, group):  # rewritten on torch: FO101|FO102|FO107|FO106|FO406 FO201
    last = {}
    for i in range(len(group)):
        last[int(group[i])] = ops.square(y_true[i] - y_pred[i])
    return sum(last.values()) / len(last)
