"""Regression where some measurements are to be trusted more than others: sample weights, Huber, weighted metrics."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(47)
rows = 5_000
x = np.random.uniform(-3, 3, (rows, 2)).astype("float32")
truth = np.sin(x[:, 0]) * x[:, 1]
trust = np.random.choice([0.1, 1.0], rows).astype("float32")
y = (truth + np.random.normal(0, 0.1 / trust, rows)).astype("float32")


def train(weights):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((2,)),
            layers.Dense(32, activation="tanh", kernel_initializer="he_normal"),
            layers.Dense(32, activation="tanh", kernel_initializer="he_normal"),
            layers.Dense(1),
        ]
    )
    model.compile(
        keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
        loss=keras.losses.Huber(0.5),
        metrics=["mae"],
        weighted_metrics=["mse"],
    )
    validation = (x[4_000:], y[4_000:]) if weights is None else (x[4_000:], y[4_000:], weights[4_000:])
    model.fit(
        x[:4_000],
        y[:4_000],
        sample_weight=None if weights is None else weights[:4_000],
        batch_size=50,
        epochs=5,
        validation_data=validation,
        verbose=2,
    )
    return np.mean((model.predict(x[4_000:], verbose=0)[:, 0] - truth[4_000:]) ** 2)


print("All measurements alike")
alike = train(None)
print("Weighted by trust")
weighted = train(trust)
print(f"Error against the truth: {alike:.4f} alike, {weighted:.4f} weighted")
