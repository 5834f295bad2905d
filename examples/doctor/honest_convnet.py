"""Tell pictures with a bright disc from those with a bright square: a convnet that has its work to do."""

import sys
import time

import keras
import numpy as np
from keras import layers
from timing import Clock

EPOCHS, ROWS = (2, 128) if "--quick" in sys.argv else (6, 640)
BATCH, SIDE = 64, 64

keras.utils.set_random_seed(6)
rng = np.random.default_rng(6)
labels = rng.integers(0, 2, ROWS)
across, down = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
centres = rng.integers(16, 48, (ROWS, 2, 1, 1))
distance = np.abs(across - centres[:, 0]), np.abs(down - centres[:, 1])
is_disc, is_square = np.hypot(*distance) < 12, np.maximum(*distance) < 11
shapes = np.where(labels[:, None, None] == 0, is_disc, is_square)
images = (shapes + rng.normal(0, 0.5, shapes.shape)).astype("float32")[..., None]

model = keras.Sequential(
    [
        keras.Input((SIDE, SIDE, 1)),
        layers.Conv2D(8, 3, activation="relu", padding="same"),
        layers.MaxPooling2D(),
        layers.Conv2D(16, 3, activation="relu", padding="same"),
        layers.MaxPooling2D(),
        layers.Conv2D(32, 3, activation="relu", padding="same"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(2, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")

clock = Clock()
began = time.perf_counter()
history = model.fit(images, labels, batch_size=BATCH, epochs=EPOCHS, callbacks=[clock], verbose=2)
clock.report(history, time.perf_counter() - began)
