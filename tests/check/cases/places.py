"""Where losses live: methods, partials, dicts, decorators, factories, modules under other names."""

import functools
from dataclasses import dataclass
from typing import Callable

import flatout
import keras
import keras.ops as kops
import numpy as np
import tensorflow as tf
import tensorflow.keras.backend as B
import torch as th
from tensorflow import keras as tfk

COUNT = {"n": 0}
TABLE = {0: 1.0}


class Trainer:
    def __init__(self, model):
        self.model = model
        self.step = 0

    def build(self):
        self.model.compile(loss=self.rows, metrics=[Trainer.worst])

    def rows(self, y_true, y_pred):
        return sum(keras.ops.mean(keras.ops.abs(t - p)) for t, p in zip(y_true, y_pred))  # expect: FO101

    @staticmethod
    def worst(y_true, y_pred):
        return float(keras.ops.max(keras.ops.abs(y_true - y_pred)))  # expect: FO201


def scaled(y_true, y_pred, scale):
    if kops.max(y_true) > scale:  # expect: FO202
        return kops.mean(kops.square(y_true - y_pred))
    return kops.mean(kops.abs(y_true - y_pred))


def heads(y_true, y_pred):
    print("heads")  # expect: FO203
    return B.mean(B.square(y_true - y_pred))


def compiled(model):
    model.compile(
        loss={"a": functools.partial(scaled, scale=2.0), "b": heads, "c": lambda u, v: B.mean(u[v > 0])},  # expect: FO108
        metrics={"a": [tfk.metrics.MeanMetricWrapper(fn=lambda u, v: u.numpy().mean())]},  # expect: FO201
    )


@tfk.utils.register_keras_serializable()
class Registered(tfk.losses.Loss):
    def call(self, y_true, y_pred):
        weights = tf.constant([TABLE[int(k)] for k in y_true])  # expect: FO101, FO201, FO401
        return weights * tf.reduce_mean(tf.square(y_true - y_pred), axis=-1)


class Derived(Registered):
    def call(self, y_true, y_pred):
        base = super().call(y_true, y_pred)
        return base + self.extra(y_pred)

    def extra(self, values):
        return tf.add_n([tf.reduce_sum(values[:, t]) for t in range(values.shape[1])])  # expect: FO102


@flatout.loss
def with_inputs(y_true, y_pred, x):
    cost = [TABLE.get(int(k), 0.0) for k in x["id"]]  # expect: FO101, FO201, FO401
    return kops.mean(kops.array(cost) * kops.square(y_true - y_pred))


@tf.function
def traced_loss(labels, predictions):
    COUNT["n"] += 1  # expect: FO303
    return tf.reduce_mean(tf.abs(labels - predictions))


@dataclass
class Weighted:
    weight: float = 1.0

    def __call__(self, y_true, y_pred):
        if th.isnan(y_pred).any():  # expect: FO202
            return th.zeros(())
        return self.weight * th.mean((y_true - y_pred) ** 2)


def factory(kind: str) -> Callable:
    if kind == "rows":

        def rows_loss(y_true, y_pred):
            return kops.stack([kops.max(y_pred[i] - y_true[i]) for i in range(len(y_true))])  # expect: FO101

        return rows_loss
    return lambda y_true, y_pred: np.mean(y_true - y_pred)  # expect: FO205


class Outer:
    class InnerLoss(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return kops.mean(y_pred) * y_true.numpy().sum()  # expect: FO201


class Custom(tfk.Model):
    @tf.function
    def train_step(self, data):
        (x, y), _ = data, None
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        print("loss", loss)  # expect: FO203
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables))
        return {"loss": float(loss)}  # expect: FO201

    def test_step(self, data):
        x, y = data
        y_pred = self(x)
        hits = 0
        for i in range(x.shape[0]):  # expect: FO101
            if y_pred[i] > 0.5:  # expect: FO202
                hits += 1
        return {"hits": hits}


def async_style(y_true, y_pred, *, margin=1.0, **unused):
    total = kops.zeros(())
    for index, (truth, guess) in enumerate(zip(y_true, y_pred)):  # expect: FO101
        total += kops.maximum(margin - truth * guess, 0.0)
    return total


def walrus_loss(y_true, y_pred):
    if (n := int(kops.sum(y_true))) > 0:  # expect: FO201, FO202
        return kops.sum(y_pred) / n
    return kops.sum(y_pred)


def try_loss(y_true, y_pred):
    try:
        return kops.mean(y_pred) * y_true.numpy()[0]  # expect: FO201
    except AttributeError:
        return kops.mean(y_pred)


def match_loss(y_true, y_pred, mode="a"):
    match mode:
        case "a":
            return kops.mean(y_pred[y_true > 0])  # expect: FO108
        case _:
            return kops.mean(y_pred)
