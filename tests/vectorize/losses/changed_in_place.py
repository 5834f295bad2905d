"""Lists of the call's own, changed in place: they are no state, and keep the gradient."""

from keras import ops


def extended_list_loss(y_true, y_pred):  # codes: FO101
    rows = [1.0]
    for i in range(y_pred.shape[0]):
        rows.extend([y_pred[i], y_true[i]])
    return ops.sum(ops.stack(rows))
