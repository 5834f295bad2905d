"""Probabilistic forecasts: one loss per quantile, made by a function that returns a loss."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(31)
QUANTILES = (0.1, 0.5, 0.9)


def pinball(quantile):
    def loss(y_true, y_pred):
        error = y_true - y_pred
        return ops.mean(ops.maximum(quantile * error, (quantile - 1) * error), axis=-1)

    return loss


days = np.arange(5_000)
demand = 50 + 10 * np.sin(2 * np.pi * days / 7) + np.random.gamma(2.0, 3.0, len(days))
series = (demand - demand.mean()) / demand.std()
x = np.lib.stride_tricks.sliding_window_view(series[:-1], 14).astype("float32")
y = series[14:].astype("float32")[:, None]

inputs = keras.Input((14,))
hidden = layers.Dense(32, activation="gelu")(layers.LayerNormalization()(inputs))
heads = [layers.Dense(1, name=f"q{int(100 * quantile)}")(hidden) for quantile in QUANTILES]
model = keras.Model(inputs, heads)
model.compile(keras.optimizers.Nadam(2e-3), loss=[pinball(quantile) for quantile in QUANTILES])
model.fit(x[:4_000], [y[:4_000]] * 3, batch_size=32, epochs=5, verbose=2)

low, middle, high = model.predict(x[4_000:], verbose=0)
inside = np.mean((y[4_000:] > low) & (y[4_000:] < high))
print(f"80 % interval holds {inside:.1%} of the days; median error {np.mean(np.abs(y[4_000:] - middle)):.4f}")
