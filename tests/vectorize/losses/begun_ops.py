"""Lists that hold something before a loop fills them, and small objects of the call's own that add up."""

from keras import ops


class Mean:
    def __init__(self):
        self.total, self.n = 0.0, 0

    def add(self, value):
        self.total = self.total + value
        self.n += 1

    def result(self):
        return self.total / self.n


class Hinge:
    def __init__(self, margin, scale=2.0):
        self.value, self.margin, self.scale = 0.0, margin, scale

    def push(self, x, weight=1.0):
        if float(x) > self.margin:
            self.value = self.value + self.scale * weight * x


class Rows:
    def __init__(self):
        self.held = []

    def add(self, t, p):
        error = ops.square(t - p)
        self.held.append(ops.mean(error))


def begun_list_loss(y_true, y_pred):  # codes: FO101
    rows = [0.0]
    for i in range(y_pred.shape[0]):
        rows.append(ops.mean(ops.abs(y_true[i] - y_pred[i])))
    return ops.mean(ops.stack(rows))


def begun_with_first_loss(y_true, y_pred):  # codes: FO101
    terms = [ops.mean(ops.square(y_pred[0])), ops.mean(ops.abs(y_true[0]))]
    for i in range(1, y_pred.shape[0]):
        terms.append(ops.mean(ops.abs(y_true[i] - y_pred[i - 1])))
    return sum(terms) / (len(terms) - 1)


def begun_selections_loss(y_true, y_pred):  # codes: FO101
    above, below = [0.0], [0.5]
    for t, p in zip(y_true, y_pred, strict=False):
        if float(t) > 0:
            above.append(ops.square(p))
        else:
            below.append(ops.abs(p))
    return sum(above) / len(above) + ops.max(ops.stack(below))


def own_object_loss(y_true, y_pred):  # codes: FO101
    mean = Mean()
    for i in range(y_pred.shape[0]):
        mean.add(ops.mean(ops.square(y_pred[i] - y_true[i])))
    return mean.total / mean.n


def two_objects_loss(y_true, y_pred):  # codes: FO101
    near, far = Mean(), Mean()
    for t, p in zip(y_true, y_pred, strict=False):
        near.add(ops.mean(ops.abs(t - p)))
        far.add(ops.mean(ops.square(t - p)))
    return near.result() + far.result()


def object_with_settings_loss(y_true, y_pred):  # codes: FO101
    hinge = Hinge(0.2, scale=3.0)
    for t, p in zip(y_true, y_pred, strict=False):
        hinge.push(ops.mean(t - p), weight=0.5)
    return hinge.value


def object_with_list_loss(y_true, y_pred):  # codes: FO101
    rows = Rows()
    for t, p in zip(y_true, y_pred, strict=False):
        rows.add(t, p)
    return ops.max(ops.stack(rows.held))
