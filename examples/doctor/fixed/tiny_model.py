"""Estimate the price of a flat from eight figures with a small network, in large batches."""

import sys
import time
from pathlib import Path

import keras
import numpy as np
from keras import layers

sys.path.append(str(Path(__file__).parents[1]))
from timing import Clock

EPOCHS, ROWS = (2, 64) if "--quick" in sys.argv else (6, 8192)
BATCH = int(sys.argv[sys.argv.index("--batch-size") + 1]) if "--batch-size" in sys.argv else 256

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
history = model.fit(flats, price, batch_size=BATCH, epochs=EPOCHS, callbacks=[clock], verbose=2)
clock.report(history, time.perf_counter() - began)
