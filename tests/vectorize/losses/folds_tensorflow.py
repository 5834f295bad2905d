"""Places, folds and partitions in spellings of TensorFlow."""

import tensorflow as tf


def where_gather_nd(y_true, y_pred):  # codes: FO108
    idx = tf.where(y_true > 0.5)
    return tf.reduce_sum(tf.square(tf.gather_nd(y_pred, idx) - 1.0)) / tf.cast(tf.shape(y_true)[0], tf.float32)


def where_gather(y_true, y_pred):  # codes: FO108
    idx = tf.squeeze(tf.where(tf.equal(y_true, 1.0)), axis=-1)
    return tf.reduce_sum(tf.abs(tf.gather(y_pred, idx)))


def where_flat(y_true, y_pred):  # codes: FO108
    idx = tf.reshape(tf.where(y_true > 0), [-1])
    chosen = tf.gather(y_pred, idx, axis=0)
    return tf.math.divide_no_nan(tf.reduce_sum(chosen), tf.cast(tf.size(idx), tf.float32))


def folded(y_true, y_pred):  # codes: FO105|FO101|FO106
    err = tf.square(y_true - y_pred)
    return tf.foldl(lambda acc, row: acc + tf.reduce_mean(row), err, initializer=0.0)


def folded_pairs(y_true, y_pred):  # codes: FO105|FO101|FO106
    def body(acc, pair):
        t, p = pair
        return acc + tf.reduce_max(tf.abs(t - p))

    return tf.foldl(body, (y_true, y_pred), initializer=tf.constant(0.0))


def scanned(y_true, y_pred):  # codes: FO105|FO101|FO102|FO106
    sums = tf.scan(lambda acc, row: acc + row, y_pred - y_true)
    return tf.reduce_mean(tf.square(sums))


def map_two(y_true, y_pred):  # codes: FO105
    a, b = tf.map_fn(
        lambda pair: (tf.reduce_sum(tf.abs(pair[0] - pair[1])), tf.reduce_max(pair[1])),
        (y_true, y_pred),
        fn_output_signature=(tf.float32, tf.float32),
    )
    return tf.reduce_mean(a) + tf.reduce_mean(b)


def while_sum(y_true, y_pred):  # codes: FO101|FO105|FO106
    n = tf.shape(y_true)[0]
    _, total = tf.while_loop(
        lambda i, s: i < n,
        lambda i, s: (i + 1, s + tf.reduce_mean(tf.abs(y_true[i] - y_pred[i]))),
        (tf.constant(0), tf.constant(0.0)),
    )
    return total / tf.cast(n, tf.float32)


def partitioned(y_true, y_pred):  # codes: FO104|FO108|FO107
    parts = tf.dynamic_partition(y_pred, tf.cast(y_true, tf.int32), 3)
    return tf.add_n([tf.square(tf.reduce_sum(p)) for p in parts])


def unique_loop(y_true, y_pred):  # codes: FO107
    ids, _ = tf.unique(y_true)
    total = 0.0
    for g in ids:
        total += tf.abs(tf.reduce_mean(tf.boolean_mask(y_pred, tf.equal(y_true, g))))
    return total
