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


def smooth(acc, x):
    return 0.9 * acc + 0.1 * x


def helper_fades_loss(y_true, y_pred):  # codes: FO102 FO106
    acc = 0.0
    for t in range(y_pred.shape[1]):
        acc = smooth(acc, y_pred[:, t])
    return ops.mean(ops.square(acc - y_true[:, -1]))


def helper_reads_back_loss(y_true, y_pred):  # codes: FO101 FO106
    def push(rows, i):
        rows.append(rows[-1] * 0.5 + ops.mean(ops.abs(y_true[i] - y_pred[i])))
        return rows

    rows = [0.0]
    for i in range(y_pred.shape[0]):
        rows = push(rows, i)
    return ops.mean(ops.stack(rows))


def gated_cell_loss(y_true, y_pred):  # codes: FO102 FO106
    def cell(state, x):
        gate = ops.sigmoid(x)
        new = gate * state + (1 - gate) * x
        return new, new

    state, total = 0.0, 0.0
    for t in range(y_pred.shape[1]):
        state, out = cell(state, y_pred[:, t])
        total = total + ops.mean(ops.square(out - y_true[:, t]))
    return total


def nonlocal_decay_loss(y_true, y_pred):  # codes: FO102 FO106
    level = 0.0

    def push(x):
        nonlocal level
        level = 0.8 * level + x

    for t in range(y_pred.shape[1]):
        push(ops.mean(ops.square(y_pred[:, t] - y_true[:, t])))
    return level


def nested_state_loss(y_true, y_pred):  # codes: FO102 FO106
    state = {"h": ops.zeros_like(y_pred[:, 0])}

    def step(x):
        state["h"] = ops.tanh(state["h"] * 0.7 + x)

    for t in range(y_pred.shape[1]):
        step(y_pred[:, t])
    return ops.mean(ops.square(state["h"] - y_true[:, -1]))
