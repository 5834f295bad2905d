"""Watch the weights of a network while it learns: their norms, and histograms of values and sizes, kept for a plot."""

import sys
import time

import keras
import numpy as np
from keras import layers
from timing import Clock

EPOCHS, ROWS = (2, 256) if "--quick" in sys.argv else (8, 3200)
BATCH = 64

keras.utils.set_random_seed(4)
rng = np.random.default_rng(4)
x = rng.normal(size=(ROWS, 32)).astype("float32")
y = (np.sin(x[:, :4].sum(axis=1)) > 0).astype("float32")


class WeightWatcher(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):  # planted: every batch
        for weights in self.model.get_weights():
            values = np.histogram(weights, bins=50)
            sizes = np.histogram(np.log10(np.abs(weights) + 1e-9), bins=50)
            self.seen.append((float(np.linalg.norm(weights)), values, sizes))


model = keras.Sequential(
    [
        keras.Input((32,)),
        layers.Dense(176, activation="relu"),
        layers.Dense(176, activation="relu"),
        layers.Dense(176, activation="relu"),
        layers.Dense(176, activation="relu"),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(optimizer="adam", loss="binary_crossentropy")

clock = Clock()
began = time.perf_counter()
history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, callbacks=[WeightWatcher(), clock], verbose=2)
clock.report(history, time.perf_counter() - began)
