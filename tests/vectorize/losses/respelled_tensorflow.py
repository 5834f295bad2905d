"""Losses in further spellings of TensorFlow and the old `keras.backend`."""

import numpy as np
import tensorflow as tf
from tensorflow.keras import backend as K


def range_shape_loss(y_true, y_pred):  # codes: FO101
    total = tf.zeros([])
    for i in range(tf.shape(y_pred)[0]):
        total = total + tf.reduce_mean(tf.square(y_true[i, :] - y_pred[i, :]))
    return total / tf.cast(tf.shape(y_pred)[0], tf.float32)


def old_backend_loss(y_true, y_pred):  # codes: FO101
    rows = []
    for i in range(K.int_shape(y_pred)[0]):
        rows.append(K.mean(K.square(y_true[i] - y_pred[i]), axis=-1))
    return K.mean(K.stack(rows))


def map_fn_index_loss(y_true, y_pred):  # codes: FO105
    idx = tf.range(tf.shape(y_pred)[0])
    losses = tf.map_fn(lambda i: tf.reduce_sum(tf.abs(y_true[i] - y_pred[i])), idx, fn_output_signature=tf.float32)
    return tf.reduce_mean(losses)


def while_tf_loss(y_true, y_pred):  # codes: FO101
    i = 0
    acc = tf.constant(0.0)
    n = y_pred.get_shape()[0]
    while i < n:
        acc = tf.add(acc, tf.reduce_max(tf.abs(tf.subtract(y_true[i], y_pred[i]))))
        i = i + 1
    return tf.divide(acc, n)


def expand_concat_loss(y_true, y_pred):  # codes: FO101
    out = []
    for t, p in zip(tf.unstack(y_true), tf.unstack(y_pred), strict=False):
        t, p = tf.math.l2_normalize(t), tf.math.l2_normalize(p)
        out.append(tf.expand_dims(tf.tensordot(t, p, 1), 0))
    return 1.0 - tf.reduce_mean(tf.concat(out, axis=0))


def gather_steps_loss(y_true, y_pred):  # codes: FO102
    loss = 0.0
    for t in range(y_pred.shape[1]):
        a, b = tf.gather(y_true, t, axis=1), tf.gather(y_pred, t, axis=1)
        loss += tf.reduce_mean(tf.keras.losses.huber(a[:, None], b[:, None]))
    return loss


def slice_steps_loss(y_true, y_pred):  # codes: FO102
    loss = 0.0
    for t in range(y_pred.shape[1] - 1):
        cur = tf.slice(y_pred, [0, t], [-1, 1])
        nxt = tf.slice(y_pred, [0, t + 1], [-1, 1])
        loss += tf.reduce_mean(tf.square(nxt - cur))
    return loss + tf.reduce_mean(tf.abs(y_true - y_pred))


def cond_tensor_loss(y_true, y_pred):  # codes: FO202
    e = tf.reduce_mean(tf.square(y_true - y_pred))
    if e > 1.0:
        return tf.sqrt(e)
    return e


def transposed_steps_loss(y_true, y_pred):  # codes: FO102
    y_true, y_pred = tf.transpose(y_true, [1, 0, 2]), tf.transpose(y_pred, [1, 0, 2])
    loss = 0.0
    for t in range(y_pred.shape[0]):
        loss += tf.reduce_mean(tf.norm(y_true[t] - y_pred[t] + 1e-3, axis=-1))
    return loss


def largest_quarter_loss(y_true, y_pred):  # codes: FO201
    e = tf.square(y_true - y_pred)
    k = max(1, int(0.25 * y_pred.shape[0]))
    thr = float(tf.sort(e, direction="DESCENDING")[k - 1])
    return tf.reduce_mean(tf.boolean_mask(e, e >= thr))


def intersection_metric(y_true, y_pred):  # codes: FO101 FO205|FO201
    hit = 0
    for t, p in zip(y_true.numpy(), y_pred.numpy(), strict=False):
        hit += len(np.intersect1d(np.argsort(t)[-2:], np.argsort(p)[-2:]))
    return hit / len(y_true)


def map_two_loss(y_true, y_pred):  # codes: FO105
    def per_sample(elems):
        t, p = elems[0], elems[1]
        p = p / (tf.reduce_sum(p**2) + 1e-6)
        return tf.reduce_sum(t * p)

    return -tf.reduce_mean(tf.map_fn(per_sample, [y_true, y_pred], fn_output_signature=tf.float32))


def cond_loop_loss(y_true, y_pred):  # codes: FO101 FO202
    loss = 0.0
    for i in range(y_true.shape[0]):
        e = y_true[i] - y_pred[i]
        loss += e * e if tf.abs(e) < 1.0 else 2 * tf.abs(e) - 1.0
    return loss / y_true.shape[0]
