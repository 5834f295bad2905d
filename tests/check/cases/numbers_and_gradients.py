"""Gradients, broadcasting, memory."""

import jax.numpy as jnp
import keras
import tensorflow as tf
import torch
from keras import backend as K
from keras import ops


def argmax_loss(y_true, y_pred):
    hit = ops.equal(ops.argmax(y_pred, axis=-1), ops.argmax(y_true, axis=-1))
    return 1.0 - ops.mean(ops.cast(hit, "float32"))  # expect: FO501


def rounded_loss(y_true, y_pred):
    return K.mean(K.abs(K.round(y_pred) - y_true))  # expect: FO501


def step_loss(y_true, y_pred):
    wrong = tf.cast(y_pred > 0.5, tf.float32) - y_true
    return tf.reduce_mean(tf.square(wrong))  # expect: FO501


def detached_loss(pred, target):
    return torch.mean((pred.detach() - target) ** 2)  # expect: FO501


class Hard(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return ops.cast(ops.not_equal(ops.argmax(y_pred, -1), y_true), "float32")  # expect: FO501


def accuracy(y_true, y_pred):
    return ops.mean(ops.cast(ops.equal(ops.argmax(y_pred, axis=-1), y_true), "float32"))


def straight_through_loss(y_true, y_pred):
    hard = y_pred + ops.stop_gradient(ops.round(y_pred) - y_pred)
    return ops.mean(ops.square(hard - y_true))


def sqrt_loss(y_true, y_pred):
    square = ops.sum(ops.square(y_true - y_pred), axis=-1)
    return ops.mean(ops.where(square > 0, ops.sqrt(square), 0.0))  # expect: FO502


def log_loss(y_true, y_pred):
    return -jnp.mean(jnp.where(y_pred > 0, jnp.log(y_pred), 0.0) * y_true)  # expect: FO502


def nan_target_loss(y_true, y_pred):
    return tf.reduce_mean(tf.where(tf.math.is_nan(y_true), 0.0, tf.square(y_true - y_pred)))  # expect: FO502


def divided_loss(y_true, y_pred):
    total = torch.sum(y_pred, dim=-1)
    return torch.mean(torch.where(total != 0, torch.sum(y_true, dim=-1) / total, torch.zeros_like(total)))  # expect: FO502


def pair_distance_loss(y_true, y_pred):
    square = ops.sum(ops.square(y_pred[:, None, :] - y_pred[None, :, :]), axis=-1)
    return ops.mean(ops.sqrt(square))  # expect: FO502


def guarded_distance_loss(y_true, y_pred):
    square = ops.sum(ops.square(y_pred[:, None, :] - y_pred[None, :, :]), axis=-1)
    return ops.mean(ops.sqrt(square + 1e-12))


def safe_where_loss(y_true, y_pred):
    filled = ops.where(ops.isnan(y_true), 0.0, y_true)
    keep = ops.cast(ops.logical_not(ops.isnan(y_true)), "float32")
    return ops.sum(keep * ops.square(filled - y_pred)) / ops.maximum(ops.sum(keep), 1.0)


def column_loss(y_true, y_pred):
    return ops.mean(ops.square(y_true[:, 0] - y_pred))  # expect: FO503


def reduced_loss(y_true, y_pred):
    error = ops.mean(ops.square(y_true - y_pred), axis=-1)
    return ops.mean(error * y_true[:, 0:1])  # expect: FO503


def triples_loss(y_true, y_pred):
    far = ops.sum(ops.square(y_pred[:, None] - y_pred[None, :]), axis=-1)
    return ops.mean(ops.maximum(far[:, :, None] - far[:, None, :] + 1.0, 0.0))  # expect: FO504 info
