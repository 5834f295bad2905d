"""Losses that reach for what is outside of them: models, variables, state of Python, compiled code; nothing is run."""

import functools

import keras
import numba
import numpy as np
import tensorflow as tf
from keras import ops
from numba import njit

teacher = keras.models.load_model("teacher.keras")
vgg = keras.applications.VGG16(include_top=False)
features = keras.Model(vgg.input, vgg.get_layer("block3_conv3").output)

# -- models


def distilled_loss(y_true, y_pred):  # reported: FO201
    soft = teacher.predict(y_true)
    return ops.mean(keras.losses.kl_divergence(ops.softmax(soft), ops.softmax(y_pred)))


def perceptual_loss(y_true, y_pred):  # reported: FO305 FO307
    return ops.mean(ops.square(features(y_true) - features(y_pred)))


class Distilled(keras.Model):  # reported: FO201
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        soft = self.teacher.predict_on_batch(x)
        return ops.mean(ops.square(soft - y_pred))


class EvaluatedMetric(keras.metrics.Metric):  # reported: FO201
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.count = 1

    def result(self):
        return self.net.evaluate(self.x, self.y, verbose=0)


def loaded_loss(y_true, y_pred):  # reported: FO301
    net = keras.applications.VGG19(include_top=False, weights="imagenet")
    return ops.mean(ops.square(net(y_true) - net(y_pred)))


# -- variables

parts = {"bce": tf.Variable(0.5), "dice": tf.Variable(0.5)}
precisions = [keras.Variable(0.0), keras.Variable(0.0)]


class Settings:
    margin = keras.Variable(1.0)
    slope = 0.5


def combined_loss(y_true, y_pred):  # reported: FO305
    overlap = 1 - ops.sum(y_true * y_pred) / (ops.sum(y_true + y_pred) + 1e-6)
    return parts["bce"] * ops.mean(ops.binary_crossentropy(y_true, y_pred)) + parts["dice"] * overlap


def several_tasks_loss(y_true, y_pred):  # reported: FO305
    total = 0.0
    for k in range(2):
        total += ops.exp(-precisions[k]) * ops.mean(ops.square(y_true[:, k] - y_pred[:, k])) + precisions[k]
    return total


def margin_loss(y_true, y_pred):  # reported: FO305 FO303
    return ops.mean(ops.relu(Settings.margin - y_true * y_pred)) * Settings.slope


# -- what changes from one epoch to the next

weights_of_classes = np.ones(10, "float32")
weights_of_steps = None
weights_of_labels = {0: 1.0, 1: 1.0}


class Schedule:
    def __init__(self):
        self.weight = 0.0

    def advance(self, epoch):
        self.weight = 1 - np.exp(-epoch)


schedule = Schedule()


class Reweights(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        global weights_of_steps
        weights_of_steps = np.exp(-0.1 * epoch * np.arange(5))
        for code in range(10):
            weights_of_classes[code] = 1.0 + epoch / 10
        weights_of_labels.update({0: logs["loss"], 1: 1 / logs["loss"]})
        schedule.advance(epoch)
        self.model.loss.scale = np.full(4, 0.5)
        parts["bce"].assign(0.9**epoch)
        Settings.margin.assign(1.0 + epoch)
        Settings.slope = epoch / 10


def by_class_loss(y_true, y_pred):  # reported: FO303
    weight = ops.sum(ops.convert_to_tensor(weights_of_classes) * y_true, axis=-1)
    return weight * keras.losses.categorical_crossentropy(y_true, y_pred)


def by_step_loss(y_true, y_pred):  # reported: FO303
    return ops.mean(ops.square(y_true - y_pred) * weights_of_steps)


def by_label_loss(y_true, y_pred):  # reported: FO303
    weight = y_true * weights_of_labels[1] + (1 - y_true) * weights_of_labels[0]
    return ops.mean(weight * keras.losses.binary_crossentropy(y_true, y_pred))


def by_schedule_loss(y_true, y_pred):  # reported: FO303
    return ops.mean(ops.abs(y_true - y_pred)) + schedule.weight * ops.mean(ops.square(y_pred))


class ScaledLoss(keras.losses.Loss):  # reported: FO303
    def __init__(self):
        super().__init__()
        self.scale = np.ones(4, "float32")

    def call(self, y_true, y_pred):
        return ops.mean(self.scale * ops.square(y_true - y_pred))


class Fits:  # reported: FO303
    def __init__(self, model):
        self.model = model
        self.shares = np.ones(3, "float32")
        model.compile("adam", loss=self.share_loss)

    def share_loss(self, y_true, y_pred):
        return ops.mean(ops.square(y_true - y_pred) * self.shares)

    def run(self, x, y):
        for _ in range(10):
            self.model.fit(x, y)
            self.shares = np.abs(self.model.predict(x) - y).mean(0)


penalty = 0.0


def penalized_loss(y_true, y_pred):  # reported: FO303
    return ops.mean(ops.square(y_true - y_pred)) + penalty * ops.sum(ops.abs(y_pred))


for epoch in range(20):
    penalty = 0.1 * epoch
    teacher.fit([0.0], [0.0], epochs=epoch + 1, initial_epoch=epoch)

# -- made by functions


class Factory:
    @staticmethod
    def build(kind):
        if kind == "rows":

            def rows_loss(y_true, y_pred):
                return sum(ops.abs(y_true[i] - y_pred[i]) for i in range(len(y_pred)))

            return rows_loss
        return None


rows_loss = Factory.build("rows")  # reported: FO101


def reduced(reduction):
    def decorator(function):
        def each_row_loss(y_true, y_pred):
            return reduction(ops.stack([function(y_true[i], y_pred[i]) for i in range(y_true.shape[0])]))

        return each_row_loss

    return decorator


each_row_loss = reduced(ops.mean)(ops.subtract)  # reported: FO101


def _by_kind(kind, y_true, y_pred):
    total = 0.0
    for target, guess in zip(y_true, y_pred, strict=True):
        total += ops.sum(ops.abs(target - guess)) if kind == "l1" else ops.sum(ops.square(target - guess))
    return total


first_kind = functools.partial(_by_kind, "l1")  # reported: FO101
teacher.compile("adam", loss=first_kind)

# -- machine code of the host


@njit(fastmath=True)
def _warped(a, b):
    cost = np.full((len(a) + 1, len(b) + 1), np.inf)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            cost[i, j] = abs(a[i - 1] - b[j - 1]) + min(cost[i - 1, j], cost[i, j - 1])
    return cost[-1, -1]


def _squares(a, b):
    total = 0.0
    for i in range(a.shape[0]):
        total += (a[i] - b[i]) ** 2
    return total


fast_squares = numba.njit(_squares)


def warped_metric(y_true, y_pred):  # reported: FO201 FO205
    return _warped(ops.convert_to_numpy(y_true[0]), ops.convert_to_numpy(y_pred[0]))


def called_back_loss(y_true, y_pred):  # reported: FO204 FO205 FO501
    return tf.numpy_function(_warped, [y_true, y_pred], tf.float32)


def squares_loss(y_true, y_pred):  # reported: FO201 FO205 FO501
    target, guess = ops.convert_to_numpy(y_true), ops.convert_to_numpy(y_pred)
    return fast_squares(target, guess) / len(target)


# -- steps of loops that users write


@tf.function
def train_on(images, labels):  # reported: FO101
    guesses = teacher(images, training=True)
    total = 0.0
    for i in range(BATCH_SIZE):  # noqa: F821
        total += tf.reduce_sum(tf.square(labels[i] - guesses[i]))
    return total


def batch_loss(model, x, y):  # reported: FO101
    guess = model(x)
    return ops.stack([ops.mean(guess[i] - y[i]) for i in range(len(y))])


class Branches(keras.Model):  # reported: FO202
    def train_step(self, real):
        score = tf.reduce_mean(self.critic(self.generator(real)))
        if score > 0.5:
            score = score * 2
        return {"loss": score}
