"""Lists, dicts and objects of the call that gather the parts of a loss: nothing to say."""

import keras
import numpy as np
import torch
from keras import ops

SCALES = (1.0, 0.5)


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


def collected_loss(y_true, y_pred):
    terms = Terms()
    terms.add(ops.mean(ops.square(y_true - y_pred)))
    terms.add(ops.mean(ops.abs(y_true - y_pred)))
    return terms.mean()


def begun_list_loss(y_true, y_pred):
    parts = [ops.mean(ops.square(y_true - y_pred))]
    if SCALES[0] > 0:
        parts.append(SCALES[1] * ops.mean(ops.abs(y_true - y_pred)))
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


class Wrapped(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        losses = [super().compute_loss(x, y, y_pred, sample_weight)]
        for layer in self.layers:
            if hasattr(layer, "kernel"):
                losses.append(1e-4 * ops.sum(ops.square(layer.kernel)))
        return sum(losses)


class EpochLog(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.history_of = {}

    def on_epoch_end(self, epoch, logs=None):
        for name, value in (logs or {}).items():
            self.history_of.setdefault(name, []).append(float(value))


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
