"""Losses that nothing is to be said of."""

import keras
import numpy as np
from keras import ops

WEIGHTS = np.array([1.0, 0.5, 2.0], "float32")
TABLE = ops.convert_to_tensor(WEIGHTS)
SCALES = (1, 2, 4)


def masked_mean_loss(y_true, y_pred):
    keep = ops.cast(ops.not_equal(y_true, -1.0), "float32")
    error = ops.square(ops.where(keep > 0, y_true, 0.0) - y_pred)
    return ops.sum(keep * error) / ops.maximum(ops.sum(keep), 1.0)


def gathered_weights_loss(y_true, y_pred):
    codes = ops.cast(y_true, "int32")
    each = keras.losses.sparse_categorical_crossentropy(codes, y_pred)
    return ops.mean(ops.take(TABLE, ops.clip(codes, 0, 2)) * each)


def info_nce_loss(y_true, y_pred):
    scores = ops.matmul(y_pred, ops.transpose(y_true)) / 0.07
    labels = ops.arange(ops.shape(scores)[0])
    return ops.mean(keras.losses.sparse_categorical_crossentropy(labels, scores, from_logits=True))


def multi_output_loss(y_true, y_pred):
    losses = {name: ops.mean(ops.abs(y_true[name] - y_pred[name])) for name in ("mask", "depth")}
    return losses["mask"] + 0.1 * losses["depth"]


def pyramid_loss(y_true, y_pred):
    total = 0.0
    for scale in SCALES:
        a = ops.average_pool(y_true, scale, scale)
        b = ops.average_pool(y_pred, scale, scale)
        total = total + ops.mean(ops.abs(a - b))
    return total


def make_focal(gamma=2.0):
    def focal_loss(y_true, y_pred):
        p = ops.clip(y_pred, 1e-7, 1.0 - 1e-7)
        hit = y_true * p + (1.0 - y_true) * (1.0 - p)
        return -ops.mean(ops.power(1.0 - hit, gamma) * ops.log(hit))

    return focal_loss


def smooth_time_loss(y_true, y_pred):
    jumps = y_pred[:, 1:] - y_pred[:, :-1]
    return ops.mean(ops.square(y_true - y_pred)) + 0.1 * ops.mean(ops.abs(jumps))


def optional_weight_loss(y_true, y_pred, sample_weight=None):
    error = ops.mean(ops.square(y_true - y_pred), axis=-1)
    if sample_weight is not None:
        error = error * sample_weight
    return ops.mean(error)


def ranks_loss(y_true, y_pred):
    if len(y_pred.shape) == 3:
        y_pred = y_pred[:, -1]
    gap = y_pred[:, :, None] - y_pred[:, None, :]
    order = ops.sign(y_true[:, :, None] - y_true[:, None, :])
    return ops.mean(ops.relu(0.1 - order * gap))


class GaussianNLL(keras.losses.Loss):
    def __init__(self, floor=1e-4, **kwargs):
        super().__init__(**kwargs)
        self.floor = floor

    def call(self, y_true, y_pred):
        mean, raw = ops.split(y_pred, 2, axis=-1)
        scale = ops.softplus(raw) + self.floor
        return ops.mean(ops.log(scale) + 0.5 * ops.square((y_true - mean) / scale), axis=-1)


class MeanGap(keras.metrics.Metric):
    def __init__(self, name="gap", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(ops.sum(ops.abs(y_true - y_pred)))
        self.count.assign_add(ops.cast(ops.size(y_true), "float32"))

    def result(self):
        return self.total / (self.count + 1e-7)


def wasserstein_loss(y_true, y_pred):
    return ops.mean(ops.abs(ops.cumsum(y_true, axis=-1) - ops.cumsum(y_pred, axis=-1)))
