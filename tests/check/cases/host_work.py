"""Values read on the host, branches, log lines, callbacks, libraries, files."""

import json
import logging
import os
import subprocess

import jax
import keras
import keras.backend as K
import numpy as np
import pandas as pd
import scipy.stats
import tensorflow as tf
import torch
from keras import ops
from scipy.ndimage import distance_transform_edt
from sklearn import metrics as skm
from sklearn.metrics import f1_score

logger = logging.getLogger(__name__)


def scaled_loss(y_true, y_pred):
    error = ops.abs(y_true - y_pred)
    return ops.mean(error) / max(1.0, float(ops.max(error)))  # expect: FO201


def item_loss(pred, target):
    scale = target.abs().max().item()  # expect: FO201
    return ((pred - target) / scale).pow(2).mean()


def detached_loss(pred, target):
    weights = target.detach().cpu().numpy() > 0.5  # expect: FO201
    return torch.mean(torch.as_tensor(weights, dtype=torch.float32) * (pred - target) ** 2)


def k_eval_loss(y_true, y_pred):
    scale = K.get_value(K.max(y_true))  # expect: FO201
    return K.mean(K.square(y_true - y_pred)) / scale


def branch_loss(y_true, y_pred):
    error = tf.reduce_mean(tf.abs(y_true - y_pred))
    if error > 1.0:  # expect: FO202
        return tf.square(error)
    return error


def ternary_loss(y_true, y_pred):
    loss = ops.mean(ops.square(y_true - y_pred))
    return loss if loss < 10.0 else ops.sqrt(loss)  # expect: FO202


def and_loss(y_true, y_pred):
    error = ops.mean(y_pred - y_true)
    if error > 0 and ops.any(y_true > 0):  # expect: FO202
        error = error * 2.0
    return ops.abs(error)


def while_loss(y_true, y_pred):
    scale = ops.max(ops.abs(y_pred))
    while scale > 1.0:  # expect: FO202
        scale = scale / 2.0
    return ops.mean(ops.square(y_true - y_pred)) * scale


def builtin_max_loss(y_true, y_pred):
    return max(0.0, ops.mean(y_true - y_pred))  # expect: FO202


def any_nan(values):
    return bool(torch.isnan(values).any())  # expect: FO201


def helper_branch_loss(pred, target):
    loss = torch.mean((pred - target) ** 2)
    if any_nan(loss):  # expect: FO202
        return torch.zeros(())
    return loss


def shapes_are_static_loss(y_true, y_pred, axis=-1, from_logits=False):
    if len(y_pred.shape) > 2 or y_true.dtype != y_pred.dtype:
        y_pred = ops.reshape(y_pred, (ops.shape(y_pred)[0], -1))
    if from_logits:
        y_pred = ops.sigmoid(y_pred)
    assert y_pred.shape[-1] == y_true.shape[-1]
    return ops.mean(ops.square(y_true - y_pred), axis=axis)


def printing_loss(y_true, y_pred):
    loss = ops.mean(ops.square(y_true - y_pred))
    print("loss is", loss)  # expect: FO203
    logging.info("max %s", ops.max(y_pred))  # expect: FO203
    logger.debug(f"{float(loss):.3f}")  # expect: FO201, FO203
    return loss


def asserting_loss(y_true, y_pred):
    assert not ops.any(ops.isnan(y_pred)), "NaN"  # expect: FO203
    return ops.mean(ops.square(y_true - y_pred))


def tf_print_loss(y_true, y_pred):
    tf.print("mean", tf.reduce_mean(y_pred))  # expect: FO203
    return tf.reduce_mean(tf.square(y_true - y_pred))


def jax_debug_loss(y_true, y_pred):
    jax.debug.print("{}", y_pred)  # expect: FO203
    return ops.mean(ops.square(y_true - y_pred))


def f1_metric(y_true, y_pred):
    def host(t, p):
        return np.float32(f1_score(t.numpy(), p.numpy() > 0.5))  # expect: FO205, FO205

    return tf.py_function(host, [y_true, y_pred], tf.float32)  # expect: FO204


def numpy_function_metric(y_true, y_pred):
    return tf.numpy_function(skm.roc_auc_score, [y_true, y_pred], tf.double)  # expect: FO204, FO205


def pure_callback_metric(y_true, y_pred):
    shape = jax.ShapeDtypeStruct((), "float32")
    return jax.pure_callback(lambda t, p: np.float32(np.median(t - p)), shape, y_true, y_pred)  # expect: FO204, FO205, FO205


def numpy_loss(y_true, y_pred):
    return np.mean(np.abs(y_true - y_pred))  # expect: FO205, FO205, FO501


def spearman_metric(y_true, y_pred):
    return scipy.stats.spearmanr(ops.convert_to_numpy(y_true), ops.convert_to_numpy(y_pred))[0]  # expect: FO201, FO201, FO205


def boundary_loss(y_true, y_pred):
    distance = distance_transform_edt(ops.convert_to_numpy(y_true))  # expect: FO201, FO205, FO307 info
    return ops.mean(ops.convert_to_tensor(distance) * y_pred)


class Collected(keras.metrics.Metric):
    def __init__(self, name="collected"):
        super().__init__(name=name)
        self.seen = []

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.seen.append(np.asarray(y_pred))  # expect: FO205

    def result(self):
        return skm.average_precision_score(self.seen, self.seen)  # expect: FO205


def json_loss(y_true, y_pred):
    with open("weights.json") as file:  # expect: FO206
        weights = json.load(file)  # expect: FO206, FO301
    return ops.mean(weights["all"] * ops.square(y_true - y_pred))


def external_loss(y_true, y_pred):
    np.save("pred.npy", y_pred)  # expect: FO205, FO206
    subprocess.run(["score", "pred.npy"], check=True)  # expect: FO206
    return ops.convert_to_tensor(float(os.popen("cat score.txt").read()))  # expect: FO206, FO501


class PerBatch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pd.DataFrame([logs]).to_csv("log.csv")  # expect: FO206
        self.weights = self.model.get_weights()  # expect: FO201

    def on_epoch_end(self, epoch, logs=None):
        print(epoch, float(logs["loss"]))
        np.save("weights.npy", self.model.get_weights()[0])


class AnyArguments(keras.Model):
    def train_step(self, *args):
        logs = super().train_step(*args)
        x, y = args[-1]
        self.last = y.detach().cpu().numpy()  # expect: FO201
        if os.path.exists("stop"):  # expect: FO206
            self.stop_training = True
        return logs
