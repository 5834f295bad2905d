"""Lists, dicts, arrays and objects of the call's own, filled and changed in a loop, also by helpers."""

import keras
import numpy as np
from keras import ops


def begun_list_loss(y_true, y_pred):  # rewritten: FO101
    rows = [0.0]
    for i in range(y_pred.shape[0]):
        rows.append(ops.mean(ops.abs(y_true[i] - y_pred[i])))
    return ops.mean(ops.stack(rows))


def begun_with_first_loss(y_true, y_pred):  # rewritten on torch: FO101
    terms = [ops.mean(ops.square(y_pred[0])), ops.mean(ops.abs(y_true[0]))]
    for i in range(1, y_pred.shape[0]):
        terms.append(ops.mean(ops.abs(y_true[i] - y_pred[i - 1])))
    return sum(terms) / (len(terms) - 1)


def begun_selections_loss(y_true, y_pred):  # rewritten on torch: FO101
    above, below = [0.0], [0.5]
    for t, p in zip(y_true, y_pred, strict=False):
        if float(t) > 0:
            above.append(ops.square(p))
        else:
            below.append(ops.abs(p))
    return sum(above) / len(above) + ops.max(ops.stack(below))


class Mean:
    def __init__(self):
        self.total, self.n = 0.0, 0

    def add(self, value):
        self.total = self.total + value
        self.n += 1

    def result(self):
        return self.total / self.n


def own_object_loss(y_true, y_pred):  # rewritten: FO101
    mean = Mean()
    for i in range(y_pred.shape[0]):
        mean.add(ops.mean(ops.square(y_pred[i] - y_true[i])))
    return mean.total / mean.n


def two_objects_loss(y_true, y_pred):  # rewritten on torch: FO101
    near, far = Mean(), Mean()
    for t, p in zip(y_true, y_pred, strict=False):
        near.add(ops.mean(ops.abs(t - p)))
        far.add(ops.mean(ops.square(t - p)))
    return near.result() + far.result()


class Hinge:
    def __init__(self, margin, scale=2.0):
        self.value, self.margin, self.scale = 0.0, margin, scale

    def push(self, x, weight=1.0):
        if float(x) > self.margin:
            self.value = self.value + self.scale * weight * x


def object_with_settings_loss(y_true, y_pred):  # rewritten: FO101
    hinge = Hinge(0.2, scale=3.0)
    for t, p in zip(y_true, y_pred, strict=False):
        hinge.push(ops.mean(t - p), weight=0.5)
    return hinge.value


class Rows:
    def __init__(self):
        self.held = []

    def add(self, t, p):
        error = ops.square(t - p)
        self.held.append(ops.mean(error))


def object_with_list_loss(y_true, y_pred):  # rewritten: FO101
    rows = Rows()
    for t, p in zip(y_true, y_pred, strict=False):
        rows.add(t, p)
    return ops.max(ops.stack(rows.held))


def closure_total_loss(y_true, y_pred):  # rewritten on torch: FO101
    rows = []

    def visit(i):
        rows.append(ops.mean(ops.square(y_true[i] - y_pred[i])))

    for i in range(y_true.shape[0]):
        visit(i)
    return ops.mean(ops.stack(rows))


def nonlocal_total_loss(y_true, y_pred):  # rewritten: FO101
    total = 0.0

    def visit(t, p):
        nonlocal total
        total = total + ops.mean(ops.square(t - p))

    for t, p in zip(y_true, y_pred, strict=False):
        visit(t, p)
    return total / len(y_true)


def filled_array_loss(y_true, y_pred):  # rewritten: FO101
    w = np.ones(y_true.shape[0], "float32")
    for i in range(y_true.shape[0]):
        if float(y_true[i]) < 0:
            w[i] = 3.0
    return ops.mean(ops.convert_to_tensor(w) * ops.square(y_true - y_pred))


class Margin(keras.losses.Loss):  # rewritten on torch: FO101
    """Fields, helper methods, a list of rows."""

    def __init__(self, margin=1.0, scale=2.0, name="margin"):
        super().__init__(name=name)
        self.margin, self.scale = margin, scale

    def score(self, row):
        return ops.sum(row) / self.scale

    def row_loss(self, t, p):
        return ops.relu(self.margin - self.score(t * p))

    def call(self, y_true, y_pred):
        rows = []
        for i in range(ops.shape(y_true)[0]):
            rows.append(self.row_loss(y_true[i], y_pred[i]))
        return ops.mean(ops.stack(rows))


def helper_mutates_dict_loss(y_true, y_pred):  # rewritten on torch: FO101
    sums = {"loss": 0.0, "n": 0}

    def record(t, p, weight=1.0):
        if float(t) < 0:
            return
        sums["loss"] = sums["loss"] + weight * ops.square(t - p)
        sums["n"] += 1

    for t, p in zip(y_true, y_pred, strict=False):
        record(t, p, weight=0.5)
    return sums["loss"] / max(sums["n"], 1)


def numpy_fill_loss(y_true, y_pred):  # rewritten on torch: FO101
    w = np.zeros(len(y_true), dtype="float32")
    for i, t in enumerate(ops.convert_to_numpy(y_true)):
        if t > 0.7:
            w[i] = 2.0
        elif t > 0.3:
            w[i] = 1.0
    return ops.mean(ops.convert_to_tensor(w) * ops.abs(y_true - y_pred))


def soft_f1_dict_loss(y_true, y_pred):  # rewritten on torch: FO104
    stats = {"tp": 0.0, "fp": 0.0, "fn": 0.0}
    for c in range(y_pred.shape[1]):
        stats["tp"] += ops.sum(y_true[:, c] * y_pred[:, c])
        stats["fp"] += ops.sum((1 - y_true[:, c]) * y_pred[:, c])
        stats["fn"] += ops.sum(y_true[:, c] * (1 - y_pred[:, c]))
    return 1 - 2 * stats["tp"] / (2 * stats["tp"] + stats["fp"] + stats["fn"] + 1e-7)


def handed_list_loss(y_true, y_pred):  # rewritten on torch: FO101
    def push(rows, i):
        rows.append(ops.mean(ops.abs(y_true[i] - y_pred[i])))

    rows = []
    for i in range(y_pred.shape[0]):
        push(rows, i)
    return ops.mean(ops.stack(rows))


def two_slots_loss(y_true, y_pred):  # rewritten on torch: FO101
    parts = [0.0, 0.0]
    for i in range(y_pred.shape[0]):
        parts[0] = parts[0] + ops.mean(y_pred[i])
        parts[1] += ops.mean(y_true[i] - y_pred[i])
    return parts[0] + parts[1]


def state_dict_loss(y_true, y_pred):  # rewritten on torch: FO101
    state = {"total": 0.0}

    def add(v):
        state["total"] = state["total"] + v

    for i in range(y_pred.shape[0]):
        add(ops.mean(ops.square(y_pred[i] - y_true[i])))
    return state["total"]


def filled_dict_loss(y_true, y_pred):  # rewritten on torch: FO104
    def fill(table):
        for c in range(3):
            table[c] = ops.mean(ops.square(y_pred[:, c] - y_true[:, c]))

    table = {}
    fill(table)
    return sum(table.values())


def dict_of_lists_loss(y_true, y_pred):  # rewritten on torch: FO101
    parts = {"value": [], "slope": []}
    for t, p in zip(y_true, y_pred, strict=False):
        parts["value"].append(ops.mean(ops.square(t - p)))
        parts["slope"].append(ops.mean(ops.abs((t[1:] - t[:-1]) - (p[1:] - p[:-1]))))
    return ops.mean(ops.stack(parts["value"])) + 0.5 * ops.mean(ops.stack(parts["slope"]))


def written_cells_loss(y_true, y_pred):  # rewritten on torch: FO101
    out = [0.0] * y_pred.shape[0]
    for i in range(y_pred.shape[0]):
        out[i] = ops.logsumexp(y_pred[i]) - ops.sum(y_true[i] * y_pred[i])
    return ops.mean(ops.stack(out))


def two_lists_loss(y_true, y_pred):  # rewritten on torch: FO101
    errors, weights = [], []
    for t, p in zip(y_true, y_pred, strict=False):
        errors.append(ops.mean(ops.square(t - p)))
        weights.append(1.0 / (1.0 + ops.mean(ops.abs(t))))
    return sum(e * w for e, w in zip(errors, weights, strict=False)) / sum(weights)


def pushing_helper_loss(y_true, y_pred):  # rewritten on torch: FO101
    def push(rows, i):
        rows.append(ops.mean(ops.abs(y_true[i] - y_pred[i])))
        return rows

    rows = []
    for i in range(y_pred.shape[0]):
        rows = push(rows, i)
    return ops.mean(ops.stack(rows))


def adding_helper_loss(y_true, y_pred):  # rewritten on torch: FO101
    def step(carry, count, k):
        return carry + ops.mean(ops.square(y_true[k] - y_pred[k])), count + 1

    total, count = 0.0, 0
    for k in range(y_true.shape[0]):
        total, count = step(total, count, k)
    return total / count


def weights_listed_loss(y_true, y_pred):  # rewritten on torch: FO101
    n = y_true.shape[0]
    w = [1.0] * n
    for i in range(n):
        if float(y_true[i]) > 0:
            w[i] = 2.0
    return sum(w[i] * ops.square(y_true[i] - y_pred[i]) for i in range(n)) / n


def weights_masked_loss(y_true, y_pred):  # rewritten on torch: FO205|FO201
    target = ops.convert_to_numpy(y_true)
    w = np.ones(len(target), dtype="float32")
    w[target > 0.5] = 3.0
    w[target < -0.5] = 0.1
    return ops.mean(ops.convert_to_tensor(w) * ops.square(y_true - y_pred))


def filled_by_place_loss(y_true, y_pred):  # rewritten on torch: FO101
    errors = [None] * len(y_true)
    for i in range(len(y_true)):
        errors[i] = ops.mean(ops.square(y_true[i] - y_pred[i]))
    return ops.max(ops.stack(errors))


def set_twice_loss(y_true, y_pred):  # rewritten on torch: FO101
    weights = np.ones(len(y_true))
    for i in range(len(y_true)):
        weights[i] = 0.5
        if float(y_true[i]) > 0:
            weights[i] = 2.0
        elif float(y_true[i]) < -1:
            weights[i] = 3.0
    return ops.mean(ops.convert_to_tensor(weights, "float32") * ops.square(y_true - y_pred))
