"""Further losses, steps and callbacks that nothing is to be said of."""

import keras
import numpy as np
import tensorflow as tf
import torch
import torch.nn.functional as F
from keras import ops

GAMMA = 2.0
ALPHA = np.array([0.25, 0.5, 0.25], "float32")
LEVELS = (0.1, 0.5, 0.9)
NAMES = ["a", "b"]


def focal(y_true, y_pred):
    p = ops.clip(y_pred, 1e-7, 1 - 1e-7)
    alpha = ops.convert_to_tensor(ALPHA)
    return -ops.mean(ops.sum(alpha * y_true * (1 - p) ** GAMMA * ops.log(p), axis=-1))


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


def static_levels(y_true, y_pred):
    losses = []
    for k, q in enumerate(LEVELS):
        e = y_true - y_pred[:, k : k + 1]
        losses.append(ops.mean(ops.maximum(q * e, (q - 1) * e)))
    return ops.mean(ops.stack(losses))


def dict_outputs(y_true, y_pred):
    total = 0.0
    for name in NAMES:
        total += keras.losses.mean_squared_error(y_true[name], y_pred[name])
    return total


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


class Cov(keras.metrics.Metric):
    def __init__(self, n=3, **kw):
        super().__init__(**kw)
        self.matrix = self.add_weight(shape=(n, n), initializer="zeros", name="m")

    def update_state(self, y_true, y_pred, sample_weight=None):
        t = ops.one_hot(ops.cast(y_true, "int32"), 3)
        p = ops.one_hot(ops.argmax(y_pred, -1), 3)
        self.matrix.assign_add(ops.matmul(ops.transpose(t), p))

    def result(self):
        return ops.trace(self.matrix) / ops.maximum(ops.sum(self.matrix), 1.0)


class GAN(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=y_pred)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables, strict=False))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}


class TorchTrain(keras.Model):
    def train_step(self, data):
        x, y = data
        self.zero_grad()
        y_pred = self(x, training=True)
        loss = self.compute_loss(x=x, y=y, y_pred=y_pred)
        loss.backward()
        gradients = [v.value.grad for v in self.trainable_weights]
        with torch.no_grad():
            self.optimizer.apply(gradients, self.trainable_weights)
        return {m.name: m.result() for m in self.metrics}


class EpochF1(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        guess = self.model.predict(self.x, verbose=0).argmax(1)
        print("accuracy", (guess == self.y).mean())


def wing(y_true, y_pred, w=10.0, eps=2.0):
    c = w - w * np.log(1 + w / eps)
    e = ops.abs(y_true - y_pred)
    return ops.mean(ops.where(e < w, w * ops.log(1 + e / eps), e - c))


def ssim(y_true, y_pred):
    return 1 - tf.reduce_mean(tf.image.ssim(y_true, y_pred, 1.0))


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


def prepare(data):
    rows = []
    for row in data:
        rows.append(float(row[0]) * 2)
    return np.array(rows)
