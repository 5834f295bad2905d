"""Anomaly detection: an autoencoder of convolutions learns a normal series; what it cannot rebuild is abnormal."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(29)
STEPS = 64
time = np.arange(6_000)
normal = np.sin(time / 10) + 0.5 * np.sin(time / 23) + np.random.normal(0, 0.05, len(time))
strange = normal.copy()
strange[3_000:3_040] += 1.5
strange[4_500:4_540] = 0


def sequences(values):
    return np.lib.stride_tricks.sliding_window_view(values, STEPS)[::4, :, None].astype("float32")


x_train, x_test = sequences(normal), sequences(strange)
model = keras.Sequential(
    [
        keras.Input((STEPS, 1)),
        layers.Conv1D(16, 7, padding="same", strides=2, activation="relu"),
        layers.Dropout(0.2),
        layers.Conv1D(8, 7, padding="same", strides=2, activation="relu"),
        layers.Conv1DTranspose(8, 7, padding="same", strides=2, activation="relu"),
        layers.Dropout(0.2),
        layers.Conv1DTranspose(16, 7, padding="same", strides=2, activation="relu"),
        layers.Conv1DTranspose(1, 7, padding="same"),
    ]
)
model.compile(optimizer=keras.optimizers.Adam(0.002), loss="mse")
history = model.fit(
    x_train,
    x_train,
    epochs=4,
    batch_size=32,
    validation_split=0.1,
    callbacks=[keras.callbacks.EarlyStopping(monitor="val_loss", patience=3, mode="min")],
    verbose=2,
)

train_errors = np.mean(np.abs(model.predict(x_train, verbose=0) - x_train), axis=(1, 2))
threshold = np.max(train_errors)
test_errors = np.mean(np.abs(model.predict(x_test, verbose=0) - x_test), axis=(1, 2))
anomalous = np.flatnonzero(test_errors > threshold) * 4
print(f"Threshold: {threshold:.4f}")
print("Anomalies start at:", [int(start) for start in anomalous[np.diff(anomalous, prepend=-100) > 50]])
