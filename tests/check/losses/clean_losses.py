"""Losses that nothing is to be said of."""

import importlib

import keras
import numpy as np
from keras import ops

WEIGHTS = np.array([1.0, 0.5, 2.0], "float32")
TABLE = ops.convert_to_tensor(WEIGHTS)
SCALES = (1, 2, 4)
ALPHA = np.array([0.25, 0.5, 0.25], "float32")
GAMMA = 2.0
LEVELS = (0.1, 0.5, 0.9)


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


def wasserstein_loss(y_true, y_pred):
    return ops.mean(ops.abs(ops.cumsum(y_true, axis=-1) - ops.cumsum(y_pred, axis=-1)))


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


def laplacian(y_true, y_pred, levels=3):
    loss = 0.0
    for i in range(levels):
        loss += (2.0**-i) * ops.mean(ops.abs(y_true - y_pred))
        y_true, y_pred = (ops.average_pool(z, 2, 2) for z in (y_true, y_pred))
    return loss


class Center(keras.losses.Loss):
    def __init__(self, centers):
        super().__init__()
        self.centers = ops.convert_to_tensor(centers)

    def call(self, y_true, y_pred):
        own = ops.take(self.centers, ops.cast(ops.reshape(y_true, (-1,)), "int32"), axis=0)
        return ops.sum(ops.square(y_pred - own), axis=-1)


def make_quantile_loss(levels=(0.1, 0.5, 0.9)):
    grid = ops.convert_to_tensor(levels)

    def quantile_loss(y_true, y_pred):
        e = y_true - y_pred
        return ops.mean(ops.maximum(grid * e, (grid - 1.0) * e))

    return quantile_loss


def pairwise_loss(y_true, y_pred):
    d = ops.sum(ops.square(y_pred[:, None] - y_pred[None]), axis=-1)
    same = ops.cast(y_true[:, None] == y_true[None], d.dtype)
    return ops.mean(same * d + (1.0 - same) * ops.relu(1.0 - ops.sqrt(d + 1e-9)))


def regularised_loss(y_true, y_pred, weights=(1.0, 0.1)):
    mse, tv = weights
    return mse * ops.mean(ops.square(y_true - y_pred)) + tv * ops.mean(ops.abs(y_pred[:, 1:] - y_pred[:, :-1]))


class Tversky(keras.losses.Loss):
    def __init__(self, alpha=0.3, smooth=1.0, **kwargs):
        super().__init__(**kwargs)
        self.alpha, self.smooth = alpha, smooth

    def call(self, y_true, y_pred):
        axes = tuple(range(1, len(y_pred.shape)))
        tp = ops.sum(y_true * y_pred, axis=axes)
        fn = ops.sum(y_true * (1 - y_pred), axis=axes)
        fp = ops.sum((1 - y_true) * y_pred, axis=axes)
        return 1 - (tp + self.smooth) / (tp + self.alpha * fp + (1 - self.alpha) * fn + self.smooth)

    def get_config(self):
        return {**super().get_config(), "alpha": self.alpha, "smooth": self.smooth}


def focal(y_true, y_pred):
    p = ops.clip(y_pred, 1e-7, 1 - 1e-7)
    alpha = ops.convert_to_tensor(ALPHA)
    return -ops.mean(ops.sum(alpha * y_true * (1 - p) ** GAMMA * ops.log(p), axis=-1))


def static_levels(y_true, y_pred):
    losses = []
    for k, q in enumerate(LEVELS):
        e = y_true - y_pred[:, k : k + 1]
        losses.append(ops.mean(ops.maximum(q * e, (q - 1) * e)))
    return ops.mean(ops.stack(losses))


def shape_checks(y_true, y_pred):
    if y_true.shape != y_pred.shape:
        raise ValueError(f"shapes differ: {y_true.shape} and {y_pred.shape}")
    if len(y_pred.shape) > 2:
        y_pred = ops.reshape(y_pred, (ops.shape(y_pred)[0], -1))
        y_true = ops.reshape(y_true, (ops.shape(y_true)[0], -1))
    return ops.mean(ops.abs(y_true - y_pred), axis=-1)


def vmapped(y_true, y_pred):
    return ops.mean(ops.vectorized_map(lambda z: ops.sum(ops.square(z[0] - z[1])), (y_true, y_pred)))


def scan_loss(y_true, y_pred):
    def step(carry, x):
        carry = 0.9 * carry + 0.1 * x
        return carry, carry

    _, smooth = ops.scan(step, ops.zeros_like(y_pred[:, 0]), ops.transpose(y_pred))
    return ops.mean(ops.square(ops.transpose(smooth) - y_true))


def pyramids(y_true, y_pred):
    loss = 0.0
    for level in range(3):
        loss = loss + ops.mean(ops.abs(y_true - y_pred)) / 2**level
        y_true = ops.average_pool(y_true, 2)
        y_pred = ops.average_pool(y_pred, 2)
    return loss


def wing(y_true, y_pred, w=10.0, eps=2.0):
    c = w - w * np.log(1 + w / eps)
    e = ops.abs(y_true - y_pred)
    return ops.mean(ops.where(e < w, w * ops.log(1 + e / eps), e - c))


class Quantile(keras.losses.Loss):
    def __init__(self, q=0.9, **kwargs):
        super().__init__(**kwargs)
        self.q = float(q)

    def call(self, y_true, y_pred):
        e = y_true - y_pred
        return ops.mean(ops.maximum(self.q * e, (self.q - 1) * e), axis=-1)

    def get_config(self):
        return {**super().get_config(), "q": self.q}


class Perceptual(keras.losses.Loss):
    def __init__(self, layers=("block1_conv2",)):
        super().__init__()
        vgg = keras.applications.VGG16(include_top=False)
        self.net = keras.Model(vgg.input, [vgg.get_layer(n).output for n in layers])

    def call(self, y_true, y_pred):
        total = 0.0
        for a, b in zip(self.net(y_true), self.net(y_pred), strict=False):
            total += ops.mean(ops.square(a - b))
        return total


def weights_list(y_true, y_pred):
    weights = ops.convert_to_tensor([1.0, 2.0, 3.0])
    return ops.mean(ops.sum(weights * ops.square(y_true - y_pred), axis=-1))


def kl(y_true, y_pred):
    mean, logvar = y_pred[:, :2], y_pred[:, 2:]
    return -0.5 * ops.mean(1 + logvar - ops.square(mean) - ops.exp(logvar))


def combined(*losses):
    def total(y_true, y_pred):
        return sum(loss(y_true, y_pred) for loss in losses)

    return total


both_loss = combined(focal, wing)


backend = importlib.import_module("keras.ops")
scorer = make_scorer()  # noqa: F821


def by_another_name_loss(y_true, y_pred):
    return backend.mean(backend.where(y_true > 0, y_pred, backend.square(y_pred)))


def of_an_object_loss(y_true, y_pred):
    return -ops.mean(scorer.log_prob(y_pred))


def starred_loss(y_true, y_pred):
    parts = [ops.mean(ops.square(y_true - y_pred)), ops.mean(ops.abs(y_true - y_pred))]
    for weight in (0.1, 0.2):
        parts.append(weight * ops.mean(y_pred))
    return ops.add(*parts)


def by_keywords_loss(y_true, y_pred):
    given = {"target": y_true, "output": y_pred}
    return ops.mean(ops.binary_crossentropy(**given))


def nothing_to_learn_loss(y_true, y_pred):
    return ops.zeros((1,))


def codebook_loss(y_true, y_pred):
    nearest = ops.take(WEIGHTS, ops.cast(y_true[:, 0], "int32"), axis=0)
    return ops.mean(ops.square(y_pred - nearest))


def smape(y_true, y_pred):
    keep = y_true != 0
    return np.mean(np.abs(y_true[keep] - y_pred[keep]) / y_true[keep])


def report(y, guess):
    print(smape(y, guess))
