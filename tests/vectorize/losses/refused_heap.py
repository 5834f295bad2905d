"""Refused: lists, dicts and objects that carry a state from step to step, or are written more than once."""

from collections import defaultdict

import numpy as np
from keras import ops


def carried_in_list_loss(y_true, y_pred):  # refused: FO106
    states = [y_pred[:, 0]]
    for t in range(1, y_pred.shape[1]):
        states.append(ops.sin(states[-1] + y_pred[:, t]))
    return ops.mean(ops.square(ops.stack(states, axis=1) - y_true))


def carried_in_dict_loss(y_true, y_pred):  # refused: FO106 FO101 FO102
    box = {"h": ops.zeros_like(y_pred[:, 0])}
    for t in range(y_pred.shape[1]):
        box["h"] = ops.tanh(box["h"] * 0.5 + y_pred[:, t])
    return ops.mean(box["h"] * y_true[:, 0])


def row_in_place_loss(y_true, y_pred):  # refused: FO106 FO101 FO102
    rows = [y_pred[i] for i in range(y_pred.shape[0])]
    for i in range(1, len(rows)):
        rows[i] = ops.tanh(rows[i] + rows[i - 1])
    return ops.mean(ops.square(ops.stack(rows) - y_true))


def edit_distance_loss(y_true, y_pred):  # refused: FO106 FO101 FO102 FO103
    total = 0.0
    for b in range(y_true.shape[0]):
        prev = list(range(y_true.shape[1] + 1))
        for i in range(1, y_pred.shape[1] + 1):
            cur = [i]
            for j in range(1, y_true.shape[1] + 1):
                cost = 0 if int(y_true[b, j - 1]) == int(y_pred[b, i - 1]) else 1
                cur.append(min(prev[j] + 1, cur[j - 1] + 1, prev[j - 1] + cost))
            prev = cur
        total += prev[-1]
    return total / y_true.shape[0]


def count_so_far(y_true, y_pred, group):  # refused: FO106 FO101 FO102 FO107 FO303
    seen, total = {}, 0.0
    for i in range(len(group)):
        g = int(group[i])
        total = total + ops.square(y_true[i] - y_pred[i]) / (1 + seen.get(g, 0))
        seen[g] = seen.get(g, 0) + 1
    return total


def reads_so_far(y_true, y_pred, group):  # refused: FO106 FO101 FO102 FO107 FO303
    sums = defaultdict(float)
    total = 0.0
    for i in range(len(group)):
        g = int(group[i])
        sums[g] += y_pred[i]
        total = total + ops.tanh(sums[g])
    return total


def last_slot(y_true, y_pred):  # refused: FO106 FO101 FO102 FO107 FO303
    slots = [0.0] * 4
    for i in range(len(y_true)):
        slots[int(y_true[i])] = y_pred[i]
    return slots[0] + slots[3]


def pops(y_true, y_pred):  # refused: FO106 FO101 FO102 FO107 FO303
    stack = [ops.square(y_true[i] - y_pred[i]) for i in range(len(y_true))]
    total = 0.0
    while stack:
        total = total + stack.pop() * (len(stack) + 1)
    return total


def alias_dict(y_true, y_pred, group):  # refused: FO106 FO101 FO102 FO107 FO303
    sums = {}
    other = sums
    for i in range(len(group)):
        sums[int(group[i])] = sums.get(int(group[i]), 0.0) + y_pred[i]
    other[0] = ops.zeros(())
    return sum(ops.square(v) for v in sums.values())


def alpha_recursion_loss(y_true, y_pred):  # refused: FO106 FO102 FO101
    alpha = [1.0] + [0.0] * (y_pred.shape[1] - 1)
    for t in range(1, y_pred.shape[1]):
        alpha[t] = ops.mean(y_pred[:, t]) * (alpha[t - 1] + 0.5)
    return sum(alpha) + 0.0 * ops.sum(y_true)


def greedy_matching_loss(y_true, y_pred):  # refused: FO106 FO101 FO102 FO103 FO303 FO205 FO202
    total = 0.0
    for b in range(y_pred.shape[0]):
        used = []
        for i in range(y_pred.shape[1]):
            best, at = 1e9, -1
            for j in range(y_true.shape[1]):
                d = abs(float(y_pred[b, i]) - float(y_true[b, j]))
                if j not in used and d < best:
                    best, at = d, j
            used.append(at)
            total = total + ops.square(y_pred[b, i] - y_true[b, at])
    return total


def nested_state_loss(y_true, y_pred):  # refused: FO106 FO101 FO303 FO102, reported: FO102 FO106
    state = {"h": ops.zeros_like(y_pred[:, 0])}

    def step(x):
        state["h"] = ops.tanh(state["h"] * 0.7 + x)

    for t in range(y_pred.shape[1]):
        step(y_pred[:, t])
    return ops.mean(ops.square(state["h"] - y_true[:, -1]))


def greedy_nms_loss(y_true, y_pred):  # refused: FO106 FO101 FO205 FO103 FO102 FO303 FO202
    keep = []
    order = np.argsort(-ops.convert_to_numpy(y_pred))
    for i in order:
        if all(abs(float(y_true[int(i)]) - float(y_true[int(k)])) > 0.5 for k in keep):
            keep.append(i)
    return sum(ops.square(y_pred[int(k)]) for k in keep)


class Decayed:
    def __init__(self):
        self.value = 0.0

    def add(self, x):
        self.value = 0.9 * self.value + 0.1 * x


def decayed_object_loss(y_true, y_pred):  # refused: FO106
    decayed = Decayed()
    for t, p in zip(y_true, y_pred, strict=False):
        decayed.add(ops.mean(ops.square(t - p)))
    return ops.square(decayed.value)


def begun_recurrence_loss(y_true, y_pred):  # refused: FO106
    out = [0.0]
    for t in range(y_pred.shape[1]):
        out.append(ops.tanh(sum(out) + ops.mean(y_pred[:, t])))
    return sum(out) + 0.0 * ops.sum(y_true)


def helper_reads_back_loss(y_true, y_pred):  # refused: FO106, reported: FO101 FO106
    def push(rows, i):
        rows.append(rows[-1] * 0.5 + ops.mean(ops.abs(y_true[i] - y_pred[i])))
        return rows

    rows = [0.0]
    for i in range(y_pred.shape[0]):
        rows = push(rows, i)
    return ops.mean(ops.stack(rows))


def edit_table_loss(y_true, y_pred):  # refused: FO106
    rows = []
    for b in range(y_true.shape[0]):
        table = [[0.0] * 3 for _ in range(3)]
        for i in range(1, 3):
            for j in range(1, 3):
                table[i][j] = ops.minimum(table[i - 1][j], table[i][j - 1]) + ops.abs(y_true[b, i] - y_pred[b, j])
        rows.append(table[2][2])
    return ops.mean(ops.stack(rows))
