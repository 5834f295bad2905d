"""Tell three kinds of machines apart by their vibration, with data augmentation in a generator."""

import sys
import time

import keras
import numpy as np
from keras import layers
from timing import Clock

EPOCHS, STEPS = (2, 3) if "--quick" in sys.argv else (8, 50)
BATCH, LENGTH = 256, 64
KERNEL = np.array([0.25, 0.5, 0.25], "float32")

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
kinds = rng.integers(0, 3, 5000)
time_axis = np.linspace(0, 6 * np.pi, LENGTH)
signals = np.sin(time_axis * (1 + kinds[:, None])) + rng.normal(0, 2, (5000, LENGTH))
signals = signals.astype("float32")


def batches():
    while True:
        chosen = rng.integers(0, len(signals), BATCH)
        x = np.empty((BATCH, LENGTH), "float32")
        for i, signal in enumerate(signals[chosen]):  # planted: each row by itself
            signal = signal + 0.1 * rng.standard_normal(LENGTH, "float32")  # sensor noise
            signal = np.clip(signal, -5, 5)  # what the sensor can show
            signal = np.convolve(np.pad(signal, 1, mode="edge"), KERNEL, mode="valid")  # smooth
            x[i] = (signal - signal.mean()) / signal.std()  # standardize
        yield x, kinds[chosen]


model = keras.Sequential(
    [
        keras.Input((LENGTH,)),
        layers.Dense(96, activation="relu"),
        layers.Dense(96, activation="relu"),
        layers.Dense(96, activation="relu"),
        layers.Dense(3, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")

clock = Clock()
began = time.perf_counter()
history = model.fit(batches(), steps_per_epoch=STEPS, epochs=EPOCHS, callbacks=[clock], verbose=2)
clock.report(history, time.perf_counter() - began)
