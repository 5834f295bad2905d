"""Losses as they stand in forum posts, in TensorFlow and the old `K`."""

import keras
import tensorflow as tf

WEIGHTS = tf.constant([0.2, 1.0, 3.0])


def mapped_tuple_loss(y_true, y_pred):  # codes: FO105
    one = lambda pair: tf.reduce_mean(tf.abs(pair[0] - pair[1]))  # noqa: E731
    return tf.reduce_mean(tf.map_fn(one, (y_true, y_pred), fn_output_signature=tf.float32))


def unstacked_steps_loss(y_true, y_pred):  # codes: FO102
    losses = []
    for t, (a, b) in enumerate(zip(tf.unstack(y_true, axis=1), tf.unstack(y_pred, axis=1), strict=False)):
        losses.append(tf.reduce_mean(tf.math.squared_difference(a, b)) * (0.9**t))
    return tf.add_n(losses)


def array_of_rows_loss(y_true, y_pred):  # codes: FO101
    ta = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in range(y_pred.shape[0]):
        ta = ta.write(ta.size(), tf.linalg.norm(y_pred[i] - y_true[i] + 1e-3))
    return tf.reduce_mean(ta.stack())


def gathered_weights_loss(y_true, y_pred):  # codes: FO101
    total = tf.constant(0.0)
    for i in range(y_true.shape[0]):
        label = tf.cast(y_true[i], tf.int32)
        total += tf.gather(WEIGHTS, label) * tf.square(y_pred[i, label])
    return total


def class_iou_loss(y_true, y_pred):  # codes: FO104
    p = tf.nn.softmax(y_pred)
    iou = []
    for c in range(p.shape[-1]):
        t = tf.cast(tf.equal(tf.cast(y_true, tf.int32), c), tf.float32)
        inter = tf.reduce_sum(t * p[..., c])
        iou.append((inter + 1.0) / (tf.reduce_sum(t + p[..., c]) - inter + 1.0))
    return 1.0 - tf.reduce_mean(iou)


class PairHinge(keras.losses.Loss):  # codes: FO103
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


def selected_rows_loss(y_true, y_pred):  # codes: FO101 FO108
    total = 0.0
    for i in range(y_true.shape[0]):
        keep = tf.boolean_mask(y_pred[i], y_true[i] > 0)
        total += tf.reduce_sum(tf.square(keep))
    return total / y_true.shape[0]


def sequence_losses_loss(y_true, y_pred):  # codes: FO101
    bce = keras.losses.BinaryCrossentropy(from_logits=True)
    return tf.reduce_mean([bce(y_true[i], y_pred[i]) for i in range(y_true.shape[0])])
