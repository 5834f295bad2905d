"""Refused: the data decide where a loop ends, or 64 bits decide what 32 cannot."""

from keras import ops

LEVELS = {"low": 0.1, "mid": 0.5, "high": 0.9}


def first_bad_loss(y_true, y_pred):  # refused: FO101
    total = 0.0
    for i in range(y_pred.shape[0]):
        error = ops.mean(ops.abs(y_true[i] - y_pred[i]))
        if float(error) > 1.5:
            break
        total = total + error
    return total


def returns_early_loss(y_true, y_pred):  # refused: FO101
    for i in range(y_pred.shape[0]):
        error = ops.mean(ops.abs(y_true[i] - y_pred[i]))
        if float(error) > 0.5:
            return error
    return ops.mean(ops.abs(y_true - y_pred))


def newton_loss(y_true, y_pred):  # refused: FO101 FO106
    root = ops.mean(y_pred)
    while float(ops.abs(root * root - 2.0)) > 1e-3:
        root = root - (root * root - 2.0) / (2.0 * root)
    return ops.mean(ops.square(y_true - y_pred)) * root


def until_full_loss(y_true, y_pred):  # refused: FO101 FO106
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        total = total + ops.mean(ops.abs(t - p))
        if float(total) > 2.0:
            break
    return total


def while_limit_loss(y_true, y_pred):  # refused: FO101 FO106 FO102
    i, total = 0, 0.0
    while i < y_pred.shape[0] and float(total) < 1.5:
        total = total + ops.mean(ops.abs(y_true[i] - y_pred[i]))
        i += 1
    return total


def for_else_loss(y_true, y_pred):  # refused: FO101
    for i in range(y_pred.shape[0]):
        if float(y_pred[i, 0]) > 1.0:
            found = ops.sum(y_pred[i])
            break
    else:
        found = ops.sum(y_true)
    return found


def first_hit_next_loss(y_true, y_pred):  # refused: FO101
    return next((ops.sum(p) for t, p in zip(y_true, y_pred, strict=False) if float(ops.sum(t)) > 0), ops.sum(y_pred))


def first_mistake_loss(y_true, y_pred):  # refused: FO101
    for t, p in zip(y_true, y_pred, strict=False):
        if int(ops.argmax(p)) != int(ops.argmax(t)):
            return ops.sum(ops.square(t - p))
    return 0.0 * ops.sum(y_pred)


def patience_loss(y_true, y_pred):  # refused: FO101 FO106
    bad, total = 0, 0.0
    for i in range(y_pred.shape[0]):
        e = ops.mean(ops.square(y_true[i] - y_pred[i]))
        total = total + e
        bad = bad + 1 if float(e) > 1.0 else 0
        if bad == 2:
            break
    return total


def pinball_levels_loss(y_true, y_pred):  # refused: FO100
    total = 0.0
    for k, (_, q) in enumerate(LEVELS.items()):
        e = y_true[:, 0] - y_pred[:, k]
        total = total + ops.mean(ops.maximum(q * e, (q - 1) * e))
    return total


def variance_in_python_metric(y_true, y_pred):  # refused: FO101 FO201
    first = second = 0.0
    for p in y_pred:
        value = float(p)  # Of 64 bits; in 32 the difference below is noise where the signal is large.
        first, second = first + value, second + value * value
    n = len(y_pred)
    return second / n - (first / n) ** 2


def until_budget_loss(y_true, y_pred):  # refused: FO101 FO106 FO202
    spent, i = 0.0, 0
    while i < y_pred.shape[0] and float(spent) < 1.0:
        spent = spent + ops.mean(ops.square(y_pred[i] - y_true[i]))
        i += 1
    return spent


def bisection_loss(y_true, y_pred):  # refused: FO106 FO101 FO202
    low, high = -5.0, 5.0
    for _ in range(20):
        mid = (low + high) / 2
        if float(ops.mean(ops.sigmoid(y_pred - mid))) > 0.5:
            low = mid
        else:
            high = mid
    return ops.mean(ops.square(y_true - y_pred - low))


def floor_div_loss(y_true, y_pred):  # refused on tensorflow torch: FO201
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + (float(y_true[i]) // 0.3) * y_pred[i]
    return total


def computed_bound_loss(y_true, y_pred):  # refused on tensorflow torch: FO101 FO201
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        total = total + (2.0 if float(t) * 2 - 0.1 > 0.5 else 1.0) * ops.square(p)
    return total


def bound_by_maximum_loss(y_true, y_pred):  # refused: FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        if max(float(t), 0.3) > 0.3:
            total = total + ops.square(t - p)
    return total


def inner_break(y_true, y_pred, length):  # refused: FO101, reported: FO101 FO201
    total = 0.0
    for i in range(y_true.shape[0]):
        for j in range(y_true.shape[1]):
            if j >= int(length[i]):
                break
            total = total + ops.square(y_true[i, j] - y_pred[i, j])
    return total / y_true.shape[0]
