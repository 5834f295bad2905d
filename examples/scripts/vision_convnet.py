"""Simple convnet: classify clothes (Fashion-MNIST, or drawn stand-ins where the files are not there)."""

import gzip
import os
from pathlib import Path

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(42)


def read_images(folder, kind, count):
    images = gzip.decompress((folder / f"{kind}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / f"{kind}-labels-idx1-ubyte.gz").read_bytes())
    x = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28, 1)
    return x[:count].astype("float32") / 255, np.frombuffer(labels, np.uint8, offset=8)[:count]


def draw_images(count):
    """Ten kinds of stripes with noise."""
    labels = np.random.randint(0, 10, count)
    rows, columns = np.mgrid[:28, :28]
    angles = labels[:, None, None] * np.pi / 10
    stripes = np.sin((rows * np.cos(angles) + columns * np.sin(angles)) * 0.9)
    return (stripes + np.random.normal(0, 0.7, stripes.shape))[..., None].astype("float32"), labels


folder = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
if folder.is_dir():
    x_train, y_train = read_images(folder, "train", 4_000)
    x_test, y_test = read_images(folder, "t10k", 1_000)
else:
    x_train, y_train = draw_images(4_000)
    x_test, y_test = draw_images(1_000)

y_train = keras.utils.to_categorical(y_train, 10)
y_test = keras.utils.to_categorical(y_test, 10)

model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(10, activation="softmax"),
    ]
)
model.summary()
model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=64, epochs=3, validation_split=0.1)

score = model.evaluate(x_test, y_test, verbose=0)
print("Test loss:", score[0])
print("Test accuracy:", score[1])
