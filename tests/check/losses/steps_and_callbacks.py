"""Steps, metrics and callbacks: their codes are reported; nothing here is run."""

import subprocess

import keras
import numpy as np
import pandas as pd
import tensorflow as tf
import torch
from keras import ops
from scipy.stats import spearmanr
from sklearn.metrics import confusion_matrix, f1_score

WEIGHT = 1.0
IDS = pd.DataFrame({"id": [1, 2], "w": [0.1, 0.2]})
ALPHA = keras.Variable(1.0)


class LoopMetric(keras.metrics.Metric):  # reported: FO101
    def __init__(self, **kw):
        super().__init__(**kw)
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        for i in range(y_true.shape[0]):
            self.total.assign_add(ops.sum(ops.abs(y_true[i] - y_pred[i])))

    def result(self):
        return self.total


class NumpyMetric(keras.metrics.Metric):  # reported: FO201|FO205
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value = np.corrcoef(y_true.numpy(), y_pred.numpy())[0, 1]

    def result(self):
        return self.value


class F1Metric(keras.metrics.Metric):  # reported: FO205
    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = ops.convert_to_numpy(ops.argmax(y_pred, -1))
        self.f1.assign(f1_score(ops.convert_to_numpy(y_true), labels, average="macro"))

    def result(self):
        return self.f1


class NumpyStep(keras.Model):  # reported: FO201
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables, strict=False))
        self.history_of_losses.append(loss.numpy())
        return {"loss": loss}


class PrintStep(keras.Model):  # reported: FO203
    def train_step(self, data):
        x, y = data
        y_pred = self(x, training=True)
        loss = self.compute_loss(x=x, y=y, y_pred=y_pred)
        loss.backward()
        print(f"loss {loss.item():.3f}")
        return {"loss": loss}


class BranchStep(keras.Model):  # reported: FO202
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        base = ops.mean(ops.square(y - y_pred))
        if base > 1.0:
            base = ops.sqrt(base)
        return base


class LoopComputeLoss(keras.Model):  # reported: FO101
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return sum(ops.mean(ops.square(y[i] - y_pred[i])) for i in range(y.shape[0])) / y.shape[0]


class TorchStep(keras.Model):  # reported: FO101 FO201
    def train_step(self, data):
        x, y = data
        y_pred = self(x, training=True)
        total = 0.0
        for i in range(len(y)):
            total = total + torch.mean((y_pred[i] - y[i]) ** 2)
        total.backward()
        self.optimizer.apply([v.value.grad for v in self.trainable_weights])
        return {"loss": total.item()}


def lr_table_loss(y_true, y_pred):  # reported: FO305
    return ALPHA * ops.mean(ops.square(y_true - y_pred))


def stale_global(y_true, y_pred):  # reported: FO303
    return WEIGHT * ops.mean(ops.square(y_true - y_pred))


class Anneal(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        global WEIGHT
        WEIGHT = 0.9 * WEIGHT


def np_random_loss(y_true, y_pred):  # reported: FO304
    noise = np.random.uniform(size=y_pred.shape)
    return ops.mean(ops.square(y_true - y_pred + noise))


def open_file_loss(y_true, y_pred):  # reported: FO206 FO301
    import json

    with open("weights.json") as file:  # noqa: PTH123
        weights = json.load(file)
    return weights["a"] * ops.mean(ops.square(y_true - y_pred))


def layer_in_loss(y_true, y_pred):  # reported: FO301|FO302
    vgg = keras.applications.VGG16(include_top=False)
    return ops.mean(ops.square(vgg(y_true) - vgg(y_pred)))


def merge_loss(y_true, y_pred):  # reported: FO402 FO205 FO405
    ids = pd.DataFrame({"id": ops.convert_to_numpy(y_true[:, 1])})
    w = ids.merge(IDS, on="id", how="left")["w"].to_numpy()
    return ops.mean(w * ops.square(y_true[:, 0] - y_pred[:, 0]))


def groupby_loss(y_true, y_pred):  # reported: FO406 FO205
    frame = pd.DataFrame({"g": ops.convert_to_numpy(y_true), "p": ops.convert_to_numpy(y_pred)})
    means = frame.groupby("g")["p"].transform("mean").to_numpy()
    return ops.mean(ops.square(y_pred - ops.convert_to_tensor(means)))


def spearman_metric(y_true, y_pred):  # reported: FO205
    return spearmanr(ops.convert_to_numpy(y_true), ops.convert_to_numpy(y_pred)).correlation


def confusion_metric(y_true, y_pred):  # reported: FO205
    m = confusion_matrix(np.array(y_true), np.argmax(np.array(y_pred), axis=1))
    return np.diag(m).sum() / m.sum()


def rounded_loss(y_true, y_pred):  # reported: FO501
    labels = ops.argmax(y_pred, axis=-1)
    return ops.mean(ops.cast(ops.not_equal(ops.cast(y_true, "int64"), labels), "float32"))


def threshold_loss(y_true, y_pred):  # reported: FO501
    hard = ops.cast(y_pred > 0.5, "float32")
    return 1.0 - ops.mean(hard * y_true)


def sqrt_pairs_loss(y_true, y_pred):  # reported: FO502
    d = ops.sqrt(ops.sum(ops.square(y_pred[:, None] - y_pred[None]), axis=-1))
    return ops.mean(d)


def callback_step(y_true, y_pred):  # reported: FO204
    import jax

    out = jax.pure_callback(lambda a: np.sort(a), jax.ShapeDtypeStruct(y_pred.shape, "float32"), y_pred)
    return ops.mean(out)


class SlowCallback(keras.callbacks.Callback):  # reported: FO201 FO205
    def on_train_batch_end(self, batch, logs=None):
        guess = self.model.predict(self.x_val, verbose=0)
        logs["f1"] = f1_score(self.y_val, np.argmax(guess, 1))


def variable_loss(y_true, y_pred):  # reported: FO302
    return keras.Variable(2.0) * ops.mean(ops.abs(y_true - y_pred))


def packed_loss(y_true, y_pred):  # reported: FO405
    target, weight = y_true[:, :1], y_true[:, 1:]
    return ops.mean(weight * ops.square(target - y_pred))


def dict_items_loss(y_true, y_pred):  # reported: FO104
    total = 0.0
    for c, weight in {0: 0.5, 1: 2.0}.items():
        total -= weight * tf.reduce_sum(tf.cast(tf.equal(y_true, c), tf.float32) * y_pred[:, c])
    return total


def distances_twice_loss(y_true, y_pred):  # reported: FO306
    same = y_true[:, None] == y_true[None, :]
    near = (torch.cdist(y_pred, y_pred) * same).sum()
    return near / ((torch.cdist(y_pred, y_pred) * ~same).sum() + 1.0)


def program_loss(y_true, y_pred):  # reported: FO206 FO501
    np.save("prediction.npy", ops.convert_to_numpy(y_pred))
    said = subprocess.run(["./score", "prediction.npy"], capture_output=True, text=True, check=True)
    return ops.convert_to_tensor(float(said.stdout))


model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", loss=packed_loss, metrics=["mae"])
model2 = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model2.compile("sgd", loss=stale_global)
model2.fit(np.zeros((4, 2)), np.zeros((4, 1)), callbacks=[Anneal()])
