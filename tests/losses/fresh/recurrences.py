"""Linear recurrences: a running value that fades is no sum."""

from keras import ops


def fading_loss(y_true, y_pred):  # codes: FO102 FO106
    s = y_pred[:, 0]
    for t in range(1, y_pred.shape[1]):
        s = 0.9 * s + 0.1 * y_pred[:, t]
    return ops.mean(ops.square(s - y_true[:, -1]))


def halved_loss(y_true, y_pred):  # codes: FO102 FO106
    s = 0.0
    for t in range(y_pred.shape[1]):
        s = (s + y_pred[:, t]) * 0.5
    return ops.mean(ops.square(s - y_true[:, -1]))


def two_statements_loss(y_true, y_pred):  # codes: FO102 FO106
    s = 0.0
    for t in range(y_pred.shape[1]):
        s *= 0.9
        s += ops.mean(ops.square(y_pred[:, t] - y_true[:, t]))
    return s
