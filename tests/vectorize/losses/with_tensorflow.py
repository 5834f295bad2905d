"""Losses as people post them, in TensorFlow and the old `keras.backend`."""

import tensorflow as tf


def rows_tf_loss(y_true, y_pred):  # codes: FO101
    batch = y_pred.shape[0]
    loss = tf.constant(0.0)
    for i in range(batch):
        loss += tf.norm(y_true[i] - y_pred[i]) ** 2
    return loss / tf.cast(batch, tf.float32)


def gathered_loss(y_true, y_pred):  # codes: FO101
    parts = []
    for i in range(y_pred.shape[0]):
        parts.append(tf.gather(y_pred[i], tf.cast(y_true[i], tf.int32)))
    return -tf.reduce_mean(tf.math.log(tf.stack(parts) ** 2 + 1e-6))


def mapped_pairs_loss(y_true, y_pred):  # codes: FO105
    each = tf.map_fn(lambda z: tf.reduce_sum(tf.abs(z[0] - z[1])), (y_true, y_pred), fn_output_signature=tf.float32)
    return tf.reduce_mean(each)


def unstacked_loss(y_true, y_pred):  # codes: FO102
    total = 0.0
    for a, b in zip(tf.unstack(y_true, axis=1), tf.unstack(y_pred, axis=1), strict=False):
        total += tf.reduce_mean(tf.math.squared_difference(a, b))
    return total


def quantile_tf_loss(y_true, y_pred):  # codes: FO104
    terms = []
    for i, q in enumerate((0.1, 0.9)):
        e = tf.subtract(y_true, y_pred[:, i])
        terms.append(tf.reduce_mean(tf.maximum(q * e, (q - 1.0) * e)))
    return tf.add_n(terms)


def masked_tf_loss(y_true, y_pred):  # codes: FO108
    keep = tf.greater(y_true, 0.0)
    diff = tf.boolean_mask(y_true, keep) - tf.boolean_mask(y_pred, keep)
    return tf.reduce_sum(tf.square(diff)) / (tf.reduce_sum(tf.cast(keep, tf.float32)) + 1.0)
