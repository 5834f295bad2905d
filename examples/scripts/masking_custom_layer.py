"""Sequences of measurements with gaps: a Masking layer, and a layer of our own that knows what a mask is."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(179)
LENGTH = 10


class MeanOfSeen(layers.Layer):
    """The mean over time of what is not masked."""

    def __init__(self, **options):
        super().__init__(**options)
        self.supports_masking = True

    def call(self, x, mask=None):
        if mask is None:
            return ops.mean(x, axis=1)
        weights = ops.expand_dims(ops.cast(mask, x.dtype), -1)
        return ops.sum(x * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1.0)

    def compute_mask(self, inputs, mask=None):
        return None


def measurements(count):
    x = np.random.normal(size=(count, LENGTH, 3)).astype("float32")
    lengths = np.random.randint(3, LENGTH + 1, count)
    seen = np.arange(LENGTH)[None] < lengths[:, None]
    x[~seen] = -1.0
    y = np.array([row[:length, 0].mean() + row[:length, 1].max() for row, length in zip(x, lengths, strict=True)])
    return x, y.astype("float32")


x_train, y_train = measurements(2_400)
x_test, y_test = measurements(400)
inputs = keras.Input((LENGTH, 3))
masked = layers.Masking(-1.0)(inputs)
hidden = layers.TimeDistributed(layers.Dense(24, activation="relu"))(masked)
hidden = layers.Concatenate()([MeanOfSeen()(hidden), layers.SimpleRNN(12)(masked)])
model = keras.Model(inputs, layers.Dense(1)(hidden))
model.compile(keras.optimizers.Adam(5e-3), "mse", metrics=[keras.metrics.RootMeanSquaredError()])
model.fit(x_train, y_train, batch_size=32, epochs=4, validation_data=(x_test, y_test), verbose=2)

predicted = model.predict(x_test[:2], verbose=0)[:, 0]
print("Predictions:", np.round(predicted, 3).tolist(), "of", np.round(y_test[:2], 3).tolist())
