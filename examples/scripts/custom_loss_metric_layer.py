"""Everything of our own: a layer with state, an activation, a loss class, a metric class, a regularizer."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(181)


class RunningScale(layers.Layer):
    """Divides by a running estimate of the size of its inputs."""

    def __init__(self, momentum=0.95, **options):
        super().__init__(**options)
        self.momentum = momentum

    def build(self, shape):
        self.size = self.add_weight(shape=(shape[-1],), initializer="ones", trainable=False, name="size")
        self.gain = self.add_weight(shape=(shape[-1],), initializer=keras.initializers.Constant(1.5), name="gain")

    def call(self, x, training=False):
        if training:
            now = ops.mean(ops.abs(x), axis=0)
            self.size.assign(self.momentum * self.size + (1 - self.momentum) * now)
        return x / (self.size + 1e-3) * self.gain


class FocalLoss(keras.losses.Loss):
    def __init__(self, gamma=2.0, **options):
        super().__init__(**options)
        self.gamma = gamma

    def call(self, y_true, y_pred):
        y_pred = ops.clip(y_pred, 1e-6, 1 - 1e-6)
        of_truth = ops.where(y_true > 0.5, y_pred, 1 - y_pred)
        return -ops.mean((1 - of_truth) ** self.gamma * ops.log(of_truth), axis=-1)


class F1(keras.metrics.Metric):
    def __init__(self, name="f1", **options):
        super().__init__(name=name, **options)
        self.right = self.add_weight(name="right", initializer="zeros")
        self.claimed = self.add_weight(name="claimed", initializer="zeros")
        self.present = self.add_weight(name="present", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        claimed = ops.cast(y_pred > 0.5, "float32")
        present = ops.cast(y_true, "float32")
        self.right.assign_add(ops.sum(claimed * present))
        self.claimed.assign_add(ops.sum(claimed))
        self.present.assign_add(ops.sum(present))

    def result(self):
        return 2 * self.right / (self.claimed + self.present + 1e-7)


def mish(x):
    return x * ops.tanh(ops.softplus(x))


def off_diagonal(kernel):
    return 1e-3 * ops.sum(ops.abs(kernel)) - 1e-3 * ops.sum(ops.abs(ops.diagonal(kernel)))


x = (np.random.normal(size=(3_000, 16)) * np.arange(1, 17)).astype("float32")
y = (x[:, :1] / 1 + x[:, 5:6] / 6 > 1.0).astype("float32")
model = keras.Sequential(
    [
        keras.Input((16,)),
        RunningScale(),
        layers.Dense(16, activation=mish, kernel_regularizer=off_diagonal, kernel_initializer="orthogonal"),
        layers.Dense(1, activation="sigmoid", bias_constraint=keras.constraints.MaxNorm(1.0)),
    ]
)
model.compile(keras.optimizers.Adamax(0.01), loss=FocalLoss(gamma=1.5), metrics=[F1(), "accuracy"])
history = model.fit(x[:2_400], y[:2_400], batch_size=48, epochs=5, validation_data=(x[2_400:], y[2_400:]), verbose=2)
print("Running sizes:", np.round(ops.convert_to_numpy(model.layers[0].size)[:4], 3).tolist())
print("F1:", [round(float(value), 4) for value in history.history["val_f1"]])
