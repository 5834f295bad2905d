"""Dicts, slots and loops that look like sums and are none."""

from collections import defaultdict

from keras import ops


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


def running_best(y_true, y_pred):  # refused: FO106 FO101 FO102 FO107 FO303
    best, total = 0.0, 0.0
    for i in range(len(y_true)):
        best = ops.maximum(0.9 * best, ops.abs(y_true[i] - y_pred[i]))
        total = total + best
    return total


def scan_recurrence(y_true, y_pred):  # refused: FO106 FO101 FO102 FO107 FO303
    def body(h, x):
        h = ops.tanh(0.5 * h + ops.mean(x))
        return h, h

    _, hs = ops.scan(body, ops.zeros(()), y_pred)
    return ops.mean(hs)


def shared_iterator(y_true, y_pred):  # refused: FO106 FO101 FO102 FO107 FO303
    it = iter(y_pred)
    total = 0.0
    for t in y_true:
        total = total + ops.square(t - next(it))
    return total


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


def argbest(y_true, y_pred):  # refused: FO106 FO101 FO102 FO107 FO303
    best, at = None, 0
    for i in range(len(y_true)):
        if best is None or float(y_true[i]) > best:
            best = float(y_true[i])
            at = i
    return ops.square(y_pred[at])


def steady_branch(y_true, y_pred):  # refused: FO106 FO101 FO102 FO107 FO303
    n, total = 0, 0.0
    for i in range(len(y_true)):
        if float(y_true[i]) > 0:
            n += 1
            total = total + y_pred[i] / n
    return total


def inner_break(y_true, y_pred, length):  # codes: FO101 FO201
    total = 0.0
    for i in range(y_true.shape[0]):
        for j in range(y_true.shape[1]):
            if j >= int(length[i]):
                break
            total = total + ops.square(y_true[i, j] - y_pred[i, j])
    return total / y_true.shape[0]
