"""Losses as people post them, in TensorFlow: tensor ranges, TensorArray."""

import keras
import tensorflow as tf

cce = keras.losses.CategoricalCrossentropy()


def tensor_range_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for i in tf.range(y_pred.shape[0]):
        total += tf.reduce_sum(tf.square(y_true[i] - y_pred[i]))
    return total / tf.cast(tf.shape(y_pred)[0], tf.float32)


def tensor_array_loss(y_true, y_pred):  # codes: FO101
    n = y_pred.shape[0]
    acc = tf.TensorArray(tf.float32, size=n)
    for i in range(n):
        acc = acc.write(i, tf.reduce_mean(tf.abs(y_true[i] - y_pred[i])))
    return tf.reduce_mean(acc.stack())


def gather_nd_loss(y_true, y_pred):  # codes: FO101
    picked = []
    for i in range(y_pred.shape[0]):
        picked.append(y_pred[i, tf.cast(y_true[i], tf.int32)])
    return -tf.reduce_mean(tf.math.log(tf.abs(tf.stack(picked)) + 1e-6))


def axis_lists_loss(y_true, y_pred):  # codes: FO104
    dice = []
    for c in range(y_pred.shape[-1]):
        num = 2 * tf.reduce_sum(y_true[..., c] * y_pred[..., c], axis=[0]) + 1.0
        den = tf.reduce_sum(tf.square(y_true[..., c]) + tf.square(y_pred[..., c]), axis=[0]) + 1.0
        dice.append(num / den)
    return 1 - tf.reduce_mean(tf.stack(dice, axis=-1))


def object_each_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for i in range(y_true.shape[0]):
        total += cce(y_true[i : i + 1], y_pred[i : i + 1])
    return total / y_true.shape[0]


def where_sum_loss(y_true, y_pred):  # codes: FO101
    rows = []
    for t, p in zip(tf.unstack(y_true), tf.unstack(y_pred), strict=False):
        e = tf.abs(t - p)
        rows.append(tf.reduce_sum(tf.where(e < 1.0, 0.5 * e * e, e - 0.5)))
    return tf.math.add_n(rows)


def numpy_call_loss(y_true, y_pred):  # codes: FO201
    weight = 1.0 + y_true.numpy().mean()
    return weight * tf.reduce_mean(tf.square(y_true - y_pred))
