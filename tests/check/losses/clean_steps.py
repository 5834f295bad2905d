"""Metrics, models, steps and callbacks that nothing is to be said of, and functions that are no losses."""

import keras
import numpy as np
import tensorflow as tf
import torch
from keras import layers, ops


class MeanGap(keras.metrics.Metric):
    def __init__(self, name="gap", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(ops.sum(ops.abs(y_true - y_pred)))
        self.count.assign_add(ops.cast(ops.size(y_true), "float32"))

    def result(self):
        return self.total / (self.count + 1e-7)


class Val(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.evaluate(self.x, self.y, verbose=0)

    def on_train_batch_end(self, batch, logs=None):
        self.seen = batch
        if batch % 100 == 0:
            print(logs["loss"])


class LR(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = 1e-3 * min(1.0, (batch + 1) / 100)


def best_threshold(scores, labels):
    best, at = 0.0, 0.0
    for t in np.linspace(0, 1, 50):
        f = ((scores > t) == labels).mean()
        if f > best:
            best, at = f, t
    return at


class MeanIoU(keras.metrics.Metric):
    def __init__(self, classes, name="iou"):
        super().__init__(name=name)
        self.classes = classes
        self.matrix = self.add_weight(shape=(classes, classes), initializer="zeros", name="matrix")

    def update_state(self, y_true, y_pred, sample_weight=None):
        truth = ops.one_hot(ops.reshape(ops.cast(y_true, "int32"), (-1,)), self.classes)
        guess = ops.one_hot(ops.reshape(ops.argmax(y_pred, axis=-1), (-1,)), self.classes)
        self.matrix.assign_add(ops.matmul(ops.transpose(truth), guess))

    def result(self):
        inter = ops.diagonal(self.matrix)
        union = ops.sum(self.matrix, axis=0) + ops.sum(self.matrix, axis=1) - inter
        return ops.mean(inter / ops.maximum(union, 1.0))


class Distiller(keras.Model):
    def __init__(self, student, teacher, alpha=0.5):
        super().__init__()
        self.student, self.teacher, self.alpha = student, teacher, alpha
        self.drop = layers.Dropout(0.1)

    def call(self, x, training=False):
        return self.student(self.drop(x, training=training))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        soft = ops.softmax(self.teacher(x, training=False))
        hard = keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
        kl = ops.sum(soft * (ops.log(soft + 1e-9) - ops.log_softmax(y_pred)), axis=-1)
        return ops.mean(self.alpha * hard + (1 - self.alpha) * kl)


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


def prepare(data):
    rows = []
    for row in data:
        rows.append(float(row[0]) * 2)
    return np.array(rows)
