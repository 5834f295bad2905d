"""Losses, metrics, steps and callbacks with nothing to complain about. `flatout check` must stay silent here."""

import functools
import math

import jax
import jax.numpy as jnp
import keras
import numpy as np
import tensorflow as tf
import torch
import torch.nn.functional as F
from keras import backend as K
from keras import ops

CLASS_WEIGHTS = np.array([1.0, 2.0, 0.5], "float32")
SMOOTH = 1e-6
LEVELS = [1.0, 0.5, 0.25]


def rmse_loss(y_true, y_pred):
    return ops.sqrt(ops.mean(ops.square(y_true - y_pred)))


def huber_loss(y_true, y_pred, delta=1.0):
    error = ops.abs(y_true - y_pred)
    return ops.mean(ops.where(error <= delta, 0.5 * ops.square(error), delta * error - 0.5 * delta**2))


def dice_coef(y_true, y_pred, smooth=SMOOTH):
    intersection = K.sum(K.flatten(y_true) * K.flatten(y_pred))
    return (2.0 * intersection + smooth) / (K.sum(y_true) + K.sum(y_pred) + smooth)


def dice_loss(y_true, y_pred):
    return 1.0 - dice_coef(y_true, y_pred)


def focal_loss(gamma=2.0, alpha=0.25):
    def loss(y_true, y_pred):
        y_pred = tf.clip_by_value(y_pred, 1e-7, 1.0 - 1e-7)
        weight = alpha * y_true * tf.pow(1.0 - y_pred, gamma)
        return -tf.reduce_mean(tf.reduce_sum(weight * tf.math.log(y_pred), axis=-1))

    return loss


def weighted_crossentropy(y_true, y_pred):
    weight = ops.take(CLASS_WEIGHTS, ops.cast(y_true, "int32"))
    return ops.mean(weight * keras.losses.sparse_categorical_crossentropy(y_true, y_pred))


def quantile_loss(y_true, y_pred):
    q = ops.convert_to_tensor([0.1, 0.5, 0.9])
    error = y_true - y_pred
    return ops.mean(ops.maximum(q * error, (q - 1.0) * error))


def masked_loss(y_true, y_pred):
    mask = tf.cast(tf.not_equal(y_true, -1.0), tf.float32)
    return tf.reduce_sum(mask * tf.square(y_true - y_pred)) / tf.maximum(tf.reduce_sum(mask), 1.0)


def contrastive_loss(y_true, y_pred, margin=1.0):
    return ops.mean(y_true * ops.square(y_pred) + (1 - y_true) * ops.square(ops.maximum(margin - y_pred, 0.0)))


def triplet_loss(y_true, y_pred, alpha=0.2):
    anchor, positive, negative = y_pred[:, :128], y_pred[:, 128:256], y_pred[:, 256:]
    near = K.sum(K.square(anchor - positive), axis=-1)
    far = K.sum(K.square(anchor - negative), axis=-1)
    return K.mean(K.maximum(near - far + alpha, 0.0))


def nt_xent_loss(y_true, y_pred, temperature=0.5):
    z = y_pred / ops.norm(y_pred, axis=-1, keepdims=True)
    similarity = ops.matmul(z, ops.transpose(z)) / temperature
    similarity = similarity - 1e9 * ops.eye(ops.shape(z)[0])
    return ops.mean(ops.logsumexp(similarity, axis=-1))


def gaussian_nll_loss(y_true, y_pred):
    mean, log_variance = y_pred[:, 0:1], y_pred[:, 1:2]
    return ops.mean(0.5 * (log_variance + ops.square(y_true - mean) * ops.exp(-log_variance)) + 0.5 * math.log(2 * math.pi))


def kl_divergence_loss(mean, log_variance):
    return -0.5 * ops.mean(1 + log_variance - ops.square(mean) - ops.exp(log_variance))


def cosine_loss(y_true, y_pred):
    return 1.0 - ops.mean(ops.sum(ops.normalize(y_true) * ops.normalize(y_pred), axis=-1))


def tversky_loss(y_true, y_pred, alpha=0.7, smooth=1.0):
    axes = (1, 2, 3)
    positive = ops.sum(y_true * y_pred, axis=axes)
    missed = ops.sum(y_true * (1 - y_pred), axis=axes)
    false = ops.sum((1 - y_true) * y_pred, axis=axes)
    return ops.mean(1 - (positive + smooth) / (positive + alpha * missed + (1 - alpha) * false + smooth))


def total_variation_loss(y_true, y_pred):
    across = ops.abs(y_pred[:, 1:, :] - y_pred[:, :-1, :])
    return ops.mean(ops.square(y_true - y_pred)) + 0.1 * ops.mean(across)


def deep_supervision_loss(y_true, y_pred):
    total = 0.0
    for weight, image in zip(LEVELS, y_pred):
        small = ops.image.resize(y_true, (image.shape[1], image.shape[2]))
        total = total + weight * ops.mean(ops.square(small - image))
    return total


def multi_scale_loss(y_true, y_pred):
    total = ops.mean(ops.abs(y_true - y_pred))
    for _ in range(3):
        y_pred = ops.average_pool(y_pred, 2)
    return total + ops.mean(ops.square(y_pred))


def sinkhorn_loss(y_true, y_pred, iterations=20):
    cost = ops.abs(y_true[:, :, None] - y_pred[:, None, :])
    kernel = ops.exp(-cost)
    u = ops.ones_like(y_true)
    for _ in range(iterations):
        v = 1.0 / (ops.sum(kernel * u[:, :, None], axis=1) + 1e-9)
        u = 1.0 / (ops.sum(kernel * v[:, None, :], axis=2) + 1e-9)
    return ops.mean(u[:, :, None] * kernel * v[:, None, :] * cost)


def scanned_loss(y_true, y_pred):
    def step(state, frame):
        state = ops.tanh(0.5 * state + frame)
        return state, state

    frames = ops.transpose(y_pred)
    _, states = ops.scan(step, ops.zeros_like(frames[0]), frames)
    return ops.mean(ops.square(ops.transpose(states) - y_true))


def vmapped_loss(y_true, y_pred):
    def one(t, p):
        return jnp.sum(jnp.square(t - p)) / (1.0 + jnp.sum(jnp.abs(t)))

    return jnp.mean(jax.vmap(one)(y_true, y_pred))


def safe_log_loss(y_true, y_pred):
    safe = ops.where(y_pred > 0, y_pred, 1.0)
    return -ops.mean(ops.where(y_pred > 0, y_true * ops.log(safe), 0.0))


def label_smoothing_loss(logits, targets, smoothing=0.1):
    log_probability = F.log_softmax(logits, dim=-1)
    nll = F.nll_loss(log_probability, targets)
    return (1.0 - smoothing) * nll - smoothing * log_probability.mean()


def spectral_loss(y_true, y_pred, sample_weight=None):
    error = ops.mean(ops.abs(ops.fft2((y_true, ops.zeros_like(y_true)))[0] - ops.fft2((y_pred, ops.zeros_like(y_pred)))[0]))
    if sample_weight is not None:
        error = error * ops.mean(sample_weight)
    return error


def ssim_loss(y_true, y_pred):
    return 1.0 - tf.reduce_mean(tf.image.ssim(y_true, y_pred, max_val=1.0))


def pairwise_ranking_loss(y_true, y_pred):
    difference = y_pred[:, :, None] - y_pred[:, None, :]
    wanted = ops.cast(y_true[:, :, None] > y_true[:, None, :], "float32")
    return ops.sum(wanted * ops.softplus(-difference)) / ops.maximum(ops.sum(wanted), 1.0)


def yolo_loss(y_true, y_pred):
    place = ops.sum(ops.square(y_true[..., 0:2] - y_pred[..., 0:2]), axis=-1)
    size = ops.sum(ops.square(ops.sqrt(y_true[..., 2:4] + 1e-6) - ops.sqrt(y_pred[..., 2:4] + 1e-6)), axis=-1)
    seen = keras.losses.binary_crossentropy(y_true[..., 4:5], y_pred[..., 4:5])
    return ops.mean(y_true[..., 4] * (place + size) + seen)


def reduced_loss(y_true, y_pred, reduction="mean"):
    error = ops.square(y_true - y_pred)
    if reduction == "mean":
        return ops.mean(error)
    if reduction == "sum":
        return ops.sum(error)
    raise ValueError(f"Unknown reduction. Received: {reduction}")


def static_shape_loss(y_true, y_pred):
    if not tf.is_tensor(y_pred) or not torch.is_floating_point(y_pred):
        y_pred = ops.convert_to_tensor(y_pred)
    if len(y_true.shape) == 1:
        y_true = ops.expand_dims(y_true, -1)
    pixels = np.prod(y_pred.shape[1:])
    return ops.sum(ops.square(y_true - y_pred)) / (pixels * math.sqrt(2.0))


def pinned_weights_loss(y_true, y_pred, weights=(0.2, 0.8)):
    return sum(weight * part for weight, part in zip(weights, (ops.mean(ops.abs(y_true - y_pred)), ops.max(y_pred))))


def r2_score(y_true, y_pred):
    residual = tf.reduce_sum(tf.square(y_true - y_pred))
    total = tf.reduce_sum(tf.square(y_true - tf.reduce_mean(y_true)))
    return 1.0 - residual / (total + K.epsilon())


@keras.saving.register_keras_serializable(package="clean")
class Combined(keras.losses.Loss):
    def __init__(self, parts, weights=None, name="combined", **kwargs):
        super().__init__(name=name, **kwargs)
        self.parts = parts
        self.weights = weights or [1.0] * len(parts)

    def call(self, y_true, y_pred):
        total = 0.0
        for part, weight in zip(self.parts, self.weights):
            total = total + weight * part(y_true, y_pred)
        return total

    def get_config(self):
        return {**super().get_config(), "parts": self.parts, "weights": self.weights}


class Focal(torch.nn.Module):
    def __init__(self, gamma=2.0):
        super().__init__()
        self.gamma = gamma

    def forward(self, output, target):
        cross = F.binary_cross_entropy_with_logits(output, target, reduction="none")
        return ((1 - torch.exp(-cross)) ** self.gamma * cross).mean()


class MeanError(keras.metrics.Metric):
    def __init__(self, name="mean_error", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        error = ops.abs(y_true - y_pred)
        if sample_weight is not None:
            error = error * sample_weight
        self.total.assign_add(ops.sum(error))
        self.count.assign_add(ops.cast(ops.size(error), "float32"))

    def result(self):
        return ops.divide_no_nan(self.total, self.count)

    def reset_state(self):
        self.total.assign(0.0)
        self.count.assign(0.0)


class Adversarial(keras.Model):
    def __init__(self, generator, critic):
        super().__init__()
        self.generator, self.critic = generator, critic
        self.seeds = keras.random.SeedGenerator(1)
        self.alpha = self.add_weight(shape=(), initializer="ones", trainable=False)
        self.tracker = keras.metrics.Mean(name="loss")

    def train_step(self, data):
        real, _ = data
        noise = keras.random.normal((ops.shape(real)[0], 8), seed=self.seeds)
        for _ in range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.critic(self.generator(noise)) - self.critic(real))
            gradients = tape.gradient(loss, self.critic.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.critic.trainable_variables))
        self.tracker.update_state(loss)
        return {metric.name: metric.result() for metric in self.metrics}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        scale = 1.0 + ops.abs(x["cost"])
        loss = self.alpha * ops.mean(scale * ops.square(y - y_pred))
        for extra in self.losses:
            loss = loss + extra
        return loss


class Report(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.last = float(logs["loss"])

    def on_epoch_end(self, epoch, logs=None):
        print(f"{epoch}: {logs['loss']:.3f}, {float(np.mean(self.model.get_weights()[0])):.3f}")
        if logs["loss"] < 0.01:
            self.model.stop_training = True


def get_loss(name, weight=1.0):
    if name == "mse":
        return keras.losses.MeanSquaredError()
    return functools.partial(huber_loss, delta=weight)


class SmoothL1(torch.nn.Module):
    def __init__(self, beta=1.0):
        super().__init__()
        self.beta = beta

    def forward(self, y_pred, y_true):
        error = torch.abs(y_pred - y_true)
        return torch.where(error < self.beta, 0.5 * error**2 / self.beta, error - 0.5 * self.beta).mean()


def ninth_loss(y_true, y_pred):
    beta = 1.0 / 9
    error = ops.abs(y_true - y_pred)
    return ops.mean(ops.where(error < beta, 0.5 * error * error / beta, error - 0.5 * beta))


class SumOfLosses(keras.losses.Loss):
    def __init__(self, losses, weights):
        super().__init__()
        self.losses, self.weights = losses, weights

    def call(self, y_true, y_pred):
        return sum(weight * one(y_true, y_pred) for weight, one in zip(self.weights, self.losses))


def hardest_loss(y_true, y_pred, share=0.25):
    error = ops.reshape(ops.square(y_true - y_pred), (-1,))
    return ops.mean(ops.top_k(error, k=max(1, int(share * error.shape[0])))[0])


def joined_text_loss(y_true, y_pred, unit):
    name = "_".join([unit, "loss"])
    return ops.mean(ops.square(y_true - y_pred), keepdims=name == "kept")


def plot_predictions(y_true, y_pred):
    for t, p in zip(y_true, y_pred):
        print(float(t), float(p))


def host_rmse(y_true, y_pred):
    return np.sqrt(np.mean((y_true - y_pred) ** 2))


if __name__ == "__main__":
    print(host_rmse(np.zeros(3), np.ones(3)))
