"""Loops over the samples, in the spellings that people use."""

import keras
import keras.backend as K
import numpy as np
import tensorflow as tf
import torch
from keras import ops


def loss_while(y_true, y_pred):
    i, total = 0, 0.0
    while i < y_true.shape[0]:  # expect: FO101
        total += ops.mean(ops.abs(y_true[i] - y_pred[i]))
        i += 1
    return total / i


def loss_comprehension(y_true, y_pred):
    return ops.mean(ops.stack([ops.sum(ops.square(t - p)) for t, p in zip(y_true, y_pred)]))  # expect: FO101


def loss_generator(labels, logits):
    return sum(ops.max(ops.abs(labels[k] - logits[k])) for k in range(len(labels))) / len(labels)  # expect: FO101


def tf_loss(y_true, y_pred):
    total = tf.constant(0.0)
    for i in range(tf.shape(y_pred)[0]):  # expect: FO101
        total = total + tf.reduce_sum(tf.abs(y_true[i] - y_pred[i]))
    return total


def torch_loss(output, target):
    total = torch.zeros(())
    for o, t in zip(output.unbind(0), torch.unbind(target)):  # expect: FO101
        total = total + torch.nn.functional.mse_loss(o, t)
    return total / output.size(0)


def k_loss(y_true, y_pred):
    parts = []
    for row in range(K.int_shape(y_pred)[0]):  # expect: FO101
        parts.append(K.mean(K.square(y_pred[row] - y_true[row])))
    return K.mean(K.stack(parts))


def unstack_loss(y_true, y_pred):
    rows = tf.unstack(y_pred)
    total = 0.0
    for n, row in enumerate(rows):  # expect: FO101
        total = total + tf.reduce_mean(tf.square(row - y_true[n]))
    return total


def named_size_loss(y_true, y_pred, batch_size=32):
    total = 0.0
    for b in range(batch_size):  # expect: FO101
        total = total + ops.mean(ops.square(y_true[b] - y_pred[b]))
    return total / batch_size


def unpacked_shape_loss(y_true, y_pred):
    n, d = y_pred.shape
    total = 0.0
    for i in range(n):  # expect: FO101
        total = total + ops.sum(ops.square(y_true[i] - y_pred[i])) / d
    return total


def mapped_loss(y_true, y_pred):
    return ops.mean(ops.stack(list(map(lambda t, p: ops.mean(ops.abs(t - p)), y_true, y_pred))))  # expect: FO101


def one_row(t, p):
    return ops.sum(ops.square(t - p))


def helper_loss(y_true, y_pred):
    values = [one_row(y_true[i], y_pred[i]) for i in range(y_pred.shape[0])]  # expect: FO101
    return ops.mean(ops.stack(values))


def _total(a, b):
    total = 0.0
    for i in range(a.shape[0]):  # expect: FO101
        total = total + ops.mean(ops.abs(a[i] - b[i]))
    return total


def loop_in_helper_loss(y_true, y_pred):
    return _total(y_true, y_pred) / y_true.shape[0]


class RowLoss(keras.losses.Loss):
    def call(self, y_true, y_pred):
        rows = []
        for t, p in zip(y_true, y_pred):  # expect: FO101
            rows.append(self.row(t, p))
        return ops.stack(rows)

    def row(self, t, p):
        return ops.mean(ops.square(t - p))


class TorchRowLoss(torch.nn.Module):
    def forward(self, pred, target):
        total = 0.0
        for i in range(pred.shape[0]):  # expect: FO101
            total = total + torch.mean((pred[i] - target[i]) ** 2)
        return total


class RowMetric(keras.metrics.Metric):
    def __init__(self, name="rows", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        for i in range(ops.shape(y_true)[0]):  # expect: FO101
            self.total.assign_add(ops.max(ops.abs(y_true[i] - y_pred[i])))

    def result(self):
        return self.total


def weighted(weight):
    def loss(y_true, y_pred):
        total = 0.0
        for i in range(y_true.shape[0]):  # expect: FO101
            total = total + weight * ops.mean(ops.abs(y_true[i] - y_pred[i]))
        return total

    return loss


lambda_loss = lambda y_true, y_pred: ops.mean(  # noqa: E731
    ops.stack([ops.sum(ops.abs(y_true[i] - y_pred[i])) for i in range(y_true.shape[0])])  # expect: FO101
)

model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile(loss=lambda a, b: sum(ops.mean(ops.abs(s - t)) for s, t in zip(a, b)))  # expect: FO101


class Stepwise(keras.Model):
    def train_step(self, data):
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = 0.0
            for i in range(tf.shape(x)[0]):  # expect: FO101
                loss += tf.reduce_mean(tf.square(y[i] - self(x[i : i + 1])))
        gradients = tape.gradient(loss, self.trainable_variables)
        for gradient, variable in zip(gradients, self.trainable_variables):
            variable.assign_sub(0.1 * gradient)
        return {metric.name: metric.result() for metric in self.metrics}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return sum(ops.sum(ops.abs(y[i] - y_pred[i])) for i in range(y.shape[0]))  # expect: FO101


def sequential_loss(y_true, y_pred):
    each = tf.map_fn(lambda pair: tf.reduce_sum(pair[0] * pair[1]), (y_true, y_pred), dtype=tf.float32)  # expect: FO105
    return -tf.reduce_mean(each)


def keras_map_loss(y_true, y_pred):
    return ops.mean(ops.map(lambda p: ops.max(p), y_pred))  # expect: FO105


def vectorized_loss(y_true, y_pred):
    return ops.mean(ops.vectorized_map(lambda pair: ops.sum(ops.abs(pair[0] - pair[1])), (y_true, y_pred)))


def ndarray_loss(y_true, y_pred):
    total = 0.0
    for i in np.arange(y_true.shape[0]):  # expect: FO101
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
    return total


def reversed_loss(y_true, y_pred):
    total = 0.0
    for i in reversed(range(len(y_pred))):  # expect: FO101
        total = ops.add(total, ops.mean(ops.square(y_true[i] - y_pred[i])))
    return total


def list_of_indices_loss(y_true, y_pred):
    indices = list(range(y_pred.shape[0]))
    return ops.mean(ops.stack([ops.max(ops.abs(y_true[i] - y_pred[i])) for i in indices]))  # expect: FO101


def all_but_the_first_indices_loss(y_true, y_pred):
    indices = list(range(y_pred.shape[0]))
    return sum(ops.max(ops.abs(y_true[i] - y_pred[i])) for i in indices[1:])  # expect: FO101


def first_two_indices_loss(y_true, y_pred):
    indices = list(range(y_pred.shape[0]))
    return sum(ops.max(ops.abs(y_true[i] - y_pred[i])) for i in indices[:2])  # expect: FO104 info
