"""Losses whose y_pred loses an axis that y_true keeps: (B,) against (B, 1)."""

import tensorflow as tf
from keras import ops


def squeezed_loss(y_true, y_pred):  # reported: FO503
    return ops.mean(ops.square(ops.squeeze(y_pred, -1) - y_true))


def probability_loss(y_true, y_pred):  # reported: FO503
    p = tf.squeeze(y_pred)
    return tf.reduce_mean(tf.abs(y_true - tf.sigmoid(p)))


def function_loss(y_true, y_pred):  # reported: FO503
    return ops.mean(ops.square(ops.subtract(y_true[:, 0], y_pred)))


def flat_loss(y_true, y_pred):  # reported: FO503
    return tf.reduce_mean(tf.math.squared_difference(y_true, tf.reshape(y_pred, [-1])))


def labels_loss(y_true, y_pred):  # reported: FO503
    y = ops.squeeze(y_true, axis=-1)
    return ops.mean(ops.maximum(0.0, 1.0 - y * y_pred))


def extended_list_loss(y_true, y_pred):  # reported: FO101
    rows = [1.0]
    for i in range(y_pred.shape[0]):
        rows.extend([y_pred[i], y_true[i]])
    return ops.sum(ops.stack(rows))
