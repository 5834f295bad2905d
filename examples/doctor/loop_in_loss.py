"""Predict the shape of a daily load curve: the loss is one minus the correlation of each curve with its forecast."""

import sys
import time

import keras
import numpy as np
from keras import layers, ops
from timing import Clock

EPOCHS, ROWS = (2, 64) if "--quick" in sys.argv else (8, 1600)
HOURS, BATCH = 24, 32

keras.utils.set_random_seed(2)
rng = np.random.default_rng(2)
weather = rng.normal(size=(ROWS, 10)).astype("float32")
load = np.tanh(weather @ rng.normal(size=(10, HOURS))).astype("float32")


def correlation_loss(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):  # planted: sample by sample
        t = y_true[i] - ops.mean(y_true[i])
        p = y_pred[i] - ops.mean(y_pred[i])
        norm = ops.sqrt(ops.sum(t * t) * ops.sum(p * p) + 1e-6)
        total = total + 1.0 - ops.sum(t * p) / norm
    return total / y_true.shape[0]


model = keras.Sequential(
    [
        keras.Input((10,)),
        layers.Dense(64, activation="relu"),
        layers.Dense(64, activation="relu"),
        layers.Dense(HOURS),
    ]
)
model.compile(optimizer="adam", loss=correlation_loss)

clock = Clock()
began = time.perf_counter()
history = model.fit(weather, load, batch_size=BATCH, epochs=EPOCHS, callbacks=[clock], verbose=2)
clock.report(history, time.perf_counter() - began)
