"""Losses that group their batch: in dicts, lists of slots, counters and DataFrames."""

import collections
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
from keras import ops

PARTIAL = {0: 0.5, 2: 2.0}
COSTS = {"cat": 1.0, "dog": 3.0, "eel": 0.5}
NAMES = ["cat", "dog", "eel"]
ID_TO_NAME = {0: "cat", 1: "dog", 2: "eel"}
ANIMALS = pd.DataFrame({"w": [3.0, 1.0, 2.0], "m": [0.1, 0.5, 0.2]}, index=["eel", "cat", "dog"])
PAIRS = pd.DataFrame([(a, b, 1.0 + a + 2 * b) for a in range(3) for b in range(4)], columns=["region", "label", "cost"])


def dict_sums(y_true, y_pred, group):  # codes: FO101|FO107|FO406 FO201
    sums, counts = {}, {}
    for i in range(y_true.shape[0]):
        g = int(group[i])
        sums[g] = sums.get(g, 0.0) + ops.square(y_true[i] - y_pred[i])
        counts[g] = counts.get(g, 0) + 1
    total = 0.0
    for g in sums:
        total = total + sums[g] / counts[g]
    return total / len(sums)


def dict_lists(y_true, y_pred, group):  # codes: FO101|FO107|FO406 FO201
    by_group = defaultdict(list)
    err = ops.abs(y_true - y_pred)
    for e, g in zip(err, ops.convert_to_numpy(group), strict=False):
        by_group[int(g)].append(e)
    return sum(ops.mean(ops.stack(v)) for v in by_group.values()) / len(by_group)


def dict_lists_worst(y_true, y_pred, group):  # codes: FO101|FO107|FO406 FO201
    by_group = {}
    for i in range(len(group)):
        by_group.setdefault(int(group[i]), []).append(ops.square(y_true[i] - y_pred[i]))
    means = [ops.mean(ops.stack(members)) for members in by_group.values()]
    return ops.max(ops.stack(means))


def defaultdict_float(y_true, y_pred):  # codes: FO101 FO201
    s = defaultdict(float)
    n = collections.Counter()
    for i in range(y_true.shape[0]):
        c = int(y_true[i])
        s[c] += ops.sum(ops.square(y_pred[i]))
        n[c] += 1
    return sum(s[c] / n[c] for c in s)


def list_slots(y_true, y_pred):  # codes: FO101 FO201
    slots = [0.0] * 4
    for i in range(y_true.shape[0]):
        slots[int(y_true[i])] = slots[int(y_true[i])] + y_pred[i]
    return sum(s * s for s in slots)


def list_of_lists(y_true, y_pred):  # codes: FO101 FO201
    bins = [[] for _ in range(4)]
    for c, p in zip(y_true, y_pred, strict=False):
        bins[int(c)].append(p)
    total = 0.0
    for members in bins:
        if len(members) > 0:
            total = total + ops.square(ops.mean(ops.stack(members)))
    return total


def membership_dict(y_true, y_pred, group):  # codes: FO101|FO107|FO406 FO201
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


def else_dict(y_true, y_pred, group):  # codes: FO101|FO107|FO406 FO201
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


def counter_weight(y_true, y_pred):  # codes: FO201 FO406|FO401|FO101
    freq = Counter(int(c) for c in y_true)
    w = [1.0 / freq[int(c)] for c in y_true]
    return sum(wi * ops.square(p) for wi, p in zip(w, y_pred, strict=False)) / len(freq)


def unique_groups(y_true, y_pred, group):  # codes: FO107
    err = ops.square(y_true - y_pred)
    total, ids = 0.0, np.unique(ops.convert_to_numpy(group))
    for g in ids:
        mask = ops.cast(group == int(g), "float32")
        total = total + ops.sum(err * mask) / ops.sum(mask)
    return total / len(ids)


def unique_counts(y_true, y_pred):  # codes: FO107|FO205
    labels, counts = np.unique(ops.convert_to_numpy(y_true), return_counts=True)
    total = 0.0
    for c, n in zip(labels, counts, strict=False):
        total = total + ops.sum(ops.where(y_true == int(c), ops.square(y_pred), 0.0)) / float(n)
    return total / len(labels)


def set_groups(y_true, y_pred, group):  # codes: FO107
    ids = {int(g) for g in group}
    worst = []
    for g in ids:
        mine = [ops.abs(y_true[i] - y_pred[i]) for i in range(len(group)) if int(group[i]) == g]
        worst.append(sum(mine) / len(mine))
    return ops.max(ops.stack(worst))


def pandas_groupby(y_true, y_pred, group):  # codes: FO406|FO205
    frame = pd.DataFrame({"g": ops.convert_to_numpy(group), "e": ops.convert_to_numpy(ops.abs(y_true - y_pred))})
    return ops.convert_to_tensor(np.float32(frame.groupby("g")["e"].mean().mean()))


def groupby_loop(y_true, y_pred, group):  # codes: FO406|FO205
    df = pd.DataFrame(
        {"t": ops.convert_to_numpy(y_true), "p": ops.convert_to_numpy(y_pred), "g": ops.convert_to_numpy(group)}
    )
    scores = []
    for _, part in df.groupby("g"):
        scores.append(np.abs(part["t"] - part["p"]).mean())
    return ops.convert_to_tensor(np.float32(np.mean(scores)))


def bincount_weight(y_true, y_pred):  # codes: FO205
    freq = np.bincount(ops.convert_to_numpy(y_true), minlength=4)
    w = ops.convert_to_tensor((1.0 / np.maximum(freq, 1)).astype("float32"))
    return ops.mean(ops.take(w, y_true) * ops.square(y_pred))


def series_map(y_true, y_pred):  # codes: FO205|FO401
    w = pd.Series(ops.convert_to_numpy(y_true)).map(PARTIAL).fillna(1.0).to_numpy("float32")
    return ops.mean(ops.convert_to_tensor(w) * ops.square(y_pred))


def row_by_two(y_true, y_pred, region):  # codes: FO401 FO101
    total = 0.0
    for i in range(y_true.shape[0]):
        hit = PAIRS[(PAIRS.region == int(region[i])) & (PAIRS.label == int(y_true[i]))]
        total = total + float(hit["cost"].iloc[0]) * ops.abs(y_pred[i])
    return total / y_true.shape[0]


def negative_slots(y_true, y_pred):  # codes: FO101|FO102|FO201
    slots = [0.0] * 4
    for i in range(len(y_true)):
        slots[int(y_true[i]) - 2] += y_pred[i]
    return slots[0] + 2 * slots[1] + 3 * slots[2] + 5 * slots[3] ** 2


def names_by_label(y_true, y_pred):  # codes: FO401 FO101
    total = 0.0
    for c, p in zip(y_true, y_pred, strict=False):
        total = total + COSTS[NAMES[int(c)]] * ops.abs(p)
    return total / len(y_pred)


def names_by_dict(y_true, y_pred):  # codes: FO401 FO101
    total = 0.0
    for i in range(len(y_true)):
        name = ID_TO_NAME[int(y_true[i])]
        total = total + COSTS.get(name, 1.0) * ops.square(y_pred[i])
    return total / len(y_true)


def names_frame(y_true, y_pred):  # codes: FO401 FO101
    total = 0.0
    for i in range(len(y_true)):
        row = ANIMALS.loc[NAMES[int(y_true[i])]]
        total = total + float(row["w"]) * ops.maximum(0.0, float(row.m) - y_pred[i])
    return total / len(y_true)


def last_write(y_true, y_pred, group):  # codes: FO101|FO102|FO107|FO106|FO406 FO201
    last = {}
    for i in range(len(group)):
        last[int(group[i])] = ops.square(y_true[i] - y_pred[i])
    return sum(last.values()) / len(last)
