"""More losses of forum posts in TensorFlow."""

import numpy as np
import tensorflow as tf

ANCHORS = [1.0, 2.0, 4.0]
LABEL_WEIGHTS = {0: 0.3, 1: 1.0, 2: 2.5}


def anchors_loss(y_true, y_pred):  # codes: FO104|FO102|FO101
    total = 0.0
    for k, anchor in enumerate(ANCHORS):
        width = tf.exp(y_pred[:, k]) * anchor
        total += tf.reduce_mean(tf.abs(width - y_true[:, k]))
    return total / len(ANCHORS)


def cast_labels_loss(y_true, y_pred):  # codes: FO101
    batch = y_pred.shape[0]
    logp = tf.nn.log_softmax(y_pred, axis=-1)
    picked = [logp[i, int(y_true[i])] for i in range(batch)]
    return -tf.add_n(picked) / batch


def weights_by_label_loss(y_true, y_pred):  # codes: FO101 FO401
    w = tf.stack([LABEL_WEIGHTS[int(label)] for label in y_true])
    return tf.reduce_sum(w * tf.square(y_pred)) / tf.reduce_sum(w)


def one_map_loss(y_true, y_pred):  # codes: FO105
    def of_row(pair):
        t, p = pair
        return 1.0 - tf.reduce_sum(t * p) / (tf.norm(t) * tf.norm(p) + 1e-6)

    return tf.reduce_mean(tf.map_fn(of_row, [y_true, y_pred], dtype=tf.float32))


def masked_mean_loss(y_true, y_pred):  # codes: FO101 FO108
    terms = []
    for t, p in zip(tf.unstack(y_true), tf.unstack(y_pred), strict=False):
        mask = tf.math.logical_not(tf.math.is_nan(t))
        terms.append(tf.reduce_sum(tf.square(tf.boolean_mask(p, mask) - tf.boolean_mask(t, mask))))
    return tf.add_n(terms)


def pair_distances_loss(y_true, y_pred):  # codes: FO103
    total = tf.constant(0.0)
    for i in range(y_pred.shape[0]):
        for j in range(y_pred.shape[0]):
            if i == j:
                continue
            d = tf.reduce_sum(tf.math.squared_difference(y_pred[i], y_pred[j]))
            total = total + tf.cond(tf.equal(y_true[i], y_true[j]), lambda d=d: d, lambda d=d: tf.nn.relu(1.0 - d))
    return total


def numpy_ranks_metric(y_true, y_pred):  # codes: FO205
    ranks = np.argsort(np.argsort(-y_pred.numpy(), axis=1), axis=1) + 1
    first = [ranks[i, int(label)] for i, label in enumerate(y_true.numpy())]
    return np.mean(1.0 / np.array(first))


def channel_moments_loss(y_true, y_pred):  # codes: FO104|FO102
    total = 0.0
    for c in range(y_pred.shape[-1]):
        mean_t, var_t = tf.nn.moments(y_true[..., c], axes=[0])
        mean_p, var_p = tf.nn.moments(y_pred[..., c], axes=[0])
        total += tf.square(mean_t - mean_p) + tf.square(var_t - var_p)
    return total


def cumulative_returns_loss(y_true, y_pred):  # codes: FO102 FO106
    value, worst = 1.0, 0.0
    for t in range(y_pred.shape[1]):
        value = value * (1.0 + 0.01 * y_pred[:, t])
        worst = worst + tf.nn.relu(1.0 - value) * tf.abs(y_true[:, t])
    return tf.reduce_mean(worst)
