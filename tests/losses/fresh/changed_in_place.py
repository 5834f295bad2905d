"""Lists, dicts and objects of the call's own, changed in place: they are no state, and keep the gradient."""

from keras import ops


def begun_list_loss(y_true, y_pred):  # codes: FO101
    rows = [0.0]
    for i in range(y_pred.shape[0]):
        rows.append(ops.mean(ops.abs(y_true[i] - y_pred[i])))
    return ops.mean(ops.stack(rows))


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
