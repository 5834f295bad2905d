"""Lists, dicts and objects of the call's own, changed in place: they are no state, and keep the gradient."""

from keras import ops


def begun_list_loss(y_true, y_pred):  # codes: FO101
    rows = [0.0]
    for i in range(y_pred.shape[0]):
        rows.append(ops.mean(ops.abs(y_true[i] - y_pred[i])))
    return ops.mean(ops.stack(rows))


def closed_over_list_loss(y_true, y_pred):  # codes: FO101
    rows = []

    def push(i):
        rows.append(ops.mean(ops.abs(y_true[i] - y_pred[i])))

    for i in range(y_pred.shape[0]):
        push(i)
    return ops.mean(ops.stack(rows))


def handed_list_loss(y_true, y_pred):  # codes: FO101
    def push(rows, i):
        rows.append(ops.mean(ops.abs(y_true[i] - y_pred[i])))

    rows = []
    for i in range(y_pred.shape[0]):
        push(rows, i)
    return ops.mean(ops.stack(rows))


def two_slots_loss(y_true, y_pred):  # codes: FO101
    parts = [0.0, 0.0]
    for i in range(y_pred.shape[0]):
        parts[0] = parts[0] + ops.mean(y_pred[i])
        parts[1] += ops.mean(y_true[i] - y_pred[i])
    return parts[0] + parts[1]


def state_dict_loss(y_true, y_pred):  # codes: FO101
    state = {"total": 0.0}

    def add(v):
        state["total"] = state["total"] + v

    for i in range(y_pred.shape[0]):
        add(ops.mean(ops.square(y_pred[i] - y_true[i])))
    return state["total"]


class Mean:
    def __init__(self):
        self.total, self.n = 0.0, 0

    def add(self, value):
        self.total = self.total + value
        self.n += 1


def own_object_loss(y_true, y_pred):  # codes: FO101
    mean = Mean()
    for i in range(y_pred.shape[0]):
        mean.add(ops.mean(ops.square(y_pred[i] - y_true[i])))
    return mean.total / mean.n


def extended_list_loss(y_true, y_pred):  # codes: FO101
    rows = [1.0]
    for i in range(y_pred.shape[0]):
        rows.extend([y_pred[i], y_true[i]])
    return ops.sum(ops.stack(rows))


def filled_dict_loss(y_true, y_pred):  # codes: FO104
    def fill(table):
        for c in range(3):
            table[c] = ops.mean(ops.square(y_pred[:, c] - y_true[:, c]))

    table = {}
    fill(table)
    return sum(table.values())
