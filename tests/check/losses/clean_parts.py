"""Losses of several parts, in the words of torch and TensorFlow, and axes that are taken away rightly."""

import keras
import numpy as np
import tensorflow as tf
import torch
import torch.nn.functional as F
from keras import ops

PART_SCALES = (1.0, 0.5)


def two_terms_loss(y_true, y_pred):
    state = {}

    def put(key, value):
        state[key] = value

    put("mse", ops.mean(ops.square(y_true - y_pred)))
    put("l1", ops.mean(ops.abs(y_pred)))
    return state["mse"] + 0.01 * state["l1"]


class Terms:
    def __init__(self):
        self.values = []
        self.count = 0

    def add(self, value):
        self.values.append(value)
        self.count += 1

    def mean(self):
        return sum(self.values) / self.count


def collected_in_object_loss(y_true, y_pred):
    terms = Terms()
    terms.add(ops.mean(ops.square(y_true - y_pred)))
    terms.add(ops.mean(ops.abs(y_true - y_pred)))
    return terms.mean()


def two_scales_loss(y_true, y_pred):
    parts = [ops.mean(ops.square(y_true - y_pred))]
    if PART_SCALES[0] > 0:
        parts.append(PART_SCALES[1] * ops.mean(ops.abs(y_true - y_pred)))
    return ops.sum(ops.stack(parts))


def nonlocal_parts_loss(y_true, y_pred):
    total = 0.0

    def add(value):
        nonlocal total
        total = total + value

    add(ops.mean(ops.square(y_true - y_pred)))
    add(0.1 * ops.mean(ops.abs(y_true - y_pred)))
    return total


def extended_list_loss(y_true, y_pred):
    parts = []
    parts.extend([ops.mean(ops.square(y_true - y_pred)), ops.mean(ops.abs(y_true))])
    parts += [0.1 * ops.mean(ops.abs(y_pred))]
    return sum(parts)


class Composite(keras.losses.Loss):
    def __init__(self, parts=(("mse", 1.0), ("mae", 0.1)), **kwargs):
        super().__init__(**kwargs)
        self.parts = [(keras.losses.get(name), weight) for name, weight in parts]

    def call(self, y_true, y_pred):
        total = 0.0
        for function, weight in self.parts:
            total = total + weight * function(y_true, y_pred)
        return total


def torch_module_loss(y_true, y_pred):
    parts = {}
    parts["bce"] = torch.nn.functional.binary_cross_entropy_with_logits(y_pred, y_true)
    parts["reg"] = 0.01 * y_pred.pow(2).mean()
    return sum(parts.values())


def weights_list_loss(y_true, y_pred):
    weights = [1.0, 2.0, 4.0]
    weights[0] = 0.5
    w = ops.convert_to_tensor(np.asarray(weights, "float32"))
    return ops.mean(w * ops.square(y_true - y_pred))


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


def tf_ssim_ms(y_true, y_pred):
    return 1.0 - tf.reduce_mean(tf.image.ssim_multiscale(y_true, y_pred, 1.0))


def normalized_loss(y_true, y_pred):
    y_true = tf.math.l2_normalize(y_true, axis=-1)
    y_pred = tf.math.l2_normalize(y_pred, axis=-1)
    return -tf.reduce_sum(y_true * y_pred, axis=-1)


def torch_focal_loss(y_true, y_pred):
    ce = torch.nn.functional.cross_entropy(y_pred, y_true.long(), reduction="none")
    return ((1 - torch.exp(-ce)) ** 2 * ce).mean()


def tensorflow_ranked_loss(y_true, y_pred):
    diff = tf.expand_dims(y_pred, 1) - tf.expand_dims(y_pred, 2)
    order = tf.sign(tf.expand_dims(y_true, 1) - tf.expand_dims(y_true, 2))
    return tf.reduce_mean(tf.nn.softplus(-order * diff))


def tf_dice(y_true, y_pred, smooth=1.0):
    axes = tuple(range(1, len(y_pred.shape) - 1))
    num = 2.0 * tf.reduce_sum(y_true * y_pred, axis=axes) + smooth
    return 1.0 - tf.reduce_mean(num / (tf.reduce_sum(y_true + y_pred, axis=axes) + smooth))


def tf_masked(y_true, y_pred):
    mask = tf.cast(tf.math.logical_not(tf.math.is_nan(y_true)), tf.float32)
    safe = tf.where(tf.math.is_nan(y_true), tf.zeros_like(y_true), y_true)
    return tf.reduce_sum(mask * tf.square(safe - y_pred)) / tf.maximum(tf.reduce_sum(mask), 1.0)


def torch_supcon(y_true, y_pred):
    z = F.normalize(y_pred, dim=1)
    logits = z @ z.T / 0.1
    eye = torch.eye(len(z), dtype=torch.bool)
    same = (y_true[:, None] == y_true[None, :]) & ~eye
    logp = logits - torch.logsumexp(logits.masked_fill(eye, -1e9), dim=1, keepdim=True)
    return -(same * logp).sum() / same.sum().clamp(min=1)


def both_squeezed_loss(y_true, y_pred):
    return ops.mean(ops.square(ops.squeeze(y_pred, -1) - ops.squeeze(y_true, -1)))


def heads_loss(y_true, y_pred):
    mu, log_var = y_pred[:, 0], y_pred[:, 1]
    return ops.mean(ops.square(y_true - mu) * ops.exp(-log_var) + log_var)


def flat_loss(y_true, y_pred):
    return ops.mean(ops.square(ops.reshape(y_true, (-1,)) - ops.reshape(y_pred, (-1,))))


def centred_loss(y_true, y_pred):
    p = ops.squeeze(y_pred, -1)
    return ops.mean(ops.square(p - ops.mean(y_true)))


class OwnShapes(keras.losses.Loss):
    """Keras leaves y_true of a Loss object as it is: it may be (B,)."""

    def call(self, y_true, y_pred):
        return ops.square(ops.squeeze(y_pred, -1) - y_true)


def either_loss(y_true, y_pred):
    if len(y_true.shape) == 2:
        y_pred = ops.squeeze(y_pred, -1)
        y_true = ops.squeeze(y_true, -1)
    return ops.mean(ops.square(y_true - y_pred))


def all_pairs_loss(y_true, y_pred):
    a = ops.reshape(y_pred, (-1, 1))
    b = ops.reshape(y_pred, (1, -1))
    return ops.mean(ops.square(a - b)) + ops.mean(ops.square(y_true - y_pred))
