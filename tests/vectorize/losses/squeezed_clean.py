"""Axes that are taken away rightly, running values that are right as they are, variables of the loss's own."""

import keras
from keras import ops


def both_loss(y_true, y_pred):
    return ops.mean(ops.square(ops.squeeze(y_pred, -1) - ops.squeeze(y_true, -1)))


def heads_loss(y_true, y_pred):
    mu, log_var = y_pred[:, 0], y_pred[:, 1]
    return ops.mean(ops.square(y_true - mu) * ops.exp(-log_var) + log_var)


def flat_loss(y_true, y_pred):
    return ops.mean(ops.square(ops.reshape(y_true, (-1,)) - ops.reshape(y_pred, (-1,))))


def centred_loss(y_true, y_pred):
    p = ops.squeeze(y_pred, -1)
    return ops.mean(ops.square(p - ops.mean(y_true)))


class OwnShapes(keras.losses.Loss):
    """Keras leaves y_true of a Loss object as it is: it may be (B,)."""

    def call(self, y_true, y_pred):
        return ops.square(ops.squeeze(y_pred, -1) - y_true)


def either_loss(y_true, y_pred):
    if len(y_true.shape) == 2:
        y_pred = ops.squeeze(y_pred, -1)
        y_true = ops.squeeze(y_true, -1)
    return ops.mean(ops.square(y_true - y_pred))


def all_pairs_loss(y_true, y_pred):
    a = ops.reshape(y_pred, (-1, 1))
    b = ops.reshape(y_pred, (1, -1))
    return ops.mean(ops.square(a - b)) + ops.mean(ops.square(y_true - y_pred))


def collected_loss(y_true, y_pred):
    total = 0.0

    def add(t, p):
        nonlocal total
        total = total + ops.mean(ops.square(t - p))

    add(y_true, y_pred)
    return total


def smoothed_loss(y_true, y_pred):
    def step(carry, x):
        carry = 0.9 * carry + 0.1 * x
        return carry, carry

    _, smooth = ops.scan(step, ops.zeros_like(y_pred[:, 0]), ops.transpose(y_pred))
    return ops.mean(ops.square(ops.transpose(smooth) - y_true))
