"""Clean losses in the spellings of forum posts: nothing to say about them."""

import keras
import tensorflow as tf
import torch
from keras import layers, ops

SCALES = (1, 2, 4)
WEIGHTS = ops.convert_to_tensor([0.2, 0.5, 1.0])


def multi_scale_loss(y_true, y_pred):
    total = 0.0
    for size in SCALES:
        a = ops.average_pool(y_true, size, padding="same")
        b = ops.average_pool(y_pred, size, padding="same")
        total = total + ops.mean(ops.abs(a - b)) / size
    return total


def two_heads_loss(y_true, y_pred):
    mean, log_var = ops.split(y_pred, 2, axis=-1)
    return ops.mean(0.5 * (ops.exp(-log_var) * ops.square(y_true - mean) + log_var))


def masked_sequence_loss(y_true, y_pred):
    mask = ops.cast(ops.not_equal(y_true, -1.0), y_pred.dtype)
    error = ops.square(y_true - y_pred) * mask
    return ops.sum(error, axis=-1) / ops.maximum(ops.sum(mask, axis=-1), 1.0)


def class_weighted_loss(y_true, y_pred):
    label = ops.cast(y_true, "int32")
    return ops.mean(ops.take(WEIGHTS, label) * keras.losses.sparse_categorical_crossentropy(label, y_pred))


def pairwise_loss(y_true, y_pred):
    d = ops.sum(ops.square(y_pred[:, None] - y_pred[None]), axis=-1)
    same = ops.cast(y_true[:, None] == y_true[None], d.dtype)
    return ops.mean(same * d + (1.0 - same) * ops.relu(1.0 - ops.sqrt(d + 1e-9)))


def recurrence_by_scan_loss(y_true, y_pred):
    def step(state, frame):
        state = ops.tanh(0.5 * state + frame)
        return state, state

    frames = ops.transpose(y_pred)
    _, states = ops.scan(step, ops.zeros_like(frames[0]), frames)
    return ops.mean(ops.square(ops.transpose(states) - y_true))


def make_quantile_loss(levels=(0.1, 0.5, 0.9)):
    grid = ops.convert_to_tensor(levels)

    def quantile_loss(y_true, y_pred):
        e = y_true - y_pred
        return ops.mean(ops.maximum(grid * e, (grid - 1.0) * e))

    return quantile_loss


def dict_of_outputs_loss(y_true, y_pred):
    total = 0.0
    for name in ("box", "mask"):
        total = total + ops.mean(ops.square(y_true[name] - y_pred[name]))
    return total


def regularised_loss(y_true, y_pred, weights=(1.0, 0.1)):
    mse, tv = weights
    return mse * ops.mean(ops.square(y_true - y_pred)) + tv * ops.mean(ops.abs(y_pred[:, 1:] - y_pred[:, :-1]))


class Tversky(keras.losses.Loss):
    def __init__(self, alpha=0.3, smooth=1.0, **kwargs):
        super().__init__(**kwargs)
        self.alpha, self.smooth = alpha, smooth

    def call(self, y_true, y_pred):
        axes = tuple(range(1, len(y_pred.shape)))
        tp = ops.sum(y_true * y_pred, axis=axes)
        fn = ops.sum(y_true * (1 - y_pred), axis=axes)
        fp = ops.sum((1 - y_true) * y_pred, axis=axes)
        return 1 - (tp + self.smooth) / (tp + self.alpha * fp + (1 - self.alpha) * fn + self.smooth)

    def get_config(self):
        return {**super().get_config(), "alpha": self.alpha, "smooth": self.smooth}


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


def torch_focal_loss(y_true, y_pred):
    ce = torch.nn.functional.cross_entropy(y_pred, y_true.long(), reduction="none")
    return ((1 - torch.exp(-ce)) ** 2 * ce).mean()


def tensorflow_ranked_loss(y_true, y_pred):
    diff = tf.expand_dims(y_pred, 1) - tf.expand_dims(y_pred, 2)
    order = tf.sign(tf.expand_dims(y_true, 1) - tf.expand_dims(y_true, 2))
    return tf.reduce_mean(tf.nn.softplus(-order * diff))


class EndOfEpoch(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        for name, value in (logs or {}).items():
            print(f"{epoch}: {name} {float(value):.4f}")
