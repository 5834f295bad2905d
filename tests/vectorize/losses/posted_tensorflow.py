"""Losses as people post them, in TensorFlow."""

import tensorflow as tf


class Pinball(tf.keras.losses.Loss):  # codes: FO104
    def __init__(self, quantiles=(0.1, 0.5, 0.9), name="pinball"):
        super().__init__(name=name)
        self.quantiles = quantiles

    def call(self, y_true, y_pred):
        parts = []
        for q, guess in zip(self.quantiles, tf.unstack(y_pred, axis=-1), strict=False):
            error = tf.squeeze(y_true, -1) - guess
            parts.append(tf.maximum(q * error, (q - 1) * error))
        return tf.reduce_mean(tf.add_n(parts))


def listed_likelihood_loss(y_true, y_pred):  # codes: FO101
    losses = []
    for relevance, score in zip(y_true, y_pred, strict=False):
        score = tf.gather(score, tf.argsort(relevance, direction="DESCENDING"))
        losses.append(tf.reduce_sum(tf.math.cumulative_logsumexp(score, reverse=True) - score))
    return tf.reduce_mean(tf.stack(losses))
