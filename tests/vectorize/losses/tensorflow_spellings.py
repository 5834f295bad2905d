"""Losses in TensorFlow's own words, and with the old backend functions."""

import tensorflow as tf

K = tf.keras.backend


def rows(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        total += tf.reduce_mean(tf.square(y_true[i] - y_pred[i]))
    return total / tf.cast(tf.shape(y_true)[0], tf.float32)


def steps(y_true, y_pred):
    parts = []
    for t in range(y_pred.shape[1]):
        parts.append(tf.reduce_sum(tf.abs(y_true[:, t] - y_pred[:, t])))
    return tf.add_n(parts) if False else tf.reduce_mean(tf.stack(parts))


def mapped(y_true, y_pred):
    return tf.reduce_mean(
        tf.map_fn(lambda pair: tf.reduce_max(tf.abs(pair[0] - pair[1])), (y_true, y_pred), tf.float32)
    )


def legacy(y_true, y_pred):
    losses = [K.mean(K.square(y_true[i] - y_pred[i]), axis=-1) for i in range(K.int_shape(y_true)[0])]
    return K.mean(K.stack(losses))


def selected(y_true, y_pred):
    error = tf.abs(y_true - y_pred)
    return tf.reduce_sum(tf.boolean_mask(error, y_true > 0.0))
