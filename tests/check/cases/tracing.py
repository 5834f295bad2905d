"""State, randomness and variables while tracing; repeated and misplaced work."""

import random
import time

import jax
import keras
import numpy as np
import pandas as pd
import tensorflow as tf
import torch
from keras import ops

ALPHA = 1.0
STATE = {"epoch": 0}
SETTINGS = {"margin": 0.5}
SEEN = [0]
GATE = keras.Variable(1.0, trainable=False)
FIXED = keras.Variable(2.0, trainable=False)
RNG = np.random.default_rng(0)
BATCHES = iter(np.zeros((10, 4)))
TABLE = pd.DataFrame({"key": [0, 1], "value": [1.0, 2.0]})


def annealed_loss(y_true, y_pred):
    return ALPHA * ops.mean(ops.square(y_true - y_pred))  # expect: FO303 info


def epoch_loss(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred)) * STATE["epoch"]  # expect: FO303 info


def settings_loss(y_true, y_pred):
    return ops.mean(ops.maximum(SETTINGS["margin"] - y_true * y_pred, 0.0))


def counter_loss(y_true, y_pred):
    SEEN[0] += 1  # expect: FO303
    return ops.mean(ops.square(y_true - y_pred)) / SEEN[0]


def next_loss(y_true, y_pred):
    extra = next(BATCHES)  # expect: FO303
    return ops.mean(extra * ops.square(y_true - y_pred))


def clock_loss(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred)) * (time.time() % 2)  # expect: FO303 info


def gated_loss(y_true, y_pred):
    return GATE * ops.mean(ops.square(y_true - y_pred))  # expect: FO305 info


def fixed_loss(y_true, y_pred):
    return FIXED * ops.mean(ops.square(y_true - y_pred))  # expect: FO305 info


def make_counting():
    calls = 0

    def counting_loss(y_true, y_pred):
        nonlocal calls
        calls += 1  # expect: FO303
        return ops.mean(ops.square(y_true - y_pred)) / calls

    return counting_loss


class Held(keras.losses.Loss):
    def __init__(self):
        super().__init__()
        self.step = 0
        self.beta = 0.1
        self.gate = keras.Variable(1.0)

    def call(self, y_true, y_pred):
        self.step += 1  # expect: FO303
        loss = self.beta * ops.mean(ops.square(y_true - y_pred), axis=-1)  # expect: FO303 info
        return loss * self.gate  # expect: FO305 info


class Anneal(keras.callbacks.Callback):
    def __init__(self, held):
        super().__init__()
        self.held = held

    def on_epoch_end(self, epoch, logs=None):
        global ALPHA
        ALPHA = ALPHA * 0.9
        STATE["epoch"] = epoch
        GATE.assign(epoch)
        self.held.gate.assign(0.0)
        self.held.beta = 0.5


def noisy_loss(y_true, y_pred):
    noise = np.random.normal(size=4)  # expect: FO304 info
    drop = random.random() < 0.5  # expect: FO304 info
    jitter = RNG.uniform()  # expect: FO304 info
    return ops.mean(ops.square(y_true - y_pred + noise)) * jitter * drop


def seeded_loss(y_true, y_pred):
    noise = keras.random.normal(ops.shape(y_pred), seed=3)
    return ops.mean(ops.square(y_true - y_pred + noise))


def variable_loss(y_true, y_pred):
    weight = tf.Variable(1.0)  # expect: FO302
    return weight * tf.reduce_mean(tf.square(y_true - y_pred))


def parameter_loss(pred, target):
    scale = torch.nn.Parameter(torch.ones(()))  # expect: FO302
    return scale * torch.mean((pred - target) ** 2)


def layer_loss(y_true, y_pred):
    features = keras.layers.Dense(4)(y_pred)  # expect: FO302
    return ops.mean(ops.square(features - y_true))


def read_loss(y_true, y_pred):
    weights = np.loadtxt("weights.txt")  # expect: FO206, FO301
    return ops.mean(weights * ops.square(y_true - y_pred))


def rebuilt_loss(y_true, y_pred):
    values = TABLE.set_index("key")["value"].to_numpy()  # expect: FO301
    return ops.mean(ops.take(values, ops.cast(y_true, "int32")) * y_pred)


def perceptual_loss(y_true, y_pred):
    vgg = keras.applications.VGG16(include_top=False)  # expect: FO301
    return ops.mean(ops.square(vgg(y_true) - vgg(y_pred)))


def repeated_loss(y_true, y_pred):
    near = ops.exp(-ops.sum(ops.square(y_pred[:, None] - y_pred[None, :]), axis=-1))
    far = ops.mean(ops.exp(-ops.sum(ops.square(y_pred[:, None] - y_pred[None, :]), axis=-1)))  # expect: FO306
    return ops.mean(near) - far


def gram(x):
    return torch.matmul(torch.exp(x), torch.transpose(torch.exp(x), 0, 1))


def gram_loss(pred, target):
    top = torch.mean(torch.abs(gram(pred) - gram(target)))
    return top + torch.max(torch.abs(gram(pred)))  # expect: FO306


def branches_are_no_repetition_loss(y_true, y_pred, mode="a"):
    if mode == "a":
        return ops.mean(ops.exp(ops.sum(ops.square(y_true - y_pred), axis=-1)))
    return ops.max(ops.exp(ops.sum(ops.square(y_true - y_pred), axis=-1)))


def jitted_loss(y_true, y_pred):
    return jax.jit(lambda a, b: ops.mean(ops.square(a - b)))(y_true, y_pred)  # expect: FO308


def tf_function_loss(y_true, y_pred):
    inner = tf.function(lambda a: tf.reduce_mean(a))  # expect: FO308
    return inner(tf.square(y_true - y_pred))


def decorated_loss(y_true, y_pred):
    @tf.function  # expect: FO308
    def inner(a, b):
        return tf.reduce_mean(tf.square(a - b))

    return inner(y_true, y_pred)
