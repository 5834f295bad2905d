"""Estimate the price of a flat from eight figures with a small network, in small batches."""

import sys
import time

import keras
import numpy as np
from keras import layers
from timing import Clock

EPOCHS, ROWS = (2, 64) if "--quick" in sys.argv else (6, 8192)

keras.utils.set_random_seed(5)
rng = np.random.default_rng(5)
flats = rng.normal(size=(ROWS, 8)).astype("float32")
price = (flats @ rng.normal(size=8) + 0.1 * rng.normal(size=ROWS)).astype("float32")

model = keras.Sequential(
    [
        keras.Input((8,)),
        layers.Dense(16, activation="relu"),
        layers.Dense(16, activation="relu"),
        layers.Dense(1),
    ]
)
model.compile(optimizer="adam", loss="mse")

clock = Clock()
began = time.perf_counter()
history = model.fit(flats, price, batch_size=8, epochs=EPOCHS, callbacks=[clock], verbose=2)  # planted: tiny batches
clock.report(history, time.perf_counter() - began)
