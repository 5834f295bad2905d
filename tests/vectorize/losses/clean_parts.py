"""Losses with parts, pyramids, matrices and callbacks that nothing is to be said of; and a function that is no loss."""

import keras
import numpy as np
import tensorflow as tf
import torch
import torch.nn.functional as F
from keras import ops

LEVELS = np.array([0.1, 0.5, 0.9])


def heteroscedastic(y_true, y_pred):
    mean, raw = ops.split(y_pred, 2, axis=-1)
    return ops.mean(raw + ops.square(y_true - mean) * ops.exp(-raw))


def yolo(y_true, y_pred):
    xy, wh, conf, cls = tf.split(y_pred, [2, 2, 1, 3], axis=-1)
    t_xy, t_wh, t_conf, t_cls = tf.split(y_true, [2, 2, 1, 3], axis=-1)
    loss = 0.0
    for a, b in ((xy, t_xy), (wh, t_wh), (conf, t_conf), (cls, t_cls)):
        loss += tf.reduce_mean(tf.square(a - b))
    return loss


def anchors(y_true, y_pred, n=3):
    out = []
    for part_t, part_p in zip(torch.chunk(y_true, n, dim=-1), torch.chunk(y_pred, n, dim=-1), strict=False):
        out.append(F.mse_loss(part_p, part_t))
    return sum(out)


def barlow(y_true, y_pred):
    a = (y_true - ops.mean(y_true, axis=0)) / (ops.std(y_true, axis=0) + 1e-6)
    b = (y_pred - ops.mean(y_pred, axis=0)) / (ops.std(y_pred, axis=0) + 1e-6)
    c = ops.matmul(ops.transpose(a), b) / ops.cast(ops.shape(a)[0], "float32")
    d = ops.matmul(ops.transpose(a), a)
    return ops.sum(ops.square(c - ops.eye(c.shape[0]))) + 0.0 * ops.sum(d)


def gram(y_true, y_pred):
    def matrix(x):
        f = ops.reshape(x, (ops.shape(x)[0], -1, x.shape[-1]))
        return ops.matmul(ops.transpose(f, (0, 2, 1)), f)

    return ops.mean(ops.square(matrix(y_true) - matrix(y_pred)))


def sinkhorn(y_true, y_pred, steps=5):
    u = ops.ones_like(y_true)
    k = ops.exp(-ops.square(y_true[:, :, None] - y_pred[:, None, :]))
    for _ in range(steps):
        v = 1.0 / (ops.einsum("bij,bi->bj", k, u) + 1e-6)
        u = 1.0 / (ops.einsum("bij,bj->bi", k, v) + 1e-6)
    return ops.mean(u) + ops.mean(v)


class Val(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.evaluate(self.x, self.y, verbose=0)

    def on_train_batch_end(self, batch, logs=None):
        self.seen = batch
        if batch % 100 == 0:
            print(logs["loss"])


class LR(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = 1e-3 * min(1.0, (batch + 1) / 100)


def tf_ssim_ms(y_true, y_pred):
    return 1.0 - tf.reduce_mean(tf.image.ssim_multiscale(y_true, y_pred, 1.0))


def laplacian(y_true, y_pred, levels=3):
    loss = 0.0
    for i in range(levels):
        loss += (2.0**-i) * ops.mean(ops.abs(y_true - y_pred))
        y_true, y_pred = (ops.average_pool(z, 2, 2) for z in (y_true, y_pred))
    return loss


def norm_loss(y_true, y_pred):
    y_true = tf.math.l2_normalize(y_true, axis=-1)
    y_pred = tf.math.l2_normalize(y_pred, axis=-1)
    return -tf.reduce_sum(y_true * y_pred, axis=-1)


class Center(keras.losses.Loss):
    def __init__(self, centers):
        super().__init__()
        self.centers = ops.convert_to_tensor(centers)

    def call(self, y_true, y_pred):
        own = ops.take(self.centers, ops.cast(ops.reshape(y_true, (-1,)), "int32"), axis=0)
        return ops.sum(ops.square(y_pred - own), axis=-1)


def best_threshold(scores, labels):
    best, at = 0.0, 0.0
    for t in np.linspace(0, 1, 50):
        f = ((scores > t) == labels).mean()
        if f > best:
            best, at = f, t
    return at
