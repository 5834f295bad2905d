"""Losses in the words of TensorFlow and the old `keras.backend`."""

import keras
import numpy as np
import tensorflow as tf
from tensorflow.keras import backend as K

cce = keras.losses.CategoricalCrossentropy()
WEIGHTS = tf.constant([0.2, 1.0, 3.0])
ANCHORS = [1.0, 2.0, 4.0]
LABEL_WEIGHTS = {0: 0.3, 1: 1.0, 2: 2.5}


def rows_tf_loss(y_true, y_pred):  # rewritten: FO101
    batch = y_pred.shape[0]
    loss = tf.constant(0.0)
    for i in range(batch):
        loss += tf.norm(y_true[i] - y_pred[i]) ** 2
    return loss / tf.cast(batch, tf.float32)


def gathered_rows_loss(y_true, y_pred):  # rewritten: FO101
    parts = []
    for i in range(y_pred.shape[0]):
        parts.append(tf.gather(y_pred[i], tf.cast(y_true[i], tf.int32)))
    return -tf.reduce_mean(tf.math.log(tf.stack(parts) ** 2 + 1e-6))


def unstacked_loss(y_true, y_pred):  # rewritten: FO102
    total = 0.0
    for a, b in zip(tf.unstack(y_true, axis=1), tf.unstack(y_pred, axis=1), strict=False):
        total += tf.reduce_mean(tf.math.squared_difference(a, b))
    return total


def masked_tf_loss(y_true, y_pred):  # rewritten: FO108
    keep = tf.greater(y_true, 0.0)
    diff = tf.boolean_mask(y_true, keep) - tf.boolean_mask(y_pred, keep)
    return tf.reduce_sum(tf.square(diff)) / (tf.reduce_sum(tf.cast(keep, tf.float32)) + 1.0)


def tensor_range_loss(y_true, y_pred):  # rewritten: FO101
    total = 0.0
    for i in tf.range(y_pred.shape[0]):
        total += tf.reduce_sum(tf.square(y_true[i] - y_pred[i]))
    return total / tf.cast(tf.shape(y_pred)[0], tf.float32)


def tensor_array_loss(y_true, y_pred):  # rewritten: FO101
    n = y_pred.shape[0]
    acc = tf.TensorArray(tf.float32, size=n)
    for i in range(n):
        acc = acc.write(i, tf.reduce_mean(tf.abs(y_true[i] - y_pred[i])))
    return tf.reduce_mean(acc.stack())


def gather_nd_loss(y_true, y_pred):  # rewritten: FO101
    picked = []
    for i in range(y_pred.shape[0]):
        picked.append(y_pred[i, tf.cast(y_true[i], tf.int32)])
    return -tf.reduce_mean(tf.math.log(tf.abs(tf.stack(picked)) + 1e-6))


def axis_lists_loss(y_true, y_pred):  # rewritten: FO104
    dice = []
    for c in range(y_pred.shape[-1]):
        num = 2 * tf.reduce_sum(y_true[..., c] * y_pred[..., c], axis=[0]) + 1.0
        den = tf.reduce_sum(tf.square(y_true[..., c]) + tf.square(y_pred[..., c]), axis=[0]) + 1.0
        dice.append(num / den)
    return 1 - tf.reduce_mean(tf.stack(dice, axis=-1))


def object_each_loss(y_true, y_pred):  # rewritten: FO101
    total = 0.0
    for i in range(y_true.shape[0]):
        total += cce(y_true[i : i + 1], y_pred[i : i + 1])
    return total / y_true.shape[0]


def where_sum_loss(y_true, y_pred):  # rewritten: FO101
    rows = []
    for t, p in zip(tf.unstack(y_true), tf.unstack(y_pred), strict=False):
        e = tf.abs(t - p)
        rows.append(tf.reduce_sum(tf.where(e < 1.0, 0.5 * e * e, e - 0.5)))
    return tf.math.add_n(rows)


def numpy_call_loss(y_true, y_pred):  # rewritten: FO201
    weight = 1.0 + y_true.numpy().mean()
    return weight * tf.reduce_mean(tf.square(y_true - y_pred))


def range_shape_loss(y_true, y_pred):  # rewritten: FO101
    total = tf.zeros([])
    for i in range(tf.shape(y_pred)[0]):
        total = total + tf.reduce_mean(tf.square(y_true[i, :] - y_pred[i, :]))
    return total / tf.cast(tf.shape(y_pred)[0], tf.float32)


def old_backend_loss(y_true, y_pred):  # rewritten: FO101
    rows = []
    for i in range(K.int_shape(y_pred)[0]):
        rows.append(K.mean(K.square(y_true[i] - y_pred[i]), axis=-1))
    return K.mean(K.stack(rows))


def map_fn_index_loss(y_true, y_pred):  # rewritten: FO105
    idx = tf.range(tf.shape(y_pred)[0])
    losses = tf.map_fn(lambda i: tf.reduce_sum(tf.abs(y_true[i] - y_pred[i])), idx, fn_output_signature=tf.float32)
    return tf.reduce_mean(losses)


def while_tf_loss(y_true, y_pred):  # rewritten: FO101
    i = 0
    acc = tf.constant(0.0)
    n = y_pred.get_shape()[0]
    while i < n:
        acc = tf.add(acc, tf.reduce_max(tf.abs(tf.subtract(y_true[i], y_pred[i]))))
        i = i + 1
    return tf.divide(acc, n)


def expand_concat_loss(y_true, y_pred):  # rewritten: FO101
    out = []
    for t, p in zip(tf.unstack(y_true), tf.unstack(y_pred), strict=False):
        t, p = tf.math.l2_normalize(t), tf.math.l2_normalize(p)
        out.append(tf.expand_dims(tf.tensordot(t, p, 1), 0))
    return 1.0 - tf.reduce_mean(tf.concat(out, axis=0))


def gather_steps_loss(y_true, y_pred):  # rewritten: FO102
    loss = 0.0
    for t in range(y_pred.shape[1]):
        a, b = tf.gather(y_true, t, axis=1), tf.gather(y_pred, t, axis=1)
        loss += tf.reduce_mean(tf.keras.losses.huber(a[:, None], b[:, None]))
    return loss


def slice_steps_loss(y_true, y_pred):  # rewritten: FO102
    loss = 0.0
    for t in range(y_pred.shape[1] - 1):
        cur = tf.slice(y_pred, [0, t], [-1, 1])
        nxt = tf.slice(y_pred, [0, t + 1], [-1, 1])
        loss += tf.reduce_mean(tf.square(nxt - cur))
    return loss + tf.reduce_mean(tf.abs(y_true - y_pred))


def cond_tensor_loss(y_true, y_pred):  # rewritten: FO202
    e = tf.reduce_mean(tf.square(y_true - y_pred))
    if e > 1.0:
        return tf.sqrt(e)
    return e


def transposed_steps_loss(y_true, y_pred):  # rewritten: FO102
    y_true, y_pred = tf.transpose(y_true, [1, 0, 2]), tf.transpose(y_pred, [1, 0, 2])
    loss = 0.0
    for t in range(y_pred.shape[0]):
        loss += tf.reduce_mean(tf.norm(y_true[t] - y_pred[t] + 1e-3, axis=-1))
    return loss


def largest_quarter_loss(y_true, y_pred):  # rewritten: FO201
    e = tf.square(y_true - y_pred)
    k = max(1, int(0.25 * y_pred.shape[0]))
    thr = float(tf.sort(e, direction="DESCENDING")[k - 1])
    return tf.reduce_mean(tf.boolean_mask(e, e >= thr))


def intersection_metric(y_true, y_pred):  # rewritten: FO101 FO205|FO201
    hit = 0
    for t, p in zip(y_true.numpy(), y_pred.numpy(), strict=False):
        hit += len(np.intersect1d(np.argsort(t)[-2:], np.argsort(p)[-2:]))
    return hit / len(y_true)


def cond_loop_loss(y_true, y_pred):  # rewritten: FO101 FO202
    loss = 0.0
    for i in range(y_true.shape[0]):
        e = y_true[i] - y_pred[i]
        loss += e * e if tf.abs(e) < 1.0 else 2 * tf.abs(e) - 1.0
    return loss / y_true.shape[0]


def where_gather_nd(y_true, y_pred):  # rewritten: FO108
    idx = tf.where(y_true > 0.5)
    return tf.reduce_sum(tf.square(tf.gather_nd(y_pred, idx) - 1.0)) / tf.cast(tf.shape(y_true)[0], tf.float32)


def where_gather(y_true, y_pred):  # rewritten: FO108
    idx = tf.squeeze(tf.where(tf.equal(y_true, 1.0)), axis=-1)
    return tf.reduce_sum(tf.abs(tf.gather(y_pred, idx)))


def where_flat(y_true, y_pred):  # rewritten: FO108
    idx = tf.reshape(tf.where(y_true > 0), [-1])
    chosen = tf.gather(y_pred, idx, axis=0)
    return tf.math.divide_no_nan(tf.reduce_sum(chosen), tf.cast(tf.size(idx), tf.float32))


def folded(y_true, y_pred):  # rewritten: FO105|FO101|FO106
    err = tf.square(y_true - y_pred)
    return tf.foldl(lambda acc, row: acc + tf.reduce_mean(row), err, initializer=0.0)


def folded_pairs(y_true, y_pred):  # rewritten: FO105|FO101|FO106
    def body(acc, pair):
        t, p = pair
        return acc + tf.reduce_max(tf.abs(t - p))

    return tf.foldl(body, (y_true, y_pred), initializer=tf.constant(0.0), parallel_iterations=4, name="rows")


def scanned(y_true, y_pred):  # rewritten: FO105|FO101|FO102|FO106
    sums = tf.scan(lambda acc, row: acc + row, y_pred - y_true)
    return tf.reduce_mean(tf.square(sums))


def map_two(y_true, y_pred):  # rewritten: FO105
    a, b = tf.map_fn(
        lambda pair: (tf.reduce_sum(tf.abs(pair[0] - pair[1])), tf.reduce_max(pair[1])),
        (y_true, y_pred),
        fn_output_signature=(tf.float32, tf.float32),
    )
    return tf.reduce_mean(a) + tf.reduce_mean(b)


def while_sum(y_true, y_pred):  # rewritten: FO101|FO105|FO106
    n = tf.shape(y_true)[0]
    _, total = tf.while_loop(
        lambda i, s: i < n,
        lambda i, s: (i + 1, s + tf.reduce_mean(tf.abs(y_true[i] - y_pred[i]))),
        (tf.constant(0), tf.constant(0.0)),
    )
    return total / tf.cast(n, tf.float32)


def partitioned(y_true, y_pred):  # rewritten: FO104|FO108|FO107
    parts = tf.dynamic_partition(y_pred, tf.cast(y_true, tf.int32), 3)
    return tf.add_n([tf.square(tf.reduce_sum(p)) for p in parts])


def unique_loop(y_true, y_pred):  # rewritten: FO107
    ids, _ = tf.unique(y_true)
    total = 0.0
    for g in ids:
        total += tf.abs(tf.reduce_mean(tf.boolean_mask(y_pred, tf.equal(y_true, g))))
    return total


def unstacked_steps_loss(y_true, y_pred):  # rewritten: FO102
    losses = []
    for t, (a, b) in enumerate(zip(tf.unstack(y_true, axis=1), tf.unstack(y_pred, axis=1), strict=False)):
        losses.append(tf.reduce_mean(tf.math.squared_difference(a, b)) * (0.9**t))
    return tf.add_n(losses)


def array_of_rows_loss(y_true, y_pred):  # rewritten: FO101
    ta = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in range(y_pred.shape[0]):
        ta = ta.write(ta.size(), tf.linalg.norm(y_pred[i] - y_true[i] + 1e-3))
    return tf.reduce_mean(ta.stack())


def gathered_weights_loss(y_true, y_pred):  # rewritten: FO101
    total = tf.constant(0.0)
    for i in range(y_true.shape[0]):
        label = tf.cast(y_true[i], tf.int32)
        total += tf.gather(WEIGHTS, label) * tf.square(y_pred[i, label])
    return total


class PairHinge(keras.losses.Loss):  # rewritten: FO103
    def __init__(self, margin=0.5):
        super().__init__()
        self.margin = margin

    def call(self, y_true, y_pred):
        total, count = 0.0, 0
        for i in range(y_pred.shape[0]):
            for j in range(i):
                d = tf.reduce_sum(tf.abs(y_pred[i] - y_pred[j]))
                total += tf.where(y_true[i] == y_true[j], d, tf.nn.relu(self.margin - d))
                count += 1
        return total / tf.cast(tf.maximum(count, 1), tf.float32)


def selected_rows_loss(y_true, y_pred):  # rewritten: FO101 FO108
    total = 0.0
    for i in range(y_true.shape[0]):
        keep = tf.boolean_mask(y_pred[i], y_true[i] > 0)
        total += tf.reduce_sum(tf.square(keep))
    return total / y_true.shape[0]


def sequence_losses_loss(y_true, y_pred):  # rewritten: FO101
    bce = keras.losses.BinaryCrossentropy(from_logits=True)
    return tf.reduce_mean([bce(y_true[i], y_pred[i]) for i in range(y_true.shape[0])])


def anchors_loss(y_true, y_pred):  # rewritten: FO104|FO102|FO101
    total = 0.0
    for k, anchor in enumerate(ANCHORS):
        width = tf.exp(y_pred[:, k]) * anchor
        total += tf.reduce_mean(tf.abs(width - y_true[:, k]))
    return total / len(ANCHORS)


def cast_labels_loss(y_true, y_pred):  # rewritten: FO101
    batch = y_pred.shape[0]
    logp = tf.nn.log_softmax(y_pred, axis=-1)
    picked = [logp[i, int(y_true[i])] for i in range(batch)]
    return -tf.add_n(picked) / batch


def weights_by_label_loss(y_true, y_pred):  # rewritten: FO101 FO401
    w = tf.stack([LABEL_WEIGHTS[int(label)] for label in y_true])
    return tf.reduce_sum(w * tf.square(y_pred)) / tf.reduce_sum(w)


def masked_mean_loss(y_true, y_pred):  # rewritten: FO101 FO108
    terms = []
    for t, p in zip(tf.unstack(y_true), tf.unstack(y_pred), strict=False):
        mask = tf.math.logical_not(tf.math.is_nan(t))
        terms.append(tf.reduce_sum(tf.square(tf.boolean_mask(p, mask) - tf.boolean_mask(t, mask))))
    return tf.add_n(terms)


def pair_distances_loss(y_true, y_pred):  # rewritten: FO103
    total = tf.constant(0.0)
    for i in range(y_pred.shape[0]):
        for j in range(y_pred.shape[0]):
            if i == j:
                continue
            d = tf.reduce_sum(tf.math.squared_difference(y_pred[i], y_pred[j]))
            total = total + tf.cond(tf.equal(y_true[i], y_true[j]), lambda d=d: d, lambda d=d: tf.nn.relu(1.0 - d))
    return total


def numpy_ranks_metric(y_true, y_pred):  # rewritten: FO205
    ranks = np.argsort(np.argsort(-y_pred.numpy(), axis=1), axis=1) + 1
    first = [ranks[i, int(label)] for i, label in enumerate(y_true.numpy())]
    return np.mean(1.0 / np.array(first))


def channel_moments_loss(y_true, y_pred):  # rewritten: FO104|FO102
    total = 0.0
    for c in range(y_pred.shape[-1]):
        mean_t, var_t = tf.nn.moments(y_true[..., c], axes=[0])
        mean_p, var_p = tf.nn.moments(y_pred[..., c], axes=[0])
        total += tf.square(mean_t - mean_p) + tf.square(var_t - var_p)
    return total


def cumulative_returns_loss(y_true, y_pred):  # rewritten: FO102 FO106
    value, worst = 1.0, 0.0
    for t in range(y_pred.shape[1]):
        value = value * (1.0 + 0.01 * y_pred[:, t])
        worst = worst + tf.nn.relu(1.0 - value) * tf.abs(y_true[:, t])
    return tf.reduce_mean(worst)


class Pinball(tf.keras.losses.Loss):  # rewritten: FO104
    def __init__(self, quantiles=(0.1, 0.5, 0.9), name="pinball"):
        super().__init__(name=name)
        self.quantiles = quantiles

    def call(self, y_true, y_pred):
        parts = []
        for q, guess in zip(self.quantiles, tf.unstack(y_pred, axis=-1), strict=False):
            error = tf.squeeze(y_true, -1) - guess
            parts.append(tf.maximum(q * error, (q - 1) * error))
        return tf.reduce_mean(tf.add_n(parts))


def listed_likelihood_loss(y_true, y_pred):  # rewritten: FO101
    losses = []
    for relevance, score in zip(y_true, y_pred, strict=False):
        score = tf.gather(score, tf.argsort(relevance, direction="DESCENDING"))
        losses.append(tf.reduce_sum(tf.math.cumulative_logsumexp(score, reverse=True) - score))
    return tf.reduce_mean(tf.stack(losses))
