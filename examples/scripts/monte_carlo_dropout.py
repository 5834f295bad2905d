"""How sure is the model? Dropout stays on while predicting, and a hundred predictions give a spread."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(229)
x = np.random.uniform(-2, 2, (2_000, 1)).astype("float32")
x = x[np.abs(x[:, 0]) > 0.6]
y = x**3 / 4 + np.random.normal(0, 0.05, x.shape).astype("float32")


class AlwaysDropout(layers.Dropout):
    def call(self, inputs, training=None):
        return super().call(inputs, training=True)


def gaussian_likelihood(y_true, y_pred):
    mean, log_variance = y_pred[:, :1], y_pred[:, 1:]
    return ops.mean(0.5 * ops.exp(-log_variance) * ops.square(y_true - mean) + 0.5 * log_variance, axis=-1)


inputs = keras.Input((1,))
hidden = inputs
for _ in range(2):
    hidden = AlwaysDropout(0.1, seed=7)(layers.Dense(48, activation="relu")(hidden))
model = keras.Model(inputs, layers.Dense(2)(hidden))
model.compile(keras.optimizers.Adam(4e-3), loss=gaussian_likelihood)
model.fit(x, y, batch_size=32, epochs=8, verbose=2)

grid = np.array([[-1.5], [0.0], [1.5], [3.0]], "float32")
draws = np.stack([model.predict(grid, verbose=0)[:, 0] for _ in range(30)])
for place, mean, spread in zip(grid[:, 0], draws.mean(axis=0), draws.std(axis=0), strict=True):
    print(f"x = {place:+.1f}: {mean:+.2f} ± {spread:.2f}")
