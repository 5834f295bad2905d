"""Numbers looked up by label: in dicts, lists and arrays."""

import bisect
import collections

import keras
import numpy as np
from keras import ops

from .other_file import Weighting, hinge

WEIGHTS = {0: 1.0, 1: 2.5, 2: 0.5}
SPARSE_WEIGHTS = {1: 3.0, 7: 0.5}
ALPHA = {0: 0.25, 1: 0.5, 2: 1.0}
SCALE = np.array([1.0, 2.0, 0.5], "float32")
NESTED = {0: {0: 0.0, 1: 2.0}, 1: {0: 1.0, 1: 0.0}}
PAIRCOST = {(0, 0): 0.0, (0, 1): 1.0, (1, 0): 4.0, (1, 1): 0.0}
EDGES = [0.0, 1.0, 3.0]
OF_EDGES = [0.5, 1.0, 2.0, 4.0]
CLASS_COST = {0: 1.0, 1: 3.0, 2: 0.5}
ROWS_OF_COSTS = [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
DEFAULTS = collections.defaultdict(lambda: 1.0, {0: 2.0, 2: 3.0})
COUNTED = collections.Counter({0: 3, 2: 1})
PARENT = {0: 0, 1: 0, 2: 1}
CLASS_NAMES = ["cat", "dog", "bird"]
NAME_WEIGHTS = {"cat": 1.0, "dog": 2.0, "bird": 0.5}
weigh = Weighting([0.5, 1.0, 2.0])
MATRIX = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]], "float32")
PARTIAL = {0: 0.5, 2: 2.0}
ANIMAL_COSTS = {"cat": 1.0, "dog": 3.0, "eel": 0.5}
ID_TO_NAME = {0: "cat", 1: "dog", 2: "eel"}


def table_dict(y_true, y_pred):  # rewritten on tensorflow torch: FO101 FO401
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + WEIGHTS[int(y_true[i])] * ops.square(y_pred[i])
    return total


def table_dict_default(y_true, y_pred):  # rewritten on tensorflow torch: FO101 FO401
    weights = [SPARSE_WEIGHTS.get(int(label), 1.0) for label in y_true]
    return ops.mean(ops.convert_to_tensor(np.array(weights, "float32")) * ops.square(y_pred))


def class_balance_loss(y_true, y_pred):  # rewritten on torch: FO101 FO401
    w = ops.stack([ALPHA[int(label)] for label in y_true])
    ce = -ops.log(ops.take_along_axis(y_pred, ops.cast(y_true, "int32")[:, None], axis=1)[:, 0] + 1e-7)
    return ops.mean(w * ce)


def scaled_by_label_loss(y_true, y_pred):  # rewritten on torch: FO101
    total = 0.0
    for label, row in zip(y_true, y_pred, strict=False):
        total = total + SCALE[int(label)] * ops.logsumexp(row) - row[int(label)]
    return total / len(y_true)


def nested_dict_loss(y_true, y_pred, group):  # rewritten on torch: FO101 FO401
    total = 0.0
    for i in range(y_true.shape[0]):
        total += NESTED[int(y_true[i])][int(group[i])] * ops.square(y_pred[i])
    return total


def tuple_keys_loss(y_true, y_pred, group):  # rewritten: FO101 FO401
    total = 0.0
    for i in range(y_true.shape[0]):
        total += PAIRCOST[(int(y_true[i]), int(group[i]))] * ops.square(y_pred[i])
    return total


def bisected_loss(y_true, y_pred):  # rewritten on jax torch: FO101 FO201
    total = 0.0
    for i in range(y_true.shape[0]):
        k = bisect.bisect_right(EDGES, float(y_true[i]))
        total += OF_EDGES[k] * ops.square(y_true[i] - y_pred[i])
    return total / y_true.shape[0]


def numpy_vectorize_loss(y_true, y_pred):  # rewritten: FO205
    w = np.vectorize(lambda c: CLASS_COST[int(c)])(ops.convert_to_numpy(y_true))
    return ops.mean(ops.convert_to_tensor(w.astype("float32")) * ops.square(y_pred))


class DictWeights(keras.losses.Loss):  # rewritten on torch: FO101 FO401
    def __init__(self, weights=None):
        super().__init__()
        self.weights = weights or {0: 1.0, 1: 4.0, 2: 0.5}

    def call(self, y_true, y_pred):
        total = 0.0
        for i in range(y_true.shape[0]):
            total += self.weights[int(y_true[i])] * ops.square(y_pred[i])
        return total / y_true.shape[0]


def list_of_lists_loss(y_true, y_pred):  # rewritten on torch: FO101
    total = 0.0
    for i in range(y_pred.shape[0]):
        row = ROWS_OF_COSTS[int(y_true[i])]
        for c in range(3):
            total = total + row[c] * y_pred[i, c]
    return total / y_pred.shape[0]


def default_dict_loss(y_true, y_pred):  # rewritten on torch: FO101 FO401
    return ops.mean(ops.stack([DEFAULTS[int(c)] * ops.square(p) for c, p in zip(y_true, y_pred, strict=False)]))


def counter_table_loss(y_true, y_pred):  # rewritten on torch: FO101 FO401
    total = 0.0
    for c, p in zip(y_true, y_pred, strict=False):
        total = total + (1.0 + COUNTED[int(c)]) * ops.square(p)
    return total


def parent_class_loss(y_true, y_pred):  # rewritten on torch: FO101 FO401
    total = 0.0
    for i in range(y_pred.shape[0]):
        child, parent = int(y_true[i]), PARENT[int(y_true[i])]
        total = total + ops.square(y_pred[i, child]) + 0.5 * ops.abs(y_pred[i, parent])
    return total / y_pred.shape[0]


def named_classes_loss(y_true, y_pred):  # rewritten on torch: FO101 FO401
    rows = []
    for label, p in zip(y_true, y_pred, strict=False):
        name = CLASS_NAMES[int(label)]
        rows.append(NAME_WEIGHTS[name] * ops.mean(ops.square(p)))
    return ops.mean(ops.stack(rows))


def callable_object_loss(y_true, y_pred):  # rewritten on torch: FO101 FO401
    return sum(weigh(y_true[i]) * hinge(y_pred[i], 1.0) for i in range(y_pred.shape[0])) / y_pred.shape[0]


def cost_matrix_loss(y_true, y_pred):  # rewritten on torch: FO101
    total = 0.0
    for i in range(y_true.shape[0]):
        p = ops.softmax(y_pred[i])
        for k in range(3):
            total = total + MATRIX[int(y_true[i]), k] * p[k]
    return total / y_true.shape[0]


def row_maximum_loss(y_true, y_pred):  # rewritten on torch: FO101
    out = []
    for row_t, row_p in zip(y_true, y_pred, strict=False):
        peak = int(ops.argmax(row_t))
        out.append(ops.square(row_p[peak] - row_t[peak]) + 0.1 * ops.abs(ops.max(row_p) - row_p[peak]))
    return sum(out) / len(out)


def try_key(y_true, y_pred):  # rewritten on torch: FO401 FO201
    total = 0.0
    for i in range(y_true.shape[0]):
        try:
            w = PARTIAL[int(y_true[i])]
        except KeyError:
            w = 1.0
        total = total + w * ops.abs(y_pred[i])
    return total / y_true.shape[0]


def names_by_dict(y_true, y_pred):  # rewritten on torch: FO401 FO101
    total = 0.0
    for i in range(len(y_true)):
        name = ID_TO_NAME[int(y_true[i])]
        total = total + ANIMAL_COSTS.get(name, 1.0) * ops.square(y_pred[i])
    return total / len(y_true)


def own_table_of_pairs_loss(y_true, y_pred, group):  # rewritten on torch: FO101 FO401
    table = {(0, 0): 1.0, (0, 1): 2.0, (1, 0): 3.0, (1, 1): 4.0}
    total = 0.0
    for t, p, g in zip(y_true, y_pred, group, strict=False):
        total = total + table[(int(t), int(g))] * ops.sum(p)
    return total
